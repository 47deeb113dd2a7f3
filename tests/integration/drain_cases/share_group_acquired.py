"""A share group that was given a record and has not said a word about it has not dealt with it."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 1)
    kit.share_consumer(group, topic, take=1, acknowledge=0, rest=None)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("never_committed", 1)}, kind={"g": "share"})
