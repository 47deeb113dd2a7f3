"""TS104: names that differ by ``.`` and ``_`` alone."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.rules import collides

TS104 = Code(
    "TS104",
    (Level.ERROR,),
    "The target's name equals an existing topic's once `.` is read as `_`, as Kafka's metrics do.",
    "Choose a name that differs in more than `.` and `_`.",
)


@check(Scope.TOPIC, TS104, needs=("topics",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires when Kafka would refuse the target's name for a collision."""
    others = collides(facts.shape.name, (facts.snapshot.topics or frozenset()) | {facts.spec.source})
    if others:
        yield TS104.error(
            "target",
            f"{facts.shape.name!r} collides with the topic {others[0]!r}.",
            "Kafka's metrics write `.` as `_`, so both would have one name; the broker refuses the second.",
        )
