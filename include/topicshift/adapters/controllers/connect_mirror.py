"""What differs where a connector is MirrorMaker 2's: it commits nothing to Kafka, and its worker sets its offsets.

Its source connector reads a topic and copies it to another cluster, record by record and partition by partition. So it
is a consumer, whose own offsets stand in for those of a group. The offsets at which it begins on the target are kept as
commits of the group that the spec names, which nobody joins, until they are set on its worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topicshift.core.errors import Transient, Unreadable
from topicshift.core.kafka import mirror
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.core.kafka.connect import Connector
from topicshift.core.kafka.mirror import Flow
from topicshift.ports import ClusterAdmin, ControlContext, Participant

_SHOWN = 5

WRITER = (
    "it is MirrorMaker 2's, which keeps the partition of each record and names its copy after the topic that it reads, "
    "so it cannot write {target} by key. Move the topic in the cluster that it copies from, let it copy the new topic "
    "too, and move the readers of the copy there once they have read the old copy to its end"
)
"""What is said of one that is declared as a producer."""


def misdeclared(who: Participant, seen: Connector, declared: bool, target: str) -> str:
    """Why this is no participant that could be moved as it is declared; empty where it is.

    ``declared``: the spec says ``mirror``.
    """
    mirrors = mirror.kind_of(seen.config) == "source"
    if mirrors and who.role == "producer":
        return WRITER.format(target=target)
    if mirrors and not declared:
        return "it is MirrorMaker 2's source connector; say `mirror: true` in its settings, and name a group of its own"
    if declared and (who.role == "producer" or not mirrors):
        what = seen.config.get("connector.class", "of unknown class")
        return f"`mirror` is for a consumer that is MirrorMaker 2's source connector, and it is {what}"
    kind = {"consumer": "sink", "producer": "source"}
    if not mirrors and seen.role != who.role:
        return f"connector {seen.name} is a {kind.get(seen.role, 'connector of unknown type')}, no {kind[who.role]}"
    return ""


def unable(
    ctx: ControlContext, who: Participant, seen: Connector, wanted: Mapping[str, str] | None, admin: ClusterAdmin
) -> Iterator[str]:
    """What keeps a mirror from being moved, by its settings; ``wanted``: these with the target, None: not to be had."""
    now = mirror.read_flow("", "", seen.name, seen.config)
    then = mirror.read_flow("", "", seen.name, wanted) if wanted is not None else None
    assert now is not None
    yield from _chosen_wrong(ctx, now, then)
    reset = mirror.begins_elsewhere(seen.config)
    if reset:
        yield f"{reset}: a partition without an offset has to begin at the earliest, or its first records are left out"
    if now.copies_acls and admin.cluster().authorizer is not False:
        yield (
            "it copies ACLs (sync.topic.acls.enabled), so it would copy the DENY of the freeze to its copy, where it "
            "could not write any more, and never take it back; set it to false until the source is retired"
        )
    group = str(who.group)
    info = admin.describe_groups([group]).get(group)
    if info is None or info.error:
        raise error_of_unread(info)(f"group {group} cannot be described: {info.error if info else 'no answer'}")
    if info.members:
        yield f"group {group} has members, and it keeps the offsets of this mirror alone; name one that nobody uses"


def _chosen_wrong(ctx: ControlContext, now: Flow, then: Flow | None) -> Iterator[str]:
    if now.filter:
        yield f"a {now.filter} chooses its topics, so its setting topics would not point it to {ctx.target}"
        return
    named = False
    for topic in (ctx.source, ctx.target):
        others = now.patterns(topic)
        if others:
            named = True
            yield (
                f"its setting topics has {', '.join(others[:_SHOWN])}, which covers {topic}, or may: it would copy "
                "both topics at once; name its topics one by one"
            )
    if then is None or named:
        return
    if then.copies(ctx.target) is not True:
        yield f"with {ctx.target} in its topics it would not copy it (topics.exclude, an internal name, or a cycle)"
    if then.copies(ctx.source) is not False:
        yield f"with {ctx.target} in its topics it would copy {ctx.source} as well"


def unlike(own: Mapping[int, int], ctx: ControlContext, admin: ClusterAdmin) -> str:
    """Why what it has copied cannot be of this source; empty where nothing says so."""
    if not own:
        return f"it has copied nothing of {ctx.source} yet, so that it copies from this cluster cannot be seen"
    offsets = admin.offsets(ctx.source)
    ends = {p: seen.end for p, seen in offsets.items()}
    if None in ends.values():
        unread = [seen for seen in offsets.values() if seen.end is None]
        raise error_of_unread(*unread)(f"the ends of {ctx.source} cannot be read")
    beyond = [f"{ctx.source}[{p}] at {at}" for p, at in sorted(own.items()) if at > (ends.get(p) or 0)]
    if beyond:
        return f"it has copied {', '.join(beyond[:_SHOWN])}, beyond the end here: it copies another cluster's topic"
    return ""


@dataclass(frozen=True)
class MirrorAt:
    """One mirror and how far it is. ``offsets`` is the answer of its worker; ``told``: what the audit trail has."""

    who: Participant
    seen: Connector
    offsets: Any
    told: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def alias(self) -> str:
        """What it calls the cluster that it copies from."""
        return str(self.seen.config.get("source.cluster.alias"))

    def own(self, topic: str) -> dict[int, int]:
        """The next offset to be copied, by partition. Raises ``Unreadable``."""
        try:
            return mirror.positions(self.offsets, self.alias, topic)
        except ValueError as error:
            raise Unreadable(f"connector {self.seen.name}: {error}") from None

    @property
    def home(self) -> str | None:
        """The topic that it was on before this migration; None where the audit trail has none yet."""
        return next((str(t["home"]) for t in self.told if t.get("home")), None)


def remembered(at: MirrorAt, on: str) -> dict[str, Any]:
    """What goes into the audit trail before a mirror is changed: where it was, and how far it had copied that."""
    own = at.own(on)
    return {"moment": "position", "home": on, "alias": at.alias, "copied": {str(p): o for p, o in sorted(own.items())}}


def patch(ctx: ControlContext, at: MirrorAt, topic: str, admin: ClusterAdmin) -> tuple[dict[str, Any], dict[str, Any]]:
    """The offsets to be set before it is pointed to the topic: for the audit trail, and as its worker takes them.

    Where it comes back to its first topic, what it has of the other one is forgotten, as before this migration. Both
    are empty where nothing has to be set. Raises ``Transient`` while no offsets are kept for it on the target.
    """
    held = kept(admin, str(at.who.group), topic)
    missing = [p for p, offset in held.items() if offset is None]
    if topic == ctx.target and (missing or not held):
        raise Transient(f"group {at.who.group} keeps no offset on {len(missing)} partition(s) of {topic}")
    found = {topic: mirror.to_set(at.own(topic), held, log_starts(admin, topic))}
    if topic == at.home:
        other = ctx.target if topic == ctx.source else ctx.source
        found[other] = dict.fromkeys(at.own(other), 0)
    entries = [entry for name, offsets in found.items() for entry in mirror.change(at.alias, name, offsets)]
    said = {name: {str(p): o for p, o in sorted(offsets.items())} for name, offsets in found.items() if offsets}
    return ({"set": said}, {"offsets": entries}) if entries else ({}, {})


def unread(at: MirrorAt, topic: str, admin: ClusterAdmin) -> str:
    """Partitions that hold records and of which it has copied none, in words; empty where there is none such."""
    own, waiting = at.own(topic), []
    for p, seen in sorted(admin.offsets(topic).items()):
        if seen.end is None or seen.log_start is None:
            return f"the ends of {topic}[{p}] cannot be read"
        if own.get(p, 0) <= seen.log_start < seen.end:
            waiting.append(f"{topic}[{p}] (at {own.get(p, 0)} of {seen.end})")
    return f"RUNNING, and its offsets do not move on {', '.join(waiting[:_SHOWN])}" if waiting else ""


def would_skip(at: MirrorAt, topic: str, admin: ClusterAdmin) -> str:
    """What is gone before it was copied, in words: started, it would go on at the earliest, silently; empty: nothing.

    A person who wants it to go on all the same sets its offset to the log start, less one, by hand.
    """
    first = {p: o for p, o in kept(admin, str(at.who.group), topic).items() if o is not None}
    gone = mirror.skips(first | at.own(topic), log_starts(admin, topic))
    named = ", ".join(f"{topic}[{p}] from {a} to {b - 1}" for p, (a, b) in list(gone.items())[:_SHOWN])
    if not gone:
        return ""
    return (
        f"it is not started: {named} is gone before it was copied, and it would go on behind that without a word. Copy "
        f"that from elsewhere, or accept it: set its offset to the last one that is gone (PATCH /connectors/"
        f"{at.seen.name}/offsets)"
    )


def kept(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int | None]:
    """The offsets that the group keeps on the topic, by partition. Raises ``Unreadable``."""
    info = admin.topic(topic)
    if info is None:
        raise Unreadable(f"there is no topic {topic}")
    partitions = sorted(info.replicas)
    commits = admin.commits([group], topic, partitions).get(group)
    if commits is None or commits.error or commits.errors:
        raise error_of_unread(commits)(f"the offsets that group {group} keeps on {topic} cannot be read")
    return {p: commits.offsets.get(p) for p in partitions}


def log_starts(admin: ClusterAdmin, topic: str) -> dict[int, int]:
    """The log start of every partition. Raises ``Transient`` where one cannot be read now."""
    found: dict[int, int] = {}
    for p, seen in admin.offsets(topic).items():
        if seen.log_start is None:
            raise Transient(f"the log start of {topic}[{p}] cannot be read now")
        found[p] = seen.log_start
    return found


def flows_of(connection: str, ask: Callable[..., Any]) -> list[Flow]:
    """Every connector of MirrorMaker 2 on the worker of a connection. Raises ``Unreadable``."""
    try:
        cluster = str(ask("GET", "/", None).get("kafka_cluster_id") or "")
        listed = ask("GET", "/connectors?expand=info", None)
        found = [mirror.read_flow(connection, cluster, str(n), one["info"]["config"]) for n, one in listed.items()]
    except (KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{connection}: not the answer of a Connect worker ({type(error).__name__})") from None
    return sorted((f for f in found if f is not None), key=lambda f: f.connector)
