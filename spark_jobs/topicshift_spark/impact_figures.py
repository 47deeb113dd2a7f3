"""From the sums of the scan to the figures of ``impact.json``, exact or with their confidence intervals."""

from __future__ import annotations

import copy
import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from topicshift.core.impact import report as model
from topicshift.core.impact import sampling, skew
from topicshift.core.impact.fingerprint import (
    MAX_UNEXPLAINED,
    Bucket,
    Observed,
    RuleAt,
    chances,
    fingerprint,
    spread,
    sure_of_one,
)
from topicshift.core.impact.partitioning import RULE, SPREADS_EMPTY_KEYS, expected_same_index, parents_of, partition_of
from topicshift.core.impact.report import ends_of, figure
from topicshift.core.impact.sampling import Interval, burst_of, distinct, largest, wilson
from topicshift_spark.impact_groups import Cells, Commits, Tails
from topicshift_spark.impact_scan import Distinct, ScanPlan, Sums


@dataclass(frozen=True)
class KeyNames:
    """How keys are shown: as they are (``secret`` None), or as HMAC-SHA-256 under a secret, 16 hex digits."""

    secret: bytes | None

    def __call__(self, key: bytes) -> str:
        """The name of a key in the result."""
        if self.secret is not None:
            return hmac.new(self.secret, key, hashlib.sha256).hexdigest()[:16]
        text = key[:256].decode("utf-8", errors="replace")
        shown = text if text.isprintable() and "\ufffd" not in text else f"0x{key[:128].hex()}"
        return shown + ("..." if len(key) > 256 else "")


def without_empty_key(sums: Sums, plan: ScanPlan) -> Sums:
    """The sums as if records with an empty key had none: where these are spread, no key places them."""
    records = sums.empty_keys.sum(axis=1)
    key = Distinct.one(records)
    out = copy.deepcopy(sums)
    out.keyed -= sums.empty_keys
    out.keyed_bytes -= sums.empty_bytes.sum(axis=1)
    out.keys -= key
    out.several -= int((sums.empty_keys.sum(axis=0) > 0).sum() > 1)
    out.top = [t for t in out.top if t[2]]
    now = partition_of("murmur2", b"", plan.partitions)
    for c, m in enumerate(plan.candidates):
        then = partition_of("murmur2", b"", m) or 0
        out.placed[c][:, then] -= records
        out.placed_bytes[c][:, then] -= sums.empty_bytes.sum(axis=1)
        out.relocated[c] -= records - (sums.empty_keys[:, then] if then < plan.partitions else 0)
        if then != now:
            out.moved_records[c] -= records
            out.moved_keys[c] -= key
    return out


class Figures:
    """Turns the sums into parts of the model. ``fraction`` is the share of the offsets that was read.

    ``placed`` are the sums of what a key places: without empty keys that are spread.
    """

    def __init__(self, sums: Sums, plan: ScanPlan, fraction: float, names: KeyNames) -> None:
        self.sums, self.plan, self.fraction, self.names = sums, plan, fraction, names
        self.whole = fraction >= 1
        self.empty_by_partition = sums.empty_keys.sum(axis=0).tolist()
        spread_out = spread(self.empty_by_partition, None, MAX_UNEXPLAINED) == "spread"
        self.placed = without_empty_key(sums, plan) if spread_out else sums
        self.keyed = self.placed.keyed.sum(axis=1)
        self.burst = burst_of(sums.rare_records, sums.rare_squares)
        # Bytes come by the record at least, so that what is counted is never a single byte.
        self.burst_bytes = burst_of(sums.rare_bytes, sums.rare_byte_squares)
        if not sums.rare_bytes and (records := int(sums.records.sum())):
            self.burst_bytes = max(1.0, int(sums.value_bytes.sum()) / records)
        # What belongs to a time lies together: a range that was read is in it or not, and counts once.
        ranges = int((sums.records > 0).sum())
        self.burst_in_time = max(self.burst, int(sums.records.sum()) / ranges if ranges else 1.0)

    def _total(self, replicates: Any, *, comparisons: int = 1, burst: float | None = None) -> Interval:
        sums = [float(x) for x in replicates]
        return sampling.total(sums, self.fraction, comparisons=comparisons, burst=burst or self.burst)

    def _shares(self, grid: Any, *, comparisons: int = 1) -> list[Interval]:
        """The share of each column of [replicate, partition]; none where all is zero."""
        bottoms, columns = grid.sum(axis=1).astype(float).tolist(), grid.T.astype(float).tolist()
        shares = [
            sampling.ratio(tops, bottoms, self.fraction, comparisons=comparisons, burst=self.burst) for tops in columns
        ]
        return [s for s in shares if s is not None]

    def show(self, name: str, found: Interval | Sequence[Interval] | None, *, integer: bool = True) -> dict[str, Any]:
        """A field with its ends."""
        return figure(name, found, whole=self.whole, integer=integer)

    def sum(self, name: str, replicates: Any, *, burst: float | None = None) -> dict[str, Any]:
        """A field that is a total."""
        return self.show(name, self._total(replicates, burst=burst))

    def _distinct(self, things: Distinct) -> Interval:
        """How many distinct things there are; no more than records with a key."""
        once, most = [float(x) for x in things.once], self._total(self.sums.keyed.sum(axis=1)).high
        return distinct(things.seen, once, things.twice, self.fraction, at_most=most)

    def per_partition(self, grid: Any, *, burst: float | None = None) -> list[Interval]:
        """The totals of the columns of [replicate, partition], each with its own 95 % interval."""
        return [self._total(column, burst=burst) for column in grid.T.tolist()]

    def largest_share(self, grid: Any) -> Interval | None:
        """The largest column's share of the whole."""
        shares = self._shares(grid, comparisons=grid.shape[1])
        return largest(shares) if shares else None

    def totals(self) -> dict[str, Any]:
        """The fields of the topic as a whole."""
        s = self.sums
        several = self._distinct(s.strays)
        # A key in several partitions has at least one pair that the best rule does not explain; or it is the empty one.
        high = max(s.several, several.high + any(self.empty_by_partition))
        value = s.several if self.whole else min(max(s.several, several.value), high)
        return {
            **self.sum("records", s.records.sum(axis=1)),
            **self.sum("keyed_records", s.keyed.sum(axis=1)),
            **self.sum("null_keys", s.null_keys.sum(axis=1)),
            **self.sum("empty_keys", s.empty_keys.sum(axis=1)),
            **self.sum("tombstones", s.tombstones),
            **self.sum("bytes", s.value_bytes.sum(axis=1), burst=self.burst_bytes),
            **self.show("distinct_keys", self._distinct(s.keys)),
            **self.show("keys_in_several_partitions", Interval(value, s.several, high)),
        }

    def observed(self) -> Observed:
        """The signatures, for the fingerprint."""
        buckets = {m: Bucket(pairs, records.tolist()) for m, (pairs, records) in self.sums.buckets.items()}
        rules = [RuleAt(name, count) for name, count in self.plan.rules]
        strays: Counter[int] = Counter()
        for _, lies_in, records in self.sums.pairs:
            strays.update(dict(enumerate(np.bincount(lies_in, records).astype(int).tolist())))
        return Observed(
            self.plan.partitions,
            rules,
            buckets,
            self.fraction,
            burst=self.burst_in_time,
            several=self.placed.several,
            distinct=self.placed.keys.seen,
            in_partition=(self.sums.keyed - self.sums.empty_keys).sum(axis=0).tolist(),
            strays_in=dict(strays),
        )

    def partitioner(self, max_unexplained: float, edges_ms: Sequence[int]) -> model.Partitioner:
        """The fingerprint, and where empty and null keys lie."""
        found = fingerprint(self.observed(), max_unexplained=max_unexplained)
        s, n, rule = self.sums, self.plan.partitions, RULE[found.name or "murmur2"]
        empty = spread(self.empty_by_partition, partition_of(rule.name, b"", n), MAX_UNEXPLAINED)
        null = spread(s.null_keys.sum(axis=0).tolist(), None)
        shortest = min((b - a for a, b in pairwise(edges_ms)), default=0)

        def sure(slices: Any, size: Any) -> bool:
            """Whether what lies in one partition does so by a rule, and not by chance."""
            return sure_of_one(n, chances(slices.sum(axis=0).tolist(), int(size.sum()), shortest))

        hashes_it = empty == "hashed" and found.name is not None and rule.hash != SPREADS_EMPTY_KEYS
        return found.model_copy(
            update={
                "empty_keys": empty,
                "empty_keys_sure": empty in ("none", "spread") or hashes_it or sure(s.empty_slices, s.empty_bytes),
                "null_keys": null,
                "null_keys_sure": null != "one_partition" or sure(s.null_slices, s.null_bytes),
            }
        )

    def _loads(self, records: Any, size: Any) -> dict[str, Any]:
        """The fields about partitions, from records and bytes as [replicate, partition]."""
        found, m, share = self.per_partition(records), records.shape[1], self.largest_share(records)
        values = [r.value for r in found]
        times = share and Interval(share.value * m, share.low * m, share.high * m)
        return {
            **self.show("partition_records", found),
            **self.show("partition_bytes", self.per_partition(size, burst=self.burst_bytes)),
            **self.show("max_partition_share", share, integer=False),
            **self.show("imbalance", times, integer=False),
            **self.show("gini", self._gini(records, values) if share else None, integer=False),
            "hot_partitions": skew.hot_partitions(values),
        }

    def source(self) -> model.Source:
        """The topic as it is."""
        keyed = self.placed.keyed
        return model.Source(
            partitions=self.plan.partitions,
            **self._loads(self.sums.records, self.sums.value_bytes),
            **self.show("keyed_partition_records", self.per_partition(keyed)),
            **self.show("max_keyed_partition_share", self.largest_share(keyed), integer=False),
        )

    def candidate(self, c: int) -> model.Candidate:
        """One candidate count."""
        n, m, s = self.plan.partitions, self.plan.candidates[c], self.placed
        return model.Candidate(
            partitions=m,
            **self.show("moved_keys", self._distinct(s.moved_keys[c])),
            **self.sum("moved_records", s.moved_records[c]),
            **self.sum("relocated_records", s.relocated[c]),
            **self._loads(s.placed[c], s.placed_bytes[c]),
            parents_max=parents_of(n, m),
            **self.show("same_index_share", self._same_index(c), integer=False),
            same_index_share_expected=expected_same_index(n, m),
        )

    def _gini(self, grid: Any, values: Sequence[float]) -> Interval:
        """Shares that are off by d in sum move the Gini coefficient by no more than d."""
        value = skew.gini(values) or 0.0
        off = sum(max(s.high - s.value, s.value - s.low) for s in self._shares(grid))
        return Interval(value, max(0.0, value - off), min(1.0, value + off))

    def _same_index(self, c: int) -> Interval | None:
        """Keys that keep their index. In a sample the seen keys stand for all: a hash knows nothing of frequencies."""
        seen = self.placed.keys.seen
        if not seen:
            return None
        share = 1 - self.placed.moved_keys[c].seen / seen
        low, high = wilson(share, seen, 0.01)
        return Interval(share, max(0.0, min(share, low)), min(1.0, max(share, high)))

    def top_keys(self, *, by_bytes: bool = False) -> list[model.TopKey]:
        """The largest keys. In a sample the intervals hold for every key that was seen, not just for those shown."""
        position = 1 if by_bytes else 0
        every_key = max(1, self.placed.keys.seen)
        out = []
        for records, size, key, partitions, per_replicate in sorted(
            self.placed.top, key=lambda t: (-t[position], -t[1 - position], t[2])
        )[: self.plan.top]:
            counts = self._total(per_replicate[0], comparisons=every_key)
            sizes = self._total(per_replicate[1], comparisons=every_key, burst=self.burst_bytes)
            of_bytes = self._key_share(size, sizes, self.placed.keyed_bytes, burst=self.burst_bytes)
            out.append(
                model.TopKey(
                    key=self.names(key),
                    **self.show("records", counts),
                    **self.show("bytes", sizes),
                    **self.show("share", self._key_share(records, counts, self.keyed), integer=False),
                    **self.show("bytes_share", of_bytes, integer=False),
                    partitions=partitions,
                )
            )
        return out

    def _key_share(self, seen: int, counts: Interval, everything: Any, *, burst: float | None = None) -> Interval:
        of = self._total(everything, burst=burst)
        return Interval(
            seen / (int(everything.sum()) or 1),
            counts.low / max(1.0, of.high),
            min(1.0, counts.high / max(1.0, of.low)),
        )

    def limits(self) -> model.Limits:
        """The bound that the hottest key sets."""
        if not self.placed.top:
            return model.Limits(hottest_key_share=None, useful_partitions=None)
        top = self.top_keys()
        ends = [ends_of(key, "share") or (key.share, key.share) for key in top]
        share = Interval(top[0].share, max(low for low, _ in ends), max(high for _, high in ends))
        counts = [skew.useful_partitions(x) or 0 for x in (share.value, share.high, share.low)]
        return model.Limits(
            **self.show("hottest_key_share", share, integer=False),
            **self.show("useful_partitions", Interval(*counts)),
        )

    def schema_prefixes(self) -> model.SchemaPrefixes | None:
        """Schema ids, where the keys look as if they had some. Counts are of what was read."""
        ids = self.sums.schema_ids
        keys = {i: k for i, (k, _) in ids.items()}
        if not skew.looks_like_schema_ids(keys, self.sums.keys.seen, overflow=self.sums.schema_overflow):
            return None
        largest_first = sorted(ids.items(), key=lambda item: -item[1][0])
        return model.SchemaPrefixes(
            keys=sum(keys.values()),
            records=round(sum(r for _, r in ids.values()) / self.fraction),
            ids=[model.SchemaId(id=i, keys=k, records=round(r / self.fraction)) for i, (k, r) in largest_first[:50]],
        )

    def slices(self, edges_ms: Sequence[int], part: model.Partitioner) -> list[model.Slice]:
        """The time slices with the rule that explains most of each."""
        out = []
        for i, records in enumerate(self.per_partition(self.sums.slices, burst=self.burst_in_time)):
            shares = {r.name: r.by_slice[i] for r in part.rules if i < len(r.by_slice)}
            known = {name: share for name, share in shares.items() if share is not None}
            best = max(known, key=lambda n: known[n], default=None)
            out.append(
                model.Slice(
                    start=iso(edges_ms[i]),
                    end=iso(edges_ms[i + 1]),
                    **self.show("records", records),
                    best=best,
                    best_share=known[best] if best else None,
                )
            )
        return out


def iso(milliseconds: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC; times no calendar holds as they are."""
    moment = np.datetime64(milliseconds, "ms")
    return f"{moment}Z"


def group_impacts(cells: Cells, tails: Tails, commits: Commits, *, burst: float) -> list[model.GroupImpact]:
    """Per group the unread records and those that an increase would let be overtaken, from the pieces of the tails."""
    fraction = tails.design.fraction
    out = []

    def total(name: str, replicated: Any) -> dict[str, Any]:
        found = sampling.total(replicated.tolist(), fraction, burst=burst)
        return figure(name, found, whole=fraction >= 1, integer=True)

    cuts = {partition: tails.cuts(partition) for _, partition, _ in cells}
    for group, begins in tails.where.items():
        sums = np.zeros((1 + len(tails.larger), tails.design.replicates))
        for (replicate, partition, piece), row in cells.items():
            if cuts[partition][piece] >= begins[partition]:
                sums[:, replicate] += row
        never = sorted(p for p in begins if commits[group].get(p) is None)
        out.append(
            model.GroupImpact(
                group=group,
                **total("unread", sums[0]),
                never_committed=never,
                overtaken=[
                    model.Overtaken(partitions=m, **total("records", sums[1 + i])) for i, m in enumerate(tails.larger)
                ],
            )
        )
    return out
