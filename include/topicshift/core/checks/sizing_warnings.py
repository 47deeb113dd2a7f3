"""TS116: what the sizing has to say against its own count."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS116 = Code(
    "TS116",
    (Level.WARNING,),
    "The count was worked out from rates, and something speaks against it: bounds, a hot key, enough partitions "
    "already.",
    "Read the sizing in the plan or run `topicshift size`; write the count you want as a number.",
)


@check(Scope.TOPIC, TS116)
def run(facts: Facts) -> Iterator[Finding]:
    """Fires for each warning of the sizing block."""
    for seen in facts.shape.sizing.warnings if facts.shape.sizing else ():
        yield TS116.warning(
            "partitions",
            seen[0].lower() + seen[1:],
            "The count follows from the rates in the spec; this follows from them as well.",
            "Check the rates (`topicshift size`), or write the count you want as a number.",
        )
