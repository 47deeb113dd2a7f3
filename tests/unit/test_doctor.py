"""`topicshift doctor`: each row is OK, not OK or unknown, and unknown is never OK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.plan_world import CLUSTER, topic

from topicshift import cli
from topicshift.adapters import airflow_here
from topicshift.adapters.kafka import admin
from topicshift.core.doctor import (
    DAGS,
    MAY_BE_PAUSED,
    SETTINGS,
    Row,
    cluster_rows,
    dag_rows,
    overall,
    route_rows,
    settings_rows,
)
from topicshift.core.errors import Unreadable

GOOD = {key: str(most) for key, (most, _) in SETTINGS.items()}
UNPAUSED = {**dict.fromkeys(DAGS, False), **dict.fromkeys(MAY_BE_PAUSED, True)}


def verdicts(rows: Any) -> dict[str, str]:
    return {row.name: row.verdict for row in rows}


def test_the_verdict_is_the_worst_of_all() -> None:
    ok, bad, dark = (Row("a", "b", v, "") for v in ("ok", "not_ok", "unknown"))
    assert (overall([ok]), overall([ok, dark]), overall([dark, bad]), overall([])) == (
        "ok",
        "unknown",
        "not_ok",
        "unknown",
    )


def test_settings_that_lengthen_a_freeze() -> None:
    assert set(verdicts(settings_rows(GOOD)).values()) == {"ok"}
    slow, *_ = settings_rows({**GOOD, ("scheduler", "scheduler_idle_sleep_time"): "1"})
    assert slow.verdict == "not_ok" and slow.do == "Set AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME=0.2."
    assert set(verdicts(settings_rows({})).values()) == {"unknown"}


def test_dags() -> None:
    assert set(verdicts(dag_rows(UNPAUSED, {})).values()) == {"ok"}
    found = verdicts(dag_rows({**UNPAUSED, "topic_question": True}, {"topic_migration.py": "ImportError: x"}))
    assert (found["topic_question"], found["topic_migration.py"]) == ("not_ok", "not_ok")
    assert verdicts(dag_rows({}, {}))["topic_migration"] == "not_ok"


def test_rights_on_the_cluster() -> None:
    assert verdicts(cluster_rows(CLUSTER))["rights"] == "ok"
    less = replace(CLUSTER, authorized=frozenset({"DESCRIBE"}))
    assert verdicts(cluster_rows(less))["rights"] == "not_ok"
    assert verdicts(cluster_rows(replace(CLUSTER, authorized=None)))["rights"] == "unknown"
    assert verdicts(cluster_rows(replace(CLUSTER, authorizer=False)))["rights"] == "ok"


def test_topics_of_the_route() -> None:
    name = "__topicshift_routes"
    assert verdicts(route_rows({}, 3))[name] == "ok", "the first run makes it"
    (bad, _) = route_rows({name: topic(name, partitions=3)}, 3)
    assert bad.verdict == "not_ok" and "partitions is 3, not 1" in bad.seen


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """An installation that is as it should be; parts of it can be taken away."""
    jars, jobs = tmp_path / "jars", tmp_path / "jobs"
    for folder in (jars, jobs):
        folder.mkdir()
    (jars / "connector.jar").write_text("")
    for name in ("key_rehash_impact", "drain_verification", "order_proof"):
        (jobs / f"{name}.py").write_text("")
    for name, value in (("SPARK_JARS", jars), ("SPARK_JOBS", jobs), ("EVIDENCE", tmp_path / "e"), ("HOME", tmp_path)):
        monkeypatch.setenv(f"TOPICSHIFT_{name}", str(value))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    connections = {"kafka_default": SimpleNamespace(extra_dejson={"bootstrap.servers": "b:1"})}
    parts: dict[str, Any] = {"connections": connections, "dags": dict(UNPAUSED), "jars": jars}
    monkeypatch.setattr(airflow_here, "version", lambda: "3.3.2")
    monkeypatch.setattr(airflow_here, "dags", lambda: parts["dags"])
    monkeypatch.setattr(airflow_here, "import_errors", dict)
    monkeypatch.setattr(airflow_here, "plugin", lambda: "topicshift_plugin.py")
    monkeypatch.setattr(airflow_here, "setting", lambda s, k: GOOD.get((s, k), "LocalExecutor"))
    monkeypatch.setattr(airflow_here, "connection", connections.get)

    class Admin:
        def __init__(self, config: Any) -> None:
            self.config = config

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def cluster(self) -> Any:
            return CLUSTER

        def topic(self, _: str) -> None:
            return None

        def groups(self) -> list[Any]:
            return []

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    return parts


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = cli.run(["doctor", "--json", *words])
    found = json.loads(capsys.readouterr().out)
    return code, {f"{r['area']}: {r['name']}": r for r in found["rows"]}


def test_an_installation_as_it_should_be_is_ok(installation: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = doctor(capsys)
    assert code == 0, {name: r for name, r in rows.items() if r["verdict"] != "ok"}
    areas = {r["area"] for r in rows.values()}
    assert areas == {"airflow", "dags", "settings", "connections", "kafka", "journal", "evidence", "spark"}
    assert cli.run(["doctor"]) == 0
    assert "topic_migration" in capsys.readouterr().out


def test_what_is_wrong_says_what_to_do(installation: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installation["dags"]["topic_migration"] = True
    (installation["jars"] / "connector.jar").unlink()
    del installation["connections"]["kafka_default"]
    code, rows = doctor(capsys)
    assert code == 3
    wrong = {name: r["do"] for name, r in rows.items() if r["verdict"] == "not_ok"}
    assert set(wrong) == {"dags: topic_migration", "spark: jars", "connections: kafka_default", "kafka: cluster"}
    assert all(wrong.values())


def test_without_airflow_what_only_airflow_knows_is_unknown(
    installation: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> None:
        raise Unreadable("Airflow is not installed here")

    for name in ("version", "connection", "setting"):
        monkeypatch.setattr(airflow_here, name, missing)
    code, rows = doctor(capsys, "--bootstrap-server", "b:1")
    assert code == 4
    assert {r["verdict"] for r in rows.values()} == {"ok", "unknown"}
    assert rows["kafka: brokers"]["verdict"] == "ok" and rows["airflow: version"]["verdict"] == "unknown"


def test_a_journal_in_a_file_is_not_for_several_machines(
    installation: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(airflow_here, "setting", lambda s, k: GOOD.get((s, k), "CeleryExecutor"))
    code, rows = doctor(capsys)
    assert code == 3 and rows["journal: place"]["verdict"] == "not_ok"


def test_a_shell_that_is_no_installation_s_says_so_first_and_makes_no_home(tmp_path: Path) -> None:
    """In a process of its own: Airflow makes its home as it is imported."""
    env = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "TOPICSHIFT_"))} | {
        "HOME": str(tmp_path)
    }
    command = [sys.executable, "-m", "topicshift.cli", "doctor"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4, done.stderr
    assert "this shell is not an Airflow installation's" in done.stdout and ". build/up/env" in done.stdout
    assert "not ok" not in done.stdout and len(done.stdout.splitlines()) < 10
    assert list(tmp_path.iterdir()) == []
    home = tmp_path / "airflow"
    home.mkdir()
    (home / "airflow.cfg").touch()
    found = "from topicshift.adapters.airflow_here import missing; print(missing())"
    done = subprocess.run([sys.executable, "-c", found], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "None", done.stderr
