"""Progress of a drain: lag, rate, time left and how sure, what holds it up, and when to raise an alarm. Pure.

A :class:`Tracker` is fed one certificate after the other. Its memory is bounded: per group a short series of total lags
(thinned as it grows), per open partition one rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence, PartitionEvidence, Verdict
from topicshift.core.drain.reasons import ALARMS, REASONS, Alarm, Reason
from topicshift.core.series import thinned

SERIES_POINTS = 240
_WINDOW_S = 60.0
_HALF_LIFE_S = 10.0
_SLOWEST = 5
_REBALANCING = frozenset(
    {"PREPARING_REBALANCING", "COMPLETING_REBALANCING", "PREPARING_REBALANCE", "COMPLETING_REBALANCE"}
    | {"PREPARINGREBALANCE", "COMPLETINGREBALANCE", "ASSIGNING", "RECONCILING", "NOT_READY", "NOTREADY"}
)
_BY_PERSON = frozenset(
    {Reason.LOST_UNREAD, Reason.NEVER_COMMITTED_EXPIRED, Reason.COMMITTED_BEYOND_END, Reason.GROUP_NOT_FOUND}
    | {Reason.TOPIC_REMADE, Reason.END_BELOW_FENCE, Reason.FENCE_INCOMPLETE, Reason.SOURCE_GREW}
)
_BY_TRANSACTION = frozenset({Reason.OPEN_TRANSACTION, Reason.PENDING_COMMIT})


@dataclass(frozen=True)
class Estimate:
    """Seconds until nothing is left. ``low`` and ``high`` bound it; ``sure``: high, medium, low, none.

    Least-squares slope of the lag over the last minute; low and high are the slope plus and minus two standard errors
    (the usual formula of simple linear regression). ``high`` and ``seconds`` are None where the lag does not shrink.
    """

    seconds: float | None
    low: float | None
    high: float | None
    sure: str


@dataclass(frozen=True)
class Advice:
    """One reason code of a group, its partitions, and what to do."""

    reason: str
    partitions: tuple[int, ...]
    meaning: str
    remedy: str


@dataclass(frozen=True)
class SlowPartition:
    """A partition with something left: its lag in offsets, its rate in offsets per second, seconds left."""

    partition: int
    lag: int
    rate: float
    seconds: float | None


@dataclass(frozen=True)
class GroupProgress:
    """One group at one sample. ``lag`` in offsets (None if not known), ``rate`` is how fast it shrinks per second.

    ``stalled_s``: how long it has not come nearer. ``series``: (seconds since the epoch, lag), oldest first.
    """

    group: str
    kind: str
    state: str
    verdict: Verdict
    lag: int | None
    rate: float
    left: Estimate
    slowest: tuple[SlowPartition, ...]
    advice: tuple[Advice, ...]
    stalled_s: float
    alarm: Alarm | None
    alarm_text: str
    series: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class DrainProgress:
    """All groups at one sample, the certificate they come from, and the time left of the slowest group."""

    certificate: DrainCertificate
    at: float
    groups: tuple[GroupProgress, ...]

    @property
    def alarms(self) -> tuple[GroupProgress, ...]:
        """The groups that are stuck."""
        return tuple(g for g in self.groups if g.alarm is not None)

    def line(self) -> str:
        """One line for a log: every group that is not drained, its lag and time left."""
        waiting = [g for g in self.groups if g.verdict is not Verdict.DRAINED]
        if not waiting:
            return "every group has drained the topic"
        parts = []
        for g in waiting:
            lag = "?" if g.lag is None else str(g.lag)
            left = "" if g.left.seconds is None else f", about {g.left.seconds:.0f} s left"
            parts.append(f"{g.group}: {lag} to go{left}" + (f" [{g.alarm.value}]" if g.alarm else ""))
        return "; ".join(parts)


def row_lag(row: PartitionEvidence) -> int | None:
    """What is left of one partition in offsets: the counted records if there are any, else end minus commit."""
    if row.verdict is Verdict.DRAINED:
        return 0
    if row.records_left is not None and row.records_left > 0:
        return row.records_left
    if row.end is None or row.log_start is None:
        return None
    if row.committed is None:
        return row.end - row.log_start if row.reason == Reason.NEVER_COMMITTED else None
    return max(0, row.end - max(row.committed, row.log_start))


def estimate(series: Sequence[tuple[float, int]]) -> Estimate:
    """Time left from a series of (seconds, lag). See :class:`Estimate` for the formula."""
    if series and series[-1][1] == 0:
        return Estimate(0.0, 0.0, 0.0, "high")
    recent = [p for p in series if p[0] >= series[-1][0] - _WINDOW_S] if series else []
    if len(recent) < 3 or recent[-1][0] <= recent[0][0]:
        return Estimate(None, None, None, "none")
    n = len(recent)
    mean_t = sum(t for t, _ in recent) / n
    mean_l = sum(lag for _, lag in recent) / n
    sxx = sum((t - mean_t) ** 2 for t, _ in recent)
    slope = sum((t - mean_t) * (lag - mean_l) for t, lag in recent) / sxx
    residual = sum((lag - mean_l - slope * (t - mean_t)) ** 2 for t, lag in recent)
    error = 2.0 * math.sqrt(residual / (n - 2) / sxx)
    lag = recent[-1][1]
    if slope >= 0:
        return Estimate(None, lag / (error - slope) if error > slope else None, None, "none")
    low, rate, high = -slope + error, -slope, -slope - error
    share = error / rate
    sure = "high" if share < 0.2 else "medium" if share < 0.5 else "low"
    return Estimate(lag / rate, lag / low, lag / high if high > 0 else None, sure)


@dataclass
class _Partition:
    lag: int
    committed: int | None
    at: float
    moved_at: float
    rate: float = 0.0
    """How fast the lag shrinks."""
    reading: float = 0.0
    """How fast the commit moves."""
    looks: int = 1


@dataclass
class _Group:
    first_at: float
    best: int | None = None
    nearer_at: float = 0.0
    series: list[tuple[float, int]] = field(default_factory=list)
    states: list[tuple[float, bool]] = field(default_factory=list)
    partitions: dict[int, _Partition] = field(default_factory=dict)


class Tracker:
    """Turns certificates into progress. ``stuck_after_s``: an alarm when a group has not come nearer for so long."""

    def __init__(self, *, stuck_after_s: float = 60.0) -> None:
        self._stuck_after = stuck_after_s
        self._groups: dict[str, _Group] = {}

    def add(self, certificate: DrainCertificate, at: float, members: Mapping[str, int] | None = None) -> DrainProgress:
        """Take one certificate, seen at ``at`` (seconds since the epoch). ``members``: group -> number of members."""
        known = members or {}
        rows = tuple(self._group(g, at, known.get(g.group)) for g in certificate.groups)
        for gone in set(self._groups) - {g.group for g in certificate.groups}:
            del self._groups[gone]
        return DrainProgress(certificate, at, rows)

    def _group(self, evidence: GroupEvidence, at: float, members: int | None) -> GroupProgress:
        mine = self._groups.setdefault(evidence.group, _Group(first_at=at, nearer_at=at))
        lags = {row.partition: row_lag(row) for row in evidence.partitions}
        lag = None if not lags or None in lags.values() else sum(v for v in lags.values() if v is not None)
        if lag is not None:
            if mine.best is None or lag < mine.best:
                mine.best, mine.nearer_at = lag, at
            mine.series.append((at, lag))
            mine.series = thinned(mine.series, SERIES_POINTS)
        mine.states = [s for s in mine.states if s[0] >= at - max(self._stuck_after, _WINDOW_S)][-SERIES_POINTS:]
        mine.states.append((at, evidence.state in _REBALANCING))
        for row in evidence.partitions:
            self._partition(mine, row, lags[row.partition], at)
        stalled = 0.0 if evidence.verdict is Verdict.DRAINED else at - mine.nearer_at
        alarm, text = (None, "")
        if stalled >= self._stuck_after:
            alarm, text = self._alarm(evidence, mine, members, at)
        left = estimate(mine.series) if lag is not None else Estimate(None, None, None, "none")
        open_ = [(p, s) for p, s in mine.partitions.items() if s.lag > 0]
        slow = sorted(
            (SlowPartition(p, s.lag, s.rate, s.lag / s.rate if s.rate > 1e-9 else None) for p, s in open_),
            key=lambda s: (-(s.seconds if s.seconds is not None else math.inf), -s.lag, s.partition),
        )[:_SLOWEST]
        return GroupProgress(
            group=evidence.group,
            kind=evidence.kind,
            state=evidence.state,
            verdict=evidence.verdict,
            lag=lag,
            rate=_slope(mine.series),
            left=left,
            slowest=tuple(slow),
            advice=advice(evidence),
            stalled_s=stalled,
            alarm=alarm,
            alarm_text=text,
            series=tuple(mine.series),
        )

    @staticmethod
    def _partition(mine: _Group, row: PartitionEvidence, lag: int | None, at: float) -> None:
        if lag is None or lag == 0:
            mine.partitions.pop(row.partition, None)
            return
        old = mine.partitions.get(row.partition)
        if old is None:
            mine.partitions[row.partition] = _Partition(lag, row.committed, at, at)
            return
        span = at - old.at
        if span > 0:
            keep = 0.0 if old.looks == 1 else 0.5 ** (span / _HALF_LIFE_S)
            old.looks += 1
            old.rate = keep * old.rate + (1 - keep) * (old.lag - lag) / span
            read = (row.committed or 0) - (old.committed or 0)
            old.reading = keep * old.reading + (1 - keep) * read / span
        if row.committed != old.committed:
            old.moved_at = at
        old.lag, old.committed, old.at = lag, row.committed, at

    def _alarm(self, evidence: GroupEvidence, mine: _Group, members: int | None, at: float) -> tuple[Alarm, str]:
        """Why a group is stuck: the first that fits, from what reading cannot change to what it only slows."""
        open_rows = [r for r in evidence.partitions if r.verdict is not Verdict.DRAINED]
        codes = {Reason(r.reason) for r in open_rows}
        where = f"{evidence.group} has not come nearer for {at - mine.nearer_at:.0f} s"
        if codes and codes <= _BY_PERSON:
            return Alarm.DECISION_WAITED_FOR, f"{where}: {', '.join(sorted(codes))}. " + _do(Alarm.DECISION_WAITED_FOR)
        if codes and codes <= _BY_TRANSACTION | _BY_PERSON:
            return Alarm.TRANSACTION_PENDING, f"{where}: {', '.join(sorted(codes))}. " + _do(Alarm.TRANSACTION_PENDING)
        if any(REASONS[c].verdict is Verdict.UNKNOWN for c in codes):
            return Alarm.CANNOT_READ, f"{where}: {', '.join(sorted(codes))}. " + _do(Alarm.CANNOT_READ)
        rebalancing = [r for _, r in mine.states]
        if sum(rebalancing) * 2 >= len(rebalancing) > 1:
            share = f"it was rebalancing in {sum(rebalancing)} of {len(rebalancing)} samples"
            return Alarm.REBALANCE_LOOP, f"{where}: {share}. " + _do(Alarm.REBALANCE_LOOP)
        open_ = mine.partitions
        still = {p: s for p, s in open_.items() if at - s.moved_at >= self._stuck_after}
        if members == 0 and len(still) == len(open_) and evidence.state != "SELF_ASSIGNING":
            return Alarm.NO_MEMBERS, f"{where}: state {evidence.state}, no members. " + _do(Alarm.NO_MEMBERS)
        if still:
            p, s = max(still.items(), key=lambda i: i[1].lag)
            at_offset = "nothing committed" if s.committed is None else f"the commit stands at offset {s.committed}"
            said = f"partition {p}: {at_offset}, {s.lag} to go"
            more = f" (and {len(still) - 1} more partitions)" if len(still) > 1 else ""
            return Alarm.POISON_RECORD, f"{where}: {said}{more}. " + _do(Alarm.POISON_RECORD)
        total = sum(s.lag for s in open_.values())
        if open_ and len(evidence.partitions) > 1:
            p, s = max(open_.items(), key=lambda i: i[1].lag)
            if s.lag > max(0.5, 2 / len(evidence.partitions)) * total or len(open_) == 1:
                said = f"partition {p} holds {s.lag} of {total} left"
                return Alarm.HOT_PARTITION, f"{where}: {said}. " + _do(Alarm.HOT_PARTITION)
        rate = sum(s.reading for s in open_.values())
        return Alarm.TOO_SLOW, f"{where}: it reads about {rate:.0f} offsets/s. " + _do(Alarm.TOO_SLOW)


def _do(alarm: Alarm) -> str:
    return ALARMS[alarm].remedy


def _slope(series: Sequence[tuple[float, int]]) -> float:
    """How many offsets a second the lag shrank by over the last minute (end points)."""
    recent = [p for p in series if p[0] >= series[-1][0] - _WINDOW_S] if series else []
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return 0.0
    return (recent[0][1] - recent[-1][1]) / (recent[-1][0] - recent[0][0])


def advice(evidence: GroupEvidence) -> tuple[Advice, ...]:
    """Each reason code of a group that is not a plain yes, with its partitions and its remedy."""
    codes: dict[str, list[int]] = {}
    for row in evidence.partitions:
        if row.verdict is not Verdict.DRAINED:
            codes.setdefault(row.reason, []).append(row.partition)
    return tuple(
        Advice(code, tuple(ps), REASONS[Reason(code)].meaning, REASONS[Reason(code)].remedy)
        for code, ps in sorted(codes.items())
    )
