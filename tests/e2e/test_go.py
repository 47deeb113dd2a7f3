"""The go, end to end: nobody is stopped before a person says yes to exactly this freeze."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.small import Run, Topic, trail_is_intact

from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.core.kafka.cluster import Acl

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

DAG, READY, GO, FENCE = "topic_migration", "stop_producers.ready", "stop_producers.go", "stop_producers.fence"


@pytest.fixture
def journal(stack: Stack) -> Iterator[SqlJournal]:
    opened = SqlJournal(stack.journal_url)
    yield opened
    opened.close()


def test_a_no_stops_nobody_and_a_go_that_has_changed_is_asked_anew(stack: Stack, journal: SqlJournal) -> None:
    topic = Topic(stack, "tickets", "tickets-ledger").make()
    legacy = list(allow("legacy", "TOPIC", topic.name, "WRITE", "DESCRIBE"))
    grant(stack.broker.superuser_config(), legacy)
    run = Run.start(stack.airflow, DAG, topic.values(approvals_freeze="required"))
    with topic.admin() as admin:
        acls = admin.acls()
        first = run.answer(GO, option=1)
        mark = first["subject"].rpartition("[")[2].rstrip("]")
        assert first["options"] == [f"Go [{mark}]", f"Not now [{mark}]"]
        assert "**predicted**" in first["body"] and "`User:legacy`" in first["body"]
        run.wait("failed")
        assert (run.states()[READY], run.states()[FENCE]) == ("success", "upstream_failed")
        assert "before a person says go" in run.log(GO)
        (row,) = journal.find(source=topic.name)
        assert journal.step(row.migration_id, "freeze") is None
        assert not denied(admin.acls() - acls)
        topic.write(topic.name, 1)  # nobody was ever stopped
        topic.read(topic.name, 1)

        # Who would be denied changes between asking and answering: the yes to the earlier text counts for nothing.
        run.clear("create_target.create")  # with the armed verifier, which ended with the run
        again = run.question(GO)
        assert mark in again["subject"], "nothing has changed, so it is the same question"
        admin.delete_acls([a for a in acls if a.principal == "User:legacy" and a.operation == "WRITE"])
        run.answer(GO)
        anew = run.answer_anew()
        assert mark not in anew["subject"] and "`User:legacy`" not in anew["body"]
        run.answer(FENCE, option=1)
        run.wait("failed")
        assert journal.step(row.migration_id, "freeze") is None
        assert not denied(admin.acls() - acls)
    yes = [
        e.data["about"]["deny"]
        for e in journal.events(row.migration_id)
        if e.kind == "approved" and e.data["act"] == GO
    ]
    assert yes == [["User:checkout", "User:legacy"], ["User:checkout"]], "each for what was shown"
    assert order(stack, topic, "pause")["outcome"] == "paused"
    assert step(journal, row.migration_id, "pause") == "intended"
    assert "an audit" in order(stack, topic, "go on")["outcome"]
    assert step(journal, row.migration_id, "pause") == "undone"
    closed = order(stack, topic, "close")
    made = f"topic {topic.target} was made for this migration: delete it if nobody uses it: kafka-topics.sh"
    assert closed["outcome"] == "failed" and any(line.startswith(made) for line in closed["left"])
    assert (journal.current(row.migration_id).state, journal.current(row.migration_id).active) == ("failed", False)
    assert trail_is_intact(journal, row.migration_id)


def order(stack: Stack, topic: Topic, name: str) -> dict[str, Any]:
    """What came of an order that a person gives by the form of topic_control."""
    values = {"migration": topic.name, "order": name, "reason": "an audit"}
    run = Run.start(stack.airflow, "topic_control", values).wait("success")
    given: dict[str, Any] = stack.airflow.xcom("topic_control", run.run_id, "give_order")
    return given


def step(journal: SqlJournal, migration_id: str, name: str) -> str | None:
    found = journal.step(migration_id, name)
    return None if found is None else found.state


def denied(acls: frozenset[Acl]) -> list[Acl]:
    """The bindings that deny somebody something."""
    return [a for a in acls if a.permission == "DENY"]
