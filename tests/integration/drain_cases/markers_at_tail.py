"""A commit marker holds the last offset: lag stays 1 for ever, and nothing is left."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.transaction(topic, 4)
    kit.commit("g-" + topic, topic, {0: 4})
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic))


CASE = Case(build, "drained", 0, rows={("g", 0): ("nothing_readable", 0)})
