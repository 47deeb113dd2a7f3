"""One contract for controllers with a lease and for stores of routes: the fakes, and the route on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from tests.integration.route_world import RouteWorld, eventually

from lab.broker import EmbeddedBroker
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.route import RouteController, RouteRecords
from topicshift.adapters.route_store import RouteStore
from topicshift.client import RoutedProducer
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC, Ack, BadAck, Route, State, Status, serialise_ack
from topicshift.ports import ControlContext, Controller, Participant, ParticipantState
from topicshift.testing.fake_controllers import FakeClient, FakeController, FakeRouteStore

CHECKOUT = Participant("checkout", "producer", "route")
BILLING = Participant("billing", "producer", "route")


@dataclass
class Case:
    """A controller with two running producers on ``source``."""

    controller: Controller
    source: str
    target: str

    def ctx(self) -> ControlContext:
        until = datetime.now(UTC) + timedelta(seconds=120)
        return ControlContext(f"m-{self.source}", self.source, self.target, 1, until)

    def wait(self, status: str, topic: str) -> list[ParticipantState]:
        def seen() -> list[ParticipantState] | None:
            states = self.controller.observe(self.ctx(), [CHECKOUT, BILLING])
            return states if all((s.status, s.topic) == (status, topic) for s in states) else None

        found: list[ParticipantState] = eventually(f"both {status} on {topic}", seen)
        return found


@pytest.fixture(params=["fake", "route over a fake store", "route"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "fake":
        yield Case(FakeController(), "p", "p2")
    elif request.param == "route over a fake store":
        store = FakeRouteStore(SystemClock())
        for name in ("checkout", "billing"):
            FakeClient(store, "p", name, f"{name}.1")
        yield Case(RouteController(store), "p", "p2")
    else:
        broker: EmbeddedBroker = request.getfixturevalue("broker")
        name: Callable[..., str] = request.getfixturevalue("topic_name")
        world = RouteWorld(broker.config(), name())
        apps = [RoutedProducer(world.config, world.source, p) for p in ("checkout", "billing")]
        try:
            yield Case(world.controller, world.source, world.target)
        finally:
            for app in apps:
                app.close()
            world.close()


@pytest.mark.broker
def test_what_every_controller_does(case: Case) -> None:
    both, act = [CHECKOUT, BILLING], case.controller
    assert isinstance(act, Controller)
    assert not act.needs_person
    assert act.check(case.ctx()) == []
    act.prepare(case.ctx())
    states = case.wait("running", case.source)
    # One state for each, in the order asked, with its instances.
    assert [s.participant for s in states] == both
    assert all(len(s.instances) == 1 for s in states)

    with pytest.raises(Refused):
        act.stop(replace(case.ctx(), lease_until=None), both)
    with pytest.raises(Refused):
        act.point(case.ctx(), both, case.target)  # they run
    case.wait("running", case.source)

    assert not any(s.armed for s in states)
    for _ in range(2):  # every act may be repeated
        act.arm(case.ctx(), both)
    eventually("both are armed", lambda: all(s.armed for s in act.observe(case.ctx(), both)))
    case.wait("running", case.source)
    for _ in range(2):
        act.stop(case.ctx(), both)
    case.wait("stopped", case.source)
    act.stop(case.ctx(), [BILLING])
    for _ in range(2):
        act.point(case.ctx(), both, case.target)
    case.wait("stopped", case.target)
    # The way back, while nobody runs, and forth again.
    act.point(case.ctx(), both, case.source)
    case.wait("stopped", case.source)
    act.point(case.ctx(), both, case.target)
    for _ in range(2):
        act.start(case.ctx(), both)
    case.wait("running", case.target)
    act.point(case.ctx(), both, case.target)
    act.start(case.ctx(), both)
    case.wait("running", case.target)
    with pytest.raises(Refused):
        act.point(case.ctx(), both, case.source)
    for _ in range(2):
        act.disarm(case.ctx(), both)
    eventually("neither is armed", lambda: not any(s.armed for s in act.observe(case.ctx(), both)))
    case.wait("running", case.target)


# ------------------------------------------------------------------------------------------------ stores


@dataclass
class Stored:
    """A store, and what anybody may write into its two topics."""

    store: RouteRecords
    logical: str
    put_route: Callable[[str, bytes | None], object]
    put_ack: Callable[[str, bytes | None], object]


@pytest.fixture(params=["fake", "real"])
def stored(request: pytest.FixtureRequest) -> Iterator[Stored]:
    if request.param == "fake":
        fake = FakeRouteStore(SystemClock())
        yield Stored(fake, "p", lambda k, v: fake.log.append(k.encode(), v, fake.stamp_ms()), fake.say)
        return
    broker: EmbeddedBroker = request.getfixturevalue("broker")
    name: str = request.getfixturevalue("topic_name")()
    raw = Producer({**broker.config(), "linger.ms": 0})

    def put(topic: str, key: str, value: bytes | None) -> None:
        raw.produce(topic, key=key, value=value, partition=0)
        assert raw.flush(20) == 0

    with RouteStore(broker.config()) as store:
        store.prepare(name)
        yield Stored(store, name, lambda k, v: put(ROUTES_TOPIC, k, v), lambda k, v: put(ACKS_TOPIC, k, v))


@pytest.mark.broker
def test_what_every_store_does_with_routes(stored: Stored) -> None:
    store, name = stored.store, stored.logical
    assert name not in store.read_all()[0]
    began = store.broker_now()
    first = store.write(Route(name, name, State.OPEN, 1), None)
    ended = store.broker_now()
    assert (first.epoch, store.read_all()[0][name]) == (1, first)
    assert first.broker_ms is not None and began[0] <= first.broker_ms <= ended[1], "with the brokers' stamp"

    for expected in (None, 0, 5):
        with pytest.raises(Refused):
            store.write(Route(name, "elsewhere", State.OPEN, 6), expected)
    with pytest.raises(Refused):
        store.write(first, 2)
    with pytest.raises(Refused):
        store.write(Route(name, "elsewhere", State.OPEN, 2), 1, within_s=0)
    assert store.read_all()[0][name] == first

    paused = store.write(Route(name, name, State.PAUSED, 2, 60_000, pause=2), 1)
    assert paused.until_ms == (paused.broker_ms or 0) + 60_000
    point = replace(paused, epoch=3, active="p2", lease_ms=None, else_active=name)
    void = store.write(replace(point, valid_before_ms=paused.broker_ms), 2)
    assert (void.active, void.voided) == (name, "p2")

    stored.put_route(name, b"{")
    routes, bad = store.read_all()
    assert name not in routes and "not" in bad[name]
    with pytest.raises(Unreadable):
        store.write(Route(name, name, State.OPEN, 4), None)
    assert store.write(Route(name, name, State.OPEN, 4), None, over_bad=True).epoch == 4
    stored.put_route(name, None)
    eventually("a tombstone is no route", lambda: name not in store.read_all()[0])


@pytest.mark.broker
def test_what_every_store_does_with_acknowledgements(stored: Stored) -> None:
    store, name = stored.store, stored.logical
    ack = Ack(name, "producer", "checkout", "c.1", Status.RUNNING, 1, name)

    def mine() -> tuple[dict[str, Ack], dict[str, BadAck]]:
        good, bad = store.all_acks()
        return {a.instance: a for a in good if a.logical == name}, {b.instance: b for b in bad if b.logical == name}

    began = store.broker_now()
    stored.put_ack(ack.key, serialise_ack(ack))
    stored.put_ack(f"{name}/c.2", b"[" * 100_000)
    stored.put_ack(f"{name}/c.3", serialise_ack(ack))  # under another's key
    stored.put_ack(f"~{name}", b"\xff")
    eventually("all are read", lambda: len(mine()[1]) == 2)
    good, bad = mine()
    assert (set(good), set(bad)) == ({"c.1"}, {"c.2", "c.3"})
    stamp = good["c.1"].broker_ms
    assert stamp is not None and began[0] <= stamp <= store.broker_now()[1]
    assert bad["c.3"].participant == "checkout" and bad["c.2"].participant is None
    for instance in ("c.1", "c.2", "nobody"):
        store.dismiss(name, instance)
    eventually("they are dismissed", lambda: (set(mine()[0]), set(mine()[1])) == (set(), {"c.3"}))
    stored.put_ack(f"{name}/c.3", serialise_ack(replace(ack, instance="c.3")))
    eventually("it says something better", lambda: (set(mine()[0]), set(mine()[1])) == ({"c.3"}, set()))
    stored.put_ack(f"{name}/c.3", None)
