"""TS114: records that could expire before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.duration import format_duration

SHORT = timedelta(hours=1)


TS114 = Code(
    "TS114",
    (Level.WARNING,),
    "The source's retention is short against the freeze and the drain: unread records could expire meanwhile.",
    "Lengthen retention.ms of the source for the time of the migration.",
)


@check(Scope.TOPIC, TS114, needs=("source",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires when ``retention.ms`` is below an hour or below twice the freeze budget."""
    source = facts.snapshot.source
    policy = source.configs.get("cleanup.policy") if source else None
    entry = source.configs.get("retention.ms") if source else None
    if entry is None or entry.value is None or (policy is not None and "delete" not in (policy.value or "delete")):
        return
    retention = int(entry.value)
    wanted = max(SHORT, 2 * facts.spec.freeze_budget)
    if 0 <= retention < wanted.total_seconds() * 1000:
        yield TS114.warning(
            "source",
            f"retention.ms of the source is {format_duration(timedelta(milliseconds=retention))}.",
            "A group that is behind could lose records unread while it drains.",
            f"Lengthen it to at least {format_duration(wanted)} for the time of the migration.",
        )
