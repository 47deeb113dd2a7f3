"""TS115: a source whose replicas or leaders are missing."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS115 = Code(
    "TS115",
    (Level.ERROR, Level.WARNING),
    "A partition of the source has no leader (error), or fewer replicas in sync than it should have (warning).",
    "Bring the brokers back and wait until the replicas have caught up.",
    of_a_moment=True,
)


@check(Scope.TOPIC, TS115, needs=("source",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires on partitions without leader, and on under-replicated ones."""
    source = facts.snapshot.source
    if source is None:
        return
    headless = sorted(p for p in source.replicas if source.leaders.get(p) is None)
    if headless:
        yield TS115.error(
            "source",
            f"{_named(headless)} of the source {'has' if len(headless) == 1 else 'have'} no leader.",
            "Nobody can write to it, read it or say where it ends.",
            "Bring its brokers back first.",
        )
    thin = sorted(p for p, r in source.replicas.items() if p not in headless and len(source.isr.get(p, ())) < len(r))
    if thin:
        yield TS115.warning(
            "source",
            f"{_named(thin)} of the source {'is' if len(thin) == 1 else 'are'} under-replicated.",
            "A leader that fails now could take acknowledged records with it, and an election shifts the fence.",
            "Wait until every replica is in sync.",
        )


def _named(partitions: list[int]) -> str:
    shown = ", ".join(map(str, partitions[:10])) + (" ..." if len(partitions) > 10 else "")
    return f"partition{'' if len(partitions) == 1 else 's'} {shown}"
