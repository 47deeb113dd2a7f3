"""What a client does next, for generated histories of routes, clocks, deliveries and blindness."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.route.client import (
    ConsumerView,
    ProducerView,
    advance_consumer,
    advance_producer,
    start_consumer,
    start_producer,
)
from topicshift.core.route.records import GroupRoute, Route, State, Status

T0 = datetime(2030, 1, 31, tzinfo=UTC)
LEASE = T0 + timedelta(seconds=60)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def opened(topic: str, epoch: int) -> Route:
    return Route("p", topic, State.OPEN, epoch)


def paused(topic: str, epoch: int, lease: datetime = LEASE) -> Route:
    return Route("p", topic, State.PAUSED, epoch, lease)


def step(view: ProducerView, seen: Route | None = None, s: float = 0, *, blind: bool = False, flushed: bool = True):
    return advance_producer(view, seen, at(s), blind=blind, flushed=flushed)


def test_without_a_record_the_configured_topic_is_written_to() -> None:
    view = step(start_producer("p"))
    assert (view.status, view.topic, view.epoch) == (Status.RUNNING, "p", 0)


def test_nothing_is_admitted_before_the_route_was_read() -> None:
    assert not step(start_producer("p"), blind=True).admits


def test_a_pause_is_acknowledged_only_once_everything_is_delivered() -> None:
    view = step(start_producer("p"))
    view = step(view, paused("p", 1), flushed=False)
    assert (view.status, view.admits) == (Status.FLUSHING, False)
    assert step(view, flushed=False).status is Status.FLUSHING
    view = step(view, flushed=True)
    assert (view.status, view.topic, view.epoch) == (Status.PAUSED, "p", 1)


def test_a_switch_goes_through_the_pause_to_the_target() -> None:
    view = step(step(step(start_producer("p")), paused("p", 1)))
    view = step(view, paused("p2", 2))
    assert (view.status, view.topic) == (Status.PAUSED, "p2")
    view = step(view, opened("p2", 3))
    assert (view.status, view.topic, view.epoch) == (Status.RUNNING, "p2", 3)


def test_a_missed_pause_still_flushes_before_the_other_topic() -> None:
    view = step(step(start_producer("p")), opened("p2", 9), flushed=False)
    assert (view.status, view.topic) == (Status.FLUSHING, "p")
    assert step(view).topic == "p2"


def test_an_expired_lease_ends_the_pause_where_it_was_and_says_so() -> None:
    view = step(step(step(start_producer("p")), paused("p", 1)))
    view = step(view, s=60)
    assert (view.status, view.topic, view.admits) == (Status.LEASE_EXPIRED, "p", True)


def test_a_renewal_in_time_keeps_the_pause_and_one_too_late_does_not_bring_it_back() -> None:
    view = step(step(step(start_producer("p")), paused("p", 1)))
    kept = step(view, paused("p", 1, LEASE + timedelta(seconds=60)), s=59)
    assert step(kept, s=61).status is Status.PAUSED
    gone = step(view, s=60)
    gone = step(gone, paused("p", 1, LEASE + timedelta(seconds=60)), s=61)
    assert gone.status is Status.LEASE_EXPIRED
    assert step(step(gone, paused("p", 2, LEASE + timedelta(seconds=60)), s=62), s=62).status is Status.PAUSED


def test_a_lower_epoch_is_ignored() -> None:
    view = step(step(start_producer("p")), opened("p2", 5))
    assert step(step(view, paused("p", 4)), opened("p", 3)).topic == step(view).topic == "p2"


def test_a_blind_producer_stops_and_not_even_the_end_of_a_lease_opens_it() -> None:
    view = step(step(start_producer("p")), blind=True)
    assert step(view, blind=True).status is Status.BLIND
    held = step(step(step(start_producer("p")), paused("p", 1)), blind=True)
    assert held.status is Status.PAUSED, "it writes nothing while the lease lasts, blind or not"
    assert step(held, s=61, blind=True).status is Status.BLIND
    assert step(held, s=61).status is Status.LEASE_EXPIRED


def test_a_producer_says_blind_only_once_everything_is_delivered() -> None:
    view = step(step(start_producer("p")), blind=True, flushed=False)
    assert (view.status, view.admits) == (Status.FLUSHING, False)
    assert step(view, blind=True).status is Status.BLIND


events = st.tuples(
    st.none()
    | st.builds(opened, st.sampled_from(["p", "p2"]), st.integers(1, 6))
    | st.builds(paused, st.sampled_from(["p", "p2"]), st.integers(1, 6), st.integers(1, 30).map(at)),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(events, max_size=30))
def test_what_always_holds_for_a_producer(history: list[tuple[Route | None, int, bool, bool]]) -> None:
    view, now = start_producer("p"), 0
    for seen, passed, blind, flushed in history:
        now += passed
        before = view
        view = advance_producer(view, seen, at(now), blind=blind, flushed=flushed)
        # The same input again changes nothing more than one step of flushing.
        again = advance_producer(view, None, at(now), blind=blind, flushed=flushed)
        settled = advance_producer(again, None, at(now), blind=blind, flushed=flushed)
        assert settled == advance_producer(settled, None, at(now), blind=blind, flushed=flushed)
        assert view.epoch >= before.epoch
        if blind:
            assert not view.admits
        if view.admits and view.route is not None:
            assert view.topic == view.route.active
            assert not (view.route.holds(at(now)) and view.expired_epoch != view.route.epoch)
        if before.admits and view.topic != before.topic:
            assert flushed, "left a topic with records undelivered"
        if before.status is Status.FLUSHING and not flushed:
            assert view.status is Status.FLUSHING or view.topic == before.topic


# ------------------------------------------------------------------------------------------------ consumers


def grouped(epoch: int, **groups: GroupRoute) -> Route:
    return Route("p", "p2", State.OPEN, epoch, groups=groups)


def cstep(view: ConsumerView, seen: Route | None = None, s: float = 0, *, at_end: bool = False) -> ConsumerView:
    return advance_consumer(view, "g", seen, at(s), at_end=at_end)


def test_a_consumer_stays_until_its_group_is_released_by_name() -> None:
    view = cstep(start_consumer("p", "g", None))
    assert (view.status, view.topic) == (Status.RUNNING, "p")
    view = cstep(view, grouped(3, other=GroupRoute("p2")), at_end=True)
    assert (view.status, view.topic, view.epoch) == (Status.RUNNING, "p", 3)


def test_a_released_consumer_reads_its_own_partitions_to_the_end_first() -> None:
    view = cstep(cstep(start_consumer("p", "g", None)), grouped(4, g=GroupRoute("p2", came_from="p")))
    assert (view.status, view.topic) == (Status.DRAINING, "p")
    assert cstep(view).status is Status.DRAINING
    view = cstep(view, at_end=True)
    assert (view.status, view.topic) == (Status.RUNNING, "p2")


def test_a_release_taken_back_while_draining_is_no_move() -> None:
    view = cstep(cstep(start_consumer("p", "g", None)), grouped(4, g=GroupRoute("p2")))
    view = cstep(view, grouped(5, g=GroupRoute("p")))
    assert (view.status, view.topic) == (Status.RUNNING, "p")


def test_a_paused_group_goes_on_where_it_is_pointed() -> None:
    held = GroupRoute("p", State.PAUSED, LEASE)
    view = cstep(cstep(start_consumer("p", "g", None)), grouped(1, g=held), at_end=True)
    assert (view.status, view.reads) == (Status.PAUSED, False)
    view = cstep(view, grouped(2, g=replace(held, topic="p2")))
    assert (view.status, view.topic) == (Status.PAUSED, "p")
    view = cstep(view, grouped(3, g=GroupRoute("p2")))
    assert (view.status, view.topic) == (Status.RUNNING, "p2")


def test_one_paused_in_the_middle_finishes_what_it_had_before_it_moves() -> None:
    view = cstep(cstep(start_consumer("p", "g", None)), grouped(1, g=GroupRoute("p", State.PAUSED, LEASE)))
    view = cstep(view, grouped(2, g=GroupRoute("p2")))
    assert (view.status, view.topic) == (Status.DRAINING, "p")
    assert cstep(view, at_end=True).topic == "p2"


def test_a_groups_lease_runs_out_too() -> None:
    view = cstep(cstep(start_consumer("p", "g", None)), grouped(1, g=GroupRoute("p", State.PAUSED, LEASE)), at_end=True)
    view = cstep(view, s=60)
    assert (view.status, view.topic, view.reads) == (Status.LEASE_EXPIRED, "p", True)


def test_a_member_that_starts_after_the_release_begins_on_the_target() -> None:
    route = grouped(4, g=GroupRoute("p2", came_from="p"))
    assert cstep(start_consumer("p", "g", route)).topic == "p2"


group_events = st.tuples(
    st.none()
    | st.builds(
        lambda epoch, topic, hold, lease: grouped(
            epoch, g=GroupRoute(topic, State.PAUSED if hold else State.OPEN, at(lease) if hold else None)
        ),
        st.integers(1, 6),
        st.sampled_from(["p", "p2"]),
        st.booleans(),
        st.integers(1, 30),
    ),
    st.integers(0, 3),
    st.booleans(),
)


@settings(max_examples=300)
@given(st.lists(group_events, max_size=30))
def test_a_consumer_never_leaves_unread_records_of_its_own(history: list[tuple[Route | None, int, bool]]) -> None:
    view, now = start_consumer("p", "g", None), 0
    was_read = True  # an instance that has read nothing yet leaves nothing
    for seen, passed, at_end in history:
        now += passed
        before, view = view, advance_consumer(view, "g", seen, at(now), at_end=at_end)
        if before.reads and view.topic != before.topic:
            assert at_end
        if before.reads and not view.reads:
            was_read = at_end
        if before.status is Status.PAUSED and view.topic != before.topic:
            assert was_read
        settled = advance_consumer(view, "g", None, at(now), at_end=False)
        assert settled == advance_consumer(settled, "g", None, at(now), at_end=False)
