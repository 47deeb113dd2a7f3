"""A group of the streams protocol that has a record to go, and a partition that it never committed."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    group = "g-" + topic
    kit.produce(topic, 3, 0)
    kit.produce(topic, 1, 1)
    kit.streams_member(group, topic, commits={0: 2})
    return Scenario(topic, groups=(group,))


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("g", 0): ("unread", 1), ("g", 1): ("never_committed", ...)},
    kind={"g": "streams"},
)
