"""TS329: connectors of MirrorMaker 2 that copy the source or the target, or write them, and that nobody declares."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.checks import Facts, Scope, check
from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.mirror import Flow
from topicshift.core.spec.kinds import ConnectSettings

TS329 = Code(
    "TS329",
    (Level.ERROR, Level.WARNING),
    "A connector of MirrorMaker 2 on a Connect worker that spec or policy names covers the source or the target. An "
    "error for one that copies the source of this cluster by its name and is not declared, and for one that writes the "
    "source; a warning where a pattern covers a topic (the new one is copied unasked), where it cannot be told which "
    "cluster it copies, and for one that copies groups' offsets and leaves the target out.",
    "Declare what copies the source as a consumer (`kind: connect`, `mirror: true`), with its topics named one by one. "
    "Or let a pattern copy both topics, and move the readers of the copy once they have read the old one to its end.",
)


@check(Scope.PARTICIPANTS, TS329, needs=("cluster", "flows"))
def run(facts: Facts) -> Iterator[Finding]:
    """Looks at each flow that the spec does not declare."""
    cluster, declared = facts.snapshot.cluster, set[tuple[str, str]]()
    for consumer in facts.spec.consumers:
        if consumer.kind == "connect":
            settings = ConnectSettings.model_validate(consumer.settings)
            declared.add((settings.connection, settings.connector))
    addresses = [f"{b.host}:{b.port}" for b in cluster.brokers] if cluster is not None else []
    cluster_id = cluster.cluster_id if cluster is not None else ""
    for flow in facts.snapshot.flows:
        if (flow.connection, flow.connector) in declared:
            continue
        where = f"connector {flow.connector} of {flow.connection}"
        if flow.kind == "checkpoint":
            yield from _checkpoints(facts, flow, where)
        elif flow.worker_cluster == cluster_id and not flow.reads_from(addresses) and _writes(facts, flow):
            yield from _writer(facts, flow, where)
        else:
            yield from _reader(facts, flow, where, ours=flow.reads_from(addresses))


def _writes(facts: Facts, flow: Flow) -> bool:
    return flow.writes(facts.spec.source) or flow.writes(facts.shape.name)


def _writer(facts: Facts, flow: Flow, where: str) -> Iterator[Finding]:
    source, target = facts.spec.source, facts.shape.name
    if flow.writes(source):
        yield TS329.error(
            where,
            f"it writes {source!r}, as the copy of a topic of cluster {flow.alias!r}.",
            f"It keeps the partition of each record and the name of its origin, so nothing can make it write "
            f"{target!r} by key; and nobody stops it for the fence.",
            "Move the topic in the cluster that it copies from, let it copy the new topic too, and move the readers "
            "of the copy there once they have read the old copy to its end.",
        )
    else:
        yield TS329.warning(
            where,
            f"it would write {target!r} as well, if cluster {flow.alias!r} has a topic of that name.",
            "Its records would lie among those of the producers, by the partition that they have there.",
            "Take another name for the target, or leave that topic out of the copy (topics.exclude).",
        )


def _reader(facts: Facts, flow: Flow, where: str, *, ours: bool) -> Iterator[Finding]:
    source, target = facts.spec.source, facts.shape.name
    old, new = flow.copies(source), flow.copies(target)
    if old is False and new is False:
        return
    acls = " It copies ACLs, the DENY of the freeze among them." if flow.copies_acls and old is not False else ""
    copy = f" as {flow.remote(target)!r}" if flow.remote(target) else ""
    if flow.filter:
        seen = f"a {flow.filter} chooses what it copies, so whether that is {source!r} or {target!r} cannot be told."
    elif old and new is False:
        seen = f"it copies {source!r} and not {target!r}, and no consumer declares it."
    else:
        entries = ", ".join(dict.fromkeys([*flow.patterns(source), *flow.patterns(target)])) or target
        which = f"{target!r}" if old is False else f"both {source!r} and {target!r}"
        seen = f"its topics ({entries}) cover {which}, or may: the new topic is copied unasked{copy}."
    level = Level.ERROR if ours and old and new is False else Level.WARNING
    doubt = "" if ours else " By its bootstrap.servers it cannot be told whether it copies this cluster."
    yield TS329.at(
        level,
        where,
        seen,
        (
            "It commits nothing to Kafka, so no drain waits for it, and it would go on with the old topic."
            if new is False
            else "It copies partition by partition. Whoever reads the copies of both topics at once has no order of a "
            "key between them; that it has copied the old one to its end is proven by nobody."
        )
        + acls
        + doubt,
        ("Set sync.topic.acls.enabled to false for it. " if acls else "")
        + (
            "Declare it (`kind: connect`, `mirror: true`), see docs/participants/connect.md."
            if new is False
            else f"Name its topics one by one and declare it; or leave {target!r} out (topics.exclude) until the "
            "readers have read the old copy to its end; or see to it that they do before they read the new one."
        ),
    )


def _checkpoints(facts: Facts, flow: Flow, where: str) -> Iterator[Finding]:
    source, target = facts.spec.source, facts.shape.name
    if flow.copies(source) and flow.copies(target) is False:
        yield TS329.warning(
            where,
            f"it translates the offsets of groups on {source!r}, and leaves {target!r} out.",
            "After a failover the groups would have no offsets on the copy of the new topic.",
            f"Add {target!r} to its topics by hand, once the migration has ended.",
        )
