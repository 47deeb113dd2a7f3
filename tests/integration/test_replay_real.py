"""Late records are replayed on a real broker: marked, all or none, and once, whatever became of an earlier try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from tests.integration.test_fence_again_real import late
from tests.integration.test_fence_real import Migration

from lab.broker import EmbeddedBroker
from topicshift.acts.advance import Asking, Done
from topicshift.acts.replay_order import order_replay, replay_prospect
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.kafka.replay import TRANSACTIONAL_ID, KafkaReplayer
from topicshift.core.drain.replay import HEADER, ReplayOrder, Wanted, mark_of_place
from topicshift.core.engine.words import Ask, Step
from topicshift.core.errors import Unreadable

pytestmark = pytest.mark.broker
WAIT_S = 20.0


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


@pytest.fixture
def replayer(secure_broker: EmbeddedBroker) -> Iterator[KafkaReplayer]:
    made = KafkaReplayer.from_config(secure_broker.superuser_config())
    yield made
    made.close()


class Topics:
    """A source with three late records, and a target with one record of the key of two of them."""

    def __init__(self, broker: EmbeddedBroker, admin: KafkaAdmin, name: str) -> None:
        self.broker, self.admin, self.source, self.target = broker, admin, name, f"{name}-v2"
        admin.create_topic(self.source, 2, 1, {})
        admin.create_topic(self.target, 4, 1, {})
        producer = Producer({**broker.superuser_config(), "linger.ms": 0})
        for value, key, at in ((b"a", b"k", 1000), (b"b", None, 2000), (b"c", b"k", 3000)):
            producer.produce(self.source, value, key, 1, timestamp=at, headers=[("seq", b"7")])
        producer.produce(self.target, b"early", b"k", 3, timestamp=500)
        producer.produce(self.target, b"later", b"k", 3, timestamp=2500)
        producer.produce(self.target, b"other", b"x", 0, timestamp=9000)
        assert producer.flush(WAIT_S) == 0

    def order(self, *offsets: int) -> ReplayOrder:
        since = {p: o.end or 0 for p, o in self.admin.offsets(self.target).items()}
        wanted = tuple(Wanted(1, o, 3 if o != 1 else 2) for o in offsets)
        return ReplayOrder(f"m-{self.source}", self.source, self.target, wanted, since)

    def end(self) -> int:
        return sum(o.end or 0 for o in self.admin.offsets(self.target).values())

    def replayed(self) -> list[Message]:
        """What a read_committed reader finds in the target with the header."""
        config = {**self.broker.superuser_config(), "group.id": "nobody", "isolation.level": "read_committed"}
        consumer = Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})
        found, ended = [], 0
        try:
            consumer.assign([TopicPartition(self.target, p, 0) for p in range(4)])
            while ended < 4:
                message = consumer.poll(WAIT_S)
                assert message is not None
                if message.error() is not None:
                    ended += 1
                elif any(name == HEADER for name, _ in message.headers() or ()):
                    found.append(message)
        finally:
            consumer.close()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))


@pytest.fixture
def topics(secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]) -> Topics:
    return Topics(secure_broker, admin, topic_name())


def test_a_record_keeps_everything_and_gets_the_header(topics: Topics, replayer: KafkaReplayer) -> None:
    made = replayer.replay(topics.order(0, 1, 2), timeout_s=WAIT_S)
    first, second, third = sorted(topics.replayed(), key=lambda m: m.value())
    assert (first.key(), first.value(), first.timestamp()[1], first.partition()) == (b"k", b"a", 1000, 3)
    assert (second.key(), second.partition()) == (None, 2)
    assert third.offset() == first.offset() + 1, "the records of a key keep their order"
    marks = [dict(m.headers()) for m in (first, second, third)]
    assert marks == [{"seq": b"7", HEADER: mark_of_place(topics.source, 1, o)} for o in range(3)]
    assert [(r.partition, r.offset, r.to_partition, r.to_offset) for r in made] == [
        (1, o, m.partition(), m.offset()) for o, m in enumerate((first, second, third))
    ]


def test_what_an_earlier_try_has_written_is_found_and_not_written_again(
    topics: Topics, replayer: KafkaReplayer
) -> None:
    order = topics.order(0, 2)
    first = replayer.replay(
        ReplayOrder(order.name, order.source, order.target, order.records[:1], order.since), timeout_s=WAIT_S
    )
    both = replayer.replay(order, timeout_s=WAIT_S)
    assert both[0] == first[0]
    end = topics.end()
    assert replayer.replay(order, timeout_s=WAIT_S) == both
    assert topics.end() == end
    assert [m.value() for m in topics.replayed()] == [b"a", b"c"]


def test_what_an_earlier_try_still_holds_back_never_appears(topics: Topics, replayer: KafkaReplayer) -> None:
    order = topics.order(0)
    asleep = Producer(
        {**topics.broker.superuser_config(), "transactional.id": f"{TRANSACTIONAL_ID}{order.name}", "linger.ms": 0}
    )
    asleep.init_transactions(WAIT_S)
    asleep.begin_transaction()
    mark = mark_of_place(topics.source, 1, 0)
    asleep.produce(topics.target, b"a", b"k", 3, headers=[(HEADER, mark)])
    assert asleep.flush(WAIT_S) == 0
    replayer.replay(order, timeout_s=WAIT_S)
    with pytest.raises(KafkaException):
        asleep.commit_transaction(WAIT_S)
    assert [m.value() for m in topics.replayed()] == [b"a"]


def test_a_record_that_has_expired_and_a_target_that_is_held_write_nothing(
    topics: Topics, replayer: KafkaReplayer, admin_of: Any
) -> None:
    end, order = topics.end(), topics.order(0, 2)
    other = Producer({**topics.broker.superuser_config(), "transactional.id": f"app-{topics.source}", "linger.ms": 0})
    other.init_transactions(WAIT_S)
    other.begin_transaction()
    other.produce(topics.target, b"open", b"o", 0)
    assert other.flush(WAIT_S) == 0
    with pytest.raises(Unreadable, match="a transaction is open"):
        replayer.replay(order, timeout_s=3.0)
    other.abort_transaction(WAIT_S)
    admin_of(topics.source, 1, 1)
    with pytest.raises(Unreadable, match=r"\[1\] (has no record at offset 0 any more|could not be read)"):
        replayer.replay(order, timeout_s=WAIT_S)
    assert topics.replayed() == []
    assert topics.end() == end + 2, "the other application's record, and its marker"


@pytest.fixture
def admin_of(secure_broker: EmbeddedBroker) -> Callable[[str, int, int], None]:
    """Delete the records of a partition before an offset."""
    from confluent_kafka.admin import AdminClient

    def delete(topic: str, partition: int, before: int) -> None:
        client = AdminClient(secure_broker.superuser_config())
        for future in client.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(WAIT_S)

    return delete


def test_keys_are_looked_up_from_their_time_on(topics: Topics, replayer: KafkaReplayer) -> None:
    seen = replayer.keys(topics.target, {b"k": 1000, b"x": 9001, b"none": 0}, timeout_s=WAIT_S)
    assert seen.keys() == {b"k"}
    assert (seen[b"k"].records, seen[b"k"].partitions) == (1, frozenset({3}))
    assert replayer.keys(topics.target, {b"k": None}, timeout_s=WAIT_S)[b"k"].records == 2
    assert replayer.keys(topics.target, {b"k": 99_000}, timeout_s=WAIT_S) == {}


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_migration_ends_with_its_late_record_replayed(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str], cutover: str
) -> None:
    name = topic_name()
    migration = Migration(secure_broker, admin, name, cutover=cutover)
    try:
        assert isinstance(migration.advance(until=Step.SWITCH_CONSUMERS, patience_s=60.0), Done)
        late(migration, b"order-7")
        asking = migration.advance(patience_s=60.0)
        assert isinstance(asking, Asking) and asking.ask is Ask.STRAYS
        producer = migration.producer(None)
        producer.produce(migration.target, b"newer", b"order-7", 2)
        assert producer.flush(WAIT_S) == 0
        said = replay_prospect(migration.context(), migration.record(), None).does[0]
        assert f"-> {migration.target}[2]; WARNING: {migration.target} has 1 later record(s)" in said
        order_replay(migration.context(), None, "it is a payment")
        assert isinstance(migration.advance(patience_s=60.0), Done)
        assert migration.journal.current(migration.claim.migration_id).state == "done"
        ends = migration.cluster.offsets(migration.target)
        assert (ends[2].end or 0) >= 2
        (told,) = migration.events("replayed")
        assert told["records"][0] == {"partition": 1, "offset": 0, "to_partition": 2, "to_offset": 1}
    finally:
        migration.clean()
