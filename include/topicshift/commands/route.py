"""``topicshift route``: show where producers write and groups read, and set it by hand in an emergency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import EXIT_NO, answer, console, duration_option, kafka_options, say
from topicshift.core.errors import Refused, SpecError
from topicshift.core.kafka.rules import topic_name_problem

if TYPE_CHECKING:
    from topicshift.core.route.records import Ack, Route


@click.group("route")
def command() -> None:
    """Show or set the route that producers and consumers follow."""


# ------------------------------------------------------------------------------------------------ show


def describe(logical: str, route: Route | None, acks: list[Ack], now: datetime) -> dict[str, Any]:
    """One route with its instances, ready for JSON. ``now`` is the time at the broker."""
    from topicshift.core.route.records import MISSED_HEARTBEATS, Status, route_json, utc_text

    epoch = route.epoch if route else 0
    instances = []
    for ack in sorted(acks, key=lambda a: (a.role, a.participant, a.instance)):
        age_s = now.timestamp() - (ack.broker_ms or 0) / 1000
        silent = ack.status is not Status.GONE and age_s * 1000 > MISSED_HEARTBEATS * ack.heartbeat_ms
        gone = ack.status is Status.GONE or age_s * 1000 > ack.gone_ms
        instances.append(
            {
                "role": ack.role,
                "participant": ack.participant,
                "group": ack.group,
                "instance": ack.instance,
                "principal": ack.principal,
                "status": ack.status.value,
                "topic": ack.topic,
                "epoch": ack.epoch,
                "offsets": {str(p): o for p, o in sorted(ack.offsets.items())},
                "seconds_ago": round(max(0.0, age_s), 1),
                "liveness": "gone" if gone else "silent" if silent else "alive",
                "acknowledged": ack.epoch >= epoch,
                "reason": ack.reason,
            }
        )
    body = route_json(route) if route else None
    paused = route is not None and route.holds(now)
    return {"logical": logical, "route": body, "paused_now": paused, "at": utc_text(now), "instances": instances}


def _print(one: Mapping[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    route = one["route"]
    if route is None:
        out.print(f"[bold]{escape(one['logical'])}[/]: no route record; clients use the topic of that name")
    else:
        state = route["state"]
        if state == "paused":
            state += f" until {route['lease_until']}" + ("" if one["paused_now"] else " (over)")
        out.print(
            f"[bold]{escape(one['logical'])}[/] -> [bold]{escape(route['active'])}[/]: {state}, epoch {route['epoch']}"
        )
        if route["migration"]:
            out.print(
                f"  by {escape(route['migration'])}: {escape(str(route['source']))} -> {escape(str(route['target']))}"
            )
        for group, entry in route["groups"].items():
            out.print(f"  group {escape(group)} reads {escape(entry['topic'])} ({entry['state']})")
    if not one["instances"]:
        out.print("  no instance has reported")
        return
    table = Table("instance", "role", "status", "topic", "epoch", "last seen", box=None, padding=(0, 2, 0, 2))
    for i in one["instances"]:
        seen = f"{i['seconds_ago']:.0f} s ago" + ("" if i["liveness"] == "alive" else f", {i['liveness']}")
        note = f" ({i['reason']})" if i["reason"] else ""
        table.add_row(i["instance"], i["role"], escape(i["status"] + note), i["topic"], str(i["epoch"]), seen)
    out.print(table)


@command.command("show")
@click.option("--topic", "topic", metavar="T", help="The logical topic; every one that has a route by default.")
@kafka_options
def show(topic: str | None, kafka_config: dict[str, Any], as_json: bool) -> int:
    """Where producers write and groups read, and what every instance acknowledged. Read-only.

    Exit codes: 0 shown; 3 there is neither a route nor an instance for the topic; 4 it could not be read.
    """
    from topicshift.adapters.route_store import RouteStore

    if topic is not None and (problem := topic_name_problem(topic)):
        raise SpecError(f"--topic {topic!r} is no topic name: {problem}.")
    with RouteStore(kafka_config) as store:
        routes = store.read_all(only=topic)
        acks = store.all_acks()
        now = datetime.now(UTC)
        names = [topic] if topic is not None else sorted({*routes, *(a.logical for a in acks)})
        shown = [describe(n, routes.get(n), [a for a in acks if a.logical == n], now) for n in names]
    if as_json:
        answer({"routes": shown})
    elif not shown:
        say("There is no route yet, and no client has reported.")
    else:
        for one in shown:
            _print(one)
    found = any(one["route"] or one["instances"] for one in shown)
    if topic is not None and not found:
        say(f"{topic} has no route record and no client has reported for it.")
        return EXIT_NO
    return 0


# ------------------------------------------------------------------------------------------------ set


def changed(
    route: Route | None,
    logical: str,
    *,
    active: str | None,
    state: str | None,
    lease_s: float,
    groups: Mapping[str, str],
    acked_epoch: int,
    now: datetime,
) -> Route:
    """The record that the operator asks for, one epoch above what is there and what was acknowledged. Pure.

    Raises ``SpecError`` when nothing would change.
    """
    from dataclasses import replace

    from topicshift.core.route.records import GroupRoute, Route, State

    base = route or Route(logical, logical, State.OPEN, 0)
    wanted = State(state) if state else base.state
    lease = now + timedelta(seconds=lease_s) if state == "paused" else base.lease_until
    entries = dict(base.groups)
    for group, topic in groups.items():
        before = entries.get(group) or GroupRoute(base.active)
        came = before.topic if before.topic != topic else before.came_from
        entries[group] = GroupRoute(topic, State.OPEN, None, came, before.extra)
    after = replace(
        base,
        active=active or base.active,
        state=wanted,
        lease_until=lease if wanted is State.PAUSED else None,
        groups=entries,
    )
    if route is not None and after == base:
        raise SpecError(f"The route of {logical} is so already; nothing was written.")
    return replace(after, epoch=max(base.epoch, acked_epoch) + 1)


def warnings(before: Route | None, after: Route, now: datetime) -> list[str]:
    """What an operator should know before confirming. Pure."""
    said = []
    old = before.active if before else after.logical
    if before is not None and before.migration and (before.holds(now) or before.state.value == "paused"):
        said.append(f"Migration {before.migration} has paused this route and will be refused from now on.")
    if after.active != old and not (before is not None and before.holds(now)):
        said.append(
            f"Producers run on {old}: pointing them to {after.active} without a pause can put newer records of a key "
            f"before older ones. Pause them first: --state paused."
        )
    for group, entry in after.groups.items():
        was = before.groups[group].topic if before is not None and group in before.groups else old
        if entry.topic != was:
            said.append(
                f"Group {group} moves to {entry.topic}: run `topicshift drain --topic {was} --group {group}` first."
            )
    return said


def _moves(groups: Iterable[str]) -> dict[str, str]:
    moves = {}
    for pair in groups:
        group, _, target = pair.rpartition("=")
        if not group or topic_name_problem(target):
            raise SpecError(f"--group {pair!r} is not of the form GROUP=TOPIC.")
        moves[group] = target
    return moves


@command.command("set")
@click.option("--topic", required=True, metavar="T", help="The logical topic.")
@click.option("--active", metavar="T", help="The topic that producers write to.")
@click.option("--state", type=click.Choice(["open", "paused"]), help="Let producers go on, or stop them.")
@click.option("--lease", "lease", default="60s", metavar="DURATION", show_default=True, help="The longest pause.")
@click.option("--group", "groups", multiple=True, metavar="G=T", help="Release a consumer group to a topic.")
@click.option("--epoch", type=int, metavar="N", help="The epoch you have seen (`route show`), as your confirmation.")
@click.option("--yes", is_flag=True, help="Do not ask; only together with --epoch.")
@kafka_options
def set_(
    topic: str,
    active: str | None,
    state: str | None,
    lease: str,
    groups: tuple[str, ...],
    epoch: int | None,
    yes: bool,
    kafka_config: dict[str, Any],
    as_json: bool,
) -> int:
    """Change a route by hand: for emergencies, when no run of topic_migration can do it.

    A running migration that owns the route is fenced off by the new epoch: stop it first. Exit codes: 0 written; 2
    wrong use; 3 refused, nothing was written; 4 unknown.
    """
    from topicshift.adapters.route_store import RouteStore
    from topicshift.core.route.records import route_json

    for what, name in (("--topic", topic), ("--active", active)):
        if name is not None and (problem := topic_name_problem(name)):
            raise SpecError(f"{what} {name!r} is no topic name: {problem}.")
    if active is None and state is None and not groups:
        raise SpecError("Nothing to set. Give --active, --state or --group.")
    moves = _moves(groups)
    lease_s = duration_option("--lease", lease)
    if yes and epoch is None:
        raise SpecError("--yes needs --epoch N, so that you change what you have seen and nothing newer.")
    with RouteStore(kafka_config) as store:
        route = store.read(topic)
        have = route.epoch if route else 0
        if epoch is not None and epoch != have:
            raise Refused(f"The route of {topic} is at epoch {have}, not {epoch}. Nothing was written. Look again.")
        now = datetime.now(UTC)
        acked = max((a.epoch for a in store.acks(topic)), default=0)
        after = changed(
            route, topic, active=active, state=state, lease_s=lease_s, groups=moves, acked_epoch=acked, now=now
        )
        for name in {t for t in (active, *moves.values()) if t is not None}:
            if not store.exists(name):
                raise Refused(f"Topic {name} does not exist, so nobody could write or read there. Nothing was written.")
        for line in warnings(route, after, now):
            say(f"warning: {line}")
        say(f"{topic}: {route.active if route else topic} {route.state.value if route else '(no route)'}, epoch {have}")
        say(f"  becomes {after.active} {after.state.value}, epoch {after.epoch}")
        if not yes and click.prompt(f"Type the epoch that is replaced ({have}) to confirm", type=int, err=True) != have:
            raise Refused("Not confirmed. Nothing was written.")
        store.write(after, have)
    if as_json:
        answer(route_json(after))
    else:
        say(f"Written. Follow it: topicshift route show --topic {topic}")
    return 0
