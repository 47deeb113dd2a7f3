"""The main job, end to end: a live topic is moved through a real scheduler, and the applications' own logs prove it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from topicshift.testing.airflow_api import AirflowError
from topicshift.testing.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]

SPEC: dict[str, Any] = {
    "source": "payments",
    "partitions": 12,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_live_topic_is_moved_and_nothing_is_lost(cutover: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "topicshift.testing.demo", "--cutover", cutover, "--backlog", "20000"]
    command += ["--run-folder", str(tmp_path / "run"), "--timeout", "600"]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["ok"]
    assert set(summary["groups"]) == {"ledger", "fraud", "search"}
    for group in summary["groups"].values():
        assert (group["lost"], group["duplicated"], group["out_of_order"]) == (0, 0, 0)
        assert group["processed"] == summary["sent"] > 20_000
    assert (summary["source_partitions"], summary["target_partitions"]) == (6, 30)
    assert summary["sent_by_topic"]["payments-v2"] > 0, "producers must have gone on with the target"
    assert 0 < summary["freeze_seconds"] < 120
    names = [s["name"] for s in summary["steps"]]
    assert names[0] == "plan" and names[-1] == "verify"
    evidence = next((tmp_path / "run" / "topicshift" / "evidence").iterdir())
    files = {p.name for p in evidence.iterdir()}
    assert {"plan.json", "impact.json", "impact.html", "fence.json", "order_proof.json"} <= files
    assert {"audit.jsonl", "report.html"} <= files
    for path in evidence.iterdir():
        text = path.read_text(errors="replace")
        for secret in (tmp_path / "run" / "clients").glob("*.properties"):
            password = secret.read_text().split('password="')[1].split('"')[0]
            assert password not in text, f"{path.name} holds a secret"


@pytest.mark.parametrize(
    ("change", "task", "said"),
    [
        ({"source": "paymnts"}, "plan.read_spec", "does not exist"),
        ({"sorce": "payments"}, "plan.read_spec", "Did you mean `source`"),
        ({"source": "bad/name"}, "plan.read_spec", "no topic name"),
        ({"kafka_conn_id": "nowhere"}, "plan.read_spec", "nowhere"),
    ],
)
def test_bad_input_gets_a_clear_error_and_leaves_nothing(
    stack: Stack, change: dict[str, Any], task: str, said: str
) -> None:
    api = stack.airflow
    try:
        run_id = api.trigger("topic_migration", {**SPEC, **change})
    except AirflowError as refused:
        # The form's own schema may say it first.
        assert refused.status == 400
        return
    assert api.wait_run("topic_migration", run_id, timeout=120)["state"] == "failed"
    states = api.task_states("topic_migration", run_id)
    assert states[task] == "failed"
    assert states["give_back"] == "skipped"
    assert said in api.task_log("topic_migration", run_id, task)
    assert "Traceback" not in api.task_log("topic_migration", run_id, task)
