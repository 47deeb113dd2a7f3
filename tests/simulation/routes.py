"""The route in the simulator: the fake log that ships, under simulated time, and the real clients fed from it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from topicshift.core.route.client import ConsumerClient, Identity, ProducerClient
from topicshift.core.route.clocks import Now
from topicshift.core.route.records import Ack, BadAck, Route, ack_key, parse_route
from topicshift.testing.fake_controllers import FakeRouteStore

from .kernel import BASE_MS, Kernel, Process

if TYPE_CHECKING:
    from .world import World


BASE_S = BASE_MS / 1000


class BrokersClock:
    """The brokers' clock is the true one."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def now(self) -> datetime:
        """The true time."""
        return self._kernel.time

    def sleep(self, seconds: float) -> None:
        """Nobody sleeps by this clock."""
        raise RuntimeError("the brokers do not sleep")


class RouteLog(FakeRouteStore):
    """Both topics of the route. Whoever listens looks soon after each record.

    Each route is parsed once, for everybody, and acknowledgements are not written as JSON at all: there are hundreds in
    a run.
    """

    _read: tuple[int, dict[str, Route], dict[str, str]] = (-1, {}, {})

    def __init__(self, world: World) -> None:
        super().__init__(BrokersClock(world.kernel))
        self.parse = functools.lru_cache(maxsize=None)(parse_route)  # of this run alone: the next may break the product
        self._world = world
        self.listeners: list[Any] = []
        self.unreadable_until = -1.0
        self.named, self.read_at = world.source, dict[str, str]()
        """The topics that the route named last; a record that was lost and is written anew moves nobody elsewhere."""
        self.acks: dict[str, Ack] = {}

    def read_all(self) -> tuple[dict[str, Route], dict[str, str]]:
        """Every route, read anew where a record came."""
        if self._read[0] != len(self.log.records):
            self._read = len(self.log.records), *super().read_all()
        return dict(self._read[1]), dict(self._read[2])

    def take_ack(self, ack: Ack) -> int:
        """Take in an acknowledgement; returns the brokers' stamp."""
        at = self.stamp_ms()
        self.acks[ack.key] = replace(ack, broker_ms=at)
        return at

    def all_acks(self) -> tuple[list[Ack], list[BadAck]]:
        """The latest acknowledgement of every instance."""
        return list(self.acks.values()), []

    def dismiss(self, logical: str, instance: str) -> None:
        """Take an instance's last word out."""
        self.acks.pop(ack_key(logical, instance), None)

    def write(self, route: Route, expect_epoch: int | None, **more: Any) -> Route:
        """Compare-and-set, told to the history."""
        written = super().write(route, expect_epoch, **more)
        self.tell(written)
        return written

    def tell(self, route: Route) -> None:
        """A record became visible."""
        self.named, self.read_at = route.active, {g: e.topic for g, e in route.groups.items()}
        self._world.history.add(
            "route", "route", epoch=route.epoch, active=route.active, state=route.state.value,
            migration=route.migration, armed=route.is_armed, void=route.voided,
            until=None if route.until_ms is None else route.until_ms / 1000 - BASE_S,
            groups={g: e.topic for g, e in route.groups.items()},
        )  # fmt: skip
        for listener in list(self.listeners):
            listener.heard()

    def forget(self) -> None:
        """The record is gone: somebody wrote a tombstone."""
        self.log.append(self._world.source.encode(), None, self.stamp_ms())
        for listener in list(self.listeners):
            listener.heard()

    @property
    def readable(self) -> bool:
        """Whether clients reach the two topics just now."""
        return self._world.kernel.now >= self.unreadable_until


class RouteOf:
    """The route as one process of the product sees it: it knows the brokers' time within bounds."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.routes, name)

    def broker_now(self) -> tuple[int, int]:
        """Bounds of the brokers' time: what it was when the process asked, and now."""
        ms = self._world.kernel.ms
        return ms - 20, ms + 20


class Follower:
    """Feeds one pure client from the log, and writes its acknowledgements."""

    def __init__(self, world: World, client: ProducerClient | ConsumerClient) -> None:
        self.world, self.client = world, client
        client.parse = world.routes.parse
        self.position = 0
        self._words: tuple[Any, ...] | None = None
        self._boot = world.rng.uniform(0.0, 1e6)

    def now(self, skew: float) -> Now:
        """This instance's clocks: only the wall clock is ever wrong."""
        true = self.world.kernel.now
        return Now(BASE_S + true + skew, self._boot + true)

    def read(self, now: Now) -> None:
        """Feed it what is new in the log."""
        routes = self.world.routes
        if not routes.readable:
            self.client.read_failed("no answer from the brokers")
            return
        if self.position < routes.log.end or self.position == 0:
            records, self.position = routes.log.read(self.position)
            for record in records:
                self.client.record(now, record.key, record.value, record.broker_ms)
        self.client.read_ok(now, settled=self.position >= routes.log.end)

    def say(self, now: Now, offsets: dict[int, int]) -> None:
        """Write its acknowledgement where one is due."""
        out = self.client.ack(now, offsets)
        if out is None:
            return
        if not self.world.routes.readable:
            self.client.ack_failed(out, now, "no answer from the brokers")
            return
        self.client.acked(out, now, self.world.routes.take_ack(out.ack))
        client = self.client
        words = (client.status, client.epoch, client.topic)
        if words != self._words:
            self._words = words
            says = {"status": client.status.value, "epoch": client.epoch, "topic": client.topic}
            self.world.history.add(client.who.instance, "says", **says)


def producer(world: World, participant: str, instance: str, principal: str) -> Follower:
    """A producer's side of the route."""
    return Follower(world, ProducerClient(Identity(world.source, "producer", participant, instance, None, principal)))


def consumer(world: World, participant: str, instance: str, group: str) -> Follower:
    """A consumer's side of the route."""
    return Follower(world, ConsumerClient(Identity(world.source, "consumer", participant, instance, group, None)))


Say = Callable[[], None]

__all__ = ["Follower", "RouteLog", "RouteOf", "consumer", "producer"]
