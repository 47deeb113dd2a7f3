"""TS323: what a producer that is killed in the freeze costs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.spec.duration import format_duration

TS323 = Code(
    "TS323",
    (Level.WARNING,),
    "A producer that is killed in the freeze counts as gone only after its `gone_ms`, and that is more than half "
    "of the freeze budget.",
    "Lower the producer's delivery.timeout.ms, or raise `freeze_budget`.",
    of_a_moment=True,
)


@check(Scope.PARTICIPANTS, TS323, needs=("followers",))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the ``gone_ms`` of each live producer on the route with the budget."""
    budget = facts.spec.freeze_budget
    for name, gone_ms in sorted(facts.snapshot.gone_ms.items()):
        gone = timedelta(milliseconds=gone_ms)
        if 2 * gone > budget:
            yield TS323.warning(
                f"producer {name}",
                f"an instance of it that is killed counts as gone after {format_duration(gone)}, and the freeze budget "
                f"is {format_duration(budget)}.",
                "One process that dies as the freeze begins "
                + ("ends the run: everybody goes back to the source." if gone >= budget else "takes most of it."),
                "Lower its delivery.timeout.ms, or raise `freeze_budget`.",
            )
