"""TS106, TS107, TS110: the target's count against the source's."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.impact.partitioning import expected_same_index, parents_of

TS106 = Code(
    "TS106",
    (Level.ERROR,),
    "The target would have as many partitions as the source.",
    "Choose another count; to change anything else of a topic, no migration is needed.",
)
TS107 = Code(
    "TS107",
    (Level.WARNING,),
    "The target would have fewer partitions than the source, so fewer consumers can share the work.",
    "Go on if that is meant.",
)
TS110 = Code(
    "TS110",
    (Level.INFO,),
    "The target's count is no multiple of the source's, so one of its partitions gathers keys of several.",
    "A multiple of the source's count gives every new partition one parent; it is no must.",
)


@check(Scope.TOPIC, TS106, TS107, TS110, needs=("source",))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the two counts."""
    source, count = facts.snapshot.source, facts.shape.partitions
    if source is None or count is None:
        return
    n = source.partitions
    if count == n:
        yield TS106.error(
            "partitions",
            f"the source has {n} partitions already.",
            "The migration would freeze the producers for nothing.",
            f"Choose another count than {n}.",
        )
    elif count < n:
        yield TS107.warning(
            "partitions",
            f"{count} partitions are fewer than the source's {n}.",
            f"A group can use at most {count} consumers on the target; {n} can work on the source.",
        )
    if count != n and count % n:
        parents = parents_of(n, count)
        yield TS110.info(
            "partitions",
            f"{count} is no multiple of {n}: a partition of the target gathers keys of up to {parents} of the source, "
            f"and {expected_same_index(n, count):.0%} of the keys keep their index.",
            "It changes nothing about the safety of the migration; it makes the load per partition less predictable.",
            f"{n * max(1, round(count / n)) if count > n else n} or another multiple of {n} would give one parent each."
            if count > n
            else "Nothing to do.",
        )
