"""Topics that real clients write, and the records that are really in them."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from lab.broker import EmbeddedBroker, kafka_command
from topicshift.core.impact.report import Impact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

N = 6
CANDIDATES = (4, 6, 12, 25)
Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Record:
    """As it lies in the topic; ``timestamp`` in ms."""

    key: bytes | None
    partition: int
    value: bytes | None
    offset: int
    timestamp: int

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


def produce(
    broker: EmbeddedBroker, topic: str, records: Sequence[Pair], *, since_ms: int | None = None, **config: Any
) -> None:
    """Write with librdkafka; ``config`` names its partitioner. ``since_ms``: the first timestamp, one a millisecond."""
    # Records without a key change partitions one by one: the sticky way can put a short burst of them into one.
    spread = {"sticky.partitioning.linger.ms": 0}
    producer = Producer({**broker.config(), "linger.ms": 20, "enable.idempotence": True, **spread, **config})
    for i, (key, value) in enumerate(records):
        producer.produce(topic, value, key, timestamp=0 if since_ms is None else since_ms + i)
    assert producer.flush(30) == 0


def java_produce(broker: EmbeddedBroker, topic: str, records: Sequence[tuple[str, str]]) -> None:
    """Write records with Kafka's Java client."""
    command = kafka_command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"),
    )
    lines = "".join(f"{key}\t{value}\n" for key, value in records)
    subprocess.run(command, input=lines.encode(), check=True, capture_output=True, timeout=90)


def repeated(keys: Sequence[bytes], n: int, seed: int = 2) -> list[Pair]:
    """n records; the first keys are the most frequent, and every key comes at least once."""
    rng = random.Random(seed)
    drawn = [keys[int(len(keys) * rng.random() ** 2)] for _ in range(n - len(keys))]
    return [(k, b"v" * rng.randrange(60)) for k in [*keys, *drawn]]


def consume(broker: EmbeddedBroker, topic: str) -> list[Record]:
    """Every committed record."""
    consumer = Consumer({**broker.config(), "group.id": f"truth-{topic}", "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        left = 0
        for p in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), 10)
            left += high - low
        consumer.assign([TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in partitions])
        out: list[Record] = []
        deadline = time.monotonic() + 60
        while len(out) < left:
            assert time.monotonic() < deadline, f"{len(out)} of {left} records"
            out += [
                Record(m.key(), m.partition(), m.value(), m.offset(), m.timestamp()[1])
                for m in consumer.consume(1000, 1)
                if not m.error()
            ]
        return out
    finally:
        consumer.close()


def request_for(job: Any, broker: EmbeddedBroker, topic: str, folder: Path, *options: str) -> Any:
    """What the job is asked, by its own command line."""
    return job.parse(
        [
            *("--topic", topic, "--bootstrap-server", broker.bootstrap, "--output", str(folder)),
            *(() if "--candidates" in options else ("--candidates", ",".join(map(str, CANDIDATES)))),
            *options,
        ]
    )


def assess(job: Any, spark: SparkSession, broker: EmbeddedBroker, topic: str, folder: Path, *options: str) -> Impact:
    """The impact as the job measures it."""
    request = request_for(job, broker, topic, folder, *options)
    found: Impact = job.measure(spark, request, job.freeze(spark, request))
    assert Impact.model_validate(json.loads(json.dumps(found.to_json()))) == found
    return found
