"""A connection that could not be looked up is not one that does not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse

from topicshift.adapters.journal import SqlJournal
from topicshift.core.errors import SpecError, Transient
from topicshift_airflow import runtime


class Supervisor:
    """What a task asks the API server through."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def send(self, _: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def says(error: ErrorType) -> ErrorResponse:
    return ErrorResponse(error=error, detail={})


@pytest.fixture(autouse=True)
def undefined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow says so of whatever it did not get, for what reason ever."""

    def get(_: str) -> None:
        raise AirflowNotFoundException("The conn_id isn't defined")

    monkeypatch.setattr(BaseHook, "get_connection", get)


@pytest.mark.parametrize(
    "answer",
    [
        says(ErrorType.API_SERVER_ERROR),
        AirflowRuntimeError(says(ErrorType.GENERIC_ERROR)),
        ConnectionResetError(),
        object(),
    ],
)
def test_no_other_journal_is_taken_while_airflow_cannot_tell(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)
    with pytest.raises(Transient, match="topicshift_journal"):
        runtime.open_journal()
    with pytest.raises(Transient, match="kafka_default"):
        runtime.connection("kafka_default")


@pytest.mark.parametrize("raised", [False, True])
def test_a_connection_that_is_surely_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raised: bool) -> None:
    missing = says(ErrorType.CONNECTION_NOT_FOUND)
    answer = AirflowRuntimeError(missing) if raised else missing
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)
    monkeypatch.setenv("TOPICSHIFT_JOURNAL", f"sqlite:///{tmp_path}/journal.db")
    journal = runtime.open_journal()
    assert isinstance(journal, SqlJournal)
    journal.close()
    with pytest.raises(SpecError, match="does not exist"):
        runtime.connection("kafka_default")
