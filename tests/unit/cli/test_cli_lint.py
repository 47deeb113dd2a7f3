"""`topicshift lint`: every problem of a spec is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.cli.parts import SPEC


def test_lint_of_good_specs(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yml").write_text(SPEC.format(source="orders"))
    (tmp_path / "notes.txt").write_text("no spec")
    code, out, err = run("lint", str(tmp_path))
    assert code == 0
    assert len(out.splitlines()) == 2
    assert "payments to payments-v2, 30 partitions, drain_first" in out
    assert "2 specs, 0 with problems" in err
    code, out, _ = run("lint", str(tmp_path / "a.yaml"), "--json")
    [told] = json.loads(out)["files"]
    assert (told["file"], told["ok"], told["problems"]) == (str(tmp_path / "a.yaml"), True, [])
    assert told["message"] in run("lint", str(tmp_path / "a.yaml"))[1], "a script is told what a person is told"


def test_lint_says_what_needs_no_cluster_to_be_known(tmp_path: Path, run: Any) -> None:
    many, internal = tmp_path / "many.yaml", tmp_path / "internal.yaml"
    consumers = ", ".join(f"{{name: c{i}, group: g{i}}}" for i in range(1025))
    many.write_text(SPEC.format(source="payments").replace("{name: ledger, kind: route, group: ledger}", consumers))
    code, out, _ = run("lint", str(many))
    assert code == 0
    assert "TS321 warning: consumers: 1,025 consumers" in out and "AIRFLOW__CORE__MAX_MAP_LENGTH" in out
    many.write_text(many.read_text().replace(", {name: c1024, group: g1024}", ""))
    assert "TS321" not in run("lint", str(many))[1]
    internal.write_text(SPEC.format(source="__consumer_offsets"))
    code, out, _ = run("lint", str(internal), "--json")
    (found,) = json.loads(out)["files"]
    assert (code, found["ok"], found["findings"][0]["code"]) == (3, False, "TS102")
    code, out, _ = run("lint", str(internal))
    assert code == 3 and "cannot run" in out and "TS102 error" in out


def test_lint_names_every_problem(tmp_path: Path, run: Any) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(SPEC.format(source="payments") + "cutovr: drain_first\nfreeze_budget: soon\n")
    code, out, _ = run("lint", str(bad))
    assert code == 2
    assert "cutovr" in out
    assert "cutover" in out
    assert "freeze_budget" in out
    code, out, _ = run("lint", str(bad), "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (2, False)
    assert {p["path"] for p in found["files"][0]["problems"]} == {"cutovr", "freeze_budget"}
    assert all(p["seen"] and p["do"] for p in found["files"][0]["problems"])


def test_lint_of_what_is_not_there(tmp_path: Path, run: Any) -> None:
    code, out, _ = run("lint", str(tmp_path / "nothing.yaml"))
    assert code == 2
    assert "nothing.yaml" in out
    (tmp_path / "empty").mkdir()
    code, out, err = run("lint", str(tmp_path / "empty"))
    assert (code, out) == (2, "")
    assert "no .yaml file" in err


def test_lint_finds_two_specs_for_one_topic(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.yaml").write_text(SPEC.format(source="payments"))
    (tmp_path / "b.yaml").write_text(SPEC.format(source="payments").replace("target: payments-v2", "target: other"))
    code, out, _ = run("lint", str(tmp_path))
    assert code == 2
    assert "payments is also a topic of" in out
