"""TS305: records that were gone before a group read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS305 = Code(
    "TS305",
    (Level.ERROR, Level.WARNING),
    "Retention or DeleteRecords has passed the committed offset of a declared group: records were lost unread. A "
    "warning once the spec accepts it.",
    "Find out whether it matters, then name the group under `lost_records_accepted` with a reason.",
)


@check(Scope.PARTICIPANTS, TS305, needs=("offsets", "commits"))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires where a committed offset, or how far MirrorMaker 2 has copied, lies below the log start."""
    offsets = facts.snapshot.offsets or {}
    accepted = {g.group: g.reason for g in facts.spec.lost_records_accepted}
    for i, consumer in enumerate(facts.spec.consumers):
        commits = (facts.snapshot.commits or {}).get(consumer.group)
        own = facts.snapshot.copied.get(consumer.group)
        if own is None and (commits is None or consumer.reader(facts.spec.source) is not None):
            continue
        lost: dict[int, int] = {}
        held: Mapping[int, int | None] = own if own is not None else commits.offsets if commits is not None else {}
        for p, committed in held.items():
            start = offsets[p].log_start if p in offsets else None
            if committed is not None and start is not None and committed < start:
                lost[p] = start - committed
        if not lost:
            continue
        reason = accepted.get(consumer.group)
        worst = max(lost, key=lambda p: lost[p])
        yield TS305.at(
            Level.WARNING if reason else Level.ERROR,
            f"consumers[{i}].group",
            f"{consumer.group!r} has lost up to {sum(lost.values())} records unread on {len(lost)} "
            f"partition{'' if len(lost) == 1 else 's'} (most on {worst}).",
            "Retention or DeleteRecords passed its committed offset first; the drain would look complete.",
            f"Accepted in the spec: {reason}."
            if reason
            else "Find out whether it matters, then name the group under `lost_records_accepted` with a reason.",
        )
