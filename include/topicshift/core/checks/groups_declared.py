"""TS301, TS302, TS310, TS311: the groups that read the source against those that the spec declares."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.drain.discovery import discover
from topicshift.core.findings import Code, Finding, Level

TS301 = Code(
    "TS301",
    (Level.ERROR,),
    "A declared group does not exist: it has no members and no commits.",
    "Correct `consumers[].group`, or start the consumer once so that it commits.",
)
TS302 = Code(
    "TS302",
    (Level.ERROR,),
    "A group that the spec does not name reads the source. It would be left behind on it.",
    "Declare it under `consumers`, or name it under `ignore_groups` with a reason.",
)
TS310 = Code(
    "TS310",
    (Level.INFO,),
    "A group that the spec ignores reads the source (with the reason given), or does not read it at all.",
    "Nothing to do; take an entry out that is no longer needed.",
    of_a_moment=True,
)
TS311 = Code(
    "TS311",
    (Level.ERROR,),
    "The list of groups may have been filtered by ACLs, so a reader may be missing. Unknown blocks.",
    "Give the client DESCRIBE on the cluster.",
)


@check(Scope.PARTICIPANTS, TS301, TS302, TS310, TS311, needs=("source", "groups", "described", "commits"))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares discovered readers with the spec."""
    spec, snapshot = facts.spec, facts.snapshot
    declared = [c.group for c in spec.consumers]
    own = {c.group for c in spec.consumers if c.reader(spec.source) is not None}
    found = discover(
        spec.source,
        snapshot.groups,
        snapshot.described or {},
        snapshot.commits or {},
        declared=declared,
        ignored={g.group: g.reason for g in spec.ignore_groups},
    )
    for i, group in enumerate(declared):
        if group in found.not_found and group not in own:
            close = get_close_matches(group, sorted(found.undeclared), n=1, cutoff=0.6)
            hint = f"Did you mean `{close[0]}`, which reads the source? " if close else ""
            yield TS301.error(
                f"consumers[{i}].group",
                f"the group {group!r} does not exist: no members, no commits.",
                "Nothing would show whether it has read the source; a misspelt name would pass for a drained group.",
                f"{hint}Correct the name, or start the consumer once so that it commits.",
            )
    for group in sorted(found.undeclared):
        yield TS302.error(
            f"group {group}",
            f"the spec does not name it, and it reads the source: {found.readers[group]}.",
            "It would be left behind on the source and miss every record after the switch.",
        )
    for i, entry in enumerate(spec.ignore_groups):
        how = found.readers.get(entry.group)
        yield TS310.info(
            f"ignore_groups[{i}]",
            f"{entry.group!r} is ignored ({entry.reason}): {how or 'it does not read the source'}.",
            "It is neither waited for nor switched." if how else "The entry has no effect.",
            "Nothing to do." if how else "Take the entry out.",
        )
    if not found.complete:
        yield TS311.error(
            "groups",
            f"the list of groups may not be complete: {found.why_incomplete or 'ACLs may have filtered it'}.",
            "A group that reads the source and is not in the list would be left behind in silence.",
            "Give this client DESCRIBE on the cluster.",
            unknown=True,
        )
