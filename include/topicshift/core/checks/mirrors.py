"""TS308: MirrorMaker and Connect beside the declared participants."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS308 = Code(
    "TS308",
    (Level.WARNING,),
    "MirrorMaker seems to copy the source (a topic `<alias>.<source>` exists beside its internal topics), or the "
    "group of a sink connector is declared with another kind than `connect`.",
    "Declare MirrorMaker's connector (`kind: connect`, `mirror: true`); it keeps the partition index. Declare a sink "
    "connector with `kind: connect`.",
)


@check(Scope.PARTICIPANTS, TS308, needs=("topics",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires on names that MirrorMaker 2 and Connect give."""
    source, topics = facts.spec.source, facts.snapshot.topics or frozenset()
    mirrored = any(t == "heartbeats" or t.startswith("mm2-") or t.endswith(".checkpoints.internal") for t in topics)
    copies = sorted(t for t in topics if mirrored and t.endswith("." + source))
    if copies:
        yield TS308.warning(
            "source",
            f"MirrorMaker seems to work here, and {copies[0]!r} looks like a copy of the source or its origin.",
            "It copies partition by partition and cannot repartition; it would go on with the old topic.",
            "Declare its connector, see docs/participants/connect.md; without a Connect worker, point it by hand.",
        )
    for i, consumer in enumerate(facts.spec.consumers):
        if consumer.group.startswith("connect-") and consumer.kind != "connect":
            yield TS308.warning(
                f"consumers[{i}].group",
                f"{consumer.group!r} has the name of a sink connector's group.",
                "A connector's topics stand in its own configuration; what else is told would not switch it.",
                "Declare it with `kind: connect`, see docs/participants/connect.md; or let a person do it.",
            )
