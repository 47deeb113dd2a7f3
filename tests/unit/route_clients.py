"""Clients of the route that are told what they read and hear, for tests of what they do next."""

from __future__ import annotations

from topicshift.core.route.client import ConsumerClient, Identity, Outgoing, ProducerClient, Timing, Turn
from topicshift.core.route.clocks import Now
from topicshift.core.route.records import GroupRoute, Route, State, Status, serialise_route

B0 = 1_896_056_100_000
PRODUCER = Identity("p", "producer", "checkout", "c.1")
MEMBER = Identity("p", "consumer", "ledger", "l.1", "g")


def at(seconds: float) -> Now:
    return Now(5e9 + seconds, 1000 + seconds)  # a wall clock that is far off, and must not matter


def ms(seconds: float) -> int:
    return B0 + round(seconds * 1000)


def opened(topic: str, epoch: int, **more: object) -> Route:
    return Route("p", topic, State.OPEN, epoch, **more)  # type: ignore[arg-type]


def paused(topic: str, epoch: int, until_s: float = 60) -> Route:
    return Route("p", topic, State.PAUSED, epoch, until_ms=ms(until_s), pause=epoch)


class Told:
    """A client that is told everything at once; the brokers take each acknowledgement as it is sent."""

    def __init__(self, client: ProducerClient | ConsumerClient) -> None:
        self.client = client
        self.said: list[Outgoing] = []

    def hears(self, now_s: float) -> None:
        out = self.client.ack(at(now_s))
        if out is not None:
            self.said.append(out)
            self.client.acked(out, at(now_s), ms(now_s))

    def reads(self, now_s: float, *routes: Route, stamp_s: float | None = None, settled: bool = True) -> None:
        for route in routes:
            stamp = ms(now_s if stamp_s is None else stamp_s)
            self.client.record(at(now_s), b"p", serialise_route(route), stamp)
        self.client.read_ok(at(now_s), settled=settled)


class Producing(Told):
    client: ProducerClient

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(ProducerClient(PRODUCER, timing))

    def step(self, now_s: float, *routes: Route, flushed: bool = True, **how: object) -> ProducerClient:
        self.hears(now_s)
        self.reads(now_s, *routes, **how)  # type: ignore[arg-type]
        self.client.advance(at(now_s), flushed=flushed)
        self.hears(now_s)
        return self.client

    def where(self) -> tuple[Status, str, int]:
        return self.client.status, self.client.topic, self.client.epoch


def grouped(epoch: int, **groups: GroupRoute) -> Route:
    return Route("p", "p2", State.OPEN, epoch, groups=groups)


def held(topic: str, until_s: float = 60, **more: object) -> GroupRoute:
    return GroupRoute(topic, State.PAUSED, until_ms=ms(until_s), **more)  # type: ignore[arg-type]


class Consuming(Told):
    client: ConsumerClient

    def __init__(self, *routes: Route, topic: str = "p") -> None:
        super().__init__(ConsumerClient(MEMBER))
        self.out = True
        self.hears(0)
        self.reads(0, *routes)
        start = self.client.start()
        self.client.begin(start if isinstance(start, str) else topic)
        self.turn()

    def turn(self, now_s: float = 0, *, clean: bool = True, at_end: bool = False, slow: bool = False) -> Turn:
        turn = self.client.advance(at(now_s), clean=clean, at_end=at_end, out=self.out)
        if turn.subscribe:
            self.out = False
        if turn.leave:
            self.out = not slow
        return turn

    def where(self) -> tuple[Status, str]:
        return self.client.status, self.client.topic
