"""What an in-place increase would break right now: unread records of moved keys, per consumer group.

Only the tails are read, [smallest committed offset, end) of every partition. Each is cut at the groups' committed
offsets, so one pass serves all groups: what a group has not read is the sum of the pieces from its own offset on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from topicshift.core.errors import SpecError
from topicshift.core.impact.partitioning import RULE, hash_keys
from topicshift.core.impact.sampling import Design
from topicshift_spark.impact_ranges import is_number
from topicshift_spark.impact_scan import binary
from topicshift_spark.source import Range

Commits = Mapping[str, Mapping[int, int | None]]
"""Group -> partition -> committed offset, None where nothing was committed."""
Cells = Mapping[tuple[int, int, int], Sequence[int]]
"""(replicate, partition, piece) -> [records, then per larger candidate those whose key moves]."""


@dataclass(frozen=True)
class Tails:
    """What is unread of a topic with ``count`` partitions: the offsets to read, and where each group goes on.

    ``larger`` are the candidates that an in-place increase could take, ``rule`` is the partitioner of its producers.
    They spread empty keys if ``empty_spread``: then these have no order that can break.
    """

    design: Design
    where: Mapping[str, Mapping[int, int]]
    count: int
    larger: tuple[int, ...]
    rule: str
    empty_spread: bool = False

    def cuts(self, partition: int) -> list[int]:
        """The distinct starts in one partition, ascending: piece i begins at the i-th."""
        return sorted({starts[partition] for starts in self.where.values()})

    @property
    def partitions(self) -> list[int]:
        """The partitions with something to read."""
        return sorted({p for block in self.design.blocks for p, (start, end) in block.items() if end > start})


def read_groups(path: str) -> dict[str, dict[int, int | None]]:
    """The groups file: ``{"group": {"0": 123, "1": null}}``. Raises ``SpecError`` with the place of what is wrong."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"--groups-file {path}: {getattr(error, 'strerror', None) or error}.") from error
    if not isinstance(raw, dict):
        raise SpecError(f'--groups-file {path}: an object {{"group": {{"0": 123}}}} is expected.')
    out: dict[str, dict[int, int | None]] = {}
    for group, offsets in raw.items():
        if not isinstance(offsets, dict):
            raise SpecError(f"--groups-file {path}: group {group!r} must hold an object of partition and offset.")
        out[group] = {}
        for partition, offset in offsets.items():
            good = offset is None or (isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0)
            if not is_number(str(partition)) or not good:
                raise SpecError(
                    f"--groups-file {path}: group {group!r}, partition {partition!r}: {offset!r} is not an offset. "
                    "Give a number from 0, or null where nothing was committed."
                )
            out[group][int(partition)] = offset
    return out


def starts(commits: Commits, ranges: Mapping[int, Range]) -> dict[str, dict[int, int]]:
    """Where each group goes on in each partition, within the ranges; the log start where nothing was committed."""
    return {
        group: {
            p: r.start if offsets.get(p) is None else min(max(r.start, int(offsets[p] or 0)), r.end)
            for p, r in ranges.items()
        }
        for group, offsets in commits.items()
    }


def tails(where: Mapping[str, Mapping[int, int]], ranges: Mapping[int, Range]) -> dict[int, Range]:
    """[smallest start of any group, end) per partition."""
    return {p: Range(min(s[p] for s in where.values()), r.end) for p, r in ranges.items()}


def with_pieces(records: DataFrame, tails: Tails) -> DataFrame:
    """Adds ``piece``, the number of the piece a record lies in, counted within its partition."""
    chosen = tails.partitions
    # From Arrow it is a relation of the driver; from a list Spark would start Python workers for it.
    table = records.sparkSession.createDataFrame(
        pa.table(
            {
                "partition": pa.array(chosen, pa.int32()),
                "cuts": pa.array([tails.cuts(p) for p in chosen], pa.list_(pa.int64())),
            }
        )
    )
    begun = F.filter("cuts", lambda cut: cut <= F.col("offset"))
    return records.join(F.broadcast(table), "partition").withColumn("piece", F.size(begun) - 1)


def unread_by_piece(records: DataFrame, tails: Tails) -> Cells:
    """Read, group and hash the tails: one Spark job."""
    groups = (
        with_pieces(records, tails)
        .groupBy("key", "partition", "replicate", "piece")
        .agg(F.count(F.lit(1)).alias("records"))
        .select("key", "partition", "replicate", "piece", "records")
    )
    schema = "replicate int, partition int, piece int, sums array<bigint>"
    moved = partial(_moved, tails.count, tails.larger, tails.rule, empty_spread=tails.empty_spread)
    rows = groups.mapInArrow(moved, schema).collect()
    out: dict[tuple[int, int, int], list[int]] = {}
    for row in rows:
        cell = (row["replicate"], row["partition"], row["piece"])
        old = out.setdefault(cell, [0] * (1 + len(tails.larger)))
        out[cell] = [a + b for a, b in zip(old, row["sums"], strict=True)]
    return out


def _moved(
    count: int,
    candidates: tuple[int, ...],
    rule: str,
    batches: Iterable[pa.RecordBatch],
    *,
    empty_spread: bool = False,
) -> Iterator[pa.RecordBatch]:
    sums: dict[tuple[int, int, int], Any] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        keyed = batch.column(0).is_valid().to_numpy(zero_copy_only=False)
        part, rep, piece, records = (batch.column(i).to_numpy(zero_copy_only=False) for i in range(1, 5))
        data, offsets = binary(batch.column(0))
        if empty_spread:
            keyed &= np.diff(offsets) > 0
        hashes = hash_keys(data, offsets, hashes=(RULE[rule].hash,))
        now = hashes.place(RULE[rule], count)
        columns = [records]
        columns += [records * (keyed & (hashes.place(RULE[rule], m) != now)) for m in candidates]
        cells, where = np.unique(np.stack([rep, part, piece], axis=1), axis=0, return_inverse=True)
        where = where.reshape(-1)
        table = np.stack([np.bincount(where, c, len(cells)) for c in columns], axis=1).astype(np.int64)
        for cell, row in zip(cells.tolist(), table, strict=True):
            key = (cell[0], cell[1], cell[2])
            sums[key] = sums[key] + row if key in sums else row
    if sums:
        yield pa.RecordBatch.from_arrays(
            [
                *(pa.array([k[i] for k in sums], pa.int32()) for i in range(3)),
                pa.array([v.tolist() for v in sums.values()], pa.list_(pa.int64())),
            ],
            ["replicate", "partition", "piece", "sums"],
        )
