"""Does the truth lie inside the stated interval, on topics that a real client wrote? Counted over a hundred samples.

The records are read once, with the partition and offset that they really have. Each sample is drawn by the job's own
plan, summed by the executors' own function and judged by the driver's own one; only the native grouping in between is
a plain loop here. That this stands for the way through Spark is checked on the same seeds.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import murmur2
from tests.integration.impact_topics import N, Pair, Record, consume, produce, request_for
from tests.unit.impact_scan_plain import scan

from lab.broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RUNS = 100
SHARE = "0.1"
RECORDS = 12_000


def even() -> list[Pair]:
    """Every key is as frequent as the others."""
    rng = random.Random(11)
    return [(b"customer-%d" % rng.randrange(400), b"v" * rng.randrange(60)) for _ in range(RECORDS)]


def skewed() -> list[Pair]:
    """A hot key, a long tail of rare ones that come in runs and go again, tombstones, and some records without key."""
    rng = random.Random(12)
    out: list[Pair] = []
    while len(out) < RECORDS:
        if rng.random() < 0.2:
            out.append((b"hot", b"v" * 30))
            continue
        rank = int(220 * rng.random() ** 2.5)
        key = None if rank == 20 else b"" if rank == 30 else b"%d-%d" % (rank, 4 * len(out) // RECORDS)
        for _ in range(rng.randrange(1, 6)):
            out.append((key, None if rng.random() < 0.05 and key else b"v" * rng.randrange(60)))
    return out


class Plain:
    """The job without Spark: the same request and frozen offsets, over the records as they were consumed."""

    def __init__(self, job: Any, request: Any, frozen: Any, records: list[Record]) -> None:
        self.job, self.request, self.frozen = job, request, frozen
        self.by_offset: list[list[Record]] = [[] for _ in range(N)]
        for record in records:
            assert record.offset == len(self.by_offset[record.partition])  # nothing is missing and none is a marker
            self.by_offset[record.partition].append(record)

    def drawn(self, design: Any) -> Iterator[tuple[int, Record]]:
        for replicate, block in enumerate(design.blocks):
            for partition, (start, end) in block.items():
                for record in self.by_offset[partition][start:end]:
                    yield replicate, record

    def impact(self, seed: int | None, **changes: Any) -> dict[str, Any]:
        """impact.json of one sample, or of everything."""
        from topicshift_spark.impact_ranges import sampled

        request = dataclasses.replace(self.request, seed=seed or 0, **changes)
        if seed is None:
            request = dataclasses.replace(request, sample=None)
        frozen = dataclasses.replace(self.frozen, design=sampled(self.frozen.ranges, request.sample, request.seed))
        plan = self.job.plan_of(request, frozen)
        inner = frozen.edges_ms[1:-1]
        rows = [
            (
                r.key,
                r.partition,
                replicate,
                len(r.value or b""),
                r.value is None,
                bisect.bisect_right(inner, r.timestamp),
            )
            for replicate, r in self.drawn(frozen.design)
        ]
        sums = scan(rows, plan, size=65_536)
        found = self.job.impact_of(request, frozen, plan, sums, self.unread, time.monotonic())
        return comparable(found)

    def unread(self, tails: Any) -> Mapping[tuple[int, int, int], list[int]]:
        assert tails.rule == "murmur2"
        cells: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0] * (1 + len(tails.larger)))
        cuts = {p: tails.cuts(p) for p in range(N)}
        for replicate, r in self.drawn(tails.design):
            cell = cells[replicate, r.partition, bisect.bisect_right(cuts[r.partition], r.offset) - 1]
            cell[0] += 1
            for i, m in enumerate(tails.larger):
                cell[1 + i] += r.key is not None and murmur2(r.key, m) != murmur2(r.key, N)
        return cells


def comparable(found: Any) -> dict[str, Any]:
    """As in impact.json, without what differs from one run to the next."""
    out: dict[str, Any] = found.to_json()
    del out["taken_at"], out["measured"]["seconds"]
    return out


def intervals(sample: Any, truth: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """(figure, low, truth, high) of every figure in the sample that states an interval, wherever it stands."""
    if isinstance(sample, list) and sample and isinstance(sample[0], dict):
        for i, item in enumerate(sample):
            # A list of things is matched by what the things are, and not by where they stand.
            name = next((n for n in ("key", "group", "name", "partitions", "start") if n in item), None)
            twin = next((t for t in truth if t[name] == item[name]), None) if name else None
            if twin is None:
                assert "_low" not in json.dumps(item), f"{path}: {item} states an interval and is not in the truth"
                continue
            # Another key comes to each place in the list of the largest: the place is the figure.
            yield from intervals(item, twin, f"{path}[{i if name == 'key' else item[name]}]")
    elif isinstance(sample, dict) and truth is not None:
        for field, value in sample.items():
            if field.endswith("_low"):
                name = field.removesuffix("_low")
                yield from _one(f"{path}.{name}", value, truth[name], sample[f"{name}_high"])
            elif not field.endswith("_high") and field in truth:
                yield from intervals(value, truth[field], f"{path}.{field}")


def _one(path: str, low: Any, truth: Any, high: Any) -> Iterator[tuple[str, float, float, float]]:
    if isinstance(low, dict):
        for key in low:
            yield from _one(f"{path}.{key}", low[key], truth[key], high[key])
    elif isinstance(low, list):
        for i in range(len(low)):
            yield from _one(f"{path}[{i}]", low[i], truth[i], high[i])
    else:
        yield path, low, truth, high


@pytest.mark.parametrize(("write", "seed_of_spark"), [(even, None), (skewed, 7)])
def test_the_truth_lies_inside_95_times_in_100(
    job: Any,
    spark: SparkSession,
    broker: EmbeddedBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    write: Callable[[], list[Pair]],
    seed_of_spark: int | None,
) -> None:
    topic = make_topic()
    # Times of their own, so that the slices are the same in each run.
    produce(broker, topic, write(), since_ms=1_700_000_000_000, partitioner="murmur2_random")
    records = consume(broker, topic)
    ends = Counter(r.partition for r in records)
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"half": {str(p): n // 2 for p, n in ends.items()}, "new": {}}))
    secret = tmp_path / "secret"
    secret.write_bytes(b"so that keys can be matched")
    options = ("--sample", SHARE, "--groups-file", str(groups), "--hash-key-file", str(secret))
    request = request_for(job, broker, topic, tmp_path, *options)
    plain = Plain(job, request, job.freeze(spark, request), records)

    # The way through Spark gives the same answer as the plain one, for everything and for a sample: a topic each, as a
    # sample of a small topic costs Spark 120 small tasks.
    everything = {"top": 1000}
    truth = plain.impact(None, **everything)
    assert truth["records"] == len(records)
    assert len(truth["top_keys"]) == truth["distinct_keys"]  # all of them, so that no tie is cut through
    share = request.sample if seed_of_spark else None
    asked = dataclasses.replace(request, seed=seed_of_spark or 0, sample=share, **everything)
    by_spark = comparable(job.measure(spark, asked, job.freeze(spark, asked)))
    assert by_spark == plain.impact(seed_of_spark, **everything)

    asked_for: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for seed in range(RUNS):
        for figure, low, true, high in intervals(plain.impact(seed), truth):
            asked_for[figure] += 1
            inside[figure] += low - 1e-9 <= true <= high + 1e-9
    assert len(asked_for) > 200
    assert {f: (inside[f], n) for f, n in asked_for.items() if inside[f] < 0.95 * n} == {}
