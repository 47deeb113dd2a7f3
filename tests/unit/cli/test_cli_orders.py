"""`topicshift pause`, `postpone`, `abort`: what they say first, what they write, and their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from tests.unit.cli.parts import SPEC, claimed

from topicshift.adapters.journal import SqlJournal
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim

WHERE = ("--bootstrap-server", "localhost:1")


@pytest.fixture
def claim(journal: SqlJournal) -> Claim:
    spec = yaml.safe_load(SPEC.format(source="payments"))
    spec |= {"window": {"cron": "0 2 * * SUN", "timezone": "Europe/Berlin", "duration": "2h"}}
    spec["producers"][0]["kind"] = spec["consumers"][0]["kind"] = "manual"
    return claimed(journal, spec=Spec.model_validate(spec).model_dump(mode="json"))


def state(journal: SqlJournal, claim: Claim, row: str) -> str | None:
    found = journal.step(claim.migration_id, row)
    return found.state if found is not None else None


def test_a_pause_says_what_it_does_and_is_seen_in_the_status(journal: SqlJournal, claim: Claim, run: Any) -> None:
    code, out, _ = run("pause", "payments", "--what", *WHERE)
    assert code == 0
    assert "would do: nothing new is begun" in out
    assert state(journal, claim, "pause") is None
    code, out, err = run("pause", "payments", "--reason", "an audit", *WHERE)
    assert code == 0
    assert out.strip() == f"{claim.migration_id}: paused"
    assert "nothing new is begun" in err
    assert state(journal, claim, "pause") == "intended"
    [one] = json.loads(run("status", "payments", "--json")[1])["migrations"]
    assert "paused by os:" in one["waits_for"] and "an audit" in one["waits_for"]
    code, out, _ = run("advance", "payments", "--what", "--json", *WHERE)
    assert json.loads(out)["rule"] == "pause_kept"
    code, out, _ = run("pause", "payments", "--off", "--json", *WHERE)
    assert json.loads(out) == {"migration": claim.migration_id, "paused": False}
    assert state(journal, claim, "pause") == "undone"


def test_a_pause_in_a_freeze_is_refused_with_the_way_out(journal: SqlJournal, claim: Claim, run: Any) -> None:
    now = datetime.now(UTC)
    times = {"started_at": now, "act_until": now + timedelta(seconds=100), "lease_until": now + timedelta(seconds=120)}
    journal.intend(claim, "freeze", {k: v.isoformat() for k, v in times.items()})
    code, out, _ = run("pause", "payments", "--what", "--json", *WHERE)
    assert code == 3
    assert "resume-on-source" in json.loads(out)["cannot"]
    code, _, err = run("pause", "payments", *WHERE)
    assert code == 3
    assert "resume-on-source" in err and "Nothing was changed" in err


def test_a_freeze_is_postponed_to_a_time_or_the_next_window(journal: SqlJournal, claim: Claim, run: Any) -> None:
    code, out, _ = run("postpone", "payments", "--until", "2099-01-01T02:00+01:00", "--json", *WHERE)
    assert (code, json.loads(out)["postponed_until"]) == (0, "2099-01-01T01:00:00+00:00")
    code, out, _ = run("postpone", "payments", "--next-window", "--json", *WHERE)
    until = datetime.fromisoformat(json.loads(out)["postponed_until"])
    assert until > datetime.now(UTC)
    step = journal.step(claim.migration_id, "postpone")
    assert step is not None and step.data["until"] == until.isoformat(), "the later word counts"
    assert run("postpone", "payments", "--off", *WHERE)[0] == 0
    assert state(journal, claim, "postpone") == "undone"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--until", "tomorrow"], 2, "is no time"),
        (["--until", "2099-01-01T02:00"], 2, "names no time zone"),
        (["--until", "2020-01-01T02:00Z"], 3, "is over"),
        ([], 2, "Give one of"),
        (["--off", "--next-window"], 2, "Give one of"),
    ],
)
def test_a_postponement_that_makes_no_sense_is_refused(
    words: list[str], code: int, said: str, journal: SqlJournal, claim: Claim, run: Any
) -> None:
    found, _, err = run("postpone", "payments", *words, *WHERE)
    assert (found, state(journal, claim, "postpone")) == (code, None)
    assert said in err


def test_an_abort_before_anything_was_changed_asks_and_ends_it(journal: SqlJournal, claim: Claim, run: Any) -> None:
    code, out, _ = run("abort", "payments", "--reason", "x", "--what", *WHERE)
    assert code == 0
    assert "nothing was changed yet" in out
    code, _, err = run("abort", "payments", "--reason", "x", *WHERE)
    assert code == 2
    assert "--yes" in err
    assert journal.current(claim.migration_id).state == "open"
    code, out, _ = run("abort", "payments", "--reason", "x", "--yes", *WHERE)
    assert code == 0, out
    assert journal.current(claim.migration_id).state == "failed"
    code, _, err = run("abort", "payments", "--reason", "x", "--yes", *WHERE)
    assert code == 3
    assert "has ended already" in err


@pytest.mark.parametrize("command", ["abort", "close", "pause", "postpone", "replay", "rollback"])
def test_an_empty_reason_is_none(command: str, run: Any) -> None:
    code, _, err = run(command, "payments", "--reason", " ")
    assert code == 2 and "it is empty. Say why" in err
