"""A topic that does not exist is wrong use, not an empty yes."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    return Scenario(kit.name("missing"), groups=("g",))


CASE = Case(build, "unknown", 2, topic_reasons=("topic_not_found",))
