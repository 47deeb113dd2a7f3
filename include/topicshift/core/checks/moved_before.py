"""TS117: a source that an earlier migration has moved already."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.proof.verification import same_topic_id

TS117 = Code(
    "TS117",
    (Level.ERROR, Level.WARNING),
    "An earlier migration has moved this very topic: nothing was written to it since its fence (error; a `window` "
    "that opens again comes to this), or it is being rolled back (error), or somebody writes to it again (warning).",
    "Name the topic that the applications use now as `source`; take `window` out of a spec that is done.",
)


@check(Scope.TOPIC, TS117, needs=("source", "offsets"))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the source with the fences of migrations that have ended. One made again under the name is another."""
    source, offsets = facts.snapshot.source, facts.snapshot.offsets
    if source is None or offsets is None:
        return
    for before in facts.snapshot.moved:
        if not same_topic_id(source.topic_id, before.topic_id):
            continue
        moved = f"{source.name!r} was moved to {before.target!r} by {before.owner}"
        if before.going_back:
            yield TS117.error(
                "source",
                f"{moved}, and a rollback of that migration is under way.",
                "Its producers and groups are on their way back, and both topics are held until they are there.",
                "Wait until the rollback has ended, then plan again.",
            )
            continue
        grown = [p for p, o in sorted(offsets.items()) if o.end != before.offsets.get(p)]
        if grown:
            more = f" and {len(grown) - 1} others" if len(grown) > 1 else ""
            yield TS117.warning(
                "source",
                f"{moved}, and was written to since (partition {grown[0]}{more}).",
                "Applications that stayed there, or went back, are not where the others are.",
                f"Find out who writes to it, and whether {before.target!r} is the topic to move now.",
            )
        else:
            window = " Take `window` out of this spec: it is done." if facts.spec.window is not None else ""
            yield TS117.error(
                "source",
                f"{moved}, and nothing was written to it since.",
                "Its producers are elsewhere, so there is nobody to stop and nothing to move.",
                f"Name {before.target!r} as `source`, or roll that migration back first.{window}",
            )
