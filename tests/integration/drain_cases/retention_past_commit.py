"""Retention, not a person, deleted what the group had not read."""

from tests.integration.drain_cases.kit import Case, Kit, Scenario


def build(kit: Kit) -> Scenario:
    from confluent_kafka import Producer
    from tests.integration.drain_cases.kit import wait_for

    topic = kit.topic(retention_ms=1000, segment_ms=100, file_delete_delay_ms=0)
    producer = Producer({**kit.config, "linger.ms": 0})
    for i in range(3):
        producer.produce(topic, value=b"old", partition=0, timestamp=1_600_000_000_000 + i)
    producer.flush(30)
    kit.commit("g-" + topic, topic, {0: 1})

    def expired() -> bool:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        tp = TopicPartition(topic, 0)
        return kit.admin.list_offsets({tp: OffsetSpec.earliest()})[tp].result(10).offset == 3

    wait_for("retention has deleted the segment", expired)
    return Scenario(topic, groups=("g-" + topic,))


CASE = Case(build, "not_drained", 3, rows={("g", 0): ("lost_unread", 0)})
