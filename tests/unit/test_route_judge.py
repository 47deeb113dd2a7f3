"""What acknowledgements of the route add up to, over plain values."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.route_values import CHECKOUT, LEDGER, OPEN, PAUSED, T0_MS

from topicshift.core.route.judge import Judgement, Scene, judge
from topicshift.core.route.records import Ack, BadAck, GroupRoute, Route, State, Status
from topicshift.ports import Participant


def ack(instance: str, status: Status, epoch: int, topic: str = "p", *, age_s: float = 0, **more: object) -> Ack:
    stamp = T0_MS - int(age_s * 1000)
    one = Ack("p", "producer", "checkout", instance, status, epoch, topic, armed=True, clock_ms=stamp, broker_ms=stamp)
    return replace(one, **more)  # type: ignore[arg-type]


def seen(
    route: Route | None,
    *acks: Ack,
    who: Participant = CHECKOUT,
    bad: tuple[BadAck, ...] = (),
    now_ms: tuple[int, int] = (T0_MS, T0_MS),
) -> Judgement:
    return judge(Scene("p", route, acks, bad, now_ms), who.role, who.name, who.group)


def test_nobody_who_ever_reported_is_unknown_and_not_stopped() -> None:
    state = seen(PAUSED)
    assert state.status == "unknown"
    assert "'checkout'" in state.reason


def test_stopped_needs_every_instance_to_have_acknowledged_the_pause() -> None:
    one, two = ack("c.1", Status.PAUSED, 3), ack("c.2", Status.PAUSED, 3)
    assert (seen(PAUSED, one, two).status, seen(PAUSED, one, two).topic) == ("stopped", "p")
    late = seen(PAUSED, one, ack("c.2", Status.PAUSED, 1))
    assert late.status == "running"
    assert "c.2 has not acknowledged epoch 3" in late.reason
    flushing = seen(PAUSED, one, ack("c.2", Status.FLUSHING, 3))
    assert flushing.status == "running"
    assert "c.2 is flushing" in flushing.reason


def test_a_pause_acknowledged_stays_one_while_it_is_pointed_and_the_topic_waits_for_everybody() -> None:
    pointed = replace(PAUSED, epoch=4, active="p2")
    mixed = seen(pointed, ack("c.1", Status.PAUSED, 4, "p2"), ack("c.2", Status.PAUSED, 3))
    assert (mixed.status, mixed.topic) == ("stopped", None)
    both = seen(pointed, ack("c.1", Status.PAUSED, 4, "p2"), ack("c.2", Status.PAUSED, 4, "p2"))
    assert (both.status, both.topic) == ("stopped", "p2")


def test_a_pause_that_is_over_or_may_be_is_no_stop() -> None:
    one = ack("c.1", Status.PAUSED, 3)
    assert seen(replace(PAUSED, until_ms=T0_MS), one).status == "running"
    assert seen(replace(PAUSED, until_ms=T0_MS + 5), one, now_ms=(T0_MS, T0_MS + 9)).status == "running"
    assert seen(PAUSED, ack("c.1", Status.LEASE_EXPIRED, 3)).status == "running"


def test_a_void_point_shows_producers_where_they_are() -> None:
    void = replace(PAUSED, epoch=4, until_ms=T0_MS - 1, voided="p2")
    state = seen(void, ack("c.1", Status.LEASE_EXPIRED, 4))
    assert (state.status, state.topic) == ("running", "p")
    assert "points producers to p2 (epoch 4) came too late" in state.reason


def test_running_on_a_topic_needs_every_instance_there_at_the_present_epoch() -> None:
    one = ack("c.1", Status.RUNNING, 5, "p2")
    assert (seen(OPEN, one).status, seen(OPEN, one).topic) == ("running", "p2")
    for other in (ack("c.2", Status.RUNNING, 3), ack("c.2", Status.PAUSED, 5, "p2"), ack("c.2", Status.RUNNING, 5)):
        mixed = seen(OPEN, one, other)
        assert (mixed.status, mixed.topic) == ("running", None)
        assert "c.2" in mixed.reason


def test_a_silent_instance_is_unknown_by_name_then_gone() -> None:
    live = ack("c.1", Status.PAUSED, 3)
    silent = seen(PAUSED, live, ack("c.2", Status.RUNNING, 2, age_s=9.5))
    assert silent.status == "unknown"
    assert "c.2 is silent" in silent.reason and "topicshift route dismiss p c.2" in silent.reason
    assert silent.clears_ms == T0_MS + 35_500
    gone = seen(PAUSED, live, ack("c.2", Status.RUNNING, 1, age_s=46))
    assert gone.status == "stopped"
    assert [a.instance for a in gone.live] == ["c.1"]


def test_gone_is_certain_and_silent_is_suspected_whatever_the_brokers_time_is() -> None:
    live = ack("c.1", Status.PAUSED, 3)
    unsure = (T0_MS, T0_MS + 5000)
    assert seen(PAUSED, live, ack("c.2", Status.RUNNING, 1, age_s=44), now_ms=unsure).status == "unknown"
    assert seen(PAUSED, ack("c.1", Status.RUNNING, 3, age_s=5), now_ms=unsure).status == "unknown"


def test_a_silent_instance_that_had_acknowledged_the_pause_holds_nothing_up() -> None:
    live, dead = ack("c.1", Status.PAUSED, 3), ack("c.2", Status.PAUSED, 3, age_s=20)
    state = seen(PAUSED, live, dead)
    assert (state.status, [a.instance for a in state.live]) == ("stopped", ["c.1"])
    assert "c.2 is silent for 20 s since it paused, and is not waited for" in state.reason
    assert seen(OPEN, ack("c.1", Status.RUNNING, 5, "p2"), dead).topic == "p2", "nor is the start of the others"
    alone = seen(PAUSED, dead)
    assert (alone.status, alone.live) == ("stopped", ())
    # A word from before this pause is worth nothing: it may have gone on since.
    again = replace(PAUSED, epoch=6, pause=6)
    assert seen(again, ack("c.1", Status.PAUSED, 6), dead).status == "unknown"


def test_all_gone_is_stopped_and_says_how_they_went() -> None:
    assert "good-bye" in seen(OPEN, ack("c.1", Status.GONE, 2)).reason
    killed = seen(OPEN, ack("c.1", Status.RUNNING, 2, age_s=100))
    assert killed.status == "stopped"
    assert "c.1 (100 s) went silent" in killed.reason


def test_a_wrong_or_unknown_picture_of_the_brokers_clock_blocks_by_name_both_ways() -> None:
    fine = ack("c.1", Status.PAUSED, 3, clock_ms=T0_MS - 4000)
    assert seen(PAUSED, fine).status == "stopped"
    ahead = seen(PAUSED, ack("c.1", Status.PAUSED, 3, clock_ms=T0_MS + 1500))
    assert ahead.status == "unknown" and "c.1 takes the brokers' clock to be 1.5 s ahead" in ahead.reason
    behind = seen(PAUSED, ack("c.1", Status.PAUSED, 3, clock_ms=T0_MS - 300_000))
    assert behind.status == "unknown" and "300.0 s behind" in behind.reason
    unknown = seen(PAUSED, ack("c.1", Status.PAUSED, 3, clock_ms=None))
    assert unknown.status == "unknown" and "c.1 does not know the brokers' time" in unknown.reason


def test_brokers_whose_clocks_differ_are_seen_by_a_stamp_in_the_future() -> None:
    state = seen(PAUSED, ack("c.1", Status.PAUSED, 3, age_s=-5))
    assert state.status == "unknown" and "5.0 s in the future" in state.reason


def test_a_blind_instance_is_unknown() -> None:
    assert "c.1 is blind (no right)" in seen(PAUSED, ack("c.1", Status.BLIND, 3, reason="no right")).reason


def test_an_epoch_that_nobody_wrote_is_not_believed() -> None:
    state = seen(PAUSED, ack("c.1", Status.PAUSED, 2**50))
    assert state.status == "unknown" and "route dismiss p c.1" in state.reason


def test_what_is_not_understood_blocks_whom_it_may_concern_and_nobody_else() -> None:
    one, ledger = (
        ack("c.1", Status.PAUSED, 3),
        ack("l.1", Status.RUNNING, 3, role="consumer", participant="ledger", group="ledger"),
    )
    for bad in (BadAck("p", "c.9", "no JSON"), BadAck("p", "c.9", "no JSON", "producer", "checkout")):
        state = seen(PAUSED, one, bad=(bad,))
        assert state.status == "unknown" and state.clears_ms is None
        assert "c.9 is not understood (no JSON)" in state.reason and "topicshift route dismiss p c.9" in state.reason
    other = BadAck("p", "b.1", "no JSON", "producer", "billing")
    assert seen(PAUSED, one, bad=(other,)).status == "stopped"
    assert seen(replace(PAUSED, groups={"ledger": GroupRoute("p")}), ledger, who=LEDGER, bad=(other,)).topic == "p"
    assert seen(PAUSED, bad=(BadAck("p", "c.9", "no JSON"),)).status == "unknown"


def test_armed_is_what_every_live_instance_says_since_the_route_was_armed() -> None:
    armed = Route("p", "p", State.OPEN, 2, armed=2)
    assert seen(armed, ack("c.1", Status.RUNNING, 2)).armed
    assert not seen(armed, ack("c.1", Status.RUNNING, 2), ack("c.2", Status.RUNNING, 1)).armed
    assert not seen(armed, ack("c.1", Status.RUNNING, 2, armed=False)).armed
    assert not seen(replace(armed, armed=0), ack("c.1", Status.RUNNING, 2)).armed
    assert not seen(armed, ack("c.1", Status.RUNNING, 2), bad=(BadAck("p", "x", "no JSON"),)).armed
    # An unarmed instance that went silent counts as gone only after its own, longer bound.
    silent = ack("c.2", Status.RUNNING, 1, armed=False, age_s=600, gone_ms=935_000)
    state = seen(armed, ack("c.1", Status.RUNNING, 2), silent)
    assert (state.armed, state.status) == (False, "unknown")
    assert seen(armed, ack("c.1", Status.RUNNING, 2), replace(silent, broker_ms=T0_MS - 936_000)).armed


def test_a_consumer_is_judged_by_its_groups_entry() -> None:
    def member(status: Status, topic: str) -> Ack:
        return ack("l.1", status, 5, topic, role="consumer", participant="ledger", group="ledger")

    held = replace(OPEN, groups={"ledger": GroupRoute("p")})
    assert (seen(held, member(Status.RUNNING, "p"), who=LEDGER)).topic == "p"
    released = replace(OPEN, groups={"ledger": GroupRoute("p2", came_from="p")})
    draining = seen(released, member(Status.DRAINING, "p"), who=LEDGER)
    assert (draining.status, draining.topic) == ("running", None)
    assert seen(released, member(Status.RUNNING, "p2"), who=LEDGER).topic == "p2"
    stopped = replace(OPEN, groups={"ledger": GroupRoute("p", State.PAUSED, until_ms=T0_MS + 1, pause=5)})
    assert seen(stopped, member(Status.PAUSED, "p"), who=LEDGER).status == "stopped"
