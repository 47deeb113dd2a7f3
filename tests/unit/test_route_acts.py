"""What an orchestrator may write next: every act is idempotent, owned, leased, and raises the epoch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.errors import OwnershipLost, Refused
from topicshift.core.route.acts import (
    GROUP_LEASE_S,
    Act,
    find_route,
    group_entry,
    open_groups,
    open_producers,
    pause_groups,
    pause_producers,
    point_groups,
    point_producers,
)
from topicshift.core.route.records import GroupRoute, Route, State

T0 = datetime(2030, 1, 31, tzinfo=UTC)
ACT = Act("p", "p", "p2", "m1", 1, T0, T0 + timedelta(seconds=60))


def later(seconds: float, **changes: object) -> Act:
    return replace(ACT, now=T0 + timedelta(seconds=seconds), **changes)  # type: ignore[arg-type]


def paused() -> Route:
    route = pause_producers(None, ACT, ["ledger"])
    assert route is not None
    return route


def test_the_whole_switch() -> None:
    one = paused()
    assert (one.epoch, one.state, one.active, one.lease_until) == (1, State.PAUSED, "p", ACT.lease_until)
    assert one.groups == {"ledger": GroupRoute("p")}
    two = point_producers(one, later(10), "p2")
    assert two is not None
    assert (two.epoch, two.state, two.active) == (2, State.PAUSED, "p2")
    three = open_producers(two, later(11))
    assert three is not None
    assert (three.epoch, three.state, three.active, three.lease_until) == (3, State.OPEN, "p2", None)
    four = point_groups(three, later(12), ["ledger"], "p2")
    assert four is not None
    assert four.groups["ledger"] == GroupRoute("p2", came_from="p")
    assert open_groups(four, later(13), ["ledger"]) is None


def test_a_pause_needs_a_lease_that_lies_ahead() -> None:
    for lease in (None, T0, T0 - timedelta(seconds=1)):
        with pytest.raises(Refused, match="lease"):
            pause_producers(None, replace(ACT, lease_until=lease))


def test_stopping_the_next_producer_changes_nothing_and_a_later_lease_renews() -> None:
    one = paused()
    assert pause_producers(one, later(1)) is None
    renewed = pause_producers(one, later(1, lease_until=T0 + timedelta(seconds=90)))
    assert renewed is not None
    assert (renewed.epoch, renewed.lease_until) == (1, T0 + timedelta(seconds=90))


def test_after_its_end_a_lease_is_not_renewed_but_a_new_pause_begins() -> None:
    again = pause_producers(paused(), later(61, lease_until=T0 + timedelta(seconds=120)))
    assert again is not None
    assert again.epoch == 2


def test_pointing_needs_a_pause_and_a_margin_of_its_lease() -> None:
    with pytest.raises(Refused, match="Stop them first"):
        point_producers(None, ACT, "p2")
    with pytest.raises(Refused, match="margin"):
        point_producers(paused(), later(58.5), "p2")
    assert point_producers(paused(), later(57.9), "p2") is not None


def test_going_back_to_the_source_is_always_allowed() -> None:
    assert point_producers(None, ACT, "p") is None
    assert point_producers(paused(), later(70), "p") is None
    back = open_producers(paused(), later(70))
    assert back is not None
    assert (back.state, back.active) == (State.OPEN, "p")
    assert open_producers(None, ACT) is None


def test_a_rollback_stops_producers_on_the_target_and_brings_them_back() -> None:
    route = open_producers(point_producers(paused(), later(1), "p2"), later(2))
    stopped = pause_producers(route, later(3, claim=2))
    assert stopped is not None
    assert (stopped.active, stopped.state) == ("p2", State.PAUSED)
    home = point_producers(stopped, later(4, claim=2), "p")
    assert home is not None
    assert home.active == "p"


def test_an_older_run_of_the_migration_may_do_nothing() -> None:
    route = pause_producers(None, replace(ACT, claim=2))
    for decide in (
        lambda: pause_producers(route, ACT),
        lambda: point_producers(route, ACT, "p2"),
        lambda: open_producers(route, ACT),
        lambda: point_groups(route, ACT, ["ledger"], "p2"),
        lambda: pause_groups(route, ACT, ["ledger"]),
        lambda: open_groups(route, ACT, ["ledger"]),
    ):
        with pytest.raises(OwnershipLost):
            decide()


def test_once_producers_are_given_back_a_late_stop_of_the_same_run_is_refused() -> None:
    opened = open_producers(paused(), later(1))
    assert open_producers(opened, later(2)) is None
    sealed = open_producers(opened, later(2, claim=2))
    assert sealed is not None
    assert (sealed.state, sealed.active, sealed.claim) == (State.OPEN, "p", 2)
    with pytest.raises(OwnershipLost):
        pause_producers(sealed, later(3))


def test_another_migration_is_refused_while_the_route_is_paused_and_cannot_point_it() -> None:
    other = later(1, migration="m2")
    with pytest.raises(Refused, match="m1"):
        pause_producers(paused(), other)
    with pytest.raises(Refused, match="m1"):
        open_producers(paused(), other)
    with pytest.raises(Refused, match="m1"):
        point_producers(paused(), later(61, migration="m2"), "p2")
    assert pause_producers(paused(), later(61, migration="m2", lease_until=T0 + timedelta(seconds=99))) is not None


def test_a_group_that_is_paused_holds_the_route_too() -> None:
    route = pause_groups(None, ACT, ["ledger"])
    with pytest.raises(Refused, match="ledger"):
        pause_producers(route, later(1, migration="m2"))


def test_producers_elsewhere_are_not_paused() -> None:
    with pytest.raises(Refused, match="p9"):
        pause_producers(Route("p", "p9", State.OPEN, 4), ACT)


def test_a_group_is_stopped_pointed_and_opened() -> None:
    stopped = pause_groups(paused(), later(1), ["ledger", "fraud"])
    assert stopped is not None
    assert all(stopped.groups[g].holds(T0) for g in ("ledger", "fraud"))
    assert pause_groups(stopped, later(2), ["fraud"]) is None
    pointed = point_groups(stopped, later(3), ["ledger"], "p2")
    assert pointed is not None
    assert (pointed.groups["ledger"].topic, pointed.groups["ledger"].state) == ("p2", State.PAUSED)
    assert pointed.groups["fraud"].topic == "p"
    opened = open_groups(pointed, later(4), ["ledger"])
    assert opened is not None
    assert opened.groups["ledger"] == GroupRoute("p2", came_from="p")
    assert open_groups(opened, later(5), ["ledger"]) is None


def test_a_group_stopped_outside_the_freeze_has_a_lease_of_its_own() -> None:
    stopped = pause_groups(None, replace(ACT, lease_until=None), ["ledger"])
    assert stopped is not None
    assert stopped.groups["ledger"].lease_until == T0 + timedelta(seconds=GROUP_LEASE_S)


def test_releasing_a_group_before_producers_moved_does_not_move_producers() -> None:
    route = point_groups(None, ACT, ["ledger"], "p2")
    assert route is not None
    assert (route.active, route.state, route.groups["ledger"].came_from) == ("p", State.OPEN, "p")
    assert point_groups(route, ACT, ["ledger"], "p2") is None


def test_a_lost_record_goes_on_above_what_was_acknowledged() -> None:
    route = pause_producers(None, replace(ACT, acked_epoch=41))
    assert route is not None
    assert route.epoch == 42


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


acts = st.sampled_from(["pause", "point_target", "point_source", "open", "hold", "release", "go", "wait"])


@given(st.lists(acts, max_size=20))
def test_every_act_is_idempotent_and_raises_the_epoch(words: list[str]) -> None:
    route: Route | None = None
    now = 0.0
    for word in words:
        act = later(now, lease_until=T0 + timedelta(seconds=now + 30))
        decide = {
            "pause": lambda r, a=act: pause_producers(r, a, ["g"]),
            "point_target": lambda r, a=act: point_producers(r, a, "p2"),
            "point_source": lambda r, a=act: point_producers(r, a, "p"),
            "open": lambda r, a=act: open_producers(r, a),
            "hold": lambda r, a=act: pause_groups(r, a, ["g"]),
            "release": lambda r, a=act: point_groups(r, a, ["g"], "p2"),
            "go": lambda r, a=act: open_groups(r, a, ["g"]),
        }.get(word)
        if decide is None:
            now += 20
            continue
        try:
            after = decide(route)
        except Refused:
            continue
        if after is None:
            continue
        renewal = word == "pause" and route is not None and after.epoch == route.epoch
        assert renewal or after.epoch == (route.epoch if route else 0) + 1
        assert decide(after) is None
        # No act but a point moves the active topic, and only out of a pause.
        if route is not None and after.active != route.active:
            assert word.startswith("point")
            assert route.state is State.PAUSED
        route = after
