"""A tail that has to be read, and may not be: unknown, never drained."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.transaction(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.allow("search", "TOPIC", topic, "DESCRIBE")
    kit.allow("search", "GROUP", "g-" + topic, "DESCRIBE")
    return Scenario(topic, groups=("g-" + topic,), user="search")


CASE = Case(
    build,
    "unknown",
    4,
    rows={("g", 0): ("tail_unreadable", None)},
    errors=("TOPIC_AUTHORIZATION_FAILED",),
    secure=True,
)
