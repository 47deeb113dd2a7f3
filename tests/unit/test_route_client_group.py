"""What a consumer on the route does next: told histories, and generated ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.route_clients import (
    MEMBER,
    Consuming,
    at,
    grouped,
    held,
    ms,
    opened,
)

from topicshift.core.route.client import ConsumerClient, Turn
from topicshift.core.route.records import GroupRoute, Status, serialise_route


def test_a_consumer_stays_until_its_group_is_released_by_name() -> None:
    one = Consuming()
    assert one.where() == (Status.RUNNING, "p")
    one.reads(1, grouped(3, other=GroupRoute("p2")))
    assert one.turn(at_end=True) == Turn()
    assert (one.where(), one.client.epoch) == ((Status.RUNNING, "p"), 3)


def test_a_released_consumer_reads_its_own_partitions_to_the_end_commits_and_leaves_first() -> None:
    one = Consuming()
    one.reads(1, grouped(4, g=GroupRoute("p2", came_from="p")))
    assert one.client.moving
    assert one.turn() == Turn() and one.where() == (Status.DRAINING, "p")
    assert one.turn(clean=False, at_end=True) == Turn(commit=True)
    assert one.turn(at_end=True, slow=True) == Turn(leave=True)
    assert one.turn() == Turn() and one.where() == (Status.DRAINING, "p"), "the group still counts it"
    one.out = True
    assert one.turn() == Turn(subscribe="p2")
    assert one.where() == (Status.RUNNING, "p2")
    assert one.client.from_start("p2") and not one.client.from_start("p")


def test_a_release_taken_back_while_draining_is_no_move() -> None:
    one = Consuming()
    one.reads(1, grouped(4, g=GroupRoute("p2")))
    one.turn()
    one.reads(2, grouped(5, g=GroupRoute("p")))
    assert one.turn() == Turn() and one.where() == (Status.RUNNING, "p")


def test_a_paused_group_goes_on_where_it_is_pointed() -> None:
    one = Consuming()
    one.reads(1, grouped(1, g=held("p")))
    assert one.turn(1, at_end=True) == Turn(leave=True)
    assert one.turn(1) == Turn() and one.where() == (Status.PAUSED, "p")
    one.reads(2, grouped(2, g=held("p2")))
    assert one.turn(2) == Turn() and one.where() == (Status.PAUSED, "p")
    one.reads(3, grouped(3, g=GroupRoute("p2")))
    assert one.turn(3) == Turn(subscribe="p2")
    assert one.where() == (Status.RUNNING, "p2")


def test_one_paused_in_the_middle_finishes_what_it_had_before_it_moves() -> None:
    one = Consuming()
    one.reads(1, grouped(1, g=held("p")))
    assert one.turn(1) == Turn(leave=True)
    one.reads(2, grouped(2, g=GroupRoute("p2")))
    assert one.turn(2) == Turn(subscribe="p") and one.where() == (Status.DRAINING, "p")
    one.turn(2, at_end=True)
    assert one.turn(2) == Turn(subscribe="p2")


def test_a_groups_pause_ends_by_the_same_rule() -> None:
    one = Consuming()
    one.reads(1, grouped(1, g=held("p")))
    one.turn(1, at_end=True)
    one.turn(1)
    one.hears(60)
    one.reads(61, settled=False)
    one.turn(61)
    assert one.where()[0] is Status.PAUSED
    one.reads(61)
    assert one.turn(61) == Turn(subscribe="p")
    assert one.where() == (Status.LEASE_EXPIRED, "p")


def test_a_member_that_starts_after_the_release_begins_on_the_target() -> None:
    assert Consuming(grouped(4, g=GroupRoute("p2", came_from="p"))).where() == (Status.RUNNING, "p2")


def test_a_member_that_starts_into_a_pause_joins_nothing() -> None:
    assert Consuming(grouped(4, g=held("p"))).where() == (Status.PAUSED, "p")


def test_where_a_group_without_an_entry_begins() -> None:
    client = ConsumerClient(MEMBER)
    assert client.start() is None
    client.read_ok(at(0))
    assert client.start() == "p"
    client.record(at(0), b"p", serialise_route(opened("p2", 3, source="p", target="p2")), ms(0))
    assert client.start() == ("p", "p2"), "it depends on what the group has committed"
    client.record(at(0), b"p", serialise_route(opened("p3", 4, source="p", target="p2")), ms(0))
    assert client.start() == "p3"


def test_a_consumer_that_cannot_read_the_route_goes_on() -> None:
    one = Consuming()
    assert one.turn(5000) == Turn() and one.where() == (Status.RUNNING, "p")


group_events = st.tuples(
    st.none()
    | st.builds(
        lambda epoch, topic, hold, until: grouped(epoch, g=held(topic, until) if hold else GroupRoute(topic)),
        st.integers(1, 6),
        st.sampled_from(["p", "p2"]),
        st.booleans(),
        st.integers(1, 30),
    ),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=300)
@given(st.lists(group_events, max_size=30))
def test_a_consumer_never_leaves_unread_or_uncommitted_records_of_its_own(history: list[tuple]) -> None:
    one, now = Consuming(), 0
    reads, unread = True, False
    for seen, passed, at_end, clean, out in history:
        now += passed
        one.hears(now)
        one.reads(now, *([seen] if seen else []))
        before = one.client.topic
        one.out = one.out or (out and not reads)
        was_out = one.out
        turn = one.turn(now, at_end=at_end and clean, clean=clean, slow=True)
        assert sum((turn.commit, turn.leave, turn.subscribe is not None)) <= 1
        if turn.leave:
            assert reads and clean
            reads, unread = False, not (at_end and clean)
        if turn.subscribe:
            assert was_out and not reads
            assert not unread or turn.subscribe == before, "left records behind"
            reads, unread = True, False
