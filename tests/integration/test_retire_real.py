"""What speaks against deleting a source, seen on a real broker: who reads it, who wrote to it, which topic it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.beside import meanwhile

from lab.airflow_api import wait_until
from lab.broker import EmbeddedBroker
from topicshift.acts.retire import delete_source, readers
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.errors import PreflightFailed
from topicshift.core.findings import Finding
from topicshift.core.proof.retirement import retirement_findings
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeJournal

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]

RECORDS = 30


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
        seen = readers(admin, source, SystemClock(), sample_s=0.5)
        return wanted <= set(seen[0])

    feeding = meanwhile(lambda: write(broker, source, 3))
    with polling(pattern), polling(new), polling(alone), feeding:
        wait_until(all_show, 60, "every reader to show")
    who, unreadable = seen
    assert {g for g in who if g.startswith(source)} == wanted and not unreadable
    wait_until(
        lambda: not wanted & set(readers(admin, source, SystemClock(), sample_s=0.5)[0]), 60, "the readers to be gone"
    )


def test_written_to_or_made_again_it_stays_and_else_it_goes(
    broker: EmbeddedBroker, admin: KafkaAdmin, source: str
) -> None:
    info = admin.topic(source)
    assert info is not None
    fence = {p: o.end or 0 for p, o in admin.offsets(source).items()}
    past = datetime(2026, 1, 1, tzinfo=UTC)

    def look(topic_id: str, fence_offsets: dict[int, int]) -> list[Finding]:
        return retirement_findings(
            source=source,
            info=admin.topic(source),
            expected_topic_id=topic_id,
            fence_offsets=fence_offsets,
            offsets=admin.offsets(source),
            readers=(),
            unreadable=(),
            due=past,
            now=past,
        )

    def delete(topic_id: str, fence_offsets: dict[int, int]) -> None:
        journal = FakeJournal(SystemClock())
        claim: Claim = journal.claim(
            cluster_id="c", source=source, target=f"{source}-v2", owner="run", spec={}, owner_alive=lambda _: True
        )
        delete_source(
            journal.current(claim.migration_id),
            topic_id=topic_id,
            admin=admin,
            journal=journal,
            claim=claim,
            clock=SystemClock(),
            look_again=lambda: look(topic_id, fence_offsets),
            unfence=lambda: None,
        )

    write(broker, source, 1)
    with pytest.raises(PreflightFailed, match="TS603"):
        delete(info.topic_id, fence)
    admin.delete_topic(source)
    wait_until(lambda: admin.topic(source) is None, 30, "the topic to be gone")
    again = admin.create_topic(source, 3, 1, {})
    with pytest.raises(PreflightFailed, match="TS602"):
        delete(info.topic_id, fence)
    assert admin.topic(source) is not None
    delete(again, {0: 0, 1: 0, 2: 0})
    wait_until(lambda: admin.topic(source) is None, 30, "the topic to be deleted")
