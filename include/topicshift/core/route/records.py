"""The two records of the route as they lie in Kafka, and the protocol's numbers. Pure.

What an orchestrator may write next is in :mod:`topicshift.core.route.acts`, what a client does in
:mod:`topicshift.core.route.client`; ``docs/route-protocol.md`` states all of it for a client in another language.

Every time in a record is in ms since the epoch by the brokers' clock: the stamp (``LogAppendTime``) that a broker put
on a record, or a sum of such a stamp and a duration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, TypeAdapter

from topicshift.core.kafka.rules import ACKS_TOPIC as ACKS_TOPIC
from topicshift.core.kafka.rules import ROUTES_TOPIC as ROUTES_TOPIC
from topicshift.core.route.fields import (
    Beat,
    Count,
    Epoch,
    Flag,
    Length,
    Ms,
    Name,
    Offset,
    Partition,
    Reason,
    RouteFormatError,
    Topic,
    document,
    object_of,
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


Role = Literal["producer", "consumer"]


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

    topic: Topic
    state: State = State.OPEN
    lease_ms: Length | None = None
    until_ms: Ms | None = None
    pause: Count = 0
    came_from: Annotated[Topic | None, Field(alias="from")] = None
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

    logical: Topic
    active: Topic
    state: State
    epoch: Epoch
    lease_ms: Length | None = None
    until_ms: Ms | None = None
    valid_before_ms: Ms | None = None
    else_active: Topic | None = None
    pause: Count = 0
    armed: Count = 0
    groups: Mapping[Annotated[str, Field(min_length=1)], GroupRoute] = field(default_factory=dict)
    source: Name | None = None
    target: Name | None = None
    migration: Name | None = None
    claim: Count = 0
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

    logical: Topic
    role: Role
    participant: Name
    instance: Name
    status: Status
    epoch: Count
    topic: Topic
    group: Name | None = None
    principal: Name | None = None
    armed: Flag = False
    offsets: Mapping[Partition, Offset] = field(default_factory=dict)
    clock_ms: Ms | None = None
    heartbeat_ms: Beat = int(HEARTBEAT_S * 1000)
    gone_ms: Beat = int((STALE_S + DELIVERY_TIMEOUT_S + GONE_MARGIN_S) * 1000)
    armed_gone_ms: Beat = int((STALE_S + DELIVERY_TIMEOUT_S + GONE_MARGIN_S) * 1000)
    reason: Reason = ""
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

_ROUTE: Final = TypeAdapter(Route)
_ACK: Final = TypeAdapter(Ack)
_NAME: Final[TypeAdapter[str | None]] = TypeAdapter(Name | None)
_BESIDE: Final = frozenset({"extra", "broker_ms", "voided"})
"""Fields of the dataclasses that are no fields of the records."""
_ROUTE_FIELDS: Final = Route.__dataclass_fields__.keys() - _BESIDE | {"v"}
_GROUP_FIELDS: Final = GroupRoute.__dataclass_fields__.keys() - _BESIDE - {"came_from"} | {"from"}
_ACK_FIELDS: Final = Ack.__dataclass_fields__.keys() - _BESIDE
_ACK_REQUIRED: Final = frozenset({"epoch", "heartbeat_ms", "gone_ms", "armed_gone_ms"})
_NO_STAMP: Final = "and this record has none: the topic's message.timestamp.type is not LogAppendTime"

P = TypeVar("P", Route, GroupRoute)


def _sorted_out(data: Any, known: Set[str]) -> Any:
    """The known fields, and the others under ``extra``; what is no object is left to the validation."""
    if not isinstance(data, dict):
        return data
    return {k: v for k, v in data.items() if k in known} | {"extra": {k: v for k, v in data.items() if k not in known}}


def _with_end(paused: P, where: str, broker_ms: int | None) -> P:
    """The end of a pause follows from its length and the stamp where it is not given."""
    if paused.state is not State.PAUSED or paused.until_ms is not None:
        return paused
    if paused.lease_ms is None:
        raise RouteFormatError(f"{where}state is paused without lease_ms or until_ms: a pause must have an end")
    if broker_ms is None:
        raise RouteFormatError(f"{where}lease_ms counts from the broker's stamp, {_NO_STAMP}")
    return replace(paused, until_ms=broker_ms + paused.lease_ms)


def _judged(route: Route) -> Route:
    """A point that came too late is void: producers are where they were, and the pause ends when it would have."""
    if route.valid_before_ms is None or route.state is not State.PAUSED:
        return route
    if route.else_active is None or route.until_ms is None:
        raise RouteFormatError(
            "valid_before_ms is given without else_active and until_ms, which say what a void one means"
        )
    if route.broker_ms is None:
        raise RouteFormatError(f"valid_before_ms is compared with the broker's stamp, {_NO_STAMP}")
    if route.broker_ms < route.valid_before_ms:
        return route
    return replace(route, active=route.else_active, valid_before_ms=None, else_active=None, voided=route.active)


def parse_route(value: bytes | str, key: bytes | str | None = None, broker_ms: int | None = None) -> Route:
    """Read a record of the routes topic and judge it by its stamp. Unknown fields are kept in ``extra``.

    ``key`` is compared with ``logical`` where given. ``broker_ms`` is None where the broker did not stamp the record.
    Raises :class:`RouteFormatError`, and nothing else, for whatever is not understood.
    """
    with document("the route record"):
        data = _sorted_out(object_of(value, "the route record"), _ROUTE_FIELDS)
        if isinstance(data.get("groups"), dict):
            data["groups"] = {n: _sorted_out(entry, _GROUP_FIELDS) for n, entry in data["groups"].items()}
        route = replace(_ROUTE.validate_python(data), broker_ms=broker_ms)
        name = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
        if name is not None and name != route.logical:
            raise RouteFormatError(f"the key is {name!r} but logical is {route.logical!r}")
        groups = {n: _with_end(g, f"groups.{n}.", broker_ms) for n, g in route.groups.items()}
        return _judged(replace(_with_end(route, "", broker_ms), groups=groups))


def route_json(route: Route) -> dict[str, Any]:
    """The record's value as a JSON object, known fields after unknown ones, so that none is overridden."""
    known: dict[str, Any] = _ROUTE.dump_python(route, mode="json", by_alias=True, exclude=set(_BESIDE))
    for name, group in known["groups"].items():
        group.pop("extra")
        known["groups"][name] = {**route.groups[name].extra, **group}
    return {**route.extra, "v": 1, **known}


def serialise_route(route: Route) -> bytes:
    """The record's value. :func:`parse_route` reads it back to an equal route, if it is not void."""
    return json.dumps(route_json(route), separators=(",", ":"), ensure_ascii=False).encode()


def newer(have: Route | None, seen: Route) -> bool:
    """Whether ``seen`` replaces ``have``: a higher epoch does, wherever it lies in the log."""
    return have is None or seen.epoch > have.epoch


# ------------------------------------------------------------------------------------------------ acknowledgements


def parse_ack(value: bytes | str, broker_ms: int | None = None) -> Ack:
    """Read a record of the acks topic. Raises :class:`RouteFormatError`, and nothing else."""
    with document("the acknowledgement"):
        data = object_of(value, "the acknowledgement")
        if missing := _ACK_REQUIRED - {k for k, v in data.items() if v is not None}:
            raise RouteFormatError(f"{', '.join(sorted(missing))} is missing in the acknowledgement")
        ack = _ACK.validate_python({k: v for k, v in data.items() if k in _ACK_FIELDS})
        if ack.role == "consumer" and ack.group is None:
            raise RouteFormatError("group is missing in the acknowledgement of a consumer")
        return replace(ack, broker_ms=broker_ms)


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
    bad = BadAck(logical, instance, why)
    try:
        with document(""):
            data = object_of(value, "", any_version=True)
            role = data.get("role") if data.get("role") in ("producer", "consumer") else None
            participant, group = (_NAME.validate_python(data.get(name)) for name in ("participant", "group"))
    except RouteFormatError:
        return bad
    return replace(bad, role=role, participant=participant, group=group if role == "consumer" else None)


def serialise_ack(ack: Ack) -> bytes:
    """The acknowledgement's value as JSON."""
    data = {"v": 1, **_ACK.dump_python(ack, mode="json", exclude=set(_BESIDE))}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
