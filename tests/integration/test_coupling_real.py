"""What a real broker tells of coupled topics and of Kafka Streams, and what the plan says of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.test_plan_broker import NO_IMPACT, plan_of, wanted

from lab.broker import EmbeddedBroker
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.findings import Finding

pytestmark = pytest.mark.broker

WAIT_S = 20.0


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


@pytest.fixture
def topic(admin: KafkaAdmin, topic_name: Callable[..., str]) -> Callable[..., str]:
    def make(partitions: int = 3, name: str = "") -> str:
        made = name or topic_name()
        admin.create_topic(made, partitions, 1, {})
        return made

    return make


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {WAIT_S:g} s: {what}"
        time.sleep(0.05)


def found(admin: KafkaAdmin, source: str, group: str, code: str, **changes: Any) -> list[Finding]:
    """The findings of one code in a plan; a consumer that stores no offsets, so that nothing else blocks."""
    consumers = [{"name": "ledger", "group": group, "stored_offsets": "none"}]
    plan = plan_of(wanted(source, group, **{"consumers": consumers, **changes}), admin, no_impact=NO_IMPACT)
    assert plan.ok is (not plan.blocking())
    assert not [f for f in plan.blocking() if f.code not in ("TS302", "TS304", code)], str(plan)
    return [f for f in plan.findings if f.code == code]


@contextmanager
def reading(broker: EmbeddedBroker, group: str, *topics: str, members: int = 1, **config: Any) -> Iterator[list[Any]]:
    """Members of a group, each with its assignment."""
    from confluent_kafka import Consumer

    base = {**broker.config(), "group.id": group, "enable.auto.commit": False, **config}
    made = [Consumer(base) for _ in range(members)]

    def settled() -> bool:
        polled = [c.poll(0.1) for c in made]
        return len(polled) == members and all(c.assignment() for c in made)

    try:
        for consumer in made:
            consumer.subscribe(list(topics))
        until(settled, "every member has its assignment")
        yield made
    finally:
        for consumer in made:
            consumer.close()


def test_a_transaction_over_two_topics_blocks_by_name_until_it_is_acknowledged(
    broker: EmbeddedBroker, admin: KafkaAdmin, topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    from confluent_kafka import Producer, TopicPartition

    source, fees, group = topic(), topic(5), topic_name("g")
    admin.alter_commits(group, source, dict.fromkeys(range(3), 0))
    with reading(broker, f"{group}-in", fees) as (consumer,):
        producer = Producer({**broker.config(), "transactional.id": f"{source}-tx"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for name in (source, fees):
            producer.produce(name, "v", partition=0)
        assert producer.flush(WAIT_S) == 0
        (only,) = found(admin, source, group, "TS327")
        assert (only.level.value, only.subject) == ("error", f"topic {fees}")
        assert f"{source}-tx" in only.seen
        producer.send_offsets_to_transaction([TopicPartition(fees, 0, 0)], consumer.consumer_group_metadata(), WAIT_S)
        known = found(admin, source, group, "TS327", coupled=[{"topic": fees, "reason": "read one by one"}])
        assert [f.level.value for f in known] == ["info", "info"], known
        assert "commits offsets of a group" in known[0].seen + known[1].seen
        producer.commit_transaction(WAIT_S)
    until(lambda: not admin.transactions(source), "the transaction has ended")
    (after,) = found(admin, source, group, "TS327")
    assert after.level.value == "warning" and f"{source}-tx, and none of these was open" in after.seen


def test_a_group_that_reads_two_topics_is_asked_where_it_could_join_them(
    broker: EmbeddedBroker, admin: KafkaAdmin, topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    source, refunds, logs, group = topic(), topic(3), topic(4), topic_name("g")
    with reading(broker, group, source, refunds, logs, members=2):
        (only,) = found(admin, source, group, "TS327")
        assert only.blocks and f"reads {refunds} too, with 3 partitions" in only.seen, "range shares both out alike"
        (known,) = found(admin, source, group, "TS327", coupled=[{"group": group, "reason": "it joins none"}])
        assert known.level.value == "info"
    # Nobody is in it any more: what it has committed tells.
    until(lambda: admin.describe_groups([group])[group].state == "EMPTY", "its members have left")
    admin.alter_commits(group, source, {0: 0})
    assert found(admin, source, group, "TS327") == []
    admin.alter_commits(group, refunds, {0: 0})
    assert [f.blocks for f in found(admin, source, group, "TS327")] == [True]


def test_a_group_that_shares_two_topics_out_otherwise_cannot_join_them(
    broker: EmbeddedBroker, admin: KafkaAdmin, topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    source, refunds, group = topic(), topic(3), topic_name("g")
    how = {"partition.assignment.strategy": "roundrobin"}
    with reading(broker, group, source, refunds, members=2, **how):
        assert admin.describe_groups([group])[group].assignor == "roundrobin"
        assert found(admin, source, group, "TS327") == []


def test_kafka_streams_is_told_by_its_topics_and_by_its_members(
    broker: EmbeddedBroker, admin: KafkaAdmin, topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    source, group = topic(), topic_name("g")
    admin.alter_commits(group, source, {0: 0})
    assert found(admin, source, group, "TS326") == []
    store = topic(3, f"{group}-sums-changelog")
    topic(3, f"{group}-sums-repartition")
    (stopped,) = found(admin, source, group, "TS326")
    assert stopped.blocks and f"{store} and 1 more" in stopped.seen
    assert f"--application-id {group} --input-topics {source}-v2 --dry-run" in stopped.do
    with reading(broker, group, source):
        assert found(admin, source, group, "TS326") == [], "its assignor says that it is none"
    other = topic_name("g")
    with reading(broker, other, source, **{"client.id": "sums-0c1d-StreamThread-1-consumer"}):
        both = found(admin, source, other, "TS326", ignore_groups=[{"group": group, "reason": "of this test"}])
        assert [(f.subject, f.blocks) for f in both] == [("consumers[0].group", True), ("ignore_groups[0]", False)]
        assert "sums-0c1d-StreamThread-1-consumer is a thread of Kafka Streams" in both[0].seen
