"""TS120: brokers that would not lengthen the retention of the source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

SURELY = timedelta(hours=12)
"""Below so much retention any group that is behind makes the run lengthen it: it may wait that long for its freeze."""


TS120 = Code(
    "TS120",
    (Level.ERROR, Level.WARNING),
    "The brokers, asked without changing anything (`validate_only`), refuse a longer retention of the source, "
    "which the run sets where unread records could expire. An error where its retention is so short that this is "
    "to be expected.",
    "Have the rule of the brokers changed for that topic, or see that every group is close to the end.",
)


@check(Scope.TOPIC, TS120, needs=("lengthen",))
def run(facts: Facts) -> Iterator[Finding]:
    """Repeats the brokers' own reason, with the config's name."""
    dry, source = facts.snapshot.lengthen, facts.snapshot.source
    entry = source.configs.get("retention.ms") if source else None
    retention = int(entry.value) if entry and entry.value else -1
    short = 0 <= retention < (SURELY + facts.spec.freeze_budget).total_seconds() * 1000
    for refused in dry.refused if dry else ():
        yield TS120.at(
            Level.ERROR if short else Level.WARNING,
            f"source {refused.config or 'configs'}",
            f"the brokers would refuse {refused.config}={refused.value}: {refused.reason.rstrip('.')}."
            if refused.config
            else f"the brokers would refuse a longer retention: {refused.reason.rstrip('.')}.",
            "The run lengthens the retention where a group is so far behind that unread records could expire; refused, "
            "it ends before any producer is stopped.",
            "Have that rule changed for this topic, or see that every group is close to the end of the source.",
        )
