"""What an in-place increase would let be overtaken, from the executors' half to the figures; no Spark needed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from confluent_kafka import murmur2

from topicshift.core.impact.sampling import Design
from topicshift_spark import impact_groups
from topicshift_spark.impact_figures import group_impacts
from topicshift_spark.impact_groups import Tails, starts, tails
from topicshift_spark.source import Range

N = 3
LARGER = (6, 7)
COMMITS = {"half": {0: 40, 1: 55, 2: 10}, "done": {0: 80, 1: 90, 2: 70}, "new": {1: None, 2: 30}}
ENDS = {0: 80, 1: 90, 2: 70}


@pytest.fixture(scope="module")
def log() -> list[list[bytes | None]]:
    """Keys by partition and offset; one in ten has none."""
    rng = random.Random(3)
    return [
        [None if rng.random() < 0.1 else b"customer-%d" % rng.randrange(50) for _ in range(end)]
        for end in ENDS.values()
    ]


def test_empty_keys_that_are_spread_are_overtaken_by_nothing() -> None:
    keys = [b"", b"a", b"b", None, b"c"]
    columns = [pa.array(keys, pa.binary()), *(pa.array([0] * 5, pa.int32()) for _ in range(3))]
    names = ["key", "partition", "replicate", "piece", "records"]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([100, 10, 10, 10, 10], pa.int64())], names)
    for spread in (False, True):
        [out] = impact_groups._moved(N, (6, 7), "murmur2", [batch], empty_spread=spread)
        moved = [
            sum(
                100 if key == b"" else 10
                for key in keys
                if key is not None and (key or not spread) and murmur2(key, N) != murmur2(key, m)
            )
            for m in (6, 7)
        ]
        assert out.to_pylist()[0]["sums"] == [140, *moved]


def test_each_group_is_told_what_it_alone_has_not_read(log: list[list[bytes | None]]) -> None:
    ranges = {p: Range(0, end) for p, end in ENDS.items()}
    where = starts(COMMITS, ranges)
    unread = tails(where, ranges)
    design = Design(1.0, ({p: (r.start, r.end) for p, r in unread.items()},))
    asked = Tails(design, where, N, LARGER, "murmur2")
    rows: Counter[tuple[bytes | None, int, int]] = Counter()
    for p, (start, end) in design.blocks[0].items():
        for offset in range(start, end):
            piece = sum(cut <= offset for cut in asked.cuts(p)) - 1
            rows[log[p][offset], p, piece] += 1
    columns = [
        pa.array([k for k, _, _ in rows], pa.binary()),
        pa.array([p for _, p, _ in rows], pa.int32()),
        pa.array([0] * len(rows), pa.int32()),
        pa.array([piece for _, _, piece in rows], pa.int32()),
        pa.array(list(rows.values()), pa.int64()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["key", "partition", "replicate", "piece", "records"])
    cells: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0] * (1 + len(LARGER)))
    for out in impact_groups._moved(N, LARGER, "murmur2", [batch.slice(0, 20), batch.slice(20)]):
        for row in out.to_pylist():
            cell = cells[row["replicate"], row["partition"], row["piece"]]
            cell[:] = [a + b for a, b in zip(cell, row["sums"], strict=True)]
    found = {g.group: g for g in group_impacts(cells, asked, COMMITS, burst=1.0)}

    assert found["new"].never_committed == [0, 1]
    assert found["done"].unread == 0
    for group, commits in COMMITS.items():
        left = [k for p, keys in enumerate(log) for k in keys[commits.get(p) or 0 :]]
        assert found[group].unread == len(left)
        for over in found[group].overtaken:
            moved = [k for k in left if k is not None and murmur2(k, N) != murmur2(k, over.partitions)]
            assert over.records == len(moved), (group, over.partitions)
