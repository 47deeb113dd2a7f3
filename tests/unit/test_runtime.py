"""A connection that could not be looked up is not one that does not exist."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection, Variable
from airflow.sdk.api.datamodels._generated import DagRunState
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DagRunStateResult, ErrorResponse
from fastapi import FastAPI
from fastapi.testclient import TestClient

from topicshift.adapters.journal import SqlJournal
from topicshift.core.errors import SpecError, Transient
from topicshift.core.spec.model import Spec
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift_airflow import runtime


class Supervisor:
    """What a task asks the API server through."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def send(self, msg: Any) -> Any:
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


def test_the_policy_is_the_file_that_the_environment_names_else_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: topicshift-policy/v1\ntopics: [payments*]\n")
    monkeypatch.setattr(Variable, "get", lambda name, default: {"topicshift_policy": f" {file} "}.get(name, default))
    monkeypatch.setenv("TOPICSHIFT_POLICY", str(tmp_path / "first.yaml"))
    assert runtime.policy_file().path == tmp_path / "first.yaml"
    monkeypatch.delenv("TOPICSHIFT_POLICY")
    found = runtime.policy_file()()
    assert found is not None and list(found.topics or ()) == ["payments*"]


@pytest.mark.parametrize(
    "answer",
    [says(ErrorType.API_SERVER_ERROR), AirflowRuntimeError(says(ErrorType.GENERIC_ERROR)), ConnectionResetError()],
)
def test_a_policy_is_never_missing_because_airflow_is_silent(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Airflow's own look-up says "not found" of a variable that its API server could not look up."""
    monkeypatch.delenv("TOPICSHIFT_POLICY", raising=False)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)
    with pytest.raises(Transient, match=r"variable topicshift_policy could not be told"):
        runtime.policy_file()


def test_where_airflow_surely_has_no_such_variable_there_is_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPICSHIFT_POLICY", raising=False)
    missing = Supervisor(says(ErrorType.VARIABLE_NOT_FOUND))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", missing, raising=False)
    assert runtime.policy_file()() is None


def test_a_variable_that_may_not_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str, default: Any) -> None:
        raise PermissionError("denied")

    monkeypatch.delenv("TOPICSHIFT_POLICY", raising=False)
    monkeypatch.setattr(Variable, "get", get)
    with pytest.raises(Transient, match="denied"):
        runtime.policy_file()


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


def answer_of_the_api(run_id: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a task is told of the state of a run: Airflow's own route over an empty database, and its supervisor."""
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.api_fastapi.execution_api.routes import dag_runs
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    engine = create_engine("sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("create table dag_run (dag_id text, run_id text, state text)")
    api = FastAPI()
    api.get("/dag-runs/{dag_id}/{run_id}/state")(dag_runs.get_dagrun_state)
    api.dependency_overrides[_get_session] = lambda: Session(engine)
    response = TestClient(api).get(f"/dag-runs/topic_migration/{run_id}/state")
    said = {"status_code": response.status_code, "message": "Server returned error", "detail": response.json()}
    return ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=said)


def raises(answer: Any) -> Any:
    def get(dag_id: str, run_id: str) -> str:
        raise AirflowRuntimeError(answer)

    return staticmethod(get)


@pytest.mark.parametrize(("run_id", "alive"), [("manual__1", False), ("a/path/that/nobody/serves", None)])
def test_a_run_is_deleted_only_if_airflow_says_so_of_that_run(
    monkeypatch: pytest.MonkeyPatch, run_id: str, alive: bool | None
) -> None:
    """A proxy, or an API server that lacks the route, says "Not Found" as well."""
    answer = answer_of_the_api(run_id, monkeypatch)
    assert answer.detail["status_code"] == 404
    monkeypatch.setattr(task_runner.RuntimeTaskInstance, "get_dagrun_state", raises(answer))
    assert runtime.owner_alive(f"topic_migration/{run_id}") is alive


@pytest.mark.parametrize(
    "answer",
    [
        says(ErrorType.GENERIC_ERROR),
        says(ErrorType.CONNECTION_NOT_FOUND),
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500, "detail": {"detail": "Not Found"}}),
        ErrorResponse(error=ErrorType.PERMISSION_DENIED, detail={"status_code": 403, "message": "not_found"}),
    ],
)
def test_a_run_that_could_not_be_looked_up_counts_as_alive(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(task_runner.RuntimeTaskInstance, "get_dagrun_state", raises(answer))
    assert runtime.owner_alive("topic_migration/manual__1") is None


@pytest.mark.parametrize(
    ("state", "alive"), [("running", True), ("queued", True), ("success", False), ("failed", False)]
)
def test_a_run_is_alive_as_airflow_says(monkeypatch: pytest.MonkeyPatch, state: str, alive: bool) -> None:
    answer = DagRunStateResult(state=DagRunState(state))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(answer), raising=False)
    assert runtime.owner_alive("topic_migration/manual__1") is alive


LOCAL = [
    "LocalExecutor",
    "LocalExecutor;team1=LocalExecutor",
    "mine:LocalExecutor",
    "airflow.executors.local_executor.LocalExecutor",
]
REMOTE = ["CeleryExecutor", "LocalExecutor,KubernetesExecutor", "team1=CeleryExecutor", "my.package.RemoteExecutor"]


@pytest.mark.parametrize("executor", [*LOCAL, *REMOTE])
@pytest.mark.parametrize("uri", [None, "sqlite:////var/lib/journal.db", "postgresql://topicshift@db:5432/topicshift"])
def test_a_journal_in_a_local_file_is_refused_where_tasks_run_on_several_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str, uri: str | None
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setenv("TOPICSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(BaseHook, "get_connection", lambda conn_id: Connection(conn_id=conn_id, uri=uri))
    if uri is None:
        monkeypatch.setattr(runtime, "find_connection", lambda _: None)
    if executor in REMOTE and not str(uri).startswith("postgresql"):
        with pytest.raises(SpecError, match=r"(?s)SQLite.*Executor.*Create the connection topicshift_journal"):
            runtime.open_journal()
        assert list(tmp_path.iterdir()) == []
    else:
        monkeypatch.setattr("topicshift.adapters.journal.SqlJournal", lambda url, create: url)
        assert str(runtime.open_journal()).startswith(str(uri or "sqlite:")[:6])


def test_a_freeze_begins_in_the_patience_after_the_last_answer_or_in_a_window() -> None:
    clock = ManualClock()
    journal = FakeJournal(clock)
    claim = journal.claim(cluster_id="c", source="a", target="b", owner="o", spec={}, owner_alive=lambda _: True)
    spec = {"source": "a", "partitions": 2, "producers": [{"name": "p"}], "consumers": [{"name": "c", "group": "c"}]}
    window = {"cron": "0 2 * * *", "timezone": "UTC", "duration": "2h"}
    began = clock.now()

    def until(kind: str, **more: Any) -> Any:
        run = SimpleNamespace(run_type=kind, start_date=began, run_after=began)
        found = Spec.model_validate({**spec, **more})
        return runtime.begin_by({"dag_run": run}, found, journal, claim.migration_id)

    assert until("scheduled", window=window) is None and until("manual", window=window) is None
    assert until("manual") == began + timedelta(hours=12)
    clock.advance(13 * 3600)
    journal.event(claim, "approved", "user:kim", {"act": "approve.plan"})
    assert until("manual") == clock.now() + timedelta(hours=12), "a person may take days for the plan"


def test_a_participants_connection_is_looked_up_by_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Connection(conn_id="w", conn_type="http", host="connect", port=8083, login="me", password="hush")
    monkeypatch.setattr(BaseHook, "get_connection", lambda _: found)
    made = runtime.endpoint_of("w")
    assert (made.url, made.login, made.password) == ("http://connect:8083", "me", "hush")
    monkeypatch.setattr(runtime, "find_connection", lambda _: None)
    with pytest.raises(SpecError, match="The Airflow connection 'w' does not exist"):
        runtime.endpoint_of("w")
