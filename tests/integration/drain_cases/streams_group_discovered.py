"""A streams group that has committed nothing yet is known by the topics that it subscribes to."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(1)
    kit.produce(topic, 3, 0)
    kit.commit("g-" + topic, topic, {0: 3})
    kit.streams_member("app-" + topic, topic, commits={})
    return Scenario(topic, spec_groups=("g-" + topic,))


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("app", 0): ("never_committed", 3)},
    kind={"app": "streams"},
    topic_reasons=("undeclared_group:app",),
)
