"""What `topicshift plan` and `topicshift status` say of a rehearsal."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.parts import SPEC, Admin
from tests.unit.plan_world import world

from topicshift.adapters.journal import SqlJournal
from topicshift.core.rehearsal import shadow_spec
from topicshift.core.spec.io import load_spec


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    found = tmp_path / "spec.yaml"
    found.write_text(SPEC.format(source="payments") + "mode: rehearse\n")
    return found


def test_plan_says_that_a_rehearsal_touches_nothing_and_is_judged_as_its_migration(
    spec: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.acts import plan as steps_plan
    from topicshift.adapters.kafka import admin

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(steps_plan, "take_snapshot", lambda *_, **given: world(no_impact=given["no_impact"]))
    _, out, _ = run("plan", str(spec), "--bootstrap-server", "b:1", "--without-impact")
    assert "payments to payments-v2" in out
    assert "a rehearsal: these steps run on shadow topics that are deleted at its end" in out
    assert "blocks its rehearsal too" in out


@pytest.mark.parametrize(
    ("state", "waits"),
    [("open", ""), ("rehearsed", "nothing: it is over, and its shadow is deleted"), ("failed", "")],
)
def test_status_names_the_topic_that_is_rehearsed(spec: Path, tmp_path: Path, run: Any, state: str, waits: str) -> None:
    shadow = shadow_spec(load_spec(spec), "payments-v2", "0a1b2c3d")
    with closing(SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")) as journal:
        claim = journal.claim(
            cluster_id="c",
            source=shadow.source,
            target=str(shadow.target),
            owner="topic_migration/manual__1",
            spec=shadow.model_dump(mode="json"),
            owner_alive=lambda _: True,
        )
        if state != "open":
            journal.set_state(claim, state, active=False)
    [one] = json.loads(run("status", "--all", "--json")[1])["migrations"]
    assert (one["state"], one["rehearses"]) == (state, "payments")
    assert waits in one["waits_for"]
    if state != "open":
        assert one["rollback"] == {"type": "free", "why": "it was a rehearsal, and has moved nothing"}
    code, out, _ = run("status", claim.migration_id)
    assert code == 0
    assert "rehearsal of" in out and "payments" in out and state in out
