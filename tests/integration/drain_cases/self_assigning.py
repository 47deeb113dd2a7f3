"""A consumer that assigns partitions itself: the group is EMPTY, yet its commits move."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    import threading

    from confluent_kafka import Consumer, TopicPartition
    from tests.integration.drain_cases.kit import wait_for

    topic = kit.topic()
    group = "g-" + topic
    kit.produce(topic, 2000)
    consumer = Consumer({**kit.config, "group.id": group, "enable.auto.commit": False})

    def read_on(stop: threading.Event) -> None:
        consumer.assign([TopicPartition(topic, 0, 0)])
        offset = 0
        while not stop.wait(0.02):
            offset += 1
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    kit.in_thread(read_on)
    wait_for("a first commit", lambda: kit.committed(group, topic) > 0)
    return Scenario(topic, groups=(group,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("unread", ...)}, state={"g": "SELF_ASSIGNING"})
