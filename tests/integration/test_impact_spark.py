"""The impact of real topics, written by real clients, against a plain loop over the records and librdkafka's hashes."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.integration.impact_topics import (
    CANDIDATES,
    N,
    Pair,
    Record,
    assess,
    consume,
    java_produce,
    produce,
    repeated,
)

from lab.broker import EmbeddedBroker
from topicshift.core.impact.partitioning import partition_of
from topicshift.core.impact.report import Impact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def keys_of_every_kind() -> list[bytes]:
    rng = random.Random(9)
    keys = [rng.randbytes(length) for length in range(1, 41) for _ in range(2)]
    return [*keys, *(f"straße-日本-{i}".encode() for i in range(20)), *(b"customer-%d" % i for i in range(120))]


def check_figures(found: Impact, records: Sequence[Record], n: int = N) -> None:
    """Every figure that does not depend on who wrote the topic."""
    keyed = [r for r in records if r.key is not None]
    counts = Counter(r.key for r in keyed)
    lies_in = defaultdict(set)
    for r in keyed:
        lies_in[r.key].add(r.partition)
    assert found.records == len(records)
    assert found.null_keys == len(records) - len(keyed)
    assert found.empty_keys == counts[b""]
    assert found.keyed_records == len(keyed)
    assert found.tombstones == sum(r.value is None for r in records)
    assert found.bytes == sum(r.size for r in records)
    assert found.distinct_keys == len(counts)
    assert found.keys_in_several_partitions == sum(len(p) > 1 for p in lies_in.values())
    per_partition = Counter(r.partition for r in records)
    assert found.source.partition_records == [per_partition[p] for p in range(n)]
    assert found.source.max_partition_share == pytest.approx(max(per_partition.values()) / len(records))
    assert [t.records for t in found.top_keys] == sorted(counts.values(), reverse=True)[: len(found.top_keys)]
    for c in found.candidates:
        now = {k: confluent_kafka.murmur2(k, n) for k in counts}
        then = {k: confluent_kafka.murmur2(k, c.partitions) for k in counts}
        placed: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        for r in keyed:
            placed[then[r.key]] += 1
            sizes[then[r.key]] += r.size
        assert c.moved_keys == sum(now[k] != then[k] for k in counts)
        assert c.moved_records == sum(counts[k] for k in counts if now[k] != then[k])
        assert c.relocated_records == sum(then[r.key] != r.partition for r in keyed)
        assert c.partition_records == [placed[p] for p in range(c.partitions)]
        assert c.partition_bytes == [sizes[p] for p in range(c.partitions)]
        if keyed:
            assert c.max_partition_share == pytest.approx(max(placed.values()) / len(keyed))
            assert c.same_index_share == pytest.approx(1 - c.moved_keys / len(counts))


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [
        ("consistent", "consistent"),
        ("consistent_random", "consistent"),
        ("murmur2", "murmur2"),
        ("murmur2_random", "murmur2"),
        ("fnv1a", "fnv1a"),
        ("fnv1a_random", "fnv1a"),
    ],
)
def test_librdkafka_partitioners(
    job: Any,
    spark: SparkSession,
    broker: EmbeddedBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    partitioner: str,
    name: str,
) -> None:
    topic = make_topic()
    extra: list[Pair] = [(None, b"x"), (b"gone", None)] * 30
    produce(broker, topic, [*repeated(keys_of_every_kind(), 900), *extra], partitioner=partitioner)
    found = assess(job, spark, broker, topic, tmp_path)
    check_figures(found, consume(broker, topic))
    assert found.partitioner.name == name
    assert found.partitioner.fit == 1.0
    assert found.kind == "mixed"
    assert found.partitioner.null_keys == ("spread" if partitioner.endswith("random") else "one_partition")
    assert not [f for f in found.findings if f.blocks]


def test_the_prediction_against_reality(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The same records, really written to topics with the candidates' counts: every partition holds what was said."""
    source = make_topic()
    rng = random.Random(3)
    keys = [*(f"customer-{i}" for i in range(400)), *(f"straße-日本-{i}" for i in range(50)), ""]
    records = [(rng.choice(keys[: 1 + rng.randrange(len(keys))]), "x" * rng.randrange(60)) for _ in range(4000)]
    java_produce(broker, source, records)
    found = {c.partitions: c for c in assess(job, spark, broker, source, tmp_path).candidates}
    for count, client in ((12, "java"), (25, "librdkafka")):
        target = make_topic(count)
        if client == "java":
            java_produce(broker, target, records)
        else:
            produce(broker, target, [(k.encode(), v.encode()) for k, v in records], partitioner="murmur2_random")
        written = consume(broker, target)
        per_partition = Counter(r.partition for r in written)
        sizes: Counter[int] = Counter()
        for r in written:
            sizes[r.partition] += r.size
        assert found[count].partition_records == [per_partition[p] for p in range(count)]
        assert found[count].partition_bytes == [sizes[p] for p in range(count)]
        assert found[count].max_partition_share == max(per_partition.values()) / len(records)


def test_the_java_client(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    keys = [*(f"straße-日本-{i}" for i in range(60)), *(f"customer-{i}" for i in range(200)), ""]
    java_produce(broker, topic, [(k, f"value {i}") for i, k in enumerate(keys * 3)])
    found = assess(job, spark, broker, topic, tmp_path)
    records = consume(broker, topic)
    check_figures(found, records)
    assert found.records == 3 * len(keys)
    assert found.empty_keys == 3
    assert found.partitioner.name == "murmur2"
    assert found.partitioner.fit == 1.0
    assert found.partitioner.empty_keys == "hashed"
    assert found.kind == "keyed"
    assert not found.in_place.allowed


def test_kafka_python(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key, value in repeated(keys_of_every_kind(), 600):
        producer.send(topic, value=value, key=key)
    producer.flush(30)
    producer.close()
    found = assess(job, spark, broker, topic, tmp_path)
    check_figures(found, consume(broker, topic))
    assert found.partitioner.name == "murmur2"


@pytest.mark.parametrize("share", [0.9, 0.7])
def test_mixtures_of_two_clients(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path, share: float
) -> None:
    topic = make_topic()
    rng = random.Random(8)
    mine: list[Pair] = []
    theirs: list[Pair] = []
    for record in repeated([b"customer-%d" % i for i in range(400)], 3000):
        (mine if rng.random() < share else theirs).append(record)
    produce(broker, topic, mine, partitioner="murmur2_random")
    produce(broker, topic, theirs, partitioner="consistent_random")
    found = assess(job, spark, broker, topic, tmp_path)
    records = consume(broker, topic)
    check_figures(found, records)
    for name in ("murmur2", "consistent", "fnv1a"):
        agree = sum(partition_of(name, r.key or b"", N) == r.partition for r in records)
        assert found.partitioner.by_name[name] == pytest.approx(agree / len(records))
    assert found.partitioner.name is None
    assert [w.name for w in found.partitioner.writers] == ["murmur2", "consistent"]
    assert found.partitioner.fit == pytest.approx(found.partitioner.by_name["murmur2"])
    assert "TS701" in {f.code for f in found.findings if f.blocks}


def test_a_client_that_changed_half_way(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    start = 1_760_000_000_000
    for half, partitioner in enumerate(("consistent_random", "murmur2_random")):
        producer = Producer({**broker.config(), "partitioner": partitioner, "enable.idempotence": True})
        for i in range(1200):
            producer.produce(topic, b"v", b"customer-%d" % (i % 300), timestamp=start + (half * 1200 + i) * 60_000)
        assert producer.flush(30) == 0
    found = assess(job, spark, broker, topic, tmp_path)
    check_figures(found, consume(broker, topic))
    assert found.partitioner.verdict == "mixture"
    best = [s.best for s in found.slices]
    middle = len(best) // 2
    assert best == ["consistent"] * middle + ["murmur2"] * middle
    assert {s.best_share for s in found.slices} == {1.0}
    assert sum(s.records for s in found.slices) == 2400
    # Only the new half: one writer.
    later = assess(job, spark, broker, topic, tmp_path, "--from", found.slices[middle].start)
    assert later.records == 1200
    assert later.partitioner.name == "murmur2"
    earlier = assess(job, spark, broker, topic, tmp_path, "--to", found.slices[middle].start)
    assert earlier.records == 1200
    assert earlier.partitioner.name == "consistent"


@pytest.mark.parametrize("before", [1, 4])
def test_an_earlier_in_place_increase(
    before: int,
    job: Any,
    spark: SparkSession,
    broker: EmbeddedBroker,
    admin_client: AdminClient,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = make_topic(before)
    records = repeated([b"customer-%d" % i for i in range(300)], 1500)
    produce(broker, topic, records, partitioner="murmur2_random")
    for future in admin_client.create_partitions([NewPartitions(topic, N)]).values():
        future.result(20)
    deadline = time.monotonic() + 30
    while len(admin_client.list_topics(topic, 5).topics[topic].partitions) < N:
        assert time.monotonic() < deadline
    produce(broker, topic, records, partitioner="murmur2_random")
    found = assess(job, spark, broker, topic, tmp_path)
    check_figures(found, consume(broker, topic))
    assert found.partitioner.name == "murmur2"
    assert found.partitioner.fit == 1.0
    assert found.partitioner.verdict == "earlier_increase"
    assert found.partitioner.earlier_counts == [before]
    assert {f.code for f in found.findings} >= {"TS703", "TS707"}


def test_unkeyed_topics_may_be_altered_in_place(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    produce(broker, topic, [(None, b"x" * i) for i in range(200)])
    found = assess(job, spark, broker, topic, tmp_path)
    check_figures(found, consume(broker, topic))
    assert found.kind == "unkeyed"
    assert found.in_place.allowed
    assert found.partitioner.name is None
    assert [f.code for f in found.findings] == ["TS708"]
    assert found.partitioner.null_keys_sure


def test_one_burst_without_keys_is_not_taken_for_a_rule(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    producer = Producer(broker.config())
    for _ in range(50):
        producer.produce(topic, b"x", partition=2)  # as a sticky producer's one burst lies
    assert producer.flush(30) == 0
    found = assess(job, spark, broker, topic, tmp_path)
    assert found.partitioner.null_keys == "one_partition"
    assert not found.partitioner.null_keys_sure
    assert {f.code: f.level for f in found.findings} == {"TS704": "warning", "TS708": "info", "TS716": "info"}
    assert not any("largest keys" in f.do for f in found.findings)


def test_empty_expired_and_single_record_topics(
    job: Any,
    spark: SparkSession,
    broker: EmbeddedBroker,
    admin_client: AdminClient,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = make_topic()
    empty = assess(job, spark, broker, topic, tmp_path)
    assert (empty.records, empty.kind, empty.partitioner.name) == (0, "empty", None)
    assert [f.code for f in empty.findings] == ["TS711"]
    assert [c.partition_records for c in empty.candidates] == [[0] * m for m in CANDIDATES]
    produce(broker, topic, [(b"only", b"one")], partitioner="murmur2")
    one = assess(job, spark, broker, topic, tmp_path)
    check_figures(one, consume(broker, topic))
    assert not one.partitioner.sure
    ends = [TopicPartition(topic, p, confluent_kafka.OFFSET_END) for p in range(N)]
    for future in admin_client.delete_records(ends).values():
        future.result(20)
    expired = assess(job, spark, broker, topic, tmp_path)
    assert (expired.records, expired.kind) == (0, "empty")


def test_aborted_records_do_not_count(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    producer = Producer({**broker.config(), "transactional.id": topic, "partitioner": "murmur2_random"})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, b"v", b"%s-%d" % (b"good" if commit else b"bad", i))
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    found = assess(job, spark, broker, topic, tmp_path)
    assert found.records == 200
    assert found.distinct_keys == 100


def test_keys_of_a_megabyte_and_schema_ids(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    large = [bytes([i]) * 1_000_000 for i in (1, 200)]
    prefixed = [b"\x00" + (3 + i % 2).to_bytes(4, "big") + b"customer-%d" % (i // 2) for i in range(200)]
    records = [(k, b"v") for k in [*large, *prefixed, *prefixed]]
    produce(broker, topic, records, partitioner="murmur2_random", **{"message.max.bytes": 1_048_000})
    found = assess(job, spark, broker, topic, tmp_path, "--top", "3", "--show-keys")
    check_figures(found, consume(broker, topic))
    assert found.partitioner.name == "murmur2"
    assert found.schema_prefixes is not None
    assert {(i.id, i.keys, i.records) for i in found.schema_prefixes.ids} == {(3, 100, 200), (4, 100, 200)}
    assert "TS706" in {f.code for f in found.findings}
    assert max(len(k.key) for k in found.top_keys_by_bytes) < 1000


def test_what_an_in_place_increase_would_break_per_group(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic()
    produce(broker, topic, repeated([b"customer-%d" % i for i in range(300)], 2000), partitioner="murmur2_random")
    consumer = Consumer({**broker.config(), "group.id": "x"})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(N)}
    consumer.close()
    groups = {
        "half": {str(p): end // 2 for p, end in ends.items()},
        "done": {str(p): end for p, end in ends.items()},
        "fresh": {"0": 5, "1": None},
    }
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(groups))
    found = {g.group: g for g in assess(job, spark, broker, topic, tmp_path, "--groups-file", str(file)).groups}
    by_offset: dict[int, list[bytes]] = {p: [] for p in range(N)}
    for r in consume(broker, topic):
        by_offset[r.partition].append(r.key or b"")
    assert found["done"].unread == 0
    assert [o.partitions for o in found["half"].overtaken] == [12, 25]
    assert found["fresh"].never_committed == [1, 2, 3, 4, 5]
    for name, commits in groups.items():
        unread = [k for p in range(N) for k in by_offset[p][commits.get(str(p)) or 0 :]]
        assert found[name].unread == len(unread)
        for o in found[name].overtaken:
            moved = [k for k in unread if confluent_kafka.murmur2(k, N) != confluent_kafka.murmur2(k, o.partitions)]
            assert o.records == len(moved)
