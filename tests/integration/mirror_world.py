"""MirrorMaker 2 between two brokers: the settings of its connector, and what it has copied."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from lab.broker import EmbeddedBroker


def mirror(broker: EmbeddedBroker, elsewhere: EmbeddedBroker, topics: str, **more: str) -> dict[str, str]:
    """Settings of its source connector."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "topics": topics,
        "source.cluster.alias": "here",
        "target.cluster.alias": "there",
        "source.cluster.bootstrap.servers": broker.bootstrap,
        "target.cluster.bootstrap.servers": elsewhere.bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        **more,
    }


@dataclass(frozen=True)
class Copy:
    """A record in the other cluster. ``at``: when it was appended there, in ms."""

    key: str
    number: int
    topic: str
    partition: int
    at: int


def copies(cluster: EmbeddedBroker, *topics: str) -> list[Copy]:
    """Everything that these topics of a cluster hold, in the order of each partition."""
    reader = Consumer({**cluster.config(), "group.id": "looks", "enable.auto.commit": False})
    try:
        listed = reader.list_topics(timeout=10).topics
        parts = [(t, p) for t in topics if t in listed for p in listed[t].partitions]
        ends = {tp: reader.get_watermark_offsets(TopicPartition(*tp), timeout=10)[1] for tp in parts}
        left = {tp for tp, end in ends.items() if end}
        reader.assign([TopicPartition(t, p, 0) for t, p in left])
        found: list[Copy] = []
        while left:
            message = reader.poll(10)
            assert message is not None and message.error() is None, message and message.error()
            where = str(message.topic()), int(message.partition() or 0)
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            found.append(Copy(key.decode(), int(value), *where, message.timestamp()[1]))
            if int(message.offset() or 0) + 1 >= ends[where]:
                left.discard(where)
        return found
    finally:
        reader.close()


def copied_once(sent: dict[str, list[int]], found: list[Copy]) -> None:
    """Everything that was sent was copied once, and each key in order: in each copy, and over all by when it came."""
    assert all(numbers == list(range(len(numbers))) for numbers in sent.values())
    for key, numbers in sent.items():
        mine = sorted((c for c in found if c.key == key), key=lambda c: c.number)
        assert [c.number for c in mine] == numbers, f"{key}: lost, or copied twice"
        assert [c.at for c in mine] == sorted(c.at for c in mine), f"{key}: out of order"
        for copy in {c.topic for c in mine}:
            inside = [c.number for c in found if c.key == key and c.topic == copy]
            assert inside == sorted(inside), f"{key}: out of order in {copy}"
