"""The freeze: its clock, its lease, and when producers must be given back to the source. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

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


class GiveBack(StrEnum):
    """What to do with producers after a step inside the freeze failed."""

    NOTHING = "nothing"
    """No freeze was begun, or it is already over."""
    TO_SOURCE = "to_source"
    """Producers go back to the source, and the fence is lifted."""
    ALREADY_SWITCHED = "already_switched"
    """Every producer is on the target: going back would cross the order of keys."""
    AMBIGUOUS = "ambiguous"
    """Some may already write to the target: a person decides."""


def decide_give_back(
    *,
    freeze_state: str | None,
    switch_state: str | None,
    producer_topics: Mapping[str, str | None],
    target: str,
    target_records: int | None,
    moved_groups: Collection[str] = (),
) -> tuple[GiveBack, str]:
    """Decide from the journal and from what is seen now.

    ``freeze_state``/``switch_state`` are the journal's states of the steps ``freeze`` and ``switch_producers``
    (None where there is no row). A ``failed`` freeze is one that is being given back: it is still running.
    ``producer_topics`` maps each producer to the topic its controller points it to (None: cannot be told).
    ``target_records`` is the number of offsets used in the target, None if unreadable. ``moved_groups`` are consumer
    groups that were released to the target: they would miss what producers write to the source from now on.
    Returns the decision and the reason in words.
    """
    if freeze_state is None or freeze_state == "undone":
        return GiveBack.NOTHING, "no producer was stopped by this run, or all were given back already"
    if switch_state == "done":
        return GiveBack.ALREADY_SWITCHED, f"every producer runs on {target}"
    on_target = sorted(n for n, t in producer_topics.items() if t == target)
    if switch_state is None or switch_state == "undone":
        if target_records:
            return (
                GiveBack.AMBIGUOUS,
                f"{target} holds {target_records} records although this run switched nobody to it",
            )
        if moved_groups:
            return GiveBack.AMBIGUOUS, _left_behind(target, moved_groups)
        return GiveBack.TO_SOURCE, "no producer was pointed to the target"
    # The switch was intended: it may have happened in part.
    if target_records is None:
        return GiveBack.AMBIGUOUS, f"the switch was begun and {target} cannot be read"
    if on_target and len(on_target) == len(producer_topics):
        return GiveBack.ALREADY_SWITCHED, f"every producer is pointed to {target}"
    if target_records or on_target:
        who = ", ".join(on_target) or "nobody that is known"
        return (
            GiveBack.AMBIGUOUS,
            f"the switch was begun: on {target}: {who}; records in it: {target_records}",
        )
    if moved_groups:
        return GiveBack.AMBIGUOUS, _left_behind(target, moved_groups)
    return GiveBack.TO_SOURCE, f"the switch was begun but nobody is on {target} and it is empty"


def _left_behind(target: str, groups: Collection[str]) -> str:
    return (
        f"groups read {target} already ({', '.join(sorted(groups))}) and would miss what is written to the source, "
        f"though nobody is known to write to {target} and it is empty"
    )
