"""What an orchestrator may write into the route next: arm, pause, point, open, for producers and consumer groups. Pure.

Each function returns the next record, or None where the route is as wanted already; it raises where a guard says no.
Routes are as :func:`topicshift.core.route.records.parse_route` read them: judged, with the end of each pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from topicshift.core.errors import OwnershipLost, Refused
from topicshift.core.route.fields import MAX_COUNT
from topicshift.core.route.records import POINT_MARGIN_MS, Ack, GroupRoute, Route, State, Status

GROUP_LEASE_MS = 60_000
"""The shortest pause of a group, ms."""

LEASE_SLACK_MS = 2000
"""A pause is not written anew for a lease that ends later by less, ms."""

EPOCH_JUMP = 1_000_000
"""An instance that says it obeyed an epoch further ahead of the record than this is not believed."""


@dataclass(frozen=True)
class Act:
    """On whose behalf, and when, a route is changed.

    ``claim`` is the journal's epoch. ``now_ms`` are the bounds of the brokers' time. ``lease_ms`` is how long a pause
    may last from now. ``acked_epoch`` is the highest epoch that an instance obeyed: a route that lost its record goes
    on above it.
    """

    logical: str
    source: str
    target: str
    migration: str
    claim: int
    now_ms: tuple[int, int]
    lease_ms: int | None = None
    acked_epoch: int = 0


def obeyed_epoch(route: Route | None, acks: Iterable[Ack]) -> int:
    """The highest epoch that an instance obeyed, those left out that cannot be believed."""
    most = (route.epoch if route else 0) + EPOCH_JUMP
    return max((a.epoch for a in acks if a.epoch <= most), default=0)


def remembered(logical: str, source: str, acks: Iterable[Ack], producers_on: str | None = None) -> Route | None:
    """A route whose record was lost, as its live instances still obey it; None where nobody has obeyed one.

    Without it the next act would begin from nothing, and send producers that were switched back to the source.
    ``producers_on`` is where the journal has them: a producer may have slept since, or none may be alive. Raises
    ``Refused`` where instances differ, or stand in a pause whose end is lost with the record, and where nobody tells
    the topic of the producers.
    """
    obeyed = [a for a in acks if a.logical == logical and a.epoch > 0 and a.status is not Status.GONE]
    if not obeyed and producers_on in (None, source):
        return None
    switched = producers_on if producers_on != source else None
    topics = {switched} if switched else {a.topic for a in obeyed if a.role == "producer"}
    reads: dict[str, set[str]] = {}
    for a in obeyed:
        if a.group is not None:
            reads.setdefault(a.group, set()).add(a.topic)
    mixed = [g for g, on in sorted(reads.items()) if len(on) > 1]
    told = [a for a in obeyed if a.role == "consumer" or not switched]
    paused = sorted(a.instance for a in told if a.status in (Status.PAUSED, Status.FLUSHING))
    if len(topics) > 1 or mixed or paused:
        what = f"producers write to {', '.join(sorted(topics))}" if len(topics) > 1 else ""
        what = what or (f"{', '.join(paused[:5])} are paused" if paused else f"{', '.join(mixed)} are on two topics")
        raise Refused(
            f"The record of the route of {logical} was lost while {what}, so where its applications are to be cannot "
            "be told. Wait until they agree, or write the route anew: topicshift route set."
        )
    groups = {g: GroupRoute(t, came_from=source if t != source else None) for g, on in reads.items() for t in on}
    active = next(iter(topics), producers_on)
    if active is None:
        raise Refused(
            f"The record of the route of {logical} was lost, no producer is alive, and this migration was about to "
            "switch them, so where they are to write cannot be told. Write the route anew: topicshift route set."
        )
    return Route(logical, active, State.OPEN, max((a.epoch for a in obeyed), default=0), groups=groups)


def _owned(route: Route | None, act: Act, *, takes_over: bool) -> None:
    """Whether this migration may write now. Raises ``OwnershipLost`` or ``Refused``."""
    if route is None or route.migration is None:
        return
    if route.migration == act.migration:
        if route.claim > act.claim:
            raise OwnershipLost(
                f"The route of {route.logical} was written under epoch {route.claim} of {act.migration}, and this run "
                f"has epoch {act.claim}: a newer run owns the migration. This one must stop."
            )
        return
    early = act.now_ms[0]
    paused = [g for g, e in route.groups.items() if e.holds(early)]
    if route.holds(early) or paused:
        what = f"groups {', '.join(paused)}" if paused else "its producers"
        raise Refused(
            f"The route of {route.logical} is paused ({what}) by migration {route.migration} at epoch {route.epoch}. "
            "Wait until that run is done or its pause is over."
        )
    if not takes_over:
        raise Refused(
            f"The route of {route.logical} belongs to migration {route.migration} at epoch {route.epoch}, not to "
            f"{act.migration}: another run has taken it over since. Nothing was changed."
        )


def next_epoch(route: Route | None, acked_epoch: int) -> int:
    """The epoch of the next record. Raises ``Refused`` where epochs have run out."""
    epoch = max(route.epoch if route else 0, acked_epoch) + 1
    if epoch > MAX_COUNT:
        raise Refused(f"Epoch {epoch} is higher than clients read ({MAX_COUNT}). Somebody wrote a wrong route by hand.")
    return epoch


def _next(route: Route | None, act: Act, **changes: Any) -> Route:
    base = route or Route(act.logical, act.source, State.OPEN, 0)
    # What a record says of itself alone is not repeated: the length of a pause that began before it, a judgement.
    base = replace(base, lease_ms=None, valid_before_ms=None, else_active=None, broker_ms=None, voided=None)
    base = replace(base, groups={n: replace(g, lease_ms=None) for n, g in base.groups.items()})
    return replace(
        base,
        epoch=next_epoch(route, act.acked_epoch),
        source=act.source,
        target=act.target,
        migration=act.migration,
        claim=act.claim,
        **changes,
    )


def _held(route: Route | None, groups: Collection[str], topic: str) -> dict[str, GroupRoute]:
    """The groups of the record, with those that have no entry yet held to ``topic``."""
    entries = {n: replace(g, lease_ms=None) for n, g in route.groups.items()} if route else {}
    return {**{g: GroupRoute(topic) for g in sorted(groups) if g not in entries}, **entries}


# ------------------------------------------------------------------------------------------------ arming


def anew(lost: Route, act: Act) -> Route:
    """The record of a route whose record was lost, as :func:`remembered` has it."""
    return _next(lost, act)


def arm(route: Route | None, act: Act) -> Route | None:
    """The record that arms the route, or None if this migration has armed it. Producers go on."""
    _owned(route, act, takes_over=True)
    if route is not None and route.armed and (route.migration, route.claim) == (act.migration, act.claim):
        return None
    return _next(route, act, armed=next_epoch(route, act.acked_epoch))


def disarm(route: Route | None, act: Act) -> Route | None:
    """The record that disarms the route, or None if it is not armed, or another migration's by now."""
    if route is None or not route.armed or route.migration not in (None, act.migration):
        return None
    _owned(route, act, takes_over=True)
    return _next(route, act, armed=0)


# ------------------------------------------------------------------------------------------------ producers


def pause_producers(route: Route | None, act: Act, groups: Collection[str] = ()) -> Route | None:
    """The record that pauses the producers where they are, or None if they are paused already, for as long.

    ``groups`` are consumer groups that read the source: those without an entry are held to it, so that none follows
    ``active`` before it is released. A longer lease is a new pause, which every instance acknowledges anew. Raises
    ``Refused`` without a lease, and when the producers are not on the source (on one of two topics, once the route is
    this migration's own: that is how a rollback stops them on the target).
    """
    _owned(route, act, takes_over=True)
    if act.lease_ms is None or act.lease_ms <= 0:
        raise Refused(
            f"Producers of {act.logical} are not paused without a lease that lies ahead (left: {act.lease_ms} ms): if "
            "this run died they would stand still for ever."
        )
    own = route is not None and route.migration == act.migration
    if route is not None and route.active != act.source and not (own and route.active == act.target):
        raise Refused(
            f"Producers of {act.logical} are on {route.active}, not on {act.source}, which this migration moves. "
            f"Name {route.active} as the source."
        )
    late = act.now_ms[1]
    mine = route is not None and own and route.claim == act.claim and not route.voided
    if mine and route is not None and route.holds(late + act.lease_ms - LEASE_SLACK_MS):
        return None
    epoch = next_epoch(route, act.acked_epoch)
    paused = {"state": State.PAUSED, "lease_ms": act.lease_ms, "until_ms": None, "pause": epoch}
    return replace(_next(route, act, groups=_held(route, groups, act.source)), **paused)  # type: ignore[arg-type]


def point_producers(route: Route | None, act: Act, topic: str) -> Route | None:
    """The record that points paused producers to ``topic``, or None if they are pointed there already.

    Raises ``Refused`` unless they are paused by this migration and the record can still be stamped in time. One that
    is stamped too late is void, and says itself where producers are then.
    """
    if route is not None and route.active == topic and (route.state is State.OPEN or route.migration == act.migration):
        _owned(route, act, takes_over=True)
        return None
    if route is None and topic == act.source:
        return None
    _owned(route, act, takes_over=False)
    if route is None or route.state is not State.PAUSED or route.until_ms is None:
        where = route.active if route else act.source
        raise Refused(
            f"Producers of {act.logical} run on {where}; pointing them to {topic} without a pause would cross the "
            "order of keys. Stop them first."
        )
    left_ms = route.until_ms - POINT_MARGIN_MS - act.now_ms[1]
    if left_ms <= 0 or route.voided:
        raise Refused(
            f"The pause of {act.logical} ends in {(left_ms + POINT_MARGIN_MS) / 1000:.1f} s, less than the margin of "
            f"{POINT_MARGIN_MS / 1000:g} s, so its producers go on with {route.active}. Not pointed to {topic}. Stop "
            "them again."
        )
    pointed = _next(route, act, active=topic)
    return replace(pointed, valid_before_ms=route.until_ms - POINT_MARGIN_MS, else_active=route.active)


def seconds_to_point(route: Route | None, wanted: Route, act: Act) -> float | None:
    """How long ``wanted`` may be tried to be written, seconds; None where it is not bound to the end of a pause."""
    if wanted.valid_before_ms is not None:
        return max(0.0, (wanted.valid_before_ms - act.now_ms[1]) / 1000)
    begins = wanted.lease_ms is not None and (route is None or wanted.pause != route.pause)
    return LEASE_SLACK_MS / 1000 if begins else None  # later, the pause would outlast what it was decided for


def open_producers(route: Route | None, act: Act) -> Route | None:
    """The record that lets the producers go on with ``active``, or None if they may already.

    An open record of an older claim of this migration is written anew: an act that was begun under that claim, and is
    late, is refused from then.
    """
    _owned(route, act, takes_over=True)
    if route is None or (route.state is State.OPEN and (route.migration != act.migration or route.claim == act.claim)):
        return None
    return replace(_next(route, act), state=State.OPEN, until_ms=None)


# ------------------------------------------------------------------------------------------------ groups


def group_entry(route: Route | None, group: str, logical: str) -> GroupRoute:
    """Where a group reads: its entry, or else the active topic, or else the logical topic itself."""
    if route is None:
        return GroupRoute(logical)
    return route.groups.get(group) or GroupRoute(route.active)


def pause_groups(route: Route | None, act: Act, groups: Collection[str]) -> Route | None:
    """The record that stops consumer groups where they are (they commit and leave), or None if they are stopped."""
    _owned(route, act, takes_over=True)
    entries = _held(route, groups, act.source)
    running = [g for g in groups if not entries[g].holds(act.now_ms[1])]
    if not running:
        return None
    paused = {
        "state": State.PAUSED,
        "lease_ms": max(GROUP_LEASE_MS, act.lease_ms or 0),
        "until_ms": None,
        "pause": next_epoch(route, act.acked_epoch),
    }
    return _next(route, act, groups={**entries, **{g: replace(entries[g], **paused) for g in running}})  # type: ignore[arg-type]


def point_groups(route: Route | None, act: Act, groups: Collection[str], topic: str) -> Route | None:
    """The record that releases consumer groups to ``topic``, or None if they are released already.

    A running group drains its own partitions, commits and moves; a paused one stays paused until it is opened.
    Only call it with the group's drain certificate in hand.
    """
    _owned(route, act, takes_over=True)
    entries = _held(route, groups, act.source)
    moving = [g for g in groups if entries[g].topic != topic]
    if not moving and (route is not None and all(g in route.groups for g in groups)):
        return None
    moved = {g: replace(entries[g], topic=topic, came_from=entries[g].topic) for g in moving}
    return _next(route, act, groups={**entries, **moved})


def open_groups(route: Route | None, act: Act, groups: Collection[str]) -> Route | None:
    """The record that lets paused groups go on, or None if all of them may already."""
    _owned(route, act, takes_over=True)
    if route is None:
        return None
    entries = _held(route, (), act.source)
    stopped = [g for g in groups if g in entries and entries[g].state is State.PAUSED]
    if not stopped:
        return None
    opened = {g: replace(entries[g], state=State.OPEN, until_ms=None) for g in stopped}
    return _next(route, act, groups={**entries, **opened})


def find_route(
    routes: Mapping[str, Route], source: str, target: str, migration: str | None = None, named: str | None = None
) -> tuple[str, Route | None]:
    """The logical topic whose route this migration moves, with its record (None if there is none yet).

    An application keeps its logical topic for ever, while the topic behind it changes with each migration: the
    record of this migration comes first, then the one whose ``active`` is ``source``, then the one named ``named``,
    which is ``source`` unless the journal knows better: on a way back applications keep the name of the first source.
    Raises ``Refused`` where two logical topics are active on the source: one migration moves one of them only.
    """
    for logical, route in sorted(routes.items()):
        if migration is not None and route.migration == migration and {route.source, route.target} == {source, target}:
            return logical, route
    there = sorted(logical for logical, route in routes.items() if route.active == source)
    if len(there) > 1:
        raise Refused(
            f"The routes of {', '.join(there)} all point to {source}, and a migration moves one of them only: the "
            "others' producers would go on writing. Give their applications one logical topic first."
        )
    logical = there[0] if there else named or source
    return logical, routes.get(logical)


def logical_by_followers(named: str, acks: Iterable[Ack]) -> str:
    """The logical topic of these live instances, which obeyed a route that has no record any more.

    ``named`` where there are none. Raises ``Refused`` where they have several names: one migration moves one of them.
    """
    names = sorted({a.logical for a in acks if a.status is not Status.GONE})
    if len(names) > 1:
        raise Refused(
            f"Applications of one migration follow the routes of {', '.join(names)}, and the records of these "
            "routes are gone, so which one this migration moves cannot be told. Write the right one anew: topicshift "
            "route set."
        )
    return names[0] if names else named
