"""Does the truth lie inside the stated interval where it belongs to a time: slices, and a client that changed?"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.impact_scan_plain import scan

from topicshift.core.impact.partitioning import RULES, partition_of
from topicshift.core.impact.report import Partitioner, Slice
from topicshift_spark.impact_figures import Figures, KeyNames
from topicshift_spark.impact_query import packing
from topicshift_spark.impact_ranges import SLICES, parse_sample, sampled
from topicshift_spark.impact_scan import ScanPlan
from topicshift_spark.source import Range

N = 6
RECORDS = 9_000
RUNS = 60
EDGES_MS = [1000 * i for i in range(SLICES + 1)]

Log = list[list[tuple[bytes, int]]]


def log_of(changes_at: float) -> Log:
    """Partitions of (key, slice); the client takes another rule from this share of them on."""
    rng = random.Random(3)
    log: Log = [[] for _ in range(N)]
    for i in range(RECORDS):
        key = b"customer-%d" % rng.randrange(300)
        rule = "murmur2" if i < changes_at * RECORDS else "consistent"
        place = partition_of(rule, key, N)
        assert place is not None
        log[place].append((key, int(SLICES * (i / RECORDS) ** 2)))
    return log


def assess(log: Log, share: str | None, seed: int) -> tuple[Partitioner, list[Slice]]:
    ranges = {p: Range(0, len(part)) for p, part in enumerate(log)}
    design = sampled(ranges, parse_sample(share) if share else None, seed)
    rules = tuple((rule.name, N) for rule in RULES)
    plan = ScanPlan(N, (12,), rules, packing(SLICES, max(map(len, log))), design.replicates)
    rows = [
        (key, p, replicate, 10, False, at)
        for replicate, block in enumerate(design.blocks)
        for p, (start, end) in block.items()
        for key, at in log[p][start:end]
    ]
    figures = Figures(scan(rows, plan, size=65_536), plan, design.fraction, KeyNames(None))
    part = figures.partitioner(0.05, EDGES_MS)
    return part, figures.slices(EDGES_MS, part)


def stated(sample: tuple[Partitioner, list[Slice]], truth: tuple[Partitioner, list[Slice]]) -> Iterator[Any]:
    """(figure, low, truth, high)"""
    part, true = sample[0], truth[0]
    for mine, theirs in zip(sample[1], truth[1], strict=True):
        yield mine.start, mine.records_low, theirs.records, mine.records_high
    assert part.by_name_low is not None and part.by_name_high is not None
    for name in part.by_name:
        yield name, part.by_name_low[name], true.by_name[name], part.by_name_high[name]
    yield "unexplained", part.unexplained_share_low, true.unexplained_share, part.unexplained_share_high
    for writer in part.writers:
        for twin in true.writers:
            if (twin.name, twin.partitions) == (writer.name, writer.partitions):
                yield f"writer {twin.name}", writer.share_low, twin.share, writer.share_high


@pytest.mark.parametrize(("changes_at", "writers"), [(1.0, 1), (0.9, 2), (0.5, 2)])
def test_the_truth_lies_inside_95_times_in_100(changes_at: float, writers: int) -> None:
    log = log_of(changes_at)
    truth = assess(log, None, 0)
    assert [s.records for s in truth[1]] == [sum(at == s for part in log for _, at in part) for s in range(SLICES)]
    assert len(truth[0].writers) == writers
    asked: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for seed in range(RUNS):
        for figure, low, true, high in stated(assess(log, "0.1", seed), truth):
            asked[figure] += 1
            inside[figure] += low - 1e-9 <= true <= high + 1e-9
    assert {f: (inside[f], n) for f, n in asked.items() if inside[f] < 0.95 * n} == {}
