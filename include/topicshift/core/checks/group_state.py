"""TS303, TS304, TS309, TS313: what a declared group is, and whether it can drain and be switched."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS303 = Code(
    "TS303",
    (Level.ERROR,),
    "A declared group is a share group: it has no order and no offsets that prove anything.",
    "Move it by hand and ignore it here.",
)
TS304 = Code(
    "TS304",
    (Level.WARNING,),
    "A declared group has no members now, so it does not get nearer to the end.",
    "Start its consumers before the cut-over.",
    of_a_moment=True,
)
TS309 = Code(
    "TS309",
    (Level.WARNING,),
    "A declared group has more members than the target will have partitions; the rest idle.",
    "Scale it down, or choose more partitions.",
    of_a_moment=True,
)
TS313 = Code(
    "TS313",
    (Level.ERROR,),
    "A declared group, or its commits, could not be read. Unknown blocks.",
    "Give the client DESCRIBE on the group and on the topic, and see that its coordinator is up.",
)


@check(Scope.PARTICIPANTS, TS303, TS304, TS309, TS313, needs=("described",))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks at each declared group that exists."""
    for i, consumer in enumerate(facts.spec.consumers):
        info = (facts.snapshot.described or {}).get(consumer.group)
        where = f"consumers[{i}].group"
        commits = (facts.snapshot.commits or {}).get(consumer.group)
        wrong = (info.error if info else None) or (commits.error if commits else None)
        if wrong is None and commits is not None and commits.errors:
            wrong = "; ".join(f"partition {p}: {why}" for p, why in sorted(commits.errors.items())[:3])
        if wrong:
            yield TS313.error(
                where,
                f"{consumer.group!r} could not be read: {wrong.rstrip('.')}.",
                "Whether it has read the source could never be told.",
                "Give this client DESCRIBE on the group and on the topic, and see that its coordinator is up.",
                unknown=True,
            )
        if info is None or info.error is not None:
            continue
        if info.kind == "share":
            yield TS303.error(
                where,
                f"{consumer.group!r} is a share group.",
                "Its records are acknowledged one by one, without order, and no committed offset proves a drain.",
                "Name it under `ignore_groups` with a reason, and move it by hand.",
            )
        reads = consumer.reader(facts.spec.source) is None  # else its group keeps offsets, and nobody is in it
        if reads and not info.members and info.state in ("EMPTY", "DEAD") and _has_commits(facts, consumer.group):
            yield TS304.warning(
                where,
                f"{consumer.group!r} has no members ({info.state.lower()}).",
                "Nobody reads, so what is unread stays unread and the drain does not end.",
                "Start its consumers before the cut-over. If it assigns partitions itself, it shows like this while it "
                "works.",
            )
        count = facts.shape.partitions
        if count is not None and info.kind != "share" and len(info.members) > count:
            yield TS309.warning(
                where,
                f"{consumer.group!r} has {len(info.members)} members, and the target will have {count} partitions.",
                f"{len(info.members) - count} of them would idle.",
            )


def _has_commits(facts: Facts, group: str) -> bool:
    commits = (facts.snapshot.commits or {}).get(group)
    return commits is not None and any(o is not None for o in commits.offsets.values())
