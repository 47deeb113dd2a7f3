"""The impact task of the migration: what it asks of the job, and what the audit trail says of shown keys."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift_airflow.operators.jobs import KeyRehashImpact


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
