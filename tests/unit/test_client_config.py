"""What the route's clients take over from an application's config, how they name themselves, and whom they call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from topicshift.client import RoutedConsumer, RoutedProducer, RouteError, callbacks
from topicshift.client import follower as following
from topicshift.client.callbacks import Callbacks
from topicshift.client.follower import RouteFollower, instance_name, own_principal
from topicshift.client.given import Given
from topicshift.client.offsets import connection_config
from topicshift.client.producer import delivery_seconds
from topicshift.core.route.client import Identity, ProducerClient
from topicshift.core.route.records import Status

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers here, so nobody is waited for."""
    monkeypatch.setattr(following, "_REQUEST_S", 0.05)
    monkeypatch.setattr(following, "_LAST_S", 0.2)


def test_only_what_says_how_to_reach_the_brokers_is_taken_over() -> None:
    config = {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "checkout",
        "ssl.ca.location": "/ca.pem",
        "group.id": "ledger",
        "transactional.id": "t",
        "linger.ms": 50,
        "enable.idempotence": True,
        "auto.offset.reset": "latest",
    }
    assert connection_config(config) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "checkout",
        "ssl.ca.location": "/ca.pem",
    }
    assert own_principal(config) == "User:checkout"
    assert own_principal({"bootstrap.servers": "b:9092"}) is None


def test_every_instance_has_a_name_of_its_own() -> None:
    one, two = instance_name("checkout"), instance_name("checkout")
    assert one != two
    assert one.startswith("checkout.")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"transactional.id": "t"}, "transactions"),
        ({"delivery.report.only.error": True}, "never be acknowledged"),
        ({"default.topic.config": {"message.timeout.ms": 0}}, "beside the others"),
        *[
            ({name: value}, name)
            for name in ("delivery.timeout.ms", "message.timeout.ms")
            for value in (0, "0", -1, "30s", 1.5, True, None, "", float("inf"), 2_147_483_647, 600_001)
        ],
        ({"delivery.timeout.ms": 5000, "message.timeout.ms": 6000}, "two names"),
    ],
)
def test_what_a_route_producer_cannot_do_is_refused_at_once(config: dict[str, Any], word: str) -> None:
    with pytest.raises(RouteError, match=word):
        RoutedProducer({**NOWHERE, **config}, "payments", "checkout")


def test_a_bounded_delivery_time_out_is_taken_and_told() -> None:
    assert delivery_seconds({}) == 30
    assert delivery_seconds({"message.timeout.ms": "5000", "delivery.timeout.ms": 5000}) == 5
    producer = RoutedProducer({**NOWHERE, "delivery.timeout.ms": 5000}, "payments", "checkout")
    try:
        assert producer._client.timing.delivery_s == 5
    finally:
        producer.close(0)


def test_a_consumer_needs_its_group_and_a_session_with_an_end() -> None:
    with pytest.raises(RouteError, match="group"):
        RoutedConsumer(NOWHERE, "payments")
    with pytest.raises(RouteError, match=r"session\.timeout\.ms"):
        RoutedConsumer({**NOWHERE, "session.timeout.ms": "soon"}, "payments", "ledger")


# ------------------------------------------------------------------------------------------------ callbacks


def test_callbacks_run_in_order_in_one_thread_of_their_own_whatever_they_raise() -> None:
    calls, ran = Callbacks("c"), []

    def one(n: int) -> None:
        ran.append((n, threading.current_thread().name))
        if n == 1:
            raise ValueError("the application's own")

    for n in range(3):
        calls.submit(one, n)
    assert calls.wait(10)
    assert ran == [(n, "c") for n in range(3)]
    calls.close(10)
    assert not any(t.name == "c" for t in threading.enumerate())


def test_a_callback_that_blocks_holds_up_callbacks_only() -> None:
    calls, go, done = Callbacks("c"), threading.Event(), []
    calls.submit(go.wait)
    calls.submit(done.append, 1)
    assert not calls.wait(0.05) and not done
    go.set()
    assert calls.wait(10) and done == [1]
    calls.close(10)


def test_senders_wait_when_too_many_callbacks_do_but_not_the_callbacks_own_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callbacks, "MOST", 2)
    calls, go, inside = Callbacks("c"), threading.Event(), []
    calls.submit(lambda: (go.wait(), inside.append((calls.full, calls.wait(1)))))
    for _ in range(3):
        calls.submit(lambda: None)
    assert calls.full
    go.set()
    calls.close(10)
    assert inside == [(False, False)] and not calls.full


# ------------------------------------------------------------------------------------------------ the route's thread


def follower(turn: Any) -> tuple[RouteFollower, threading.Condition]:
    gate = threading.Condition()
    client = ProducerClient(Identity("p", "producer", "c", "c.1"))
    return RouteFollower(NOWHERE, client, gate, turn, dict), gate


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_says_so_and_a_fault_of_one_round_does_not_kill_it() -> None:
    turns = []

    def turn() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise KeyError("one bad round")
        raise SystemExit("the end")

    made, gate = follower(turn)
    made._confirm = lambda: None  # type: ignore[method-assign]
    made.start()
    with gate:
        assert gate.wait_for(lambda: made.dead, 20)
    assert len(turns) == 2 and "SystemExit" in made.dead
    made.stop()


def test_a_consumer_whose_route_thread_died_says_so() -> None:
    consumer = RoutedConsumer(NOWHERE, "payments", "ledger")
    consumer._follower.dead = "MemoryError: "
    with pytest.raises(RouteError, match="a release would be missed"):
        consumer.poll(0)
    consumer._follower.dead = ""
    consumer.close()


def polled(
    monkeypatch: pytest.MonkeyPatch, comes: list[Message], meanwhile: Callable[[RoutedConsumer], None]
) -> list[tuple[int | None, int | None]]:
    """Partition and offset of each record that a consumer hands out, where librdkafka hands out these.

    ``meanwhile`` is called with the consumer after the third one.
    """
    consumer = RoutedConsumer(NOWHERE, "payments", "ledger")
    real, given = consumer._consumer, []
    try:
        monkeypatch.setattr(consumer._client, "status", Status.RUNNING)
        monkeypatch.setattr(consumer, "_reconcile", lambda _deadline: None)
        monkeypatch.setattr(consumer._client, "reading", True)
        consumer._consumer = SimpleNamespace(poll=lambda _s: comes.pop(0) if comes else None)  # type: ignore[assignment]
        while comes:
            message = consumer.poll(0.01)
            if message is not None:
                given.append((message.partition(), message.offset()))
            if len(given) == 3:
                meanwhile(consumer)
    finally:
        consumer._consumer = real
        consumer.close()
    return given


def record(partition: int, offset: int, stamp: int = 100) -> Message:
    return Message("payments", partition, offset, b"k", b"v", timestamp=(1, stamp))


def test_records_that_librdkafka_gives_twice_are_processed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    comes = [record(2, 7), record(1, 7), record(2, 8), record(2, 7), record(2, 8), record(2, 9), record(1, 7)]
    assert polled(monkeypatch, comes, lambda _: None) == [(2, 7), (1, 7), (2, 8), (2, 9)]


def test_a_topic_that_was_made_again_has_other_records_at_the_same_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    comes = [record(2, 7), record(2, 8), record(2, 9), record(2, 7, 101), record(2, 8, 102)]
    assert polled(monkeypatch, comes, lambda _: None) == [(2, 7), (2, 8), (2, 9), (2, 7), (2, 8)]


def test_what_another_member_may_have_read_in_between_is_processed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    comes = [record(2, 7), record(1, 7), record(2, 8), record(2, 7), record(1, 7)]
    given = polled(monkeypatch, comes, lambda consumer: consumer._forget({("payments", 2)}))
    assert given == [(2, 7), (1, 7), (2, 8), (2, 7)]


def test_only_what_may_come_again_is_remembered() -> None:
    given = Given()
    assert not any(given.again(record(1, offset)) for offset in range(1_000))
    given.committed(("payments", 1), 500)
    assert not given.again(record(1, 499)) and given.again(record(1, 500))
    given.committed(("payments", 1), 1_000)
    assert given.again(record(1, 999)), "the position can be behind a commit"
    assert not given.again(record(1, 800))


def test_a_producer_whose_route_thread_died_takes_nothing_and_says_why() -> None:
    producer = RoutedProducer(NOWHERE, "payments", "checkout")
    try:
        with producer._gate:
            producer._follower.dead = "MemoryError: "
        with pytest.raises(RouteError, match="Nobody follows the route of payments in this process any more"):
            producer.produce("k", b"x")
    finally:
        producer._follower.dead = ""
        producer.close(0)


class FullOnce:
    """A queue that is full at the first try; while the sender waits, the route is pointed elsewhere."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile: Callable[[], None] | None = meanwhile
        self.took: list[str] = []

    def produce(self, topic: str, *_: object, **__: object) -> None:
        if self._meanwhile is None:
            self.took.append(topic)
            return
        self._meanwhile()
        self._meanwhile = None
        raise BufferError

    def poll(self, _: float) -> int:
        return 0


def test_a_record_that_waited_for_a_full_queue_is_admitted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    route = ["payments"]
    producer = RoutedProducer(NOWHERE, "payments", "checkout")
    queue, real = FullOnce(lambda: route.append("payments-v2")), producer._producer
    monkeypatch.setattr(producer._client, "admit", lambda _now: route[-1])
    monkeypatch.setattr(producer, "_producer", queue)
    try:
        assert producer.produce("k", "v") == "payments-v2"
        assert queue.took == ["payments-v2"]
        assert producer._inside == 0 and producer._undelivered == 1
    finally:
        monkeypatch.setattr(producer, "_producer", real)
        producer.close(0.1)


@pytest.mark.parametrize(
    ("names", "word"),
    [
        ({"topic": ""}, "topic is ''"),
        ({"topic": ".."}, "topic is '..'"),
        ({"topic": "a/b"}, "topic is 'a/b'"),
        ({"topic": None}, "topic is None"),
        ({"participant": "a\nb"}, "participant is"),
        ({"participant": "a" * 501}, "participant is"),
        ({"participant": 7}, "participant is '7'"),
        ({"instance": ""}, "instance is ''"),
        ({"instance": "a\x00"}, "instance is"),
        ({"principal": "User:\u2028"}, "principal is"),
    ],
)
@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_name_that_nobody_would_understand_is_refused_at_once(role: str, names: dict[str, Any], word: str) -> None:
    given = {"topic": "payments", "participant": "checkout", **names}
    with pytest.raises(RouteError) as told:
        if role == "producer":
            RoutedProducer(NOWHERE, **given)
        else:
            RoutedConsumer(NOWHERE, group="ledger", **given)
    assert word in str(told.value)
    assert not [t for t in threading.enumerate() if "checkout" in t.name]


def test_an_application_with_the_longest_name_has_instances_that_are_understood() -> None:
    with RoutedProducer(NOWHERE, "payments", "a" * 500) as producer:
        assert producer is not None


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_a_callback_that_would_end_the_process_ends_no_other_callback(end: type[BaseException]) -> None:
    calls, ran = Callbacks("t"), threading.Event()

    def ends() -> None:
        raise end

    calls.submit(ends)
    calls.submit(ran.set)
    assert calls.wait(5) and ran.is_set()
    calls.close(5)
