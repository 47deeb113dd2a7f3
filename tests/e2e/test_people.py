"""Whose answer counts, and who is told: a run whose question takes two people, with one person and a web hook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.small import Run, Topic, trail_is_intact, until, web_hook
from tests.unit.test_notifiers import Hook

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

APPROVE, GO, FENCE = "approve.plan", "stop_producers.go", "stop_producers.fence"


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


@contextmanager
def policy(stack: Stack, folder: Path, **values: Any) -> Iterator[None]:
    """An installation policy, which Airflow's variable names for as long as the block runs."""
    file = folder / "policy.yaml"
    file.write_text(json.dumps({"apiVersion": "topicshift-policy/v1", **values}))  # JSON is YAML
    stack.airflow.request("POST", "/variables", json={"key": "topicshift_policy", "value": str(file)})
    try:
        yield
    finally:
        stack.airflow.request("DELETE", "/variables/topicshift_policy")


ONCALL: Mapping[str, Any] = {"question": "freeze", "people": ["role:oncall"], "two_people": True}


@pytest.mark.long
def test_a_policy_in_airflows_variable_holds_for_every_form_and_takes_two_named_people_for_a_cut_over(
    stack: Stack, tmp_path: Path
) -> None:
    topic, other = Topic(stack, "shared", "shared-ledger").make(), Topic(stack, "foreign", "foreign-ledger").make()
    roles = {"oncall": [stack.airflow.user, "deputy"]}
    with (
        policy(stack, tmp_path, topics=[f"{topic.name}*"], roles=roles, answers=[ONCALL]),
        closing(SqlJournal(stack.journal_url)) as journal,
        closing(stack.services.api_as("deputy")) as deputy,
    ):
        forbidden = Run.start(stack.airflow, "topic_migration", other.values()).wait("failed")
        assert "TS802" in forbidden.failures(), forbidden.failures()
        run = Run.start(stack.airflow, "topic_migration", topic.values(approvals_freeze="required"))
        asked = run.answer(GO)
        assert f"Only {', '.join(sorted(roles['oncall']))} may answer." in asked["body"]
        (row,) = journal.find(source=topic.name)

        def told(kind: str) -> list[Mapping[str, Any]]:
            return [e.data for e in journal.events(row.migration_id, (kind,))]

        until(lambda: bool(told("answer_not_counted")), "the answer that is not counted")
        assert journal.step(row.migration_id, "freeze") is None
        Run(deputy, run.dag_id, run.run_id).answer(GO)
        run.question(FENCE)
        (yes,) = [e for e in journal.events(row.migration_id, ("approved",)) if e.data["act"] == GO]
        assert yes.actor == "user:deputy"
        values = {"migration": topic.name, "order": "abort", "reason": "a test"}
        Run.start(stack.airflow, "topic_control", values).wait("success")
        run.wait("failed")  # what a person aborted is no success
        assert run.states()[FENCE] == "failed" and f"{row.migration_id} is rolled_back" in run.log(FENCE)
        assert trail_is_intact(journal, row.migration_id)
    with topic.admin() as admin:
        assert {admin.topic(t) for t in (topic.target, other.target)} == {None}
