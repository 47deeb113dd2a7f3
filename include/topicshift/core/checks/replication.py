"""TS112, TS113: replicas against brokers and against min.insync.replicas."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level

TS112 = Code(
    "TS112",
    (Level.ERROR, Level.WARNING),
    "The target would have more replicas than there are brokers (error), or one replica only where more brokers "
    "are there (warning).",
    "Choose `replication_factor` between 1 and the number of brokers; 3 is usual.",
)
TS113 = Code(
    "TS113",
    (Level.ERROR, Level.WARNING),
    "min.insync.replicas is above the replicas (error: nobody could write with acks=all), or equal to them "
    "(warning: one broker down stops the writers).",
    "Keep min.insync.replicas one below the replication factor.",
)


@check(Scope.CLUSTER, TS112, TS113, needs=("cluster", "source"))
def run(facts: Facts) -> Iterator[Finding]:
    """Compares replicas with brokers and with the config that the target inherits or gets."""
    cluster, source, factor = facts.snapshot.cluster, facts.snapshot.source, facts.shape.replication_factor
    if cluster is None or source is None or factor is None:
        return
    brokers = len(cluster.brokers)
    if factor > brokers:
        yield TS112.error(
            "replication_factor",
            f"{factor} replicas are asked for, and the cluster has {brokers} broker{'' if brokers == 1 else 's'}.",
            "Kafka would refuse the topic.",
            f"Choose at most {brokers}.",
        )
    elif factor == 1 and brokers > 1:
        yield TS112.warning(
            "replication_factor",
            f"the target would have one replica, and there are {brokers} brokers.",
            "The loss of one broker is the loss of its records.",
            f"Choose `replication_factor: {min(3, brokers)}`.",
        )
    entry = source.configs.get("min.insync.replicas")
    minimum = int(entry.value) if entry and entry.value and entry.value.isdigit() else None
    if minimum is not None and minimum > factor:
        yield TS113.error(
            "replication_factor",
            f"min.insync.replicas is {minimum}, above the {factor} replicas of the target.",
            "No producer with acks=all could write a single record to it.",
            f"Raise `replication_factor` above {minimum}, or lower min.insync.replicas on the source first.",
        )
    elif minimum is not None and minimum == factor and factor > 1:
        yield TS113.warning(
            "replication_factor",
            f"min.insync.replicas equals the {factor} replicas of the target.",
            "One broker that restarts stops every producer with acks=all, also during the switch.",
            "Keep it one below the replication factor.",
        )
