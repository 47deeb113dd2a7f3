"""Live applications of any kind, moved through a real scheduler: one migration is aborted, the next one is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from tests.e2e.small import Run, trail_is_intact, until
from tests.integration.host_world import Line, by_key

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.ports import StepRow

SWITCH = "switch_producers.switch"


class Applications(ABC):
    """Applications on a topic of their own; each keeps what it has had acknowledged, or was given."""

    topic: str
    named: str
    """What a log or the audit trail calls one of them by."""
    secrets: tuple[str, ...] = ()
    """What neither of both may hold."""
    dag = "topic_migration"
    """The DAG that moves them."""

    @property
    def target(self) -> str:
        """Where they are moved."""
        return f"{self.topic}-v2"

    @abstractmethod
    def members(self) -> dict[str, Any]:
        """The form's ``producers`` and ``consumers``."""

    @abstractmethod
    def shape(self) -> Any:
        """What is seen of them: topic, settings, how much of each runs."""

    @abstractmethod
    def is_moved(self) -> bool:
        """Whether each of them is seen on the target."""

    @abstractmethod
    def counts(self) -> list[int]:
        """How many records each reader was given."""

    @abstractmethod
    def proven(self) -> None:
        """End the producers, and check what each reader was given by then."""

    def values(self, **more: Any) -> dict[str, Any]:
        """The values of a migration's form."""
        approved = {"approvals_plan": "auto", "approvals_freeze": "auto"}
        return {"source": self.topic, "target": self.target, "partitions": 6, **approved, **self.members(), **more}

    def goes_on(self) -> None:
        """Every reader is given more."""
        before = self.counts()
        until(lambda: all(n > b + 50 for n, b in zip(self.counts(), before, strict=True)), "more is read")

    def each_once(self, sent: dict[str, list[int]], *readers: Callable[[], list[Line]]) -> None:
        """Each reader was given everything that was sent, once and in order, from both topics."""
        assert sent and all(numbers == list(range(len(numbers))) for numbers in sent.values())
        until(lambda: all(by_key(read()) == sent for read in readers), "everything was read once and in order")
        assert all({topic for _, _, topic in read()} == {self.topic, self.target} for read in readers)


@contextmanager
def connection(stack: Stack, name: str, kind: str = "http", **values: Any) -> Iterator[None]:
    """An Airflow connection, for as long as the block runs."""
    stack.airflow.request("POST", "/connections", json={"connection_id": name, "conn_type": kind, **values})
    try:
        yield
    finally:
        stack.airflow.request("DELETE", f"/connections/{name}")


def aborted_then_moved(stack: Stack, apps: Applications) -> None:
    """A person aborts a migration in its freeze, and everything is as before; the next one moves them all."""
    with closing(SqlJournal(stack.journal_url)) as journal, KafkaAdmin(stack.broker.superuser_config()) as admin:
        _aborted(stack, apps, journal, admin)
        _moved(stack, apps, journal, admin)


def _aborted(stack: Stack, apps: Applications, journal: SqlJournal, admin: KafkaAdmin) -> None:
    def seen() -> tuple[Any, ...]:
        topics = (apps.topic, apps.target)
        return *map(admin.topic, topics), {acl for acl in admin.acls() if acl.name in topics}, apps.shape()

    def row(name: str) -> StepRow:
        found = journal.step(migration, name)
        assert found is not None, f"there is no row {name}"
        return found

    before = seen()
    run = Run.start(stack.airflow, apps.dag, apps.values(approvals_certificate="required"))
    run.question(SWITCH)
    migration = journal.find(source=apps.topic)[-1].migration_id
    assert row("freeze").state == "intended" and apps.shape() != before[-1], "producers stand still"
    order = {"migration": migration, "order": "abort", "reason": "a test"}
    Run.start(stack.airflow, "topic_control", order).wait("success")
    ended = journal.current(migration)
    assert (ended.state, ended.active, row("freeze").state) == ("rolled_back", False, "undone")
    assert seen() == before
    assert row("rollback").data["not_restored"] == []
    apps.goes_on()
    run.wait("failed")
    assert run.states()[SWITCH] != "success"
    _told(run, apps, journal, migration)


def _moved(stack: Stack, apps: Applications, journal: SqlJournal, admin: KafkaAdmin) -> None:
    run = Run.start(stack.airflow, apps.dag, apps.values()).wait("success")
    assert apps.is_moved(), apps.shape()
    apps.goes_on()
    apps.proven()
    assert sum(o.end or 0 for o in admin.offsets(apps.target).values()) > 0
    row = journal.find(source=apps.topic)[-1]
    assert row.state == "done"
    _told(run, apps, journal, row.migration_id)


def _told(run: Run, apps: Applications, journal: SqlJournal, migration: str) -> None:
    """The audit trail verifies; neither it nor a log holds a secret."""
    assert trail_is_intact(journal, migration)
    said = "".join(str(e.data) for e in journal.events(migration))
    done = [t for t in run.api.task_instances(run.dag_id, run.run_id) if t["state"] == "success"]
    said += "".join(run.log(t["task_id"]) for t in done if t["map_index"] < 0)
    assert apps.named in said and not [secret for secret in apps.secrets if secret in said]
