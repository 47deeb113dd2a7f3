"""TS111: a compacted source has a history that a new topic does not have."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS111 = Code(
    "TS111",
    (Level.ERROR, Level.WARNING),
    "The source is compacted: the latest value of each key would stay behind. An error unless the spec says "
    "`history: none`, then a warning.",
    "Write `history: none` if the target may start empty; otherwise this migration is not for that topic.",
)


@check(Scope.TOPIC, TS111, needs=("source",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires on ``cleanup.policy`` with compact in it."""
    entry = facts.snapshot.source.configs.get("cleanup.policy") if facts.snapshot.source else None
    if entry is None or "compact" not in (entry.value or ""):
        return
    accepted = facts.spec.history == "none"
    yield TS111.at(
        Level.WARNING if accepted else Level.ERROR,
        "history" if accepted else "source",
        f"the source is compacted (cleanup.policy={entry.value}), and the target starts empty.",
        "Whoever reads the target from its start misses the value of every key that has not been written again.",
        "The spec accepts that (`history: none`): make sure that no reader builds its state from the topic."
        if accepted
        else "Write `history: none` if the target may start without it; carrying it over is not done here.",
    )
