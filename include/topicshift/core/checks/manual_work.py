"""TS312: somebody must be there."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.duration import format_duration

TS312 = Code(
    "TS312",
    (Level.INFO, Level.WARNING),
    "A person stops and starts participants of kind `manual`; a manual producer does so inside the freeze budget. "
    "A warning where the run is scheduled.",
    "See that the person is there at that time, or let the application follow the route.",
)


@check(Scope.PARTICIPANTS, TS312)
def run(facts: Facts) -> Iterator[Finding]:
    """Names the manual participants."""
    spec = facts.spec
    names = [p.name for p in spec.producers if p.kind == "manual"]
    names += [c.name for c in spec.consumers if c.kind == "manual"]
    if names:
        yield TS312.at(
            Level.WARNING if spec.window else Level.INFO,
            "participants",
            f"{', '.join(names)}: a person stops, points and starts {'it' if len(names) == 1 else 'them'}.",
            "A producer's person works inside the freeze budget of "
            f"{format_duration(spec.freeze_budget)}; when it runs out, everything goes back to the source."
            if any(p.kind == "manual" for p in spec.producers)
            else "The switch waits for that person.",
            "See that somebody is there at that time" + (", also at the hour of the window." if spec.window else "."),
        )
