"""The impact task of the migration: what it asks of the job, and what the audit trail says of shown keys."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.impact_sample import impact
from tests.unit.plan_world import spec, topic, world

from topicshift.core.plan.model import make_plan
from topicshift_airflow.operators.jobs import KeyRehashImpact
from topicshift_airflow.operators.plan import write_sized_report


@pytest.mark.parametrize("shown", [False, True])
def test_shown_keys_are_written_to_the_audit_trail_before_the_job_runs(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    events: list[tuple[str, dict[str, Any]]] = []
    run: Any = SimpleNamespace(
        row=SimpleNamespace(source="payments", migration_id="m1"),
        spec=SimpleNamespace(consumers=[SimpleNamespace(group="ledger")]),
        admin=SimpleNamespace(
            topic=lambda _: SimpleNamespace(replicas={0: [1], 1: [1]}),
            commits=lambda *_: {"ledger": SimpleNamespace(error=None, errors={}, offsets={0: 5, 1: None})},
        ),
        event=lambda kind, data: events.append((kind, dict(data))),
    )
    ti = SimpleNamespace(try_number=1, xcom_pull=lambda **_: {"candidates": "12,24"})
    task = KeyRehashImpact(task_id="t", candidates_from="plan.check", show_keys=shown)
    arguments = task.prepare(run, {"ti": ti})
    assert arguments[:4] == ["--topic", "payments", "--candidates", "12,24"]
    assert ("--show-keys" in arguments) is shown
    assert [kind for kind, _ in events] == (["keys_shown"] if shown else [])
    assert not shown or events[0][1]["topic"] == "payments"
    assert task.facts({"measured": {"keys_shown": shown}})["keys_shown"] is shown


def test_the_report_takes_the_count_that_the_plan_works_out_from_rates() -> None:
    """The job knows the keys alone; the spec's rates ask for another count than the skew does."""
    report = impact().to_json()
    written: dict[str, str] = {}
    rates = {"throughput": 100_000, "per_consumer": 9_000}
    found = world(source=topic(partitions=6), impact=report)
    write_sized_report(make_plan(spec(), found), report, written.__setitem__)
    assert written == {}, "a plain number says nothing of rates"
    plan = make_plan(spec(partitions=rates), found)
    write_sized_report(plan, report, written.__setitem__)
    assert plan.sizing is not None
    page = written["impact.html"]
    assert f"<b>{plan.sizing.recommended}</b>" in page and "records/s over 9,000" in page
    assert "This weighs skew alone" not in page
    written.clear()
    write_sized_report(plan, {"no": "report"}, written.__setitem__)
    assert written == {}
