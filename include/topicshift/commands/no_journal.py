"""What can be told and done while the journal cannot be read: the route's record says who paused it, and where it is.

Only the route is opened: which DENY bindings are a migration's stands in its journal. They are named for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import EXIT_OK, answer, open_journal, say, tell
from topicshift.core.errors import NotFound, Refused, SpecError, Transient, Unreadable

if TYPE_CHECKING:
    from topicshift.adapters.route_store import RouteStore
    from topicshift.core.route.records import Route
    from topicshift.ports import ClusterAdmin


lost_option = click.option(
    "--without-journal",
    "lost",
    is_flag=True,
    help="The journal is lost: go by the route's record. Refused where there is a journal that can be read.",
)


def why_dead(journal_url: str | None, *, lost: bool = False) -> str | None:
    """Why the journal cannot be read; None where it can.

    Where there is none of this name, another one may be meant: that is a reason only where a person says ``lost``.
    Raises ``SpecError`` where one that is said to be lost can be read.
    """
    try:
        journal = open_journal(journal_url)
        try:
            journal.find(active=True)
        finally:
            journal.close()
    except Unreadable as error:
        return str(error)
    except NotFound as error:
        return str(error) if lost else None
    if lost:
        raise SpecError("The journal can be read, and knows more than the route. Leave --without-journal out.")
    return None


def routes_of(store: RouteStore, wanted: str | None) -> list[Route]:
    """The routes that a migration has written, of this id or topic. Raises ``Unreadable`` for one not understood."""
    routes, bad = store.read_all()
    if wanted in bad:
        raise Unreadable(f"The route of {wanted} is not understood: {bad[str(wanted)]}. See: topicshift route show.")
    return [
        r
        for r in routes.values()
        if r.migration is not None and wanted in (None, r.migration, r.logical, r.source, r.target)
    ]


def told(route: Route, now_ms: int) -> dict[str, Any]:
    """What the record says of its migration."""
    from topicshift.commands.route import time_text

    return {
        "migration": route.migration,
        "claim": route.claim,
        "source": route.source,
        "target": route.target,
        "producers_on": route.active,
        "paused_until": time_text(route.until_ms) if route.holds(now_ms) and route.until_ms is not None else None,
        "groups": {name: g.topic for name, g in route.groups.items()},
        "route_epoch": route.epoch,
    }


def status(kafka_config: Mapping[str, Any], wanted: str | None, dead: str, *, as_json: bool) -> int:
    """Print what the routes say."""
    from topicshift.adapters.route_store import RouteStore
    from topicshift.commands.route import brokers_time

    say(f"The journal cannot be read: {dead} What follows is what the route's record says.")
    with RouteStore(kafka_config) as store:
        now_ms = brokers_time(store)[0]
        found = [told(route, now_ms) for route in routes_of(store, wanted)]
    if as_json:
        answer({"journal": dead, "migrations": [], "routes": found})
        return EXIT_OK
    for one in found:
        pause = f"paused until {one['paused_until']}" if one["paused_until"] else "not paused"
        tell(f"{one['migration']}: producers of {one['source']} are on {one['producers_on']}, {pause}")
        for group, topic in one["groups"].items():
            tell(f"  group {group} reads {topic}")
    if not found:
        tell("No route was written by a migration" + (f" of {wanted}." if wanted else "."))
    return EXIT_OK


def resume_on_source(kafka_config: Mapping[str, Any], wanted: str, dead: str, *, what: bool, as_json: bool) -> int:
    """Let producers on the route go on with the source, under the next claim of the migration that paused them.

    Raises ``Refused`` where they were pointed to the target, or it holds records.
    """
    from topicshift.adapters.kafka.admin import KafkaAdmin
    from topicshift.adapters.route_store import RouteStore
    from topicshift.commands.route import brokers_time

    say(f"The journal cannot be read: {dead} The route's record is gone by.")
    with RouteStore(kafka_config) as store, KafkaAdmin(dict(kafka_config)) as admin:
        found = routes_of(store, wanted)
        if len(found) != 1:
            names = ", ".join(str(r.migration) for r in found) or "none"
            raise NotFound(f"{wanted!r} names {names} of the migrations that have written a route. Name one.")
        route = found[0]
        after = opened(route, brokers_time(store), used_of(admin, route.target))
        left = leftovers(admin, route)
        done = "nothing: producers are not paused" if after is None else f"producers go on with {route.source}"
        if after is not None and not what:
            store.write(after, route.epoch)
    said = {"migration": route.migration, "journal": dead, "done" if not what else "would": done, "left": left}
    if as_json:
        answer(said)
    else:
        tell(f"{route.migration}: {'would do: ' if what else ''}{done}")
        for line in left:
            tell(f"  left to do: {line}")
    return EXIT_OK


def opened(route: Route, now_ms: tuple[int, int], used: int | None) -> Route | None:
    """The record that ends the pause, None where none is. Raises ``Refused`` or ``Unreadable``. Pure."""
    from topicshift.core.route.acts import Act, open_producers
    from topicshift.core.route.records import State

    if route.state is not State.PAUSED:
        return None
    source, target = route.source or route.logical, str(route.target)
    if route.active != source:
        raise Refused(
            f"Producers of {route.logical} were pointed to {route.active} already: going back could put newer records "
            "of a key before older ones. Nothing was changed. Wait for the journal, then look at topicshift status."
        )
    if used is None:
        raise Unreadable(f"Whether {target} is empty cannot be told, so nobody goes back. Nothing was changed.")
    if used:
        raise Refused(_holds_records(route, source, target, used))
    act = Act(route.logical, source, target, str(route.migration), route.claim + 1, now_ms, acked_epoch=route.epoch)
    return open_producers(replace(route, voided=None), act)


def _holds_records(route: Route, source: str, target: str, used: int) -> str:
    from topicshift.commands.route import time_text

    whose = (
        f"This is the freeze of a way back to {target}, which held records before: they do not tell whether somebody "
        "is on it again"
        if target == route.logical
        else "Somebody may be on it already"
    )
    ends = f", at {time_text(route.until_ms)}" if route.until_ms is not None else ""
    return (
        f"{target} holds {used} record(s). {whose}, and only the journal can tell. Nothing was changed. The pause ends "
        f"by itself{ends}: producers that follow the route go on with {source} then. Not to wait, look at each "
        f"producer; if none is on {target}: topicshift route set --topic {route.logical} --state open."
    )


def used_of(admin: ClusterAdmin, target: str | None) -> int | None:
    """Offsets that were written to the target: 0 where it does not exist, None where it cannot be read."""
    try:
        if target is None or admin.topic(target) is None:
            return 0
        ends = [o.end for o in admin.offsets(target).values()]
    except Transient:
        return None
    return None if any(e is None for e in ends) else sum(e for e in ends if e is not None)


def leftovers(admin: ClusterAdmin, route: Route) -> list[str]:
    """What only the journal could have taken back."""
    try:
        acls = admin.acls()
    except Unreadable as error:
        return [f"whether writes to {route.source} are denied could not be read: {error}"]
    denied = sorted(
        a.principal
        for a in acls
        if (a.resource_type, a.name, a.operation, a.permission) == ("TOPIC", route.source, "WRITE", "DENY")
    )
    lines = [f"WRITE on {route.source} is denied for {', '.join(denied)}: see which of it the migration added"]
    return [
        *(lines if denied else []),
        "producers that do not follow the route: see that each runs again",
        f"once the journal is back: topicshift resume-on-source {route.migration}",
    ]
