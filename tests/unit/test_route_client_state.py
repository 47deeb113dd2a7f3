"""What a producer on the route does next, in told histories; and the last word of every client."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.route_clients import (
    MEMBER,
    PRODUCER,
    Producing,
    at,
    ms,
    opened,
    paused,
)

from topicshift.core.route.client import ConsumerClient, ProducerClient
from topicshift.core.route.clocks import Now
from topicshift.core.route.records import Route, State, Status, serialise_route

# ------------------------------------------------------------------------------------------------ producers


def test_without_a_record_the_logical_topic_is_written_to() -> None:
    one = Producing()
    assert one.step(0).admit(at(0)) == "p"
    assert one.where() == (Status.RUNNING, "p", 0)


def test_nothing_is_admitted_before_the_route_was_read_and_the_instance_has_reported() -> None:
    client = ProducerClient(PRODUCER)
    client.read_ok(at(0))
    client.advance(at(0), flushed=True)
    assert client.admit(at(0)) is None and client.status is Status.BLIND
    out = client.ack(at(0))
    assert out is not None and out.ack.status is Status.BLIND
    client.acked(out, at(0.1), ms(0))
    client.advance(at(0.1), flushed=True)
    assert client.admit(at(0.1)) == "p"


def test_an_old_pause_in_the_history_is_not_obeyed_before_the_end_was_read() -> None:
    client = ProducerClient(PRODUCER)
    client.record(at(0), b"p", serialise_route(paused("p", 1)), ms(-600))
    client.advance(at(0), flushed=True)
    assert client.status is Status.BLIND
    client.record(at(0), b"p", serialise_route(opened("p2", 2)), ms(-500))
    client.read_ok(at(0))
    out = client.ack(at(0))
    assert out is not None
    client.acked(out, at(0), ms(0))
    client.advance(at(0), flushed=True)
    assert (client.status, client.topic) == (Status.RUNNING, "p2")


def test_a_pause_is_acknowledged_only_once_everything_is_delivered() -> None:
    one = Producing()
    one.step(0)
    assert one.step(1, paused("p", 1), flushed=False).admit(at(1)) is None
    assert one.where() == (Status.FLUSHING, "p", 1)
    one.step(2, flushed=False)
    assert one.where()[0] is Status.FLUSHING
    one.step(3)
    assert one.where() == (Status.PAUSED, "p", 1)
    assert one.said[-1].ack.status is Status.PAUSED


def test_a_record_that_came_in_is_obeyed_before_the_next_one_is_admitted() -> None:
    one = Producing()
    one.step(0)
    one.client.record(at(0.1), b"p", serialise_route(paused("p", 1)), ms(0.1))
    assert one.client.admit(at(0.1)) is None


def test_a_switch_goes_through_the_pause_to_the_target() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.step(2, replace(paused("p2", 2), pause=1, valid_before_ms=ms(58), else_active="p"))
    assert one.where() == (Status.PAUSED, "p2", 2)
    one.step(3, opened("p2", 3, pause=1))
    assert one.where() == (Status.RUNNING, "p2", 3)


def test_a_missed_pause_still_flushes_before_the_other_topic() -> None:
    one = Producing()
    one.step(0)
    one.step(1, opened("p2", 9), flushed=False)
    assert one.where()[:2] == (Status.FLUSHING, "p")
    one.step(2)
    assert one.where()[:2] == (Status.RUNNING, "p2")


def test_a_lower_epoch_is_ignored() -> None:
    one = Producing()
    one.step(0, opened("p2", 5))
    one.step(1, paused("p", 4), opened("p", 3))
    assert one.where() == (Status.RUNNING, "p2", 5)


def test_a_record_that_is_not_understood_changes_nothing_and_is_said_until_a_better_one_comes() -> None:
    one = Producing()
    one.step(0, opened("p", 1))
    for value in (b"{", b"[" * 200_000, b'{"v": 9}'):
        one.client.record(at(1), b"p", value, ms(1))
    one.step(5)
    assert one.where() == (Status.RUNNING, "p", 1)
    assert "not understood" in one.said[-1].ack.reason
    one.client.record(at(6), b"q", b"{", ms(6))  # another topic's
    one.step(9, opened("p", 2))
    assert one.said[-1].ack.reason == ""


# ------------------------------------------------------------------------------------------------ contact


def test_a_process_that_slept_refuses_before_anything_else_has_run() -> None:
    """Whichever clock counts the sleep: the one that counts suspend, or the wall clock where that one stood still."""
    for woken in (at(70), Now(at(1).wall + 70, at(1).boot + 0.1), Now(at(1).wall, at(1).boot + 70)):
        one = Producing()
        one.step(0, opened("p", 1, armed=1))
        assert one.step(1).admit(at(1)) == "p"
        assert one.client.admits, "no thread has looked yet"
        assert one.client.admit(woken) is None


def test_an_armed_producer_goes_blind_after_10_s_without_contact_and_an_unarmed_one_after_15_min() -> None:
    for armed, bound in ((1, 10.0), (0, 900.0)):
        one = Producing()
        one.step(0, opened("p", 1, armed=armed))
        assert one.client.admit(at(bound)) == "p"
        assert one.client.admit(at(bound + 0.1)) is None
        one.client.advance(at(bound + 0.1), flushed=True)
        assert one.client.status is Status.BLIND


def test_contact_is_both_reading_and_being_heard() -> None:
    deaf = Producing()
    deaf.step(0, opened("p", 1, armed=1))
    for second in range(1, 20):
        deaf.hears(second)
    assert deaf.client.admit(at(19)) is None
    mute = Producing()
    mute.step(0, opened("p", 1, armed=1))
    for second in range(1, 20):
        mute.reads(second)
    assert mute.client.admit(at(19)) is None


def test_contact_counts_from_when_it_was_asked_not_from_the_answer() -> None:
    one = Producing()
    one.step(0, opened("p", 1, armed=1))
    late = one.client.ack(at(5))
    assert late is not None
    one.client.acked(late, at(13), ms(5))  # the answer came 8 s later
    one.client.read_ok(at(12))
    assert one.client.admit(at(14.9)) == "p"
    assert one.client.admit(at(15.1)) is None


def test_a_blind_producer_says_so_only_once_everything_is_delivered() -> None:
    one = Producing()
    one.step(0, opened("p", 1, armed=1))
    one.client.advance(at(20), flushed=False)
    assert one.client.status is Status.FLUSHING
    one.client.advance(at(20), flushed=True)
    assert one.client.status is Status.BLIND


def test_a_larger_bound_counts_only_once_others_know_it() -> None:
    """What it last said about itself is what others count on: it is gone after that, so it must stop before."""
    one = Producing()
    one.step(0, opened("p", 1, armed=1))
    one.step(1)
    assert one.said[-1].ack.gone_ms == 45_000
    one.reads(2, opened("p", 2))
    one.client.advance(at(2), flushed=True)
    unheard = one.client.ack(at(2))
    assert unheard is not None
    assert unheard.ack.gone_ms == 935_000
    assert one.client.bound_s == 10.0, "disarmed, but the last word that anybody has is an armed one's"
    one.client.ack_failed(unheard, at(3), "timed out")
    assert one.client.bound_s == 10.0, "it may lie in the log all the same"
    one.hears(5)
    assert one.client.bound_s == 900.0


def test_an_armed_word_on_its_way_binds_at_once() -> None:
    one = Producing()
    one.step(0)
    one.reads(1, opened("p", 1, armed=1))
    one.client.advance(at(1), flushed=True)
    lost = one.client.ack(at(1))  # the broker has it, and the answer is lost
    assert lost is not None and lost.ack.armed
    one.reads(2, opened("p", 2))
    assert one.client.bound_s == 10.0


def test_without_a_topic_for_acknowledgements_nobody_waits_for_any_until_it_is_armed() -> None:
    client = ProducerClient(PRODUCER)
    client.read_ok(at(0))
    client.acks_absent(at(0))
    client.advance(at(0), flushed=True)
    assert client.admit(at(0)) == "p"
    client.record(at(1), b"p", serialise_route(opened("p", 1, armed=1)), ms(1))
    client.read_ok(at(20))
    client.acks_absent(at(20))
    client.advance(at(20), flushed=True)
    assert client.admit(at(20)) is None


# ------------------------------------------------------------------------------------------------ the end of a pause


def test_a_pause_ends_with_a_settled_look_past_its_end_and_not_before() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.step(59.9)
    assert one.where()[0] is Status.PAUSED and not one.client.wants_settled(at(59.9))
    one.step(60.1, settled=False)  # a transaction is open below the end
    assert one.where()[0] is Status.PAUSED and one.client.wants_settled(at(60.1))
    one.step(61)
    assert one.where() == (Status.LEASE_EXPIRED, "p", 1)
    assert one.client.admit(at(61)) == "p"


def test_a_look_that_was_asked_before_the_end_settles_nothing() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.step(59)
    one.client.read_ok(at(59.5), settled=True)  # asked in time, answered later
    one.client.advance(at(65), flushed=True)
    assert one.client.status is Status.PAUSED


def test_a_point_that_was_appended_in_time_and_committed_late_is_seen_before_anybody_goes_on() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.step(61, settled=False)
    point = replace(paused("p2", 2), pause=1, valid_before_ms=ms(58), else_active="p")
    one.step(62, point, stamp_s=57)
    assert one.where() == (Status.LEASE_EXPIRED, "p2", 2)


def test_a_void_point_leaves_the_pause_to_end_where_it_began() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    void = replace(paused("p2", 2), pause=1, valid_before_ms=ms(58), else_active="p")
    one.step(58.5, void, stamp_s=58)
    assert one.where() == (Status.PAUSED, "p", 2)
    one.step(61)
    assert one.where() == (Status.LEASE_EXPIRED, "p", 2)


def test_one_that_had_gone_on_obeys_a_valid_point_all_the_same() -> None:
    """Everybody ends on one topic, also where a point was hidden from one of them."""
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.step(61)
    assert one.where()[1] == "p"
    one.step(62, replace(paused("p2", 2), pause=1, valid_before_ms=ms(58), else_active="p"), stamp_s=57)
    assert one.where() == (Status.LEASE_EXPIRED, "p2", 2)


def test_a_restart_never_lengthens_a_pause() -> None:
    one = Producing()
    one.step(50, paused("p", 1), stamp_s=0)
    assert one.where()[0] is Status.PAUSED
    one.step(60.2)
    assert one.where()[0] is Status.LEASE_EXPIRED


def test_without_the_brokers_time_a_pause_lasts_its_length_from_reading_it_at_most() -> None:
    client = ProducerClient(PRODUCER)
    client.record(at(50), b"p", serialise_route(Route("p", "p", State.PAUSED, 1, 60_000, pause=1)), ms(0))
    client.read_ok(at(50), settled=True)
    client.advance(at(50), flushed=True)
    client.read_ok(at(109), settled=True)
    client.advance(at(109), flushed=True)
    assert client.status is Status.PAUSED
    client.read_ok(at(110.1), settled=True)
    client.advance(at(110.1), flushed=True)
    assert client.status is Status.BLIND, "the pause is over, and it is not in contact"


def test_a_paused_producer_without_contact_stays_paused() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    one.client.advance(at(500), flushed=True)
    assert one.client.status is Status.PAUSED


def test_the_same_call_twice_changes_nothing_and_says_nothing() -> None:
    one = Producing()
    one.step(0)
    one.step(1, paused("p", 1))
    said = len(one.said)
    one.step(1, paused("p", 1))
    assert len(one.said) == said


@pytest.mark.parametrize("kind", [ProducerClient, ConsumerClient])
def test_a_good_bye_is_the_last_word(kind: type[ProducerClient | ConsumerClient]) -> None:
    client = kind(PRODUCER if kind is ProducerClient else MEMBER)
    assert client.good_bye(at(0)).ack.status is Status.GONE
