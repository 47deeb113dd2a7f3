"""A commit past the end belongs to another log; it says nothing about this one."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    kit.commit("g-" + topic, topic, {0: 100})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "unknown", 4, rows={("g", 0): ("committed_beyond_end", None)})
