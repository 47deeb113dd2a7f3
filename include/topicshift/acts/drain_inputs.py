"""What a drain certificate is asked about, and how to look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topicshift.core.drain.decision import DEFAULT_VALID_FOR_S
from topicshift.core.drain.evidence import ReaderEvidence
from topicshift.core.errors import Refused

if TYPE_CHECKING:
    # A model that takes long to build and that a survey does not need.
    from topicshift.core.spec.model import Spec

EvidenceSource = Callable[[], Sequence[ReaderEvidence]]
"""Reads the evidence of readers that commit nothing; called in a thread for each certificate."""


@dataclass(frozen=True)
class DrainConfig:
    """How to look. Times in seconds; the defaults suit a freeze.

    ``tail_timeout_s`` bounds the reading of tails for one certificate; ``tail_ranges`` how many ranges it reads, the
    narrowest first (the rest stays ``behind``). ``second_sample_s``: how long to wait for the second look at groups
    that are empty and not drained. ``poll_s`` and ``poll_max_s`` bound the pause between two looks of a watch.
    ``rediscover_s``: how often a watch lists all groups again. ``stuck_after_s``: see :class:`Tracker`.
    """

    valid_for_s: float = DEFAULT_VALID_FOR_S
    tail_timeout_s: float = 15.0
    tail_ranges: int = 20_000
    second_sample_s: float = 0.3
    poll_s: float = 0.2
    poll_max_s: float = 2.0
    rediscover_s: float = 10.0
    stuck_after_s: float = 60.0


@dataclass(frozen=True)
class DrainInputs:
    """What is to be certified.

    ``declared``: the groups that somebody declared; None certifies every group that reads the topic. ``compare``:
    whether the readers of the topic are discovered, so that an undeclared one blocks. ``ignored``: group -> reason.
    ``accepted_lost``: groups whose lost records were accepted. ``evidence``: readers that commit nothing.
    """

    topic: str
    declared: tuple[str, ...] | None = None
    compare: bool = True
    ignored: Mapping[str, str] = field(default_factory=dict)
    accepted_lost: frozenset[str] = frozenset()
    evidence: EvidenceSource | None = None

    @classmethod
    def from_spec(cls, spec: Spec, *, consumer: str = "", evidence: EvidenceSource | None = None) -> DrainInputs:
        """The source of a spec, its consumers' groups, its ignored groups and its accepted losses.

        ``consumer`` names one of the consumers: then its group alone is certified, and the others count as known.
        Raises ``Refused`` when the spec does not declare it.
        """
        groups = {c.name: c.group for c in spec.consumers}
        own = {
            c.group: f"declared as {c.name}; its own offsets certify it"
            for c in spec.consumers
            if c.reader(spec.source) is not None
        }
        if consumer and consumer not in groups:
            raise Refused(f"The spec declares no consumer {consumer!r} (any more).")
        wanted = [groups[consumer]] if consumer else groups.values()
        declared = tuple(g for g in wanted if g not in own)
        others = {g: f"declared as {n}; certified by itself" for n, g in groups.items() if g not in wanted} | own
        return cls(
            topic=spec.source,
            declared=declared,
            ignored={**{g.group: g.reason for g in spec.ignore_groups}, **others},
            accepted_lost=frozenset(g.group for g in spec.lost_records_accepted),
            evidence=evidence,
        )

    def values(self) -> dict[str, Any]:
        """Everything but ``evidence`` as plain values, for an argument that is stored."""
        return {
            "topic": self.topic,
            "declared": None if self.declared is None else list(self.declared),
            "compare": self.compare,
            "ignored": dict(self.ignored),
            "accepted_lost": sorted(self.accepted_lost),
        }

    @classmethod
    def from_values(cls, values: Mapping[str, Any], *, evidence: EvidenceSource | None = None) -> DrainInputs:
        """The inverse of :meth:`values`."""
        declared = values["declared"]
        return cls(
            topic=values["topic"],
            declared=None if declared is None else tuple(declared),
            compare=values["compare"],
            ignored=dict(values["ignored"]),
            accepted_lost=frozenset(values["accepted_lost"]),
            evidence=evidence,
        )
