"""The drain verified by reading: what to read for a certificate, and what the counts mean. Pure.

``drain_verification`` takes a drain certificate, asks the broker afresh for the offsets of the source, reads what is
in doubt with Spark, and decides with the very rules of :mod:`topicshift.core.drain.decision`. The JSON of
:class:`DrainVerification` is a public contract (``drain_verification.json``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field

from topicshift.core.base import Model
from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence, PartitionEvidence, Verdict
from topicshift.core.drain.decision import Doubt, GroupView, Snapshot, Tail, TailRange, certify
from topicshift.core.drain.reasons import Reason, explain, tagged
from topicshift.core.fence.point import FenceOffsets
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift.core.kafka.partitions import listed

SCHEMA = "topicshift/drain-verification/v1"


class Answer(StrEnum):
    """What the verification says. Only ``verified`` lets a run go on."""

    VERIFIED = "verified"
    NOT_DRAINED = "not_drained"
    UNKNOWN = "unknown"
    FENCE_BROKEN = "fence_broken"
    ABORTED = "aborted"


class VerifiedPartition(Model):
    """One group on one partition.

    ``from`` and ``to`` bound the offsets in doubt, [from, to), read with read_committed; both null where there was
    nothing to read. ``records_left`` counts the readable records there, null where it could not be counted;
    ``first_unread_offset`` is the offset of the first of them. ``reason`` is a code of
    :mod:`topicshift.core.drain.reasons`.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    partition: int
    start: int | None = Field(alias="from")
    stop: int | None = Field(alias="to")
    committed: int | None
    records_left: int | None
    first_unread_offset: int | None
    verdict: Verdict
    reason: str


class VerifiedGroup(Model):
    """One group over every partition of the source."""

    group: str
    verdict: Verdict
    partitions: list[VerifiedPartition]


class DrainVerification(Model):
    """The whole result. Times are ISO 8601, UTC; ``seconds`` is what the answer took from the question on.

    ``end_offsets`` is END_U per partition after the reading, null where it could not be asked. ``records_read`` and
    ``offsets_read`` say how much was read, each offset once whatever the number of groups. ``question`` is the
    SHA-256 of the file that asked, so that an answer is never taken for that to another question.
    """

    schema_: str = Field(default=SCHEMA, alias="schema")
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    verdict: Answer
    reason: str | None = None
    """One sentence for a person where the verdict is not ``verified``."""
    taken_at: str
    topic: str
    topic_id: str | None
    fence_offsets: FenceOffsets | None
    end_offsets: dict[int, int | None]
    groups: list[VerifiedGroup]
    reasons: list[str] = Field(default=[])
    """Codes that concern the topic as a whole, as in the certificate."""
    records_read: int = 0
    offsets_read: int = 0
    seconds: float = 0.0
    question: str | None = None
    certificate_taken_at: str | None = None
    reader: Literal["spark", "task"] = "spark"
    """Who read: the armed Spark job, or, where that had ended, the task that advanced the migration."""

    @property
    def exit_code(self) -> int:
        """As ``topicshift drain`` ends: 0 verified; 3 not drained, or grown after the fence; 4 unknown, called off."""
        if self.verdict is Answer.VERIFIED:
            return 0
        if self.verdict is Answer.FENCE_BROKEN:
            # A log that ends below its fence, or a topic made again, says nothing of what was read.
            return 4 if Verdict.worst([g.verdict for g in self.groups]) is Verdict.UNKNOWN else 3
        return 3 if self.verdict is Answer.NOT_DRAINED else 4


@dataclass(frozen=True)
class ReadPlan:
    """What to read of one partition: [starts[0], stop), cut at each further start. ``starts`` ascend below ``stop``."""

    partition: int
    starts: tuple[int, ...]
    stop: int


@dataclass(frozen=True)
class Segment:
    """What was found from one start of a :class:`ReadPlan` up to the next: records and the offset of the first."""

    records: int
    first: int


def same_topic_id(one: str | None, other: str | None) -> bool:
    """Whether two spellings name one topic id: clients differ in the last two base64 letters and in padding."""
    if one is None or other is None:
        return one is other
    return plain_topic_id(one) == plain_topic_id(other)


def plain_topic_id(topic_id: str) -> str:
    """The spelling of Kafka's own tools (``-`` and ``_``, no padding)."""
    return topic_id.replace("+", "-").replace("/", "_").rstrip("=")


# Codes of a certificate that neither reading nor fresh offsets can change: they are carried over.
_OF_THE_GROUP = {
    Reason.GROUP_NOT_FOUND.value: Reason.GROUP_NOT_FOUND,
    Reason.GROUP_UNREADABLE.value: Reason.GROUP_UNREADABLE,
    Reason.EVIDENCE_OUTDATED.value: Reason.EVIDENCE_OUTDATED,
}
_LOST = {r.value for r in (Reason.LOST_UNREAD, Reason.LOST_AND_UNREAD, Reason.LOST_ACCEPTED)}


def _view(group: GroupEvidence) -> GroupView:
    """The group as the certificate saw it, in the words of the drain decision."""
    codes = {row.partition: row.reason for row in group.partitions}
    problem = next((_OF_THE_GROUP[c] for c in codes.values() if c in _OF_THE_GROUP), None)
    unread = {p for p, c in codes.items() if c in (Reason.COMMIT_UNREADABLE, Reason.EVIDENCE_MISSING)}
    return GroupView(
        group=group.group,
        kind=group.kind,
        state=group.state,
        committed={row.partition: row.committed for row in group.partitions if row.partition not in unread},
        errors={p: codes[p] for p in unread},
        unstable=frozenset(p for p, c in codes.items() if c == Reason.PENDING_COMMIT),
        problem=problem,
        attested=Reason.ATTESTED in codes.values(),
        evidence=Reason.EVIDENCE_MISSING in codes.values(),
    )


def snapshot_of(
    certificate: DrainCertificate,
    *,
    topic_id: str | None,
    partitions: int,
    offsets: Mapping[int, PartitionOffsets],
    now: datetime,
) -> Snapshot:
    """The certificate's groups and fence over the offsets that the broker gives now.

    Without a fence in the certificate the ends of now are the goal. ``topic_id`` None: the topic is not there.
    """
    remade = any(explain(entry)[0] is Reason.TOPIC_REMADE for entry in certificate.reasons)
    undeclared, ignored = [], {}
    listing_complete = None
    for entry in certificate.reasons:
        reason, subject, _ = explain(entry)
        if reason is Reason.UNDECLARED_GROUP:
            undeclared.append(subject)
        elif reason is Reason.IGNORED_GROUP:
            ignored[subject] = "as in the certificate"
        elif reason is Reason.LISTING_INCOMPLETE:
            listing_complete = False
    wanted_id = None if certificate.topic_id is None else plain_topic_id(certificate.topic_id)
    return Snapshot(
        topic=certificate.topic,
        topic_id=None if topic_id is None else plain_topic_id(topic_id),
        partitions=partitions,
        offsets=offsets,
        groups=[_view(g) for g in certificate.groups],
        taken_at=now,
        fence=certificate.fence_offsets,
        # The id that such a certificate names is the new topic's; that of the fence is not in it.
        fence_topic_id="" if remade else wanted_id,
        accepted_lost=frozenset(
            g.group for g in certificate.groups if any(r.reason == Reason.LOST_ACCEPTED for r in g.partitions)
        ),
        known_lost=frozenset(
            (g.group, r.partition) for g in certificate.groups for r in g.partitions if r.reason in _LOST
        ),
        undeclared=frozenset(undeclared),
        ignored=ignored,
        listing_complete=listing_complete,
    )


def read_plans(doubts: Iterable[Doubt]) -> dict[int, ReadPlan]:
    """Merge what is in doubt, so that each offset is read once for all groups.

    All ranges of a partition end at the same offset (fence or last stable offset), so their union is one range, cut
    where the groups' commits lie. Raises ``ValueError`` if they do not.
    """
    starts: dict[int, set[int]] = {}
    stops: dict[int, int] = {}
    for doubt in doubts:
        if stops.setdefault(doubt.partition, doubt.end) != doubt.end:
            raise ValueError(f"ranges of partition {doubt.partition} end at different offsets")
        starts.setdefault(doubt.partition, set()).add(doubt.start)
    return {p: ReadPlan(p, tuple(sorted(starts[p])), stops[p]) for p in sorted(starts)}


def tails_of(plans: Mapping[int, ReadPlan], found: Mapping[tuple[int, int], Segment]) -> dict[TailRange, Tail]:
    """What each group's reader would find, from the segments that were counted (those without records left out).

    ``found`` is keyed by partition and index into ``starts``; the records from one start on are those of its segment
    and of all later ones.
    """
    tails: dict[TailRange, Tail] = {}
    for plan in plans.values():
        left = 0
        for index in range(len(plan.starts) - 1, -1, -1):
            segment = found.get((plan.partition, index))
            left += segment.records if segment is not None else 0
            tails[TailRange(plan.partition, plan.starts[index], plan.stop)] = Tail(
                found=left > 0, complete=True, records=left
            )
    return tails


def unreadable_tails(plans: Mapping[int, ReadPlan], error: str) -> dict[TailRange, Tail]:
    """The tails of a read that failed: nothing is known of any of them."""
    return {
        TailRange(plan.partition, start, plan.stop): Tail(found=False, complete=False, error=error)
        for plan in plans.values()
        for start in plan.starts
    }


def first_unread(plan: ReadPlan, found: Mapping[tuple[int, int], Segment], start: int) -> int | None:
    """The offset of the first readable record from ``start`` on, None if there is none."""
    for index in range(bisect_left(plan.starts, start), len(plan.starts)):
        segment = found.get((plan.partition, index))
        if segment is not None and segment.records:
            return segment.first
    return None


def with_later_ends(before: Snapshot, topic_id: str | None, after: Mapping[int, PartitionOffsets]) -> Snapshot:
    """The snapshot with the ends and the topic id as they are after the reading: a write meanwhile shows.

    A partition that cannot be asked any more is unreadable, whatever was known of it before.
    """
    merged: dict[int, PartitionOffsets] = {}
    for partition, seen in before.offsets.items():
        later = after.get(partition)
        if later is None or later.error is not None or later.end is None:
            error = later.error if later is not None and later.error else "not answered after the reading"
            merged[partition] = PartitionOffsets(seen.log_start, seen.end_committed, None, error)
        else:
            # A log that has shrunk must not be held up by what it was before.
            start, stable = (None if o is None else min(o, later.end) for o in (seen.log_start, seen.end_committed))
            merged[partition] = PartitionOffsets(start, stable, later.end, seen.error)
    return replace(before, topic_id=None if topic_id is None else plain_topic_id(topic_id), offsets=merged)


_BROKEN = {Reason.SOURCE_GREW.value, Reason.END_BELOW_FENCE.value, Reason.TOPIC_REMADE.value}


def decide(  # noqa: PLR0913 - what was read, and what the result says of it
    snapshot: Snapshot,
    doubts: Iterable[Doubt],
    plans: Mapping[int, ReadPlan],
    found: Mapping[tuple[int, int], Segment],
    *,
    error: str | None = None,
    seconds: float = 0.0,
    question: str | None = None,
    certificate_taken_at: str | None = None,
) -> DrainVerification:
    """The result, by the rules of :func:`topicshift.core.drain.decision.certify`.

    ``doubts`` and ``plans`` are those that were read, ``snapshot`` holds the ends after it
    (:func:`with_later_ends`). ``error`` says why the reading failed: then nothing in doubt is verified.
    """
    tails = tails_of(plans, found) if error is None else unreadable_tails(plans, error)
    certificate = certify(replace(snapshot, tails=tails))
    ranges = {(d.group, d.partition): d for d in doubts}
    groups = []
    for group in certificate.groups:
        rows = [_row(r, ranges.get((group.group, r.partition)), plans, found) for r in group.partitions]
        groups.append(VerifiedGroup(group=group.group, verdict=group.verdict, partitions=rows))
    answer, reason = _answer(certificate, error)
    return DrainVerification(
        verdict=answer,
        reason=reason,
        taken_at=certificate.taken_at,
        topic=certificate.topic,
        topic_id=certificate.topic_id,
        fence_offsets=certificate.fence_offsets,
        end_offsets={p: snapshot.offsets[p].end for p in sorted(snapshot.offsets)},
        groups=groups,
        reasons=certificate.reasons,
        records_read=sum(s.records for s in found.values()),
        offsets_read=sum(plan.stop - plan.starts[0] for plan in plans.values()) if error is None else 0,
        seconds=seconds,
        question=question,
        certificate_taken_at=certificate_taken_at,
    )


def _row(
    row: PartitionEvidence,
    doubt: Doubt | None,
    plans: Mapping[int, ReadPlan],
    found: Mapping[tuple[int, int], Segment],
) -> VerifiedPartition:
    first = None
    if doubt is not None and row.partition in plans:
        first = first_unread(plans[row.partition], found, doubt.start)
    return VerifiedPartition(
        partition=row.partition,
        start=doubt.start if doubt is not None else None,
        stop=doubt.end if doubt is not None else None,
        committed=row.committed,
        records_left=row.records_left,
        first_unread_offset=first,
        verdict=row.verdict,
        reason=row.reason,
    )


def _answer(certificate: DrainCertificate, error: str | None) -> tuple[Answer, str | None]:
    broken = sorted({(r.partition, r.reason) for g in certificate.groups for r in g.partitions if r.reason in _BROKEN})
    if broken or tagged(Reason.TOPIC_REMADE) in certificate.reasons:
        which = sorted({p for p, _ in broken})
        code = Reason(broken[0][1]) if broken else Reason.TOPIC_REMADE
        _, _, text = explain(code.value)
        return Answer.FENCE_BROKEN, f"Partitions {listed(which)}: {text.meaning} {text.remedy}"
    if error is not None:
        return Answer.UNKNOWN, f"The source could not be read: {error}"
    if certificate.verdict is Verdict.DRAINED:
        return Answer.VERIFIED, None
    said = [e for e in certificate.reasons if explain(e)[2].verdict is certificate.verdict]
    for group in certificate.groups:
        bad = [r for r in group.partitions if r.verdict is certificate.verdict]
        if bad:
            said.append(f"group {group.group}: {bad[0].reason} on partitions {listed([r.partition for r in bad])}")
    answer = Answer.NOT_DRAINED if certificate.verdict is Verdict.NOT_DRAINED else Answer.UNKNOWN
    return answer, "; ".join(said[:5]) + (f"; and {len(said) - 5} more" if len(said) > 5 else "")


def no_answer(
    verdict: Answer,
    reason: str,
    *,
    topic: str,
    now: datetime,
    certificate: DrainCertificate | None = None,
    question: str | None = None,
    seconds: float = 0.0,
) -> DrainVerification:
    """The result of a verification that was called off, ran out of time, or could not begin."""
    return DrainVerification(
        verdict=verdict,
        reason=reason,
        taken_at=now.isoformat(),
        topic=topic,
        topic_id=certificate.topic_id if certificate is not None else None,
        fence_offsets=certificate.fence_offsets if certificate is not None else None,
        end_offsets={},
        groups=[],
        seconds=seconds,
        question=question,
        certificate_taken_at=certificate.taken_at if certificate is not None else None,
    )
