"""How many partitions: the formula, sensible multiples, bounds, skew; pure arithmetic over given or measured rates.

Formula (the field's usual one): with T the wanted records/s, Cp what one consumer and Pp what one producer does per
partition, ``raw = max(T / Cp, T / Pp)``; the count is at least ``ceil(raw * (1 + headroom))``. A safety factor f is a
headroom of ``f - 1``. Above that minimum a count is preferred that

* is a multiple of Flink's source parallelism (every subtask gets the same number of splits),
* is a multiple of the source's count N (``M = k * N`` gives every new partition exactly one parent),
* is a multiple of the brokers (an even spread of leaders),

weighed against the partitions added for it. Where none of these is known, a count with many divisors (24, 30, 36, ...)
is preferred, as it shares out evenly later. Bounds: ``2 * brokers * cores``, ``MAX_REPLICAS_PER_BROKER`` replicas of
one topic on one broker, replicas against brokers, open files, one consumer's rate for the hottest partition. A bound
for which a number is missing is named in ``unchecked``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.drain.advice import Advice, batches, client_advice, polls
from topicshift.core.impact.partitioning import expected_same_index, parents_of
from topicshift.core.impact.skew import useful_partitions

SWEET_SPOT = (12, 50)
MANY = 500
"""Above this many partitions a topic costs noticeable file handles, elections and replication lag."""
MOST = 100_000
"""Kafka's client (librdkafka) creates no topic with more partitions than this."""
TOO_MANY = f"Kafka's client creates no topic with more than {MOST:,} partitions."
MAX_REPLICAS_PER_BROKER = 500
"""Replicas of one topic that one broker should hold at most."""
FILES_PER_SEGMENT = 3
"""Open files a replica needs for each segment kept: log, offset index, time index."""

OPEN_FILES = 1024
"""Linux's usual limit of open files; a broker needs a far higher one."""

USUAL_REPLICAS = 3
"""Taken where the replication factor is not known (fewer where there are fewer brokers)."""

CORES_UNKNOWN = "2 x brokers x cores: the cores of a broker are not known."

_WEIGHTS = {"flink": 4.0, "source": 3.0, "brokers": 2.0}
_COST_OF_DOUBLING = 4.0
_ROUND = (4, 6, 8, 12, 18, 24, 30, 36, 48, 60, 72, 90, 120, 180, 240, 360, 480, 720, 960, 1440, 2880, 5040)
"""Counts with many divisors: they share out evenly over most numbers of brokers and consumers."""


class SizingInput(Model):
    """What the count is worked out from. Rates are records per second; None means not known."""

    throughput: float = Field(gt=0)
    per_consumer: float = Field(gt=0)
    per_partition: float | None = Field(default=None, gt=0)
    headroom: float = Field(default=0.25, ge=0)
    multiple_of: int | None = Field(default=None, ge=1)
    source_partitions: int | None = Field(default=None, ge=1)
    brokers: int | None = Field(default=None, ge=1)
    cores_per_broker: int | None = Field(default=None, ge=1)
    replication_factor: int | None = Field(default=None, ge=1)
    flink_parallelism: int | None = Field(default=None, ge=1)
    skew: dict[int, float] = Field(default={})
    """Largest share of the keyed records in one partition, per count (``candidates`` of impact.json)."""
    hottest_key_share: float | None = Field(default=None, ge=0, le=1)
    record_bytes: float | None = Field(default=None, gt=0)
    """Mean size of a record, key and value."""


class CountFacts(Model):
    """One count, seen from every side. Shares are fractions of 1."""

    partitions: int
    spare: float
    """Capacity above T as a share: 0.5 says that the topic could take 1.5 T."""
    parents_max: int | None
    same_index_share: float | None
    even_over_brokers: bool | None
    multiple_of_flink: bool | None
    replicas_per_broker: int | None
    open_files_per_broker: int | None
    max_partition_share: float | None
    share_measured: bool = False
    """Whether that share was measured for this very count, or estimated from the counts beside it."""
    hottest_partition_rate: float | None
    """Records/s of the hottest partition at T; above Cp one consumer cannot follow it."""
    problems: list[str] = Field(default=[])
    score: float


class SizingResult(Model):
    """The recommendation with its reasons, the runner-up, and what was weighed."""

    consumer_bound: float
    producer_bound: float | None
    raw: float
    minimum: int
    recommended: int
    runner_up: int | None
    reasons: list[str]
    warnings: list[str]
    unchecked: list[str] = Field(default=[])
    """Bounds that could not be checked, each with what is missing: that a count meets them is not said."""
    counts: list[CountFacts]
    useful_max: int | None
    """Beyond this count the hottest key alone fills more than an even share: more partitions do not help it."""
    advice: list[Advice]


def share_at(count: int, skew: Mapping[int, float], hottest_key: float | None = None) -> float | None:
    """The hottest partition's share under a count: measured, or estimated from the measured counts beside it.

    Between two of them the share is taken as linear in 1/count, below the smallest one as inversely proportional to
    the count, above the largest one as no better than there (or than the hottest key allows). None without a curve.
    """
    if count in skew:
        return skew[count]
    below = max((c for c in skew if c < count), default=None)
    above = min((c for c in skew if c > count), default=None)
    if below is not None and above is not None:
        part = (1 / below - 1 / count) / (1 / below - 1 / above)
        return skew[below] + part * (skew[above] - skew[below])
    if above is not None:
        return min(1.0, skew[above] * above / count)
    return max(skew[below], hottest_key or 0.0) if below is not None else None


def bounds_problems(count: int, *, brokers: int | None, cores: int | None, replication: int) -> list[str]:
    """Why the brokers should not hold this many partitions; empty when they may."""
    out = []
    if brokers and cores and count > 2 * brokers * cores:
        out.append(f"{count} is above 2 x {brokers} brokers x {cores} cores = {2 * brokers * cores}")
    if brokers:
        each = math.ceil(count * min(replication, brokers) / brokers)
        if each > MAX_REPLICAS_PER_BROKER:
            out.append(
                f"{count} partitions x {min(replication, brokers)} replicas on {brokers} "
                f"broker{'' if brokers == 1 else 's'} are {each} each, above {MAX_REPLICAS_PER_BROKER}"
            )
    return out


def least(rates: SizingInput) -> int:
    """The smallest count that carries the rates. Raises ``ValueError`` where it is more than :data:`MOST`."""
    raw = max(rates.throughput / rates.per_consumer, rates.throughput / (rates.per_partition or math.inf))
    wanted = raw * (1 + rates.headroom)
    if wanted <= MOST:
        minimum = max(1, _ceil(wanted))
        if math.ceil(minimum / (rates.multiple_of or 1)) * (rates.multiple_of or 1) <= MOST:
            return minimum
    multiple = f", a multiple of {rates.multiple_of}" if rates.multiple_of else ""
    raise ValueError(
        f"{wanted:,.0f} partitions{multiple} would be needed. {TOO_MANY} Check the rates: "
        f"{rates.throughput:g} records/s wanted, {rates.per_consumer:g} per consumer"
    )


def recommend(given: SizingInput) -> SizingResult:
    """Work out the count. Same input, same output.

    Raises ``ValueError`` when the rates ask for more partitions than :data:`MOST`.
    """
    consumer = given.throughput / given.per_consumer
    producer = given.throughput / given.per_partition if given.per_partition else None
    raw = max(consumer, producer or 0.0)
    minimum = least(given)
    counts = [_facts(c, given, raw, minimum) for c in _candidates(minimum, given)]
    ranked = sorted(counts, key=lambda f: (bool(f.problems), -f.score, f.partitions))
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    if given.source_partitions and minimum <= given.source_partitions and not given.multiple_of:
        # What is there is enough: a migration to fewer partitions is a person's decision, never the formula's. Only
        # a bound that the source breaks and a larger count keeps is a reason to leave it.
        source = next(f for f in counts if f.partitions == given.source_partitions)
        if not source.problems or best.problems or best.partitions < source.partitions:
            second = best if best.partitions != source.partitions else second
            best = source
    useful = useful_partitions(given.hottest_key_share)
    return SizingResult(
        consumer_bound=consumer,
        producer_bound=producer,
        raw=raw,
        minimum=minimum,
        recommended=best.partitions,
        runner_up=second.partitions if second else None,
        reasons=_reasons(best, second, given, raw, minimum),
        warnings=_warnings(best, given, minimum, useful),
        unchecked=_unchecked(given),
        counts=sorted({f.partitions: f for f in (best, *ranked[:8])}.values(), key=lambda f: f.partitions),
        useful_max=useful,
        advice=advise(given, best.partitions),
    )


def _ceil(value: float) -> int:
    """Ceiling that does not turn 20.000000000000004 into 21."""
    return math.ceil(round(value, 9))


def _candidates(minimum: int, given: SizingInput) -> list[int]:
    """The minimum and the next multiples of whatever makes a count sensible, up to about twice the minimum."""
    if given.multiple_of:
        first = math.ceil(minimum / given.multiple_of) * given.multiple_of
        return [first + i * given.multiple_of for i in range(4)]
    units = {u for u in (given.source_partitions, given.brokers, given.flink_parallelism) if u}
    units |= {math.lcm(a, b) for a in units for b in units}
    if len(units) > 2:
        units.add(math.lcm(*units))
    measured = {c for c in given.skew if minimum <= c <= 4 * max(minimum, given.source_partitions or 0)}
    out = measured | {minimum} | {r for r in _ROUND if minimum <= r <= 2 * minimum}
    if given.source_partitions and minimum <= given.source_partitions:
        out.add(given.source_partitions)
    for unit in units:
        first = math.ceil(minimum / unit) * unit
        out |= {first + i * unit for i in range(3) if first + i * unit <= max(2 * minimum, first)}
    return sorted(out)


def _facts(count: int, given: SizingInput, raw: float, minimum: int) -> CountFacts:
    n, brokers, flink = given.source_partitions, given.brokers, given.flink_parallelism
    replication = given.replication_factor or USUAL_REPLICAS
    replication = min(replication, brokers) if brokers else replication
    each = math.ceil(count * replication / brokers) if brokers else None
    share = share_at(count, given.skew, given.hottest_key_share)
    rate = share * given.throughput if share is not None else None
    fits = {
        "flink": flink is not None and count % flink == 0,
        "source": n is not None and count % n == 0,
        "brokers": brokers is not None and brokers > 1 and count % brokers == 0,
    }
    round_weight = 0.0 if given.multiple_of else 0.5 if n or flink or (brokers or 0) > 1 else 2.5
    score = (
        round_weight * (count in _ROUND)
        + sum(_WEIGHTS[k] for k, yes in fits.items() if yes)
        - _COST_OF_DOUBLING * (count - minimum) / minimum
    )
    problems = bounds_problems(count, brokers=brokers, cores=given.cores_per_broker, replication=replication)
    if rate is not None and rate > given.per_consumer * (1 + 1e-9):
        about = "" if count in given.skew else "about "
        problems.append(
            f"its hottest partition would get {about}{rate:,.0f} records/s, more than one consumer's "
            f"{given.per_consumer:,.0f}"
        )
    return CountFacts(
        partitions=count,
        spare=count / max(raw, 1e-9) - 1,
        parents_max=parents_of(n, count) if n else None,
        same_index_share=expected_same_index(n, count) if n else None,
        even_over_brokers=count % brokers == 0 if brokers else None,
        multiple_of_flink=count % flink == 0 if flink else None,
        replicas_per_broker=each,
        open_files_per_broker=each * FILES_PER_SEGMENT if each else None,
        max_partition_share=share,
        share_measured=count in given.skew,
        hottest_partition_rate=rate,
        problems=problems,
        score=round(score, 6),
    )


def _reasons(best: CountFacts, second: CountFacts | None, given: SizingInput, raw: float, minimum: int) -> list[str]:
    by = "one consumer" if not given.per_partition or given.per_consumer <= given.per_partition else "one producer"
    limit = given.per_consumer if by == "one consumer" else given.per_partition or given.per_consumer
    out = [
        f"{given.throughput:,.0f} records/s over {limit:,.0f} records/s that {by} does per partition is {raw:,.4g}; "
        f"with {given.headroom:.0%} headroom at least {minimum}."
    ]
    n = given.source_partitions
    if n == best.partitions:
        out.append(f"The source has {n} already.")
    elif n and best.partitions % n == 0 and best.partitions > n:
        out.append(
            f"{best.partitions} is {best.partitions // n} x the source's {n}: every new partition has one parent."
        )
    elif n and best.parents_max:
        out.append(f"A partition of {best.partitions} gathers keys of up to {best.parents_max} of the source's {n}.")
    elif best.partitions in _ROUND:
        out.append(
            f"{best.partitions} has many divisors: it shares out evenly over most numbers of consumers and brokers."
        )
    if best.even_over_brokers and given.brokers and given.brokers > 1:
        out.append(f"It spreads evenly over {given.brokers} brokers.")
    if best.multiple_of_flink:
        out.append(f"It is a multiple of Flink's parallelism {given.flink_parallelism}: each subtask gets as many.")
    if given.multiple_of:
        out.append(f"It is a multiple of {given.multiple_of}, as asked.")
    if best.max_partition_share is not None:
        about = "" if best.share_measured else "about "
        out.append(f"Its hottest partition would hold {about}{best.max_partition_share:.1%} of the keyed records.")
    if second:
        why = "; ".join(second.problems) or _against(second, best)
        out.append(f"Runner-up: {second.partitions} ({why}).")
    return out


def _against(second: CountFacts, best: CountFacts) -> str:
    if second.partitions > best.partitions:
        return f"{second.partitions - best.partitions} more partitions for the same need"
    lacks = []
    if best.parents_max == 1 and second.parents_max != 1:
        lacks.append("several parents for a partition")
    if best.even_over_brokers and not second.even_over_brokers:
        lacks.append("no even spread over the brokers")
    if best.multiple_of_flink and not second.multiple_of_flink:
        lacks.append("no multiple of Flink's parallelism")
    return ", ".join(lacks) or "less spare capacity"


def _warnings(best: CountFacts, given: SizingInput, minimum: int, useful: int | None) -> list[str]:
    out = [f"{p}." for p in best.problems]
    n = given.source_partitions
    if n and minimum <= n and not best.problems:
        out.append(
            f"The source's {n} partitions are enough for these rates: no migration is needed for them."
            if best.partitions <= n
            else f"The source's {n} partitions would be enough for these rates, were they evenly loaded."
        )
    if best.partitions > MANY:
        out.append(f"Over {MANY} partitions cost file handles, leader elections and replication lag.")
    elif best.partitions > SWEET_SPOT[1]:
        out.append(f"Above the usual {SWEET_SPOT[0]} to {SWEET_SPOT[1]}; see whether faster consumers would do.")
    if useful is not None and best.partitions > useful:
        out.append(
            f"The hottest key holds {given.hottest_key_share:.1%} of the records: beyond {useful} partitions more of "
            "them do not relieve its partition."
        )
    hot = (given.hottest_key_share or 0.0) * given.throughput
    if hot > given.per_consumer:
        out.append(
            f"The hottest key alone brings {hot:,.0f} records/s, more than one consumer's {given.per_consumer:,.0f}: "
            "no count helps it. Split the key, or speed up its consumer."
        )
    if given.brokers and (given.replication_factor or 1) > given.brokers:
        out.append(f"{given.replication_factor} replicas need as many brokers; there are {given.brokers}.")
    if (best.open_files_per_broker or 0) > OPEN_FILES:
        out.append(
            f"A broker opens at least {best.open_files_per_broker:,} files for this topic, {FILES_PER_SEGMENT} a "
            f"segment: see that its limit (ulimit -n) is far above {OPEN_FILES:,}."
        )
    if (given.replication_factor or 1) > USUAL_REPLICAS:
        out.append("More than 3 replicas cost bandwidth and disk for little more safety.")
    return out


def _unchecked(given: SizingInput) -> list[str]:
    """Bounds for which a number is missing."""
    out = []
    if given.brokers is None:
        out.append(
            "2 x brokers x cores, replicas and open files on a broker, replicas against brokers: the number of brokers "
            "is not known."
        )
    elif given.cores_per_broker is None:
        out.append(CORES_UNKNOWN)
    if given.brokers is not None and given.replication_factor is None:
        taken = min(USUAL_REPLICAS, given.brokers)
        out.append(
            f"Replicas against brokers: the replication factor is not known; {taken} is taken for the other bounds."
        )
    if not given.skew:
        out.append("The hottest partition and key against one consumer: the keys were not measured.")
    return out


def advise(given: SizingInput, count: int) -> list[Advice]:
    """Client settings that follow from the change of the count at the given rates."""
    out = client_advice(given.source_partitions, count)
    out += [polls(given.per_consumer), *batches(given.throughput, given.record_bytes, count)]
    busy = math.ceil(given.throughput / given.per_consumer)
    out.append(
        Advice(
            client="consumer",
            setting="instances",
            value=f"{busy} at the wanted rate, at most {count}",
            why="An instance beyond the number of partitions gets none and idles.",
        )
    )
    if given.flink_parallelism:
        out.append(
            Advice(
                client="flink",
                setting="source parallelism",
                value=str(given.flink_parallelism),
                why="Each partition is one more split for the checkpoint barrier; watch the checkpoint duration.",
            )
        )
    return out


# ------------------------------------------------------------------------------------------------ measured rates


class OffsetSample(Model):
    """Offsets of every partition at one moment (seconds on a monotonic clock). None where it was not read."""

    at: float
    ends: dict[int, int | None]
    commits: dict[int, int | None] = Field(default={})


class MeasuredRates(Model):
    """Rates over the samples; records per second.

    ``per_partition`` is the busiest partition's inflow. ``group_rate`` is the group's progress as a whole and
    ``per_consumer`` that of its busiest partition: a lower bound of Cp unless ``saturated`` (it had a backlog in
    every sample). Offsets count transaction markers too, which makes the rates of a transactional topic a bit high.
    """

    seconds: float
    throughput: float
    peak_throughput: float
    per_partition: dict[int, float]
    group_rate: float | None = None
    per_consumer: float | None = None
    saturated: bool | None = None
    unread: list[int] = Field(default=[])


def rates_from_samples(samples: Sequence[OffsetSample]) -> MeasuredRates:
    """Turn offsets over time into rates.

    A partition that any sample could not read is named in ``unread`` and counted nowhere. Raises ``ValueError`` for
    fewer than two samples, samples out of order, or when no partition could be read.
    """
    if len(samples) < 2 or any(b.at <= a.at for a, b in pairwise(samples)):
        raise ValueError("rates need at least two samples, each later than the one before")
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    everyone = sorted({p for s in samples for p in s.ends})
    read = [p for p in everyone if all(s.ends.get(p) is not None for s in samples)]
    if not read:
        raise ValueError("no partition's end offset could be read in every sample")

    def total(sample: OffsetSample) -> int:
        return sum(sample.ends[p] or 0 for p in read)

    group_rate = per_consumer = None
    saturated = None
    followed = [p for p in read if all(s.commits.get(p) is not None for s in samples)]
    if followed:
        moved = {p: (last.commits[p] or 0) - (first.commits[p] or 0) for p in followed}
        group_rate = max(0.0, sum(moved.values()) / seconds)
        per_consumer = max(0.0, max(moved.values()) / seconds)
        saturated = all(any((s.ends[p] or 0) > (s.commits[p] or 0) for p in followed) for s in samples)
    return MeasuredRates(
        seconds=seconds,
        throughput=max(0.0, (total(last) - total(first)) / seconds),
        peak_throughput=max(0.0, max((total(b) - total(a)) / (b.at - a.at) for a, b in pairwise(samples))),
        per_partition={p: max(0.0, ((last.ends[p] or 0) - (first.ends[p] or 0)) / seconds) for p in read},
        group_rate=group_rate,
        per_consumer=per_consumer,
        saturated=saturated,
        unread=[p for p in everyone if p not in read],
    )


def skew_from_impact(impact: Mapping[str, Any]) -> tuple[dict[int, float], float | None]:
    """The skew curve (count -> largest partition's share) and the hottest key's share out of impact.json.

    The source's own count is a point of the curve as well, as its keys lie today.
    """
    source = impact.get("source", {})
    points = [(source.get("partitions"), source.get("max_keyed_partition_share"))]
    points += [(c["partitions"], c["max_partition_share"]) for c in impact.get("candidates", []) if c.get("partitions")]
    curve = {int(count): float(share) for count, share in points if count and share is not None}
    shares = [float(k["share"]) for k in impact.get("top_keys", []) if k.get("share") is not None]
    return curve, max(shares, default=None)


def require_impact(impact: Mapping[str, Any]) -> None:
    """Raises ``ValueError`` where what sizing takes from an impact report is not what such a report holds."""
    try:
        curve, hottest = skew_from_impact(impact)
        size = record_bytes_from_impact(impact)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its candidates, source or top_keys are not those of a report ({error!r})") from None
    found = [*curve.values(), *([] if hottest is None else [hottest])]
    if any(count < 1 for count in curve) or not all(0 <= share <= 1 for share in found):
        raise ValueError("it holds a count below 1, or a share that is not between 0 and 1")
    if size is not None and not 0 < size < math.inf:
        raise ValueError("its records and bytes give no size of a record")


def record_bytes_from_impact(impact: Mapping[str, Any]) -> float | None:
    """The mean size of a record out of impact.json; None where there was none to read."""
    records, size = impact.get("records") or 0, impact.get("bytes") or 0
    return size / records if records and size else None
