"""Every DAG file parses, within its budget of imports, and reads as the runbook does."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("confluent_kafka", "kafka", "pyspark", "pandas", "numpy", "pyarrow", "plotly", "alembic", "fsspec", "py4j")
ALLOWED_PROVIDERS = ("airflow.providers.standard", "airflow.providers.common")

PROBE = """
import importlib.util, json, sys
import airflow.sdk.execution_time.task_runner  # what each task has loaded before it parses its DAG file
from airflow.sdk import DAG
before = set(sys.modules)
out = {}
for path in sys.argv[1:]:
    name = path.rsplit("/", 1)[-1][:-3]
    spec = importlib.util.spec_from_file_location("dag_" + name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for dag in {id(v): v for v in vars(module).values() if isinstance(v, DAG)}.values():
        out[dag.dag_id] = {
            "tasks": {
                t.task_id: {
                    "up": sorted(t.upstream_task_ids),
                    "doc": bool(t.doc_md),
                    "rule": str(getattr(t.trigger_rule, "value", t.trigger_rule)),
                    "retries": t.retries,
                    "operator": getattr(t, "operator_name", type(t).__name__),
                }
                for t in dag.tasks
            },
            "doc": bool(dag.doc_md),
            "catchup": dag.catchup,
            "timetable": type(dag.timetable).__name__,
            "every": str(getattr(dag.timetable, "delta", getattr(dag.timetable, "_delta", ""))),
            "params": list(dag.params),
        }
print(json.dumps({"dags": out, "modules": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All DAG files, parsed in a process of their own."""
    specs = tmp_path_factory.mktemp("specs")
    (specs / "weekly.yaml").write_text(
        "source: clicks\npartitions: 12\nwindow: {cron: '0 2 * * SUN', timezone: Europe/Berlin}\n"
        "cutover: producers_first\nproducers: [{name: a}]\nconsumers: [{name: b, group: b}]\n"
    )
    (specs / "byhand.yaml").write_text(
        "source: hand\npartitions: 12\nproducers: [{name: a}]\nconsumers: [{name: b, group: b}]\n"
    )
    (specs / "wrong.yaml").write_text("sorce: x\n")
    files = sorted(str(p) for p in (ROOT / "dags").glob("*.py"))
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT / 'plugins'}",
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "TOPICSHIFT_SPECS": str(specs),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *files], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_dag_is_there(parsed: Any) -> None:
    assert set(parsed["dags"]) == {
        "topic_migration",
        "topic_migration_producers_first",
        "topic_assessment",
        "topic_rollback",
        "topic_resume_on_source",
        "topic_question",
        "topic_control",
        "topic_doctor",
        "topic_retirement",
        "topic_source_watch",
        "topic_migration__weekly",
        "topic_migration__wrong",
    }


def test_nothing_heavy_is_imported_at_the_top_of_a_dag_file(parsed: Any) -> None:
    heavy = [m for m in parsed["modules"] if m.split(".")[0] in HEAVY]
    assert heavy == []
    providers = [
        m for m in parsed["modules"] if m.startswith("airflow.providers.") and not m.startswith(ALLOWED_PROVIDERS)
    ]
    assert providers == []
    ours = [m for m in parsed["modules"] if m.startswith(("topicshift.adapters", "topicshift.reporting"))]
    assert ours == []


def test_every_dag_and_task_is_documented(parsed: Any) -> None:
    for dag_id, dag in parsed["dags"].items():
        assert dag["doc"], dag_id
        assert not dag["catchup"], dag_id
        if dag_id == "topic_migration__wrong":
            continue
        for task_id, task in dag["tasks"].items():
            assert task["doc"], f"{dag_id}.{task_id}"


HEAD = [
    "plan.read_spec",
    "plan.check",
    "plan.key_rehash_impact",
    "plan.decide",
    "approve.plan",
    "create_target.create",
    "stop_producers.transactions",
    "stop_producers.ready",
    "stop_producers.go",
    "stop_producers.fence",
]
DRAIN = ["drain.certificate", "verify_drain.confirm"]
SWITCH = ["switch_producers.switch", "switch_producers.by_hand"]
TAIL = ["switch_consumers.switch", "verify.order_proof", "verify.report"]
LINES = {
    "topic_migration": [*HEAD, *DRAIN, *SWITCH, *TAIL],
    "topic_migration_producers_first": [*HEAD, *SWITCH, *DRAIN, *TAIL],
}
LINES["topic_migration__weekly"] = LINES["topic_migration_producers_first"]


@pytest.mark.parametrize("dag_id", LINES)
def test_a_migration_reads_as_one_line(parsed: Any, dag_id: str) -> None:
    """No branch of the other order, and nothing beside the line but the armed verifier and the way back."""
    tasks = parsed["dags"][dag_id]["tasks"]
    line = LINES[dag_id]
    beside = {"verify_drain.drain_verification", "resume_on_source"}
    assert set(tasks) == {*line, *beside}
    for before, after in itertools.pairwise(line):
        assert set(tasks[after]["up"]) - beside - {"plan.read_spec"} == {before} - {"plan.read_spec"}
        assert before in tasks[after]["up"]
    armed = tasks["verify_drain.drain_verification"]
    assert armed["up"] == ["create_target.create"], "the verifier is started before the fence, not after it"
    downs = [task for task, facts in tasks.items() if "verify_drain.drain_verification" in facts["up"]]
    assert downs == ["verify.order_proof"], "nobody in the freeze waits until its driver has ended"


@pytest.mark.parametrize("dag_id", LINES)
def test_when_a_task_of_the_freeze_fails_producers_resume_on_the_source(parsed: Any, dag_id: str) -> None:
    tasks = parsed["dags"][dag_id]["tasks"]
    back = tasks["resume_on_source"]
    assert back["rule"] == "one_failed"
    line = LINES[dag_id]
    frozen = line[line.index("stop_producers.fence") : line.index("switch_producers.by_hand") + 1]
    assert set(back["up"]) == set(frozen)
    loose = {t for t, facts in tasks.items() if facts["rule"] != "all_success"}
    assert loose == {"verify.order_proof", "resume_on_source"}
    assert "all_done" not in {t["rule"] for t in tasks.values()}, "an all_done leaf makes a run green over failed tasks"


def test_spark_runs_as_spark_submit_tasks(parsed: Any) -> None:
    for dag_id in LINES:
        tasks = parsed["dags"][dag_id]["tasks"]
        spark = {t for t, facts in tasks.items() if facts["operator"] == "SparkSubmitOperator"}
        assert spark == {"plan.key_rehash_impact", "verify_drain.drain_verification", "verify.order_proof"}


def test_the_watch_over_freezes_runs_seldom_by_itself(parsed: Any) -> None:
    """While nothing is moved: each run of it is a task that looks at one table and is skipped."""
    every = parsed["dags"]["topic_resume_on_source"]["every"]
    assert every == "0:15:00", "96 runs a day; a migration that goes towards its freeze has a run of its own"


def test_a_spec_with_a_window_is_scheduled_and_only_that(parsed: Any) -> None:
    dags = parsed["dags"]
    assert "Cron" in dags["topic_migration__weekly"]["timetable"]
    assert "Null" in dags["topic_migration"]["timetable"]
    assert set(dags["topic_migration__wrong"]["tasks"]) == {"read_spec"}


def test_the_form_has_the_fields_of_a_spec(parsed: Any) -> None:
    for dag_id in ("topic_migration", "topic_migration_producers_first"):
        params = set(parsed["dags"][dag_id]["params"])
        assert {"spec_file", "source", "target", "producers", "consumers"} <= params
        assert "cutover" not in params, "the DAG is the order"
    assert "cutover" in parsed["dags"]["topic_assessment"]["params"]


@pytest.mark.parametrize("dag_id", ["topic_migration", "topic_migration_producers_first"])
def test_a_failed_step_cannot_leave_a_migrations_run_green(parsed: Any, dag_id: str) -> None:
    tasks = parsed["dags"][dag_id]["tasks"]
    leaves = set(tasks) - {up for task in tasks.values() for up in task["up"]}
    assert {name: tasks[name]["rule"] for name in leaves} == {
        "verify.report": "all_success",
        "resume_on_source": "one_failed",
    }


def test_a_failed_retirement_cannot_leave_its_run_green(parsed: Any) -> None:
    tasks = parsed["dags"]["topic_retirement"]["tasks"]
    leaves = set(tasks) - {up for task in tasks.values() for up in task["up"]}
    assert leaves == {"finished"}, "a run is as good as its last tasks"
    assert "retire.delete" in tasks["finished"]["up"] and tasks["finished"]["rule"] == "none_failed"
