"""A hanging transaction on the source, in a real Airflow: a person is asked, and their yes alone aborts it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.e2e.small import Run
from tests.integration.test_fence_real import hang

from lab.rights import allow, grant
from lab.stack import ORCHESTRATOR, Stack
from topicshift import cli
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.engine.words import Ask

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]
DAG, TASK = "topic_migration", "stop_producers.transactions"


class Source:
    """What ``hang`` wants to know."""

    source = "hanging-orders"


def test_a_person_is_asked_before_a_hanging_transaction_is_aborted(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, topic = stack.airflow, Source.source
    config = stack.broker.superuser_config()
    native = AdminClient(config)
    native.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({**config, "partitioner": "murmur2_random"})
    for n in range(40):
        producer.produce(topic, key=f"k{n}", value="v")
    assert producer.flush(30) == 0
    with KafkaAdmin(config) as admin:
        ends = {p: o.end or 0 for p, o in admin.offsets(topic).items()}
    read = [TopicPartition(topic, p, end) for p, end in ends.items()]
    commits = ConsumerGroupTopicPartitions("hanging-ledger", read)
    native.alter_consumer_group_offsets([commits])["hanging-ledger"].result(30)
    grant(config, allow("till", "TOPIC", topic, "WRITE", "DESCRIBE"))
    hang(Source(), stack.broker, partition=1)  # type: ignore[arg-type]
    spec: dict[str, Any] = {
        "source": topic,
        "partitions": 4,
        "approvals": {"plan": "auto", "freeze": "auto", "retire": "required"},
        "producers": [{"name": "till", "kind": "manual"}],
        "consumers": [{"name": "ledger", "kind": "manual", "stored_offsets": "none", "group": "hanging-ledger"}],
    }
    run = Run.start(api, DAG, spec)
    try:
        question = run.question(TASK)
        assert "777000, epoch 0" in question["body"]
        assert "nothing is aborted" in question["body"]
        with KafkaAdmin(stack.broker.config(ORCHESTRATOR)) as admin:
            row = admin.offsets(topic)[1]
            assert (row.end_committed, row.end) == (ends[1], ends[1] + 1)
            config_file = str(stack.properties_file(ORCHESTRATOR))
            monkeypatch.setenv("TOPICSHIFT_JOURNAL", stack.journal_url)
            monkeypatch.setenv("TOPICSHIFT_EVIDENCE", stack.evidence.as_uri())
            assert cli.run(["answer", topic, Ask.ABORT_TRANSACTIONS, "yes", "--kafka-config", config_file]) == 0
            run.wait_state(TASK, "success")
            row = admin.offsets(topic)[1]
            assert row.end_committed == row.end == ends[1] + 2
        assert "aborted on the word of os:" in run.log(TASK), "an answer from a terminal wakes the task"
    finally:
        api.set_run_state(DAG, run.run_id, "failed")
