"""Small topics on the stack's cluster, written and read by hand or by applications; a person's answers to a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from tests.beside import meanwhile
from tests.unit.test_notifiers import Hook

from lab.airflow_api import AirflowApi, wait_until
from lab.demo import ANSWER_AFTER_S
from lab.load_life import App, Life
from lab.rights import consumer_rights, grant, producer_rights
from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.proof import audit

KEYS = 10

PATIENCE_S = 1200.0
"""What a step may take on a machine that has other things to do."""


@dataclass
class Topic:
    """A topic with keyed records whose header ``seq`` counts those of a key, written and read by this test alone."""

    stack: Stack
    name: str
    group: str
    partitions: int = 3
    _seqs: dict[str, int] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Where its migration goes."""
        return f"{self.name}-v2"

    def make(self, records: int = 60) -> Topic:
        """Create it with its ACLs, write records and let the group read them all."""
        config = self.stack.broker.superuser_config()
        grant(config, [*producer_rights("checkout", self.name), *consumer_rights("ledger", self.name, self.group)])
        with self.admin() as admin:
            admin.create_topic(self.name, self.partitions, 1, {})
        self.write(self.name, records)
        self.read(self.name, records)
        return self

    @contextmanager
    def admin(self) -> Iterator[KafkaAdmin]:
        """The cluster, as a superuser."""
        admin = KafkaAdmin(self.stack.broker.superuser_config())
        try:
            yield admin
        finally:
            admin.close()

    def write(self, topic: str, records: int, *, user: str = "checkout") -> None:
        """Write records and wait until all are acknowledged. Raises ``RuntimeError`` where the broker refuses one."""
        failed: list[str] = []
        producer = Producer(
            {**self.stack.broker.config(user), "partitioner": "murmur2_random", "message.timeout.ms": 20_000}
        )
        for n in range(records):
            key = f"key-{n % KEYS}"
            seq = self._seqs.get(key, 0)
            self._seqs[key] = seq + 1
            producer.produce(
                topic,
                b"x",
                key,
                headers=[("seq", str(seq))],
                on_delivery=lambda error, _: failed.append(error.str()) if error else None,
            )
        if producer.flush(30) or failed:
            raise RuntimeError(f"not every record was written to {topic}: {failed[:3]}")

    def read(self, topic: str, records: int) -> None:
        """Read so many records as the group, commit and leave."""
        with self.reading(topic) as seen:
            wait_until(lambda: len(seen) >= records, 60, f"{self.group} to read {records} records of {topic}")

    @contextmanager
    def reading(
        self, topic: str, *, group: str | None = None, user: str = "ledger", pause_s: float = 0.0
    ) -> Iterator[list[Any]]:
        """A consumer in the group, in a thread of its own, for as long as the block runs; gives what it has read.

        ``pause_s``: seconds that it takes for a record.
        """
        consumer = Consumer(
            {
                **self.stack.broker.config(user),
                "group.id": group or self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        seen: list[Any] = []

        def poll() -> None:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.append(message)
                consumer.commit(message, asynchronous=False)
                time.sleep(pause_s)

        try:
            with meanwhile(poll):
                yield seen
        finally:
            consumer.close()

    @contextmanager
    def writing(self, *, user: str) -> Iterator[None]:
        """Somebody who goes on writing to the source for as long as the block runs."""

        def write() -> None:
            with suppress(RuntimeError):
                self.write(self.name, 1, user=user)

        with meanwhile(write, pause_s=0.1):
            yield

    def values(self, **more: Any) -> dict[str, Any]:
        """The form's values for a migration that a person moves by hand, and approves only where ``more`` says so."""
        return {
            "source": self.name,
            "target": self.target,
            "partitions": 6,
            "freeze_budget": "60s",
            "approvals_plan": "auto",
            "approvals_freeze": "auto",
            "producers": [{"name": "checkout", "kind": "manual"}],
            "consumers": [{"name": "ledger", "kind": "manual", "stored_offsets": "none", "group": self.group}],
            "ordering_sequence_header": "seq",
            **more,
        }


class Run:
    """One DAG run as a person follows it."""

    def __init__(self, api: AirflowApi, dag_id: str, run_id: str) -> None:
        self.api = api
        self.dag_id = dag_id
        self.run_id = run_id

    @classmethod
    def start(cls, api: AirflowApi, dag_id: str, values: dict[str, Any]) -> Run:
        """Trigger it."""
        return cls(api, dag_id, api.trigger(dag_id, values))

    def states(self) -> dict[str, str | None]:
        """State by task."""
        return self.api.task_states(self.dag_id, self.run_id)

    def log(self, task_id: str, *, map_index: int = -1) -> str:
        """The log of the last try of a task."""
        for task in self.api.task_instances(self.dag_id, self.run_id):
            if task["task_id"] == task_id and task["map_index"] == map_index:
                return self.api.task_log(
                    self.dag_id, self.run_id, task_id, max(1, task["try_number"]), map_index=map_index
                )
        raise KeyError(task_id)

    def tries(self, task_id: str) -> int:
        """How often a task was tried."""
        tasks = self.api.task_instances(self.dag_id, self.run_id)
        return next(int(task["try_number"]) for task in tasks if task["task_id"] == task_id)

    def wait(self, state: str, timeout: float = PATIENCE_S) -> Run:
        """Wait until it has ended, in this state; else the failed tasks' logs are shown."""
        run = self.api.wait_run(self.dag_id, self.run_id, timeout=timeout)
        assert run["state"] == state, f"{run['state']}: {self.states()}\n{self.failures()}"
        return self

    def wait_state(self, task_id: str, *wanted: str, timeout: float = PATIENCE_S) -> str:
        """Wait until a task is in one of these states, and return it."""
        seen: list[str | None] = [None]

        def there() -> bool:
            seen[0] = self.states().get(task_id)
            if seen[0] in ("failed", "upstream_failed") and seen[0] not in wanted:
                raise AssertionError(f"{task_id} is {seen[0]}\n{self.failures()}")
            return seen[0] in wanted

        wait_until(there, timeout, f"{task_id} to be {' or '.join(wanted)}", every=0.3)
        return str(seen[0])

    def question(self, task_id: str, *, timeout: float = PATIENCE_S, map_index: int = -1) -> dict[str, Any]:
        """Wait until a person is asked, and return the question."""
        label = task_id if map_index < 0 else f"{task_id}[{map_index}]"
        found: list[dict[str, Any]] = []

        def asked() -> bool:
            state = self.states().get(label)
            if state in ("failed", "upstream_failed"):
                raise AssertionError(f"{label} is {state}\n{self.failures()}")
            for each in self.api.hitl_pending(self.dag_id, self.run_id) if state == "deferred" else ():
                ti = each["task_instance"]
                if (ti["task_id"], ti["map_index"]) == (task_id, map_index):
                    found.append(each)
            return bool(found)

        wait_until(asked, timeout, f"{label} to ask", every=0.3)
        time.sleep(ANSWER_AFTER_S)
        return found[0]

    def answer(
        self, task_id: str, option: int = 0, *, map_index: int = -1, timeout: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Wait for a question and answer it with its first option (or another one); returns the question."""
        question = self.question(task_id, timeout=timeout, map_index=map_index)
        self.api.hitl_answer(self.dag_id, self.run_id, task_id, question["options"][option], map_index=map_index)
        return question

    def answer_anew(self, option: int = 0, *, timeout: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for a question whose own task cannot show it any more, and answer it in the run that asks it."""
        dag_id, found = "topic_question", dict[str, Any]()
        migration = self.api.xcom(self.dag_id, self.run_id, "plan.read_spec", "migration")["id"]

        def asked() -> bool:
            for run in self.api.dag_runs(dag_id):
                if run["state"] == "running" and run["dag_run_id"].startswith(migration):
                    for each in self.api.hitl_pending(dag_id, run["dag_run_id"]):
                        found.update(each, run_id=run["dag_run_id"])
            return bool(found)

        wait_until(asked, timeout, f"{dag_id} to ask for {migration}", every=0.3)
        time.sleep(ANSWER_AFTER_S)
        self.api.hitl_answer(dag_id, found["run_id"], "answer", found["options"][option])
        return found

    def clear(self, task_id: str, *, downstream: bool = True) -> None:
        """Clear a task (and what follows) and wait until the run goes on."""
        self.api.clear(self.dag_id, self.run_id, [task_id], downstream=downstream)

    def failures(self) -> str:
        """The last lines of the log of each failed task."""
        out = []
        for task in self.api.task_instances(self.dag_id, self.run_id):
            if task["state"] == "failed":
                text = self.log(task["task_id"], map_index=task["map_index"])
                out.append(f"{task['task_id']}:\n" + "\n".join(text.strip().splitlines()[-12:]))
        return "\n\n".join(out)


@contextmanager
def web_hook(stack: Stack) -> Iterator[Hook]:
    """A web hook that Airflow knows as the connection ``topicshift_alarms``."""
    with Hook() as running:
        value = {"connection_id": "topicshift_alarms", "conn_type": "http", "host": "127.0.0.1"}
        port = running.server_port
        stack.airflow.request("POST", "/connections", json={**value, "port": port, "schema": "http"})
        yield running
        stack.airflow.request("DELETE", "/connections/topicshift_alarms")
        running.shutdown()


def alarms(hook: Hook, topic: str) -> list[str]:
    """Codes of what the web hook was told of this topic, in their order."""
    return [post[2]["alarm"]["code"] for post in hook.posts if post[2]["alarm"]["topic"] == topic]


def pair(stack: Stack, folder: Path, topic: str) -> Life:
    """A producer and a consumer of a topic, not running yet, with their logs in a folder: 20 records a second."""
    producers, consumers = (App("checkout", 1),), (App("ledger", 1),)
    return Life(folder, stack.properties_file, topic=topic, keys=50, rate=20, producers=producers, consumers=consumers)


def works(life: Life) -> None:
    """Every application sends or reads more."""
    now = life.counts()
    until(lambda: all(n > now[k] + 50 for k, n in life.counts().items()), "records that are sent and read", 120.0)


def trail_is_intact(journal: SqlJournal, migration_id: str) -> bool:
    """Whether the audit trail verifies, event by event and against the steps."""
    head, events = journal.trail(migration_id)
    return not audit.verify(events, head, migration_id=migration_id) and not audit.verify_steps(
        journal.steps(migration_id), events
    )


def until(ready: Callable[[], bool], what: str, timeout: float = 180.0) -> None:
    """Wait for a condition; the error says for what."""
    wait_until(ready, timeout, what, every=0.2)
