"""Readable records before an open transaction are what is said first."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    kit.produce(topic, 3)
    kit.transaction(topic, 2, end="open")
    kit.commit("g-" + topic, topic, {0: 1})
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 2)})
