"""The world of the engine's tests, behind Airflow's tasks: what the supervisor would do is kept in lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from tests.unit.world import World

from topicshift.acts.advance import advance
from topicshift.core.engine.words import Act, Step
from topicshift_airflow import airflow_api
from topicshift_airflow.operators import advance as operators
from topicshift_airflow.operators import end, freeze, jobs, last, watch
from topicshift_airflow.questions import Question
from topicshift_airflow.triggers.journal import MOMENT


class MeasuredWorld(World):
    """With the figures that a person is shown."""

    def _job(self, ctx: Any, act: Act) -> None:
        super()._job(ctx, act)
        if act is Act.MEASURE_IMPACT:
            found = json.loads(ctx.read("impact.json"))
            found["candidates"][0] |= {"moved_keys": 60, "moved_records": 640}
            ctx.write("impact.json", json.dumps(MEASURED | found))


MEASURED = {
    "distinct_keys": 100,
    "partitioner": {"name": "murmur2_random", "fit": 1.0},
    "source": {"max_partition_share": 0.4},
}


def asks(parked: Any) -> bool:
    """Whether a task has parked to wait for a person's answer to what Airflow shows."""
    return isinstance(parked, TaskDeferred) and parked.method_name == "execute_complete"


class Airflow:
    """Tasks of one run over a :class:`World`. ``runs``: DAG runs that were started; ``shown``: what people see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **spec: Any) -> None:
        self.world = MeasuredWorld(**spec)
        self.runs: dict[tuple[str, str], dict[str, Any]] = {}
        self.shown: dict[str, Question] = {}
        self.pushed: dict[str, Any] = {}
        self.states: dict[str, str] = {}
        self.started: dict[str, Any] = {}
        """When each try began; Airflow keeps that over its waits."""
        self.owned = True
        self.triggered_by = ""
        """Name of the user who triggered the run."""

        @contextmanager
        def opened(context: Any, migration_id: str = "", *, take_over: bool = True) -> Iterator[Any]:
            if migration_id and take_over:
                self.world.journal.take_over(migration_id, self.world.claim.owner)
            ctx = self.world.context(holder=context["ti"].task_id, spark=False)
            ctx.began_at = context["ti"].start_date
            ctx.triggered_by = self.triggered_by
            yield ctx

        @contextmanager
        def journal() -> Iterator[Any]:
            yield self.world.journal

        for module in (operators, end, freeze, jobs, last, watch):
            if hasattr(module, "open_context"):
                monkeypatch.setattr(module, "open_context", opened)
            if hasattr(module, "journal"):
                monkeypatch.setattr(module, "journal", journal)
            for name, fake in (("show", self._show), ("start_run", self._start)):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, fake)
        monkeypatch.setattr(airflow_api, "run_state", lambda dag_id, run_id: self.states.get(run_id, "running"))

    def _show(self, ti_id: str, question: Question) -> bool:
        """As Airflow does: the first text of a task instance stays."""
        return self.shown.setdefault(ti_id, question).subject == question.subject

    def _start(self, dag_id: str, name: str, conf: Any) -> str:
        self.runs.setdefault((dag_id, name), dict(conf))
        return f"{name}__1"

    def context(self, task: Any, *, try_number: int = 1, **more: Any) -> dict[str, Any]:
        """The context of a task; its task instance stays the same over its tries."""
        ti = SimpleNamespace(
            task_id=task.task_id,
            id=task.task_id,
            dag_id="topic_migration",
            run_id="run-1",
            map_index=-1,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
            try_number=try_number,
            start_date=self.started.setdefault(f"{task.task_id}#{try_number}", self.world.clock.now()),
        )
        return {"ti": ti, "params": {}, **more}

    def run(self, task: Any, **more: Any) -> Any:
        """Run a task: what it returns, or the signal by which it parks."""
        try:
            return task.execute(self.context(task, **more))
        except TaskDeferred as parked:
            return parked

    def asked(self, task: Any) -> Question:
        """Run a task that has to ask, and return the question that it parks with."""
        parked = self.run(task)
        assert asks(parked), parked
        return Question(**parked.kwargs["question"])

    def answered(self, task: Any, question: Question, option: str | None, user: str = "kim") -> Any:
        """A person answers (None: nobody does) what the task shows; what comes of it."""
        event: dict[str, Any] = dict(MOMENT)
        if option is not None:
            event = {"chosen_options": [option], "responded_by_user": {"name": user}}
        try:
            return task.execute_complete(self.context(task), event, question=question.values())
        except TaskDeferred as parked:
            return parked

    def until(self, step: Step, **how: Any) -> None:
        """Let the engine come so far by itself."""
        advance(self.world.context(), until=step, **how)
