"""The drain certificate: dated evidence per consumer group and partition that nothing up to the fence is unread.

The JSON of :class:`DrainCertificate` is a public contract (``topicshift drain --json``, ``drain_certificate.json``).
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.fence.decision import OpenTransaction
from topicshift.core.fence.point import FenceOffsets


class Verdict(StrEnum):
    """The answer for a partition, a group or the whole topic. Unknown is never drained."""

    DRAINED = "drained"
    NOT_DRAINED = "not_drained"
    UNKNOWN = "unknown"

    @staticmethod
    def worst(verdicts: list[Verdict]) -> Verdict:
        """Unknown beats not drained beats drained; nothing at all is unknown (an empty answer is not a yes)."""
        if not verdicts or Verdict.UNKNOWN in verdicts:
            return Verdict.UNKNOWN
        return Verdict.NOT_DRAINED if Verdict.NOT_DRAINED in verdicts else Verdict.DRAINED


class PartitionEvidence(Model):
    """One group on one partition. Offsets are null where they could not be read or do not exist.

    ``log_start``, ``end_committed`` (END_C, the last stable offset) and ``end`` (END_U, the high watermark) are
    offsets of the partition; ``committed`` is the group's. ``records_left`` is a count of readable records in
    [committed, fence), null if it was not counted. ``reason`` is a stable code (:mod:`topicshift.core.drain.decision`).
    """

    partition: int
    log_start: int | None
    committed: int | None
    end_committed: int | None
    end: int | None
    records_left: int | None
    verdict: Verdict
    reason: str


class GroupEvidence(Model):
    """One consumer group (or declared reader) over every partition of the topic."""

    group: str
    kind: str
    state: str
    verdict: Verdict
    partitions: list[PartitionEvidence]


class Unread(Model):
    """What could not be read, in the words of the brokers or of the reader of a declared reader's evidence.

    It concerns one group, or all of them (``group`` null); some partitions, or (none named) the whole.
    """

    group: str | None = None
    partitions: list[int] = Field(default_factory=list)
    error: str


class Raised(Model):
    """A group that was stuck when the wait ended: a stable code of :mod:`topicshift.core.drain.reasons`, and words."""

    group: str
    code: str
    text: str


class DrainCertificate(Model):
    """The whole answer, with the time it was taken (ISO 8601, UTC) and the fence it speaks of."""

    topic: str
    topic_id: str | None
    taken_at: str
    fence_offsets: FenceOffsets | None
    verdict: Verdict
    groups: list[GroupEvidence]
    reasons: list[str] = Field(default_factory=list)
    """Codes that concern the topic as a whole (an undeclared group, a listing that may be filtered, ...)."""
    valid_for_s: float | None = None
    """Age in seconds after which this certificate is void."""
    errors: list[Unread] = Field(default_factory=list)
    """Why what is unknown is unknown."""
    ignored: dict[str, str] = Field(default_factory=dict)
    """Groups that read the topic and are left out, with the reason that somebody gave."""
    transactions: list[OpenTransaction] = Field(default_factory=list)
    """Who holds the open transactions; the command line alone asks that."""
    alarms: list[Raised] = Field(default_factory=list)
    """The groups that were stuck when the command line's wait ended."""
    issued_by: str | None = None
    """Run and epoch that took it; a restart voids it. None for a certificate taken by hand."""

    @property
    def substance(self) -> str:
        """SHA-256 of what this certificate says: topic id, fence and each group's verdict, without time and offsets.

        A certificate that is taken anew has the same substance as long as it says the same, so that an approval of it,
        and its verification, go on to hold.
        """
        said = {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "fence": sorted((self.fence_offsets or {}).items()),
            "verdict": self.verdict,
            "groups": sorted((g.group, g.verdict) for g in self.groups),
        }
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()
