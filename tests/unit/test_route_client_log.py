"""Clients that read one log, with stamps, transactions and stalls, in generated histories; and their clocks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.route_clients import (
    B0,
    PRODUCER,
    at,
    ms,
)

from topicshift.core.errors import Refused
from topicshift.core.route.acts import Act, arm, disarm, open_producers, pause_producers, point_producers
from topicshift.core.route.client import ProducerClient
from topicshift.core.route.clocks import BrokerTime, Now, elapsed
from topicshift.core.route.records import Route, parse_route, serialise_route
from topicshift.testing.fake_controllers import FakeLog

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
