"""TS101: the source must exist."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS101 = Code(
    "TS101",
    (Level.ERROR,),
    "The source topic does not exist, or this client may not see it.",
    "Correct `source`, or give the client DESCRIBE on the topic.",
)


@check(Scope.TOPIC, TS101, needs=("topics",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires when the broker knows no such topic."""
    name, snapshot = facts.spec.source, facts.snapshot
    if snapshot.source is not None or "source" in snapshot.unread:
        return
    close = get_close_matches(name, sorted(snapshot.topics or ()), n=1, cutoff=0.7)
    hint = f"Did you mean `{close[0]}`? " if close else ""
    yield TS101.error(
        "source",
        f"the topic {name!r} does not exist.",
        "There is nothing to migrate.",
        f"{hint}Correct `source`, or give this client DESCRIBE on the topic if it may not see it.",
    )
