"""TS322: a streaming query cannot take its checkpoint along."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS322 = Code(
    "TS322",
    (Level.WARNING,),
    "A Spark streaming query reads the source. Its checkpoint holds the source's offsets, so on the target it "
    "needs a new folder; state that is kept in the old one stays behind.",
    "Give the query a new `checkpointLocation` and `startingOffsets=earliest` when it is pointed to the target.",
)


@check(Scope.PARTICIPANTS, TS322)
def run(facts: Facts) -> Iterator[Finding]:
    """Names each reader of kind ``spark_checkpoint``."""
    for i, reader in enumerate(facts.spec.readers):
        if reader.kind == "spark_checkpoint":
            yield TS322.warning(
                f"readers[{i}]",
                f"the checkpoint of {reader.name!r} holds offsets of {facts.spec.source!r}.",
                f"With it the query fails on {facts.shape.name!r}, or leaves records out; what it aggregates lies in "
                "that folder too and does not come along.",
                "When it has read the source to its end, start it on the target with a new checkpoint folder and "
                "startingOffsets=earliest; decide first what becomes of its state.",
            )
