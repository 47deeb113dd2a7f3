"""Fakes of what moves participants: the route's log in memory, clients that follow it, and a plain controller.

Held against the real ones by the contract in ``tests/integration/test_route_contract.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from topicshift.core.errors import Refused, Transient, Unreadable
from topicshift.core.route.client import ConsumerClient, Identity, ProducerClient, Timing
from topicshift.core.route.clocks import Now
from topicshift.core.route.judge import Follower
from topicshift.core.route.records import (
    Ack,
    BadAck,
    Role,
    Route,
    RouteFormatError,
    ack_key,
    parse_route,
    read_ack,
    serialise_ack,
    serialise_route,
)
from topicshift.ports import Clock, ControlContext, InstanceState, Participant, ParticipantState

_T = TypeVar("_T")


@dataclass
class LogRecord:
    """A record of the routes topic. ``state``: open (its transaction is not decided), committed or aborted."""

    offset: int
    key: bytes
    value: bytes | None
    broker_ms: int
    state: str = "committed"


@dataclass
class FakeLog:
    """The one partition of the routes topic, with stamps and transactions. Markers take no offset here."""

    records: list[LogRecord] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.records)

    @property
    def stable_end(self) -> int:
        """The last stable offset: the first one that is not decided, else the end."""
        return next((r.offset for r in self.records if r.state == "open"), self.end)

    def append(self, key: bytes, value: bytes | None, broker_ms: int, state: str = "committed") -> LogRecord:
        """Add a record with the broker's stamp; decide one that is open by setting its ``state``."""
        self.records.append(LogRecord(self.end, key, value, broker_ms, state))
        return self.records[-1]

    def read(self, position: int = 0) -> tuple[list[LogRecord], int]:
        """What a committed reader gets from this position on, and its next position."""
        stable = self.stable_end
        return [r for r in self.records[position:stable] if r.state == "committed"], max(position, stable)


class FakeRouteStore:
    """:class:`topicshift.adapters.route_store.RouteStore` in memory, with the same log and compare-and-set.

    The brokers' clock runs ``ahead_s`` ahead of ``clock``. ``takes_s`` is how long a write is tried before it is
    appended. ``clients`` act at once on every write, as :meth:`FakeClient.follow` does; take one out to make it deaf.
    ``problems`` is what :meth:`check` finds.
    """

    parse = staticmethod(parse_route)
    read_ack = staticmethod(read_ack)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ahead_s = 0.0
        self.log = FakeLog()
        self.said: dict[str, tuple[bytes, int]] = {}
        self.clients: list[FakeClient] = []
        self.problems: list[str] = []
        self.closed = False
        self.takes_s = 0.0

    def now(self) -> Now:
        """The clocks of a machine that never sleeps."""
        at = self.clock.now().timestamp()
        return Now(at, at)

    def stamp_ms(self) -> int:
        """The brokers' time."""
        return int((self.clock.now().timestamp() + self.ahead_s) * 1000)

    # -------------------------------------------------------------------------------------------- reading

    def read_all(self) -> tuple[dict[str, Route], dict[str, str]]:
        """Every route, and what is wrong with those that are not understood."""
        routes: dict[str, Route] = {}
        bad: dict[str, str] = {}
        for record in self.log.read()[0]:
            key = record.key.decode()
            routes.pop(key, None)
            bad.pop(key, None)
            if record.value is not None:
                try:
                    routes[key] = self.parse(record.value, key, record.broker_ms)
                except RouteFormatError as exc:
                    bad[key] = str(exc)
        return routes, bad

    def read(self, logical: str) -> Route | None:
        """The route, or None. Raises ``Unreadable``."""
        routes, bad = self.read_all()
        if logical in bad:
            raise Unreadable(f"The route of {logical} is not understood: {bad[logical]}.")
        return routes.get(logical)

    def all_acks(self) -> tuple[list[Ack], list[BadAck]]:
        """The latest acknowledgement of every instance; clients that listen say theirs first, as heartbeats do."""
        for client in self.clients:
            client.follow()
        read = [self.read_ack(key.encode(), value, at) for key, (value, at) in self.said.items()]
        return [a for a in read if isinstance(a, Ack)], [a for a in read if isinstance(a, BadAck)]

    def broker_now(self) -> tuple[int, int]:
        """The bounds of the brokers' time, ms: known exactly here."""
        return self.stamp_ms(), self.stamp_ms()

    def check(self) -> list[str]:
        """What is wrong with the two topics."""
        return list(self.problems)

    # -------------------------------------------------------------------------------------------- writing

    def prepare(self, logical: str) -> list[str]:
        """Both topics are there and right once this was called."""
        done, self.problems = [f"mended: {p}" for p in self.problems], []
        return done

    def write(
        self, route: Route, expect_epoch: int | None, *, within_s: float | None = None, over_bad: bool = False
    ) -> Route:
        """Compare-and-set, after ``takes_s``; the record as it can be read. Raises ``Refused``, ``Transient``."""
        began = self.now()
        if self.takes_s:
            self.clock.sleep(self.takes_s)
        for record in self.log.records:  # a new writer ends what an earlier one of this route left open
            if record.state == "open" and record.key == route.logical.encode():
                record.state = "aborted"
        if self.log.stable_end < self.log.end:
            raise Transient("A transaction on another route is open, so what is in the log is not decided.")
        routes, bad = self.read_all()
        have = routes.get(route.logical)
        if route.logical in bad and not over_bad:
            raise Unreadable(f"The route of {route.logical} is not understood: {bad[route.logical]}.")
        if (have.epoch if have else 0) != (expect_epoch or 0) or route.epoch < max(expect_epoch or 0, 1):
            raise Refused(f"The route of {route.logical} is at epoch {have.epoch if have else 0}, not {expect_epoch}.")
        if within_s is not None and self.now().boot - began.boot >= within_s:
            raise Refused(f"Epoch {route.epoch} of the route of {route.logical} could not be written in time.")
        record = self.log.append(route.logical.encode(), serialise_route(route), self.stamp_ms())
        for client in self.clients:
            client.follow()
        return parse_route(record.value or b"", record.key, record.broker_ms)

    def say(self, key: str, value: bytes | None) -> int:
        """Take in an acknowledgement (None: a tombstone); returns the brokers' stamp."""
        at = self.stamp_ms()
        if value is None:
            self.said.pop(key, None)
        else:
            self.said[key] = value, at
        return at

    def dismiss(self, logical: str, instance: str) -> None:
        """Take an instance's last word out."""
        self.say(ack_key(logical, instance), None)

    def close(self) -> None:
        """Remember it."""
        self.closed = True


@dataclass
class FakeClient:
    """One instance of an application: the pure client, fed at once. What it holds is delivered and read at once."""

    store: FakeRouteStore
    logical: str
    participant: str
    instance: str
    role: Role = "producer"
    group: str | None = None
    principal: str | None = None
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        group = (self.group or self.participant) if self.role == "consumer" else None
        who = Identity(self.logical, self.role, self.participant, self.instance, group, self.principal)
        kind = ProducerClient if self.role == "producer" else ConsumerClient
        self.client: ProducerClient | ConsumerClient = kind(who, self.timing)
        self.position = 0
        self.store.clients.append(self)
        self.follow()

    def follow(self) -> None:
        """Read the route, obey it and acknowledge it."""
        now, client = self.store.now(), self.client
        records, self.position = self.store.log.read(self.position)
        for record in records:
            client.record(now, record.key, record.value, record.broker_ms)
        client.read_ok(now, settled=self.position >= self.store.log.end)
        for _ in range(4):  # a member leaves, is out, and joins again
            self._advance(now)
            out = client.ack(now)
            if out is not None:
                client.acked(out, now, self.store.say(out.ack.key, serialise_ack(out.ack)))

    def _advance(self, now: Now) -> None:
        client = self.client
        if isinstance(client, ProducerClient):
            client.advance(now, flushed=True)
            return
        if not client.begun:
            begin = client.start()
            client.begin(begin if isinstance(begin, str) else begin[1] if begin else self.logical)
        client.advance(now, clean=True, at_end=True, out=not client.reading)

    def leave(self) -> None:
        """Say good-bye."""
        self.store.clients.remove(self)
        out = self.client.good_bye(self.store.now())
        self.store.say(out.ack.key, serialise_ack(out.ack))


class FakeController:
    """A controller whose participants are plain values: they do at once what they are told.

    ``deaf`` names do nothing; ``lost`` names cannot be observed. ``acts`` is what was asked, in order.
    """

    def __init__(self, kind: str = "route", *, needs_person: bool = False, seeded: bool | None = None) -> None:
        self.kind = kind
        self.needs_person = needs_person
        self.seeded = needs_person if seeded is None else seeded
        self.cannot: list[str] = []
        self.running: dict[str, bool] = {}
        self.topic: dict[str, str] = {}
        self.armed: dict[str, bool] = {}
        self.deaf: set[str] = set()
        self.lost: dict[str, str] = {}
        self.acts: list[str] = []
        self.closed = False

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state each."""
        out = []
        for p in participants:
            if p.name in self.lost:
                out.append(ParticipantState(p, "unknown", None, reason=self.lost[p.name]))
                continue
            status = "running" if self.running.get(p.name, True) else "stopped"
            topic = self.topic.get(p.name, ctx.source)
            one = InstanceState(f"{p.name}-1", status, topic, None, principal=p.principal)
            now = "running" if status == "running" else "stopped"
            out.append(ParticipantState(p, now, topic, (one,), armed=self.armed.get(p.name, False)))  # type: ignore[arg-type]
        return out

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What a test says."""
        return list(self.cannot)

    def prepare(self, ctx: ControlContext) -> list[str]:
        """Nothing to make."""
        return []

    def check(self, ctx: ControlContext) -> list[str]:
        """Nothing that could be wrong."""
        return []

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Nobody that was not declared."""
        return []

    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Arm them."""
        self._set("arm", participants, self.armed, True)

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Disarm them."""
        self._set("disarm", participants, self.armed, False)

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Stop them. Raises ``Refused`` for producers without a lease that lies ahead, as a route does."""
        if ctx.lease_until is None and any(p.role == "producer" for p in participants):
            raise Refused("Producers are not stopped without a lease.")
        self._set("stop", participants, self.running, False)

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Point them. Raises ``Refused`` for producers that run elsewhere."""
        for p in participants:
            if p.role == "producer" and self.running.get(p.name, True) and self.topic.get(p.name, ctx.source) != topic:
                raise Refused(f"Producer {p.name} runs; stop it first.")
        self._set(f"point {topic}", participants, self.topic, topic)

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Start them."""
        self._set("start", participants, self.running, True)

    def _set(self, act: str, participants: Sequence[Participant], table: dict[str, _T], value: _T) -> None:
        for p in participants:
            self.acts.append(f"{act} {p.name}")
            if p.name not in self.deaf:
                table[p.name] = value

    def close(self) -> None:
        """Remember it."""
        self.closed = True
