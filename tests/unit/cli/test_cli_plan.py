"""`topicshift plan`: actions, findings and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.parts import SPEC, Admin
from tests.unit.plan_world import world

from topicshift.core.findings import Finding, Level


def _finding(level: Level, *, unknown: bool = False) -> Finding:
    return Finding(
        code="TS101",
        level=level,
        subject="consumers[0].group",
        seen="[red]group ledger was not found",
        why="It would lose records.",
        do="Correct the name.",
        unknown=unknown,
    )


@pytest.mark.parametrize(
    ("findings", "wanted"),
    [
        ([], 0),
        ([_finding(Level.WARNING), _finding(Level.INFO)], 0),
        ([_finding(Level.ERROR)], 3),
        ([_finding(Level.ERROR), _finding(Level.INFO, unknown=True)], 4),
    ],
)
def test_plan_prints_actions_and_findings(
    findings: list[Finding], wanted: int, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.acts import plan as steps_plan
    from topicshift.adapters.kafka import admin
    from topicshift.core.plan.model import Action, Plan, SourceFacts, TargetShape

    def make_plan(spec: Any, admin: Any, **_: Any) -> Plan:
        shape = {"partitions": 6, "replication_factor": 1, "configs": {}}
        return Plan(
            taken_at="2026-01-01T00:00:00+00:00",
            cluster_id="c",
            spec=spec,
            source=SourceFacts(name=spec.source, topic_id="t", **shape),
            target=TargetShape(name=spec.target, acls=[], **{**shape, "partitions": 30}),
            findings=findings,
            actions=[Action(step="create_target", text="create payments-v2: 30 partitions")],
            plan_hash="ab" * 32,
        )

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(steps_plan, "make_plan", make_plan)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    before = Admin.closed
    code, out, err = run("plan", str(spec), "--bootstrap-server", "b:1")
    assert code == wanted
    assert "payments to payments-v2: 6 to 30 partitions" in out
    assert "create payments-v2: 30 partitions" in out
    assert out.count("TS101") == len(findings)
    assert out.count("[red]group ledger was not found") == len(findings)
    assert ("ok: nothing blocks" in out) == (wanted == 0)
    assert err == ""
    code, out, _ = run("plan", str(spec), "--bootstrap-server", "b:1", "--json")
    assert code == wanted
    assert json.loads(out)["plan_hash"] == "ab" * 32
    assert Admin.closed == before + 2


@pytest.mark.parametrize(("options", "wanted"), [((), 4), (("--without-impact",), 0)])
def test_keys_that_nobody_measured_are_unknown_unless_they_need_not_be_known(
    options: tuple[str, ...], wanted: int, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.acts import plan as steps_plan
    from topicshift.adapters.kafka import admin

    def take_snapshot(*_: Any, **given: Any) -> Any:
        return world(**{name: given[name] for name in ("impact", "no_impact")})

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(steps_plan, "take_snapshot", take_snapshot)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    code, out, _ = run("plan", str(spec), "--bootstrap-server", "b:1", "--json", *options)
    assert code == wanted, out
    (finding,) = [f for f in json.loads(out)["findings"] if f["code"] == "TS401"]
    assert finding["unknown"] is (wanted == 4)
    code, out, err = run("plan", str(spec), "--bootstrap-server", "b:1", *options)
    assert code == wanted
    assert ("--without-impact" in err) is (wanted == 4)
    assert ("TS401 unknown" in out) is (wanted == 4)


def test_a_source_that_is_not_there_is_a_plain_no(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are not unknown: there are none."""
    from topicshift.acts import plan as steps_plan
    from topicshift.adapters.kafka import admin

    gone: dict[str, Any] = {"source": None, "topics": frozenset({"orders"}), "offsets": None, "impact": None}
    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(steps_plan, "take_snapshot", lambda *_, **__: world(**gone))
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    code, out, _ = run("plan", str(spec), "--bootstrap-server", "b:1")
    assert "TS101" in out and "TS401" not in out
    assert code == 3, out


def test_only_the_command_speaks_of_its_own_options(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding is read in Airflow as well, where there is no option to give."""
    from topicshift.acts import plan as acts_plan
    from topicshift.adapters.kafka import admin

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(acts_plan, "take_snapshot", lambda *_, **__: world(impact=None, journalled=False))
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    _, out, err = run("plan", str(spec), "--bootstrap-server", "b:1", "--json")
    advice = {f["code"]: f"{f['seen']} {f['why']} {f['do']}" for f in json.loads(out)["findings"]}
    assert {"TS118", "TS401"} <= set(advice)
    assert not [code for code, text in advice.items() if " --" in text]
    assert "TS118: give the journal that Airflow uses with --journal URL" in err
    assert "--without-impact" in err


def test_an_impact_and_none_contradict_each_other(tmp_path: Path, run: Any) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(source="payments"))
    options = ("--impact", str(spec), "--without-impact", "--bootstrap-server", "b:1")
    code, _, err = run("plan", str(spec), *options)
    assert code == 2
    assert "contradict" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("x", "not JSON"),
        ("[1]", "no JSON object"),
        ('{"topic": "payments", "top_keys": 3}', "top_keys: Input should be a valid list"),
        ('{"topic": "payments", "records": "many"}', "records: Input should be a valid integer"),
        ('{"topic": "payments", "candidates": [{}]}', "candidates.0.partitions: Field required"),
    ],
)
def test_plan_refuses_an_impact_that_is_none(content: str | None, said: str, tmp_path: Path, run: Any) -> None:
    spec, impact = tmp_path / "spec.yaml", tmp_path / "impact.json"
    spec.write_text(SPEC.format(source="payments"))
    if content is not None:
        impact.write_text(content)
    code, _, err = run("plan", str(spec), "--impact", str(impact), "--bootstrap-server", "b:1")
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("listed", "location", "refused"),
    [
        ("", "/etc/passwd", True),
        ("", "http://169.254.169.254/latest", True),
        ("/ck-v2", "/ck-v2/../etc/passwd", True),
        ("/ck-v2", "/ck-v2-evil/a", True),
        ("s3://ck/v2", "s3://ck/v2-evil/a", True),
        ("/ck-v2", "/ck-v2/a", False),
    ],
)
def test_a_place_that_a_dag_would_not_open_is_said(
    listed: str, location: str, refused: bool, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.acts import plan as steps_plan
    from topicshift.adapters.kafka import admin
    from topicshift.core.plan.model import make_plan

    monkeypatch.setattr(admin, "KafkaAdmin", Admin)
    monkeypatch.setattr(steps_plan, "make_plan", lambda spec, *_, **__: make_plan(spec, world()))
    monkeypatch.setenv("TOPICSHIFT_READER_LOCATIONS", listed)
    file = tmp_path / "spec.yaml"
    reader = f"readers: [{{name: enrich, kind: evidence_file, location: '{location}'}}]\n"
    file.write_text(SPEC.format(source="payments") + reader)
    _, _, err = run("plan", str(file), "--bootstrap-server", "b:1")
    assert (f"readers[0].location of enrich: {location} may not be opened" in err) is refused, err
