"""The hands of a drain case on a real broker: topics, records, transactions, commits and live members."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from lab.broker import EmbeddedBroker
from lab.rights import grant
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.drain.evidence import ReaderEvidence
from topicshift.core.kafka.cluster import Acl

_count = itertools.count(1)
WAIT_S = 30.0


def set_config(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> None:
    """Set one dynamic config, and wait until it shows."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(kind, name, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([change]).values():
        future.result(30)

    def shows() -> bool:
        (asked,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        return bool(asked.result(30)[key].value == value)

    wait_for(f"{key}={value} of {name}", shows)


@dataclass
class Scenario:
    """What to ask: the topic, and how (see the options of ``topicshift drain``)."""

    topic: str
    groups: tuple[str, ...] = ()
    spec_groups: tuple[str, ...] | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    accept_lost: tuple[str, ...] = ()
    fence: Mapping[int, int] | None = None
    fence_topic_id: str | None = None
    fence_at: datetime | None = None
    evidence: tuple[ReaderEvidence, ...] = ()
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    keep_up: Callable[[], None] | None = None


@dataclass(frozen=True)
class Case:
    """One truth. ``rows``: (group, partition) -> (reason, records left); ``...`` for a count that is not stated.

    ``state`` and ``kind``: group -> what the certificate must say. ``topic_reasons``: entries that must be there.
    ``errors``: words of what the brokers said. ``secure``: needs the broker with an authorizer.
    """

    build: Callable[[Kit], Scenario]
    verdict: str
    exit_code: int
    rows: Mapping[tuple[str, int], tuple[str, Any]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    kind: Mapping[str, str] = field(default_factory=dict)
    topic_reasons: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    secure: bool = False
    name: str = ""
    truth: str = ""


def iter_cases() -> Iterator[Case]:
    """Every case of this folder, by name: one file a truth, with ``CASE`` and a docstring that states it."""
    package = importlib.import_module(__package__ or "tests.integration.drain_cases")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        if info.name in ("kit", "protocol"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        case: Case = module.CASE
        yield Case(**{**case.__dict__, "name": info.name, "truth": (module.__doc__ or "").strip()})


def wait_for(what: str, ready: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Poll a condition; fails with its name after the time-out."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = ready()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)


class Kit:
    """One scenario's hands. A context manager: consumers, producers and threads end with it."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.config = broker.superuser_config()
        self.admin = AdminClient({**self.config, "log_level": 0})
        self._plain: Producer | None = None
        self._exit = ExitStack()

    def __enter__(self) -> Kit:
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit.close()

    # ------------------------------------------------------------------------------------------------------ topics

    def name(self, stem: str = "c") -> str:
        """A name that no other scenario uses."""
        return f"{stem}-{next(_count)}-{secrets.token_hex(3)}"

    def topic(self, partitions: int = 1, name: str | None = None, **configs: Any) -> str:
        """Make a topic; configs with ``_`` for ``.``."""
        topic = name or self.name("t")
        settings = {k.replace("_", "."): str(v) for k, v in configs.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
        wait_for(f"leaders of {topic}", lambda: self._has_leaders(topic, partitions))
        return topic

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        try:
            found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(10)
        except KafkaException:
            return False
        return len(found.partitions) == partitions and all(p.leader is not None for p in found.partitions)

    def topic_id(self, topic: str) -> str:
        """Its id, as Kafka's own tools print it."""
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(10)
        return str(found.topic_id).replace("+", "-").replace("/", "_")

    def delete_topic(self, topic: str) -> None:
        """Delete it and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(30)
        wait_for(f"{topic} is gone", lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def add_partitions(self, topic: str, to: int) -> None:
        """An in-place increase."""
        self.admin.create_partitions([NewPartitions(topic, to)])[topic].result(30)
        wait_for(f"{topic} has {to} partitions", lambda: self._has_leaders(topic, to))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start, as retention does."""
        tp = TopicPartition(topic, partition, before)
        for future in self.admin.delete_records([tp]).values():
            future.result(30)

    def ends(self, topic: str, partitions: int = 1, *, committed: bool = False) -> dict[int, int]:
        """END_U (or END_C) of each partition."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        answers = self.admin.list_offsets(asked, isolation_level=level, request_timeout=10)
        return {tp.partition: f.result(12).offset for tp, f in answers.items()}

    def compacted(self) -> str:
        """A compacted topic of one partition that the cleaner takes up at once, and whose tombstones go at once."""
        self.quick_cleaner()
        return self.topic(
            cleanup_policy="compact",
            segment_ms=100,
            min_cleanable_dirty_ratio=0.001,
            delete_retention_ms=0,
            max_compaction_lag_ms=1000,
        )

    def quick_cleaner(self) -> None:
        """Let the log cleaner look for work five times a second (a dynamic config of the broker)."""
        set_config(self.admin, ResourceType.BROKER, "1", "log.cleaner.backoff.ms", "200")

    def roll(self, topic: str, *, aborted: bool = False) -> None:
        """Begin a new segment: by age, so with one more record (an aborted one, where nothing may be left)."""
        time.sleep(0.12)  # segment.ms is measured by the broker; there is nothing to wait on
        if aborted:
            self.transaction(topic, 1, end="abort")
        else:
            self.produce(topic, 1, key="roll")

    def cleaned(self, topic: str, *, up_to: int, left: int, nudge: bool = False) -> None:
        """Wait until so many records are left below an offset.

        ``nudge``: write one more aborted record now and then, which begins a segment: a tombstone goes only with a
        second cleaning, and the cleaner needs something new to come back for.
        """
        from confluent_kafka import Consumer

        nudged = time.monotonic()

        def read() -> bool:
            nonlocal nudged
            if nudge and time.monotonic() - nudged > 3:
                self.roll(topic, aborted=True)
                nudged = time.monotonic()
            consumer = Consumer({**self.config, "group.id": self.name("look"), "enable.partition.eof": True})
            consumer.assign([TopicPartition(topic, 0, 0)])
            seen = 0
            try:
                while True:
                    message = consumer.poll(5)
                    if message is None or message.error() is not None or message.offset() >= up_to:
                        return seen == left
                    seen += 1
            finally:
                consumer.close()

        wait_for(f"the cleaner has left {left} records of {topic}", read, 300)

    # ----------------------------------------------------------------------------------------------------- records

    def produce(self, topic: str, records: int = 1, partition: int = 0, key: str | None = None) -> None:
        """Plain records, acknowledged."""
        if self._plain is None:
            self._plain = Producer({**self.config, "linger.ms": 0, "enable.idempotence": True})
        for i in range(records):
            self._plain.produce(topic, key=key or f"k{i}", value=f"v{i}", partition=partition)
        assert self._plain.flush(30) == 0

    def tombstone(self, topic: str, key: str, partition: int = 0) -> None:
        """A record without a value."""
        producer = Producer({**self.config, "linger.ms": 0, "enable.idempotence": True})
        producer.produce(topic, key=key, value=None, partition=partition)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, records: int = 1, partition: int = 0, end: str = "commit") -> Producer:
        """A transaction with so many records; ``end`` is commit, abort or open. Waits until its marker is written."""
        producer = Producer({**self.config, "transactional.id": self.name("tx"), "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        for i in range(records):
            producer.produce(topic, key=f"x{i}", value=f"v{i}", partition=partition)
        producer.flush(30)
        if end == "open":
            self._exit.callback(self._abort, producer)
            return producer
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(30)
        self.settled(topic, partition)
        return producer

    @staticmethod
    def _abort(producer: Producer) -> None:
        try:
            producer.abort_transaction(10)
        except KafkaException:
            return

    def settled(self, topic: str, partition: int = 0) -> None:
        """Wait until no transaction is open on the partition: the marker may be written after the commit returns."""

        def same() -> bool:
            return (
                self.ends(topic, partition + 1, committed=True)[partition] == self.ends(topic, partition + 1)[partition]
            )

        wait_for(f"END_C = END_U of {topic}-{partition}", same)

    # ------------------------------------------------------------------------------------------------------ groups

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the offsets of a group without members."""
        tps = [TopicPartition(topic, p, o) for p, o in offsets.items()]
        found = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, tps)])[group].result(30)
        assert not [tp for tp in found.topic_partitions if tp.error]

    def delete_group(self, group: str) -> None:
        """Delete a group with its commits."""
        self.admin.delete_consumer_groups([group])[group].result(30)

    def consumer(self, group: str, topics: list[str], *, read: int = 0, **configs: Any) -> Consumer:
        """A live member, polled until it has partitions and so many records; it stays in the group, without polling."""
        settings = {k.replace("_", "."): v for k, v in configs.items()}
        consumer = Consumer(
            {
                **self.config,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **settings,
            }
        )
        self._exit.callback(self._close, consumer)
        consumer.subscribe(topics)
        got = 0
        deadline = time.monotonic() + WAIT_S
        while got < read or not consumer.assignment():
            message = consumer.poll(0.05)
            got += message is not None and message.error() is None
            assert time.monotonic() < deadline, f"{group}: {got} of {read} records, assignment {consumer.assignment()}"
        return consumer

    def share_consumer(
        self, group: str, topic: str, *, take: int, acknowledge: int, rest: str | None = "RELEASE"
    ) -> None:
        """A share consumer that is given ``take`` records, and acknowledges the first ``acknowledge`` of them.

        ``rest``: what it says of the others, RELEASE or REJECT; None keeps them without a word (they stay acquired).
        """
        from confluent_kafka import AcknowledgeType, ShareConsumer

        set_config(self.admin, ResourceType.GROUP, group, "share.auto.offset.reset", "earliest")
        consumer = ShareConsumer(
            {**self.config, "group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 0}
        )
        self._exit.callback(consumer.close)
        consumer.subscribe([topic])
        got = 0
        deadline = time.monotonic() + WAIT_S
        while got < take:
            for message in consumer.poll(0.2):
                if message.error() is None:
                    got += 1
                    if got <= acknowledge:
                        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                    elif rest is not None:
                        consumer.acknowledge(message, AcknowledgeType[rest])
            assert time.monotonic() < deadline, f"{group}: {got} of {take} records"
        consumer.commit_sync(30)

    def streams_member(self, group: str, topic: str, *, commits: Mapping[int, int]) -> None:
        """A member of a streams group that reads ``topic``, speaking the protocol itself (no Java), with commits."""
        from kafka import KafkaAdminClient
        from kafka.protocol.consumer import OffsetCommitRequest
        from tests.integration.drain_cases.protocol import StreamsGroupHeartbeatRequest as Beat

        client = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        self._exit.callback(client.close)
        sub = Beat.Topology.Subtopology(
            subtopology_id="0",
            source_topics=[topic],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        member, epoch = secrets.token_hex(8), 0

        def ask(request: Any) -> Any:
            async def go() -> Any:
                node = (await client._find_coordinator_ids([group]))[group]
                return await client._manager.send(request, node_id=node)

            return client._manager.run(go)

        def beat() -> bool:
            nonlocal epoch
            first = epoch == 0
            answer = ask(
                Beat(
                    group_id=group,
                    member_id=member,
                    member_epoch=epoch,
                    endpoint_information_epoch=0,
                    rebalance_timeout_ms=60_000,
                    topology=Beat.Topology(epoch=0, subtopologies=[sub]) if first else None,
                    active_tasks=[] if first else None,
                    standby_tasks=[] if first else None,
                    warmup_tasks=[] if first else None,
                    process_id="p" if first else None,
                    client_tags=[] if first else None,
                )
            )
            assert answer.error_code == 0, f"{answer.error_code}: {answer.error_message}"
            epoch = answer.member_epoch
            return bool(answer.active_tasks)  # None once they are known

        wait_for(f"{group} has tasks", beat)

        def stay(stop: threading.Event) -> None:
            while not stop.wait(2.0):
                beat()

        self.in_thread(stay)
        if commits:
            asked = OffsetCommitRequest.OffsetCommitRequestTopic
            part = asked.OffsetCommitRequestPartition
            answer = ask(
                OffsetCommitRequest(
                    group_id=group,
                    generation_id_or_member_epoch=epoch,
                    member_id=member,
                    topics=[
                        asked(
                            name=topic,
                            partitions=[
                                part(partition_index=p, committed_offset=o, committed_metadata="")
                                for p, o in commits.items()
                            ],
                        )
                    ],
                    max_version=9,
                )
            )
            assert not [p for t in answer.topics for p in t.partitions if p.error_code], answer

    @staticmethod
    def _close(consumer: Consumer) -> None:
        try:
            consumer.close()
        except (KafkaException, RuntimeError):
            return

    def in_thread(self, work: Callable[[threading.Event], None]) -> None:
        """Run something beside the case until it ends; it is given the event that ends it."""
        stop = threading.Event()
        thread = threading.Thread(target=work, args=(stop,), daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            thread.join(10)

        self._exit.callback(end)

    def allow(self, user: str, kind: str, name: str, *operations: str) -> None:
        """Give a user rights until the scenario ends. ``kind``: TOPIC, GROUP or BROKER (the cluster)."""
        resource = "CLUSTER" if kind == "BROKER" else kind
        rights = [Acl(resource, name, "LITERAL", f"User:{user}", "*", operation, "ALLOW") for operation in operations]
        grant(self.config, rights)

        def take_back() -> None:
            with KafkaAdmin(self.config) as admin:
                admin.delete_acls(rights)

        self.at_exit(take_back)

    def at_exit(self, what: Callable[[], None]) -> None:
        """Do this when the scenario ends."""
        self._exit.callback(what)

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The commit of a group on a partition, negative for none."""
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
        found = self.admin.list_consumer_group_offsets(asked, request_timeout=10)[group].result(12)
        return int(found.topic_partitions[0].offset)

    def state(self, group: str) -> str:
        """The group's state as the broker tells it, upper-case."""
        found = self.admin.describe_consumer_groups([group], request_timeout=10)[group].result(12)
        return str(found.state.name)


def now() -> datetime:
    """The time, UTC."""
    return datetime.now(UTC)
