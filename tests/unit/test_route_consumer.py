"""The shipped consumer where the brokers do not tell an offset: that is not an offset which is not there."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from topicshift.client.consumer import RoutedConsumer
from topicshift.client.follower import RouteUnavailable
from topicshift.client.given import Given
from topicshift.core.route.client import ConsumerClient, Identity
from topicshift.core.route.clocks import Now
from topicshift.core.route.records import Route, State, Status, serialise_route
from topicshift.core.route.seeding import Seeds

PASSING = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
MOVED = Route("p", "p2", State.OPEN, 5, source="p", target="p2", migration="m", claim=1)


class Brokers:
    """A consumer's view of what its group has committed: an offset, -1001 for none, or an error."""

    def __init__(self, **committed: dict[int, int | KafkaError]) -> None:
        self.have: dict[str, dict[int, int | KafkaError]] = committed
        self.error: dict[str, KafkaError] = {}
        self.committed_now: list[tuple[str, int, int]] = []
        self.read: list[tuple[str, int, int]] = []
        self.unready = 0
        """How often a seek is refused: the partition is not fetched at this moment."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        parts = {} if topic in self.error else dict.fromkeys(self.have.get(topic, {}))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.error.get(topic), partitions=parts)})

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        out = []
        for tp in asked:
            at = self.have[tp.topic][tp.partition]
            failed = isinstance(at, KafkaError)
            offset, error = (-1001, at) if failed else (at, None)
            out.append(SimpleNamespace(topic=tp.topic, partition=tp.partition, offset=offset, error=error))
        return out

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.committed_now += [(tp.topic, tp.partition, tp.offset) for tp in offsets]

    def seek(self, tp: TopicPartition) -> None:
        if self.unready:
            self.unready -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.read.append((tp.topic, tp.partition, tp.offset))

    def resume(self, _: Any) -> None: ...


def consumer(brokers: Brokers, route: Route | None = MOVED) -> RoutedConsumer:
    made: Any = object.__new__(RoutedConsumer)
    made._client = ConsumerClient(Identity("p", "consumer", "ledger", "ledger.1", "ledger"))
    if route is not None:
        made._client.record(Now(0, 0), b"p", serialise_route(route), 1)
        made._client.read_ok(Now(0, 0))
    made._consumer, made._group = brokers, "ledger"
    made._assigned = {("p2", p) for p in range(3)}
    made._asked, made._committed, made._seed_at, made._waiting_since = {}, {}, 0.0, None
    made._in_flight, made._users_on_commit = False, None
    made._given = Given()
    made._lookup = SimpleNamespace(starts=lambda keys: dict.fromkeys(keys, 0))
    made._lock, made._look, made._seeds = threading.Condition(), threading.Event(), Seeds()
    made._follower = SimpleNamespace(dead="")
    return made  # type: ignore[no-any-return]


def test_a_partition_whose_offset_is_not_told_is_not_read_from_the_start_again() -> None:
    brokers = Brokers(p2={0: 40, 1: PASSING, 2: -1001})
    one: Any = consumer(brokers)
    one._seeds.hold([("p2", p) for p in range(3)])
    one._seed(0.0)
    assert brokers.committed_now == [("p2", 2, 0)], "only where there is none"
    assert brokers.read == [("p2", 0, 40)] and ("p2", 1) in one._seeds
    brokers.have["p2"][1] = 70
    one._seed(1.0)
    assert brokers.read[1:] == [("p2", 1, 70)]


def test_nothing_of_a_partition_is_read_before_its_first_offset_is_committed() -> None:
    brokers = Brokers(p2={0: -1001})
    one: Any = consumer(brokers)
    one._seeds.hold([("p2", 0)])
    one._seed(0.0)
    one._seed(1.0)
    assert brokers.read == [] and brokers.committed_now == [("p2", 0, 0)], "it waits for the one commit"
    failed = SimpleNamespace(topic="p2", partition=0, offset=0, error=PASSING)
    one._on_commit(None, [failed])
    assert brokers.read == [] and one._seeds.ask() == [("p2", 0)], "it is tried again"
    one._seed(2.0)
    one._on_commit(None, [SimpleNamespace(topic="p2", partition=0, offset=0, error=None)])
    assert brokers.read == [("p2", 0, 0)] and not one._seeds


def test_a_partition_that_cannot_be_sought_yet_is_sought_again_and_ends_nothing() -> None:
    brokers = Brokers(p2={0: 40, 1: -1001})
    one: Any = consumer(brokers)
    one._seeds.hold([("p2", 0), ("p2", 1)])
    brokers.unready = 1
    one._seed(0.0)
    assert brokers.read == [] and set(one._seeds.ask()) == {("p2", 0)}
    brokers.unready = 1
    one._on_commit(None, [SimpleNamespace(topic="p2", partition=1, offset=0, error=None)])
    assert brokers.read == [] and set(one._seeds.ask()) == {("p2", 0), ("p2", 1)}
    brokers.have["p2"][1] = 0
    one._seed(1.0)
    assert sorted(brokers.read) == [("p2", 0, 40), ("p2", 1, 0)] and not one._seeds
    one._assigned = set()
    brokers.unready = 1
    one._deliver({("p2", 0): 40})
    assert not one._seeds, "one that was taken away meanwhile is somebody else's"


def test_a_partition_that_is_taken_away_is_not_seeded_any_more() -> None:
    seeds = Seeds()
    seeds.hold([("p2", 0), ("p2", 1)])
    assert seeds.told({("p2", 0): None, ("p2", 1): None}) == ({}, [("p2", 0), ("p2", 1)])
    seeds.forget([("p2", 0)])
    assert seeds.starts({("p2", 0): 0, ("p2", 1): 3}) == {("p2", 1): 3}
    assert seeds.committed(("p2", 0), 0, ok=True) == {}
    assert seeds.committed(("p2", 1), 3, ok=True) == {("p2", 1): 3}


def test_a_group_whose_offsets_are_not_told_does_not_begin_on_the_new_topic() -> None:
    brokers = Brokers(p={0: PASSING}, p2={0: -1001})
    one: Any = consumer(brokers)
    assert not one._begin(0.0) and not one._client.begun
    with pytest.raises(KafkaException):
        one._has_offsets("p")
    brokers.have["p"][0] = 12
    assert one._begin(0.0) and one._client.topic == "p"


@pytest.mark.parametrize(
    ("code", "begins"), [(KafkaError.LEADER_NOT_AVAILABLE, None), (KafkaError.UNKNOWN_TOPIC_OR_PART, "p2")]
)
def test_a_source_that_is_not_described_is_not_one_that_was_deleted(code: int, begins: str | None) -> None:
    brokers = Brokers(p={0: 1}, p2={0: -1001})
    brokers.error["p"] = KafkaError(code)
    one: Any = consumer(brokers)
    assert one._begin(0.0) is (begins is not None)
    assert one._client.topic == (begins or "p") and one._client.status is Status.BLIND


def test_a_consumer_that_cannot_tell_where_to_begin_asks_again_and_says_so_in_the_end() -> None:
    one: Any = consumer(Brokers(p={0: PASSING}, p2={0: -1001}))
    assert not one._begin(0.0)
    one._waiting_since = time.monotonic() - one._client.timing.start_s
    with pytest.raises(RouteUnavailable, match="which topic of p to read is unknown"):
        one._begin(0.0)


def test_a_consumer_that_cannot_read_the_route_waits_and_says_so_in_the_end() -> None:
    one: Any = consumer(Brokers(), route=None)
    assert not one._begin(0.0)
    one._waiting_since = time.monotonic() - one._client.timing.start_s
    with pytest.raises(RouteUnavailable, match="READ __topicshift_routes"):
        one._begin(0.0)
