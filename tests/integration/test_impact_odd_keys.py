"""Empty keys, constant partitions and counts of an application's own, written by real clients and judged by the job."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer
from tests.integration.impact_topics import N, Pair, consume, produce

from lab.broker import EmbeddedBroker
from topicshift.core.impact.partitioning import partition_of
from topicshift.core.impact.report import Impact

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]


def plain_with_empty_keys(share: float = 0.04, records: int = 3000) -> list[Pair]:
    """Customers, and among them some records whose key is empty."""
    rng = random.Random(5)
    return [(b"" if rng.random() < share else b"customer-%d" % rng.randrange(300), b"v" * 20) for _ in range(records)]


def judged(job: Any, broker: EmbeddedBroker, topic: str, folder: Path) -> Impact:
    """What the job leaves in ``impact.json``."""
    where = ["--topic", topic, "--bootstrap-server", broker.bootstrap, "--output", str(folder)]
    assert job.main([*where, "--candidates", "4,12"]) == 0
    return Impact.model_validate(json.loads((folder / "impact.json").read_text("utf-8")))


def codes(found: Impact) -> dict[str, str]:
    return {f.code: f.level.value for f in found.findings}


@pytest.mark.parametrize(
    ("partitioner", "name", "where"),
    [
        ("consistent_random", "consistent", "spread"),
        ("consistent", "consistent", "hashed"),
        ("murmur2_random", "murmur2", "hashed"),
        ("fnv1a_random", "fnv1a", "hashed"),
    ],
)
def test_four_per_cent_of_empty_keys_hide_no_rule(
    job: Any,
    broker: EmbeddedBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    partitioner: str,
    name: str,
    where: str,
) -> None:
    topic = make_topic()
    produce(broker, topic, plain_with_empty_keys(), partitioner=partitioner)
    found, records = judged(job, broker, topic, tmp_path), consume(broker, topic)
    empty = [r for r in records if r.key == b""]
    assert (found.partitioner.name, found.partitioner.fit) == (name, 1.0)
    assert found.partitioner.empty_keys == where
    assert not [f.line() for f in found.findings if f.blocks]
    assert "TS717" in codes(found) and "TS707" not in codes(found)
    assert (found.keyed_records, found.empty_keys) == (len(records), len(empty))
    # What no key places is not predicted, as records without a key are not.
    placed = [r for r in records if where != "spread" or r.key]
    for c in found.candidates:
        there = Counter(confluent_kafka.murmur2(r.key, c.partitions) for r in placed)
        assert c.partition_records == [there[p] for p in range(c.partitions)]
        assert c.max_partition_share == pytest.approx(max(there.values()) / len(placed))
        assert c.moved_keys == sum(_moves(k, c.partitions) for k in {r.key for r in placed})
        assert c.moved_records == sum(_moves(r.key, c.partitions) for r in placed)
        assert c.relocated_records == sum(confluent_kafka.murmur2(r.key, c.partitions) != r.partition for r in placed)
    counts = Counter(r.key for r in placed)
    assert [t.records for t in found.top_keys] == sorted(counts.values(), reverse=True)[: len(found.top_keys)]
    assert found.top_keys[0].share == pytest.approx(max(counts.values()) / len(placed))


def _moves(key: bytes | None, count: int) -> bool:
    return confluent_kafka.murmur2(key, N) != confluent_kafka.murmur2(key, count)


def test_only_empty_keys_that_are_spread_are_no_keys(
    job: Any, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    produce(broker, topic, [(b"", b"v")] * 300, partitioner="consistent_random")
    found = judged(job, broker, topic, tmp_path)
    assert (found.keyed_records, found.partitioner.name, found.partitioner.empty_keys) == (300, None, "spread")
    assert found.in_place.allowed
    assert not [f.line() for f in found.findings if f.blocks]
    assert found.candidates[0].max_partition_share is None


def by_hand(broker: EmbeddedBroker, topic: str, placed: Iterator[tuple[bytes, int]]) -> None:
    """Write as an application does that works out the partition itself."""
    producer = Producer({**broker.config(), "enable.idempotence": True})
    for i, (key, partition) in enumerate(placed):
        producer.produce(topic, b"v", key, partition=partition, timestamp=1_700_000_000_000 + 60_000 * i)
    assert producer.flush(30) == 0


def keys(records: int = 2000) -> list[bytes]:
    rng = random.Random(6)
    return [b"customer-%d" % rng.randrange(250) for _ in range(records)]


def test_one_partition_for_every_key_is_a_constant_and_no_rule_of_its_own(
    job: Any, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    by_hand(broker, topic, ((key, 3) for key in keys()))
    found = judged(job, broker, topic, tmp_path)
    assert (found.partitioner.name, found.partitioner.verdict) == (None, "constant")
    assert found.partitioner.constant_partition == 3
    said = next(f for f in found.findings if f.code == "TS702")
    assert "partition 3" in said.seen and "rule of somebody's own" not in said.seen


@pytest.mark.parametrize("count", [N, 4])
def test_a_java_hash_takes_its_count_from_the_application(
    job: Any, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path, count: int
) -> None:
    topic = make_topic()
    by_hand(broker, topic, ((k, partition_of("java_hashcode_mask", k, count) or 0) for k in keys()))
    found = judged(job, broker, topic, tmp_path)
    assert found.partitioner.name == "java_hashcode_mask"
    assert found.partitioner.earlier_counts == []
    said = " ".join(f.line() for f in found.findings)
    assert "when the topic had" not in said
    assert "murmur2_random" not in said
    assert f"count {count}" in next(f for f in found.findings if f.code == "TS710").do
    assert not [f.line() for f in found.findings if f.blocks]


def test_two_counts_at_the_same_time_are_no_earlier_increase(
    job: Any, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    counts = [4, N]
    by_hand(broker, topic, ((k, partition_of("murmur2", k, counts[i % 2]) or 0) for i, k in enumerate(keys())))
    found = judged(job, broker, topic, tmp_path)
    assert (found.partitioner.name, found.partitioner.verdict) == (None, "mixture")
    assert found.partitioner.earlier_counts == []
    assert "TS701" in {f.code for f in found.findings if f.blocks}
    assert "TS703" not in codes(found)
