"""The drain decision: from a snapshot of a topic and its groups to a certificate. Pure.

Rows are enumerated from the topic's partitions times the groups, never from what happens to be committed. Whatever is
missing or could not be read is ``unknown``. ``drained`` is answered only when the committed offset has reached the
fence, or when a read_committed reader went over everything between and found no record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence, PartitionEvidence, Unread, Verdict
from topicshift.core.drain.reasons import REASONS, Reason, explain, tagged
from topicshift.core.kafka.cluster import PartitionOffsets

DEFAULT_VALID_FOR_S = 60.0
"""How long a certificate holds: a run acts on it within this time, or takes a new one."""


@dataclass(frozen=True, order=True)
class TailRange:
    """Offsets [start, end) of one partition that have to be read, read_committed."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Tail:
    """What a read_committed reader found in one :class:`TailRange`.

    ``found``: a readable record was seen. ``records``: their exact number, None if it was not counted to the end.
    ``complete``: the reader passed the end of the range. ``error``: why it could not.
    """

    found: bool
    complete: bool
    records: int | None = None
    error: str | None = None


@dataclass(frozen=True, order=True)
class Doubt:
    """A group's range [start, end) on a partition in which arithmetic cannot tell whether a record lies."""

    group: str
    partition: int
    start: int
    end: int

    @property
    def range(self) -> TailRange:
        """The range without the group."""
        return TailRange(self.partition, self.start, self.end)


@dataclass(frozen=True)
class GroupView:
    """One group, or one declared reader that commits nothing, as it was seen.

    ``committed`` has an entry for every partition that was asked: an offset, or None for *never committed*. A
    partition without an entry was not read. ``moved``: partitions whose commit changed between two samples.
    ``problem``: a code that stands for all partitions (``group_not_found``, ``evidence_missing``, ...).
    ``attested``: a person's statement stands in for offsets. ``evidence`` is true for readers that commit nothing.
    """

    group: str
    kind: str = "classic"
    state: str = "STABLE"
    members: int = 0
    committed: Mapping[int, int | None] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    unstable: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    problem: Reason | None = None
    error: str | None = None
    attested: bool = False
    evidence: bool = False


@dataclass(frozen=True)
class Snapshot:
    """Everything the decision needs, at one moment.

    ``offsets`` should hold an entry for each of ``range(partitions)``; one that is missing counts as unreadable.
    ``fence`` is END_U of every partition at the fence, None to certify up to the end offsets just read;
    ``fence_topic_id`` the id the fence speaks of. ``accepted_lost``: groups whose lost records were accepted.
    ``known_lost``: (group, partition) seen with lost records earlier in this watch, when the commit has moved on since.
    ``undeclared``: groups that read the topic and that nobody declared; ``ignored``: left out, with the reason.
    ``listing_complete``: None where no listing was needed; ``why_incomplete`` says what is missing in it.
    """

    topic: str
    topic_id: str | None
    partitions: int
    offsets: Mapping[int, PartitionOffsets]
    groups: Sequence[GroupView]
    taken_at: datetime
    fence: Mapping[int, int] | None = None
    fence_topic_id: str | None = None
    tails: Mapping[TailRange, Tail] = field(default_factory=dict)
    accepted_lost: frozenset[str] = frozenset()
    known_lost: frozenset[tuple[str, int]] = frozenset()
    undeclared: frozenset[str] = frozenset()
    ignored: Mapping[str, str] = field(default_factory=dict)
    listing_complete: bool | None = None
    why_incomplete: str = ""


SELF_ASSIGNING = "SELF_ASSIGNING"
_LEFT_OUT = "the answer left it out"


class _Readable(Enum):
    NONE = auto()
    SOME = auto()
    NOT_READ = auto()
    FAILED = auto()
    UNFINISHED = auto()


@dataclass(frozen=True)
class _Log:
    """The offsets of one partition that hold together: start <= stable <= end, and the goal to be reached."""

    start: int
    stable: int
    end: int
    goal: int


def _log(snapshot: Snapshot, partition: int) -> _Log | Reason:
    """The partition's offsets, or the code that says why nothing can be said from them."""
    if _remade(snapshot):
        return Reason.TOPIC_REMADE
    seen = snapshot.offsets.get(partition)
    if seen is None or seen.error is not None:
        return Reason.PARTITION_UNREADABLE
    if seen.log_start is None or seen.end_committed is None or seen.end is None:
        return Reason.PARTITION_UNREADABLE
    # The three are read one after the other on a log that may grow: a later, higher answer is true as well.
    end = max(seen.end, seen.end_committed, seen.log_start)
    stable = max(seen.end_committed, seen.log_start)
    if snapshot.fence is None:
        return _Log(seen.log_start, stable, end, end)
    goal = snapshot.fence.get(partition)
    if goal is None:
        return Reason.FENCE_INCOMPLETE
    if end < goal:
        return Reason.END_BELOW_FENCE
    if end > goal:
        return Reason.SOURCE_GREW
    return _Log(seen.log_start, stable, end, goal)


def _remade(snapshot: Snapshot) -> bool:
    return snapshot.fence_topic_id is not None and snapshot.topic_id != snapshot.fence_topic_id


def _commit(group: GroupView, partition: int) -> int | Reason | None:
    """The committed offset, None for never committed, or the code that says why it is not known."""
    if group.problem is not None:
        return group.problem
    if group.error is not None:
        return Reason.EVIDENCE_MISSING if group.evidence else Reason.GROUP_UNREADABLE
    if partition in group.errors or partition not in group.committed:
        return Reason.EVIDENCE_MISSING if group.evidence else Reason.COMMIT_UNREADABLE
    if partition in group.unstable:
        return Reason.PENDING_COMMIT
    committed = group.committed[partition]
    if committed is None and group.evidence:
        return Reason.EVIDENCE_MISSING
    if committed is not None and committed < 0:
        return Reason.COMMIT_UNREADABLE
    return committed


def _doubt(log: _Log, committed: int | None) -> tuple[int, int] | None:
    """The range in which a record could lie unread, None if there is none. Offsets past the LSO cannot be read yet."""
    start = log.start if committed is None else max(committed, log.start)
    end = min(log.goal, log.stable)
    return (start, end) if start < end else None


def in_doubt(snapshot: Snapshot) -> list[Doubt]:
    """Where arithmetic cannot tell: a commit below the goal, with perhaps nothing but markers or holes between.

    Readers of the tails merge the ranges of one partition, so that each offset is read once for all groups.
    """
    doubts = []
    logs = {p: log for p in range(snapshot.partitions) if not isinstance(log := _log(snapshot, p), Reason)}
    for group in snapshot.groups:
        if group.attested or group.problem is not None or group.error is not None:
            continue
        for partition, log in logs.items():
            committed = _commit(group, partition)
            if isinstance(committed, Reason) or (committed is not None and committed >= log.goal):
                continue
            doubt = _doubt(log, committed)
            if doubt is not None:
                doubts.append(Doubt(group.group, partition, *doubt))
    return doubts


def _readable(snapshot: Snapshot, partition: int, doubt: tuple[int, int] | None) -> tuple[_Readable, int | None]:
    if doubt is None:
        return _Readable.NONE, 0
    tail = snapshot.tails.get(TailRange(partition, *doubt))
    if tail is None:
        return _Readable.NOT_READ, None
    if tail.found:
        return _Readable.SOME, tail.records if tail.complete and tail.records else None
    if tail.error is not None:
        return _Readable.FAILED, None
    if not tail.complete or (tail.records is not None and tail.records != 0):
        return _Readable.UNFINISHED, None
    return _Readable.NONE, 0


def _judge(snapshot: Snapshot, log: _Log | Reason, group: GroupView, partition: int) -> tuple[Reason, int | None]:  # noqa: C901 - the reasons in the order in which they win
    """The code of one group on one partition, and how many readable records are left where that was counted."""
    if isinstance(log, Reason):
        return log, None
    if group.attested and group.problem is None and group.error is None:
        return (Reason.OPEN_TRANSACTION if log.stable < log.goal else Reason.ATTESTED), None
    committed = _commit(group, partition)
    if isinstance(committed, Reason):
        return committed, None
    if committed is not None and committed > log.end:
        return Reason.COMMITTED_BEYOND_END, None
    readable, left = _readable(snapshot, partition, _doubt(log, committed))
    lost = log.start > 0 if committed is None else committed < log.start
    lost = lost or (committed is not None and (group.group, partition) in snapshot.known_lost)
    if readable is _Readable.FAILED:
        return Reason.TAIL_UNREADABLE, left
    if readable is _Readable.UNFINISHED:
        return Reason.TAIL_UNFINISHED, left
    if readable in (_Readable.SOME, _Readable.NOT_READ):
        if committed is None:
            return Reason.NEVER_COMMITTED, left
        if lost:
            return Reason.LOST_AND_UNREAD, left
        return (Reason.UNREAD if readable is _Readable.SOME else Reason.BEHIND), left
    if log.stable < log.goal:
        return Reason.OPEN_TRANSACTION, left
    if lost and group.group in snapshot.accepted_lost:
        return Reason.LOST_ACCEPTED, left
    if lost:
        return (Reason.NEVER_COMMITTED_EXPIRED if committed is None else Reason.LOST_UNREAD), left
    if committed is None and log.goal == 0:
        return Reason.EMPTY, left
    if committed is not None and committed >= log.goal:
        return Reason.AT_END, left
    return Reason.NOTHING_READABLE, left


def lost_now(snapshot: Snapshot) -> frozenset[tuple[str, int]]:
    """(group, partition) whose log start has passed the committed offset: records lost unread. To be remembered."""
    lost = set(snapshot.known_lost)
    for group in snapshot.groups:
        for partition, seen in snapshot.offsets.items():
            committed = group.committed.get(partition)
            if committed is not None and seen.log_start is not None and committed < seen.log_start:
                lost.add((group.group, partition))
    return frozenset(lost)


def _verdict(reason: Reason) -> Verdict:
    verdict = REASONS[reason].verdict
    return Verdict.UNKNOWN if verdict is None else verdict


_Row = tuple[int, int | None, Reason, int | None]


def _at_end(log: _Log | Reason, committed: int) -> bool:
    """Whether the commit stands exactly where everything ends: no doubt, no loss, no open transaction."""
    return not isinstance(log, Reason) and log.start <= committed == log.goal == log.stable == log.end


def _group_evidence(
    snapshot: Snapshot,
    logs: Mapping[int, _Log | Reason],
    group: GroupView,
    same: dict[_Row, PartitionEvidence],
) -> GroupEvidence:
    """The rows of one group. ``same``: rows that other groups have alike; thousands of drained groups share them."""
    rows = []
    known = group.problem is None and group.error is None and not group.attested
    special = group.errors.keys() | group.unstable | {p for g, p in snapshot.known_lost if g == group.group}
    for partition, log in logs.items():
        committed = group.committed.get(partition)
        if known and committed is not None and partition not in special and _at_end(log, committed):
            judged: tuple[Reason, int | None] = (Reason.AT_END, 0)  # nearly every row of a survey, as _judge has it
        else:
            judged = _judge(snapshot, log, group, partition)
        reason, left = judged
        key: _Row = (partition, committed, reason, left)
        row = same.get(key)
        if row is None:
            seen = snapshot.offsets.get(partition, PartitionOffsets(None, None, None))
            row = same[key] = PartitionEvidence(
                partition=partition,
                log_start=seen.log_start,
                committed=committed,
                end_committed=seen.end_committed,
                end=seen.end,
                records_left=left,
                verdict=_verdict(reason),
                reason=reason.value,
            )
        rows.append(row)
    return GroupEvidence(
        group=group.group,
        kind=group.kind,
        state=_state(group),
        verdict=Verdict.worst([r.verdict for r in rows]),
        partitions=rows,
    )


def _state(group: GroupView) -> str:
    """Commits that move without members are those of consumers that assign partitions themselves."""
    return SELF_ASSIGNING if group.members == 0 and group.moved and not group.evidence else group.state


def with_moves(
    certificate: DrainCertificate, snapshot: Snapshot, moved: Mapping[str, frozenset[int]]
) -> DrainCertificate:
    """The certificate of ``snapshot`` after a second look at some groups: commits that have moved name their state."""
    if not moved:
        return certificate
    seen = {g.group: replace(g, moved=g.moved | moved[g.group]) for g in snapshot.groups if g.group in moved}
    groups = [
        g.model_copy(update={"state": _state(seen[g.group])}) if g.group in seen else g for g in certificate.groups
    ]
    return certificate.model_copy(update={"groups": groups})


def topic_reasons(snapshot: Snapshot) -> list[str]:
    """The codes that concern the topic as a whole, each with its subject after a colon."""
    reasons = []
    if snapshot.topic_id is None or snapshot.partitions <= 0:
        reasons.append(tagged(Reason.TOPIC_NOT_FOUND))
    elif _remade(snapshot):
        reasons.append(tagged(Reason.TOPIC_REMADE))
    if snapshot.fence is not None:
        gone = [p for p in snapshot.fence if not 0 <= p < snapshot.partitions]
        if gone and snapshot.partitions > 0:
            reasons.append(tagged(Reason.FENCE_INCOMPLETE, ",".join(str(p) for p in sorted(gone))))
    if snapshot.listing_complete is False:
        reasons.append(tagged(Reason.LISTING_INCOMPLETE))
    if not snapshot.groups and tagged(Reason.TOPIC_NOT_FOUND) not in reasons:
        reasons.append(tagged(Reason.NO_GROUPS))
    reasons += [tagged(Reason.UNDECLARED_GROUP, g) for g in sorted(snapshot.undeclared)]
    reasons += [tagged(Reason.IGNORED_GROUP, g) for g in sorted(snapshot.ignored)]
    return reasons


def certify(
    snapshot: Snapshot, *, valid_for_s: float | None = DEFAULT_VALID_FOR_S, issued_by: str | None = None
) -> DrainCertificate:
    """The certificate of a snapshot: one row for each group and each partition of the topic.

    The verdict is the worst of all groups and of the topic-level reasons; without any group it is ``unknown``.
    ``issued_by`` names run and epoch.
    """
    logs = {p: _log(snapshot, p) for p in range(snapshot.partitions)}
    same: dict[_Row, PartitionEvidence] = {}
    groups = [_group_evidence(snapshot, logs, g, same) for g in sorted(snapshot.groups, key=lambda g: g.group)]
    reasons = topic_reasons(snapshot)
    verdicts = [g.verdict for g in groups]
    verdicts += [v for r in reasons if (v := explain(r)[2].verdict) is not None]
    return DrainCertificate(
        topic=snapshot.topic,
        topic_id=snapshot.topic_id,
        taken_at=snapshot.taken_at.isoformat(),
        fence_offsets=dict(snapshot.fence) if snapshot.fence is not None else None,
        verdict=Verdict.worst(verdicts),
        groups=groups,
        reasons=reasons,
        valid_for_s=valid_for_s,
        errors=unread(snapshot),
        ignored=dict(snapshot.ignored),
        issued_by=issued_by,
    )


def unread(snapshot: Snapshot) -> list[Unread]:
    """What could not be read, each reason once for a group (or for all) with the partitions that it concerns."""
    found: dict[tuple[str | None, str], list[int]] = {}
    if snapshot.why_incomplete:
        found[None, snapshot.why_incomplete] = []
    for p in range(snapshot.partitions):
        seen = snapshot.offsets.get(p)
        if seen is None or seen.error is not None or None in (seen.log_start, seen.end_committed, seen.end):
            found.setdefault((None, (seen and seen.error) or _LEFT_OUT), []).append(p)
    for tail, read in snapshot.tails.items():
        if read.error is not None:
            found.setdefault((None, read.error), []).append(tail.partition)
    for g in snapshot.groups:
        if g.error is not None:
            found.setdefault((g.group, g.error), [])
        asked = () if g.error is not None or g.problem is not None or g.attested else range(snapshot.partitions)
        for p in asked:
            if p in g.errors or p not in g.committed:
                found.setdefault((g.group, g.errors.get(p, _LEFT_OUT)), []).append(p)
    return [Unread(group=g, partitions=sorted(set(ps)), error=why) for (g, why), ps in found.items()]


_FORGOTTEN = frozenset({Reason.NEVER_COMMITTED, Reason.NEVER_COMMITTED_EXPIRED, Reason.GROUP_NOT_FOUND})


def forgotten(certificate: DrainCertificate) -> bool:
    """Whether nothing is in the way of a *drained* but missing commits of groups that have no members.

    The brokers forget the commits of a group that stands still (``offsets.retention.minutes``), in the end the group
    itself. That is how a group looks that has drained long ago, as well as one that has never read.
    """
    if any(explain(r)[2].verdict is not None for r in certificate.reasons):
        return False
    open_ = [(g, r) for g in certificate.groups for r in g.partitions if r.verdict is not Verdict.DRAINED]
    return bool(open_) and all(
        row.committed is None and row.reason in _FORGOTTEN and group.state in ("EMPTY", "DEAD") for group, row in open_
    )


def summary(certificate: DrainCertificate) -> dict[str, dict[str, list[int]]]:
    """Per group: reason code -> partitions, drained ones left out. What a log line or a terminal shows."""
    out: dict[str, dict[str, list[int]]] = {}
    for group in certificate.groups:
        codes: dict[str, list[int]] = defaultdict(list)
        for row in group.partitions:
            if row.verdict is not Verdict.DRAINED or row.reason in (Reason.LOST_ACCEPTED, Reason.ATTESTED):
                codes[row.reason].append(row.partition)
        out[group.group] = dict(codes)
    return out
