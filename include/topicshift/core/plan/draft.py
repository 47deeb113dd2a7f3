"""A first spec for a topic, from one look at the world: where each line comes from, and what was not seen. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from topicshift.core.checks.snapshot import PARTS, Snapshot
from topicshift.core.drain.discovery import discover, subscribes
from topicshift.core.fence.acls import ANYBODY, writers
from topicshift.core.kafka import mirror
from topicshift.core.kafka.cluster import GroupInfo
from topicshift.core.kafka.connect import Connector, group_of, names_too, topics_of
from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC, next_target_name
from topicshift.core.kafka.streams import internal_topics, is_streams
from topicshift.core.route.fields import MAX_NAME
from topicshift.core.route.judge import Follower
from topicshift.core.spec.io import InvalidSpec, spec_from_params
from topicshift.core.text import one_line, printable_json

NEVER_SEEN = (
    "Readers that commit nothing to Kafka (a Flink or Spark job with its own checkpoint, a consumer that assigns its "
    "partitions itself): no broker lists them. Name them under readers, or ask their owners.",
    "Writers without idempotence (acks=0 or 1), and super users, who need no ACL: no broker lists them.",
    "What starts and stops an application (a Deployment, a Flink job): only the route and Connect are asked.",
)
"""What no look at a cluster shows, on any cluster."""


TARGETS_THERE = "Names of targets that exist already:"
TARGETS_FREE = "Names of targets that were free:"
"""Titles of the names that were looked for among the topics: the page to begin from reads them again."""

JUST_NOW_MS = 60_000
"""Milliseconds since the last record for which a producer counts as one that writes now."""


@dataclass(frozen=True)
class Connectors:
    """The connectors of one Kafka Connect connection, or why they could not be read."""

    connection: str
    found: tuple[Connector, ...] = ()
    unread: str = ""


@dataclass(frozen=True)
class Line:
    """One participant (or other entry) of the draft, and where it comes from."""

    values: Mapping[str, Any]
    why: str


@dataclass(frozen=True)
class Draft:
    """A first spec. ``left_out``: what was seen and is not in it; ``unseen``: what could not be seen here, by name.

    ``unread``: whether some of that is there and could not be read. ``blind``: what no look at a cluster shows.
    ``targets_there`` and ``targets_free``: the names that were looked for; both are empty where topics are not known.
    """

    topic: str
    cluster_id: str
    taken_at: str
    partitions: int
    partitions_why: str
    connection: str
    producers: tuple[Line, ...] = ()
    consumers: tuple[Line, ...] = ()
    left_out: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    unread: bool = False
    targets_there: tuple[str, ...] = ()
    targets_free: tuple[str, ...] = ()
    blind: tuple[str, ...] = field(default=NEVER_SEEN)

    def values(self) -> dict[str, Any]:
        """The spec's values."""
        return {
            "apiVersion": "topicshift/v1",
            "source": self.topic,
            "partitions": self.partitions,
            "kafka_conn_id": self.connection,
            "producers": [dict(line.values) for line in self.producers],
            "consumers": [dict(line.values) for line in self.consumers],
        }

    def problems(self) -> list[str]:
        """What keeps it from being a valid spec as it is, one line each; empty where nothing does."""
        try:
            spec_from_params(self.values())
        except InvalidSpec as error:
            return [str(problem) for problem in error.problems]
        return []

    def yaml(self) -> str:
        """The draft as a file, with a comment on each line that says where it comes from."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        where = f"as seen at {self.taken_at} on cluster {one_line(self.cluster_id)}"
        yield f"# A first spec for {one_line(self.topic)}, {where}."
        yield "# Read each comment, correct what is wrong, then: topicshift lint FILE; topicshift plan FILE"
        yield "apiVersion: topicshift/v1"
        yield f"source: {_scalar(self.topic)}"
        yield f"partitions: {self.partitions}  # {self.partitions_why}"
        yield f"kafka_conn_id: {_scalar(self.connection)}  # the Airflow connection: is it yours?"
        for name, lines, none in (
            ("producers", self.producers, "nobody that writes could be named; name every writer"),
            ("consumers", self.consumers, "nobody that reads could be named; name every reader with its group"),
        ):
            yield f"{name}:" if lines else f"{name}: []  # {none}"
            for line in lines:
                yield f"  # {one_line(line.why)}"
                yield "  - " + printable_json(json.dumps(dict(line.values), ensure_ascii=False))
        yield from _comments(TARGETS_THERE, self.targets_there)
        yield from _comments(TARGETS_FREE, self.targets_free)
        yield from _comments("Seen, and left out:", self.left_out)
        yield from _comments("Could not be seen here:", self.unseen)
        yield from _comments("Is never seen in a cluster:", self.blind)


def _scalar(text: str) -> str:
    return json.dumps(text)


def _comments(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"# {title}"
    for line in lines:
        yield f"#   - {one_line(line)}"


@dataclass(frozen=True)
class Wish:
    """What the caller says: the Airflow connection, a partition count (None: twice the source's), and why.

    ``targets``: names of targets to look for, beside those that a plan would give by itself.
    """

    connection: str = "kafka_default"
    partitions: int | None = None
    why: str = ""
    targets: tuple[str, ...] = ()


def draft(topic: str, seen: Snapshot, connectors: Sequence[Connectors] | None, wish: Wish = Wish()) -> Draft:
    """The draft from one look. ``connectors`` None: no Kafka Connect was named, so none was asked.

    Raises ``ValueError`` where the source or the cluster is not in the snapshot.
    """
    if seen.source is None or seen.cluster is None:
        raise ValueError("a draft needs the source and its cluster")
    count, why = wish.partitions, wish.why
    if count is None:
        count = 2 * seen.source.partitions
        why = f"twice the source's {seen.source.partitions}, a guess: topicshift size works it out from rates"
    named = [(c.connection, one) for c in connectors or () for one in c.found]
    consumers, out_readers = _consumers(topic, seen, named)
    producers, out_writers = _producers(topic, seen, named)
    there, free = _targets(topic, seen, wish.targets)
    return Draft(
        topic,
        seen.cluster.cluster_id,
        seen.taken_at,
        count,
        why,
        wish.connection,
        tuple(producers),
        tuple(consumers),
        (*out_writers, *out_readers),
        tuple(_unseen(topic, seen, connectors)),
        bool(seen.unread)
        or any(c.unread for c in connectors or ())
        or (seen.groups is not None and not seen.groups.complete),
        targets_there=there,
        targets_free=free,
    )


def _targets(topic: str, seen: Snapshot, wanted: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the names wanted, and of those that a plan would give, the ones that exist and the ones that do not."""
    if seen.topics is None:
        return (), ()
    # A name that differs from a topic's in "." and "_" alone is not free, and is no topic either.
    given, passed = next_target_name(topic, ()), list[str]()
    proposed = next_target_name(topic, seen.topics)
    while given != proposed:
        passed.append(given)
        given = next_target_name(topic, passed)
    names = list(dict.fromkeys([*passed, *wanted]))
    there = tuple(name for name in names if name in seen.topics)
    free = tuple(dict.fromkeys([proposed, *(name for name in wanted if name not in seen.topics)]))
    return there, free


# ------------------------------------------------------------------------------------------------------ writers


def _producers(topic: str, seen: Snapshot, named: Sequence[tuple[str, Connector]]) -> tuple[list[Line], list[str]]:
    taken: set[str] = set()
    lines = [_route_producer(f, taken) for f in _route(seen, "producer")]
    on_route = {f.principal for f in seen.followers or () if f.role == "producer" and f.principal}
    instances = sum(len(f.instances) for f in seen.followers or () if f.role == "producer")
    for connection, one in named:
        setting = next((k for k in ("topic", "kafka.topic", "topics") if one.config.get(k) == topic), None)
        copies = mirror.kind_of(one.config) != ""
        if one.role == "producer" and not copies and (setting or names_too(one.config, topic, set())):
            settings = _settings(connection, one)
            settings |= {"topic_setting": setting} if setting and setting != "topic" else {}
            values = {"name": _name(one.name, taken), "kind": "connect", "settings": settings}
            lines.append(Line(values, f"source connector of {connection}, whose settings name the topic"))
    now_ms = datetime.fromisoformat(seen.taken_at).timestamp() * 1000
    active = {p.producer_id for p in seen.producers or () if now_ms - p.last_timestamp_ms <= JUST_NOW_MS}
    more = len(active) > instances
    said = [
        f"{len(active)} idempotent producers have written within the last minute, and {instances} instance(s) are on "
        "the route: Kafka does not tell who the others are (one that was just restarted counts twice)."
    ] * (more and bool(lines))
    out: list[str] = []
    for principal in writers(seen.acls or (), topic):
        if principal in on_route:
            continue
        if principal == ANYBODY:
            out.append("An ACL lets everybody (User:*) write, so writers cannot be listed.")
        elif more or not lines:
            values = {"name": _name(principal.partition(":")[2], taken), "kind": "manual", "principal": principal}
            lines.append(Line(values, f"{principal} may write (ACL); {_unreported(seen)}"))
        else:
            out.append(
                f"{principal} may write (ACL), and nothing shows that it does. Declare its application under "
                "producers, or take the right from it; the freeze denies it."
            )
    return lines, said + out


def _unreported(seen: Snapshot) -> str:
    """What to do about an application that reports nowhere: whether it follows the route cannot be told."""
    why = "no instance of it has reported on the route, so a person stops and starts it. Does it follow the route? "
    found = seen.route_topics
    if found is not None and not {ROUTES_TOPIC, ACKS_TOPIC} <= {topic.name for topic in found}:
        return (
            f"{why}The route's topics are not there yet, so it could not report: run topicshift route init, look again"
        )
    return f"{why}See topicshift route show, then write kind: route"


Application = tuple[str, str | None, list[Follower]]
"""An application on the route: its name, its group, and a row for each principal that its instances report."""


def _route(seen: Snapshot, role: str) -> list[Application]:
    """The applications on the route of the topic."""
    found: dict[tuple[str, str | None], list[Follower]] = {}
    for f in seen.followers or ():
        if f.role == role and f.participant != "?":
            found.setdefault((f.participant, f.group), []).append(f)
    return [
        (name, group, rows) for (name, group), rows in sorted(found.items(), key=lambda i: (i[0][0], i[0][1] or ""))
    ]


def _route_producer(found: Application, taken: set[str]) -> Line:
    name, _, rows = found
    principals = sorted({r.principal for r in rows if r.principal})
    taken.add(name)
    values: dict[str, Any] = {"name": name, "kind": "route"}
    if len(principals) == 1:
        values["principal"] = principals[0]
    told = f", as {', '.join(principals)}" if principals else ", and reports no principal"
    return Line(values, f"{sum(len(r.instances) for r in rows)} instance(s) follow the route{told}")


# ------------------------------------------------------------------------------------------------------ readers


def _consumers(topic: str, seen: Snapshot, named: Sequence[tuple[str, Connector]]) -> tuple[list[Line], list[str]]:
    found = discover(topic, seen.groups, seen.described or {}, seen.commits or {}, declared=None)
    on_route = {group: (name, rows) for name, group, rows in _route(seen, "consumer") if group}
    sinks = {group_of(one): (connection, one) for connection, one in named if _sinks(one, topic)}
    taken: set[str] = {name for name, _ in on_route.values()}
    lines, out = [], []
    for group in sorted({*found.readers, *on_route, *sinks}):
        how = found.readers.get(group, "nothing shows that it has read the topic yet")
        info = (seen.described or {}).get(group)
        if info is not None and info.kind == "share":
            out.append(
                f"The share group {group} reads the topic ({how}), without offsets that prove a drain. Name it under "
                "ignore_groups with a reason, and move it by hand."
            )
            continue
        if streams := is_streams(info, internal_topics(group, seen.topics or (), found.readers)):
            out.append(
                f"The group {group} is a Kafka Streams application ({streams}), which is not moved. Name it under "
                "ignore_groups with a reason; what its owner does after the switch: docs/coupling.md."
            )
            continue
        lines.append(_consumer(group, how, info, on_route.get(group), sinks.get(group), taken, _unreported(seen)))
    for connection, one in named:
        flow = mirror.read_flow(connection, "", one.name, one.config)
        if flow is None or flow.kind != "source" or flow.copies(topic) is False:
            continue
        if flow.by_name(topic):
            name = _name(one.name, taken)
            settings = {**_settings(connection, one), "mirror": True}
            values = {"name": name, "kind": "connect", "group": f"mirror-{name}", "settings": settings}
            lines.append(Line(values, f"MirrorMaker 2's connector of {connection} copies the topic; {_STORES}"))
        else:
            out.append(
                f"MirrorMaker 2's connector {one.name} of {connection} copies the topic by a pattern, or may. Name its "
                "topics one by one and declare it (docs/participants/connect.md), or see TS329."
            )
    return lines, out


_STORES = "Does it store offsets (stored_offsets: none or handled)? Ask its owner"


def _consumer(
    group: str,
    how: str,
    info: GroupInfo | None,
    route: tuple[str, list[Follower]] | None,
    sink: tuple[str, Connector] | None,
    taken: set[str],
    unreported: str,
) -> Line:
    if route is not None:
        name, rows = route
        values: dict[str, Any] = {"name": name, "kind": "route", "group": group}
        why = f"{sum(len(r.instances) for r in rows)} instance(s) follow the route; {how}"
    elif sink is not None:
        connection, one = sink
        values = {"name": _name(one.name, taken), "kind": "connect", "group": group}
        values["settings"] = _settings(connection, one)
        why = f"sink connector of {connection}; {how}"
    else:
        values = {"name": _name(group, taken), "kind": "manual", "group": group}
        why = f"{how}; {unreported}"
    if info is not None and not info.members:
        why += "; it has no members now: start it before the cut-over, or name it under ignore_groups with a reason"
    return Line(values, f"{why}. {_STORES}")


def _sinks(one: Connector, topic: str) -> bool:
    pattern = one.config.get("topics.regex")
    named = topic in topics_of(one.config.get("topics", ""))
    return one.role == "consumer" and (named or bool(pattern and subscribes(f"^{pattern}", topic)))


def _settings(connection: str, one: Connector) -> dict[str, Any]:
    return {"connector": one.name} | ({"connection": connection} if connection != "connect_default" else {})


def _name(wanted: str, taken: set[str]) -> str:
    """A name that is legal and not taken yet."""
    base = one_line(wanted)[: MAX_NAME - 4] or "unnamed"
    name, n = base, 2
    while name in taken:
        name, n = f"{base}-{n}", n + 1
    taken.add(name)
    return name


# --------------------------------------------------------------------------------------------- what was not seen


def _unseen(topic: str, seen: Snapshot, connectors: Sequence[Connectors] | None) -> Iterator[str]:
    for part, why in seen.unread.items():
        yield f"{PARTS[part]}: {why}"
    if seen.groups is not None and not seen.groups.complete:
        yield f"some consumer groups, perhaps: {seen.groups.why or 'ACLs may have filtered the list'}"
    for f in seen.followers or ():
        if f.participant == "?":
            yield f"an application on the route that cannot be understood ({', '.join(f.instances)})"
        elif f.logical != topic and "followers" not in seen.unread:
            yield f"{f.participant} is on the topic by the route of {f.logical!r}, which this migration would not move"
    if seen.followers is None and "followers" not in seen.unread:
        yield "the applications on the route of this topic: there was no route to look at"
    if seen.cluster is not None and seen.cluster.authorizer is False:
        yield "who may write: this cluster has no authorizer, so no ACL tells"
    elif seen.acls is not None and not writers(seen.acls, topic):
        yield "who may write: no ACL lets anybody write to the topic by name"
    if connectors is None:
        yield "the connectors of Kafka Connect: no connection to a Connect worker was named"
    for one in connectors or ():
        if one.unread:
            yield f"the connectors of {one.connection}: {one.unread}"
