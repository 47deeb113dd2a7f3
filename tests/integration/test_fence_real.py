"""The fence against a real broker with its authorizer on: writers that go on, transactions, the exact inverse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lab.broker import EmbeddedBroker
from topicshift.acts.fence import fence, recheck, unfence
from topicshift.acts.target import create_target, delete_target
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import DrainTimedOut, FenceBroken, Unreadable
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl
from topicshift.ports import Claim, Participant, ParticipantState
from topicshift.testing.fake_journal import FakeJournal

pytestmark = pytest.mark.broker
WAIT_S = 15.0
QUICK = FenceSettings(settle_s=0.3, samples=2, poll_s=0.05, deadline_s=20.0)
SHORT = QUICK.model_copy(update={"deadline_s": 1.5})


class WallClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


class Migration:
    """A source with rights, a journal and a claim."""

    def __init__(self, broker: EmbeddedBroker, admin: KafkaAdmin, source: str) -> None:
        self.broker, self.admin, self.source = broker, admin, source
        self.journal = FakeJournal()
        self.claim: Claim = self.journal.claim(
            cluster_id="c",
            source=source,
            target=f"{source}-v2",
            owner="run",
            spec={},
            owner_alive=lambda _: True,
        )
        self.said: list[str] = []
        self.foreign = admin.acls()
        admin.create_topic(source, 3, 1, {})
        self.grants = [
            Acl("TOPIC", source, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW"),
            Acl("TOPIC", source, "PREFIXED", "User:legacy", "*", "ALL", "ALLOW"),
            Acl("TOPIC", source, "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
            Acl("CLUSTER", "kafka-cluster", "LITERAL", "User:checkout", "*", "IDEMPOTENT_WRITE", "ALLOW"),
        ]
        admin.create_acls(self.grants)
        until(lambda: set(self.grants) <= admin.acls(), "the grants show")

    def participants(self) -> list[ParticipantState]:
        return [ParticipantState(Participant("checkout", "producer", "route"), "stopped", self.source)]

    def fence(self, settings: FenceSettings = QUICK, exempt: str = "User:checkout") -> FenceRecord:
        return fence(
            self.admin,
            self.journal,
            self.claim,
            WallClock(),
            self.source,
            {exempt},
            settings,
            self.participants,
            self.said.append,
        )

    def unfence(self) -> tuple[Acl, ...]:
        return unfence(self.admin, self.journal, self.claim, self.source)

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

    def clean(self) -> None:
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
        while not self._stop.is_set():
            if not migration.write(producer, partition):
                self.acknowledged += 1
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
    before = migration.admin.acls()
    record = migration.fence()
    assert record.fence_offsets == {0: 3, 1: 2, 2: 0}
    assert [a.principal for a in record.acls_added] == ["User:legacy"]
    assert migration.admin.acls() == before | set(record.acls_added)
    assert migration.write(legacy, 0) == ["TOPIC_AUTHORIZATION_FAILED"]
    recheck(migration.admin, record)
    # The route's own producer is not denied: with a dead orchestrator its lease must end the freeze.
    assert migration.write(checkout, 1) == []
    assert migration.unfence() == tuple(record.acls_added)
    assert migration.admin.acls() == before
    # librdkafka keeps a refused topic in mind until its next metadata refresh; a new client asks at once.
    assert migration.write(migration.producer("legacy"), 0) == []


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
    with Writer(migration, producer, 2), pytest.raises(DrainTimedOut) as caught:
        migration.fence(SHORT)
    text = str(caught.value)
    assert f"{migration.source}[2] grew by " in text
    assert "/s" in text
    known = migration.admin.producers(migration.source, [2])
    if idempotent:
        assert f"producer id {known[0].producer_id}, epoch {known[0].producer_epoch}" in text
    else:
        assert not known
        assert "no idempotence" in text


def test_a_write_after_the_fence_is_named_at_the_recheck(migration: Migration) -> None:
    quiet, rogue = migration.producer("checkout"), migration.producer("checkout", **{"enable.idempotence": True})
    migration.write(quiet, 0, 5)
    migration.write(rogue, 1, 1)
    record = migration.fence()
    recheck(migration.admin, record)
    migration.write(rogue, 1, 4)
    (trace,) = migration.admin.producers(migration.source, [1])
    with pytest.raises(FenceBroken) as caught:
        recheck(migration.admin, record)
    assert f"{migration.source}[1] grew by 4" in str(caught.value)
    assert f"producer id {trace.producer_id}" in str(caught.value)
    assert f"{migration.source}[0]" not in str(caught.value)


def test_a_source_made_again_is_not_the_fenced_one(migration: Migration) -> None:
    record = migration.fence()
    migration.admin.delete_topic(migration.source)
    with pytest.raises(FenceBroken, match="does not exist any more"):
        recheck(migration.admin, record)
    migration.admin.create_topic(migration.source, 3, 1, {})
    with pytest.raises(FenceBroken, match="deleted and made again"):
        recheck(migration.admin, record)


def test_the_fence_waits_for_a_transaction_and_for_its_marker(migration: Migration) -> None:
    producer = migration.producer(None, **{"transactional.id": f"{migration.source}-tx"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    migration.write(producer, 0, 2)
    with pytest.raises(DrainTimedOut) as caught:
        migration.fence(SHORT)
    assert f"transactional id {migration.source}-tx" in str(caught.value)
    assert "Kafka ends it by itself in at most" in str(caught.value)
    timer = threading.Timer(0.4, lambda: producer.commit_transaction(WAIT_S))
    timer.start()
    record = migration.fence()
    timer.join()
    assert record.fence_offsets == {0: 3, 1: 0, 2: 0}
    recheck(migration.admin, record)


def test_a_hanging_transaction_is_explained_and_ends_on_a_persons_word(
    migration: Migration, secure_broker: EmbeddedBroker
) -> None:
    hang(migration, secure_broker, partition=1)
    (trace,) = migration.admin.producers(migration.source, [1])
    assert trace.txn_start_offset == 0
    assert migration.admin.transactions(migration.source) == []
    with pytest.raises(DrainTimedOut) as caught:
        migration.fence(SHORT.model_copy(update={"max_transaction_timeout_s": 60.0}))
    text = str(caught.value)
    assert f"open transaction on {migration.source}[1] (producer id {trace.producer_id}, epoch 0" in text
    assert "hangs" in text
    assert f"kafka-transactions.sh abort --topic {migration.source} --partition 1 --start-offset 0" in text
    row = migration.admin.offsets(migration.source)[1]
    assert (row.end_committed, row.end) == (0, 1)  # nothing was aborted by itself
    migration.admin.abort_transaction(migration.source, 1, trace.producer_id, trace.producer_epoch)
    assert migration.fence().offsets == {0: 0, 1: 2, 2: 0}


def hang(migration: Migration, broker: EmbeddedBroker, partition: int) -> None:
    """Append a transactional record behind the coordinator's back, as old clients and brokers could (KIP-890)."""
    from confluent_kafka.admin import ResourceType
    from kafka import KafkaAdminClient
    from kafka.protocol.producer import ProduceRequest
    from kafka.record.memory_records import MemoryRecordsBuilder
    from tests.integration.drain_cases.kit import set_config

    from topicshift.adapters.kafka.connection import kafka_python_config

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
    name = topic_name()
    with EmbeddedBroker() as broker, KafkaAdmin(broker.config(), timeout_s=2) as admin:
        admin.create_topic(name, 2, 1, {})
        journal = FakeJournal()
        claim = journal.claim(
            cluster_id="c", source=name, target=f"{name}-v2", owner="run", spec={}, owner_alive=lambda _: True
        )

        def run(settings: FenceSettings) -> FenceRecord:
            return fence(admin, journal, claim, WallClock(), name, (), settings, list, lambda _: None)

        record = run(QUICK)
        assert record.acls_added == []
        broker.kill()
        with pytest.raises(Unreadable):
            recheck(admin, record)
        with pytest.raises(Unreadable):
            run(SHORT)
        broker.restart()
        until(lambda: admin.offsets(name)[0].end == 0, "the broker answers again")
        assert run(QUICK) == record
        recheck(admin, record)


def test_the_target_is_made_with_the_rights_of_the_source(migration: Migration) -> None:
    from topicshift.core.plan.target import target_acls, target_configs

    admin, source = migration.admin, migration.source
    admin.alter_topic_configs(source, set_={"retention.ms": "7200000"})
    until(lambda: bool(admin.topic(source).configs["retention.ms"].set_here), "the config shows")  # type: ignore[union-attr]
    seen = admin.topic(source)
    assert seen is not None
    target = f"moved-{source}"
    acls = target_acls(admin.acls(), source, target).acls
    before = admin.acls()
    topic_id = create_target(
        admin,
        migration.journal,
        migration.claim,
        name=target,
        partitions=7,
        replication_factor=1,
        configs=target_configs(seen).configs,
        acls=acls,
    )
    made = admin.topic(target)
    assert made is not None
    assert (made.topic_id, made.partitions) == (topic_id, 7)
    assert {e.name: e.value for e in made.configs.values() if e.set_here} == {"retention.ms": "7200000"}
    until(lambda: admin.acls() - before == set(acls), "the rights show")
    assert {(a.principal, a.operation) for a in acls} == {
        ("User:checkout", "WRITE"),
        ("User:legacy", "ALL"),
        ("User:ledger", "READ"),
    }
    producer = migration.producer("checkout")
    producer.produce(target, "v")
    try:
        assert producer.flush(WAIT_S) == 0
    except KafkaException as exc:
        pytest.fail(str(exc))
    with pytest.raises(Exception, match="has held records"):
        delete_target(admin, migration.journal, migration.claim)
