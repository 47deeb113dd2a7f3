"""What one advancer remembers between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from topicshift.core.engine.decision import RETELL_MOST_S
from topicshift.core.engine.view import Policy, Record
from topicshift.core.errors import TopicshiftError
from topicshift.core.news import News
from topicshift.ports import MigrationRow, StepRow

if TYPE_CHECKING:
    from topicshift.acts.drain import DrainTaker
    from topicshift.acts.rehearsed import Rehearsal
    from topicshift.core.drain.certificate import DrainCertificate
    from topicshift.core.drain.gate import Gate
    from topicshift.core.fence.decision import FenceSample
    from topicshift.core.fence.record import FenceRecord


@dataclass(frozen=True)
class Told:
    """When an act was performed last, and how often in a row."""

    at: datetime
    times: int = 1

    def again(self, now: datetime) -> Told:
        """Performed once more; after a long while it is another matter, and counts from one."""
        return Told(now, self.times + 1 if (now - self.at).total_seconds() < 2 * RETELL_MOST_S else 1)


@dataclass
class Memory:
    """What one advancer remembers: series of samples, and when it performed which act."""

    samples: list[FenceSample] = field(default_factory=list)
    still: list[FenceSample] = field(default_factory=list)
    """Samples of the source after a record had come to it behind its fence."""
    takers: dict[str, DrainTaker] = field(default_factory=dict)
    certificates: dict[str, DrainCertificate] = field(default_factory=dict)
    fence: FenceRecord | None = None
    gate: Gate | None = None
    rehearsal: list[Rehearsal | None] = field(default_factory=list)
    """The latest rehearsal of this migration, once it was looked up."""
    told: dict[str, Told] = field(default_factory=dict)
    refused: dict[str, TopicshiftError] = field(default_factory=dict)
    """What keeps a group where it is until a person has mended it, while others are moved."""
    rows: tuple[MigrationRow, list[StepRow], Policy] | None = None
    record: Record | None = None
    """The migration as ``rows`` of the journal have it."""
    news: News = field(default_factory=News)

    def recall(self) -> dict[str, Any]:
        """Which acts were performed, as plain values: a task carries them over its waits."""
        return {key: [last.at.isoformat(), last.times] for key, last in self.told.items()}

    def remember(self, told: Mapping[str, Any]) -> None:
        """The inverse of :meth:`recall`."""
        self.told |= {key: Told(datetime.fromisoformat(at), int(times)) for key, (at, times) in told.items()}
