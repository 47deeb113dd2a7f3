"""A consumer that assigns partitions itself and has read everything: EMPTY, and drained."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Consumer, TopicPartition

    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 3)
    consumer = Consumer({**kit.config, "group.id": group, "enable.auto.commit": False})
    kit.at_exit(consumer.close)
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "drained", 0, rows={("g", 0): ("at_end", 0)}, state={"g": "EMPTY"})
