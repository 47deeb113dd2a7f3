"""Records between the commit and the end are counted and block."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 5, 0)
    kit.produce(topic, 1, 1)
    kit.commit("g-" + topic, topic, {0: 2, 1: 1})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 3), ("g", 1): ("at_end", 0)})
