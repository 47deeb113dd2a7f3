"""The native half of the impact scan as a plain loop: records grouped, the executors' function, the driver's merge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa

from topicshift_spark.impact_scan import ScanPlan, Sums, columns, merge, nothing, summarise

Record = tuple[bytes | None, int, int, int, bool, int]  # key, partition, replicate, value size, tombstone, slice


def batches_of(records: Sequence[Record], plan: ScanPlan, size: int = 7) -> Iterator[pa.RecordBatch]:
    """Groups as the native half makes them, in small batches."""
    groups: dict[tuple[bytes | None, int, int], list[Record]] = defaultdict(list)
    for record in records:
        groups[record[:3]].append(record)
    pack = plan.packing
    rows = []
    for (key, part, rep), members in groups.items():
        longs = [0] * pack.longs
        for _, _, _, _, tombstone, at in members:
            for number in (at, *([pack.fields - 1] if tombstone else [])):
                longs[number // pack.per_long] += 1 << pack.bits * (number % pack.per_long)
        key_hash = 42 if key is None else hash(key)
        rows.append((key, part, rep, sum(m[3] for m in members), key_hash, *longs))
    kinds = [pa.binary(), pa.int32(), pa.int32(), pa.int64(), pa.int64(), *[pa.int64()] * pack.longs]
    for low in range(0, len(rows), size):
        chunk = rows[low : low + size]
        arrays = [pa.array([r[i] for r in chunk], kind) for i, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, columns(plan))


def scan(records: Sequence[Record], plan: ScanPlan, tasks: int = 1, size: int = 7) -> Sums:
    """Keys to tasks as the shuffle does, then every task, then the driver's merge."""
    payloads = []
    for task in range(tasks):
        mine = [r for r in records if hash(r[0]) % tasks == task]
        for out in summarise(plan, batches_of(mine, plan, size)):
            payloads += out.column(0).to_pylist()
    return merge(payloads) or nothing(plan)
