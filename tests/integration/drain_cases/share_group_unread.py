"""A share group that has released a record has not dealt with it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 5)
    kit.share_consumer(group, topic, take=5, acknowledge=4)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", ...)}, kind={"g": "share"})
