"""Fakes of what moves participants: a route store in memory, clients that follow it, and a plain controller.

Held against the real ones by the contract in ``tests/integration/test_route_contract.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from topicshift.core.errors import Refused
from topicshift.core.route.client import (
    ConsumerView,
    ProducerView,
    advance_consumer,
    advance_producer,
    start_consumer,
    start_producer,
)
from topicshift.core.route.judge import Follower
from topicshift.core.route.records import Ack, Route, Status, parse_route, serialise_route
from topicshift.ports import Clock, ControlContext, InstanceState, Participant, ParticipantState

_T = TypeVar("_T")


class FakeRouteStore:
    """:class:`topicshift.adapters.route_store.RouteStore` in memory, with the same compare-and-set.

    ``takes_s`` is how long a write is tried before it gets through.

    ``clients`` act at once on every write, as :meth:`FakeClient.follow` does; take one out to make it deaf.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.routes: dict[str, Route] = {}
        self.said: dict[str, Ack] = {}
        self.clients: list[FakeClient] = []
        self.closed = False
        self.takes_s = 0.0

    def read(self, logical: str) -> Route | None:
        """The route, or None."""
        return self.routes.get(logical)

    def read_all(self, only: str | None = None) -> dict[str, Route]:
        """Every route."""
        return {k: v for k, v in self.routes.items() if only in (None, k)}

    def acks(self, logical: str) -> list[Ack]:
        """The latest acknowledgement of every instance; clients that listen say theirs first, as heartbeats do."""
        for client in self.clients:
            client.follow()
        return [a for a in self.said.values() if a.logical == logical]

    def clock_ahead(self) -> float | None:
        """There is one clock."""
        return 0.0

    def write(self, route: Route, expect_epoch: int | None, *, not_after: datetime | None = None) -> None:
        """Compare-and-set, after ``takes_s``. Raises ``Refused``."""
        if self.takes_s:
            self.clock.sleep(self.takes_s)
        if not_after is not None and self.clock.now() >= not_after:
            raise Refused(f"Epoch {route.epoch} of the route of {route.logical} could not be written in time.")
        have = self.routes.get(route.logical)
        if (have.epoch if have else 0) != (expect_epoch or 0) or route.epoch < max(expect_epoch or 0, 1):
            raise Refused(f"The route of {route.logical} is at epoch {have.epoch if have else 0}, not {expect_epoch}.")
        self.routes[route.logical] = parse_route(serialise_route(route))
        for client in self.clients:
            client.follow()

    def say(self, ack: Ack) -> None:
        """Take in an acknowledgement, stamped with the time of now."""
        now = self.clock.now()
        at = ack.at if ack.at.year > 1970 else now
        self.said[ack.key] = replace(ack, at=at, broker_ms=int(now.timestamp() * 1000))

    def close(self) -> None:
        """Remember it."""
        self.closed = True


@dataclass
class FakeClient:
    """One instance of an application, which follows the route by the pure state machines."""

    store: FakeRouteStore
    logical: str
    participant: str
    instance: str
    role: str = "producer"
    group: str | None = None
    principal: str | None = None
    view: ProducerView | ConsumerView | None = field(default=None)

    def __post_init__(self) -> None:
        self.store.clients.append(self)
        self.follow()

    def follow(self) -> None:
        """Read the route and acknowledge it."""
        route, now = self.store.read(self.logical), self.store.clock.now()
        view: ProducerView | ConsumerView
        if self.role == "producer":
            view = self.view if isinstance(self.view, ProducerView) else start_producer(self.logical)
            view = advance_producer(view, route, now, blind=False, flushed=True)
        else:
            group = self.group or self.participant
            view = self.view if isinstance(self.view, ConsumerView) else start_consumer(self.logical, group, route)
            for _ in range(2):  # released, then at the end of what it read
                view = advance_consumer(view, group, route, now, at_end=True)
        self.view = view
        self.store.say(self._ack(view.status))

    def leave(self) -> None:
        """Say good-bye."""
        self.store.clients.remove(self)
        self.store.say(self._ack(Status.GONE))

    def _ack(self, status: Status) -> Ack:
        assert self.view is not None
        group = (self.group or self.participant) if self.role == "consumer" else None
        return Ack(
            self.logical,
            self.role,
            self.participant,
            self.instance,
            status,
            self.view.epoch,
            self.view.topic,
            group=group,
            principal=self.principal,
        )


class FakeController:
    """A controller whose participants are plain values: they do at once what they are told.

    ``deaf`` names do nothing; ``lost`` names cannot be observed. ``acts`` is what was asked, in order.
    """

    def __init__(self, kind: str = "route", *, needs_person: bool = False) -> None:
        self.kind = kind
        self.needs_person = needs_person
        self.running: dict[str, bool] = {}
        self.topic: dict[str, str] = {}
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
            out.append(ParticipantState(p, "running" if status == "running" else "stopped", topic, (one,)))
        return out

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Nobody that was not declared."""
        return []

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
