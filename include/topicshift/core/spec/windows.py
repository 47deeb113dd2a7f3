"""Maintenance windows: which cron expressions and time zones can be used, and when a window is open.

croniter and pendulum are imported when they are needed: a DAG file without a window need not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

_A_DAY = datetime(2024, 1, 1)  # a leap year, so that 29 February comes
_SHIFT = timedelta(hours=3)
"""Clocks are put forward or back by less."""


@dataclass(frozen=True)
class Opening:
    """One time for which a window is open, in UTC. ``last``: a freeze that begins later could not end before it closes.

    ``closes`` is the window's duration later than ``opens`` by a clock that knows no summer time.
    """

    opens: datetime
    last: datetime
    closes: datetime

    def is_open(self, now: datetime) -> bool:
        """Whether a freeze may begin now."""
        return self.opens <= now < self.last


@dataclass(frozen=True)
class Schedule:
    """A maintenance window: when it opens, in which time zone, and for how long."""

    cron: str
    timezone: str
    duration: timedelta

    def opening(self, budget: timedelta, now: datetime) -> Opening:
        """The first opening in which a freeze of ``budget`` may still begin at ``now`` or later.

        The window opens when Airflow starts the scheduled run: at a local time that summer time leaves out, as much
        later as the clocks are put forward; at one that comes twice, the second time, or both times where the cron
        names every hour.
        """
        known = _last_found(self, budget)
        if not known or not known[0][0] <= now < known[0][1].last:
            found = next(
                Opening(opens, opens + self.duration - budget, opens + self.duration)
                for opens in _openings(self.cron, self.timezone, now - self.duration)
                if opens + self.duration - budget > now
            )
            known[:] = [(now, found)]
        return known[0][1]


@lru_cache(maxsize=16)
def _last_found(schedule: Schedule, budget: timedelta) -> list[tuple[datetime, Opening]]:
    """The opening that was found last, and since when it is the first: every look asks, and cron is slow."""
    return []


def _openings(cron: str, timezone: str, since: datetime) -> Iterator[datetime]:
    import pendulum
    from croniter import croniter  # type: ignore[import-untyped]

    zone = pendulum.timezone(timezone)
    found: Any = croniter(cron, since.astimezone(zone).replace(tzinfo=None) - _SHIFT)
    folds = (0, 1) if found.expanded[1] == ["*"] else (1,)
    known: set[datetime] = set()
    while True:
        local = found.get_next(datetime)
        moments = [zone.convert(local.replace(fold=fold)).astimezone(UTC) for fold in (0, 1)]
        # Whatever comes after this local time comes later than all that is known up to here.
        certain = sorted(k for k in known if k < moments[0] - _SHIFT)
        yield from certain
        known = known.difference(certain) | {moments[fold] for fold in folds}


def cron_problem(cron: str) -> str | None:
    """Say what is wrong with a cron expression of five fields, or None. Airflow reads the same dialect."""
    fields = cron.split()
    if len(fields) != 5:
        return f"it has {len(fields)} field{'' if len(fields) == 1 else 's'}, not five"
    from croniter import CroniterBadDateError, CroniterError, croniter

    try:
        croniter(cron, _A_DAY).get_next(datetime)
    except CroniterBadDateError:
        return "no such day ever comes"
    except (CroniterError, ValueError, KeyError) as err:
        return str(err)
    return None


def timezone_problem(name: str) -> str | None:
    """None for an IANA time zone, else a sentence that says what to write."""
    import pendulum

    try:
        pendulum.timezone(name)
    except (ValueError, OSError):
        known = pendulum.timezones()
        by_lower = {k.lower(): k for k in known} | {k.lower().rsplit("/", 1)[-1]: k for k in known}
        close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
        return f"Did you mean `{by_lower[close[0]]}`?" if close else "Write an IANA name such as `Europe/Berlin`."
    return None


def next_start(cron: str, timezone: str, after: datetime) -> datetime:
    """The first moment after ``after`` (with a time zone) at which a window of this cron expression begins, in UTC."""
    return next(opens for opens in _openings(cron, timezone, after) if opens > after)
