"""Rules of a maintenance window: which cron expressions and time zones can be used.

croniter and pendulum are imported when they are needed: a DAG file without a window need not pay for them.
"""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches

_A_DAY = datetime(2024, 1, 1)  # a leap year, so that 29 February comes


def cron_problem(cron: str) -> str | None:
    """Say what is wrong with a cron expression of five fields, or None. Airflow reads the same dialect."""
    fields = cron.split()
    if len(fields) != 5:
        return f"it has {len(fields)} field{'' if len(fields) == 1 else 's'}, not five"
    from croniter import CroniterBadDateError, CroniterError, croniter  # type: ignore[import-untyped]

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
