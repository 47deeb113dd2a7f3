"""``topicshift route``: show where producers write and groups read, set it by hand, see to its topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands.common import EXIT_NO, answer, console, escape, kafka_options, say, tell
from topicshift.core.errors import Refused, SpecError, Unreadable
from topicshift.core.kafka.rules import topic_name_problem

if TYPE_CHECKING:
    from topicshift.adapters.route_store import RouteStore
    from topicshift.core.route.judge import Scene
    from topicshift.core.route.records import Route


@click.group("route")
def command() -> None:
    """The route that producers and consumers follow: show it, set it, see to its topics and instances."""


# ------------------------------------------------------------------------------------------------ show


def describe(one: Scene, why_bad: str | None) -> dict[str, Any]:
    """One route with its instances, ready for JSON. ``why_bad``: the record is there and is not understood."""
    from topicshift.core.route.judge import is_gone, is_silent
    from topicshift.core.route.records import route_json

    route, now_ms = one.route, one.now_ms
    epoch = route.epoch if route else 0
    instances = []
    for ack in sorted(one.acks, key=lambda a: (a.role, a.participant, a.instance)):
        gone, silent = is_gone(ack, now_ms), is_silent(ack, now_ms)
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
                "armed": ack.armed,
                "offsets": {str(p): o for p, o in sorted(ack.offsets.items())},
                "seconds_ago": round(max(0, now_ms[0] - (ack.broker_ms or 0)) / 1000, 1),
                "gone_ms": ack.gone_ms,
                "liveness": "gone" if gone else "silent" if silent else "alive",
                "acknowledged": ack.epoch >= epoch,
                "reason": ack.reason,
            }
        )
    return {
        "logical": one.logical,
        "route": route_json(route) if route else None,
        "not_understood": why_bad,
        "void": route.voided if route else None,
        "paused_now": route is not None and route.holds(now_ms[1]),
        "at": time_text(now_ms[0]),
        "instances": instances,
        "instances_not_understood": [{"instance": b.instance, "reason": b.why} for b in one.bad],
    }


def time_text(ms: int) -> str:
    """A time of the brokers for a person: ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print(one: Mapping[str, Any]) -> None:
    from rich.table import Table

    out = console()
    route, name = one["route"], escape(one["logical"])
    if one["not_understood"]:
        out.print(f"[bold]{name}[/]: the record is not understood: {escape(one['not_understood'])}")
    elif route is None:
        out.print(f"[bold]{name}[/]: no route record; clients use the topic of that name")
    else:
        state = route["state"]
        if state == "paused":
            state += f" until {time_text(route['until_ms'])}" + ("" if one["paused_now"] else " (over)")
        armed = ", armed" if route["armed"] else ""
        out.print(f"[bold]{name}[/] -> [bold]{escape(route['active'])}[/]: {state}{armed}, epoch {route['epoch']}")
        if one["void"]:
            out.print(f"  the record that points producers to {escape(one['void'])} came too late and is void")
        if route["migration"]:
            out.print(
                f"  by {escape(route['migration'])}: {escape(str(route['source']))} -> {escape(str(route['target']))}"
            )
        for group, entry in route["groups"].items():
            out.print(f"  group {escape(group)} reads {escape(entry['topic'])} ({entry['state']})")
    for bad in one["instances_not_understood"]:
        out.print(f"  {escape(bad['instance'])}: its last word is not understood: {escape(bad['reason'])}")
    if not one["instances"]:
        out.print("  no instance has reported")
        return
    table = Table("instance", "role", "status", "topic", "epoch", "last seen", box=None, padding=(0, 2, 0, 2))
    for i in one["instances"]:
        seen = f"{i['seconds_ago']:.0f} s ago" + ("" if i["liveness"] == "alive" else f", {i['liveness']}")
        note = f" ({i['reason']})" if i["reason"] else ""
        table.add_row(escape(i["instance"]), i["role"], escape(i["status"] + note), i["topic"], str(i["epoch"]), seen)
    out.print(table)


@command.command("show")
@click.option("--topic", "topic", metavar="T", help="The logical topic; every one that has a route by default.")
@kafka_options
def show(topic: str | None, kafka_config: dict[str, Any], as_json: bool) -> int:
    """Where producers write and groups read, and what every instance acknowledged.

    Writes one record to learn the brokers' time; without that right ages count by this machine's clock, which is said.
    Exit codes: 0 shown; 3 there is neither a route nor an instance for the topic; 4 it could not be read.
    """
    from topicshift.adapters.route_store import RouteStore
    from topicshift.core.route.judge import Scene

    if topic is not None and (problem := topic_name_problem(topic)):
        raise SpecError(f"--topic {topic!r} is no topic name: {problem}.")
    with RouteStore(kafka_config) as store:
        routes, bad = store.read_all()
        acks, unread = store.all_acks()
        now_ms = brokers_time(store) if acks else (0, 0)
        names = sorted({*routes, *bad, *(a.logical for a in acks), *(u.logical for u in unread)})
        names = names if topic is None else [topic]
        shown = [
            describe(
                Scene(
                    name,
                    routes.get(name),
                    [a for a in acks if a.logical == name],
                    [u for u in unread if u.logical == name],
                    now_ms,
                ),
                bad.get(name),
            )
            for name in names
        ]
    if as_json:
        answer({"routes": shown})
    elif not shown:
        say("There is no route yet, and no client has reported.")
    else:
        for one in shown:
            _print(one)
    found = any(one["route"] or one["not_understood"] or one["instances"] for one in shown)
    if topic is not None and not found:
        say(f"{topic} has no route record and no client has reported for it.")
        return EXIT_NO
    return 0


def brokers_time(store: RouteStore) -> tuple[int, int]:
    """Bounds of the brokers' time, ms; those of this machine, which is said, where they do not tell it."""
    try:
        return store.broker_now()
    except Unreadable as exc:
        say(f"The brokers' time is not known, so ages count by this machine's clock: {exc}")
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        return now_ms, now_ms


# ------------------------------------------------------------------------------------------------ topics, instances


@command.command("init")
@click.option("--check", "only_check", is_flag=True, help="Only look; change nothing.")
@kafka_options
def init(only_check: bool, kafka_config: dict[str, Any], as_json: bool) -> int:
    """Make both topics of the route as the protocol needs them, or mend those that are there.

    Exit codes: 0 they are right; 3 something is wrong that no config mends, or with --check: something is wrong; 4
    unknown.
    """
    from topicshift.adapters.route_store import RouteStore

    with RouteStore(kafka_config) as store:
        done = [] if only_check else store.ensure_topics()
        problems = [
            *(
                f"{name} does not exist: nobody can follow a route. Run topicshift route init."
                for name in store.missing()
            ),
            *store.check(),
        ]
    if as_json:
        answer({"done": done, "problems": problems})
        return EXIT_NO if problems else 0
    for line in (*done, *problems):
        tell(line)
    if not problems:
        tell("Both topics of the route are right." if not only_check else "Nothing is wrong with the route's topics.")
    return EXIT_NO if problems else 0


@command.command("dismiss")
@click.argument("topic")
@click.argument("instance")
@click.option("--yes", is_flag=True, help="Do not ask.")
@kafka_options
def dismiss(topic: str, instance: str, yes: bool, kafka_config: dict[str, Any], as_json: bool) -> int:
    """Say that INSTANCE of the logical TOPIC is dead, so that nobody waits for it any more.

    For one that was killed, or whose acknowledgement is not understood. One that is alive says so again within seconds.
    Exit codes: 0 dismissed; 3 it is alive, or not known; 4 unknown.
    """
    from topicshift.adapters.route_store import RouteStore
    from topicshift.core.route.judge import is_gone, is_silent

    with RouteStore(kafka_config) as store:
        acks, bad = store.all_acks()
        known = [a for a in acks if (a.logical, a.instance) == (topic, instance)]
        if not known and not any((b.logical, b.instance) == (topic, instance) for b in bad):
            raise Refused(f"No instance {instance} has reported on the route of {topic}. See: topicshift route show.")
        now_ms = store.broker_now()
        if any(not is_gone(a, now_ms) and not is_silent(a, now_ms) for a in known):
            raise Refused(f"{instance} is alive: it reported within its last heartbeats. Stop it, then say so again.")
        say(f"If {instance} still runs, it can write to the old topic after a switch.")
        if not yes and click.prompt("Type its name to confirm that it is dead", err=True) != instance:
            raise Refused("Not confirmed. Nothing was written.")
        store.dismiss(topic, instance)
    if as_json:
        answer({"dismissed": instance, "logical": topic})
    else:
        say(f"{instance} is dismissed.")
    return 0


# ------------------------------------------------------------------------------------------------ set


@dataclass(frozen=True)
class Change:
    """What the operator wants: None, or empty, leaves it as it is. ``lease_ms`` is the length of a new pause."""

    active: str | None = None
    state: str | None = None
    armed: bool | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    lease_ms: int = 60_000


def changed(route: Route | None, logical: str, change: Change, acked_epoch: int) -> Route:
    """The record that the operator asks for, one epoch above what is there and what was acknowledged. Pure.

    Raises ``SpecError`` when nothing would change.
    """
    from topicshift.core.route.acts import next_epoch
    from topicshift.core.route.records import GroupRoute, Route, State

    base = route or Route(logical, logical, State.OPEN, 0)
    base = replace(base, lease_ms=None, valid_before_ms=None, else_active=None, broker_ms=None, voided=None)
    epoch = next_epoch(route, acked_epoch)
    entries = {name: replace(g, lease_ms=None) for name, g in base.groups.items()}
    for group, topic in change.groups.items():
        before = entries.get(group) or GroupRoute(base.active)
        came = before.topic if before.topic != topic else before.came_from
        entries[group] = GroupRoute(topic, came_from=came, extra=before.extra)
    after = replace(base, active=change.active or base.active, groups=entries)
    if change.armed is not None:
        after = replace(after, armed=(base.armed or epoch) if change.armed else 0)
    if change.state == "open":
        after = replace(after, state=State.OPEN, until_ms=None)
    elif change.state == "paused":
        after = replace(after, state=State.PAUSED, lease_ms=change.lease_ms, until_ms=None, pause=epoch)
    if route is not None and after == replace(
        base, groups={n: replace(g, lease_ms=None) for n, g in base.groups.items()}
    ):
        raise SpecError(f"The route of {logical} is so already; nothing was written.")
    return replace(after, epoch=epoch)


def warnings(before: Route | None, after: Route, now_ms: int) -> list[str]:
    """What an operator should know before confirming. Pure."""
    said = []
    old = before.active if before else after.logical
    if before is not None and before.migration and before.state.value == "paused":
        said.append(f"Migration {before.migration} has paused this route and will be refused from now on.")
    if after.active != old and not (before is not None and before.holds(now_ms)):
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


def _change(active: str | None, state: str | None, armed: bool | None, groups: tuple[str, ...], lease: str) -> Change:
    """The words of the command line. Raises ``SpecError`` for what cannot be meant."""
    from topicshift.core.spec.duration import parse_duration

    if active is None and state is None and armed is None and not groups:
        raise SpecError("Nothing to set. Give --active, --state, --armed or --group.")
    moves = {}
    for pair in groups:
        group, _, target = pair.rpartition("=")
        if not group or topic_name_problem(target):
            raise SpecError(f"--group {pair!r} is not of the form GROUP=TOPIC.")
        moves[group] = target
    try:
        lease_s = parse_duration(lease).total_seconds()
    except ValueError as exc:
        raise SpecError(f"--lease: {exc}.") from None
    if lease_s <= 0:
        raise SpecError("--lease must be longer than nothing: a pause has an end.")
    return Change(active, state, armed, moves, int(lease_s * 1000))


@command.command("set")
@click.option("--topic", required=True, metavar="T", help="The logical topic.")
@click.option("--active", metavar="T", help="The topic that producers write to.")
@click.option("--state", type=click.Choice(["open", "paused"]), help="Let producers go on, or stop them.")
@click.option("--lease", "lease", default="60s", metavar="DURATION", show_default=True, help="The longest pause.")
@click.option("--armed/--disarmed", default=None, help="Let producers go blind after 10 s without contact, or 15 min.")
@click.option("--group", "groups", multiple=True, metavar="G=T", help="Release a consumer group to a topic.")
@click.option("--epoch", type=int, metavar="N", help="The epoch you have seen (`route show`), as your confirmation.")
@click.option("--yes", is_flag=True, help="Do not ask; only together with --epoch.")
@kafka_options
def set_(
    topic: str,
    active: str | None,
    state: str | None,
    lease: str,
    armed: bool | None,
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
    from topicshift.core.route.acts import obeyed_epoch
    from topicshift.core.route.records import route_json

    for what, name in (("--topic", topic), ("--active", active)):
        if name is not None and (problem := topic_name_problem(name)):
            raise SpecError(f"{what} {name!r} is no topic name: {problem}.")
    change = _change(active, state, armed, groups, lease)
    if yes and epoch is None:
        raise SpecError("--yes needs --epoch N, so that you change what you have seen and nothing newer.")
    with RouteStore(kafka_config) as store:
        routes, bad = store.read_all()
        route = routes.get(topic)
        have = route.epoch if route else 0
        if epoch is not None and epoch != have:
            raise Refused(f"The route of {topic} is at epoch {have}, not {epoch}. Nothing was written. Look again.")
        if topic in bad and not active:
            raise SpecError(
                f"The record of {topic} is not understood ({bad[topic]}), so where its producers write is not known. "
                "Name that topic: --active T."
            )
        acked = obeyed_epoch(route, (a for a in store.all_acks()[0] if a.logical == topic))
        after = changed(route, topic, change, acked)
        for name in {t for t in (active, *change.groups.values()) if t is not None}:
            if not store.exists(name):
                raise Refused(f"Topic {name} does not exist, so nobody could write or read there. Nothing was written.")
        cautions = warnings(route, after, brokers_time(store)[1] if route else 0)
        for line in cautions:
            say(f"warning: {line}")
        say(f"{topic}: {route.active if route else topic} {route.state.value if route else '(no route)'}, epoch {have}")
        say(f"  becomes {after.active} {after.state.value}, epoch {after.epoch}")
        if not yes and click.prompt(f"Type the epoch that is replaced ({have}) to confirm", type=int, err=True) != have:
            raise Refused("Not confirmed. Nothing was written.")
        written = store.write(after, have, over_bad=topic in bad)
    if as_json:
        answer({**route_json(written), "replaced_epoch": have, "warnings": cautions})
    else:
        say(f"Written. Follow it: topicshift route show --topic {topic}")
    return 0
