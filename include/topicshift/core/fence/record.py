"""What a fence leaves behind (``fence.json``), and the comparison with it just before each later act."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.fence.decision import FenceSample, FenceSettings, Straggler, name_growth
from topicshift.core.fence.point import FenceOffsets, FencePoint
from topicshift.core.kafka.cluster import Acl, ActiveProducer


class SampleEvidence(Model):
    """One sample that the proof rests on: seconds since the fence was begun, and END_U of each partition."""

    began_s: float
    ended_s: float
    ends: dict[int, int]


class FenceRecord(Model):
    """A proven fence; the public contract of ``fence.json``.

    ``acls_added`` are the DENY bindings that this fence made
    and its inverse removes, ``acls_before`` the bindings that concerned the source before. ``producers`` is what
    the partition leaders remembered at the fence: whoever moves from there has written since. Times ISO 8601, UTC.
    """

    topic: str
    topic_id: str
    partitions: int
    fence_offsets: FenceOffsets
    began_at: str
    taken_at: str
    settings: FenceSettings
    samples: list[SampleEvidence]
    acls_before: list[Acl]
    acls_added: list[Acl]
    exempt_principals: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    producers: list[ActiveProducer] = Field(default_factory=list)
    stopped: list[str] = Field(default_factory=list)
    """The participants that said so, by name."""

    @property
    def point(self) -> FencePoint:
        """The part of it that certificates and proofs speak of."""
        return FencePoint(
            topic=self.topic,
            topic_id=self.topic_id,
            taken_at=datetime.fromisoformat(self.taken_at),
            fence_offsets=self.fence_offsets,
        )

    @property
    def records(self) -> int:
        """The sum of the fence offsets."""
        return sum(self.fence_offsets.values())


class Broken(StrEnum):
    """Why a fence no longer holds. ``unreadable`` is not a break: it is unknown, and blocks as such."""

    GROWN = "grown"
    SHRUNK = "shrunk"
    TOPIC_ID = "topic_id"
    PARTITIONS = "partitions"
    GONE = "gone"
    UNREADABLE = "unreadable"


class Violation(Model):
    """One difference between the fence and now, with the text for a person."""

    kind: Broken
    text: str
    partition: int | None = None
    records: int | None = None
    rate_per_s: float | None = None
    producers: list[Straggler] = Field(default_factory=list)


def compare(record: FenceRecord, now: FenceSample, *, at: datetime) -> list[Violation]:
    """Every way in which the source differs from the fence; empty when it still holds.

    ``at`` is the time of ``now``, for the rate of a growth: records over the seconds since the fence was taken.
    Growth names partition, count, rate and the producers that moved since, where Kafka remembers them.
    """
    topic = record.topic
    if now.gone:
        return [Violation(kind=Broken.GONE, text=f"topic {topic} does not exist any more")]
    out: list[Violation] = []
    if now.topic_id is None:
        why = now.errors.get("topic", "no answer")
        out.append(Violation(kind=Broken.UNREADABLE, text=f"topic {topic} could not be described: {why}"))
    elif now.topic_id != record.topic_id:
        out.append(
            Violation(
                kind=Broken.TOPIC_ID,
                text=f"topic {topic} was deleted and made again (id {now.topic_id}, at the fence {record.topic_id})",
            )
        )
    if now.offsets is None:
        why = now.errors.get("offsets", "no answer")
        return [*out, Violation(kind=Broken.UNREADABLE, text=f"the offsets of {topic} could not be read: {why}")]
    more = sorted(set(now.offsets) - set(record.fence_offsets))
    if more:
        out.append(
            Violation(
                kind=Broken.PARTITIONS,
                text=f"topic {topic} has {len(now.offsets)} partitions now, at the fence {record.partitions}",
            )
        )
    seconds = (at - datetime.fromisoformat(record.taken_at)).total_seconds()
    grown = name_growth(record.fence_offsets, now, seconds=seconds if seconds > 0 else None, known=record.producers)
    for partition, fence in sorted(record.fence_offsets.items()):
        entry = now.offsets.get(partition)
        if entry is None or entry.end is None:
            why = (entry.error if entry else None) or "it is missing in the answer"
            text = f"{topic}[{partition}] could not be read: {why}"
            out.append(Violation(kind=Broken.UNREADABLE, text=text, partition=partition))
        elif entry.end > fence:
            who = [s for s in grown if s.partition == partition]
            out.append(
                Violation(
                    kind=Broken.GROWN,
                    text="; ".join(s.line(topic) for s in who),
                    partition=partition,
                    records=entry.end - fence,
                    rate_per_s=who[0].rate_per_s if who else None,
                    producers=who,
                )
            )
        elif entry.end < fence:
            out.append(
                Violation(
                    kind=Broken.SHRUNK,
                    text=f"{topic}[{partition}] lost records: its end is {entry.end}, at the fence {fence}",
                    partition=partition,
                    records=entry.end - fence,
                )
            )
    return out


def evidence(samples: Sequence[FenceSample], origin: float) -> list[SampleEvidence]:
    """The samples that a proof rests on, with times relative to ``origin``."""
    return [
        SampleEvidence(
            began_s=round(s.began - origin, 3),
            ended_s=round(s.ended - origin, 3),
            ends={p: o.end for p, o in sorted((s.offsets or {}).items()) if o.end is not None},
        )
        for s in samples
    ]
