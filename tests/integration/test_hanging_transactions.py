"""Transactions before the freeze, on a real broker: waited for up to their time-out, aborted on a person's word."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from tests.integration.test_fence_real import Migration, WallClock, hang

from lab.broker import EmbeddedBroker
from topicshift.acts.approvals import record_approval
from topicshift.acts.transactions import abort_approved, open_transactions
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.fence import hanging
from topicshift.core.spec.model import Consumer, Producer, Spec
from topicshift_airflow.operators.transactions import SettleTransactions
from topicshift_airflow.runtime import Run
from topicshift_airflow.triggers.transactions import TransactionsTrigger

pytestmark = pytest.mark.broker

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


@pytest.fixture(scope="module")
def admin(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


@pytest.fixture
def migration(secure_broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]) -> Iterator[Migration]:
    made = Migration(secure_broker, admin, topic_name())
    yield made
    made.clean()


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


def run_of(migration: Migration, stack: ExitStack) -> Run:
    """A task's view of the migration, over the real cluster."""
    spec = Spec(
        source=migration.source,
        partitions=6,
        producers=[Producer(name="w")],
        consumers=[Consumer(name="c", group="g")],
        kafka_conn_id="kafka_of_test",
    )
    row = migration.journal.current(migration.claim.migration_id)
    evidence: Any = None
    run = Run("dag/run", migration.journal, evidence, WallClock(), row, migration.claim, stack)
    run.__dict__ |= {"spec": spec, "admin": migration.admin}
    return run


def test_a_killed_producers_transaction_is_waited_for_and_never_offered(
    migration: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_in_mid_transaction(migration, timeout_ms=1000)
    monkeypatch.setattr(SettleTransactions, "quiet_s", 0.0)
    operator = SettleTransactions(task_id="transactions")
    with ExitStack() as stack:
        run = run_of(migration, stack)
        with pytest.raises(TaskDeferred) as deferred:
            operator.question(run, {})
        assert not [e for e in migration.journal.events(migration.claim.migration_id) if e.kind == "asked"]
        trigger = deferred.value.trigger
        assert isinstance(trigger, TransactionsTrigger)
        assert trigger.deadline > time.time() + 5, "up to its time-out and the coordinator's interval"
        extra = {k: v for k, v in migration.broker.superuser_config().items() if isinstance(v, str)}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_OF_TEST", json.dumps({"conn_type": "kafka", "extra": extra}))
        assert asyncio.run(trigger.wait()) == {"status": "ended"}
        operator.waited = True
        assert operator.question(run, {}) is None
        assert operator.act(run, {}) == {"aborted": []}
    row = migration.admin.offsets(migration.source)[0]
    assert row.end_committed == row.end == 2, "the coordinator wrote the marker"


def test_a_hanging_one_is_offered_and_aborted_on_a_yes_to_exactly_it(
    migration: Migration, secure_broker: EmbeddedBroker
) -> None:
    hang(migration, secure_broker, partition=1)
    journal, claim, source = migration.journal, migration.claim, migration.source
    operator = SettleTransactions(task_id="transactions")

    def offsets() -> tuple[int | None, int | None]:
        row = migration.admin.offsets(source)[1]
        return row.end_committed, row.end

    with ExitStack() as stack:
        run = run_of(migration, stack)
        question = operator.question(run, {})
        assert question is not None
        assert "777000, epoch 0" in question.body
        operator._ask(run, question, {})
        # Without an answer nothing is done, and a yes to something else is no yes to this.
        assert operator.act(run, {}) == {"aborted": []}
        other = {**question.about, "abort": [k + "1" for k in question.about["abort"]]}
        record_approval(journal, claim, "transactions", other, actor="user:somebody", how="person")
        assert operator.act(run, {}) == {"aborted": []}
        said: list[str] = []
        clock = WallClock()
        for wrong in ({**question.about, "topic": "another"}, other):
            assert (
                abort_approved(migration.admin, journal, claim, clock, source, wrong, actor="x", progress=said.append)
                == []
            )
        assert offsets() == (0, 1)
        record_approval(journal, claim, "transactions", question.about, actor="user:somebody", how="person")
        assert operator.act(run, {}) == {"aborted": question.about["abort"]}
    assert offsets() == (2, 2)
    assert hanging.abortable(open_transactions(migration.admin, source, WallClock())) == []
    trail = [(e.kind, e.actor) for e in journal.events(claim.migration_id) if e.kind.startswith("transaction")]
    assert trail == [("transaction_abort_begun", "user:somebody"), ("transaction_aborted", "user:somebody")]
