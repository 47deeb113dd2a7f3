"""One contract, two clusters: what the steps rely on holds for the shipped fake and for a real broker alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from lab.broker import EmbeddedBroker
from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError, TopicshiftError
from topicshift.core.kafka.cluster import Acl, GroupMember
from topicshift.ports import ClusterAdmin
from topicshift.testing.fakes import FakeCluster

WAIT_S = 15.0


class OpenTransaction(Protocol):
    """A transaction that a test may end."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def produce(self, topic: str, partition: int) -> None: ...


class World(Protocol):
    """A cluster with applications that a test can move."""

    admin: ClusterAdmin

    def produce(self, topic: str, partition: int, records: int) -> None: ...
    def transaction(self, transactional_id: str, topic: str, partition: int, records: int) -> OpenTransaction: ...
    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None: ...
    def join(self, group: str, topic: str) -> Callable[[], None]: ...
    def delete_records(self, topic: str, partition: int, before: int) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.admin = self.fake = FakeCluster()
        self._producer = self.fake.new_producer_id()

    def produce(self, topic: str, partition: int, records: int) -> None:
        self.fake.produce(topic, partition, records, producer_id=self._producer)

    def transaction(self, transactional_id: str, topic: str, partition: int, records: int) -> OpenTransaction:
        t = self.fake.begin(transactional_id)
        t.produce(topic, partition, records)
        return t

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        self.fake.commit(group, topic, offsets)

    def join(self, group: str, topic: str) -> Callable[[], None]:
        partitions = tuple(self.fake.topic(topic).replicas)  # type: ignore[union-attr]
        self.fake.join(group, GroupMember("m-1", "reader", "127.0.0.1", None, {topic: partitions}, (topic,)))
        return lambda: self.fake.leave(group, "m-1")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.fake.delete_records(topic, partition, before)


class RealTransaction:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def produce(self, topic: str, partition: int) -> None:
        self._producer.produce(topic, "v", partition=partition)
        assert self._producer.flush(WAIT_S) == 0


class RealWorld:
    def __init__(self, config: dict[str, str]) -> None:
        from topicshift.adapters.kafka.admin import KafkaAdmin

        self._config = config
        self.admin: ClusterAdmin = KafkaAdmin(config)

    def produce(self, topic: str, partition: int, records: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._config, "enable.idempotence": True, "linger.ms": 0})
        for i in range(records):
            producer.produce(topic, f"v{i}", partition=partition)
        assert producer.flush(WAIT_S) == 0

    def transaction(self, transactional_id: str, topic: str, partition: int, records: int) -> OpenTransaction:
        from confluent_kafka import Producer

        producer = Producer({**self._config, "transactional.id": transactional_id, "linger.ms": 0})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for i in range(records):
            producer.produce(topic, f"v{i}", partition=partition)
        assert producer.flush(WAIT_S) == 0
        return RealTransaction(producer)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._config, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in offsets.items()], asynchronous=False)
        consumer.close()

    def join(self, group: str, topic: str) -> Callable[[], None]:
        from confluent_kafka import Consumer

        consumer = Consumer({**self._config, "group.id": group, "enable.auto.commit": False, "client.id": "reader"})
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the member has its assignment")
        return consumer.close

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        client = AdminClient(self._config)
        for future in client.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(WAIT_S)


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds, or fail saying what did not."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def real_world(request: pytest.FixtureRequest) -> Iterator[RealWorld]:
    world = RealWorld(request.getfixturevalue("secure_broker").superuser_config())
    yield world
    world.admin.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        return FakeWorld()
    found: World = request.getfixturevalue("real_world")
    return found


def error(act: Callable[[], object]) -> type[TopicshiftError]:
    with pytest.raises(TopicshiftError) as caught:
        act()
    return type(caught.value)


def test_a_topic_is_what_was_created(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    assert world.admin.topic(name) is None
    assert name not in world.admin.topic_names()
    topic_id = world.admin.create_topic(name, 3, 1, {"retention.ms": "7200000"})
    seen = world.admin.topic(name)
    assert seen is not None
    assert (seen.name, seen.topic_id, seen.partitions, seen.replication_factor) == (name, topic_id, 3, 1)
    assert len(topic_id) == 22
    assert not set(topic_id) & set("+/=")
    assert {e.name: e.value for e in seen.configs.values() if e.set_here} == {"retention.ms": "7200000"}
    assert not seen.configs["cleanup.policy"].set_here
    assert set(seen.leaders) == {0, 1, 2}
    assert None not in seen.leaders.values()
    assert seen.authorized is not None
    assert "WRITE" in seen.authorized
    assert name in world.admin.topic_names()
    assert error(lambda: world.admin.create_topic(name, 3, 1, {})) is Refused


def test_a_topic_made_again_has_another_id(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    first = world.admin.create_topic(name, 1, 1, {})
    world.admin.delete_topic(name)
    assert world.admin.topic(name) is None
    assert error(lambda: world.admin.delete_topic(name)) is NotFound
    assert world.admin.create_topic(name, 2, 1, {}) != first


def test_a_topic_is_deleted_by_its_id_and_no_other_of_its_name(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    first = world.admin.create_topic(name, 1, 1, {})
    world.admin.delete_topic(name, first)
    assert world.admin.topic(name) is None
    second = world.admin.create_topic(name, 1, 1, {})
    assert error(lambda: world.admin.delete_topic(name, first)) is NotFound
    seen = world.admin.topic(name)
    assert seen is not None and seen.topic_id == second
    world.admin.delete_topic(name, second)
    assert world.admin.topic(name) is None
    assert error(lambda: world.admin.delete_topic(name, second)) is NotFound


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_said(world: World, name: str) -> None:
    assert error(lambda: world.admin.topic(name)) is SpecError


def test_more_copies_than_brokers_are_refused(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    assert error(lambda: world.admin.create_topic(name, 1, 3, {})) is Refused
    assert world.admin.topic(name) is None


def test_configs_are_set_and_unset_one_by_one(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    world.admin.create_topic(name, 1, 1, {"retention.ms": "7200000", "cleanup.policy": "compact"})
    world.admin.alter_topic_configs(name, set_={"segment.ms": "60000"}, unset=["retention.ms"])

    def set_here() -> dict[str, str | None]:
        seen = world.admin.topic(name)
        assert seen is not None
        return {e.name: e.value for e in seen.configs.values() if e.set_here}

    until(lambda: set_here() == {"cleanup.policy": "compact", "segment.ms": "60000"}, "the configs show")
    world.admin.alter_topic_configs(name)
    assert set_here() == {"cleanup.policy": "compact", "segment.ms": "60000"}


def test_a_change_can_be_judged_without_being_made(world: World, topic_name: Callable[..., str]) -> None:
    """``test_policies_real.py`` does the same with a policy."""
    name = topic_name()
    world.admin.validate_create(name, 3, 1, {"retention.ms": "7200000"})
    assert world.admin.topic(name) is None
    assert error(lambda: world.admin.validate_create(name, 3, 1, {"retention.ms": "soon"})) is Refused
    assert error(lambda: world.admin.validate_create(name, 3, 2, {})) is Refused
    assert error(lambda: world.admin.validate_configs(name, {"retention.ms": "1"})) is NotFound
    world.admin.create_topic(name, 1, 1, {"retention.ms": "7200000"})
    assert error(lambda: world.admin.validate_create(name, 1, 1, {})) is Refused
    world.admin.validate_configs(name, {"retention.ms": "9000000"})
    assert error(lambda: world.admin.validate_configs(name, {"retention.ms": "soon"})) is Refused
    seen = world.admin.topic(name)
    assert seen is not None and seen.configs["retention.ms"].value == "7200000"


def test_acls_are_created_and_deleted_exactly(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    literal = Acl("TOPIC", name, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
    prefixed = Acl("TOPIC", name, "PREFIXED", "User:checkout", "*", "WRITE", "ALLOW")
    denied = Acl("TOPIC", name, "LITERAL", "User:checkout", "*", "WRITE", "DENY")
    others = [
        Acl("TOPIC", name, "LITERAL", "User:*", "10.0.0.1", "ALL", "ALLOW"),
        Acl("GROUP", name, "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
        Acl("TRANSACTIONAL_ID", name, "PREFIXED", "User:checkout", "*", "WRITE", "ALLOW"),
        Acl("CLUSTER", "kafka-cluster", "LITERAL", f"User:{name}", "*", "IDEMPOTENT_WRITE", "ALLOW"),
    ]
    before = world.admin.acls()
    world.admin.create_acls([literal, prefixed, denied, *others])
    world.admin.create_acls([literal])
    until(lambda: world.admin.acls() - before == {literal, prefixed, denied, *others}, "the bindings show")
    absent = Acl("TOPIC", name, "LITERAL", "User:nobody", "*", "READ", "ALLOW")
    world.admin.delete_acls([denied, absent])
    until(lambda: world.admin.acls() - before == {literal, prefixed, *others}, "one binding is gone, and only that")
    world.admin.delete_acls([literal, prefixed, *others])
    until(lambda: world.admin.acls() == before, "the bindings are as before")


def test_offsets_have_a_row_for_every_partition(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    assert error(lambda: world.admin.offsets(name)) is NotFound
    world.admin.create_topic(name, 3, 1, {})
    world.produce(name, 1, 5)
    world.delete_records(name, 1, 2)
    rows = world.admin.offsets(name)
    assert {p: (o.log_start, o.end_committed, o.end) for p, o in rows.items()} == {
        0: (0, 0, 0),
        1: (2, 5, 5),
        2: (0, 0, 0),
    }
    asked = world.admin.offsets(name, [1, 7])
    assert set(asked) == {1, 7}
    assert asked[7].end is None
    assert asked[7].error and not asked[7].passing
    ends = world.admin.offsets(name, ends_alone=True)
    assert {p: (o.log_start, o.end_committed, o.end, o.error) for p, o in ends.items()} == {
        p: (None, None, o.end, None) for p, o in rows.items()
    }
    assert world.admin.offsets(name, [7], ends_alone=True)[7].error
    gone = topic_name()
    assert error(lambda: world.admin.offsets(gone, ends_alone=True)) is NotFound


def test_a_transaction_shows_while_it_is_open(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    world.admin.create_topic(name, 2, 1, {})
    world.produce(name, 0, 1)
    open_ = world.transaction(f"{name}-tx", name, 1, 3)
    row = world.admin.offsets(name)[1]
    assert (row.end_committed, row.end) == (0, 3)
    (known,) = world.admin.transactions(name)
    assert (known.transactional_id, known.state, known.partitions) == (f"{name}-tx", "Ongoing", (1,))
    assert known.started_ms is not None
    assert known.timeout_ms == 60_000
    by_partition = {p.partition: p for p in world.admin.producers(name, [0, 1])}
    assert by_partition[0].txn_start_offset is None
    assert by_partition[0].last_sequence == 0
    assert by_partition[1].txn_start_offset == 0
    assert by_partition[1].last_sequence == 2
    assert by_partition[1].producer_id == known.producer_id
    open_.commit()
    until(lambda: world.admin.offsets(name)[1].end_committed == 4, "the commit marker shows in END_C")
    until(lambda: not world.admin.transactions(name), "no transaction shows any more")
    assert world.admin.offsets(name)[1].end == 4
    assert [p.txn_start_offset for p in world.admin.producers(name, [1])] == [None]


def test_a_transaction_names_what_else_it_writes_and_is_known_after_it(
    world: World, topic_name: Callable[..., str]
) -> None:
    name, other = topic_name(), topic_name()
    for each in (name, other):
        world.admin.create_topic(each, 1, 1, {})
    open_ = world.transaction(f"{name}-tx", name, 0, 1)
    open_.produce(other, 0)
    until(lambda: [t.beside for t in world.admin.transactions(name)] == [(other,)], "the other topic shows")
    (known,) = world.admin.transactions(other)
    assert known.beside == (name,)
    open_.commit()
    until(lambda: not world.admin.transactions(name), "no transaction shows any more")
    ids = {p.producer_id for p in world.admin.producers(name, [0])}
    assert world.admin.transactional_ids(ids) == {known.producer_id: f"{name}-tx"}
    assert world.admin.transactional_ids({known.producer_id + 1_000_000}) == {}
    assert world.admin.transactional_ids(set()) == {}


def test_what_else_a_group_has_read_is_told(world: World, topic_name: Callable[..., str]) -> None:
    name, other, group = topic_name(), topic_name(), topic_name("group")
    world.admin.create_topic(name, 2, 1, {})
    world.admin.create_topic(other, 3, 1, {})
    world.commit(group, name, {0: 0})
    assert world.admin.committed_topics([group]) == {group: frozenset({name})}
    world.commit(group, other, {2: 0})
    found = world.admin.committed_topics([group, f"{group}-none"])
    assert found == {group: frozenset({name, other}), f"{group}-none": frozenset()}
    counts = world.admin.partition_counts([name, other, f"{name}-none"])
    assert counts == {name: 2, other: 3, f"{name}-none": None}
    assert world.admin.partition_counts([]) == {} and world.admin.committed_topics([]) == {}


def test_aborting_ends_exactly_one_transaction(world: World, topic_name: Callable[..., str]) -> None:
    name = topic_name()
    world.admin.create_topic(name, 1, 1, {})
    open_ = world.transaction(f"{name}-tx", name, 0, 2)
    (producer,) = world.admin.producers(name, [0])
    stranger = producer.producer_id + 1_000_000
    assert error(lambda: world.admin.abort_transaction(name, 0, stranger, 0)) is Refused
    assert world.admin.offsets(name)[0].end_committed == 0
    world.admin.abort_transaction(name, 0, producer.producer_id, producer.producer_epoch)
    until(lambda: world.admin.offsets(name)[0].end_committed == 3, "the abort marker shows in END_C")
    again = error(lambda: world.admin.abort_transaction(name, 0, producer.producer_id, producer.producer_epoch))
    assert again is Refused
    open_.abort()


def test_commits_are_asked_by_partition(world: World, topic_name: Callable[..., str]) -> None:
    name, group = topic_name(), topic_name("group")
    world.admin.create_topic(name, 3, 1, {})
    world.produce(name, 0, 4)
    world.commit(group, name, {0: 4, 2: 0})
    found = world.admin.commits([group, f"{group}-none"], name, [0, 1, 2])
    assert dict(found[group].offsets) == {0: 4, 1: None, 2: 0}
    assert not found[group].errors
    assert not any(v is not None for v in found[f"{group}-none"].offsets.values())


def test_a_live_group_refuses_offsets_from_outside(world: World, topic_name: Callable[..., str]) -> None:
    name, group = topic_name(), topic_name("group")
    world.admin.create_topic(name, 2, 1, {})
    leave = world.join(group, name)
    info = world.admin.describe_groups([group])[group]
    assert (info.state, info.kind, info.assignor) == ("STABLE", "classic", "range")
    assert [dict(m.assignment) for m in info.members] == [{name: (0, 1)}]
    assert [m.topics for m in info.members] == [(name,)]
    assert error(lambda: world.admin.alter_commits(group, name, {0: 0, 1: 0})) is Refused
    leave()
    until(lambda: world.admin.describe_groups([group])[group].state == "EMPTY", "the group is empty")
    assert world.admin.describe_groups([group])[group].assignor is None
    world.admin.alter_commits(group, name, {0: 0, 1: 0})
    assert dict(world.admin.commits([group], name, [0, 1])[group].offsets) == {0: 0, 1: 0}
    assert group in {g.group for g in world.admin.groups()}


def test_a_group_that_is_not_there_is_dead(world: World, topic_name: Callable[..., str]) -> None:
    group = topic_name("group")
    assert world.admin.describe_groups([group])[group].state == "DEAD"
    assert group not in {g.group for g in world.admin.groups()}


def test_the_cluster_says_who_it_is(world: World) -> None:
    info = world.admin.cluster()
    assert info.cluster_id
    assert len(info.brokers) == 1
    assert info.authorizer is True
    assert info.auto_create is False
    assert info.authorized is not None
    assert {"CREATE", "ALTER", "DESCRIBE"} <= info.authorized
    assert info.offsets_retention_minutes == 10_080


@pytest.mark.broker
def test_a_refused_log_in_is_told_with_the_address(secure_broker: EmbeddedBroker) -> None:
    from topicshift.adapters.kafka.admin import KafkaAdmin

    config = {**secure_broker.superuser_config(), "sasl.password": "not-the-one"}
    with KafkaAdmin(config) as admin, pytest.raises(AccessDenied) as caught:
        admin.cluster()
    assert secure_broker.bootstrap in str(caught.value)
    assert "do not accept this log-in" in str(caught.value)
    assert "not-the-one" not in str(caught.value)


@pytest.mark.broker
def test_without_an_authorizer_there_are_no_acls_and_none_can_be_made(broker: EmbeddedBroker) -> None:
    from topicshift.adapters.kafka.admin import KafkaAdmin

    acl = Acl("TOPIC", "any", "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
    with KafkaAdmin(broker.config()) as real:
        for admin in (real, FakeCluster(authorizer=False)):
            assert admin.cluster().authorizer is False
            assert admin.acls() == frozenset()
            assert error(lambda admin=admin: admin.create_acls([acl])) is Refused
            assert error(lambda admin=admin: admin.delete_acls([acl])) is Refused
