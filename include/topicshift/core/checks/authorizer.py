"""TS201: without an authorizer nothing but observation guards the fence."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS201 = Code(
    "TS201",
    (Level.WARNING,),
    "The brokers have no authorizer, so the write fence cannot be set as a DENY: observation alone proves it.",
    "Make sure that every writer is declared; a stray one is seen when the source grows, and stops the run.",
)


@check(Scope.CLUSTER, TS201, needs=("cluster",))
def run(facts: Facts) -> Iterator[Finding]:
    """Fires when the cluster says that it enforces no ACLs."""
    if facts.snapshot.cluster is not None and facts.snapshot.cluster.authorizer is False:
        yield TS201.warning(
            "cluster",
            "the brokers have no authorizer.",
            "The fence cannot deny writes: a writer that does not follow its controller is seen only once it has "
            "written, and then the run stops.",
            "Make sure that every writer is declared under `producers`.",
        )
