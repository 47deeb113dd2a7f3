"""The two records of the route as they lie in Kafka, and the protocol's numbers. Pure.

What an orchestrator may write next is in :mod:`topicshift.core.route.acts`, what a client does in
:mod:`topicshift.core.route.client`; ``docs/route-protocol.md`` states all of it for a client in another language.

Every time in a record is in ms since the epoch by the brokers' clock: the stamp (``LogAppendTime``) that a broker put
on a record, or a sum of such a stamp and a duration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from topicshift.core.kafka.rules import ACKS_TOPIC as ACKS_TOPIC
from topicshift.core.kafka.rules import ROUTES_TOPIC as ROUTES_TOPIC
from topicshift.core.route.fields import (
    MAX_COUNT,
    MAX_MS,
    RouteFormatError,
    document,
    number,
    object_of,
    optional_name,
    optional_number,
    optional_topic,
    printable,
    topic_of,
    word,
)

__all__ = ["ACKS_TOPIC", "ROUTES_TOPIC", "RouteFormatError"]

# ROUTES_TOPIC: compacted, one partition; key: the logical topic; value: the JSON of Route.
# ACKS_TOPIC: compacted, one partition; key: logical/instance; value: the JSON of Ack.

CLOCK_KEY = "~clock"
"""Key of the orchestrator's own records in the acks topic, written to learn the brokers' time. No acknowledgement."""

HEARTBEAT_S = 3.0
"""A client repeats its acknowledgement this often."""

MISSED_HEARTBEATS = 3
"""After so many missing heartbeats an instance is silent: unknown, and it blocks by name."""

STALE_S = 10.0
"""Bound of a producer's contact while the route is armed: without contact for longer it takes no record (*blind*)."""

UNARMED_S = 900.0
"""The same bound while the route is not armed."""

DELIVERY_TIMEOUT_S = 30.0
"""Default ``delivery.timeout.ms`` of a route producer: what is queued is delivered or has failed by then."""

GONE_MARGIN_S = 5.0
"""Added to the bound of contact and the delivery time-out: until a broker has appended what was sent before."""

CONSUMER_GONE_S = 15.0
"""Added to the session time-out: after their sum a silent consumer's partitions belong to others."""

POINT_MARGIN_MS = 2000
"""A record that points producers elsewhere must be stamped so long before the end of the pause, or it is void."""

MAX_AHEAD_S = 1.0
"""An instance that takes the brokers' clock to be further ahead than this would end a pause too early: it blocks."""

MAX_BEHIND_S = 5.0
"""An instance that takes the brokers' clock to be further behind than this would end a pause late: it blocks."""


class State(StrEnum):
    """Whether the application may go on. A pause always has an end."""

    OPEN = "open"
    PAUSED = "paused"


class Status(StrEnum):
    """What an instance says about itself in its acknowledgement."""

    RUNNING = "running"
    """It writes to, or reads, ``topic``."""
    FLUSHING = "flushing"
    """Producer: it accepts no record any more and waits until those it has are delivered."""
    DRAINING = "draining"
    """Consumer: it still reads what is left of its own partitions of ``topic``, or has not left the group yet."""
    PAUSED = "paused"
    """Producer: everything is delivered and nothing is written. Consumer: committed, and it has left the group."""
    LEASE_EXPIRED = "lease_expired"
    """As running: it went on by itself because the pause was over."""
    BLIND = "blind"
    """Producer: it is not in contact, so it writes nothing. Consumer: it has not begun to read."""
    GONE = "gone"
    """Good-bye: it has closed and writes and reads nothing any more."""


@dataclass(frozen=True)
class GroupRoute:
    """Where one consumer group reads.

    ``lease_ms``, ``until_ms`` and ``pause`` are as in :class:`Route`. ``came_from`` (JSON ``from``) is the topic it was
    released from: partitions of ``topic`` without a committed offset then start at the log start, whatever
    ``auto.offset.reset`` says.
    """

    topic: str
    state: State = State.OPEN
    lease_ms: int | None = None
    until_ms: int | None = None
    pause: int = 0
    came_from: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, now_ms: int) -> bool:
        """Whether the group is paused at this time of the brokers (of a record as it was read)."""
        return self.state is State.PAUSED and self.until_ms is not None and now_ms < self.until_ms


@dataclass(frozen=True)
class Route:
    """Where the producers of a logical topic write, and where its consumer groups read.

    A record that begins a pause has ``lease_ms``, its length; once read, and in every later record of the same pause,
    ``until_ms`` is its end. A record that points paused producers elsewhere (a *point*) has ``valid_before_ms`` and
    ``else_active``: stamped at ``valid_before_ms`` or later it is void. :func:`parse_route` judges that: in a void
    route ``active`` is where producers are, and ``voided`` the topic that they were pointed to in vain.

    ``epoch`` rises with each act; the record with the highest one is the truth. ``pause`` is the epoch of the record
    that began the latest pause (0: none yet), ``armed`` that of the record that armed the route (0: not armed).
    ``source`` and ``target`` are those of the latest migration, whose id and journal epoch (``claim``) own the record.
    ``extra`` are fields this version does not know; they are written back. ``broker_ms`` is the broker's stamp.
    """

    logical: str
    active: str
    state: State
    epoch: int
    lease_ms: int | None = None
    until_ms: int | None = None
    valid_before_ms: int | None = None
    else_active: str | None = None
    pause: int = 0
    armed: int = 0
    groups: Mapping[str, GroupRoute] = field(default_factory=dict)
    source: str | None = None
    target: str | None = None
    migration: str | None = None
    claim: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    broker_ms: int | None = field(default=None, compare=False)
    voided: str | None = field(default=None, compare=False)

    def holds(self, now_ms: int) -> bool:
        """Whether producers are paused at this time of the brokers (of a record as it was read)."""
        return self.state is State.PAUSED and self.until_ms is not None and now_ms < self.until_ms

    @property
    def is_armed(self) -> bool:
        """Whether producers go blind after :data:`STALE_S`. A pause implies it."""
        return self.armed > 0 or self.state is State.PAUSED


@dataclass(frozen=True)
class Ack:
    """What one instance says about itself: its hello, heartbeats, acknowledgements and good-bye are all this record.

    ``epoch`` is the highest route epoch it has obeyed (0: there is no route record). ``topic`` is where it writes or
    reads, or would go on. ``armed``: it goes blind after :data:`STALE_S`. ``offsets`` maps partitions of ``topic`` to
    the last offset delivered (producer) or the committed one (consumer). ``clock_ms`` is what it takes the brokers'
    time to be as it writes this, None while it has not learnt that. Silent for ``gone_ms`` it counts as gone; once the
    route is armed, for ``armed_gone_ms``. ``broker_ms`` is not part of the JSON: the broker's stamp.
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
    armed: bool = False
    offsets: Mapping[int, int] = field(default_factory=dict)
    clock_ms: int | None = None
    heartbeat_ms: int = int(HEARTBEAT_S * 1000)
    gone_ms: int = int((STALE_S + DELIVERY_TIMEOUT_S + GONE_MARGIN_S) * 1000)
    armed_gone_ms: int = int((STALE_S + DELIVERY_TIMEOUT_S + GONE_MARGIN_S) * 1000)
    reason: str = ""
    broker_ms: int | None = None

    @property
    def key(self) -> str:
        """The record's key."""
        return ack_key(self.logical, self.instance)


@dataclass(frozen=True)
class BadAck:
    """An acknowledgement that is not understood. It counts as an unknown instance until it says something else, or is
    dismissed. ``role``, ``participant`` and ``group`` are what can be made out, None where nothing can.
    """

    logical: str
    instance: str
    why: str
    role: str | None = None
    participant: str | None = None
    group: str | None = None

    def may_be(self, role: str, participant: str, group: str | None) -> bool:
        """Whether it may be an instance of this application."""
        mine = ((self.role, role), (self.participant, participant), (self.group if role == "consumer" else None, group))
        return all(said is None or said == wanted for said, wanted in mine)


def ack_key(logical: str, instance: str) -> str:
    """The key of an instance's acknowledgements."""
    return f"{logical}/{instance}"


# ------------------------------------------------------------------------------------------------ routes

_ROUTE_FIELDS = frozenset(
    {"v", "logical", "active", "state", "epoch", "lease_ms", "until_ms", "valid_before_ms", "else_active", "pause"}
    | {"armed", "groups", "source", "target", "migration", "claim"}
)
_GROUP_FIELDS = frozenset({"topic", "state", "lease_ms", "until_ms", "pause", "from"})


def _pause(
    data: Mapping[str, Any], where: str, broker_ms: int | None, default: str | None = None
) -> tuple[State, int | None, int | None]:
    """State, length and end of a pause. The end follows from the length and the stamp where it is not given."""
    state = State(word(data, "state", where, tuple(State), default))
    lease_ms = optional_number(data, "lease_ms", where, 1, MAX_MS)
    until_ms = optional_number(data, "until_ms", where, 0, MAX_MS)
    if state is State.PAUSED and until_ms is None:
        if lease_ms is None:
            raise RouteFormatError(f"{where}state is paused without lease_ms or until_ms: a pause must have an end")
        if broker_ms is None:
            raise RouteFormatError(
                f"{where}lease_ms counts from the broker's stamp, and this record has none: the topic's "
                "message.timestamp.type is not LogAppendTime"
            )
        until_ms = broker_ms + lease_ms
    return state, lease_ms, until_ms


def _groups(data: Mapping[str, Any], broker_ms: int | None) -> dict[str, GroupRoute]:
    groups: dict[str, GroupRoute] = {}
    for group, entry in object_of(data, "groups", "").items():
        where = f"groups.{group}."
        if not isinstance(entry, dict) or not group:
            raise RouteFormatError(f"groups.{group} is {entry!r}, not an object")
        state, lease_ms, until_ms = _pause(entry, where, broker_ms, "open")
        groups[group] = GroupRoute(
            topic_of(entry, "topic", where),
            state,
            lease_ms,
            until_ms,
            number(entry, "pause", where, 0, MAX_COUNT, default=0),
            optional_topic(entry, "from", where),
            {k: v for k, v in entry.items() if k not in _GROUP_FIELDS},
        )
    return groups


def _judged(route: Route) -> Route:
    """A point that came too late is void: producers are where they were, and the pause ends when it would have."""
    if route.valid_before_ms is None or route.state is not State.PAUSED:
        return route
    if route.else_active is None or route.until_ms is None:
        raise RouteFormatError(
            "valid_before_ms is given without else_active and until_ms, which say what a void one means"
        )
    if route.broker_ms is None:
        raise RouteFormatError(
            "valid_before_ms is compared with the broker's stamp, and this record has none: the topic's "
            "message.timestamp.type is not LogAppendTime"
        )
    if route.broker_ms < route.valid_before_ms:
        return route
    return replace(route, active=route.else_active, valid_before_ms=None, else_active=None, voided=route.active)


def parse_route(value: bytes | str, key: bytes | str | None = None, broker_ms: int | None = None) -> Route:
    """Read a record of the routes topic and judge it by its stamp. Unknown fields are kept in ``extra``.

    ``key`` is compared with ``logical`` where given. ``broker_ms`` is None where the broker did not stamp the record.
    Raises :class:`RouteFormatError`, and nothing else, for whatever is not understood.
    """
    with document("the route record"):
        data = object_of(value, None, "the route record")
        logical = topic_of(data, "logical", "")
        name = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        if name is not None and name != logical:
            raise RouteFormatError(f"the key is {name!r} but logical is {logical!r}")
        state, lease_ms, until_ms = _pause(data, "", broker_ms)
        return _judged(
            Route(
                logical,
                topic_of(data, "active", ""),
                state,
                number(data, "epoch", "", 1, MAX_COUNT),
                lease_ms,
                until_ms,
                optional_number(data, "valid_before_ms", "", 0, MAX_MS),
                optional_topic(data, "else_active", ""),
                number(data, "pause", "", 0, MAX_COUNT, default=0),
                number(data, "armed", "", 0, MAX_COUNT, default=0),
                _groups(data, broker_ms),
                optional_name(data, "source", ""),
                optional_name(data, "target", ""),
                optional_name(data, "migration", ""),
                number(data, "claim", "", 0, MAX_COUNT, default=0),
                {k: v for k, v in data.items() if k not in _ROUTE_FIELDS},
                broker_ms,
            )
        )


def route_json(route: Route) -> dict[str, Any]:
    """The record's value as a JSON object, known fields after unknown ones, so that none is overridden."""
    return {
        **route.extra,
        "v": 1,
        "logical": route.logical,
        "active": route.active,
        "state": route.state.value,
        "epoch": route.epoch,
        "lease_ms": route.lease_ms,
        "until_ms": route.until_ms,
        "valid_before_ms": route.valid_before_ms,
        "else_active": route.else_active,
        "pause": route.pause,
        "armed": route.armed,
        "groups": {
            name: {
                **g.extra,
                "topic": g.topic,
                "state": g.state.value,
                "lease_ms": g.lease_ms,
                "until_ms": g.until_ms,
                "pause": g.pause,
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
    """The record's value. :func:`parse_route` reads it back to an equal route, if it is not void."""
    return json.dumps(route_json(route), separators=(",", ":"), ensure_ascii=False).encode()


def newer(have: Route | None, seen: Route) -> bool:
    """Whether ``seen`` replaces ``have``: a higher epoch does, wherever it lies in the log."""
    return have is None or seen.epoch > have.epoch


# ------------------------------------------------------------------------------------------------ acknowledgements


def _offsets(data: Mapping[str, Any]) -> dict[int, int]:
    out = {}
    for partition, offset in object_of(data, "offsets", "").items():
        if not partition.isascii() or not partition.isdigit() or len(partition) > 10:
            raise RouteFormatError(f"offsets has {partition!r}, which is no partition")
        if isinstance(offset, bool) or not isinstance(offset, int) or not -1 <= offset < 2**63:
            raise RouteFormatError(f"offsets.{partition} is {printable(offset)}, no offset")
        out[int(partition)] = offset
    return out


def parse_ack(value: bytes | str, broker_ms: int | None = None) -> Ack:
    """Read a record of the acks topic. Raises :class:`RouteFormatError`, and nothing else."""
    with document("the acknowledgement"):
        data = object_of(value, None, "the acknowledgement")
        role = word(data, "role", "", ("producer", "consumer"))
        group = optional_name(data, "group", "")
        if role == "consumer" and group is None:
            raise RouteFormatError("group is missing in the acknowledgement of a consumer")
        armed = data.get("armed", False)
        if not isinstance(armed, bool):
            raise RouteFormatError(f"armed is {printable(armed)}, neither true nor false")
        reason = data.get("reason")
        return Ack(
            topic_of(data, "logical", ""),
            role,
            optional_name(data, "participant", "", required=True) or "",
            optional_name(data, "instance", "", required=True) or "",
            Status(word(data, "status", "", tuple(Status))),
            number(data, "epoch", "", 0, MAX_COUNT),
            topic_of(data, "topic", ""),
            group,
            optional_name(data, "principal", ""),
            armed,
            _offsets(data),
            optional_number(data, "clock_ms", "", 0, MAX_MS),
            number(data, "heartbeat_ms", "", 1, 86_400_000),
            number(data, "gone_ms", "", 1, 86_400_000),
            number(data, "armed_gone_ms", "", 1, 86_400_000),
            reason[:1000] if isinstance(reason, str) else "",
            broker_ms,
        )


def read_ack(key: bytes | None, value: bytes, broker_ms: int | None) -> Ack | BadAck | None:
    """An acknowledgement as it lies in the log; None for a record whose key names no instance: it concerns nobody.

    Raises nothing.
    """
    logical, slash, instance = (key or b"").decode("utf-8", "replace").partition("/")
    if not slash or not instance:
        return None
    try:
        ack = parse_ack(value, broker_ms)
        if (ack.logical, ack.instance) != (logical, instance):
            raise RouteFormatError(f"its key is {logical}/{instance} but it says {ack.key}")
        if broker_ms is None:
            raise RouteFormatError(
                "its age cannot be told: no broker stamped it (message.timestamp.type is not LogAppendTime)"
            )
    except RouteFormatError as exc:
        return _bad(logical, instance, value, str(exc))
    return ack


def _bad(logical: str, instance: str, value: bytes, why: str) -> BadAck:
    try:
        with document(""):
            data = object_of(value, None, "", any_version=True)
            role = data.get("role") if data.get("role") in ("producer", "consumer") else None
            who = [optional_name(data, name, "") for name in ("participant", "group")]
    except RouteFormatError:
        return BadAck(logical, instance, why)
    return BadAck(logical, instance, why, role, who[0], who[1] if role == "consumer" else None)


def serialise_ack(ack: Ack) -> bytes:
    """The acknowledgement's value as JSON."""
    data = {
        "v": 1,
        "logical": ack.logical,
        "role": ack.role,
        "participant": ack.participant,
        "instance": ack.instance,
        "group": ack.group,
        "principal": ack.principal,
        "epoch": ack.epoch,
        "status": ack.status.value,
        "topic": ack.topic,
        "armed": ack.armed,
        "offsets": {str(p): o for p, o in sorted(ack.offsets.items())},
        "clock_ms": ack.clock_ms,
        "heartbeat_ms": ack.heartbeat_ms,
        "gone_ms": ack.gone_ms,
        "armed_gone_ms": ack.armed_gone_ms,
        "reason": ack.reason,
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
