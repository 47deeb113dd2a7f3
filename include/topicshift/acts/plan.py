"""Take one look at the world, each part by itself, and plan from it. Read-only.

A part that cannot be read becomes a finding by name (TS501, unknown): a missing answer is never taken for an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar, Unpack

from topicshift.acts.context import consumers_of, producers_of
from topicshift.acts.dry_run import dry_create, dry_lengthen
from topicshift.core.checks.snapshot import MovedBefore, OtherMigration, Snapshot
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import AccessDenied, TopicshiftError, Unreadable
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import ClusterInfo, GroupInfo, TopicInfo
from topicshift.core.kafka.mirror import Flow
from topicshift.core.kafka.several import assigned_count, topics_of
from topicshift.core.plan import model as planning
from topicshift.core.plan.model import Plan, resolve_target
from topicshift.core.policy.model import Installation
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.spec.kinds import BY_OTHER_CHECKS, ConnectSettings
from topicshift.core.spec.model import Spec
from topicshift.ports import ClusterAdmin, ControlContext, Controller, Follower, Journal, MigrationRow, Mirroring

T = TypeVar("T")
_Seen = tuple[tuple[Follower, ...] | None, Mapping[str, int]]


class Beside(TypedDict, total=False):
    """What a plan looks at beside the cluster.

    ``impact`` is impact.json; ``no_impact`` says why there need be none. ``journal`` with ``migration_id`` (this one):
    other open migrations are read from it, those that have moved this source before, and the topic id of a target that
    this migration made before. ``route`` is the controller of kind route: without it nobody knows who follows the
    route, which blocks where a participant does. ``movers`` gives the controller of any other kind: without it nobody
    knows whether its participants can be moved, which blocks too. ``policy`` gives the installation policy.
    """

    impact: Mapping[str, Any] | None
    no_impact: str | None
    journal: Journal | None
    migration_id: str | None
    route: Controller | None
    movers: Callable[[str], Controller] | None
    policy: Callable[[], Installation | None]
    now: datetime | None


def take_snapshot(admin: ClusterAdmin, spec: Spec, **beside: Unpack[Beside]) -> Snapshot:
    """Read everything that a plan looks at.

    Never raises for what the cluster answers: the part is named in ``unread``.
    """
    journal, migration_id = beside.get("journal"), beside.get("migration_id")
    unread: dict[str, str] = {}

    def read(part: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except TopicshiftError as err:
            unread[part] = _reason(err)
            return None

    cluster = read("cluster", admin.cluster)
    others, moved, own_id = _journalled(
        journal, spec.source, migration_id, unread, cluster.cluster_id if cluster else None
    )
    known = Snapshot(
        _stamp(beside.get("now")),
        cluster,
        impact=beside.get("impact"),
        no_impact=beside.get("no_impact"),
        migrations=others,
        policy=read("policy", beside["policy"]) if "policy" in beside else None,
        journalled=journal is not None,
        moved=moved,
        own_target_id=own_id,
    )
    if cluster is None:
        # One dead address is enough to know: asking eight more times would only take as many time-outs.
        rest = "the cluster did not answer"
        unread.update(dict.fromkeys(("topics", "source", "target", "acls", "groups", "commits", "offsets"), rest))
        return replace(known, unread=unread)
    topics = read("topics", admin.topic_names)
    claimed = {t for m in others for t in (m.source, m.target)}
    target_name = resolve_target(spec, topics, claimed)
    source = read("source", lambda: admin.topic(spec.source))
    target = read("target", lambda: admin.topic(target_name))
    acls = read("acls", admin.acls)
    partitions = sorted(source.replicas) if source else []
    offsets = read("offsets", lambda: _complete(admin, source)) if source else None
    target_offsets = read("target_offsets", lambda: _complete(admin, target)) if target else None
    producers = read("producers", lambda: admin.producers(spec.source, partitions)) if source else None
    ids = {p.producer_id for p in producers or ()}
    transactional = read("transactional", lambda: tuple(sorted(admin.transactional_ids(ids).values())))
    transactions = read("transactions", lambda: admin.transactions(spec.source)) if source else None
    listed = read("groups", admin.groups)
    described: Mapping[str, GroupInfo] | None = None
    commits = coupled = None
    if listed is not None and source is not None:
        names = sorted({g.group for g in listed} | {c.group for c in spec.consumers})
        described = read("described", lambda: admin.describe_groups(names))
        commits = read("commits", lambda: admin.commits(names, spec.source, partitions))
    if described is not None:
        seen = described
        coupled = read("beside", lambda: _beside(admin, spec, seen, target_name))
    known = replace(
        known,
        topics=topics,
        source=source,
        target=target,
        acls=acls,
        offsets=offsets,
        target_offsets=target_offsets,
        groups=_listing(listed, cluster) if listed is not None else None,
        described=described,
        commits=commits,
        beside=coupled,
        transactional=transactional,
        producers=tuple(producers) if producers is not None else None,
        transactions=tuple(transactions) if transactions is not None else None,
    )
    if source is not None:
        followers, gone_ms = _follow(beside.get("route"), spec, target_name, migration_id, read)
        shape = planning.shape_of(spec, known, target_name)
        flows, copied = read("flows", lambda: _mirrors(beside.get("movers"), spec, known.policy)) or ((), {})
        known = replace(
            known,
            followers=followers,
            gone_ms=gone_ms,
            unable=read("unable", lambda: _unable(beside.get("movers"), spec, target_name, migration_id)),
            flows=flows,
            copied=copied,
            route_topics=read("route_topics", lambda: _route_topics(admin)) if _on_the_route(spec) else None,
            create=read("create", lambda: dry_create(admin, shape))
            if target is None and "target" not in unread
            else None,
            lengthen=read("lengthen", lambda: dry_lengthen(admin, source, spec)),
        )
    return replace(known, unread=unread)


def make_plan(spec: Spec, admin: ClusterAdmin, **beside: Unpack[Beside]) -> Plan:
    """Take a snapshot and plan from it.

    Raises ``Unreadable`` only when the cluster does not answer at all: there is no plan to print then.
    """
    snapshot = take_snapshot(admin, spec, **beside)
    if "cluster" in snapshot.unread:
        raise Unreadable(snapshot.unread["cluster"])
    claimed = {t for m in snapshot.migrations for t in (m.source, m.target)}
    return planning.make_plan(spec, snapshot, target=resolve_target(spec, snapshot.topics, claimed))


def _follow(
    route: Controller | None,
    spec: Spec,
    target: str,
    migration_id: str | None,
    read: Callable[[str, Callable[[], _Seen]], _Seen | None],
) -> _Seen:
    """Who follows the route of the source, and how long a dead instance of each declared producer can hold a freeze.

    Where nobody that is declared follows the route, a route that cannot be read is no reason to stop.
    """
    if route is None:
        return None, {}
    ctx = ControlContext(migration_id or "", spec.source, target, 0)
    mine = [p for p in producers_of(spec) if p.kind == route.kind]

    def ask() -> _Seen:
        states = route.observe(ctx, mine)
        return tuple(route.followers(ctx)), {s.participant.name: s.gone_ms for s in states if s.gone_ms is not None}

    if _on_the_route(spec):
        return read("followers", ask) or (None, {})
    try:
        return ask()
    except TopicshiftError:
        return None, {}


def _unable(
    movers: Callable[[str], Controller] | None, spec: Spec, target: str, migration_id: str | None
) -> tuple[str, ...] | None:
    """What controllers say to ``can_i``, one line a fault; None where there was nobody to ask.

    Raises ``Unreadable`` naming each kind that cannot tell, with what the others have said.
    """
    asked = [p for p in (*producers_of(spec), *consumers_of(spec)) if p.kind not in BY_OTHER_CHECKS]
    if movers is None:
        return None if asked else ()
    ctx = ControlContext(migration_id or "", spec.source, target, 0)
    by_kind = {kind: [p for p in asked if p.kind == kind] for kind in sorted({p.kind for p in asked})}
    said, silent = list[str](), list[str]()
    for kind, members in by_kind.items():
        try:
            said += movers(kind).can_i(ctx, members)
        except TopicshiftError as error:
            silent.append(f"{kind}: {error}")
    if silent:
        raise Unreadable(" ".join([*silent, *said]))
    return tuple(said)


def _beside(
    admin: ClusterAdmin, spec: Spec, described: Mapping[str, GroupInfo], target: str
) -> dict[str, dict[str, int | None]]:
    """The other topics that each declared group reads, with how many partitions they have.

    Of a group with members what these read counts, and not what it has committed once.
    """
    groups = [c.group for c in spec.consumers if c.reader(spec.source) is None]
    known = {g: info for g in groups if (info := described.get(g)) and info.error is None and info.kind != "share"}
    read = {g: topics_of(info) for g, info in known.items() if info.members}
    idle = sorted(set(known) - set(read))
    read |= admin.committed_topics(idle) if idle else {}
    others = {g: topics - {spec.source, target} for g, topics in read.items()}
    names = frozenset[str]().union(*others.values())
    counts = admin.partition_counts(names) if names else {}
    return {
        g: {t: counts.get(t) or assigned_count(known[g], t) for t in sorted(topics)} for g, topics in others.items()
    }


def _mirrors(
    movers: Callable[[str], Controller] | None, spec: Spec, policy: Installation | None
) -> tuple[tuple[Flow, ...], Mapping[str, Mapping[int, int]]]:
    """What MirrorMaker 2 copies on the Connect workers that spec and policy name, and how far its participants are."""
    mine = [p for p in (*producers_of(spec), *consumers_of(spec)) if p.kind == "connect"]
    named = {ConnectSettings.model_validate(dict(p.settings)).connection for p in mine}
    workers = sorted(named | set(policy.connect_workers if policy is not None else ()))
    mover = movers("connect") if movers is not None and workers else None
    if not isinstance(mover, Mirroring):
        return (), {}
    mirrors = [c for c in spec.consumers if c.kind == "connect" and c.reader(spec.source) is not None]
    groups = {c.group for c in mirrors}
    return tuple(mover.flows(workers)), mover.copied([p for p in mine if p.group in groups], spec.source)


def _on_the_route(spec: Spec) -> bool:
    return any(p.kind == "route" for p in (*producers_of(spec), *consumers_of(spec)))


def _route_topics(admin: ClusterAdmin) -> tuple[TopicInfo, ...]:
    found = (admin.topic(name) for name in (ROUTES_TOPIC, ACKS_TOPIC))
    return tuple(t for t in found if t is not None)


def _complete(admin: ClusterAdmin, topic: TopicInfo | None) -> Any:
    """The offsets of every partition; one that could not be read makes the part unread, by number."""
    assert topic is not None
    offsets = admin.offsets(topic.name, sorted(topic.replicas))
    bad = {p: o.error or "no answer" for p, o in sorted(offsets.items()) if o.end is None or o.log_start is None}
    missing = sorted(set(topic.replicas) - set(offsets))
    bad |= dict.fromkeys(missing, "no answer")
    if bad:
        named = ", ".join(f"partition {p} ({why})" for p, why in list(bad.items())[:5])
        raise Unreadable(f"{len(bad)} of {topic.partitions} partitions of {topic.name}: {named}")
    return offsets


def _listing(listed: Iterable[GroupInfo], cluster: ClusterInfo) -> GroupListing:
    """Without DESCRIBE on the cluster the broker lists only those groups that this client may describe."""
    groups = tuple(listed)
    if cluster.authorizer is False:
        return GroupListing(groups, True)
    if cluster.authorized is None:
        return GroupListing(groups, False, "the broker does not say whether this client may DESCRIBE the cluster")
    if cluster.authorized & {"DESCRIBE", "ALTER", "ALL"}:
        return GroupListing(groups, True)
    return GroupListing(groups, False, "this client may not DESCRIBE the cluster, so the list is filtered by ACLs")


def _journalled(
    journal: Journal | None, source: str, migration_id: str | None, unread: dict[str, str], cluster_id: str | None
) -> tuple[tuple[OtherMigration, ...], tuple[MovedBefore, ...], str | None]:
    if journal is None:
        return (), (), None
    try:
        # One journal may serve several clusters: the same name elsewhere is another topic.
        rows = [
            r
            for r in journal.find()
            if r.migration_id != migration_id and (cluster_id is None or r.cluster_id == cluster_id)
        ]
        holding = [r for r in rows if r.state == "open" or r.active]
        moved = [_moved(journal, r) for r in rows if r.state == "done" and r.source == source]
        made = journal.step(migration_id, Row.CREATE_TARGET) if migration_id else None
    except TopicshiftError as err:
        unread["migrations"] = _reason(err)
        return (), (), None
    own = made.data.get("topic_id") if made is not None and made.state == StepState.DONE else None
    others = tuple(OtherMigration(r.source, r.target, r.owner) for r in holding)
    return others, tuple(m for m in moved if m is not None), own


def _moved(journal: Journal, row: MigrationRow) -> MovedBefore | None:
    """The fence of a migration that has ended well, as far as it is on record."""
    step = journal.step(row.migration_id, Row.FENCE)
    record = step.data.get("record") if step is not None else None
    if step is None or not record:
        return None
    try:
        found = FenceRecord.model_validate(record)
    except ValueError as err:
        raise Unreadable(f"the fence of {row.migration_id} in the journal is not understood: {err}") from None
    back = journal.step(row.migration_id, Row.ROLLBACK)
    return MovedBefore(
        row.target,
        row.owner,
        found.topic_id,
        dict(found.fence_offsets),
        frozenset(str(acl.get("principal")) for acl in step.data.get("acls_added", ())),
        back is not None and back.state == StepState.INTENDED,
    )


def _reason(err: TopicshiftError) -> str:
    kind = "not allowed: " if isinstance(err, AccessDenied) else ""
    return f"{kind}{' '.join(str(err).split())}"


def _stamp(now: datetime | None) -> str:
    return (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
