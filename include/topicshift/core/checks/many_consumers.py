"""TS321: more consumers than Airflow maps tasks over."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

MAP_LENGTH = 1024
"""Airflow's default of ``core.max_map_length``."""


TS321 = Code(
    "TS321",
    (Level.WARNING,),
    "More consumers than Airflow maps tasks over by default (`core.max_map_length`, 1,024).",
    "Raise `AIRFLOW__CORE__MAX_MAP_LENGTH` for the scheduler and the API server.",
)


@check(Scope.PARTICIPANTS, TS321)
def run(facts: Facts) -> Iterator[Finding]:
    """Counts the consumers."""
    count = len(facts.spec.consumers)
    if count > MAP_LENGTH:
        yield TS321.warning(
            "consumers",
            f"{count:,} consumers are more than the {MAP_LENGTH:,} over which Airflow maps tasks by default.",
            "Each group has a task of its own, and Airflow refuses a longer list while the run is under way.",
            f"Set AIRFLOW__CORE__MAX_MAP_LENGTH to at least {count} for the scheduler and the API server.",
        )
