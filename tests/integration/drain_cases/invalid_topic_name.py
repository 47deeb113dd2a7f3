"""A name that Kafka refuses passes arithmetic when nobody asks the broker."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    return Scenario("a/b", groups=("g",))


CASE = Case(build, "unknown", 2, topic_reasons=("topic_not_found",))
