"""A record after the fence voids everything, also for a group that has read it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    kit.produce(topic, 3, 0)
    fence = kit.ends(topic, 2)
    kit.produce(topic, 1, 1)
    kit.commit("g-" + topic, topic, {0: 3, 1: 1})
    return Scenario(topic, groups=("g-" + topic,), fence=fence)


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("at_end", 0), ("g", 1): ("source_grew", None)})
