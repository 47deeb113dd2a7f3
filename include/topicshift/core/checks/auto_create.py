"""TS202: brokers that make topics by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS202 = Code(
    "TS202",
    (Level.WARNING,),
    "The brokers create topics on first use (auto.create.topics.enable): a client left behind makes the deleted "
    "source again, and goes on writing where nobody reads.",
    "Switch it off, or see that the retired source stays denied.",
)


@check(Scope.CLUSTER, TS202, needs=("cluster",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires when auto-creation is on."""
    if facts.snapshot.cluster is not None and facts.snapshot.cluster.auto_create:
        yield TS202.warning(
            "cluster",
            "auto.create.topics.enable is on.",
            f"After its deletion a forgotten client would make {facts.spec.source!r} again, with default partitions, "
            "and write where nobody reads.",
            "Set auto.create.topics.enable=false on the brokers before the source is retired.",
        )
