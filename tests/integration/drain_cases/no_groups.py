"""A topic that nobody reads is not drained by emptiness."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    return Scenario(topic)


CASE = Case(build, "unknown", 4, topic_reasons=("no_groups",))
