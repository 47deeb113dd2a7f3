"""The freeze: its clock, its lease, and when producers must be given back to the source. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.engine.words import StepState

LEASE_MARGIN_SHARE = 0.05
"""Share of the freeze budget that is kept free before the lease ends."""

LEASE_MARGIN_BOUNDS = (timedelta(seconds=2), timedelta(seconds=15))
"""Bounds of the margin: never less than clock skew plus one act takes, never wasteful for long budgets."""


def lease_margin(budget: timedelta) -> timedelta:
    """How much of a lease must be left for an act to be allowed."""
    low, high = LEASE_MARGIN_BOUNDS
    return min(max(budget * LEASE_MARGIN_SHARE, low), high)


@dataclass(frozen=True)
class Freeze:
    """One freeze. ``lease_until`` is written into the pause: clients go on with the source by themselves then.

    ``act_until`` is the last moment at which the run may still act towards the target. The lease is the
    whole budget and is never renewed past it, so a freeze cannot outlast what the spec allows, whoever dies.
    """

    started_at: datetime
    lease_until: datetime
    act_until: datetime

    @staticmethod
    def begin(now: datetime, budget: timedelta) -> Freeze:
        """A freeze that starts now and may last ``budget``."""
        until = now + budget
        return Freeze(now, until, until - lease_margin(budget))

    def left(self, now: datetime) -> float:
        """Seconds in which the run may still act; negative when it is over."""
        return (self.act_until - now).total_seconds()

    def to_data(self) -> dict[str, str]:
        """For the journal."""
        return {
            "started_at": self.started_at.isoformat(),
            "lease_until": self.lease_until.isoformat(),
            "act_until": self.act_until.isoformat(),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Freeze:
        """Back from the journal."""
        return Freeze(
            datetime.fromisoformat(data["started_at"]),
            datetime.fromisoformat(data["lease_until"]),
            datetime.fromisoformat(data["act_until"]),
        )


@dataclass(frozen=True)
class Lasted:
    """How long a freeze has lasted: ``seconds`` until its end, or until now where it ``running``."""

    freeze: Freeze
    running: bool
    seconds: float


def lasted(state: str, data: Mapping[str, Any], now: datetime) -> Lasted:
    """The same of a journal row of a freeze, by its state and data."""
    freeze = Freeze.from_data(data)
    running = state in (StepState.INTENDED, StepState.UNDOING)
    ended = data.get("ended_at")
    until = now if running or ended is None else datetime.fromisoformat(str(ended))
    return Lasted(freeze, running, round((until - freeze.started_at).total_seconds(), 3))


ABANDONED_AFTER = timedelta(seconds=60)
"""Time after the lease at which a freeze that its own run has not ended counts as abandoned, though the run may be
alive (its DAG may be paused). A run that is at work resumes on the source before the lease ends."""


def abandoned(
    *, freeze: Freeze, owner_alive: bool | None, rolling_back: bool, pointing: bool, now: datetime
) -> tuple[bool, str]:
    """Whether nobody will end a freeze that still runs, and why. Unknown counts as alive until the lease is long over.

    ``rolling_back``: a rollback was begun, which stops producers under a lease of its own, so only its end counts.
    ``pointing``: the intent to point producers to the target is in the journal; then no timer ends the freeze.
    """
    if owner_alive is False:
        return True, "the run that began the freeze has ended, was deleted or was marked by hand"
    late = (now - freeze.lease_until).total_seconds()
    if rolling_back or pointing or late < ABANDONED_AFTER.total_seconds():
        return False, "the run that owns it is at work" if owner_alive else "it cannot be told whether its run is alive"
    return True, f"the lease has been over for {late:.0f} s and its run has not ended the freeze (is its DAG paused?)"
