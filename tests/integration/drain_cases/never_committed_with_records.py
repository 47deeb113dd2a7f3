"""A partition that the group never committed is not left out: its records are unread."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(3)
    kit.produce(topic, 2, 0)
    kit.produce(topic, 4, 1)
    kit.commit("g-" + topic, topic, {0: 2})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("g", 0): ("at_end", 0), ("g", 1): ("never_committed", 4), ("g", 2): ("empty", 0)},
)
