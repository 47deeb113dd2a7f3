"""One pass over the topic: Spark groups records by (key, partition), the executors hash the distinct keys.

Only sums leave an executor: its memory is bounded by one shuffle partition (the job derives their number from the
offsets), the driver's by partitions x candidates and the largest keys. This module is shipped to the executors and
uses the standard library, numpy, pyarrow and the pure rules of :mod:`topicshift.core` alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from topicshift.core.impact.partitioning import RULE, hash_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SCHEMA_IDS = 2000
_ARRAYS = {
    "records": "gn", "value_bytes": "gn", "keyed": "gn", "null_keys": "gn", "empty_keys": "gn", "empty_bytes": "gn",
    "slices": "gs", "null_slices": "gs", "empty_slices": "gs", "tombstones": "g", "keyed_bytes": "g", "null_bytes": "g",
    "moved_records": "cg", "relocated": "cg",
}  # fmt: skip
"""Arrays of :class:`Sums`: their axes are replicates (g), partitions (n), time slices (s) and candidates (c)."""
_ADDED = (
    *_ARRAYS, "several", "rare_records", "rare_squares", "rare_bytes", "rare_byte_squares", "keys", "strays", "top",
    "pairs",
)  # fmt: skip
_ADDED_BY_CANDIDATE = ("placed", "placed_bytes", "moved_keys")
PAIRS_KEPT = 4000
"""Unexplained (key, partition) pairs a task hands back as hashes, to look for earlier partition counts."""


@dataclass(frozen=True)
class Packing:
    """How the counters of a group lie in longs: ``fields`` counters of ``bits`` bits, several in one long.

    Counters 0 to n-2 are records per time slice, the last one counts tombstones. ``bits`` holds the largest count
    possible, the size of the largest offset range, so that no counter runs into its neighbour.
    """

    fields: int
    bits: int

    @property
    def per_long(self) -> int:
        """Counters in one long (its sign bit stays free)."""
        return 63 // self.bits

    @property
    def longs(self) -> int:
        """Longs needed."""
        return -(-self.fields // self.per_long)

    def unpack(self, columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """int64[n, fields] out of the packed columns."""
        out = np.empty((len(columns[0]), self.fields), np.int64)
        mask = np.int64((1 << self.bits) - 1)
        for i in range(self.fields):
            long, slot = divmod(i, self.per_long)
            out[:, i] = (columns[long] >> np.int64(slot * self.bits)) & mask
        return out


@dataclass(frozen=True)
class ScanPlan:
    """What the executors are told: counts, candidates, rules as (name, count), packing, replicates, top k."""

    partitions: int
    candidates: tuple[int, ...]
    rules: tuple[tuple[str, int], ...]
    packing: Packing
    replicates: int = 1
    top: int = 20

    @property
    def answer_bytes(self) -> int:
        """About how large one task's answer can be: its arrays over the candidates, and the pairs it hands back."""
        arrays = 2 * 8 * self.replicates * (sum(self.candidates) + 3 * self.partitions)
        return arrays + PAIRS_KEPT * 32


@dataclass
class Sums:
    """What one task, or all of them together, found. Arrays over replicates come first in their shape.

    Empty keys are in every sum but ``buckets``, ``strays`` and ``pairs``: no rule is judged by them, as most clients
    hash an empty key and one spreads it.
    """

    records: Any  # [replicate, partition]: all records
    value_bytes: Any  # [replicate, partition]: bytes of key and value of all records
    keyed: Any  # [replicate, partition]
    null_keys: Any
    empty_keys: Any
    empty_bytes: Any
    tombstones: Any  # [replicate]
    keyed_bytes: Any  # [replicate]
    slices: Any  # [replicate, slice]: keyed records
    null_slices: Any  # [replicate, slice]: records without a key
    empty_slices: Any  # [replicate, slice]: records with an empty key
    null_bytes: Any  # [replicate]
    moved_records: Any  # [candidate, replicate]
    relocated: Any
    placed: list[Any]  # per candidate [replicate, M]: keyed records
    placed_bytes: list[Any]
    keys: Any  # distinct keys, seen once per replicate [replicate], seen twice: see Distinct
    moved_keys: list[Any]  # per candidate, the same
    several: int = 0  # keys in several partitions
    rare_records: int = 0  # records of keys that show in one or two replicates ...
    rare_squares: int = 0  # ... and the squares of their records per replicate
    rare_bytes: int = 0  # the same of their bytes
    rare_byte_squares: float = 0.0
    strays: Any = None  # distinct pairs that no current rule of the best kind explains, as in keys
    buckets: dict[int, list[Any]] = field(default_factory=dict)  # signature -> [pairs, array[replicate, slice]]
    top: list[Any] = field(default_factory=list)  # (records, bytes, key, partitions, [records, bytes] per replicate)
    pairs: list[Any] = field(default_factory=list)  # unexplained pairs: hashes, partition, records
    schema_ids: dict[int, list[int]] = field(default_factory=dict)  # id -> [keys, records]
    schema_overflow: bool = False


@dataclass
class Distinct:
    """Distinct things: seen at all, seen in one replicate only (per replicate), seen in exactly two."""

    seen: int
    once: Any
    twice: int

    @classmethod
    def none(cls, replicates: int) -> Distinct:
        """Nothing at all."""
        return cls(0, np.zeros(replicates, np.int64), 0)

    @classmethod
    def one(cls, records: Any) -> Distinct:
        """One thing with so many records [replicate], or none."""
        shows = (records > 0).astype(np.int64)
        times = int(shows.sum())
        return cls(min(1, times), shows * (times == 1), int(times == 2))

    def __add__(self, other: Distinct) -> Distinct:
        """With the things of another task, which are disjoint."""
        return Distinct(self.seen + other.seen, self.once + other.once, self.twice + other.twice)

    def __sub__(self, other: Distinct) -> Distinct:
        """Without some of the things."""
        return self + Distinct(-other.seen, -other.once, -other.twice)


def columns(plan: ScanPlan) -> list[str]:
    """The columns that :func:`summarise` expects, in order."""
    fixed = ("key", "partition", "replicate", "value_bytes", "key_hash")
    return [*fixed, *(f"counters_{i}" for i in range(plan.packing.longs))]


def summarise(plan: ScanPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: the rows of its groups in, one row with the pickled :class:`Sums` out (none for an empty task).

    All rows of a key are in the same task.
    """
    task = _Task(plan)
    for batch in batches:
        if batch.num_rows:
            task.take(batch)
    if task.rows:
        payload = pickle.dumps(task.finish(), protocol=5)
        yield pa.RecordBatch.from_arrays([pa.array([payload], pa.binary())], ["sums"])


def nothing(plan: ScanPlan) -> Sums:
    """The sums of a topic without records."""
    return _Task(plan).finish()


def merge(parts: Iterable[bytes]) -> Sums | None:
    """Add up what the tasks found; None when there was no record at all."""
    total: Sums | None = None
    for part in parts:
        sums: Sums = pickle.loads(part)  # noqa: S301 - made by our own executors
        if total is None:
            total = sums
            continue
        for name in _ADDED:
            setattr(total, name, getattr(total, name) + getattr(sums, name))
        for name in _ADDED_BY_CANDIDATE:
            both = zip(getattr(total, name), getattr(sums, name), strict=True)
            setattr(total, name, [a + b for a, b in both])
        for signature, (pairs, records) in sums.buckets.items():
            old = total.buckets.setdefault(signature, [0, np.zeros_like(records)])
            total.buckets[signature] = [old[0] + pairs, old[1] + records]
        _add_schema_ids(total, sums.schema_ids, sums.schema_overflow)
    return total


def _add_schema_ids(total: Sums, found: dict[int, list[int]], overflow: bool) -> None:
    total.schema_overflow |= overflow
    for identifier, (keys, records) in found.items():
        if identifier not in total.schema_ids and len(total.schema_ids) >= MAX_SCHEMA_IDS:
            total.schema_overflow = True
            continue
        old = total.schema_ids.setdefault(identifier, [0, 0])
        total.schema_ids[identifier] = [old[0] + keys, old[1] + records]


class _Keys(NamedTuple):
    """Pairs (key, partition) of one batch, all with a key; ``empty`` marks keys without a byte."""

    key: pa.Array
    data: Any
    offsets: Any
    part: Any
    rep: Any
    records: Any
    size: Any
    per_slice: Any
    key_hash: Any
    empty: Any


class _Task:
    """Collects one task. Sums per (key, partition) are added batch by batch; what is about keys is kept until the
    end, 40 bytes a row and the keys themselves."""

    def __init__(self, plan: ScanPlan) -> None:
        self.plan = plan
        g = plan.replicates
        axes = {"g": g, "n": plan.partitions, "s": plan.packing.fields - 1, "c": len(plan.candidates)}
        arrays: dict[str, Any] = {n: np.zeros([axes[a] for a in shape], np.int64) for n, shape in _ARRAYS.items()}
        self.sums = Sums(
            **arrays,
            placed=[np.zeros((g, m), np.int64) for m in plan.candidates],
            placed_bytes=[np.zeros((g, m), np.int64) for m in plan.candidates],
            keys=Distinct.none(g),
            moved_keys=[],
        )
        self.rows = 0
        self.kept: list[tuple[Any, ...]] = []
        self.key_columns: list[pa.Array] = []
        self.hashes: list[Any] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Add the pairs of one batch."""
        self.rows += batch.num_rows
        column = {name: batch.column(i) for i, name in enumerate(columns(self.plan))}
        key = column["key"]
        numbers = {name: _numbers(array) for name, array in column.items() if name != "key"}
        counts = self.plan.packing.unpack([numbers[f"counters_{i}"] for i in range(self.plan.packing.longs)])
        per_slice, tombstones = counts[:, :-1], counts[:, -1]
        records = per_slice.sum(axis=1)
        data, offsets = binary(key)
        lengths = np.diff(offsets)
        size = numbers["value_bytes"] + lengths * records
        part = numbers["partition"].astype(np.int64)
        rep = numbers["replicate"].astype(np.int64)
        key_hash = numbers["key_hash"]
        g, n = self.plan.replicates, self.plan.partitions
        sums = self.sums
        sums.records += _grid(rep, part, records, g, n)
        sums.value_bytes += _grid(rep, part, size, g, n)
        sums.tombstones += np.bincount(rep, tombstones, g).astype(np.int64)
        if key.null_count:
            present = key.is_valid().to_numpy(zero_copy_only=False)
            gone = ~present
            sums.null_keys += _grid(rep[gone], part[gone], records[gone], g, n)
            sums.null_bytes += np.bincount(rep[gone], size[gone], g).astype(np.int64)
            sums.null_slices += _by_slice(rep[gone], per_slice[gone], g)
            key = key.filter(pa.array(present))
            data, offsets = binary(key)
            part, rep, records, size, lengths = (x[present] for x in (part, rep, records, size, lengths))
            per_slice, key_hash = per_slice[present], key_hash[present]
        if not len(part):
            return
        empty = lengths == 0
        if empty.any():
            sums.empty_keys += _grid(rep[empty], part[empty], records[empty], g, n)
            sums.empty_bytes += _grid(rep[empty], part[empty], size[empty], g, n)
            sums.empty_slices += _by_slice(rep[empty], per_slice[empty], g)
        sums.keyed += _grid(rep, part, records, g, n)
        sums.keyed_bytes += np.bincount(rep, size, g).astype(np.int64)
        sums.slices += _by_slice(rep, per_slice, g)
        self._place(_Keys(key, data, offsets, part, rep, records, size, per_slice, key_hash, empty))

    def _place(self, rows: _Keys) -> None:
        plan, sums, g = self.plan, self.sums, self.plan.replicates
        part, rep, records = rows.part, rows.rep, rows.records
        hashes = hash_keys(rows.data, rows.offsets)
        positive = hashes.values["murmur2"] & np.uint32(0x7FFFFFFF)
        now = positive % np.uint32(plan.partitions)
        moved = np.zeros((len(plan.candidates), len(part)), bool)
        for c, m in enumerate(plan.candidates):
            then = (positive % np.uint32(m)).astype(np.int64)
            moved[c] = now != then
            sums.moved_records[c] += np.bincount(rep, records * moved[c], g).astype(np.int64)
            sums.relocated[c] += np.bincount(rep, records * (then != part), g).astype(np.int64)
            sums.placed[c] += _grid(rep, then, records, g, m)
            sums.placed_bytes[c] += _grid(rep, then, rows.size, g, m)
        signature = np.zeros(len(part), np.int64)
        for bit, (name, count) in enumerate(plan.rules):
            signature |= (hashes.place(RULE[name], count) == part).astype(np.int64) << np.int64(bit)
        # As if every rule explained an empty key: it is then no stray, and looked at apart.
        signature[rows.empty] = -1
        self._bucket(signature, rep, rows.per_slice)
        ids = _schema_ids(rows.data, rows.offsets)
        moves = np.packbits(moved, axis=0).T
        self.kept.append((rows.key_hash, part, rep, records, rows.size, signature, moves, ids))
        self.key_columns.append(rows.key)
        self.hashes.append(np.stack([hashes.values[h] for h in sorted(hashes.values)], axis=1))

    def _bucket(self, signature: Any, rep: Any, per_slice: Any) -> None:
        found, where, pairs = np.unique(signature, return_inverse=True, return_counts=True)
        g = self.plan.replicates
        grids = _by_slice(where * g + rep, per_slice, len(found) * g)
        for i, value in enumerate(found.tolist()):
            if value == -1:
                continue
            old = self.sums.buckets.setdefault(value, [0, np.zeros((g, per_slice.shape[1]), np.int64)])
            old[0] += int(pairs[i])
            old[1] = old[1] + grids[i * g : (i + 1) * g]

    def finish(self) -> Sums:
        """What is about whole keys, whose rows may have come in different batches."""
        sums, plan = self.sums, self.plan
        g, c = plan.replicates, len(plan.candidates)
        if not self.kept:
            sums.moved_keys = [Distinct.none(g) for _ in range(c)]
            sums.strays = Distinct.none(g)
            return sums
        key_hash, part, rep, records, size, signature, moved, ids = (
            np.concatenate([k[i] for k in self.kept]) for i in range(8)
        )
        order = np.argsort(key_hash, kind="stable")
        ordered = key_hash[order]
        start = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        first = order[start]
        group = np.cumsum(np.concatenate(([0], (ordered[1:] != ordered[:-1]).astype(np.int64))))
        n_keys = len(start)
        if n_keys == len(order):
            several = np.zeros(n_keys, bool)
            times, at = np.ones(n_keys, np.int64), rep[first]
        else:
            low = np.minimum.reduceat(part[order], start)
            several = np.maximum.reduceat(part[order], start) != low
            times, at = _incidence(group, rep[order], n_keys)
        sums.several = int(several.sum())
        if g > 1:
            seldom = times[group] <= 2
            rare, rare_bytes = records[order][seldom], size[order][seldom]
            sums.rare_records, sums.rare_squares = int(rare.sum()), int((rare * rare).sum())
            sums.rare_bytes = int(rare_bytes.sum())
            # As floats: a few gigabytes squared are beyond an integer of 64 bits.
            sums.rare_byte_squares = float(np.square(rare_bytes, dtype=np.float64).sum())
        sums.keys = _distinct(np.ones(n_keys, bool), times, at, g)
        bits = np.unpackbits(moved[first], axis=1)[:, :c].astype(bool)
        sums.moved_keys = [_distinct(bits[:, i], times, at, g) for i in range(c)]
        self._count_schema_ids(ids[first], np.add.reduceat(records[order], start))
        best = self._best_bit()
        stray = (signature >> np.int64(best) & 1) == 0
        sums.strays = self._strays(key_hash[stray], part[stray], rep[stray])
        self._keep_pairs(stray, key_hash, part, records)
        self._keep_top(order, start, group, part, rep, records, size)
        return sums

    def _count_schema_ids(self, ids: Any, records: Any) -> None:
        found, where = np.unique(ids, return_inverse=True)
        keys = np.bincount(where, minlength=len(found))
        totals = np.bincount(where, records, len(found))
        counts = {int(i): [int(k), int(r)] for i, k, r in zip(found, keys, totals, strict=True) if i}
        _add_schema_ids(self.sums, counts, False)

    def _best_bit(self) -> int:
        totals = {
            bit: sum(int(r.sum()) for mask, (_, r) in self.sums.buckets.items() if mask >> bit & 1)
            for bit, (_, count) in enumerate(self.plan.rules)
            if count == self.plan.partitions
        }
        return max(totals, key=lambda bit: (totals[bit], -bit))

    def _strays(self, key_hash: Any, part: Any, rep: Any) -> Distinct:
        g = self.plan.replicates
        if not len(key_hash):
            return Distinct.none(g)
        order = np.lexsort((part, key_hash))
        new = np.concatenate(
            ([False], (key_hash[order][1:] != key_hash[order][:-1]) | (part[order][1:] != part[order][:-1]))
        )
        group = np.cumsum(new.astype(np.int64))
        times, at = _incidence(group, rep[order], int(group[-1]) + 1)
        return _distinct(np.ones(len(times), bool), times, at, g)

    def _keep_pairs(self, stray: Any, key_hash: Any, part: Any, records: Any) -> None:
        """A random sample (the smallest hashes) of the pairs that the best rule leaves unexplained."""
        rows = np.flatnonzero(stray)
        if len(rows) > PAIRS_KEPT:
            mixed = key_hash[rows].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            rows = rows[np.argpartition(mixed, PAIRS_KEPT)[:PAIRS_KEPT]]
        if len(rows):
            hashes = np.concatenate(self.hashes)[rows]
            self.sums.pairs.append((hashes, part[rows].astype(np.int32), records[rows]))

    def _keep_top(self, order: Any, start: Any, group: Any, part: Any, rep: Any, records: Any, size: Any) -> None:
        per_key = np.add.reduceat(records[order], start)
        per_key_bytes = np.add.reduceat(size[order], start)
        k = min(self.plan.top + 1, len(start))  # one of them may be the empty key, which need not count
        largest = set(np.argpartition(per_key, -k)[-k:].tolist()) | set(
            np.argpartition(per_key_bytes, -k)[-k:].tolist()
        )
        ends = np.append(start[1:], len(order))
        bases = np.cumsum([0, *(len(col) for col in self.key_columns)])
        for i in sorted(largest):
            rows = order[start[i] : ends[i]]
            chunk = int(np.searchsorted(bases, rows[0], side="right")) - 1
            key = self.key_columns[chunk][int(rows[0] - bases[chunk])].as_py()
            self.sums.top.append(
                (
                    int(per_key[i]),
                    int(per_key_bytes[i]),
                    key,
                    sorted(set(part[rows].tolist())),
                    [
                        np.bincount(rep[rows], weights[rows], self.plan.replicates).astype(np.int64).tolist()
                        for weights in (records, size)
                    ],
                )
            )


def _schema_ids(data: Any, offsets: Any) -> Any:
    """uint32[n]: the schema id of keys in Confluent's wire format (a zero byte, then the id as 4 bytes, big endian).

    0 where a key cannot be one: ids start at 1, and something follows the prefix. Keys of 8 bytes are left out, as they
    are far more often big-endian longs, whose upper bytes look just the same.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    ids = np.zeros(len(starts), np.uint32)
    able = np.flatnonzero((lengths > 5) & (lengths != 8))
    able = able[data[starts[able]] == 0] if len(able) else able
    for i in range(1, 5):
        ids[able] = ids[able] << np.uint32(8) | data[starts[able] + i].astype(np.uint32)
    return ids


def _incidence(group: Any, rep: Any, n: int) -> tuple[Any, Any]:
    """In how many replicates each of n things shows, and one of these; rows are ordered by thing."""
    order = np.lexsort((rep, group))
    g, r = group[order], rep[order]
    new = np.concatenate(([True], (g[1:] != g[:-1]) | (r[1:] != r[:-1])))
    at = np.zeros(n, np.int64)
    at[g] = r
    return np.bincount(g[new], minlength=n), at


def _distinct(which: Any, times: Any, at: Any, replicates: int) -> Distinct:
    once = which & (times == 1)
    return Distinct(
        int(which.sum()),
        np.bincount(at[once], minlength=replicates).astype(np.int64),
        int((which & (times == 2)).sum()),
    )


def _grid(rep: Any, index: Any, weights: Any, replicates: int, width: int) -> Any:
    """Sums of integer weights by (replicate, index); exact up to 2**53."""
    flat = index if replicates == 1 else rep * width + index
    return np.bincount(flat, weights, replicates * width).astype(np.int64).reshape(replicates, width)


def _by_slice(cell: Any, per_slice: Any, cells: int) -> Any:
    """int64[cells, slice]: sums of the rows of ``per_slice`` by cell."""
    columns = [np.bincount(cell, column, cells) for column in per_slice.T]
    return np.stack(columns, axis=1).astype(np.int64)


def _numbers(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def binary(array: pa.Array) -> tuple[Any, Any]:
    """Data and offsets of a binary column without copying; nulls count as empty."""
    large = pa.types.is_large_binary(array.type)
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int64 if large else np.int32)[
        array.offset : array.offset + len(array) + 1
    ].astype(np.int64)
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    return data, offsets
