"""TS102: topics of Kafka itself and of its tools are not an application's to move."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.rules import owner_of

TS102 = Code(
    "TS102",
    (Level.ERROR, Level.WARNING),
    "The source or target is a topic of Kafka or Topicshift itself (error), or has the name of one that "
    "MirrorMaker, Connect, the Schema Registry or Kafka Streams keeps for itself (warning).",
    "Name an application's topic. A tool's own topic is changed by that tool.",
)


@check(Scope.TOPIC, TS102)
def run(facts: Facts) -> Iterator[Finding]:
    """Fires on internal topics, and on names that follow the habits of a tool."""
    for field, name in (("source", facts.spec.source), ("target", facts.shape.name)):
        owner = owner_of(name)
        internal = field == "source" and facts.snapshot.source is not None and facts.snapshot.source.internal
        if internal and owner is None:
            owner = ("Kafka itself", True)
        if owner is None:
            continue
        who, certain = owner
        yield TS102.at(
            Level.ERROR if certain else Level.WARNING,
            field,
            f"{name!r} {'belongs to' if certain else 'has the name of a topic of'} {who}.",
            "Its clients cannot be told to use another topic, and its partition count is part of their protocol.",
            "Name an application's topic." if certain else "Check whose it is; if it is that tool's, leave it alone.",
        )
