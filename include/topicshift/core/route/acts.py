"""What an orchestrator may write into the route next: pause, point, open, for producers and for consumer groups. Pure.

Each function returns the next record, or None where the route is as wanted already; it raises where a guard says no.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.errors import OwnershipLost, Refused
from topicshift.core.route.records import GroupRoute, Route, State, utc_text

LEASE_MARGIN_S = 2.0
"""So much of a lease must be left for a paused route to be pointed elsewhere."""

GROUP_LEASE_S = 60.0
"""The lease of a group's own pause where the freeze's lease is over or absent."""


@dataclass(frozen=True)
class Act:
    """On whose behalf, and when, a route is changed. ``claim``: the journal's epoch; ``lease_until`` ends a pause."""

    logical: str
    source: str
    target: str
    migration: str
    claim: int
    now: datetime
    lease_until: datetime | None = None
    acked_epoch: int = 0
    """The highest epoch that any instance has acknowledged: a route that lost its record goes on above it."""


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
    paused = [g for g, e in route.groups.items() if e.holds(act.now)]
    if route.holds(act.now) or paused:
        what = f"groups {', '.join(paused)}" if paused else "its producers"
        raise Refused(
            f"The route of {route.logical} is paused ({what}) by migration {route.migration} at epoch {route.epoch}. "
            "Wait until that run is done or its lease has run out."
        )
    if not takes_over:
        raise Refused(
            f"The route of {route.logical} belongs to migration {route.migration} at epoch {route.epoch}, not to "
            f"{act.migration}: another run has taken it over since. Nothing was changed."
        )


def _next(route: Route | None, act: Act, **changes: Any) -> Route:
    base = route or Route(act.logical, act.source, State.OPEN, 0)
    return replace(
        base,
        epoch=max(base.epoch, act.acked_epoch) + 1,
        source=act.source,
        target=act.target,
        migration=act.migration,
        claim=act.claim,
        **changes,
    )


def _held(route: Route | None, groups: Collection[str], topic: str) -> dict[str, GroupRoute]:
    """The groups of the record, with those that have no entry yet held to ``topic``."""
    entries = dict(route.groups) if route else {}
    return {**{g: GroupRoute(topic) for g in sorted(groups) if g not in entries}, **entries}


def pause_producers(route: Route | None, act: Act, groups: Collection[str] = ()) -> Route | None:
    """The record that pauses the producers where they are, or None if they are paused already, with this lease.

    ``groups`` are consumer groups that read the source: those without an entry are held to it, so that none follows
    ``active`` before it is released. A later lease renews a pause at the same epoch while that has not run out.
    Raises ``Refused`` without a lease, for one that is over, and when the producers are not on the source (on one of
    two topics, once the route is this migration's own: that is how a rollback stops them on the target).
    """
    _owned(route, act, takes_over=True)
    if act.lease_until is None or act.lease_until <= act.now:
        raise Refused(
            f"Producers of {act.logical} are not paused without a lease that lies ahead (lease_until="
            f"{act.lease_until and utc_text(act.lease_until)}): if this run died they would stand still for ever."
        )
    own = route is not None and route.migration == act.migration
    if route is not None and route.active != act.source and not (own and route.active == act.target):
        raise Refused(
            f"Producers of {act.logical} are on {route.active}, not on {act.source}, which this migration moves. "
            f"Name {route.active} as the source."
        )
    if route is not None and own and route.holds(act.now):
        if route.lease_until is not None and act.lease_until <= route.lease_until and route.claim == act.claim:
            return None
        until = max(act.lease_until, route.lease_until or act.lease_until)
        return replace(route, lease_until=until, claim=act.claim)
    return _next(route, act, state=State.PAUSED, lease_until=act.lease_until, groups=_held(route, groups, act.source))


def point_producers(route: Route | None, act: Act, topic: str) -> Route | None:
    """The record that points paused producers to ``topic``, or None if they are pointed there already.

    Raises ``Refused`` unless they are paused by this migration and its lease lasts for the margin at least: producers
    whose lease runs out go on by themselves, some on the old record and some on the new.
    """
    if route is not None and route.active == topic and (route.state is State.OPEN or route.migration == act.migration):
        _owned(route, act, takes_over=True)
        return None
    if route is None and topic == act.source:
        return None
    _owned(route, act, takes_over=False)
    if route is None or route.state is not State.PAUSED or route.lease_until is None:
        where = route.active if route else act.source
        raise Refused(
            f"Producers of {act.logical} run on {where}; pointing them to {topic} without a pause would cross the "
            "order of keys. Stop them first."
        )
    left = (route.lease_until - act.now).total_seconds()
    if left < LEASE_MARGIN_S:
        raise Refused(
            f"The lease of the pause of {act.logical} has {left:.1f} s left, less than the margin of "
            f"{LEASE_MARGIN_S:g} s, so producers may go on with {route.active} by themselves. Not pointed to {topic}."
        )
    return _next(route, act, active=topic)


def last_moment(route: Route | None, wanted: Route, now: datetime) -> datetime | None:
    """When it is too late to write ``wanted`` over ``route``: paused producers are pointed within their lease only.

    A write may have to be tried again for longer than the decision's margin lasts. None where no lease is in the way.
    """
    if route is None or not route.holds(now) or route.lease_until is None or wanted.active == route.active:
        return None
    return route.lease_until - timedelta(seconds=LEASE_MARGIN_S)


def open_producers(route: Route | None, act: Act) -> Route | None:
    """The record that lets the producers go on with ``active``, or None if they may already.

    An open record of an older claim of this migration is written anew: an act that was begun under that claim, and is
    late, is refused from then.
    """
    _owned(route, act, takes_over=True)
    if route is None or (route.state is State.OPEN and (route.migration != act.migration or route.claim == act.claim)):
        return None
    return _next(route, act, state=State.OPEN, lease_until=None)


def _group_lease(act: Act) -> datetime:
    least = act.now + timedelta(seconds=GROUP_LEASE_S)
    return least if act.lease_until is None else max(least, act.lease_until)


def group_entry(route: Route | None, group: str, logical: str) -> GroupRoute:
    """Where a group reads: its entry, or else the active topic, or else the logical topic itself."""
    if route is None:
        return GroupRoute(logical)
    return route.groups.get(group) or GroupRoute(route.active)


def pause_groups(route: Route | None, act: Act, groups: Collection[str]) -> Route | None:
    """The record that stops consumer groups where they are (they commit and leave), or None if they are stopped."""
    _owned(route, act, takes_over=True)
    entries = _held(route, groups, act.source)
    if all(entries[g].holds(act.now) for g in groups):
        return None
    stopped = {g: replace(entries[g], state=State.PAUSED, lease_until=_group_lease(act)) for g in groups}
    return _next(route, act, groups={**entries, **stopped})


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
    stopped = [g for g in groups if g in route.groups and route.groups[g].state is State.PAUSED]
    if not stopped:
        return None
    opened = {g: replace(route.groups[g], state=State.OPEN, lease_until=None) for g in stopped}
    return _next(route, act, groups={**route.groups, **opened})


def find_route(
    routes: Mapping[str, Route], source: str, target: str, migration: str | None = None
) -> tuple[str, Route | None]:
    """The logical topic whose route this migration moves, with its record (None if there is none yet).

    An application keeps its logical topic for ever, while the topic behind it changes with each migration: the
    record of this migration comes first, then the one whose ``active`` is ``source``, then the one named ``source``.
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
    return (there[0], routes[there[0]]) if there else (source, routes.get(source))
