"""TS108, TS109: how many partitions the brokers should hold."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.sizing.sizing import MANY, bounds_problems

TS108 = Code(
    "TS108",
    (Level.ERROR,),
    "The count is above what the brokers should hold: 2 x brokers x cores (where `broker_cores` is given), or more "
    "than 500 replicas of this one topic on a broker.",
    "Choose a smaller count, or add brokers first.",
)
TS109 = Code(
    "TS109",
    (Level.WARNING,),
    "More than 500 partitions: they cost file handles, leader elections and replication lag.",
    "See whether faster consumers would do with fewer partitions.",
)


@check(Scope.CLUSTER, TS108, TS109, needs=("cluster",))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares the count with the brokers."""
    cluster, count = facts.snapshot.cluster, facts.shape.partitions
    if cluster is None or count is None:
        return
    problems = bounds_problems(
        count,
        brokers=len(cluster.brokers),
        cores=facts.spec.broker_cores,
        replication=facts.shape.replication_factor or 1,
    )
    for seen in problems:
        yield TS108.error(
            "partitions",
            f"{seen}.",
            "The brokers would spend their time on file handles, elections and replication instead of on records.",
        )
    if count > MANY and not problems:
        yield TS109.warning(
            "partitions",
            f"{count} partitions are more than {MANY}.",
            "They cost file handles, leader elections and replication lag, and slow down Flink's checkpoints.",
            "See whether faster consumers would do with fewer; 12 to 50 is the usual range.",
        )
