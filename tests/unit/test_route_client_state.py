"""What a client does next: told histories, and generated ones over a log with stamps, transactions and stalls."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.errors import Refused
from topicshift.core.route.acts import Act, arm, disarm, open_producers, pause_producers, point_producers
from topicshift.core.route.client import ConsumerClient, Identity, Outgoing, ProducerClient, Timing, Turn
from topicshift.core.route.clocks import BrokerTime, Now, elapsed
from topicshift.core.route.records import GroupRoute, Route, State, Status, parse_route, serialise_route
from topicshift.testing.fake_controllers import FakeLog

B0 = 1_896_056_100_000
PRODUCER = Identity("p", "producer", "checkout", "c.1")
MEMBER = Identity("p", "consumer", "ledger", "l.1", "g")


def at(seconds: float) -> Now:
    return Now(5e9 + seconds, 1000 + seconds)  # a wall clock that is far off, and must not matter


def ms(seconds: float) -> int:
    return B0 + round(seconds * 1000)


def opened(topic: str, epoch: int, **more: object) -> Route:
    return Route("p", topic, State.OPEN, epoch, **more)  # type: ignore[arg-type]


def paused(topic: str, epoch: int, until_s: float = 60) -> Route:
    return Route("p", topic, State.PAUSED, epoch, until_ms=ms(until_s), pause=epoch)


class Told:
    """A client that is told everything at once; the brokers take each acknowledgement as it is sent."""

    def __init__(self, client: ProducerClient | ConsumerClient) -> None:
        self.client = client
        self.said: list[Outgoing] = []

    def hears(self, now_s: float) -> None:
        out = self.client.ack(at(now_s))
        if out is not None:
            self.said.append(out)
            self.client.acked(out, at(now_s), ms(now_s))

    def reads(self, now_s: float, *routes: Route, stamp_s: float | None = None, settled: bool = True) -> None:
        for route in routes:
            stamp = ms(now_s if stamp_s is None else stamp_s)
            self.client.record(at(now_s), b"p", serialise_route(route), stamp)
        self.client.read_ok(at(now_s), settled=settled)


class Producing(Told):
    client: ProducerClient

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(ProducerClient(PRODUCER, timing))

    def step(self, now_s: float, *routes: Route, flushed: bool = True, **how: object) -> ProducerClient:
        self.hears(now_s)
        self.reads(now_s, *routes, **how)  # type: ignore[arg-type]
        self.client.advance(at(now_s), flushed=flushed)
        self.hears(now_s)
        return self.client

    def where(self) -> tuple[Status, str, int]:
        return self.client.status, self.client.topic, self.client.epoch


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


# ------------------------------------------------------------------------------------------------ one log, many clients


class Instance:
    """A producer with a clock of its own that reads the shared log, and writes whenever it may."""

    def __init__(self, name: str, fleet: Fleet, rate: float) -> None:
        self.client = ProducerClient(replace(PRODUCER, instance=name))
        self.fleet, self.rate = fleet, rate
        self.position = 0

    def now(self) -> Now:
        return Now(5e9 + self.fleet.s * self.rate, 77 + self.fleet.s * self.rate)

    def write(self) -> None:
        topic = self.client.admit(self.now())
        if topic is not None:
            self.fleet.written.setdefault(self.fleet.pause, set()).add(topic)

    def live(self) -> None:
        self.write()  # the sender's thread comes first
        client, now, log = self.client, self.now(), self.fleet.log
        end = log.end
        records, self.position = log.read(self.position)
        for r in records:
            client.record(now, r.key, r.value, r.broker_ms)
        client.read_ok(now, settled=self.position >= end)
        client.advance(now, flushed=True)
        out = client.ack(now)
        if out is not None:
            client.acked(out, now, ms(self.fleet.s))
            client.advance(now, flushed=True)
        self.write()


class Fleet:
    """Three instances, their log, and an orchestrator that does not look whether its records come in time.

    ``written`` has for each pause the topics that were written to since all who were awake had stopped for it.
    """

    def __init__(self, rates: list[float]) -> None:
        self.log = FakeLog()
        self.s = 0.0
        self.pause = 0
        self.route: Route | None = None
        self.written: dict[int, set[str]] = {}
        self.asleep: Instance | None = None
        self.fleet = [Instance(f"c.{n}", self, rate) for n, rate in enumerate(rates)]

    def wait(self, seconds: float) -> None:
        until = self.s + seconds
        while self.s < until:
            self.s = min(until, self.s + 0.5)
            for one in self.fleet:
                if one is not self.asleep:
                    one.live()

    def put(self, wanted: Route | None, delay_s: float = 0.0, *, decided: bool = True) -> None:
        if wanted is None:
            return
        self.wait(delay_s)
        record = self.log.append(b"p", serialise_route(wanted), ms(self.s), "committed" if decided else "open")
        if decided:
            self.route = parse_route(record.value or b"", broker_ms=record.broker_ms)

    def decide(self, commit: bool) -> None:
        record = self.log.records[-1]
        if record.state == "open":
            record.state = "committed" if commit else "aborted"
            if commit:
                self.route = parse_route(record.value or b"", broker_ms=record.broker_ms)

    def act(self) -> Act:
        return Act("p", "p", "p2", "m", 1, (ms(self.s), ms(self.s)), 10_000)


episodes = st.fixed_dictionaries(
    {
        "sleeper": st.integers(-1, 2),
        "until_point": st.floats(0, 9),
        "point": st.booleans(),
        "takes": st.floats(0, 12),
        "at_once": st.booleans(),
        "until_decided": st.floats(0, 15),
        "commit": st.booleans(),
        "wakes": st.floats(0, 15),
        "open": st.booleans(),
        "after": st.floats(0, 15),
    }
)


def play(fleet: Fleet, e: dict) -> None:
    fleet.put(arm(fleet.route, fleet.act()))
    fleet.wait(4)
    if e["sleeper"] >= 0:
        fleet.asleep = fleet.fleet[e["sleeper"]]
        fleet.wait(46)  # it counts as gone
    fleet.put(pause_producers(fleet.route, fleet.act()))
    fleet.wait(0.5)
    assert fleet.route is not None
    fleet.pause = fleet.route.epoch
    fleet.wait(e["until_point"])
    if e["point"]:
        elsewhere = "p2" if fleet.route.active == "p" else "p"
        try:
            wanted = point_producers(fleet.route, fleet.act(), elsewhere)
        except Refused:
            wanted = None
        fleet.put(wanted, e["takes"], decided=e["at_once"])
        fleet.wait(e["until_decided"])
        fleet.decide(e["commit"])
    fleet.wait(e["wakes"])
    fleet.asleep = None
    if e["open"]:
        fleet.put(open_producers(fleet.route, fleet.act()))
    fleet.wait(e["after"])
    fleet.wait(12)
    fleet.put(open_producers(fleet.route, fleet.act()))
    fleet.wait(1)
    fleet.put(disarm(fleet.route, fleet.act()))


@settings(max_examples=80, deadline=None)
@given(st.lists(episodes, min_size=1, max_size=2), st.lists(st.floats(0.999, 1.001), min_size=3, max_size=3))
def test_all_clients_of_one_log_end_every_pause_alike(history: list[dict], rates: list[float]) -> None:
    """Whoever sleeps, and however late a record is stamped or decided: after each pause all write to one topic."""
    fleet = Fleet(rates)
    for episode in history:
        play(fleet, episode)
    ended = {k: topics for k, topics in fleet.written.items() if k}
    assert all(len(topics) == 1 for topics in ended.values()), ended
    assert len(ended) == len(history), "after each pause they go on"


# ------------------------------------------------------------------------------------------------ clocks


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 1)), min_size=1, max_size=20),
    st.floats(0, 100),
)
def test_the_brokers_time_lies_within_its_bounds(
    offset: float, trips: list[tuple[float, float, float]], later: float
) -> None:
    known = BrokerTime()
    s = 0.0
    for wait, trip, share in trips:
        s += wait
        stamp = int((s + trip * share + offset) * 1000 // 1) + B0
        known.stamped(Now(0, s), Now(0, s + trip), stamp)
        s += trip
    now = Now(0, s + later)
    true_ms = (s + later + offset) * 1000 + B0
    least, most = known.least(now), known.most(now)
    assert least is not None and most is not None
    assert least <= true_ms + 1 and true_ms <= most + 1


def test_a_broker_with_another_clock_replaces_what_was_known() -> None:
    known = BrokerTime()
    known.stamped(at(0), at(0.01), ms(100))
    known.stamped(at(3), at(3.01), ms(3))
    assert known.most(at(3.01)) == ms(3.01) + 1
    assert known.least(at(3.01)) == ms(3)


def test_elapsed_is_the_larger_of_the_two_clocks() -> None:
    assert elapsed(Now(0, 0), Now(5, 1)) == 5
    assert elapsed(Now(0, 0), Now(-900, 1)) == 1


# ------------------------------------------------------------------------------------------------ consumers


def grouped(epoch: int, **groups: GroupRoute) -> Route:
    return Route("p", "p2", State.OPEN, epoch, groups=groups)


def held(topic: str, until_s: float = 60, **more: object) -> GroupRoute:
    return GroupRoute(topic, State.PAUSED, until_ms=ms(until_s), **more)  # type: ignore[arg-type]


class Consuming(Told):
    client: ConsumerClient

    def __init__(self, *routes: Route, topic: str = "p") -> None:
        super().__init__(ConsumerClient(MEMBER))
        self.out = True
        self.hears(0)
        self.reads(0, *routes)
        start = self.client.start()
        self.client.begin(start if isinstance(start, str) else topic)
        self.turn()

    def turn(self, now_s: float = 0, *, clean: bool = True, at_end: bool = False, slow: bool = False) -> Turn:
        turn = self.client.advance(at(now_s), clean=clean, at_end=at_end, out=self.out)
        if turn.subscribe:
            self.out = False
        if turn.leave:
            self.out = not slow
        return turn

    def where(self) -> tuple[Status, str]:
        return self.client.status, self.client.topic


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


@pytest.mark.parametrize("kind", [ProducerClient, ConsumerClient])
def test_a_good_bye_is_the_last_word(kind: type[ProducerClient | ConsumerClient]) -> None:
    client = kind(PRODUCER if kind is ProducerClient else MEMBER)
    assert client.good_bye(at(0)).ack.status is Status.GONE
