"""The route: its two records as they lie in Kafka, and the protocol's numbers. Pure.

What an orchestrator may write next is in :mod:`topicshift.core.route.acts`, what a client does next in
:mod:`topicshift.core.route.client`; ``docs/route-protocol.md`` states all of it for a client in another language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from topicshift.core.kafka.rules import ACKS_TOPIC as ACKS_TOPIC
from topicshift.core.kafka.rules import ROUTES_TOPIC as ROUTES_TOPIC
from topicshift.core.kafka.rules import topic_name_problem

# ROUTES_TOPIC: compacted, one partition; key: the logical topic; value: the JSON of Route.
# ACKS_TOPIC: compacted, one partition; key: logical/instance; value: the JSON of Ack.

CLOCK_KEY = "~clock"
"""Key of the orchestrator's own records in the acks topic, written to learn the broker's time. No ack."""

VERSION = 1
"""The format version of both records. A reader refuses a higher one."""

HEARTBEAT_S = 3.0
"""A client repeats its acknowledgement this often."""

MISSED_HEARTBEATS = 3
"""After so many missing heartbeats an instance is silent: unknown, and it blocks by name."""

STALE_S = 10.0
"""A producer that could not confirm its view of the route for so long writes nothing until it can."""

DELIVERY_TIMEOUT_S = 30.0
"""Default ``delivery.timeout.ms`` of a route producer: what is queued is delivered or failed by then."""

GONE_MARGIN_S = 20.0
"""Added to the stale bound and the delivery time-out: after their sum a silent instance counts as gone."""

MAX_CLOCK_SKEW_S = 1.0
"""A client whose clock runs further ahead of the orchestrator's would end a lease too early: it blocks by name."""

_ISO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$")


class RouteFormatError(ValueError):
    """A record does not follow the protocol; the message names the field. Clients keep the route they have."""


class State(StrEnum):
    """Whether the application may go on. Paused always carries a lease."""

    OPEN = "open"
    PAUSED = "paused"


class Status(StrEnum):
    """What an instance says about itself in its acknowledgement."""

    RUNNING = "running"
    """It writes to, or reads, ``topic``."""
    FLUSHING = "flushing"
    """Producer: it accepts no record any more and waits until those it has are delivered."""
    DRAINING = "draining"
    """Consumer: released, and still reading what is left of its own partitions of ``topic``."""
    PAUSED = "paused"
    """Producer: everything is delivered and nothing is written. Consumer: committed, and it has left the group."""
    LEASE_EXPIRED = "lease_expired"
    """As running: it went on by itself because the lease of the pause ran out."""
    BLIND = "blind"
    """Producer: it cannot read the route, so it writes nothing until it can."""
    GONE = "gone"
    """Good-bye: it has closed and writes and reads nothing any more."""


def utc_text(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, as in every record: ``2030-01-31T02:15:00.000Z``."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(value: Any, where: str) -> datetime:
    if not isinstance(value, str) or not _ISO.match(value):
        raise RouteFormatError(f"{where} is {value!r}, not a time such as 2030-01-31T02:15:00.000Z")
    try:
        # datetime reads at most microseconds
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value)).astimezone(UTC)
    except ValueError as exc:
        raise RouteFormatError(f"{where} is {value!r}, not a time ({exc})") from None


@dataclass(frozen=True)
class GroupRoute:
    """Where one consumer group reads. ``came_from`` (JSON ``from``) is the topic it was released from: partitions of
    ``topic`` without a committed offset then start at the log start, whatever ``auto.offset.reset`` says.
    """

    topic: str
    state: State = State.OPEN
    lease_until: datetime | None = None
    came_from: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, now: datetime) -> bool:
        """Whether the group is paused at this time."""
        return self.state is State.PAUSED and self.lease_until is not None and now < self.lease_until


@dataclass(frozen=True)
class Route:
    """Where the producers of a logical topic write, and where its consumer groups read.

    ``epoch`` rises by at least one with each act; a record with a higher one always wins. ``lease_until`` is the end
    of a pause (None while open). ``source`` and ``target`` are those of the latest migration, whose id and journal
    epoch (``claim``) own the record. ``extra`` are fields this version does not know; they are written back.
    """

    logical: str
    active: str
    state: State
    epoch: int
    lease_until: datetime | None = None
    groups: Mapping[str, GroupRoute] = field(default_factory=dict)
    source: str | None = None
    target: str | None = None
    migration: str | None = None
    claim: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, now: datetime) -> bool:
        """Whether producers are paused at this time: the state says so and the lease has not run out."""
        return self.state is State.PAUSED and self.lease_until is not None and now < self.lease_until


@dataclass(frozen=True)
class Ack:
    """What one instance says about itself: its hello, heartbeats, acknowledgements and good-bye are all this record.

    ``epoch`` is the highest route epoch it has obeyed (0: there is no route record). ``topic`` is where it writes or
    reads, or would go on. ``offsets`` maps partitions of ``topic`` to the last offset delivered (producer) or the
    committed one (consumer). ``at`` is the instance's own clock. ``broker_ms`` is not part of the JSON: the time, in
    ms since the epoch, at which the broker appended the record.
    """

    logical: str
    role: str
    participant: str
    instance: str
    status: Status
    epoch: int
    topic: str
    group: str | None = None
    principal: str | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    heartbeat_ms: int = int(HEARTBEAT_S * 1000)
    gone_ms: int = int((STALE_S + DELIVERY_TIMEOUT_S + GONE_MARGIN_S) * 1000)
    reason: str = ""
    broker_ms: int | None = None

    @property
    def key(self) -> str:
        """The record's key."""
        return f"{self.logical}/{self.instance}"


# ------------------------------------------------------------------------------------------------ JSON


def _object(value: bytes | str, what: str) -> dict[str, Any]:
    try:
        data = json.loads(value)
    except (ValueError, UnicodeDecodeError) as exc:
        raise RouteFormatError(f"{what} is not JSON: {exc}") from None
    if not isinstance(data, dict):
        raise RouteFormatError(f"{what} is not a JSON object but {type(data).__name__}")
    version = data.get("v")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= VERSION:
        raise RouteFormatError(f"{what} has v={version!r}; this client reads versions 1 to {VERSION}")
    return data


def _text(data: Mapping[str, Any], name: str, where: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise RouteFormatError(f"{where}{name} is {value!r}, not a non-empty string")
    return value


def _topic(data: Mapping[str, Any], name: str, where: str) -> str:
    value = _text(data, name, where)
    if problem := topic_name_problem(value):
        raise RouteFormatError(f"{where}{name} is {value!r}, which is no topic name: {problem}")
    return value


def _optional(data: Mapping[str, Any], name: str, where: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, where)


def _whole(data: Mapping[str, Any], name: str, where: str, least: int) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RouteFormatError(f"{where}{name} is {value!r}, not a whole number of at least {least}")
    return value


def _state(data: Mapping[str, Any], where: str, default: str | None = None) -> tuple[State, datetime | None]:
    value = data.get("state", default)
    if value not in ("open", "paused"):
        raise RouteFormatError(f"{where}state is {value!r}, neither open nor paused")
    lease = data.get("lease_until")
    until = None if lease is None else _time(lease, f"{where}lease_until")
    if value == "paused" and until is None:
        raise RouteFormatError(f"{where}state is paused without lease_until: a pause must have an end")
    return State(value), until


_ROUTE_FIELDS = frozenset(
    {"v", "logical", "active", "state", "epoch", "lease_until", "groups", "source", "target", "migration", "claim"}
)
_GROUP_FIELDS = frozenset({"topic", "state", "lease_until", "from"})


def parse_route(value: bytes | str, key: bytes | str | None = None) -> Route:
    """Read a record of the routes topic. Unknown fields are kept in ``extra``; known ones are checked strictly.

    ``key`` is compared with ``logical`` where given. Raises :class:`RouteFormatError`.
    """
    data = _object(value, "the route record")
    logical = _topic(data, "logical", "")
    name = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    if name is not None and name != logical:
        raise RouteFormatError(f"the key is {name!r} but logical is {logical!r}")
    state, until = _state(data, "")
    entries = data.get("groups", {})
    if not isinstance(entries, dict):
        raise RouteFormatError(f"groups is {entries!r}, not an object of group -> where it reads")
    groups: dict[str, GroupRoute] = {}
    for group, entry in entries.items():
        where = f"groups.{group}."
        if not isinstance(entry, dict) or not group:
            raise RouteFormatError(f"groups.{group} is {entry!r}, not an object")
        group_state, group_until = _state(entry, where, "open")
        groups[group] = GroupRoute(
            _topic(entry, "topic", where),
            group_state,
            group_until,
            _topic(entry, "from", where) if entry.get("from") is not None else None,
            {k: v for k, v in entry.items() if k not in _GROUP_FIELDS},
        )
    return Route(
        logical,
        _topic(data, "active", ""),
        state,
        _whole(data, "epoch", "", 1),
        until,
        groups,
        _optional(data, "source", ""),
        _optional(data, "target", ""),
        _optional(data, "migration", ""),
        _whole(data, "claim", "", 0) if data.get("claim") is not None else 0,
        {k: v for k, v in data.items() if k not in _ROUTE_FIELDS},
    )


def route_json(route: Route) -> dict[str, Any]:
    """The record's value as a JSON object, known fields after unknown ones, so that none is overridden."""

    def lease(until: datetime | None) -> str | None:
        return None if until is None else utc_text(until)

    return {
        **route.extra,
        "v": VERSION,
        "logical": route.logical,
        "active": route.active,
        "state": route.state.value,
        "epoch": route.epoch,
        "lease_until": lease(route.lease_until),
        "groups": {
            name: {
                **g.extra,
                "topic": g.topic,
                "state": g.state.value,
                "lease_until": lease(g.lease_until),
                "from": g.came_from,
            }
            for name, g in sorted(route.groups.items())
        },
        "source": route.source,
        "target": route.target,
        "migration": route.migration,
        "claim": route.claim,
    }


def serialise_route(route: Route) -> bytes:
    """The record's value. :func:`parse_route` reads it back to an equal route (times to the millisecond)."""
    return json.dumps(route_json(route), separators=(",", ":"), ensure_ascii=False).encode()


def parse_ack(value: bytes | str, broker_ms: int | None = None) -> Ack:
    """Read a record of the acks topic. Raises :class:`RouteFormatError`."""
    data = _object(value, "the acknowledgement")
    role = data.get("role")
    if role not in ("producer", "consumer"):
        raise RouteFormatError(f"role is {role!r}, neither producer nor consumer")
    status = data.get("status")
    if status not in set(Status):
        raise RouteFormatError(f"status is {status!r}, none of {', '.join(Status)}")
    raw = data.get("offsets", {})
    try:
        offsets = {int(p): o for p, o in raw.items()}
    except (AttributeError, ValueError, TypeError):
        raise RouteFormatError(f"offsets is {raw!r}, not an object of partition -> offset") from None
    if any(isinstance(o, bool) or not isinstance(o, int) for o in offsets.values()):
        raise RouteFormatError(f"offsets is {raw!r}; every offset must be a whole number")
    group = _optional(data, "group", "")
    if role == "consumer" and group is None:
        raise RouteFormatError("group is missing in the acknowledgement of a consumer")
    return Ack(
        _topic(data, "logical", ""),
        role,
        _text(data, "participant", ""),
        _text(data, "instance", ""),
        Status(status),
        _whole(data, "epoch", "", 0),
        _topic(data, "topic", ""),
        group,
        _optional(data, "principal", ""),
        offsets,
        _time(data.get("at"), "at"),
        _whole(data, "heartbeat_ms", "", 1),
        _whole(data, "gone_ms", "", 1),
        str(data.get("reason") or ""),
        broker_ms,
    )


def serialise_ack(ack: Ack) -> bytes:
    """The acknowledgement's value as JSON."""
    data = {
        "v": VERSION,
        "logical": ack.logical,
        "role": ack.role,
        "participant": ack.participant,
        "instance": ack.instance,
        "group": ack.group,
        "principal": ack.principal,
        "epoch": ack.epoch,
        "status": ack.status.value,
        "topic": ack.topic,
        "offsets": {str(p): o for p, o in sorted(ack.offsets.items())},
        "at": utc_text(ack.at),
        "heartbeat_ms": ack.heartbeat_ms,
        "gone_ms": ack.gone_ms,
        "reason": ack.reason,
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def newer(have: Route | None, seen: Route) -> bool:
    """Whether ``seen`` replaces ``have``: a higher epoch does, and so does the same epoch with a later lease."""
    if have is None or seen.epoch != have.epoch:
        return have is None or seen.epoch > have.epoch
    return (
        have.state is State.PAUSED
        and seen.state is State.PAUSED
        and have.lease_until is not None
        and seen.lease_until is not None
        and seen.lease_until > have.lease_until
    )
