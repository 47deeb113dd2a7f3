"""A group of the streams protocol (KIP-1071) commits offsets as others do."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    group = "g-" + topic
    kit.produce(topic, 3, 0)
    kit.streams_member(group, topic, commits={0: 3, 1: 0})
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0), ("g", 1): ("at_end", 0)}, kind={"g": "streams"})
