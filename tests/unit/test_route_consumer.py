"""The shipped consumer where the brokers do not tell an offset: that is not an offset which is not there."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from topicshift.client.consumer import RoutedConsumer
from topicshift.client.follower import RouteUnavailable
from topicshift.core.route.client import ConsumerView
from topicshift.core.route.records import STALE_S, Route, State, Status

PASSING = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
MOVED = Route("p", "p2", State.OPEN, 5, source="p", target="p2", migration="m", claim=1)


class Brokers:
    """A consumer's view of what its group has committed: an offset, -1001 for none, or an error."""

    def __init__(self, **committed: dict[int, int | KafkaError]) -> None:
        self.have: dict[str, dict[int, int | KafkaError]] = committed
        self.error: dict[str, KafkaError] = {}
        self.committed_now: list[tuple[str, int, int]] = []
        self.read: list[tuple[str, int, int]] = []

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
        self.read.append((tp.topic, tp.partition, tp.offset))

    def resume(self, _: Any) -> None: ...


def consumer(brokers: Brokers) -> RoutedConsumer:
    made: Any = object.__new__(RoutedConsumer)
    made._consumer, made._instance, made._group, made._logical = brokers, "ledger.1", "ledger", "p"
    made._asked, made._seed_at, made._undecided_since, made._started = {}, 0.0, None, False
    made._lookup = SimpleNamespace(starts=lambda keys: dict.fromkeys(keys, 0))
    made._look = SimpleNamespace(set=lambda: None)
    made._view = ConsumerView("p")
    return made  # type: ignore[no-any-return]


def test_a_partition_whose_offset_is_not_told_is_not_read_from_the_start_again() -> None:
    brokers = Brokers(p2={0: 40, 1: PASSING, 2: -1001})
    one: Any = consumer(brokers)
    one._unseeded = one._assigned = {("p2", p) for p in range(3)}
    one._seed(0.0)
    assert brokers.committed_now == [("p2", 2, 0)], "only where there is none"
    assert brokers.read == [("p2", 0, 40)] and ("p2", 1) in one._unseeded
    brokers.have["p2"][1] = 70
    one._seed(1.0)
    assert brokers.read[1:] == [("p2", 1, 70)]


def test_a_group_whose_offsets_are_not_told_does_not_begin_on_the_new_topic() -> None:
    brokers = Brokers(p={0: PASSING}, p2={0: -1001})
    one: Any = consumer(brokers)
    with pytest.raises(KafkaException):
        one._first_topic(MOVED)
    brokers.have["p"][0] = 12
    assert one._first_topic(MOVED) == "p"
    brokers.error["p"] = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException):
        one._first_topic(MOVED)
    brokers.error["p"] = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert one._first_topic(MOVED) == "p2", "the source was deleted since"


def test_a_consumer_that_cannot_tell_where_to_begin_asks_again_and_says_so_in_the_end() -> None:
    one: Any = consumer(Brokers())
    one._not_begun(KafkaException(PASSING))
    assert one._view.status is Status.BLIND
    one._undecided_since = time.monotonic() - STALE_S
    with pytest.raises(RouteUnavailable, match="which topic of p to read is unknown"):
        one._not_begun(KafkaException(PASSING))
