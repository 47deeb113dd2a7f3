"""What speaks against deleting a source, seen on a real broker: who reads it, who wrote to it, which topic it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.beside import meanwhile
from tests.integration.real_world import RealWorld

from lab.airflow_api import wait_until
from lab.broker import EmbeddedBroker
from topicshift.acts.advance import Done
from topicshift.acts.retire import readers
from topicshift.acts.watch import watch
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import PreflightFailed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

RECORDS = 30


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks follow each other at once."""
    monkeypatch.setattr("topicshift.acts.retire.SAMPLE_S", 0.5)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    opened = KafkaAdmin(broker.config())
    yield opened
    opened.close()


@pytest.fixture
def source(broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]) -> str:
    """A topic of three partitions with records."""
    name = topic_name()
    admin.create_topic(name, 3, 1, {})
    write(broker, name, RECORDS)
    return name


def write(broker: EmbeddedBroker, topic: str, records: int) -> None:
    producer = Producer(broker.config())
    for n in range(records):
        producer.produce(topic, b"x", str(n))
    assert producer.flush(30) == 0


@contextmanager
def polling(consumer: Consumer) -> Iterator[None]:
    """Poll and commit in a thread for as long as the block runs."""

    def poll() -> None:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            consumer.commit(message, asynchronous=False)

    try:
        with meanwhile(poll):
            yield
    finally:
        consumer.close()


def test_every_kind_of_reader_shows_and_old_commits_do_not(
    broker: EmbeddedBroker, admin: KafkaAdmin, source: str
) -> None:
    def consumer(group: str, **more: str) -> Consumer:
        return Consumer(
            {**broker.config(), "group.id": f"{source}-{group}", "auto.offset.reset": "earliest", **more}
            | {"enable.auto.commit": "false"}
        )

    left = consumer("left")
    left.commit(offsets=[TopicPartition(source, 0, 1)], asynchronous=False)
    left.close()
    pattern, new, alone = consumer("pattern"), consumer("new", **{"group.protocol": "consumer"}), consumer("alone")
    pattern.subscribe([f"^{source[:-3]}.*"])
    new.subscribe([source])
    alone.assign([TopicPartition(source, p, 0) for p in range(3)])
    wanted = {f"{source}-{group}" for group in ("pattern", "new", "alone")}
    seen: tuple[list[str], list[str]] = ([], [])

    def all_show() -> bool:
        nonlocal seen
        seen = readers(admin, source, SystemClock())
        return wanted <= set(seen[0])

    feeding = meanwhile(lambda: write(broker, source, 3))
    with polling(pattern), polling(new), polling(alone), feeding:
        wait_until(all_show, 60, "every reader to show")
    who, unreadable = seen
    assert {g for g in who if g.startswith(source)} == wanted and not unreadable
    wait_until(lambda: not wanted & set(readers(admin, source, SystemClock())[0]), 60, "the readers to be gone")


def retiring(broker: EmbeddedBroker, admin: KafkaAdmin, source: str) -> RealWorld:
    """A migration of this source that is done, and due for its retirement."""
    made = RealWorld(broker, admin, source, retire={"after": "1s", "scream_test": "1s"})
    made.drain()
    made.advanced()
    admin.alter_topic_configs(source, set_={"retention.ms": "1000"})
    return made


def test_written_to_or_made_again_it_stays(broker: EmbeddedBroker, admin: KafkaAdmin, source: str) -> None:
    world = retiring(broker, admin, source)
    assert watch(world.context()) == []
    write(broker, source, 1)
    [stray] = watch(world.context())
    assert (stray.code, stray.blocks) == ("TS603", True) and source in stray.seen
    with pytest.raises(PreflightFailed, match="TS603"):
        world.advance(wanted="retire", patience_s=5)
    admin.delete_topic(source)
    admin.create_topic(source, 3, 1, {"retention.ms": "1000"})
    with pytest.raises(PreflightFailed, match="TS602"):
        world.advance(wanted="retire", patience_s=5)
    assert admin.topic(source) is not None
    world.close()


def test_the_source_that_was_migrated_is_deleted(broker: EmbeddedBroker, admin: KafkaAdmin, source: str) -> None:
    world = retiring(broker, admin, source)
    assert isinstance(world.advance(wanted="retire", patience_s=20), Done)
    assert admin.topic(source) is None and admin.topic(world.target) is not None
    assert world.journal.current(world.claim.migration_id).state == "retired"
    world.close()


def test_the_watch_names_commits_that_went_and_who_made_the_source_again(
    broker: EmbeddedBroker, admin: KafkaAdmin, source: str
) -> None:
    world = retiring(broker, admin, source)
    kafka = AdminClient(broker.config())
    for done in kafka.delete_consumer_groups([world.group]).values():
        done.result(30)
    world.until(lambda: [f.code for f in watch(world.context())] == ["TS611"], "the commits to be missed")
    assert isinstance(world.advance(wanted="retire", patience_s=20), Done), "the certificate counts, not the commits"
    assert watch(world.context()) == []
    admin.create_topic(source, 1, 1, {})
    producer = Producer({**broker.config(), "enable.idempotence": True})  # which has a producer id
    producer.produce(source, b"x", "1")
    assert producer.flush(30) == 0
    world.until(lambda: bool(admin.producers(source, [0])), "the producer id")
    [made] = admin.producers(source, [0])
    [back] = watch(world.context())
    assert (back.code, back.blocks) == ("TS614", True)
    assert f"Producer ids [{made.producer_id}]" in back.seen and "1 partition," in back.seen
    world.close()
