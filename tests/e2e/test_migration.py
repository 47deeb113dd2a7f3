"""The main job, end to end: a live topic is moved through a real scheduler, and the applications' own logs prove it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.small import Run

from lab.airflow_api import AirflowError
from lab.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

SPEC: dict[str, Any] = {
    "source": "payments",
    "partitions": 12,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger", "stored_offsets": "none"}],
}


def test_a_live_topic_is_moved_and_nothing_is_lost(tmp_path: Path) -> None:
    """The demo, ``drain_first``; ``producers_first`` is moved from the form in a browser (test_form.py)."""
    command = [sys.executable, "-m", "lab.demo", "--backlog", "20000"]
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


BAD: list[tuple[dict[str, Any], str]] = [
    ({"source": "paymnts"}, "does not exist"),
    ({"sorce": "payments"}, "Did you mean `source`"),
    ({"source": "bad/name"}, "no topic name"),
    ({"kafka_conn_id": "nowhere"}, "nowhere"),
    ({"cutover": "producers_first"}, "Trigger topic_migration_producers_first with the same values"),
]


def test_bad_input_gets_a_clear_error_and_leaves_nothing(stack: Stack) -> None:
    with pytest.raises(AirflowError, match="param partitions: 0 is less than the minimum of 1"):
        Run.start(stack.airflow, "topic_migration", {**SPEC, "partitions": 0})
    runs = [(Run.start(stack.airflow, "topic_migration", {**SPEC, **change}), said) for change, said in BAD]
    for run, said in runs:
        run.wait("failed")
        states = run.states()
        assert (states["plan.read_spec"], states["resume_on_source"]) == ("failed", "skipped")
        log = run.log("plan.read_spec")
        assert said in log and "Traceback" not in log
