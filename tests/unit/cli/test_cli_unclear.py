"""`topicshift status` with a migration that this version does not understand: by name, unknown, and hiding no other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.cli.parts import claimed
from tests.unit.page_world import change

from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.tables import migrations, steps

FREEZE = {"started_at": "2026-01-01T00:00:00+00:00", "lease_until": "2026-01-01T00:02:00+00:00"}
BROKEN: list[tuple[Any, dict[str, str], str]] = [
    (migrations, {"state": "hovering"}, "its state 'hovering'"),
    (migrations, {"spec": '{"cutover": "sideways"}'}, "its order of the cut-over 'sideways'"),
    (migrations, {"spec": "[]"}, "does not understand (AttributeError"),
    (migrations, {"spec": "{"}, "its spec is no JSON"),
    (steps, {"state": "wobbling"}, "the state 'wobbling' of its step freeze"),
    (steps, {"data": "no JSON"}, "the data of its step freeze is no JSON"),
    (steps, {"data": '{"freeze": "long ago"}'}, "does not understand (KeyError"),
]


@pytest.fixture(params=BROKEN, ids=[said for _, _, said in BROKEN])
def unclear(request: pytest.FixtureRequest, journal: SqlJournal) -> tuple[str, str, str]:
    """A migration of ``refunds`` that is not understood, with why, beside one of ``payments``; the latter's id."""
    table, changes, said = request.param
    other, good = claimed(journal, "refunds"), claimed(journal, "payments")
    journal.intend(other, "freeze", {**FREEZE, "act_until": FREEZE["lease_until"]})
    change(journal, table, table.c.migration_id == other.migration_id, **changes)
    return other.migration_id, said, good.migration_id


def test_it_is_unknown_by_name_with_the_reason_and_exit_code_4(unclear: tuple[str, str, str], run: Any) -> None:
    name, said, good = unclear
    for words in (["status"], ["status", "--all"], ["status", "refunds"], ["status", name]):
        code, out, err = run(*words)
        assert (code, "unknown" in out) == (4, True), words
        assert f"{name}: not understood: " in err and said in err
        assert (good in out) == (len(words) == 1 or words[1] == "--all"), "it hides no other, and is no other"
    code, out, _ = run("status", "--json")
    found = {m["migration"]: m for m in json.loads(out)["migrations"]}
    assert code == 4 and set(found) == {name, good}
    assert (found[name]["state"], found[name]["waits_on"], found[name]["rollback"]["type"]) == (
        "unknown",
        "person",
        None,
    )
    assert said in found[name]["unclear"] and said in found[name]["waits_for"]
    assert (found[good]["state"], found[good]["unclear"], found[good]["step"]) == ("open", None, "plan")


def test_nothing_is_claimed_of_it(unclear: tuple[str, str, str], run: Any) -> None:
    """A freeze of it may run: that is not known, so "none" would be a claim."""
    _, out, _ = run("status", "refunds")
    told = {line.split("  ")[0]: line for line in out.splitlines()}
    for row in ("freeze", "steps", "order"):
        assert "not known" in told[row], told[row]
    assert "none so far" not in out


def test_the_others_are_answered_alone_as_ever(unclear: tuple[str, str, str], run: Any) -> None:
    code, out, err = run("status", "payments")
    assert code == 0 and "not understood" not in err and "payments-v2" in out


def test_a_closed_one_that_is_not_understood_is_shown_all_the_same(journal: SqlJournal, run: Any) -> None:
    claim = claimed(journal, "refunds")
    journal.set_state(claim, "done", active=False)
    assert "No migration is open" in run("status")[1]
    change(journal, migrations, migrations.c.migration_id == claim.migration_id, state="composted")
    code, out, _ = run("status")
    assert code == 4 and "refunds" in out, "nobody can tell that it is over"


def test_commands_that_act_name_the_migration_whose_spec_is_no_json(journal: SqlJournal, run: Any) -> None:
    claim = claimed(journal, "refunds")
    change(journal, migrations, migrations.c.migration_id == claim.migration_id, spec="{")
    code, _, err = run("pause", "refunds", "--bootstrap-server", "b:1")
    assert code == 4 and f"Migration {claim.migration_id} cannot be read from the journal: its spec is no JSON" in err
