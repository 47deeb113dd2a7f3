"""Without DESCRIBE on the group nothing is known of it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.allow("search", "TOPIC", topic, "DESCRIBE", "READ")
    return Scenario(topic, groups=("g-" + topic,), user="search")


CASE = Case(
    build,
    "unknown",
    4,
    rows={("g", 0): ("group_unreadable", None)},
    errors=("GROUP_AUTHORIZATION_FAILED",),
    secure=True,
)
