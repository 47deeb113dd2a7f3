"""The impact task of the migration: what it asks of the job, and what the audit trail says of shown keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.unit.airflow_world import Airflow

from topicshift.core.engine.words import Act, Step
from topicshift_airflow.operators.jobs import KeyRehashImpact


@pytest.mark.parametrize("shown", [False, True])
def test_shown_keys_are_written_to_the_audit_trail_before_the_job_runs(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    airflow = Airflow(monkeypatch)
    task = KeyRehashImpact(task_id="t", show_keys=shown)
    with pytest.raises(AirflowFailException, match="measure_impact is not what comes next"):
        task.before(airflow.context(task))
    airflow.until(Step.PLAN, leave=frozenset({Act.MEASURE_IMPACT}))
    task.before(airflow.context(task))
    arguments = task.arguments({})
    assert arguments[:4] == ["--topic", "payments", "--candidates", "6,9,12,15"]
    groups = json.loads(Path(arguments[arguments.index("--groups-file") + 1]).read_text())
    assert groups == {g: {"0": 10, "1": 10, "2": 10} for g in ("ledger-g", "fraud-g")}
    assert ("--show-keys" in arguments) is shown
    assert len(airflow.world.events("keys_shown")) == shown
    assert task.facts({"measured": {"keys_shown": shown}})["keys_shown"] is shown


def test_a_result_that_is_there_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.until(Step.PLAN)
    task = KeyRehashImpact(task_id="t")
    monkeypatch.setattr(task, "_submit", lambda *_: pytest.fail("it is there"))
    assert task.execute(airflow.context(task)) is None, "skipped, it would skip everything after it"
