"""TS105, TS118: two migrations never touch the same source or target."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS105 = Code(
    "TS105",
    (Level.ERROR,),
    "Another migration that has not ended has claimed the source or the target.",
    "Let it end, roll it back, or change this spec. `topicshift status` shows it.",
)
TS118 = Code(
    "TS118",
    (Level.WARNING,),
    "There was no journal to look into, so whether another migration holds the source or the target is not known.",
    "Plan with the journal that Airflow uses: `topicshift plan --journal URL`; the DAGs always do.",
)


@check(Scope.TOPIC, TS105, TS118)
def run(facts: Facts) -> Iterator[Finding]:
    """Fires for each other migration that shares a topic with this one, and where there is no journal to tell."""
    if not facts.snapshot.journalled:
        yield TS118.warning(
            "journal",
            "no journal was found, so other migrations were not looked for.",
            "Another one that holds the source or the target would refuse this one when it starts.",
            "Plan with the journal that Airflow uses.",
        )
    mine = {facts.spec.source: "source", facts.shape.name: "target"}
    for other in facts.snapshot.migrations:
        for topic in (other.source, other.target):
            if topic in mine:
                yield TS105.error(
                    mine[topic],
                    f"{topic!r} is claimed by the migration {other.source} -> {other.target} of {other.owner}.",
                    "Two runs on one topic would undo each other's fence.",
                    "Let that one end or roll it back first; `topicshift status` shows where it is.",
                )
