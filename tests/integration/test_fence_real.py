"""The fence against a real broker with its authorizer on: writers that go on, transactions, the exact inverse."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.real_world import RealWorld

from lab.broker import EmbeddedBroker
from topicshift.acts.advance import Done
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import FenceBroken, Refused, Transient
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl

pytestmark = pytest.mark.broker
WAIT_S = 15.0
SHORT_S = 1.5


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


class Migration(RealWorld):
    """A source with rights, and a migration of it whose target is made and whose verifier is ready."""

    def __init__(self, broker: EmbeddedBroker, admin: KafkaAdmin, source: str, **changes: Any) -> None:
        self.foreign = admin.acls() if broker.authorizer else frozenset()
        admin.create_topic(source, 3, 1, {})
        self.grants = [
            Acl("TOPIC", source, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW"),
            Acl("TOPIC", source, "PREFIXED", "User:legacy", "*", "ALL", "ALLOW"),
            Acl("TOPIC", source, "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
            Acl("CLUSTER", "kafka-cluster", "LITERAL", "User:checkout", "*", "IDEMPOTENT_WRITE", "ALLOW"),
        ]
        if broker.authorizer:
            admin.create_acls(self.grants)
        super().__init__(broker, admin, source, **changes)
        admin.alter_commits(self.group, source, dict.fromkeys(range(3), 0))  # a group that does not exist blocks a plan

    def fence(self, patience_s: float = 20.0) -> FenceRecord:
        """Go as far as the fence. Raises ``Transient`` with what it waits for after so many seconds."""
        if self.journal.step(self.claim.migration_id, "create_target") is None:
            self.drain()
            self.advanced(until=Step.CREATE_TARGET)
        self.look(patience_s)
        return self.context().fence_of(self.record())

    def look(self, patience_s: float = 0) -> None:
        """Look at what is fenced. Raises what the engine stops with, and ``Transient`` where it has to wait."""
        outcome = self.advance(until=Step.STOP_PRODUCERS, patience_s=patience_s)
        if not isinstance(outcome, Done):
            raise Transient(str(getattr(outcome, "why", outcome)))

    def producer(self, user: str | None, **settings: Any) -> Producer:
        config = {**self.broker.config(user), "linger.ms": 0, "delivery.timeout.ms": 10_000, "log_level": 0}
        return Producer({**config, **settings})

    def write(self, producer: Producer, partition: int, records: int = 1) -> list[str]:
        """Write records; returns the names of the errors, empty when all were acknowledged."""
        errors: list[str] = []

        def done(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(error.name())

        for i in range(records):
            producer.produce(self.source, f"v{i}", partition=partition, on_delivery=done)
        assert producer.flush(WAIT_S) == 0
        return errors

    @property
    def admin(self) -> KafkaAdmin:
        """The cluster."""
        found: KafkaAdmin = self.cluster
        return found

    def clean(self) -> None:
        """Everything of this migration goes."""
        self.close()
        if self.broker.authorizer:
            self.admin.delete_acls(self.admin.acls() - self.foreign)


@pytest.fixture
def migration(secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[Migration]:
    made = Migration(secure_broker, admin, topic_name())
    yield made
    made.clean()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.02)


class Writer:
    """An application that writes on and on in a thread of its own, until it is stopped."""

    def __init__(self, migration: Migration, producer: Producer, partition: int) -> None:
        self._stop = threading.Event()
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run, args=(migration, producer, partition), daemon=True)

    def _run(self, migration: Migration, producer: Producer, partition: int) -> None:
        with KafkaAdmin(migration.broker.superuser_config()) as own:
            while not self._stop.is_set():
                if not migration.write(producer, partition):
                    self.acknowledged += 1
                # Its group keeps up: one that falls behind would keep the gate before the freeze shut.
                own.alter_commits(migration.group, migration.source, {partition: self.acknowledged})
                self._stop.wait(0.01)

    def __enter__(self) -> Writer:
        self._thread.start()
        until(lambda: self.acknowledged > 0, "the writer writes")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)


def test_a_principal_is_denied_while_fenced_and_may_write_again_after(migration: Migration) -> None:
    legacy, checkout = migration.producer("legacy"), migration.producer("checkout")
    assert migration.write(legacy, 0, 3) == []
    assert migration.write(checkout, 1, 2) == []
    before = migration.acls()
    record = migration.fence()
    assert record.fence_offsets == {0: 3, 1: 2, 2: 0}
    assert [a.principal for a in record.acls_added] == ["User:legacy"]
    assert migration.acls() == before | set(record.acls_added)
    assert migration.write(legacy, 0) == ["TOPIC_AUTHORIZATION_FAILED"]
    migration.look()
    # The route's own producer is not denied: with a dead orchestrator its lease must end the freeze.
    assert migration.write(checkout, 1) == []
    migration.advanced(wanted="resume")
    assert migration.acls() == before
    # librdkafka keeps a refused topic in mind until its next metadata refresh; a new client asks at once.
    assert migration.write(migration.producer("legacy"), 0) == []


def test_after_the_switch_everybody_is_denied(migration: Migration) -> None:
    migration.write(migration.producer("checkout"), 0, 2)
    migration.fence()
    migration.drain()
    migration.advanced(until=Step.SWITCH_PRODUCERS)
    assert migration.write(migration.producer("checkout"), 0) == ["TOPIC_AUTHORIZATION_FAILED"]
    migration.advanced()
    assert migration.journal.current(migration.claim.migration_id).state == "done"


def test_a_reader_with_the_same_principal_goes_on_reading(migration: Migration) -> None:
    from confluent_kafka import Consumer, TopicPartition

    legacy = migration.producer("legacy")
    migration.write(legacy, 0, 3)
    migration.fence()
    consumer = Consumer({**migration.broker.config("legacy"), "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(migration.source, 0, 0)])
    read: list[bytes | None] = []
    refused: list[str] = []
    deadline = time.monotonic() + WAIT_S
    # A new client may first hear of a broker that is just being connected to, or that its group may not commit:
    # only a refusal of the topic counts.
    while len(read) < 3 and time.monotonic() < deadline:
        for message in consumer.consume(3, 1.0):
            error = message.error()
            if error is None:
                read.append(message.value())
            elif error.name() == "TOPIC_AUTHORIZATION_FAILED":
                refused.append(error.name())
    consumer.close()
    assert (read, refused) == ([b"v0", b"v1", b"v2"], [])


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_writer_that_no_deny_holds_is_caught_by_the_offsets(migration: Migration, idempotent: bool) -> None:
    producer = migration.producer("checkout", **{"enable.idempotence": idempotent})
    migration.advanced(until=Step.CREATE_TARGET)
    with Writer(migration, producer, 2), pytest.raises(Transient) as caught:
        migration.fence(SHORT_S)
    text = str(caught.value)
    assert f"{migration.source}[2] grew by " in text
    assert "/s" in text
    known = migration.admin.producers(migration.source, [2])
    if idempotent:
        assert f"producer id {known[0].producer_id}, epoch {known[0].producer_epoch}" in text
    else:
        assert not known
        assert "no idempotence" in text


def test_a_write_after_the_fence_is_named_and_ends_the_freeze(migration: Migration) -> None:
    quiet, rogue = migration.producer("checkout"), migration.producer("checkout", **{"enable.idempotence": True})
    migration.write(quiet, 0, 5)
    migration.write(rogue, 1, 1)
    before = migration.acls()
    migration.fence()
    migration.look()
    migration.write(rogue, 1, 4)
    (trace,) = migration.admin.producers(migration.source, [1])
    with pytest.raises(FenceBroken) as caught:
        migration.look(10)
    assert f"{migration.source}[1] grew by 4" in str(caught.value)
    assert f"producer id {trace.producer_id}" in str(caught.value)
    assert f"{migration.source}[0]" not in str(caught.value)
    assert migration.acls() == before and migration.where() == {(migration.source, True)}


@pytest.mark.parametrize("how", ["gone", "made again"])
def test_a_source_made_again_is_not_the_fenced_one(migration: Migration, how: str) -> None:
    migration.fence()
    migration.admin.delete_topic(migration.source)
    if how == "made again":
        migration.admin.create_topic(migration.source, 3, 1, {})
    with pytest.raises(FenceBroken, match="does not exist any more" if how == "gone" else "deleted and made again"):
        migration.look(5)


def test_the_fence_waits_for_a_transaction_and_for_its_marker(migration: Migration) -> None:
    producer = migration.producer(None, **{"transactional.id": f"{migration.source}-tx"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    migration.write(producer, 0, 2)
    with pytest.raises(Transient) as caught:
        migration.fence(SHORT_S)
    assert f"transactional id {migration.source}-tx" in str(caught.value)
    assert "Kafka ends it by itself in at most" in str(caught.value)
    timer = threading.Timer(0.4, lambda: producer.commit_transaction(WAIT_S))
    timer.start()
    record = migration.fence()
    timer.join()
    assert record.fence_offsets == {0: 3, 1: 0, 2: 0}
    migration.look()


def test_a_transaction_of_a_killed_producer_is_waited_for_and_never_offered(migration: Migration) -> None:
    migration.advanced(until=Step.CREATE_TARGET)
    kill_in_mid_transaction(migration, timeout_ms=1000)
    record = migration.fence(60)
    assert record.fence_offsets[0] == 2, "the coordinator wrote the marker"
    assert [e["act"] for e in migration.events("asked") if e["act"] == Ask.ABORT_TRANSACTIONS] == []


def test_a_hanging_transaction_is_explained_and_ends_on_a_yes_to_exactly_it(
    migration: Migration, secure_broker: EmbeddedBroker
) -> None:
    migration.advanced(until=Step.CREATE_TARGET)
    hang(migration, secure_broker, partition=1)
    (trace,) = migration.admin.producers(migration.source, [1])
    assert trace.txn_start_offset == 0
    assert migration.admin.transactions(migration.source) == []
    asking = migration.asks()
    (key,) = asking.about["abort"]
    assert (asking.ask, key.split(":")[:2]) == (Ask.ABORT_TRANSACTIONS, ["1", str(trace.producer_id)])
    migration.show(asking)
    with pytest.raises(Refused, match="counts for nothing"):
        migration.answer_late(replace(asking, about={**asking.about, "abort": [key + "1"]}))
    row = migration.admin.offsets(migration.source)[1]
    assert (row.end_committed, row.end) == (0, 1)  # nothing was aborted by itself
    migration.answer_late(asking, actor="user:somebody")
    migration.drain()
    assert migration.fence().fence_offsets == {0: 0, 1: 2, 2: 0}
    trail = [(e.kind, e.actor) for e in migration.journal.events(migration.claim.migration_id)]
    told = [e for e in trail if e[0].startswith("transaction")]
    assert told == [("transaction_abort_begun", "user:somebody"), ("transaction_aborted", "user:somebody")]


KILLED = """
import json, sys, time
from confluent_kafka import Producer
config, topic = json.loads(sys.stdin.readline())
producer = Producer(config)
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(topic, key="k", value="v", partition=0)
producer.flush(30)
print("open", flush=True)
time.sleep(600)
"""


def kill_in_mid_transaction(migration: Migration, timeout_ms: int) -> None:
    """A producer of its own process that is killed with a transaction open."""
    config = {**migration.broker.superuser_config(), "transactional.id": f"{migration.source}-tx", "log_level": 0}
    config |= {"transaction.timeout.ms": timeout_ms, "linger.ms": 0}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", KILLED], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps([config, migration.source]) + "\n")
        child.stdin.flush()
        said = child.stdout.readline()
        child.kill()
    assert said == "open\n"


def hang(migration: Migration, broker: EmbeddedBroker, partition: int) -> None:
    """Append a transactional record behind the coordinator's back, as old clients and brokers could (KIP-890)."""
    from confluent_kafka.admin import ResourceType
    from kafka import KafkaAdminClient
    from kafka.protocol.producer import ProduceRequest
    from kafka.record.memory_records import MemoryRecordsBuilder
    from tests.integration.drain_cases.kit import set_config

    from topicshift.adapters.kafka.python_client import kafka_python_config

    native = AdminClient(broker.superuser_config())

    def verify(on: bool) -> None:
        key = "transaction.partition.verification.enable"
        set_config(native, ResourceType.BROKER, "1", key, str(on).lower())

    verify(False)
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    batch = MemoryRecordsBuilder(
        2, 0, 10_000, transactional=True, producer_id=777_000, producer_epoch=0, base_sequence=0
    )
    batch.append(an_hour_ago, b"k", b"v", [])
    batch.close()
    data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=f"{migration.source}-lost",
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            data(
                name=migration.source,
                partition_data=[data.PartitionProduceData(index=partition, records=batch.buffer())],
            )
        ],
        max_version=11,
    )
    client = KafkaAdminClient(**kafka_python_config(broker.superuser_config()))

    async def send() -> Any:
        return await client._manager.send(request, node_id=1)

    def accepted() -> bool:
        answer = client._manager.run(send)
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    try:
        until(accepted, "the broker takes the record without asking the coordinator")
    finally:
        client.close()
        verify(True)


def test_a_broker_that_is_gone_is_unknown_and_never_fenced(topic_name: Callable[..., str]) -> None:
    with EmbeddedBroker() as broker, KafkaAdmin(broker.config(), timeout_s=2) as admin:
        migration = Migration(broker, admin, topic_name())
        record = migration.fence()
        assert record.acls_added == []
        broker.kill()
        with pytest.raises(Transient, match="cannot be"):
            migration.look()
        broker.restart()
        until(lambda: admin.offsets(migration.source)[0].end == 0, "the broker answers again")
        assert migration.fence() == record
        migration.close()


def test_the_target_is_made_with_the_rights_of_the_source(
    secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> None:
    source = topic_name()
    migration = Migration(secure_broker, admin, source, target=f"moved-{source}", partitions=7)
    admin.alter_topic_configs(source, set_={"retention.ms": "7200000"})
    before = admin.acls()
    migration.drain()
    migration.advanced(until=Step.CREATE_TARGET)
    made = admin.topic(migration.target)
    assert made is not None
    assert (made.topic_id, made.partitions) == (migration.data(Row.CREATE_TARGET)["topic_id"], 7)
    assert {e.name: e.value for e in made.configs.values() if e.set_here} == {"retention.ms": "7200000"}
    assert {(a.principal, a.operation) for a in admin.acls() - before} == {
        ("User:checkout", "WRITE"),
        ("User:legacy", "ALL"),
        ("User:ledger", "READ"),
    }
    producer = migration.producer("checkout")
    producer.produce(migration.target, "v")
    assert producer.flush(WAIT_S) == 0
    with pytest.raises(Refused, match="no way back"):
        migration.advanced(wanted="rollback")
    migration.clean()
