"""One contract for every controller: the fake, the route over its fake store, and the route on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.route_world import RouteWorld, eventually

from lab.broker import EmbeddedBroker
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.route import RouteController
from topicshift.client import RoutedProducer
from topicshift.core.errors import Refused
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
    states = case.wait("running", case.source)
    # One state for each, in the order asked, with its instances.
    assert [s.participant for s in states] == both
    assert all(len(s.instances) == 1 for s in states)

    with pytest.raises(Refused):
        act.stop(replace(case.ctx(), lease_until=None), both)
    with pytest.raises(Refused):
        act.point(case.ctx(), both, case.target)  # they run
    case.wait("running", case.source)

    for _ in range(2):  # every act may be repeated
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
