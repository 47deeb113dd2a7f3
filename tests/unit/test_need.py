"""What a migration waits for, and on whom, is true at the moment it is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.airflow_world import Airflow
from tests.unit.world import SOURCE, World

from topicshift.adapters.journal import SqlJournal
from topicshift.core.engine.need import Need, need
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut, Transient
from topicshift.ports import Claim
from topicshift_airflow import abandoned, airflow_api
from topicshift_airflow.operators.end import ObserveRollback
from topicshift_airflow.operators.freeze import ResumeAbandoned

REQUIRED = {"plan": "required", "freeze": "auto", "retire": "auto"}


def needs(world: World) -> Need:
    events = world.journal.events(world.claim.migration_id)
    return need(world.record(), world.claim.owner, events, world.clock.now())


def fails(world: World, error: Exception) -> None:
    with pytest.raises(type(error)), world.context().recorded("drain"):
        raise error


def test_before_the_freeze_it_says_that_nobody_is_stopped() -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    found = needs(world)
    assert found.on == "itself" and "nobody is stopped yet" in found.what


def test_a_failure_is_said_until_somebody_goes_on_and_no_longer() -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    fails(world, DrainTimedOut("too slow"))
    found = needs(world)
    assert found.on == "person" and "drain failed with DrainTimedOut at 20" in found.what
    assert "a retry" not in found.what, "nothing is tried again after this error"
    with world.context().recorded("drain"):
        assert needs(world).on == "itself", "it is being tried again at this moment"
    assert "failed" not in needs(world).what
    fails(world, Transient("the broker did not answer"))
    assert needs(world).what.startswith("a person or a retry: ")


def test_after_a_broken_freeze_it_calls_a_person_until_the_run_is_cleared() -> None:
    world = World()
    world.advanced(until=Step.STOP_PRODUCERS)
    ctx = world.context()
    world.advance(ctx, wanted="resume")
    assert world.state(Row.FREEZE) == "undone"
    found = needs(world)
    assert found.on == "person" and "producers were put back on the source; clear the failed tasks" in found.what
    with world.context().recorded("fence"):
        found = needs(world)
    assert found == Need("itself", "the window, the gate or the go before the freeze; nobody is stopped yet")


def test_a_question_of_a_run_that_was_deleted_is_asked_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, approvals=REQUIRED)
    world = airflow.world
    world.show(world.asks())
    found = needs(world)
    assert found.on == "person" and found.what.startswith("a person to answer: ") and "until 20" in found.what
    look = ResumeAbandoned(task_id="watch")
    monkeypatch.setattr(abandoned, "owner_alive", lambda _: None)
    with pytest.raises(Exception, match="is left behind"):
        airflow.run(look)
    assert needs(world) == found, "whether the run still lives is not known"
    monkeypatch.setattr(abandoned, "owner_alive", lambda _: False)
    airflow.states["run-1"] = airflow_api.GONE
    for _ in range(2):
        with pytest.raises(Exception, match="is left behind"):
            airflow.run(look)
    assert [e["state"] for e in world.events("run_ended")] == ["gone"], "it is noted once"
    found = needs(world)
    assert found.on == "person" and "its run was deleted, so nobody asks; topicshift advance goes on" in found.what
    with world.context().recorded("topicshift advance"):
        assert needs(world).what.startswith("a person to answer: ")


def test_a_question_whose_time_is_over_is_not_said_to_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(approvals=REQUIRED)
    world.show(world.asks())
    world.clock.advance(3 * 24 * 3600 + 300)
    assert "nobody answered by 20" in needs(world).what


def test_a_healthy_run_is_not_to_be_failed_for_a_rollback_that_is_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    world = airflow.world
    airflow.until(Step.SWITCH_PRODUCERS)
    world.write(world.record().target)
    monkeypatch.setattr("topicshift_airflow.operators.end.find_migration", lambda _: world.journal.find()[-1])
    monkeypatch.setattr("topicshift_airflow.operators.end.owner_alive", lambda _: True)
    monkeypatch.setattr("topicshift_airflow.operators.end.owner_of", lambda _: "topic_rollback/x")
    task = ObserveRollback(task_id="observe")
    with pytest.raises(Exception, match="forward_only") as refused:
        airflow.run(task, params={"migration": SOURCE})
    assert "failed" not in str(refused.value), "nobody is told to fail the run"


# ------------------------------------------------------------------------------------------------ in a terminal


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    journal = SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")
    yield journal
    journal.close()


def claimed(journal: SqlJournal, source: str) -> Claim:
    return journal.claim(
        cluster_id="c",
        source=source,
        target=f"{source}-v2",
        owner=f"topic_migration/manual__{source}",
        spec={
            "cutover": "drain_first",
            "consumers": [{"name": "l", "group": "ledger-of-a-department-with-a-long-name"}],
        },
        owner_alive=lambda _: True,
    )


def test_status_has_one_line_a_migration_and_who_waits_for_a_person_first(
    journal: SqlJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    from topicshift import cli

    frozen, asks, goes, dead = (claimed(journal, s) for s in ("payments", "orders", "clicks", "carts"))
    for claim in (frozen, goes):
        journal.intend(claim, "create_target", {})
        journal.finish(claim, "create_target", {})
    now = datetime.now(UTC).isoformat()
    journal.intend(frozen, "freeze", {"started_at": now, "lease_until": now, "act_until": now})
    journal.intend(asks, "ask:approve.plan", {"about": {}, "subject": "Move orders (3 partitions) to orders-v2 (12)?"})
    journal.set_state(dead, "failed", active=False)
    assert cli.run(["status", "--all"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert all(len(line) <= 120 for line in lines) and len(lines) == 5, lines
    ids = [c.migration_id for c in (frozen, asks, goes, dead)]
    assert [next(i for i in ids if line.startswith(i[:30])) for line in lines[1:]] == ids
    assert cli.run(["status", "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["migrations"]
    assert [m["waits_on"] for m in found] == ["itself", "person", "itself", "nobody"]
