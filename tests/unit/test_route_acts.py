"""What an orchestrator may write next: every act is idempotent, owned, leased, and raises the epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.errors import OwnershipLost, Refused
from topicshift.core.route.acts import (
    EPOCH_JUMP,
    GROUP_LEASE_MS,
    Act,
    arm,
    disarm,
    find_route,
    group_entry,
    obeyed_epoch,
    open_groups,
    open_producers,
    pause_groups,
    pause_producers,
    point_groups,
    point_producers,
    seconds_to_point,
)
from topicshift.core.route.fields import MAX_COUNT
from topicshift.core.route.records import (
    POINT_MARGIN_MS,
    Ack,
    GroupRoute,
    Route,
    State,
    Status,
    parse_route,
    serialise_route,
)

T0 = 1_896_056_100_000
LEASE_MS = 60_000
ACT = Act("p", "p", "p2", "m1", 1, (T0, T0), LEASE_MS)


def at(seconds: float, **changes: object) -> Act:
    now = T0 + int(seconds * 1000)
    return replace(ACT, **{"now_ms": (now, now), "lease_ms": LEASE_MS - int(seconds * 1000), **changes})  # type: ignore[arg-type]


def stamped(route: Route | None, seconds: float = 0) -> Route:
    """As it is read once a broker has stamped it."""
    assert route is not None
    return parse_route(serialise_route(route), broker_ms=T0 + int(seconds * 1000))


def paused() -> Route:
    return stamped(pause_producers(None, ACT, ["ledger"]))


def pointed(seconds: float = 10) -> Route:
    return stamped(point_producers(paused(), at(seconds), "p2"), seconds)


def test_the_whole_switch() -> None:
    armed = stamped(arm(None, ACT))
    assert (armed.epoch, armed.state, armed.active, armed.is_armed) == (1, State.OPEN, "p", True)
    one = stamped(pause_producers(armed, at(1), ["ledger"]), 1)
    assert (one.epoch, one.state, one.active, one.until_ms) == (2, State.PAUSED, "p", T0 + LEASE_MS)
    assert (one.pause, one.groups) == (2, {"ledger": GroupRoute("p")})
    two = stamped(point_producers(one, at(10), "p2"), 10)
    assert (two.epoch, two.state, two.active, two.until_ms) == (3, State.PAUSED, "p2", T0 + LEASE_MS)
    assert (two.valid_before_ms, two.else_active, two.voided) == (T0 + LEASE_MS - POINT_MARGIN_MS, "p", None)
    three = stamped(open_producers(two, at(11)), 11)
    assert (three.epoch, three.state, three.active, three.until_ms) == (4, State.OPEN, "p2", None)
    four = stamped(point_groups(three, at(12), ["ledger"], "p2"), 12)
    assert four.groups["ledger"] == GroupRoute("p2", came_from="p")
    assert open_groups(four, at(13), ["ledger"]) is None
    five = stamped(disarm(four, at(14)), 14)
    assert (five.armed, five.active, five.groups) == (0, "p2", four.groups)
    assert disarm(five, at(15)) is None


def test_a_pause_needs_a_lease_that_lies_ahead() -> None:
    for lease in (None, 0, -1):
        with pytest.raises(Refused, match="lease"):
            pause_producers(None, replace(ACT, lease_ms=lease))


def test_a_pause_is_not_lengthened_by_the_records_that_go_on_with_it() -> None:
    """Another act in the same pause is stamped later, and must not count the lease from there."""
    later = stamped(pause_groups(paused(), at(30), ["ledger"]), 30)
    assert later.until_ms == T0 + LEASE_MS and later.lease_ms is None
    assert later.groups["ledger"].until_ms == T0 + 30_000 + GROUP_LEASE_MS
    again = stamped(point_groups(later, at(40), ["fraud"], "p2"), 40)
    assert again.groups["ledger"].until_ms == T0 + 30_000 + GROUP_LEASE_MS
    assert again.until_ms == T0 + LEASE_MS


def test_stopping_the_next_producer_changes_nothing_and_a_longer_lease_is_a_new_pause() -> None:
    one = paused()
    assert pause_producers(one, at(1)) is None
    longer = stamped(pause_producers(one, at(1, lease_ms=90_000)), 1)
    assert (longer.epoch, longer.pause, longer.until_ms) == (2, 2, T0 + 91_000)


def test_after_its_end_a_new_pause_begins() -> None:
    again = stamped(pause_producers(paused(), at(61, lease_ms=59_000)), 61)
    assert (again.epoch, again.pause, again.until_ms) == (2, 2, T0 + 120_000)


def test_pointing_needs_a_pause_and_a_margin_before_its_end() -> None:
    with pytest.raises(Refused, match="Stop them first"):
        point_producers(None, ACT, "p2")
    with pytest.raises(Refused, match="margin"):
        point_producers(paused(), at(58.1), "p2")
    # The later bound of the brokers' time counts.
    with pytest.raises(Refused, match="margin"):
        point_producers(paused(), replace(at(10), now_ms=(T0 + 10_000, T0 + 58_000)), "p2")
    assert point_producers(paused(), at(57.9), "p2") is not None


def test_a_point_that_is_stamped_too_late_is_void_and_the_orchestrator_starts_over() -> None:
    """The decision was in time, and the brokers took the record after it."""
    void = pointed(10)
    assert void.voided is None
    void = stamped(point_producers(paused(), at(10), "p2"), 58)
    assert (void.active, void.voided) == ("p", "p2")
    for late in (59, 61):
        with pytest.raises(Refused, match="Stop them again"):
            point_producers(void, at(late), "p2")
    over = stamped(pause_producers(void, at(61, lease_ms=60_000)), 61)
    assert (over.active, over.state, over.voided, over.pause) == ("p", State.PAUSED, None, 3)
    assert stamped(point_producers(over, at(62), "p2"), 62).active == "p2"
    back = stamped(open_producers(void, at(61)), 61)
    assert (back.active, back.state) == ("p", State.OPEN)


def test_how_long_a_write_may_be_tried() -> None:
    one = paused()
    point = point_producers(one, at(10), "p2")
    assert point is not None
    assert seconds_to_point(one, point, at(10)) == 48
    first = pause_producers(None, ACT)
    assert first is not None
    assert seconds_to_point(None, first, ACT) == 2  # later it would outlast the budget that it was decided for
    opened = open_producers(one, at(1))
    assert opened is not None
    assert seconds_to_point(one, opened, at(1)) is None


def test_going_back_to_the_source_is_always_allowed() -> None:
    assert point_producers(None, ACT, "p") is None
    assert point_producers(paused(), at(70), "p") is None
    back = stamped(open_producers(paused(), at(70)), 70)
    assert (back.state, back.active) == (State.OPEN, "p")
    assert open_producers(None, ACT) is None


def test_a_rollback_stops_producers_on_the_target_and_brings_them_back() -> None:
    route = stamped(open_producers(pointed(), at(12)), 12)
    stopped = stamped(pause_producers(route, at(13, claim=2)), 13)
    assert (stopped.active, stopped.state) == ("p2", State.PAUSED)
    assert stamped(point_producers(stopped, at(14, claim=2), "p"), 14).active == "p"


ACTS: dict[str, Callable[[Route | None, Act], Route | None]] = {
    "arm": arm,
    "disarm": disarm,
    "pause": lambda r, a: pause_producers(r, a, ["g"]),
    "point_target": lambda r, a: point_producers(r, a, "p2"),
    "point_source": lambda r, a: point_producers(r, a, "p"),
    "open": open_producers,
    "hold": lambda r, a: pause_groups(r, a, ["g"]),
    "release": lambda r, a: point_groups(r, a, ["g"], "p2"),
    "go": lambda r, a: open_groups(r, a, ["g"]),
}


def test_an_older_run_of_the_migration_may_do_nothing() -> None:
    route = replace(stamped(pause_producers(None, replace(ACT, claim=2))), armed=1)
    for act in ACTS.values():
        with pytest.raises(OwnershipLost):
            act(route, ACT)


def test_once_producers_are_resumed_a_late_stop_of_the_same_run_is_refused() -> None:
    opened = stamped(open_producers(paused(), at(1)), 1)
    assert open_producers(opened, at(2)) is None
    sealed = stamped(open_producers(opened, at(2, claim=2)), 2)
    assert (sealed.state, sealed.active, sealed.claim) == (State.OPEN, "p", 2)
    with pytest.raises(OwnershipLost):
        pause_producers(sealed, at(3))


def test_another_migration_is_refused_while_the_route_is_paused_and_cannot_point_it() -> None:
    other = at(1, migration="m2")
    for act in (arm, pause_producers, open_producers):
        with pytest.raises(Refused, match="m1"):
            act(paused(), other)
    with pytest.raises(Refused, match="m1"):
        point_producers(paused(), at(61, migration="m2"), "p2")
    # The earlier bound of the brokers' time counts: the pause may still hold.
    unsure = at(61, migration="m2", lease_ms=9000, now_ms=(T0 + 59_999, T0 + 61_000))
    with pytest.raises(Refused, match="m1"):
        pause_producers(paused(), unsure)
    assert pause_producers(paused(), at(61, migration="m2", lease_ms=9000)) is not None


def test_a_group_that_is_paused_holds_the_route_too() -> None:
    route = stamped(pause_groups(None, ACT, ["ledger"]))
    with pytest.raises(Refused, match="ledger"):
        pause_producers(route, at(1, migration="m2"))


def test_producers_elsewhere_are_not_paused() -> None:
    with pytest.raises(Refused, match="p9"):
        pause_producers(Route("p", "p9", State.OPEN, 4), ACT)


# ------------------------------------------------------------------------------------------------ arming


def test_arming_lets_producers_go_on_and_is_kept_through_the_switch_until_it_ends() -> None:
    armed = stamped(arm(None, ACT))
    assert arm(armed, at(1)) is None
    taken_over = stamped(arm(armed, at(1, claim=2)), 1)
    assert (taken_over.armed, taken_over.claim) == (2, 2), "a newer run wants to hear it from everybody anew"
    opened = stamped(open_producers(stamped(pause_producers(armed, at(2)), 2), at(3)), 3)
    assert opened.armed == 1
    assert stamped(disarm(opened, at(4)), 4).armed == 0


def test_a_pause_implies_armed() -> None:
    assert paused().armed == 0
    assert paused().is_armed


def test_what_another_migration_has_armed_since_is_not_disarmed() -> None:
    theirs = stamped(arm(stamped(arm(None, ACT)), at(1, migration="m2")), 1)
    assert disarm(theirs, at(2)) is None
    assert disarm(None, ACT) is None


# ------------------------------------------------------------------------------------------------ groups


def test_a_group_is_stopped_pointed_and_opened() -> None:
    stopped = stamped(pause_groups(paused(), at(1), ["ledger", "fraud"]), 1)
    assert all(stopped.groups[g].holds(T0 + 1000) for g in ("ledger", "fraud"))
    assert stopped.groups["fraud"].pause == stopped.epoch == 2
    assert pause_groups(stopped, at(2), ["fraud"]) is None
    moved = stamped(point_groups(stopped, at(3), ["ledger"], "p2"), 3)
    assert (moved.groups["ledger"].topic, moved.groups["ledger"].state) == ("p2", State.PAUSED)
    assert moved.groups["fraud"].topic == "p"
    opened = stamped(open_groups(moved, at(4), ["ledger"]), 4)
    assert opened.groups["ledger"] == GroupRoute("p2", came_from="p", pause=2)
    assert open_groups(opened, at(5), ["ledger"]) is None


def test_a_group_stopped_outside_the_freeze_has_a_lease_of_its_own() -> None:
    stopped = stamped(pause_groups(None, replace(ACT, lease_ms=None), ["ledger"]))
    assert stopped.groups["ledger"].until_ms == T0 + GROUP_LEASE_MS


def test_releasing_a_group_before_producers_moved_does_not_move_producers() -> None:
    route = stamped(point_groups(None, ACT, ["ledger"], "p2"))
    assert (route.active, route.state, route.groups["ledger"].came_from) == ("p", State.OPEN, "p")
    assert point_groups(route, ACT, ["ledger"], "p2") is None


# ------------------------------------------------------------------------------------------------ epochs, names


def obeyed(*epochs: int, route: Route | None = None) -> int:
    return obeyed_epoch(route, [Ack("p", "producer", "c", f"c.{e}", Status.RUNNING, e, "p") for e in epochs])


def test_a_lost_record_goes_on_above_what_was_obeyed_and_believable() -> None:
    route = pause_producers(None, replace(ACT, acked_epoch=obeyed(3, 41, EPOCH_JUMP + 1)))
    assert route is not None
    assert route.epoch == 42
    assert obeyed(EPOCH_JUMP + 5, route=Route("p", "p", State.OPEN, 9)) == EPOCH_JUMP + 5


def test_epochs_end_where_clients_cannot_read_them() -> None:
    with pytest.raises(Refused, match=str(MAX_COUNT)):
        open_producers(Route("p", "p", State.PAUSED, MAX_COUNT, until_ms=T0), ACT)


def test_the_logical_topic_outlives_the_migrations() -> None:
    first = Route("p", "p2", State.OPEN, 3, source="p", target="p2", migration="m1")
    routes = {"p": first, "q": Route("q", "q", State.OPEN, 1)}
    assert find_route(routes, "p2", "p3", "m2") == ("p", first)
    assert find_route(routes, "p", "p2", "m1") == ("p", first)
    assert find_route(routes, "r", "r2", "m2") == ("r", None)
    # An id that comes back with other topics is another migration.
    assert find_route(routes, "q", "q2", "m1") == ("q", routes["q"])


def test_two_applications_with_two_names_for_one_topic_are_refused() -> None:
    routes = {"p": Route("p", "p2", State.OPEN, 3), "p2": Route("p2", "p2", State.OPEN, 1)}
    with pytest.raises(Refused, match="p, p2"):
        find_route(routes, "p2", "p3")


def test_where_a_group_reads() -> None:
    assert group_entry(None, "g", "p") == GroupRoute("p")
    assert group_entry(Route("p", "p2", State.OPEN, 1), "g", "p") == GroupRoute("p2")


@given(st.lists(st.tuples(st.sampled_from([*ACTS, "wait"]), st.integers(0, 3000)), max_size=20))
def test_every_act_is_idempotent_and_raises_the_epoch(words: list[tuple[str, int]]) -> None:
    """Whatever comes after what, and however late each record is stamped."""
    route: Route | None = None
    now = T0
    for word, delay in words:
        if word == "wait":
            now += 20_000
            continue
        try:
            after = ACTS[word](route, replace(ACT, now_ms=(now, now), lease_ms=30_000))
        except Refused:
            continue
        if after is None:
            continue
        now += delay
        after = parse_route(serialise_route(after), broker_ms=now)
        assert after.epoch == (route.epoch if route else 0) + 1
        if route is not None and after.active != route.active:
            # No act but a point moves the active topic, only out of a pause, and only in time.
            assert word.startswith("point") and route.state is State.PAUSED
            assert route.until_ms is not None and now < route.until_ms - POINT_MARGIN_MS
        if (
            after.state is State.PAUSED
            and route is not None
            and route.state is State.PAUSED
            and after.pause == route.pause
        ):
            assert after.until_ms == route.until_ms, "no record lengthens a pause"
        if after.voided is None:
            assert ACTS[word](after, replace(ACT, now_ms=(now, now), lease_ms=30_000)) is None
        route = after
