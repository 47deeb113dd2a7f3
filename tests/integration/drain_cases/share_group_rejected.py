"""A share group that has rejected a record for good has dealt with it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 5)
    kit.share_consumer(group, topic, take=5, acknowledge=4, rest="REJECT")
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, kind={"g": "share"})
