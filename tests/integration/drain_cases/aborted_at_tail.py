"""Aborted records and their marker after the commit are nothing to read."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 2)
    kit.transaction(topic, 5, end="abort")
    kit.transaction(topic, 3, end="abort")
    kit.commit("g-" + topic, topic, {0: 2})
    return Scenario(topic, groups=("g-" + topic,), fence=kit.ends(topic))


CASE = Case(build, "drained", 0, rows={("g", 0): ("nothing_readable", 0)})
