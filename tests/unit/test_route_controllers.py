"""Controllers over fakes: the switch through the port, and what a person's word is worth."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.route_values import CHECKOUT, LEASE, LEDGER, T0, T0_MS

from topicshift.adapters.controllers import KINDS, ControllerEnv, controller, kinds
from topicshift.adapters.controllers.manual import ManualController
from topicshift.adapters.controllers.route import RouteController
from topicshift.core.errors import OwnershipLost, Refused, SpecError, Transient, Unreadable
from topicshift.core.route.records import Route, State, serialise_route
from topicshift.core.spec.kinds import SETTINGS as SPEC_KINDS
from topicshift.ports import ControlContext, Controller, Follower, GroupMember, Participant, ParticipantState
from topicshift.testing.fake_controllers import FakeClient, FakeController, FakeRouteStore
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

# ------------------------------------------------------------------------------------------- the controller


class World:
    """A route in memory with two producers' instances and a group that follow it."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        self.store = FakeRouteStore(self.clock)
        self.controller = RouteController(self.store, self.clock)
        self.clients = [FakeClient(self.store, "p", "checkout", f"c.{n}", principal="User:checkout") for n in (1, 2)]
        self.clients += [FakeClient(self.store, "p", "ledger", "l.1", "consumer", "ledger")]

    def ctx(self, **changes: object) -> ControlContext:
        ctx = ControlContext("m1", "p", "p2", 1, self.clock.now() + timedelta(seconds=60))
        return replace(ctx, **changes)  # type: ignore[arg-type]

    def seen(self, who: Participant) -> ParticipantState:
        return self.controller.observe(self.ctx(), [who])[0]

    def state(self, who: Participant) -> tuple[str, str | None]:
        one = self.seen(who)
        return one.status, one.topic

    def route(self) -> Route:
        route = self.store.read("p")
        assert route is not None
        return route

    def put(self, value: bytes, logical: str = "p") -> None:
        self.store.log.append(logical.encode(), value, self.store.stamp_ms())


def test_the_switch_through_the_port() -> None:
    world = World()
    act = world.controller
    assert isinstance(act, Controller)
    assert world.state(CHECKOUT) == ("running", "p")
    assert world.seen(CHECKOUT).armed is False
    act.arm(world.ctx(), [CHECKOUT])
    assert (world.state(CHECKOUT), world.seen(CHECKOUT).armed) == (("running", "p"), True)
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
    act.disarm(world.ctx(), [CHECKOUT])
    assert world.seen(CHECKOUT).armed is False
    act.close()
    assert world.store.closed


@pytest.mark.parametrize("act", ["arm", "stop", "point", "start", "disarm"])
def test_nothing_is_sent_once_the_time_of_the_act_is_over(act: str) -> None:
    """A process that was stalled while it looked at the route sends nothing on what it saw before."""
    world = World()
    before = ["arm", "stop", "point", "start", "disarm"]
    for name in before[: before.index(act)]:
        _do(world, name, world.ctx())
    sent = world.store.log.end

    def over() -> None:
        raise Transient("held up for too long")

    with pytest.raises(Transient, match="held up"):
        _do(world, act, world.ctx(still=over))
    assert world.store.log.end == sent


def _do(world: World, act: str, ctx: ControlContext) -> None:
    more = ("p2",) if act == "point" else ()
    getattr(world.controller, act)(ctx, [CHECKOUT], *more)


def test_a_point_that_is_tried_for_too_long_is_not_written() -> None:
    """The decision was in time; the brokers took the record at a later try."""
    world = World()
    lease = world.clock.now() + timedelta(seconds=60)
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.clock.advance(50)
    world.store.takes_s = 15
    with pytest.raises(Refused, match="p"):
        world.controller.point(world.ctx(lease_until=lease), [CHECKOUT], "p2")
    world.store.takes_s = 0
    assert world.route().active == "p"
    assert world.state(CHECKOUT) == ("running", "p"), "they went on where they were"


def test_a_point_that_a_broker_stamped_too_late_is_void_and_the_orchestrator_hears_it() -> None:
    """The broker stalled between the last look at the time and the append."""
    world = World()
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.clock.advance(50)
    lease = world.clock.now() + timedelta(seconds=10)
    real = world.store.log.append

    def stalled(key: bytes, value: bytes | None, broker_ms: int, state: str = "committed") -> object:
        world.clock.advance(9)
        return real(key, value, world.store.stamp_ms(), state)

    world.store.log.append = stalled  # type: ignore[method-assign,assignment]
    with pytest.raises(Refused, match="void"):
        world.controller.point(world.ctx(lease_until=lease), [CHECKOUT], "p2")
    world.store.log.append = real  # type: ignore[method-assign]
    world.clock.advance(2)
    state = world.seen(CHECKOUT)
    assert (state.status, state.topic) == ("running", "p") and "void" in state.reason
    with pytest.raises(Refused, match="Stop them again"):
        world.controller.point(world.ctx(), [CHECKOUT], "p2")
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.controller.point(world.ctx(), [CHECKOUT], "p2")
    assert world.state(CHECKOUT) == ("stopped", "p2"), "it starts over"


def test_a_pause_does_not_outlast_the_lease_because_its_write_took_long() -> None:
    world = World()
    lease = world.clock.now() + timedelta(seconds=60)
    real = world.store.write
    tries: list[Route] = []

    def slow_once(route: Route, *args: object, **how: object) -> Route:
        tries.append(route)
        world.store.takes_s = 20 if len(tries) == 1 else 0
        return real(route, *args, **how)  # type: ignore[arg-type]

    world.store.write = slow_once  # type: ignore[method-assign]
    world.controller.stop(world.ctx(lease_until=lease), [CHECKOUT])
    until_ms = world.route().until_ms
    assert len(tries) == 2 and until_ms is not None and until_ms <= lease.timestamp() * 1000


def test_an_instance_that_does_not_hear_keeps_its_application_from_counting_as_stopped() -> None:
    world = World()
    world.store.clients.remove(world.clients[1])
    world.controller.stop(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT)[0] == "running"
    world.clock.advance(20)
    state = world.seen(CHECKOUT)
    assert state.status == "unknown" and state.gone_ms == 45_000, "what it could cost a freeze, once it is armed"
    assert state.clears_at == T0 + timedelta(milliseconds=935_000)


def test_one_that_dies_after_it_paused_costs_nothing() -> None:
    world = World()
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.store.clients.remove(world.clients[1])
    world.clock.advance(20)
    assert world.state(CHECKOUT) == ("stopped", "p")
    world.controller.point(world.ctx(), [CHECKOUT], "p2")
    world.controller.start(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT) == ("running", "p2")


def test_a_person_who_knows_that_an_instance_is_dead_ends_the_wait() -> None:
    world = World()
    world.store.clients.remove(world.clients[1])
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.clock.advance(20)
    world.store.dismiss("p", "c.2")
    assert world.state(CHECKOUT) == ("stopped", "p")


def test_a_bad_acknowledgement_of_this_topic_blocks_by_name_until_it_is_dismissed() -> None:
    world = World()
    world.store.say("p/c.9", b"[" * 200_000)
    state = world.seen(CHECKOUT)
    assert state.status == "unknown" and "c.9" in state.reason
    world.controller.stop(world.ctx(), [CHECKOUT])  # resume and stop still work
    world.controller.start(world.ctx(), [CHECKOUT])
    world.store.dismiss("p", "c.9")
    assert world.state(CHECKOUT) == ("running", "p")


def test_what_another_topics_applications_write_concerns_nobody_here() -> None:
    world = World()
    world.store.say("q/x.1", b"{")
    world.store.say("~odd", b"\xff")
    world.put(b"{", "q")
    world.put(b"[" * 200_000, "zz")
    world.controller.stop(world.ctx(), [CHECKOUT])
    world.controller.point(world.ctx(), [CHECKOUT], "p2")
    world.controller.start(world.ctx(), [CHECKOUT])
    assert world.state(CHECKOUT) == ("running", "p2")


def test_a_bad_record_of_this_route_is_unreadable_and_is_not_taken_for_no_route() -> None:
    world = World()
    world.put(b"{")
    with pytest.raises(Unreadable, match="route set --topic p"):
        world.controller.stop(world.ctx(), [CHECKOUT])
    # Also when the applications on this source have kept another name.
    with pytest.raises(Unreadable, match="route set --topic p"):
        world.controller.observe(world.ctx(migration="m2", source="p", target="p3"), [CHECKOUT])


def test_a_write_between_reading_and_writing_is_decided_anew() -> None:
    world = World()
    real = world.store.write

    def raced(route: Route, expect_epoch: int | None, **_: object) -> Route:
        world.store.write = real  # type: ignore[method-assign]
        real(Route("p", "p", State.OPEN, 7), None)
        return real(route, expect_epoch)

    world.store.write = raced  # type: ignore[method-assign]
    world.controller.stop(world.ctx(), [CHECKOUT])
    assert (world.route().state, world.route().epoch) == (State.PAUSED, 8)


def test_an_open_transaction_of_another_route_hides_nothing_from_a_compare_and_set() -> None:
    world = World()
    world.store.log.append(b"q", serialise_route(Route("q", "q", State.OPEN, 1)), T0_MS, "open")
    world.put(serialise_route(Route("p", "p2", State.OPEN, 9)))
    assert world.store.read("p") is None, "a committed reader does not see it yet"
    with pytest.raises(Transient):
        world.controller.stop(world.ctx(), [CHECKOUT])


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


@pytest.mark.parametrize("ahead_s", [4.9, -4.9])
def test_an_orchestrator_whose_clock_is_a_little_off_ends_no_pause_early(ahead_s: float) -> None:
    world = World()
    world.store.ahead_s = ahead_s  # so far the brokers' clock runs ahead of its own
    world.controller.stop(world.ctx(), [CHECKOUT])
    assert world.route().until_ms == T0_MS + 60_000 + ahead_s * 1000


@pytest.mark.parametrize(("ahead_s", "said"), [(70.0, "70.0 s behind"), (-70.0, "70.0 s ahead of")])
def test_an_orchestrator_whose_clock_is_wrong_stops_nobody(ahead_s: float, said: str) -> None:
    """With another clock than the worker's before, the pause would outlast the budget by the difference."""
    world = World()
    world.store.ahead_s = ahead_s
    with pytest.raises(Refused, match=f"clock of this machine is {said} the brokers'.*outlast the freeze budget"):
        world.controller.stop(world.ctx(), [CHECKOUT])
    assert world.store.read("p") is None, "no pause was written"


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
    assert world.store.read_all()[0].keys() == {"p"}
    assert world.controller.observe(second, [CHECKOUT])[0].status == "stopped"


def switched(world: World, *, lost: bool = True) -> None:
    """Producers and the group are on the target; then somebody deletes the route's record."""
    for who in (CHECKOUT, LEDGER):
        world.controller.stop(world.ctx(), [who])
        world.controller.point(world.ctx(), [who], "p2")
        world.controller.start(world.ctx(), [who])
    if lost:
        world.store.log.append(b"p", None, world.store.stamp_ms())
        world.controller = RouteController(world.store, world.clock)  # another process, which has not read the record


@pytest.mark.parametrize(
    "ctx",
    [
        {"source": "p2", "target": "p", "first_source": "p", "producers_on": "p2"},  # the way back of this migration
        {"source": "p2", "target": "p3", "migration": "m2", "producers_on": "p2"},  # the next migration
        {"source": "p3", "target": "p2", "first_source": "p2", "migration": "m2", "producers_on": "p2"},  # its way back
    ],
)
def test_a_route_without_its_record_keeps_the_name_that_its_applications_know(ctx: dict[str, str]) -> None:
    world = World()
    switched(world)
    world.controller.arm(world.ctx(**ctx), [CHECKOUT, LEDGER])
    assert (world.store.read_all()[0].keys(), world.route().active) == ({"p"}, "p2")
    seen = world.controller.observe(world.ctx(**ctx), [CHECKOUT, LEDGER])
    assert [(s.status, s.topic, s.armed) for s in seen] == [("running", "p2", True)] * 2


def test_a_route_of_which_nobody_is_left_goes_back_under_the_name_of_the_first_source() -> None:
    world = World()
    switched(world)
    world.store.said.clear()
    world.store.clients.clear()
    world.controller.arm(world.ctx(source="p2", target="p", first_source="p", producers_on="p2"), [CHECKOUT])
    assert (world.store.read_all()[0].keys(), world.route().active) == ({"p"}, "p2")


def test_two_lost_routes_to_one_source_are_not_told_apart() -> None:
    world = World()
    switched(world, lost=False)
    world.put(serialise_route(Route("q", "p2", State.OPEN, 1)), "q")
    world.clients.append(FakeClient(world.store, "q", "checkout", "c.3", principal="User:checkout"))
    for name in (b"p", b"q"):
        world.store.log.append(name, None, world.store.stamp_ms())
    world.controller = RouteController(world.store, world.clock)
    with pytest.raises(Refused, match=r"the routes of p, q.*route set"):
        world.controller.arm(world.ctx(source="p2", target="p3", migration="m2"), [CHECKOUT])


def test_every_application_that_follows_is_found_declared_or_not_by_principal() -> None:
    world = World()
    FakeClient(world.store, "p", "billing", "b.1", principal="User:billing")
    gone = FakeClient(world.store, "p", "left", "x.1")
    gone.leave()
    world.store.say("p/c.9", b"{")
    assert world.controller.followers(world.ctx()) == [
        Follower("p", "consumer", "ledger", "ledger", None, ("l.1",)),
        Follower("p", "producer", "?", None, None, ("c.9",)),
        Follower("p", "producer", "billing", None, "User:billing", ("b.1",)),
        Follower("p", "producer", "checkout", None, "User:checkout", ("c.1", "c.2")),
    ]


def test_one_that_writes_to_the_source_under_another_logical_topic_is_found_too() -> None:
    world = World()
    world.put(serialise_route(Route("p", "p2", State.OPEN, 1)))
    FakeClient(world.store, "p2", "stranger", "s.1")
    found = world.controller.followers(world.ctx(migration="m2", source="p2", target="p3"))
    assert [(f.logical, f.participant) for f in found if f.role == "producer"] == [
        ("p", "checkout"),
        ("p2", "stranger"),
    ]


def test_the_topics_are_checked_and_mended() -> None:
    world = World()
    world.store.problems = ["__topicshift_routes has cleanup.policy delete"]
    assert world.controller.check(world.ctx()) == world.store.problems
    assert world.controller.prepare(world.ctx()) == ["mended: __topicshift_routes has cleanup.policy delete"]
    assert world.controller.check(world.ctx()) == []


def test_the_plain_fake_keeps_the_port() -> None:
    fake = FakeController()
    assert isinstance(fake, Controller)
    ctx = ControlContext("m1", "p", "p2", 1, LEASE)
    with pytest.raises(Refused):
        fake.stop(replace(ctx, lease_until=None), [CHECKOUT])
    with pytest.raises(Refused):
        fake.point(ctx, [CHECKOUT], "p2")
    fake.arm(ctx, [CHECKOUT])
    fake.stop(ctx, [CHECKOUT])
    fake.point(ctx, [CHECKOUT], "p2")
    fake.start(ctx, [CHECKOUT])
    assert [(s.status, s.topic, s.armed) for s in fake.observe(ctx, [CHECKOUT])] == [("running", "p2", True)]


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
    with pytest.raises(SpecError, match="Did you mean `route`"):
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
