"""Controllers over plain values: what acknowledgements add up to, and what a person's word is worth."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from topicshift.adapters.controllers import KINDS, ControllerEnv, controller, kinds
from topicshift.adapters.controllers.manual import ManualController
from topicshift.adapters.controllers.route import RouteController, judge
from topicshift.adapters.route_store import RouteStore
from topicshift.core.errors import OwnershipLost, Refused, SpecError
from topicshift.core.route.records import ROUTES_TOPIC, Ack, GroupRoute, Route, State, Status
from topicshift.core.spec.fields import KINDS as SPEC_KINDS
from topicshift.ports import ControlContext, Controller, GroupMember, Participant
from topicshift.testing.fake_controllers import FakeClient, FakeController, FakeRouteStore
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

T0 = datetime(2030, 1, 31, tzinfo=UTC)
LEASE = T0 + timedelta(seconds=60)
CHECKOUT = Participant("checkout", "producer", "route")
LEDGER = Participant("ledger", "consumer", "route", group="ledger")
PAUSED = Route("p", "p", State.PAUSED, 3, LEASE, source="p", target="p2", migration="m1", claim=1)
OPEN = replace(PAUSED, state=State.OPEN, lease_until=None, epoch=5, active="p2")


def ack(instance: str, status: Status, epoch: int, topic: str = "p", *, age_s: float = 0, **more: object) -> Ack:
    stamp = T0 - timedelta(seconds=age_s)
    one = Ack("p", "producer", "checkout", instance, status, epoch, topic, at=stamp)
    return replace(one, broker_ms=int(stamp.timestamp() * 1000), **more)  # type: ignore[arg-type]


def seen(route: Route | None, *acks: Ack, who: Participant = CHECKOUT, ahead: float | None = 0.0):
    return judge(who, "p", route, acks, T0, ahead)


def test_nobody_who_ever_reported_is_unknown_and_not_stopped() -> None:
    state = seen(PAUSED)
    assert state.status == "unknown"
    assert "'checkout'" in state.reason


def test_stopped_needs_every_instance_at_the_present_epoch() -> None:
    one, two = ack("c.1", Status.PAUSED, 3), ack("c.2", Status.PAUSED, 3)
    assert seen(PAUSED, one, two).status == "stopped"
    late = seen(PAUSED, one, ack("c.2", Status.PAUSED, 1))
    assert late.status == "running"
    assert "c.2 has not acknowledged epoch 3" in late.reason
    flushing = seen(PAUSED, one, ack("c.2", Status.FLUSHING, 3))
    assert flushing.status == "running"
    assert "c.2 is flushing" in flushing.reason


def test_a_pause_whose_lease_is_over_is_no_stop() -> None:
    over = replace(PAUSED, lease_until=T0)
    assert seen(over, ack("c.1", Status.PAUSED, 3)).status == "running"
    assert seen(PAUSED, ack("c.1", Status.LEASE_EXPIRED, 3)).status == "running"


def test_running_on_a_topic_needs_every_instance_there_at_the_present_epoch() -> None:
    one = ack("c.1", Status.RUNNING, 5, "p2")
    assert (seen(OPEN, one).status, seen(OPEN, one).topic) == ("running", "p2")
    for other in (ack("c.2", Status.RUNNING, 3), ack("c.2", Status.PAUSED, 5, "p2"), ack("c.2", Status.RUNNING, 5)):
        mixed = seen(OPEN, one, other)
        assert (mixed.status, mixed.topic) == ("running", None)
        assert "c.2" in mixed.reason


def test_a_silent_instance_is_unknown_by_name_then_gone() -> None:
    live = ack("c.1", Status.PAUSED, 3)
    silent = seen(PAUSED, live, ack("c.2", Status.PAUSED, 3, age_s=9.5))
    assert silent.status == "unknown"
    assert "c.2 is silent" in silent.reason
    gone = seen(PAUSED, live, ack("c.2", Status.RUNNING, 1, age_s=61))
    assert gone.status == "stopped"
    assert [i.instance for i in gone.instances] == ["c.1"]


def test_all_gone_is_stopped_and_says_how_they_went() -> None:
    assert "good-bye" in seen(OPEN, ack("c.1", Status.GONE, 2)).reason
    killed = seen(OPEN, ack("c.1", Status.RUNNING, 2, age_s=100))
    assert killed.status == "stopped"
    assert "c.1 (100 s) went silent" in killed.reason


def test_a_clock_that_runs_ahead_of_the_orchestrators_is_unknown() -> None:
    fast = ack("c.1", Status.PAUSED, 3, at=T0 + timedelta(seconds=1.5))
    assert "clock of c.1 runs 1.5 s ahead" in seen(PAUSED, fast).reason
    assert seen(PAUSED, fast, ahead=0.8).status == "stopped"
    slow = ack("c.1", Status.PAUSED, 3, at=T0 - timedelta(seconds=30))
    assert seen(PAUSED, slow).status == "stopped"


def test_a_clock_of_the_orchestrator_that_runs_behind_is_seen_though_nobody_could_ask_for_it() -> None:
    """A lease that it writes ends too early for its clients; silence would be seen too late."""
    ahead = ack("c.1", Status.PAUSED, 3, age_s=-5)
    state = seen(PAUSED, ahead, ahead=None)
    assert state.status == "unknown" and "5.0 s ahead of this machine's clock" in state.reason
    assert "clock of c.1 runs 5.0 s ahead" in seen(PAUSED, ahead, ahead=-5.0).reason


def test_a_blind_instance_is_unknown() -> None:
    assert "cannot read the route (no right)" in seen(PAUSED, ack("c.1", Status.BLIND, 3, reason="no right")).reason


def test_a_consumer_is_judged_by_its_groups_entry() -> None:
    def member(status: Status, topic: str) -> Ack:
        return ack("l.1", status, 5, topic, role="consumer", participant="ledger", group="ledger")

    held = replace(OPEN, groups={"ledger": GroupRoute("p")})
    assert (seen(held, member(Status.RUNNING, "p"), who=LEDGER)).topic == "p"
    released = replace(OPEN, groups={"ledger": GroupRoute("p2", came_from="p")})
    draining = seen(released, member(Status.DRAINING, "p"), who=LEDGER)
    assert (draining.status, draining.topic) == ("running", None)
    assert seen(released, member(Status.RUNNING, "p2"), who=LEDGER).topic == "p2"
    stopped = replace(OPEN, groups={"ledger": GroupRoute("p", State.PAUSED, LEASE)})
    assert seen(stopped, member(Status.PAUSED, "p"), who=LEDGER).status == "stopped"


# ------------------------------------------------------------------------------------------- the controller


class World:
    """A route in memory with two producers' instances and a group that follow it."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        self.store = FakeRouteStore(self.clock)
        self.controller = RouteController(self.store, self.clock)
        self.clients = [FakeClient(self.store, "p", "checkout", f"c.{n}") for n in (1, 2)]
        self.clients += [FakeClient(self.store, "p", "ledger", "l.1", "consumer", "ledger")]

    def ctx(self, **changes: object) -> ControlContext:
        ctx = ControlContext("m1", "p", "p2", 1, self.clock.now() + timedelta(seconds=60))
        return replace(ctx, **changes)  # type: ignore[arg-type]

    def state(self, who: Participant) -> tuple[str, str | None]:
        (one,) = self.controller.observe(self.ctx(), [who])
        return one.status, one.topic


def test_the_switch_through_the_port() -> None:
    world = World()
    act = world.controller
    assert isinstance(act, Controller)
    assert world.state(CHECKOUT) == ("running", "p")
    act.stop(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT) == ("stopped", "p")
    act.point(world.ctx(), [CHECKOUT], "p2")
    assert world.state(CHECKOUT) == ("stopped", "p2")
    act.start(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT) == ("running", "p2")
    # The group was held to the source although nobody named it, and moves when it is released.
    assert world.state(LEDGER) == ("running", "p")
    act.point(world.ctx(), [LEDGER], "p2")
    act.start(world.ctx(), [LEDGER])
    assert world.state(LEDGER) == ("running", "p2")
    act.close()
    assert world.store.closed


def test_producers_are_not_pointed_by_a_write_that_gets_through_when_their_lease_is_over() -> None:
    """The decision had its margin; the brokers took the record at a later try."""
    world = World()
    lease = world.clock.now() + timedelta(seconds=60)
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.clock.advance(50)
    world.store.takes_s = 15
    with pytest.raises(Refused, match="lease"):
        world.controller.point(world.ctx(lease_until=lease), [CHECKOUT], "p2")
    world.store.takes_s = 0
    assert world.store.routes["p"].active == "p"
    assert world.state(CHECKOUT) == ("running", "p"), "they went on where they were"


def test_the_store_looks_at_the_time_just_before_it_commits() -> None:
    store, written = object.__new__(RouteStore), []
    store._writer = lambda _: None  # type: ignore[method-assign,assignment,return-value]
    store.read = lambda _: PAUSED  # type: ignore[method-assign]
    store._logs = {ROUTES_TOPIC: SimpleNamespace(writers={})}  # type: ignore[dict-item]
    store._commit = lambda *_: written.append(1)  # type: ignore[method-assign]
    now = datetime.now(UTC)
    with pytest.raises(Refused, match="the lease of its pause is about to end"):
        store._put(OPEN, 3, b"mark", now - timedelta(seconds=1))
    assert not written
    store._put(OPEN, 3, b"mark", now + timedelta(seconds=60))
    assert written


def test_an_instance_that_does_not_hear_keeps_its_application_from_counting_as_stopped() -> None:
    world = World()
    world.store.clients.remove(world.clients[1])  # type: ignore[arg-type]
    world.controller.stop(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT)[0] == "running"
    world.clock.advance(20)
    assert world.state(CHECKOUT)[0] == "unknown"


def test_a_write_between_reading_and_writing_is_decided_anew() -> None:
    world = World()
    real = world.store.write

    def raced(route: Route, expect_epoch: int | None, **_: object) -> None:
        world.store.write = real  # type: ignore[method-assign]
        real(Route("p", "p", State.OPEN, 7), None)
        real(route, expect_epoch)

    world.store.write = raced  # type: ignore[method-assign]
    world.controller.stop(world.ctx(), [CHECKOUT])
    route = world.store.read("p")
    assert route is not None
    assert (route.state, route.epoch) == (State.PAUSED, 8)


def test_a_newer_run_owns_the_route() -> None:
    world = World()
    world.controller.stop(world.ctx(epoch=2), [CHECKOUT])
    with pytest.raises(OwnershipLost):
        world.controller.start(world.ctx(epoch=1), [CHECKOUT])


def test_a_dead_orchestrator_does_not_stop_the_business() -> None:
    world = World()
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.clock.advance(60)
    assert world.state(CHECKOUT) == ("running", "p")
    with pytest.raises(Refused, match="margin"):
        world.controller.point(world.ctx(), [CHECKOUT], "p2")
    world.controller.start(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT) == ("running", "p")


def test_a_second_migration_follows_the_application_under_its_own_name() -> None:
    world = World()
    for act in (
        lambda c: world.controller.stop(c, [CHECKOUT]),
        lambda c: world.controller.point(c, [CHECKOUT], "p2"),
        lambda c: world.controller.start(c, [CHECKOUT]),
    ):
        act(world.ctx())
    second = world.ctx(migration="m2", source="p2", target="p3")
    world.controller.stop(second, [CHECKOUT])
    assert world.store.routes.keys() == {"p"}
    assert world.controller.observe(second, [CHECKOUT])[0].status == "stopped"


def test_everybody_on_the_route_is_named_declared_or_not() -> None:
    world = World()
    FakeClient(world.store, "p", "billing", "b.1")
    FakeClient(world.store, "p", "late", "l.1").leave()
    FakeClient(world.store, "orders", "elsewhere", "e.1")
    found = [(f.role, f.participant, f.group) for f in world.controller.followers(world.ctx())]
    assert ("producer", "billing", None) in found and ("consumer", "ledger", "ledger") in found
    assert not {"late", "elsewhere"} & {name for _, name, _ in found}


def test_the_plain_fake_keeps_the_port() -> None:
    fake = FakeController()
    assert isinstance(fake, Controller)
    ctx = ControlContext("m1", "p", "p2", 1, LEASE)
    with pytest.raises(Refused):
        fake.stop(replace(ctx, lease_until=None), [CHECKOUT])
    with pytest.raises(Refused):
        fake.point(ctx, [CHECKOUT], "p2")
    fake.stop(ctx, [CHECKOUT])
    fake.point(ctx, [CHECKOUT], "p2")
    fake.start(ctx, [CHECKOUT])
    assert [(s.status, s.topic) for s in fake.observe(ctx, [CHECKOUT])] == [("running", "p2")]


# ------------------------------------------------------------------------------------------- the registry


def test_every_kind_of_the_spec_has_a_controller() -> None:
    assert set(SPEC_KINDS) <= set(kinds()) == set(KINDS) | set(kinds())
    env = ControllerEnv({"bootstrap.servers": "127.0.0.1:1"}, FakeCluster())
    for kind in SPEC_KINDS:
        made = controller(kind, env)
        assert isinstance(made, Controller)
        assert made.kind == kind
        made.close()


def test_an_unknown_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SpecError, match="Did you mean route"):
        controller("rout", ControllerEnv({}))
    with pytest.raises(SpecError, match="manual, route"):
        controller("zeppelin", ControllerEnv({}))
    with pytest.raises(SpecError, match="admin"):
        controller("manual", ControllerEnv({}))


# ------------------------------------------------------------------------------------------- a person's word


CTX = ControlContext("m1", "p", "p2", 1)
BILLING = Participant("billing", "producer", "manual")
SEARCH = Participant("search", "consumer", "manual", group="search")


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for topic, partitions in (("p", 2), ("p2", 3)):
        made.create_topic(topic, partitions, 1, {})
    made.produce("p", 0, 5)
    return made


def test_a_producer_nobody_spoke_for_is_unknown(cluster: FakeCluster) -> None:
    (state,) = ManualController(cluster).observe(CTX, [BILLING])
    assert (state.status, "billing" in state.reason) == ("unknown", True)


def test_a_group_without_members_is_stopped_unless_its_commits_move(cluster: FakeCluster) -> None:
    control = ManualController(cluster)
    cluster.commit("search", "p", {0: 1})
    assert control.observe(CTX, [SEARCH])[0].status == "stopped"
    cluster.commit("search", "p", {0: 3})
    moving = control.observe(CTX, [SEARCH])[0]
    assert (moving.status, moving.topic) == ("running", None)
    assert "p[0] 1 -> 3" in moving.reason
    assert control.observe(CTX, [SEARCH])[0].status == "stopped"


def test_a_groups_members_tell_where_it_runs(cluster: FakeCluster) -> None:
    control = ManualController(cluster)
    cluster.join("search", GroupMember("m1", "search-1", "/10.0.0.1", assignment={"p": (0, 1)}))
    assert control.observe(CTX, [SEARCH])[0].topic == "p"
    cluster.join("search", GroupMember("m2", "search-2", "/10.0.0.2", assignment={"p2": (0, 1, 2)}))
    both = control.observe(CTX, [SEARCH])[0]
    assert (both.status, both.topic) == ("running", None)
    assert "both p and p2" in both.reason
    cluster.leave("search", "m1")
    assert control.observe(CTX, [SEARCH])[0].topic == "p2"


def test_the_acts_of_a_manual_controller_do_nothing(cluster: FakeCluster) -> None:
    control = ManualController(cluster)
    assert isinstance(control, Controller)
    assert control.needs_person
    control.stop(CTX, [BILLING])
    control.point(CTX, [BILLING], "p2")
    control.start(CTX, [BILLING])
    assert control.observe(CTX, [BILLING])[0].status == "unknown"
