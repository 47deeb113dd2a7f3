"""A group that does not exist is described as dead without an error; it is wrong use all the same."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "unknown", 2, rows={("g", 0): ("group_not_found", None)}, state={"g": "DEAD"})
