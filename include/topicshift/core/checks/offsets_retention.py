"""TS203: how long the brokers keep commits that nobody renews."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.duration import format_duration

BY_HAND = timedelta(days=1)
"""How long a person may take to start a consumer again: till the next working day."""


TS203 = Code(
    "TS203",
    (Level.WARNING, Level.INFO),
    "The brokers forget commits (`offsets.retention.minutes`) before the source may be retired, or before a person "
    "has surely started a manual consumer; or how long they keep them could not be read (info). The defaults of both "
    "are 7 days, and a drained group's last commit is older than the switch: it goes first.",
    "Raise offsets.retention.minutes above `retire.after` by a day, and above what a person may need.",
)


@check(Scope.CLUSTER, TS203, needs=("cluster",))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the retention of commits with the waits that the spec asks for."""
    minutes = facts.snapshot.cluster.offsets_retention_minutes if facts.snapshot.cluster else None
    do = "Raise offsets.retention.minutes on the brokers{}."
    if minutes is None:
        yield TS203.info(
            "cluster",
            "offsets.retention.minutes could not be read.",
            "Commits that nobody renews expire after that time (7 days by default): those on the source after the "
            "switch, and the first offsets of a group that is not started.",
            "Give this client DESCRIBE_CONFIGS on the cluster.",
        )
        return
    kept = timedelta(minutes=minutes)
    by_hand = [c.name for c in facts.spec.consumers if c.kind == "manual"]
    # At the switch the last commit of a drained group is as old as the freeze, and as the wait for a person before it.
    before = facts.spec.freeze_budget + (BY_HAND if by_hand else timedelta(0))
    if kept <= facts.spec.retire.after + before:
        yield TS203.warning(
            "retire.after",
            f"the source stays for {format_duration(facts.spec.retire.after)} after the switch, the groups' last "
            f"commits on it may be {format_duration(before)} older, and the brokers keep commits for "
            f"{format_duration(kept)}.",
            "Before the source is retired the groups' commits on it are gone, and they look as if they had never read "
            "it; only the certificate of this run still says that they had.",
            do.format(", or shorten `retire.after`"),
        )
    if by_hand and kept < BY_HAND:
        yield TS203.warning(
            "consumers",
            f"{', '.join(by_hand)}: a person starts these groups on the target, and the brokers keep the offsets of an "
            f"empty group for {format_duration(kept)}.",
            "A group that is started later finds no offsets and begins where auto.offset.reset says; with `latest` it "
            "passes over records.",
            do.format(", or see that they are started at once"),
        )
