"""Whose answer counts, and who is told: a run whose question takes two people, with one person and a web hook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.small import Run, Topic, until, web_hook
from tests.unit.test_notifiers import Hook

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600)]

APPROVE = "approve.plan"


@pytest.fixture
def hook(stack: Stack) -> Iterator[Hook]:
    """A web hook that Airflow knows as the connection ``topicshift_alarms``."""
    with web_hook(stack) as running:
        yield running


def test_who_triggered_a_run_may_not_answer_alone_and_people_are_told_once(stack: Stack, hook: Hook) -> None:
    topic = Topic(stack, "twofold", "twofold-ledger").make()
    answers = [{"question": "plan", "two_people": True}]
    run = Run.start(stack.airflow, "topic_migration", topic.values(approvals_plan="required", answers=answers))
    assert "It takes two different people" in run.answer(APPROVE)["body"]
    journal = SqlJournal(stack.journal_url)

    def kinds() -> dict[str, str]:
        (row,) = journal.find(source=topic.name)
        return {e.kind: str(e.data.get("why")) for e in journal.events(row.migration_id)}

    until(lambda: "answer_not_counted" in kinds(), "the answer that is not counted")
    assert kinds()["answer_not_counted"].startswith(f"{stack.airflow.user} triggered the run")
    run.answer(APPROVE, 1)
    run.wait("failed")
    with topic.admin() as admin:
        assert admin.topic(topic.target) is None
    mine = [post[2]["alarm"] for post in hook.posts if post[2]["alarm"]["topic"] == topic.name]
    assert [alarm["code"] for alarm in mine] == ["person_wanted", "run_stands"]
    assert "said no" in mine[1]["text"]
    journal.close()
