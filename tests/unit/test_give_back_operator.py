"""The task that gives producers back waits for what still runs beside it, and for no longer than the lease."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from topicshift.acts.participants import begin_freeze, begin_give_back
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift_airflow.operators.cutover import GiveBack

BUDGET = timedelta(seconds=60)


class Ti:
    dag_id, run_id = "topic_migration", "manual__1"

    def __init__(self, *answers: dict[str, str]) -> None:
        self.answers: Iterator[dict[str, str]] = iter(answers)
        self.last: dict[str, str] = {}
        self.asked: list[list[str]] = []

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, str]]:
        self.asked.append(task_ids)
        self.last = next(self.answers, self.last)
        return {self.run_id: self.last}


@pytest.fixture
def run() -> Any:
    clock = ManualClock()
    journal = FakeJournal(clock)
    claim: Claim = journal.claim(
        cluster_id="c", source="p", target="p2", owner="o", spec={}, owner_alive=lambda _: True
    )
    begin_freeze(journal, claim, clock, BUDGET)
    said: list[str] = []
    row = journal.current(claim.migration_id)
    return SimpleNamespace(clock=clock, journal=journal, claim=claim, row=row, said=said, progress=said.append)


def give_back() -> GiveBack:
    with DAG("topic_migration", schedule=None):
        before = [BaseOperator(task_id="switch"), BaseOperator(task_id="fence")]
        task = GiveBack(task_id="give_back")
        before >> task
    return task


def test_it_waits_until_nothing_before_it_runs(run: Any) -> None:
    begin_give_back(run.journal, run.claim)
    ti = Ti({"switch": "running", "fence": "failed"}, {"switch": "running"}, {"switch": "failed", "fence": "failed"})
    give_back()._wait_for_others(run, {"ti": ti})
    assert ti.asked[0] == ["fence", "switch"]
    assert len(run.clock.slept) == 2
    assert len(run.said) == 1 and "switch" in run.said[0]


def test_a_task_that_was_cleared_while_it_runs_is_waited_for_too(run: Any) -> None:
    begin_give_back(run.journal, run.claim)
    give_back()._wait_for_others(run, {"ti": Ti({"switch": "restarting"}, {"switch": "failed"})})
    assert len(run.clock.slept) == 1


def test_it_waits_no_longer_than_the_lease(run: Any) -> None:
    begin_give_back(run.journal, run.claim)
    start = run.clock.now()
    give_back()._wait_for_others(run, {"ti": Ti({"switch": "running"})})
    assert run.clock.now() - start >= BUDGET
    assert "lease is over" in run.said[-1]


def test_without_a_freeze_it_asks_nobody(run: Any) -> None:
    run.journal.finish(run.claim, "freeze", {}, state="undone")
    ti = Ti({"switch": "running"})
    give_back()._wait_for_others(run, {"ti": ti})
    assert ti.asked == []
