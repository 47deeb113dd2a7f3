"""What is asked of Airflow itself: the state of a run, a new run, the question that it shows."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow.sdk.api.datamodels._generated import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    CreateHITLDetailPayload,
    DagRunStateResult,
    ErrorResponse,
    GetDagRunState,
    HITLDetailRequestResult,
    OKResponse,
    TriggerDagRun,
)

from topicshift.core.errors import Transient
from topicshift_airflow.airflow_api import show, start_run
from topicshift_airflow.questions import Question


class Airflow:
    """The supervisor of a task: runs by id, and one question for each task instance, whose text stays."""

    def __init__(self, **runs: str) -> None:
        self.runs: dict[str, str] = dict(runs)
        self.started: list[TriggerDagRun] = []
        self.shown: dict[UUID, CreateHITLDetailPayload] = {}
        self.refuses: ErrorType | None = None
        self.deaf = False

    def send(self, msg: Any) -> Any:
        if isinstance(msg, GetDagRunState):
            return self._state(msg.run_id)
        if isinstance(msg, TriggerDagRun):
            if self.refuses is not None:
                return ErrorResponse(error=self.refuses, detail={})
            self.started.append(msg)
            return OKResponse(ok=True)
        assert isinstance(msg, CreateHITLDetailPayload)
        kept = self.shown.setdefault(msg.ti_id, msg)
        return HITLDetailRequestResult(**kept.model_dump(exclude={"type"}))

    def _state(self, run_id: str) -> Any:
        if self.deaf:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={}))
        if run_id in self.runs:
            return DagRunStateResult(state=DagRunState(self.runs[run_id]))
        detail = {"status_code": 404, "detail": {"detail": {"reason": "not_found"}}}
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made


@pytest.mark.parametrize(
    ("runs", "wanted", "started"),
    [
        ({}, "m__1", True),
        ({"m__1": "running"}, "m__1", False),
        ({"m__1": "queued"}, "m__1", False),
        ({"m__1": "success"}, "m__2", True),
        ({"m__1": "failed", "m__2": "running"}, "m__2", False),
    ],
)
def test_a_run_is_started_only_where_none_is_under_way(
    airflow: Airflow, runs: dict[str, str], wanted: str, started: bool
) -> None:
    airflow.runs = runs
    assert start_run("dag", "m", {"migration": "m"}) == wanted
    assert [(r.run_id, r.conf) for r in airflow.started] == ([(wanted, {"migration": "m"})] if started else [])


def test_two_that_start_the_same_run_at_once_agree(airflow: Airflow) -> None:
    airflow.refuses = ErrorType.DAGRUN_ALREADY_EXISTS
    assert start_run("dag", "m", {}) == "m__1"


def test_what_airflow_cannot_tell_or_does_not_take_is_tried_again(airflow: Airflow) -> None:
    airflow.refuses = ErrorType.API_SERVER_ERROR
    with pytest.raises(Transient, match="did not start"):
        start_run("dag", "m", {})
    airflow.deaf = True
    with pytest.raises(Transient, match="could not tell"):
        start_run("dag", "m", {})


def question(mark: str) -> Question:
    return Question(
        "m", "approve.plan", "", {"plan_hash": mark}, f"Move it? [{mark}]", "text", "Approve", "Reject", 0.0
    )


def test_it_is_told_whether_people_see_this_question_or_an_earlier_one(airflow: Airflow) -> None:
    ti = uuid4()
    assert show(ti, question("a")) and show(ti, question("a")), "cleared, it asks the same"
    assert not show(ti, question("b"))
    assert show(uuid4(), question("b"))
