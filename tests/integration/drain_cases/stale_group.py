"""A group that nobody has run for long, with records left: it blocks until somebody ignores it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 5)
    kit.commit("g-" + topic, topic, {0: 5})
    kit.commit("old-" + topic, topic, {0: 1})
    return Scenario(topic, spec_groups=("g-" + topic,))


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("g", 0): ("at_end", 0), ("old", 0): ("unread", 4)},
    state={"old": "EMPTY"},
    topic_reasons=("undeclared_group:old",),
)
