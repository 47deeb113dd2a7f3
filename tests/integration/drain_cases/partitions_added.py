"""Partitions that were added after the fence are in no fence."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(1)
    kit.produce(topic, 3)
    fence = kit.ends(topic)
    kit.add_partitions(topic, 2)
    kit.commit("g-" + topic, topic, {0: 3})
    return Scenario(topic, groups=("g-" + topic,), fence=fence)


CASE = Case(build, "unknown", 4, rows={("g", 0): ("at_end", 0), ("g", 1): ("fence_incomplete", None)})
