"""Once the transaction has ended, the offsets committed in it count."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Producer, TopicPartition
    from tests.integration.drain_cases.kit import wait_for

    topic, sink = kit.topic(), kit.topic()
    group = "g-" + topic
    kit.produce(topic, 4)
    consumer = kit.consumer(group, [topic], read=4)
    producer = Producer({**kit.config, "transactional.id": kit.name("tx")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(sink, b"out")
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata())
    producer.commit_transaction(30)
    wait_for("the commit is there", lambda: kit.committed(group, topic) == 4)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)})
