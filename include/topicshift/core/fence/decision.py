"""The fence: from which observations it follows that nobody writes to the source any more.

Pure: a series of samples goes in, a verdict with its reasons comes out. The order to stop proves nothing; what
counts is what Kafka shows. A fence holds when, over at least ``settle_s`` seconds and in at least ``samples``
consecutive samples, *all* of this is true of every sample:

* every partition of the topic could be read, and END_U of each is the same in all of them;
* END_C = END_U on every partition, and no coordinator or partition leader shows an open transaction: a commit
  marker moves END_U by one more, even after ``commit_transaction()`` has returned;
* no producer that a leader remembers moved its sequence or last timestamp. Presence proves nothing, since leaders
  remember an idle producer for a day (``producer.id.expiration.ms``), and absence proves nothing, since a producer
  without idempotence is not remembered at all; END_U that stays still is the judge for those;
* every participant says that it is stopped, and the DENY bindings that belong to the fence are in force.

The settle time is measured from the end of the first of these samples to the beginning of the last, so a record
that arrived while a sample was being read falls between two END_U values that would differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.kafka.cluster import Acl, ActiveProducer, PartitionOffsets, Transaction

_CLEANUP_MS = 10_000
"""The brokers' ``transaction.abort.timed.out.transaction.cleanup.interval.ms``: how late a time-out is acted on."""


class FenceVerdict(StrEnum):
    """What the series shows. Only ``fenced`` lets anything go on; ``broken`` never turns into ``fenced``."""

    FENCED = "fenced"
    NOT_YET = "not_yet"
    BROKEN = "broken"
    UNKNOWN = "unknown"


class FenceSettings(Model):
    """How long and how often to look. Times in seconds."""

    settle_s: float = Field(default=0.5, gt=0, le=600)
    samples: int = Field(default=2, ge=2, le=100)
    max_transaction_timeout_s: float = Field(default=900.0, gt=0)
    """The brokers' ``transaction.max.timeout.ms``: how long a transaction that no coordinator shows is waited for."""


UNDER_DENY_S = 0.2
"""Settle time where the brokers refuse writes, in seconds: a client's next try of a batch is refused as well."""


def settings_of(denied: Collection[Acl]) -> FenceSettings:
    """How long to look, given the fence's DENY bindings: longer without any, where still ends are the only guard."""
    return FenceSettings(settle_s=UNDER_DENY_S) if denied else FenceSettings()


@dataclass(frozen=True)
class Stop:
    """What a producer's controller says of it: ``status`` running, stopped or unknown."""

    name: str
    status: str
    reason: str = ""


@dataclass(frozen=True)
class FenceSample:
    """One look at the source. ``began`` and ``ended`` are seconds of one clock; a None stands for *could not be read*.

    ``errors`` says why, by what was asked (``offsets``, ``producers``, ...). ``topic_id`` is None, with ``gone`` true,
    when the brokers say that the topic does not exist. ``deny_missing`` are DENY bindings of the fence not in force.
    """

    began: float
    ended: float
    topic_id: str | None
    offsets: Mapping[int, PartitionOffsets] | None
    producers: tuple[ActiveProducer, ...] | None
    transactions: tuple[Transaction, ...] | None
    stops: tuple[Stop, ...] | None
    deny_missing: tuple[Acl, ...] | None = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    gone: bool = False


class Straggler(Model):
    """Somebody who still writes. ``producer_id`` is None where Kafka keeps no trace of the producer."""

    partition: int
    records: int
    """Offsets that END_U moved by over the samples looked at (records and transaction markers)."""
    rate_per_s: float | None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    last_sequence: int | None = None
    last_timestamp_ms: int | None = None

    def line(self, topic: str) -> str:
        """One line for a person."""
        rate = "" if self.rate_per_s is None else f", {self.rate_per_s:,.1f}/s"
        if self.producer_id is None:
            who = "a producer that Kafka keeps no id of (no idempotence), or not readable"
        else:
            who = f"producer id {self.producer_id}, epoch {self.producer_epoch}"
            if self.transactional_id is not None:
                who += f", transactional id {self.transactional_id}"
            if self.last_sequence is not None and self.last_sequence >= 0:
                who += f", last sequence {self.last_sequence}"
        return f"{topic}[{self.partition}] grew by {self.records}{rate}: {who}"


class OpenTransaction(Model):
    """A transaction that holds END_C below END_U, or is known to a coordinator.

    ``ends_by_ms`` is when Kafka itself ends it at the latest (start, plus its time-out, plus the coordinator's
    clean-up interval), in ms since the epoch. ``hanging``: that moment has passed, so nobody will end it.
    """

    partition: int
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: str | None
    state: str | None
    start_offset: int | None
    started_ms: int | None
    ends_by_ms: int | None
    hanging: bool
    last_sequence: int | None = None
    last_timestamp_ms: int | None = None

    def line(self, topic: str, now_ms: int) -> str:
        """One line for a person, with the way to end it where nobody else will."""
        who = f"producer id {self.producer_id}, epoch {self.producer_epoch}"
        who += f", transactional id {self.transactional_id}" if self.transactional_id else ", no coordinator shows it"
        text = f"open transaction on {topic}[{self.partition}] ({who}"
        text += f", begins at offset {self.start_offset})" if self.start_offset is not None else ")"
        if self.hanging:
            where = f"--partition {self.partition} --start-offset {self.start_offset}"
            return text + (
                f"; it is past its time-out and hangs: nobody will end it by itself. A person may abort it: "
                f"kafka-transactions.sh abort --topic {topic} {where}. Its records are then lost to committed readers."
                if self.start_offset is not None
                else "; it is past its time-out. Look at its application."
            )
        if self.ends_by_ms is None:
            return text + "; when Kafka ends it cannot be told."
        return text + f"; Kafka ends it by itself in at most {max(0, self.ends_by_ms - now_ms) / 1000:.0f} s"


class Wait(Model):
    """Why it is not fenced yet: the signal, what was observed, what is wanted."""

    signal: str
    observed: str
    wanted: str

    def line(self) -> str:
        """One line for a log."""
        return f"{self.signal}: {self.observed}; wanted: {self.wanted}"


class FenceDecision(Model):
    """The verdict over a series. ``fence_offsets`` (END_U by partition) is set only when ``fenced``.

    ``settled_at`` is the moment, in seconds of the samples' clock, from which one more equal sample is enough; None
    where something else is waited for.
    """

    verdict: FenceVerdict
    fence_offsets: dict[int, int] | None = None
    settled_at: float | None = None
    reasons: list[str] = Field(default_factory=list)
    stragglers: list[Straggler] = Field(default_factory=list)
    transactions: list[OpenTransaction] = Field(default_factory=list)
    waits_for: list[Wait] = Field(default_factory=list)


def decide_fence(
    series: Sequence[FenceSample],
    settings: FenceSettings,
    *,
    topic: str,
    topic_id: str,
    partitions: int,
    now_ms: int,
) -> FenceDecision:
    """What a series of samples (oldest first) shows about the topic with this id and partition count.

    ``now_ms`` (ms since the epoch) only tells how long open transactions may still take.
    """
    if not series:
        return FenceDecision(
            verdict=FenceVerdict.UNKNOWN,
            waits_for=[Wait(signal="samples", observed="none yet", wanted=f"{settings.samples}")],
        )
    broken = _broken(series, topic, topic_id, partitions)
    if broken:
        return FenceDecision(verdict=FenceVerdict.BROKEN, reasons=broken)
    last = series[-1]
    unread = _unread(last, partitions)
    waits = [Wait(signal=what, observed=f"cannot be read: {why}", wanted="an answer") for what, why in unread]
    stragglers = find_stragglers(series, settings)
    open_transactions = find_open_transactions(last, settings, now_ms)
    waits += _unmet(last, topic, open_transactions, now_ms)
    tail, settled_at = settled_tail(series, partitions), None
    if not waits:
        span = max(0.0, last.began - tail[0].ended) if tail else 0.0
        if len(tail) >= settings.samples and span >= settings.settle_s:
            offsets = {p: o.end for p, o in sorted((last.offsets or {}).items()) if o.end is not None}
            return FenceDecision(verdict=FenceVerdict.FENCED, fence_offsets=offsets)
        settled_at = tail[0].ended + settings.settle_s if len(tail) >= settings.samples - 1 and tail else None
        waits.append(
            Wait(
                signal="END_U stays still",
                observed=f"the same in {len(tail)} samples over {span:.2f} s",
                wanted=f"{settings.samples} samples over {settings.settle_s:g} s",
            )
        )
    verdict = FenceVerdict.UNKNOWN if unread else FenceVerdict.NOT_YET
    return FenceDecision(
        verdict=verdict,
        settled_at=settled_at,
        reasons=[s.line(topic) for s in stragglers] + [w.line() for w in waits],
        stragglers=stragglers,
        transactions=open_transactions,
        waits_for=waits,
    )


def _broken(series: Sequence[FenceSample], topic: str, topic_id: str, partitions: int) -> list[str]:
    reasons: list[str] = []
    before: dict[int, int] = {}
    for sample in series:
        if sample.gone:
            reasons.append(f"topic {topic} does not exist any more")
        elif sample.topic_id is not None and sample.topic_id != topic_id:
            reasons.append(f"topic {topic} was deleted and made again: its id is {sample.topic_id}, and was {topic_id}")
        if sample.offsets is not None and set(sample.offsets) - set(range(partitions)):
            reasons.append(f"topic {topic} has {len(sample.offsets)} partitions now, and had {partitions}")
        for partition, offsets in sorted((sample.offsets or {}).items()):
            if offsets.end is None:
                continue
            if offsets.end < before.get(partition, 0):
                reasons.append(
                    f"{topic}[{partition}] lost records: its end went back from {before[partition]} to {offsets.end} "
                    "(an unclean leader election does that)"
                )
            before[partition] = offsets.end
    return list(dict.fromkeys(reasons))


def _unread(sample: FenceSample, partitions: int) -> list[tuple[str, str]]:
    """What this sample does not know, each with why."""
    out: list[tuple[str, str]] = []

    def missing(what: str) -> None:
        out.append((what, sample.errors.get(what, "no answer")))

    if sample.topic_id is None:
        missing("topic")
    if sample.offsets is None:
        missing("offsets")
    else:
        for p in range(partitions):
            entry = sample.offsets.get(p)
            if entry is None:
                out.append((f"partition {p}", "it is missing in the answer"))
            elif entry.error or entry.end is None or entry.end_committed is None:
                out.append((f"partition {p}", entry.error or "its end is missing in the answer"))
    for what, value in (
        ("producers", sample.producers),
        ("transactions", sample.transactions),
        ("participants", sample.stops),
        ("acls", sample.deny_missing),
    ):
        if value is None:
            missing(what)
    for stop in sample.stops or ():
        if stop.status not in ("running", "stopped"):
            out.append((f"producer {stop.name}", stop.reason or "its controller cannot tell"))
    return out


def _unmet(sample: FenceSample, topic: str, transactions: Sequence[OpenTransaction], now_ms: int) -> list[Wait]:
    """What this sample shows that keeps it from being a still one."""
    waits = [
        Wait(signal=f"producer {s.name}", observed=f"running{f' ({s.reason})' if s.reason else ''}", wanted="stopped")
        for s in sample.stops or ()
        if s.status == "running"
    ]
    waits += [
        Wait(signal="DENY", observed=f"{a.permission} {a.operation} for {a.principal} not in force", wanted="in force")
        for a in sample.deny_missing or ()
    ]
    waits += [
        Wait(signal="transactions", observed=t.line(topic, now_ms), wanted="no open transaction") for t in transactions
    ]
    named = {t.partition for t in transactions}
    waits += [
        Wait(
            signal=f"{topic}[{p}]",
            observed=f"END_C {o.end_committed} below END_U {o.end}: an open transaction that no coordinator shows",
            wanted="END_C = END_U",
        )
        for p, o in sorted((sample.offsets or {}).items())
        if o.end is not None and o.end_committed is not None and o.end_committed != o.end and p not in named
    ]
    return waits


def _still(sample: FenceSample, partitions: int) -> bool:
    if _unread(sample, partitions) or sample.gone or sample.deny_missing:
        return False
    assert sample.offsets is not None and sample.stops is not None
    return (
        all(o.end == o.end_committed for o in sample.offsets.values())
        and not sample.transactions
        and all(p.txn_start_offset is None for p in sample.producers or ())
        and all(s.status == "stopped" for s in sample.stops)
    )


def _ends(sample: FenceSample) -> dict[int, int | None]:
    return {p: o.end for p, o in (sample.offsets or {}).items()}


def _traces(sample: FenceSample) -> dict[tuple[int, int], ActiveProducer]:
    return {(p.partition, p.producer_id): p for p in sample.producers or ()}


def _moved(old: FenceSample, new: FenceSample) -> list[ActiveProducer]:
    """Producers that wrote between two samples, as far as the leaders' memory tells (an expired one did not)."""
    before = _traces(old)
    return [
        p
        for key, p in sorted(_traces(new).items())
        if (was := before.get(key)) is None
        or (was.producer_epoch, was.last_sequence, was.last_timestamp_ms)
        != (p.producer_epoch, p.last_sequence, p.last_timestamp_ms)
    ]


def settled_tail(series: Sequence[FenceSample], partitions: int) -> list[FenceSample]:
    """The longest run of still and equal samples at the end of the series."""
    tail: list[FenceSample] = []
    for sample in reversed(series):
        if not _still(sample, partitions):
            break
        if tail and (_ends(sample) != _ends(tail[-1]) or _moved(sample, tail[-1])):
            break
        tail.append(sample)
    return tail[::-1]


def find_stragglers(series: Sequence[FenceSample], settings: FenceSettings) -> list[Straggler]:
    """Who wrote over the last settle time (at least the last two samples), by partition, as well as Kafka allows."""
    readable = [s for s in series if s.offsets is not None]
    if len(readable) < 2:
        return []
    last = readable[-1]
    first = next((s for s in readable[:-1] if last.began - s.ended <= 2 * settings.settle_s), readable[-2])
    return name_growth(
        {p: e for p, e in _ends(first).items() if e is not None},
        last,
        seconds=last.ended - first.ended,
        known=first.producers,
    )


def name_growth(
    before: Mapping[int, int],
    now: FenceSample,
    *,
    seconds: float | None,
    known: Iterable[ActiveProducer] | None,
) -> list[Straggler]:
    """For each partition that grew since ``before``: by how much, at what rate, and by which producers.

    ``known`` are the producers at the time of ``before``; those that moved since are named. None means that they
    could not be read, and then nobody is accused.
    """
    was = {(p.partition, p.producer_id): p for p in known or ()}
    ids = {t.producer_id: t.transactional_id for t in now.transactions or ()}
    out: list[Straggler] = []
    for partition, end in sorted(before.items()):
        seen = (now.offsets or {}).get(partition)
        if seen is None or seen.end is None or seen.end <= end:
            continue
        grown = seen.end - end
        rate = grown / seconds if seconds else None
        movers = [
            p
            for p in now.producers or ()
            if known is not None
            and p.partition == partition
            and (
                (old := was.get((partition, p.producer_id))) is None
                or (old.producer_epoch, old.last_sequence, old.last_timestamp_ms)
                != (p.producer_epoch, p.last_sequence, p.last_timestamp_ms)
            )
        ]
        out += [
            Straggler(
                partition=partition,
                records=grown,
                rate_per_s=rate,
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                transactional_id=ids.get(p.producer_id),
                last_sequence=p.last_sequence,
                last_timestamp_ms=p.last_timestamp_ms,
            )
            for p in movers
        ] or [Straggler(partition=partition, records=grown, rate_per_s=rate)]
    return out


def find_open_transactions(sample: FenceSample, settings: FenceSettings, now_ms: int) -> list[OpenTransaction]:
    """Every open transaction of a sample: what the leaders hold open, joined with what the coordinators know.

    One that a leader holds open and no coordinator shows is either hidden by missing rights or hanging (its
    coordinator ended or forgot it; KIP-664): it is called hanging once the longest time-out that brokers allow has
    passed since its last record.
    """
    by_id = {t.producer_id: t for t in sample.transactions or ()}
    out: list[OpenTransaction] = []
    seen: set[tuple[int, int]] = set()
    for p in sample.producers or ():
        if p.txn_start_offset is None:
            continue
        t = by_id.get(p.producer_id)
        known = t is not None and p.partition in t.partitions
        if known and t is not None:
            ends = _ends_by(t)
        else:
            ends = p.last_timestamp_ms + int(settings.max_transaction_timeout_s * 1000) + _CLEANUP_MS
        seen.add((p.partition, p.producer_id))
        out.append(
            OpenTransaction(
                partition=p.partition,
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                transactional_id=t.transactional_id if t is not None else None,
                state=t.state if t is not None else None,
                start_offset=p.txn_start_offset,
                started_ms=t.started_ms if t is not None else None,
                ends_by_ms=ends,
                hanging=ends is not None and now_ms > ends,
                last_sequence=p.last_sequence,
                last_timestamp_ms=p.last_timestamp_ms,
            )
        )
    for t in sample.transactions or ():
        ends = _ends_by(t)
        out += [
            OpenTransaction(
                partition=p,
                producer_id=t.producer_id,
                producer_epoch=t.producer_epoch,
                transactional_id=t.transactional_id,
                state=t.state,
                start_offset=None,
                started_ms=t.started_ms,
                ends_by_ms=ends,
                hanging=ends is not None and now_ms > ends,
            )
            for p in t.partitions
            if (p, t.producer_id) not in seen
        ]
    return sorted(out, key=lambda t: (t.partition, t.producer_id or 0))


def _ends_by(t: Transaction) -> int | None:
    if t.started_ms is None or t.timeout_ms is None:
        return None
    return t.started_ms + t.timeout_ms + _CLEANUP_MS
