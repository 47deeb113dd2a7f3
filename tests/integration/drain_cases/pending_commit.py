"""Offsets committed inside a transaction that has not ended do not count."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Producer, TopicPartition

    topic, sink = kit.topic(), kit.topic()
    group = "g-" + topic
    kit.produce(topic, 4)
    consumer = kit.consumer(group, [topic], read=4)
    producer = Producer({**kit.config, "transactional.id": kit.name("tx")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(sink, b"out")
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata())
    kit.at_exit(lambda: producer.abort_transaction(10))
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("pending_commit", None)})
