"""A live group of the KIP-848 consumer protocol."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    topic = kit.topic(2)
    group = "g-" + topic
    kit.produce(topic, 3, 0)
    consumer = kit.consumer(group, [topic], read=3, group_protocol="consumer")
    consumer.commit(asynchronous=False)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, state={"g": "STABLE"}, kind={"g": "consumer"})
