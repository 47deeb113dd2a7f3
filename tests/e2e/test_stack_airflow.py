"""The stack's Airflow: every DAG is there, only loopback is served, roles hold, secrets stay where they belong."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import httpx
import psutil
import pytest
from fastapi.routing import APIRoute
from tests.e2e.small import Run

from lab.airflow_api import AirflowApi, AirflowError
from lab.stack import ORCHESTRATOR, Stack
from lab.upkeep import Upkeep
from topicshift.commands.installation import AREAS
from topicshift.core.doctor import DAGS, MAY_BE_PAUSED
from topicshift_airflow.web import app

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]


def secrets_of(stack: Stack) -> set[str]:
    """Every secret of the run."""
    files = [path.read_text() for path in (stack.folder / "secrets").iterdir()]
    return {*files, *stack.broker.users.values()}


def test_every_dag_is_parsed_without_an_error(stack: Stack) -> None:
    stack.airflow.wait_parsed("topic_migration", "topic_assessment", "topic_rollback", "topic_retirement")
    assert stack.airflow.import_errors() == []
    paused = {dag["dag_id"]: dag["is_paused"] for dag in stack.airflow.dags()}
    assert not paused["topic_migration"] and paused["topic_retirement"]


def test_the_doctor_finds_this_installation_fit_and_names_what_is_not(stack: Stack) -> None:
    """With the environment of the scheduler; the DAGs, plugin and connections are those that Airflow itself has."""
    stack.airflow.wait_parsed(*DAGS, *MAY_BE_PAUSED)

    def doctor() -> tuple[int, dict[str, dict[str, str]]]:
        words = [sys.executable, "-m", "topicshift.cli", "doctor", "--json"]
        done = subprocess.run(words, env=stack.services.environment(), capture_output=True, text=True, timeout=120)
        rows = json.loads(done.stdout)["rows"]
        return done.returncode, {f"{r['area']}: {r['name']}": r for r in rows}

    code, rows = doctor()
    assert code == 0, [r for r in rows.values() if r["verdict"] != "ok"]
    seen = Run.start(stack.airflow, "topic_doctor", {}).wait("success")
    assert {
        f"{r['area']}: {r['name']}" for area in AREAS for r in stack.airflow.xcom("topic_doctor", seen.run_id, area)
    } == set(rows)
    assert {"dags: topic_migration", "airflow: plugin", "kafka: rights", "connections: kafka_default"} <= set(rows)
    stack.airflow.set_paused("topic_question", True)
    try:
        code, rows = doctor()
        ill = Run.start(stack.airflow, "topic_doctor", {}).wait("failed")
    finally:
        stack.airflow.unpause("topic_question")
    assert {task for task, state in ill.states().items() if state == "failed"} == {"airflow"}
    assert "topic_question: paused" in ill.log("airflow") and "airflow dags unpause topic_question" in ill.log(
        "airflow"
    )
    assert code == 3
    assert [name for name, r in rows.items() if r["verdict"] == "not_ok"] == ["dags: topic_question"]


def test_a_viewer_may_look_and_not_trigger(stack: Stack) -> None:
    viewer = stack.services.api_as("viewer")
    try:
        assert viewer.dag("topic_migration")["dag_id"] == "topic_migration"
        with pytest.raises(AirflowError) as refused:
            viewer.trigger("topic_assessment", {"source": "x"})
        assert refused.value.status == 403
    finally:
        viewer.close()


def test_nobody_gets_in_without_the_password(stack: Stack) -> None:
    stranger = AirflowApi(stack.services.url, "admin", "admin")
    try:
        with pytest.raises(AirflowError) as refused:
            stranger.dags()
        assert refused.value.status == 401
    finally:
        stranger.close()
    assert httpx.get(f"{stack.services.url}/api/v2/dags", trust_env=False).status_code == 401
    walked = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(walked) > 10
    for route in walked:
        path = route.path.format(migration_id="payments-1", folder="payments-1", name="report.html")
        for method in route.methods:
            answer = httpx.request(method, f"{stack.services.url}/topicshift{path}", trust_env=False)
            assert answer.status_code == 401, f"{method} {path} answers a stranger with {answer.status_code}"


def test_only_loopback_is_served(stack: Stack) -> None:
    pids = {process.pid for process in stack.services.processes.values()} | {stack.broker.pid()}
    family = {child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)} | pids
    listening = [c.laddr for c in psutil.net_connections("tcp") if c.pid in family and c.status == psutil.CONN_LISTEN]
    assert listening
    # The broker's controller and client ports, the API server; nothing on all interfaces.
    assert {address.ip.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}


def test_no_secret_is_in_an_argument_list_an_environment_or_a_log(stack: Stack) -> None:
    secrets = secrets_of(stack)
    assert len(secrets) >= 8
    for process in [*stack.services.processes.values()]:
        seen = psutil.Process(process.pid)
        text = " ".join(seen.cmdline()) + json.dumps(seen.environ())
        assert not [secret for secret in secrets if secret in text], f"a secret in {process.name}"
    for log in (stack.folder / "logs").rglob("*.log"):
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], f"a secret in {log.name}"


def test_the_orchestrator_is_no_superuser(stack: Stack) -> None:
    assert stack.broker.config(ORCHESTRATOR)["sasl.username"] != stack.broker.superuser_config()["sasl.username"]
    extra = json.loads(stack.services.environment()["AIRFLOW_CONN_KAFKA_DEFAULT"])["extra"]
    assert set(extra) == {"bootstrap.servers", "topicshift.properties.file"}
    assert extra["topicshift.properties.file"] == str(stack.properties_file(ORCHESTRATOR))


def test_a_run_that_the_form_refuses_says_why(stack: Stack) -> None:
    with pytest.raises(AirflowError) as missing:
        stack.airflow.trigger("no_such_dag")
    assert missing.value.status == 404


def test_a_scheduler_that_was_killed_is_started_again_and_runs_what_is_triggered(stack: Stack) -> None:
    said: list[str] = []
    upkeep = Upkeep(said.append)
    scheduler = stack.services.processes["scheduler"]
    old = scheduler.pid
    psutil.Process(old).kill()
    deadline = time.monotonic() + 30
    while scheduler.alive:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stack.keep_up(upkeep)
    assert scheduler.pid != old and said == ["scheduler has ended with code -9; starting it again (1 of at most 5)"]
    stack.check_alive()
    assert Run.start(stack.airflow, "topic_doctor", {}).wait("success")
