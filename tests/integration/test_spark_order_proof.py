"""The order proof against an oracle in plain Python, then on real topics with every fault in them."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, murmur2
from confluent_kafka.admin import AdminClient, NewTopic

import order_proof
from lab.broker import EmbeddedBroker
from topicshift.core.drain.replay import HEADER
from topicshift.core.errors import SpecError
from topicshift.core.fence.point import FencePoint
from topicshift.reporting.run_view import build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]
PARTITIONS = {0: 3, 1: 8}
T0 = datetime(2026, 1, 4, tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    side: int
    key: bytes | None
    partition: int
    offset: int
    header: bytes | None


def world(seed: int, keys: int = 60) -> list[Record]:
    """Both topics of a migration with faults strewn in: losses, repeats, swaps, crossings, strays, missing headers."""
    rng = random.Random(seed)
    log: dict[tuple[int, int], list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
    for number in range(keys):
        key = f"k{number}".encode() * rng.choice([1, 1, 1, 30])
        count = rng.randint(1, 12)
        cut = rng.randint(0, count)
        sent = [(0 if n < cut else 1, n) for n in range(count)]
        for _ in range(rng.choice([0, 0, 1, 2])):
            at = rng.randrange(len(sent))
            fault = rng.choice(["lose", "repeat", "swap", "cross"])
            if fault == "lose":
                del sent[at]
            elif fault == "repeat":
                sent.insert(rng.randint(at, len(sent)), sent[at])
            elif fault == "cross":
                sent.append((1, sent[at][1]))
            elif at + 1 < len(sent):
                sent[at], sent[at + 1] = (sent[at][0], sent[at + 1][1]), (sent[at + 1][0], sent[at][1])
            if not sent:
                break
        for side, n in sent:
            home = murmur2(key, PARTITIONS[side])
            stray = rng.random() < 0.01
            header: bytes | None = str(n).encode()
            if rng.random() < 0.02:
                header = rng.choice([None, b"x1", b""])
            log[side, (home + 1) % PARTITIONS[side] if stray else home].append((key, header))
    for _ in range(5):
        log[rng.randint(0, 1), 0].append((None, b"1"))
    return [
        Record(side, key, partition, offset, header)
        for (side, partition), rows in sorted(log.items())
        for offset, (key, header) in enumerate(rows)
    ]


def oracle(records: Sequence[Record]) -> dict[str, int]:
    """The same figures, key by key, in the plainest way."""
    out: dict[str, int] = defaultdict(int)
    by_key: dict[bytes, list[Record]] = defaultdict(list)
    for r in records:
        tag = "st"[r.side]
        out[f"records_{tag}"] += 1
        if r.key is None:
            out[f"null_keys_{tag}"] += 1
        else:
            by_key[r.key].append(r)

    def number(r: Record) -> int | None:
        return int(r.header) if r.header is not None and r.header.isdigit() else None

    for key, rows in by_key.items():
        out["keys"] += 1
        sides = {r.side for r in rows}
        out["keys_in_both"] += len(sides) == 2
        seen: dict[int, Record] = {}
        highest_in_source = max((n for r in rows if r.side == 0 and (n := number(r)) is not None), default=None)
        lowest_in_target = min((n for r in rows if r.side == 1 and (n := number(r)) is not None), default=None)
        for r in sorted(rows, key=lambda r: (r.side, r.partition, r.offset)):
            tag = "st"[r.side]
            out[f"absent_{tag}"] += r.header is None
            out[f"bad_{tag}"] += r.header is not None and number(r) is None
            out[f"misplaced_{tag}"] += murmur2(key, PARTITIONS[r.side]) != r.partition
            n = number(r)
            if n is None:
                continue
            if n in seen:
                before = [x for x in rows if number(x) == n]
                latest = max(
                    (x for x in before if (x.side, x.partition, x.offset) < (r.side, r.partition, r.offset)),
                    key=lambda x: (x.side, x.partition, x.offset),
                )
                if latest.side != r.side:
                    out["across"] += 1
                else:
                    out[f"repeats_{tag}"] += 1
            else:
                seen[n] = r
        for side, tag in ((0, "s"), (1, "t")):
            mine = [r for r in rows if r.side == side]
            out[f"keys_{tag}"] += bool(mine)
            out[f"spread_{tag}"] += len({r.partition for r in mine}) > 1
        ordered = sorted(seen)
        for low, high in itertools.pairwise(ordered):
            a, b = seen[low], seen[high]
            out["missing"] += high - low - 1
            if a.side == b.side and a.partition == b.partition and b.offset < a.offset:
                out[f"inverted_{'st'[a.side]}"] += 1
        crossing = highest_in_source is not None and lowest_in_target is not None
        out["crossing"] += bool(crossing and lowest_in_target < highest_in_source)  # type: ignore[operator]
        out["gap_keys"] += bool(ordered) and ordered[-1] - ordered[0] + 1 != len(ordered)
    return dict(out)


def counted(spark: SparkSession, records: Sequence[Record], header: str | None) -> dict[str, Any]:
    from topicshift_spark.keys import per_key, records_of, totals
    from topicshift_spark.source import SCHEMA

    schema = SCHEMA + ", headers array<struct<key: string, value: binary>>"
    both = None
    for side in (0, 1):
        rows = [
            (r.key, b"v", "t", r.partition, r.offset, T0 + timedelta(hours=side), 0,
             [("other", b"9"), ("seq", r.header)] if r.offset % 2 else [("seq", r.header)])
            if r.header is not None
            else (r.key, b"v", "t", r.partition, r.offset, T0, 0, None if r.offset % 2 else [("other", b"7")])
            for r in records
            if r.side == side
        ]  # fmt: skip
        mine = records_of(spark, spark.createDataFrame(rows, schema), side, PARTITIONS[side], header)
        both = mine if both is None else both.unionAll(mine)
    assert both is not None
    row = totals(per_key(both, ordered=header is not None), ordered=header is not None).collect()[0]
    return {name: value for name, value in row.asDict().items() if not name.startswith("x_")}


def test_every_figure_equals_the_oracles(spark: SparkSession) -> None:
    for seed in (1,):
        records = world(seed)
        wanted, found = oracle(records), counted(spark, records, "seq")
        ours = {name: found[name] for name in wanted}
        assert ours == wanted
        assert min(wanted[n] for n in ("missing", "across", "crossing", "spread_t", "absent_t", "bad_s")) > 0
        assert wanted["inverted_s"] + wanted["inverted_t"] > 0


def test_without_a_header_the_rest_is_still_counted(spark: SparkSession) -> None:
    records = world(3, keys=20)
    wanted, found = oracle(records), counted(spark, records, None)
    for name in ("keys", "keys_in_both", "records_s", "null_keys_t", "spread_t", "misplaced_t"):
        assert found[name] == wanted.get(name, 0), name
    assert "missing" not in found


class Topics:
    """A source and a target on the broker, written as a migration would."""

    def __init__(
        self, broker: EmbeddedBroker, admin: AdminClient, name: str, partitioner: str = "murmur2_random"
    ) -> None:
        self.source, self.target = name, f"{name}-v2"
        client = {"partitioner": partitioner, "sticky.partitioning.linger.ms": 0, "linger.ms": 5}
        self._producer = Producer({**broker.config(), **client, "enable.idempotence": True})
        for topic, partitions in ((self.source, 3), (self.target, 8)):
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        self._next: dict[str, int] = defaultdict(int)
        self.fence: dict[int, int] = defaultdict(int)

    def send(self, topic: str, key: str, number: int | None = None, **kwargs: Any) -> None:
        if number is None:
            number = self._next[key]
            self._next[key] += 1
        headers = kwargs.pop("headers", [("seq", str(number).encode())])
        self._producer.produce(topic, key=key, value=b"v", headers=headers, on_delivery=self._sent, **kwargs)

    def _sent(self, error: Any, message: Any) -> None:
        assert error is None, error
        if message.topic() == self.source:
            self.fence[message.partition()] = max(self.fence[message.partition()], message.offset() + 1)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def skip(self, key: str) -> None:
        """A number that is never sent."""
        self._next[key] += 1

    def fill(self, topic: str, keys: int = 40, each: int = 5) -> None:
        for _ in range(each):
            for n in range(keys):
                self.send(topic, f"k{n}")
        self.flush()


@pytest.fixture
def topics(broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str]) -> Topics:
    made = Topics(broker, admin_client, topic_name())
    made.fill(made.source)
    return made


def prove(broker: EmbeddedBroker, topics: Topics, folder: Path, *more: str, fence: bool = True) -> tuple[int, Any]:
    words = ["--source", topics.source, "--target", topics.target, "--bootstrap-server", broker.bootstrap]
    if fence:
        path = folder / "fence.json"
        point = FencePoint(topic=topics.source, fence_offsets={p: topics.fence[p] for p in range(3)})
        path.write_text(point.model_dump_json())
        words += ["--fence", str(path)]
    code = order_proof.main([*words, "--output", str(folder / "out"), *more])
    return code, json.loads((folder / "out" / "order_proof.json").read_bytes())


@pytest.mark.broker
def test_a_clean_migration_is_proven(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    topics.fill(topics.target)
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq")
    assert (code, proof["verdict"]) == (0, "proven"), proof["reason"]
    assert (proof["keys"], proof["source"]["records"], proof["target"]["records"]) == (40, 200, 200)
    code, proof = prove(broker, topics, tmp_path)
    assert (code, proof["verdict"]) == (0, "partly_proven")


@pytest.mark.broker
def test_every_fault_is_found_and_named(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    fence = dict(topics.fence)
    topics.send(topics.source, "k1")  # behind the fence, and so missed by the groups
    topics.flush()
    topics.fence = defaultdict(int, fence)
    topics.skip("k2")
    topics.send(topics.target, "k3", 2)  # the source had 4 already
    topics.send(topics.target, "k4", partition=(murmur2(b"k4", 8) + 1) % 8)
    later = topics._next["k5"]
    for number in (later + 1, later):
        topics.send(topics.target, "k5", number)
    topics._next["k5"] = later + 2
    topics.send(topics.target, "k6")
    topics.send(topics.target, "k6", topics._next["k6"] - 1)  # sent again
    topics.fill(topics.target)
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq", "--show-keys")
    checks = {c["name"]: c for c in proof["checks"]}
    assert (code, proof["verdict"]) == (3, "violated")
    failed = {name for name, c in checks.items() if c["state"] == "failed"}
    assert failed == {"fence", "loss", "crossing", "one_partition_per_key_target", "order_target", "placement"}
    assert checks["fence"]["count"] == 1
    assert {e["key"] for e in checks["loss"]["examples"]} == {"k1", "k2"}
    assert checks["crossing"]["examples"][0]["key"] == "k3"
    assert checks["order_target"]["examples"][0]["key"] == "k5"
    assert checks["placement"]["examples"][0]["key"] == "k4"
    assert checks["duplicates"]["count"] == 2
    assert (proof["duplicates_across"], proof["target"]["duplicates"]) == (1, 1)
    _, hidden = prove(broker, topics, tmp_path, "--sequence-header", "seq")
    named = [e["key"] for c in hidden["checks"] for e in c["examples"]]
    assert named
    assert not any(name.startswith("k") for name in named)


@pytest.mark.broker
def test_what_came_after_the_first_fence_is_counted_apart(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    """A super user's records without a number, between the first fence and the one that was set anew."""
    first = {p: topics.fence[p] for p in range(3)}
    for key in ("late-1", "late-2"):
        topics.send(topics.source, key, 7, headers=[], partition=1)
    topics.flush()
    topics.fill(topics.target)
    named = tmp_path / "strays.json"
    words = ["--sequence-header", "seq", "--strays", str(named)]
    named.write_text(json.dumps({"from": first, "named": {"1": 2}, "complete": True}))
    code, proof = prove(broker, topics, tmp_path, *words)
    checks = {c["name"]: c for c in proof["checks"]}
    assert (code, proof["verdict"]) == (0, "proven"), proof["reason"]
    assert (checks["strays"]["count"], proof["source"]["records"]) == (2, 200)
    assert proof["fence_offsets"] == {str(p): topics.fence[p] for p in range(3)}
    named.write_text(json.dumps({"from": first, "named": {"1": 1}, "complete": True}))
    code, proof = prove(broker, topics, tmp_path, *words)
    assert (code, proof["verdict"]) == (3, "violated")
    assert next(c for c in proof["checks"] if c["name"] == "strays")["state"] == "failed"
    named.write_text("{}")
    with pytest.raises(SpecError, match="--strays"):
        prove(broker, topics, tmp_path, *words)


@pytest.mark.broker
@pytest.mark.parametrize("header", [["--sequence-header", "seq"], []])
def test_what_was_replayed_is_counted_apart(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path, header: list[str]
) -> None:
    """Old records come after newer ones of their keys, and one of a key that lies elsewhere: no figure minds."""
    topics.fill(topics.target)
    for key, mark in (("k1", b"s/1/7"), ("k2", b"s/1/9")):
        partition = (murmur2(key.encode(), 8) + 1) % 8
        topics.send(topics.target, key, 0, headers=[("seq", b"0"), (HEADER, mark)], partition=partition)
    topics.flush()
    marks = tmp_path / "replayed.json"
    marks.write_text(json.dumps({"marks": ["s/1/7", "s/1/9"]}))
    code, proof = prove(broker, topics, tmp_path, *header, "--replayed", str(marks))
    checks = {c["name"]: c for c in proof["checks"]}
    assert (code, proof["verdict"]) == (0, "proven" if header else "partly_proven"), proof["reason"]
    assert (checks["replayed"]["count"], proof["replayed"], proof["target"]["records"]) == (2, 2, 200)
    marks.write_text(json.dumps({"marks": ["s/1/7", "s/1/8"]}))
    code, proof = prove(broker, topics, tmp_path, *header, "--replayed", str(marks))
    assert (code, proof["verdict"]) == (3, "violated")
    assert "s/1/8" in proof["reason"] and "s/1/9" in proof["reason"]
    if header:
        code, proof = prove(broker, topics, tmp_path, *header)
        assert (code, proof["replayed"]) == (3, None), "nobody has said that they are replayed"
    marks.write_text("[]")
    with pytest.raises(SpecError, match="--replayed"):
        prove(broker, topics, tmp_path, "--replayed", str(marks))


@pytest.mark.broker
@pytest.mark.parametrize("header", [["--sequence-header", "seq"], []])
def test_empty_keys_that_the_producers_spread_are_no_violation(
    spark: SparkSession,
    broker: EmbeddedBroker,
    admin_client: AdminClient,
    topic_name: Callable[..., str],
    tmp_path: Path,
    header: list[str],
) -> None:
    """librdkafka's default partitioner, which spreads keys of length 0."""
    topics = Topics(broker, admin_client, topic_name(), "consistent_random")
    for topic in (topics.source, topics.target):
        topics.fill(topic)
        for _ in range(30):
            topics.send(topic, "")
        topics.flush()
    code, proof = prove(broker, topics, tmp_path, *header)
    states = {c["name"]: c["state"] for c in proof["checks"]}
    assert (code, proof["verdict"]) == (0, "partly_proven"), proof["reason"]  # the placement is not murmur2's
    assert states["one_partition_per_key_source"] == states["one_partition_per_key_target"] == "passed"
    assert states["placement"] == "not_proven"
    assert (proof["source"]["empty_keys_spread"], proof["target"]["empty_keys_spread"]) == (30, 30)
    assert (proof["keys"], proof["source"]["null_keys"]) == (40, 0)
    assert any("60 records have an empty key" in text for text in proof["not_proven"])


@pytest.mark.broker
def test_an_empty_key_that_is_split_by_the_move_is_a_violation(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    """The source's clients hash it; on the target somebody spreads it."""
    for topic in (topics.source, topics.target):
        for n in range(16):
            topics.send(topic, "", **({"partition": n % 8} if topic == topics.target else {}))
    topics.fill(topics.target)
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq")
    check = next(c for c in proof["checks"] if c["name"] == "one_partition_per_key_target")
    assert (code, check["state"], check["count"]) == (3, "failed", 1)
    assert "One of them is the empty key" in check["seen"]


@pytest.mark.broker
def test_partitions_that_an_old_count_leaves_empty_are_named_in_the_report(
    job: Any, spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    """An application that works the partition out itself goes on over the source's 3 partitions."""
    where = ["--topic", topics.source, "--candidates", "8", "--bootstrap-server", broker.bootstrap]
    assert job.main([*where, "--output", str(tmp_path / "out")]) == 0
    for _ in range(12):
        for n in range(40):
            topics.send(topics.target, f"k{n}", partition=murmur2(f"k{n}".encode(), 3))
    topics.flush()
    prove(broker, topics, tmp_path)
    view = build({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert view.placement is not None
    assert [s.records == 0 for s in view.placement["rows"]] == [False] * 3 + [True] * 5
    assert "Nothing is in partitions 3-7, for" in view.placement["text"]
    assert "a partition count of 3 in its configuration" in view.placement["text"]


@pytest.mark.broker
def test_what_a_task_read_in_the_freeze_is_read_once_more(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    """Where the armed verifier had died, one task's word that nothing is left to read is not the last one."""
    topics.fill(topics.target)
    tails = tmp_path / "tails.json"
    tails.write_text(json.dumps({p: topics.fence[p] for p in range(3)}))
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq", "--tails", str(tails))
    assert (code, proof["verdict"]) == (0, "proven"), proof["reason"]
    tails.write_text(json.dumps({0: topics.fence[0], 1: topics.fence[1] - 2}))
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq", "--tails", str(tails))
    assert (code, proof["verdict"]) == (3, "violated")
    assert "drain: 2 records that no group had read when it was certified (1: 2)" in proof["reason"]
    tails.write_text('{"0": "all"}')
    with pytest.raises(SpecError, match="holds no offsets by partition"):
        prove(broker, topics, tmp_path, "--tails", str(tails))


@pytest.mark.broker
def test_missing_headers_and_an_empty_target_are_unknown(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq")
    assert (code, proof["verdict"]) == (4, "unknown")
    assert "No record in" in proof["reason"]
    topics.fill(topics.target)
    topics.send(topics.target, "k1", headers=[("other", b"1")])
    topics.send(topics.target, "k1", headers=None)
    topics.flush()
    code, proof = prove(broker, topics, tmp_path, "--sequence-header", "seq")
    assert (code, proof["verdict"], proof["target"]["without_sequence"]) == (4, "unknown", 2)


@pytest.mark.broker
def test_bad_input_is_named_and_leaves_no_result(
    spark: SparkSession, broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    from topicshift.core.errors import NotFound, Unreadable

    base = ["--source", topics.source, "--bootstrap-server", broker.bootstrap, "--output", str(tmp_path / "out")]
    with pytest.raises(NotFound, match="nowhere"):
        order_proof.main([*base, "--target", "nowhere"])
    with pytest.raises(SpecError, match="nothing to compare"):
        order_proof.main([*base, "--target", topics.source])
    for text in ("{", "{}", "[]", '{"0": 1}', '{"topic": "other", "fence_offsets": {"0": 1}}'):
        (tmp_path / "fence.json").write_text(text)
        with pytest.raises(SpecError, match="--fence"):
            order_proof.main([*base, "--target", topics.target, "--fence", str(tmp_path / "fence.json")])
    old = FencePoint(topic=topics.source, topic_id="AAAAAAAAAAAAAAAAAAAAAg", fence_offsets={0: 1})
    (tmp_path / "fence.json").write_text(old.model_dump_json())
    with pytest.raises(Unreadable, match="made again"):
        order_proof.main([*base, "--target", topics.target, "--fence", str(tmp_path / "fence.json")])
    assert not (tmp_path / "out" / "order_proof.json").exists()
