"""Offsets committed inside a transaction that was aborted never counted: the older commit stands."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Producer, TopicPartition

    topic, sink = kit.topic(), kit.topic()
    group = "g-" + topic
    kit.produce(topic, 4)
    consumer = kit.consumer(group, [topic], read=4)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer = Producer({**kit.config, "transactional.id": kit.name("tx")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(sink, b"out")
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata())
    producer.abort_transaction(30)
    kit.settled(sink)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", 1)})
