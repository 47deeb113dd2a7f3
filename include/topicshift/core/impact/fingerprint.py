"""The partitioner fingerprint: which rules put the keys where they are, from how often each rule agrees.

Every distinct (key, partition) pair gets a signature: the bits of all rules that put this key into this partition. The
histogram of signatures holds everything that is needed to tell one writer from several: how much each rule explains,
and what is left when the largest writer's records are taken away.

A rule that nobody used still agrees with about one pair in N, and one rule can look like another where N is a power of
two (see :mod:`topicshift.core.impact.partitioning`). So writers are taken greedily: the rule (at a partition count)
that explains most of what is left, as long as it explains clearly more than chance would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from topicshift.core.impact.partitioning import RULE, RULES
from topicshift.core.impact.report import ENDS, Partitioner, RuleShare, Writer, figure
from topicshift.core.impact.sampling import Interval, ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topicshift.core.impact.partitioning import KeyHashes

MAX_UNEXPLAINED = 0.005
"""Share of the keyed records that may be unexplained before the topic counts as written by several rules."""
_OVER_CHANCE = 0.2
_PAIRS = 12
"""Fewer pairs than this are never called a writer of their own."""
_DEVIATIONS = 5
"""Standard deviations above chance that a rule has to agree at another count."""
MAX_EARLIER = 3
_MAX_WRITERS = 6


@dataclass(frozen=True)
class RuleAt:
    """A rule at a partition count; the bit of a signature stands for one of these."""

    name: str
    partitions: int


@dataclass(frozen=True)
class Bucket:
    """All pairs of one signature: how many, and their records as [replicate][time slice]."""

    pairs: int
    records: Sequence[Sequence[int]]

    @cached_property
    def per_replicate(self) -> list[int]:
        """Records of each replicate."""
        return [sum(slices) for slices in self.records]

    @cached_property
    def per_slice(self) -> list[int]:
        """Records of each time slice."""
        return [sum(column) for column in zip(*self.records, strict=True)]

    @cached_property
    def total(self) -> int:
        """Records over all replicates and slices."""
        return sum(self.per_replicate)


@dataclass(frozen=True)
class Observed:
    """The histogram: ``rules[i]`` is bit i of the signatures; the first ``len(RULES)`` are at the source's count."""

    partitions: int
    rules: Sequence[RuleAt]
    buckets: Mapping[int, Bucket]
    fraction: float = 1.0
    burst: float = 1.0
    """Of a sample: see :func:`topicshift.core.impact.sampling.burst_of`."""
    several: int = 0
    """Distinct keys that lie in more than one partition."""
    distinct: int = 0
    in_partition: Sequence[int] = ()
    """Records by partition."""
    strays_in: Mapping[int, int] = field(default_factory=dict)
    """Partition -> records, of (a sample of) the pairs that the best rule of today does not explain."""


def rules_at(partitions: int, earlier: Sequence[RuleAt] = ()) -> tuple[RuleAt, ...]:
    """The rules a signature speaks of: all of them at the source's count, then some at earlier counts."""
    return (*(RuleAt(rule.name, partitions) for rule in RULES), *earlier)


def fingerprint(seen: Observed, *, max_unexplained: float = MAX_UNEXPLAINED) -> Partitioner:
    """Name the rule, or say why there is no single one."""
    pairs = sum(b.pairs for b in seen.buckets.values())
    if not sum(b.total for b in seen.buckets.values()):
        return Partitioner(name=None, fit=None, by_name={}, verdict="none", sure=False)
    current = range(len(RULES))
    shares = {seen.rules[i].name: _share(seen, i) for i in current}
    writers, left, earlier = _writers(seen)
    rest = _part(seen, left)
    kept = [w for w in writers if w.share > max_unexplained]
    best = max(current, key=lambda i: (_explained(seen, i), -i))
    fine = rest.value + sum(w.share for w in writers if w not in kept) <= max_unexplained
    constant = None if fine else _fullest(seen.strays_in, max_unexplained)
    verdict, name, count = _verdict(seen, kept if fine else [], writers, earlier)
    if not fine and seen.partitions > 1:
        everything = _fullest(dict(enumerate(seen.in_partition)), max_unexplained)
        verdict = "constant" if constant is not None and constant == everything else "mixture" if kept else verdict
    fit = shares[name if verdict == "single" and name else seen.rules[best].name]
    if name and verdict != "single":
        alone = 1 in earlier
        fit = _union_share(
            seen, [i for i, r in enumerate(seen.rules) if r.name == name or (r.partitions == 1 and alone)]
        )
    # How likely is it that some rule agrees with every pair by chance?
    tried = len(RULES) * (1 if count == seen.partitions else seen.partitions)
    whole = seen.fraction >= 1
    return Partitioner(
        name=name,
        **figure("fit", fit, whole=whole),
        by_name={n: s.value for n, s in shares.items()},
        **({} if whole else {f"by_name_{end}": {n: getattr(s, end) for n, s in shares.items()} for end in ENDS}),
        verdict=verdict,
        same_as=_same_as(seen, best) if name and count == seen.partitions else [],
        sure=seen.partitions > 1 and tried * float(count) ** -min(pairs, 500) < 0.001,
        **figure("unexplained_share", rest, whole=whole),
        writers=writers,
        earlier_counts=sorted(earlier),
        constant_partition=constant,
        rules=[_rule_share(seen, i, shares[seen.rules[i].name], pairs) for i in current],
    )


def _verdict(
    seen: Observed, kept: Sequence[Writer], writers: Sequence[Writer], earlier: set[int]
) -> tuple[str, str | None, int]:
    """Verdict, rule and its count, where ``kept`` of the writers explain everything (or nobody does)."""
    if seen.partitions == 1:
        return "one_partition", None, 1
    if not kept:
        return "custom" if seen.several * 100 <= seen.distinct else "scattered", None, seen.partitions
    name, counts = kept[0].name, {w.partitions for w in kept}
    if len({w.name for w in kept}) > 1 or len(counts - earlier) > 1:
        return "mixture", None, seen.partitions
    # The few records since the last increase may be too few for a writer to be kept.
    last = max(counts - earlier or {w.partitions for w in writers if w.name == name} - earlier)
    if last != seen.partitions:
        return "fixed_count", name, last
    return "single" if counts == {last} else "earlier_increase", name, last


def _fullest(records: Mapping[int, int], tolerance: float) -> int | None:
    """The partition that (nearly) all of these records lie in: somebody names it, whatever the key."""
    fullest = max(records, key=lambda p: (records[p], -p), default=None)
    return fullest if fullest is not None and records[fullest] >= (1 - tolerance) * sum(records.values()) else None


def _explained(seen: Observed, bit: int) -> int:
    return sum(b.total for mask, b in seen.buckets.items() if mask >> bit & 1)


def _replicates(seen: Observed, wanted: int | None) -> list[float]:
    """Records per replicate of the signatures that have any of the bits ``wanted`` (all signatures for None)."""
    out: list[float] = []
    for mask, bucket in seen.buckets.items():
        out = out or [0.0] * len(bucket.records)
        if wanted is None or mask & wanted:
            out = [a + b for a, b in zip(out, bucket.per_replicate, strict=True)]
    return out


def _union_share(seen: Observed, bits: Sequence[int]) -> Interval:
    wanted = sum(1 << i for i in bits)
    share = ratio(
        _replicates(seen, wanted),
        _replicates(seen, None),
        seen.fraction,
        comparisons=1 if len(bits) > 1 else len(RULES),
    )
    return share or Interval(0.0, 0.0, 0.0)


def _share(seen: Observed, bit: int) -> Interval:
    return _union_share(seen, [bit])


def _part(seen: Observed, buckets: Iterable[Bucket]) -> Interval:
    """The share that these signatures have of the records."""
    whole = _replicates(seen, None)
    mine = [0.0] * len(whole)
    for bucket in buckets:
        mine = [a + b for a, b in zip(mine, bucket.per_replicate, strict=True)]
    share = ratio(mine, whole, seen.fraction, comparisons=len(RULES), burst=seen.burst)
    return share or Interval(0.0, 0.0, 0.0)


def _writers(seen: Observed) -> tuple[list[Writer], list[Bucket], set[int]]:
    """The writers, largest first; the signatures that none of them explains; counts that were left behind."""
    one = next((i for i, r in enumerate(seen.rules) if i >= len(RULES) and r.partitions == 1), None)
    bits = _greedy(seen, seen.buckets)
    if one is not None:
        # While the topic had one partition every rule put every key there, and so does a client that names partition
        # 0. What lies elsewhere tells the rule of today; only the time tells whether partition 0 was all there was.
        elsewhere = _greedy(seen, {mask: b for mask, b in seen.buckets.items() if not mask >> one & 1})
        bits = [*elsewhere, one] if elsewhere and _came_first(seen, one, elsewhere, clearly=True) else bits
    left = dict(seen.buckets)
    found: list[Writer] = []
    for bit in bits:
        rule = seen.rules[bit]
        mine = [b for mask, b in left.items() if mask >> bit & 1]
        # What several writers explain goes to the larger one, and a sample may take another for the larger: a share
        # lies between what this one alone explains and all that it does.
        alone = every = mine
        if bit != one:
            rivals = sum(1 << other for other in bits if other not in (bit, one))
            every = [b for mask, b in seen.buckets.items() if mask >> bit & 1]
            alone = [b for mask, b in seen.buckets.items() if mask >> bit & 1 and not mask & rivals]
        first, last = _slices(mine) if found else _slices_of_largest(seen, bit)
        share = Interval(_part(seen, mine).value, _part(seen, alone).low, _part(seen, every).high)
        found.append(
            Writer(
                name=found[0].name if bit == one else rule.name,
                partitions=rule.partitions,
                **figure("share", share, whole=seen.fraction >= 1),
                first_slice=first,
                last_slice=last,
            )
        )
        left = {mask: b for mask, b in left.items() if not mask >> bit & 1}
    return found, list(left.values()), _earlier(seen, bits, one)


def _earlier(seen: Observed, bits: Sequence[int], one: int | None) -> set[int]:
    """Counts that a rule took before it took a larger one: those that the topic had once.

    A rule at two counts at the same time is one of two applications, and a count that no larger one follows is one
    that somebody has configured (or the topic has grown since its last record).
    """
    out = set()
    for bit in bits:
        mine = seen.rules[bit]
        larger = [b for b in bits if seen.rules[b].name == mine.name and seen.rules[b].partitions > mine.partitions]
        if bit == one or (larger and _came_first(seen, bit, larger)):
            out.add(mine.partitions)
    return out


def _greedy(seen: Observed, buckets: Mapping[int, Bucket]) -> list[int]:
    """The rules that explain clearly more of what is left than chance does, one after the other."""
    left = dict(buckets)
    taken: list[int] = []
    rules = [i for i, r in enumerate(seen.rules) if i < len(RULES) or r.partitions > 1]
    while left and len(taken) < _MAX_WRITERS:
        records = sum(b.total for b in left.values())
        pairs = sum(b.pairs for b in left.values())
        gains = {i: sum(b.total for mask, b in left.items() if mask >> i & 1) for i in rules if i not in taken}
        # Over chance, as a rule at a small count agrees often without having been used.
        bit = max(gains, key=lambda i: (gains[i] / records - 1 / seen.rules[i].partitions, -i))
        explained_pairs = sum(b.pairs for mask, b in left.items() if mask >> bit & 1)
        # Both by records and by pairs: one hot key that happens to agree is not a writer.
        chance = 1 / seen.rules[bit].partitions
        chance += _OVER_CHANCE * (1 - chance)
        enough = pairs >= _PAIRS or not taken
        if not enough or gains[bit] < chance * records or explained_pairs < chance * pairs:
            break
        taken.append(bit)
        left = {mask: b for mask, b in left.items() if not mask >> bit & 1}
    return taken


def _came_first(seen: Observed, bit: int, others: Sequence[int], *, clearly: bool = False) -> bool:
    """Whether what only ``bit`` explains was written before there was anything that only ``others`` explain.

    The two may meet in one time slice; ``clearly``: but most records lie before or after it.
    """
    known = sum(1 << other for other in others)
    old = _per_slice(b for mask, b in seen.buckets.items() if mask >> bit & 1 and not mask & known)
    new = _per_slice(b for mask, b in seen.buckets.items() if mask & known and not mask >> bit & 1)
    return any(
        sum(old[s + 1 :]) <= MAX_UNEXPLAINED * sum(old)
        and sum(new[:s]) <= MAX_UNEXPLAINED * sum(new)
        and (not clearly or 2 * (sum(old[:s]) + sum(new[s + 1 :])) > sum(old) + sum(new))
        for s in range(min(len(old), len(new)))
    )


def _per_slice(buckets: Iterable[Bucket]) -> list[int]:
    """Records of each time slice in all of these buckets."""
    return [sum(column) for column in zip(*(b.per_slice for b in buckets), strict=True)]


def _slices(buckets: Sequence[Bucket]) -> tuple[int, int]:
    """First and last time slice with records of these."""
    filled = [s for s, n in enumerate(_per_slice(buckets)) if n]
    return (filled[0], filled[-1]) if filled else (0, 0)


def _slices_of_largest(seen: Observed, bit: int) -> tuple[int, int]:
    """First and last slice in which the largest writer shows: in the others it explains no more than chance does."""
    mine = [b for mask, b in seen.buckets.items() if mask >> bit & 1]
    chance = 1 / seen.rules[bit].partitions
    clear = chance + _OVER_CHANCE / 2 * (1 - chance)

    whole = _per_slice(seen.buckets.values())
    shown = [s for s, n in enumerate(_per_slice(mine)) if n > clear * whole[s]]
    return (shown[0], shown[-1]) if shown else _slices(mine)


def _same_as(seen: Observed, best: int) -> list[str]:
    """Rules that agree with the best one on every pair."""
    return [
        seen.rules[i].name
        for i in range(len(RULES))
        if i != best and all((mask >> i & 1) == (mask >> best & 1) for mask in seen.buckets)
    ]


def _rule_share(seen: Observed, bit: int, share: Interval, pairs: int) -> RuleShare:
    rule = RULE[seen.rules[bit].name]
    mine = [b for mask, b in seen.buckets.items() if mask >> bit & 1]
    whole = _per_slice(seen.buckets.values())
    hits = _per_slice(mine) or [0] * len(whole)
    by_slice = [hit / n if n else None for hit, n in zip(hits, whole, strict=True)]
    explained_pairs = sum(b.pairs for b in mine)
    return RuleShare(
        name=rule.name,
        hash=rule.hash,
        sign=rule.sign,
        clients=list(rule.clients),
        **figure("records_share", share, whole=seen.fraction >= 1),
        keys_share=explained_pairs / pairs,
        by_slice=by_slice,
    )


def earlier_counts(
    hashes: KeyHashes, lies_in: NDArray[Any], weights: NDArray[Any], partitions: int, names: Sequence[str]
) -> list[RuleAt]:
    """Other partition counts under which a rule explains pairs that ``names[0]`` does not explain now.

    Args:
        hashes: hashes of the keys of a random sample of pairs.
        lies_in: int[n], the partition each pair lies in.
        weights: int[n], its records.
        partitions: the source's count; Kafka only ever adds partitions, so only smaller ones are tried. One partition
            is named where most of what is left lies in partition 0: whether that is so by time, the signatures tell.
        names: the rules to try; of those that explain as much the first one is taken.
    """
    import numpy as np

    if not len(lies_in) or partitions < 2:
        return []
    found: list[RuleAt] = []
    rest = hashes.place(RULE[names[0]], partitions) != lies_in
    for _ in range(MAX_EARLIER):
        n = int(rest.sum())
        if n < _PAIRS:
            break
        where, weight = lies_in[rest], weights[rest].astype(np.float64)
        whole = weight.sum()
        best: tuple[float, int, RuleAt] | None = None
        for name in names:
            for count in range(max(2, int(where.min()) + 1), partitions):
                hit = hashes.place(RULE[name], count)[rest] == where
                chance = 1 / count
                need = chance + _OVER_CHANCE * (1 - chance)
                gain = float(weight[hit].sum() / whole)
                # With so many rules and counts some agrees with a few pairs far more often than it should.
                many = n * chance + _DEVIATIONS * math.sqrt(n * chance * (1 - chance))
                if gain < need or hit.sum() < max(need * n, many):
                    continue
                lead = gain - chance
                if best is None or (lead, count) > best[:2]:
                    best = (lead, count, RuleAt(name, count))
        if best is None:
            if RuleAt(names[0], 1) in found or 2 * weight[where == 0].sum() <= whole:
                break
            best = (0.0, 1, RuleAt(names[0], 1))
        found.append(best[2])
        rest = rest & (hashes.place(RULE[best[2].name], best[2].partitions) != lies_in)
    return found


def names_to_try(explained: Sequence[int], records: int, partitions: int) -> list[str]:
    """The rules to look for at other counts, from what each explains today: the best one first if it is clearly more
    than chance, then in order of how common they are."""
    best = max(range(len(RULES)), key=lambda i: (explained[i], -i))
    clear = explained[best] >= (1 / partitions + _OVER_CHANCE * (1 - 1 / partitions)) * records
    names = [rule.name for rule in RULES]
    return list(dict.fromkeys([names[best], *names])) if clear else names


STICKY_BYTES = 16_384
"""Java's producer goes on to another partition after ``batch.size`` bytes; this is its default."""


def chances(records_by_slice: Sequence[int], size: int, slice_ms: int) -> int:
    """How often a sticky producer has chosen a partition anew for these records without a key, at least.

    Such producers keep to one partition for a while: librdkafka for ``sticky.partitioning.linger.ms`` (10 ms), Java
    until ``batch.size`` bytes went there, however long that takes. So a time slice (where it is longer than a second)
    and 16 KiB each count as one choice, and the smaller number of the two is taken.
    """
    filled = sum(1 for n in records_by_slice if n)
    return min(filled if slice_ms >= 1000 else min(filled, 1), 1 + size // STICKY_BYTES)


def sure_of_one(partitions: int, chosen: int) -> bool:
    """Whether records that lie in one partition do so by a rule: by chance less often than once in 1000."""
    return partitions > 1 and float(partitions) ** -max(0, chosen - 1) < 0.001


def spread(counts: Sequence[int], expected: int | None, tolerance: float = 0.0) -> str:
    """Where records of one key (the empty one, or none) lie: ``none``, ``hashed``, ``one_partition`` or ``spread``.

    ``counts`` are records per partition, ``expected`` the partition that the topic's rule gives such a key. A share of
    up to ``tolerance`` may lie elsewhere.
    """
    if not any(counts):
        return "none"
    fullest = max(range(len(counts)), key=lambda p: counts[p])
    if sum(counts) - counts[fullest] > tolerance * sum(counts):
        return "spread"
    return "hashed" if fullest == expected else "one_partition"
