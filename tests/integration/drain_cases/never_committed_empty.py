"""A partition that never held a record does not block a group that never committed there."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 2, 0)
    kit.commit("g-" + topic, topic, {0: 2})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0), ("g", 1): ("empty", 0)})
