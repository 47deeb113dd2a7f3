"""A live member that has committed nothing yet reads the topic all the same."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.consumer("live-" + topic, [topic], read=2)
    return Scenario(topic, spec_groups=("g-" + topic,))


CASE = Case(
    build,
    "not_drained",
    3,
    rows={("live", 0): ("never_committed", 2)},
    topic_reasons=("undeclared_group:live",),
)
