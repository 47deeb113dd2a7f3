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
        "topic_assessment",
        "topic_rollback",
        "topic_give_back",
        "topic_retirement",
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


def _upstream(dag: Any, task_id: str) -> set[str]:
    seen: set[str] = set()
    todo = [task_id]
    while todo:
        for up in dag["tasks"][todo.pop()]["up"]:
            if up not in seen:
                seen.add(up)
                todo.append(up)
    return seen


def test_the_steps_follow_each_other_as_in_the_runbook(parsed: Any) -> None:
    dag = parsed["dags"]["topic_migration"]
    order = [
        "plan.read_spec",
        "plan.check",
        "plan.key_rehash_impact",
        "plan.decide",
        "approve.plan",
        "create_target.create",
        "stop_producers.transactions",
        "stop_producers.ready",
        "stop_producers.fence",
        "drain.certificate",
        "verify_drain.confirm",
        "switch_producers.switch",
        "switch_consumers.switch",
        "verify.order_proof",
        "verify.report",
    ]
    for before, after in itertools.pairwise(order):
        assert before in _upstream(dag, after), f"{before} must precede {after}"
    assert "switch_producers.by_hand" in _upstream(dag, "verify.order_proof")
    armed = dag["tasks"]["verify_drain.drain_verification"]["up"]
    assert armed == ["create_target.create"], "the verifier is started before the fence, not after it"


def test_no_group_is_switched_before_its_own_certificate(parsed: Any) -> None:
    for dag_id, prefix in (("topic_migration", "producers_first."), ("topic_migration__weekly", "producers_first.")):
        dag = parsed["dags"][dag_id]
        up = _upstream(dag, f"{prefix}switch_consumers.switch")
        assert {f"{prefix}drain.certificate", f"{prefix}verify_drain.confirm", "stop_producers.fence"} <= up
        assert f"{prefix}drain.certificate" not in _upstream(dag, f"{prefix}switch_producers.switch")


def test_whatever_fails_inside_the_freeze_gives_producers_back(parsed: Any) -> None:
    dag = parsed["dags"]["topic_migration"]
    give_back = dag["tasks"]["give_back"]
    assert give_back["rule"] == "one_failed"
    frozen = {
        "stop_producers.fence",
        "drain.certificate",
        "verify_drain.confirm",
        "switch_producers.switch",
        "switch_producers.by_hand",
        "producers_first.switch_producers.switch",
        "producers_first.switch_producers.by_hand",
    }
    assert frozen <= set(give_back["up"])
    rules = {t["rule"] for t in dag["tasks"].values()}
    assert "all_done" not in rules, "an all_done leaf makes a run green over failed tasks"


def test_the_order_that_is_not_chosen_costs_no_task_inside_the_freeze(parsed: Any) -> None:
    tasks = parsed["dags"]["topic_migration"]["tasks"]
    firsts = {"drain.certificate", "producers_first.switch_producers.switch"}
    loose = {t for t, facts in tasks.items() if facts["rule"] != "all_success"}
    assert loose == {"verify.order_proof", "give_back"}
    assert all(tasks[t]["up"] == ["stop_producers.fence"] for t in firsts)


def test_spark_runs_as_spark_submit_tasks(parsed: Any) -> None:
    tasks = parsed["dags"]["topic_migration"]["tasks"]
    spark = {t for t, facts in tasks.items() if facts["operator"] == "SparkSubmitOperator"}
    assert spark == {
        "plan.key_rehash_impact",
        "verify_drain.drain_verification",
        "producers_first.verify_drain.drain_verification",
        "verify.order_proof",
    }


def test_a_spec_with_a_window_is_scheduled_and_only_that(parsed: Any) -> None:
    dags = parsed["dags"]
    assert "Cron" in dags["topic_migration__weekly"]["timetable"]
    assert "Null" in dags["topic_migration"]["timetable"]
    assert set(dags["topic_migration__wrong"]["tasks"]) == {"read_spec"}
    assert "drain.certificate" not in dags["topic_migration__weekly"]["tasks"]


def test_the_form_has_the_fields_of_a_spec(parsed: Any) -> None:
    assert {"spec_file", "source", "target", "cutover", "producers", "consumers"} <= set(
        parsed["dags"]["topic_migration"]["params"]
    )


def test_a_failed_retirement_cannot_leave_its_run_green(parsed: Any) -> None:
    tasks = parsed["dags"]["topic_retirement"]["tasks"]
    leaves = set(tasks) - {up for task in tasks.values() for up in task["up"]}
    assert leaves == {"finished"}, "a run is as good as its last tasks"
    assert "retire.delete" in tasks["finished"]["up"] and tasks["finished"]["rule"] == "none_failed"
