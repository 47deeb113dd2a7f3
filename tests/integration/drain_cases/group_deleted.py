"""A group that was deleted with its commits is gone, not drained."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 1)
    kit.commit("g-" + topic, topic, {0: 1})
    kit.delete_group("g-" + topic)
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "unknown", 2, rows={("g", 0): ("group_not_found", None)})
