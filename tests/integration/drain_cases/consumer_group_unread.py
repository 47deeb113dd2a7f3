"""A live group of the KIP-848 consumer protocol whose position is ahead of its commit: only the commit counts."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import TopicPartition

    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 3)
    consumer = kit.consumer(group, [topic], read=3, group_protocol="consumer")
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 2)}, state={"g": "STABLE"}, kind={"g": "consumer"})
