"""The go: what a person is shown before anybody is stopped, and for how long their yes holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

HOLDS: Final = timedelta(hours=12)
"""The longest time for which a yes to begin the freeze holds; the end of the window ends it sooner."""

STEPS_S: Final = (10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
"""Upper bounds of a predicted freeze, in seconds: a bound is one of these, or the freeze budget."""

HEADROOM: Final = 2.0
"""A bound leaves this factor above the forecast, so that a forecast that moves a little asks nobody again."""


@dataclass(frozen=True)
class Forecast:
    """What the next freeze would take, in seconds, as measured a moment ago.

    ``settle_s``: the source has to stand still for so long. ``drain_s``: the slowest group's time to read what is
    left, None where it is not known; 0 where producers do not wait for groups. ``stop_s``: how long producers took to
    stop in the last freeze of this migration, None before the first. ``gone_s``: how long one dead instance of a
    producer can hold the freeze up, None where no kind has such a bound. ``groups``: the drain of each group, for a
    person. ``own_s``: what the run's own acts took in the latest rehearsal, from the DENY to the last producer pointed
    to the target, and ``rehearsed_at`` when it ended; None without one.
    """

    settle_s: float
    drain_s: float | None
    stop_s: float | None = None
    gone_s: float | None = None
    groups: Mapping[str, float | None] | None = None
    own_s: float | None = None
    rehearsed_at: str | None = None

    @property
    def seconds(self) -> float | None:
        """The predicted freeze; None where the drain cannot be told."""
        if self.drain_s is None:
            return None
        return self.settle_s + self.drain_s + (self.stop_s or 0.0) + (self.own_s or 0.0)


def bound_of(forecast: Forecast | None, budget_s: float) -> float:
    """The upper bound of the freeze that a person is shown, in seconds; never more than the budget, which ends it."""
    seconds = forecast.seconds if forecast is not None else None
    if seconds is None:
        return budget_s
    return min(budget_s, next((float(s) for s in STEPS_S if s >= seconds * HEADROOM), budget_s))


def ask_for(
    covered: Mapping[str, Any], forecast: Forecast | None, *, budget_s: float, last: datetime | None, now: datetime
) -> dict[str, Any]:
    """What a yes to begin this freeze is for: ``covered``, the bound, and until when it holds.

    ``last``: the last moment at which the window lets a freeze begin, None without a window.
    """
    until = now + HOLDS if last is None else min(now + HOLDS, last)
    return {
        **covered,
        "freeze_at_most_s": bound_of(forecast, budget_s),
        "until": until.isoformat(timespec="seconds"),
    }


def still_holds(
    shown: Mapping[str, Any],
    covered: Mapping[str, Any],
    forecast: Forecast | None,
    *,
    budget_s: float,
    stopped_by_hand: bool,
    now: datetime,
) -> bool:
    """Whether what was shown is what would be asked about now.

    The forecast is not compared any more once a person has stopped producers for this freeze (``stopped_by_hand``):
    they stand still under no clock. The budget ends a freeze, so a forecast beyond it counts as the budget.
    """
    if {k: v for k, v in shown.items() if k not in ("freeze_at_most_s", "until")} != dict(covered):
        return False
    if now >= datetime.fromisoformat(str(shown["until"])):
        return False
    if stopped_by_hand:
        return True
    seconds = forecast.seconds if forecast is not None else None
    return seconds is not None and min(seconds, budget_s) <= float(shown["freeze_at_most_s"])
