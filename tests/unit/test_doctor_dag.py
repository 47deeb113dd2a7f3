"""The DAG `topic_doctor`: the checks of `topicshift doctor`, red with what to do where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from tests.unit.test_doctor import UNPAUSED, installation

from topicshift import cli
from topicshift.commands.installation import AREAS
from topicshift.core.errors import Transient
from topicshift_airflow.operators import doctor
from topicshift_airflow.operators.doctor import LookAt

__all__ = ["installation"]
UNKNOWN_DAG = ErrorResponse(
    error=ErrorType.API_SERVER_ERROR,
    detail={"status_code": 404, "detail": {"detail": {"reason": "not_found", "message": "no such Dag"}}},
)


@pytest.fixture
def worker(installation: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The same installation, asked by a task: Airflow's API server knows these DAGs and connections."""
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "topic_doctor.py").write_text("fine = 1\n")

    def send(message: Any) -> Any:
        answer = installation["dags"].get(message.dag_id, UNKNOWN_DAG)
        if isinstance(answer, ErrorResponse):
            raise AirflowRuntimeError(answer)
        return SimpleNamespace(is_paused=answer)

    monkeypatch.setattr(doctor, "send", send)
    monkeypatch.setattr(doctor, "find_connection", installation["connections"].get)
    return {**installation, "folder": folder}


def looked(worker: dict[str, Any], area: str, conn_id: str = "kafka_default") -> list[dict[str, Any]]:
    dag = SimpleNamespace(fileloc=str(worker["folder"] / "topic_doctor.py"))
    found = LookAt(task_id=area, area=area).execute({"dag": dag, "params": {"kafka_conn_id": conn_id}})
    json.dumps(found)
    return found


def red(worker: dict[str, Any], area: str, conn_id: str = "kafka_default") -> str:
    with pytest.raises(AirflowFailException) as failed:
        looked(worker, area, conn_id)
    return str(failed.value)


def test_it_sees_all_that_the_command_sees(worker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for area in AREAS for row in looked(worker, area)]
    capsys.readouterr()
    assert cli.run(["doctor", "--json"]) == 0
    assert rows == json.loads(capsys.readouterr().out)["rows"]


def test_a_paused_dag_makes_it_red_and_says_what_to_do(worker: Any) -> None:
    worker["dags"]["topic_question"] = True
    said = red(worker, "airflow")
    assert "not ok: dags: topic_question: paused" in said and "Do: airflow dags unpause topic_question" in said
    assert len(said.splitlines()) == 2, "what is OK is not in the way"


def test_a_dag_that_airflow_does_not_know_and_one_that_it_cannot_tell_of(worker: Any) -> None:
    del worker["dags"]["topic_rollback"]
    assert "not ok: dags: topic_rollback: Airflow does not know it" in red(worker, "airflow")
    worker["dags"]["topic_rollback"] = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 502})
    assert "unknown: dags: DAGs: Airflow could not tell of the DAG topic_rollback" in red(worker, "airflow")


def test_a_dag_file_that_this_worker_cannot_parse(worker: Any) -> None:
    (worker["folder"] / "topic_migration.py").write_text("import nothing_of_this_name\n")
    said = red(worker, "airflow")
    assert "not ok: dags: topic_migration.py: cannot be parsed: ModuleNotFoundError" in said and "PYTHONPATH" in said


def test_the_connection_of_the_form_is_the_one_that_is_looked_at(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "connections: east: is not there" in red(worker, "connections", "east")
    assert "there is no Airflow connection east" in red(worker, "kafka", "east")

    def dark(_: str) -> Any:
        raise Transient("the API server did not answer")

    monkeypatch.setattr(doctor, "find_connection", dark)
    said = red(worker, "connections")
    assert "unknown: connections: kafka_default: the API server did not answer" in said
    assert set(UNPAUSED) == set(worker["dags"])
