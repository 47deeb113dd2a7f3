"""A share group that the spec does not know blocks by name, though it has no commits."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.commit("g-" + topic, topic, {0: 2})
    kit.share_consumer("shared-" + topic, topic, take=2, acknowledge=2)
    return Scenario(topic, spec_groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("at_end", 0)}, topic_reasons=("undeclared_group:shared",))
