"""A freeze that its run does not end any more is ended for it; one that somebody may still end is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from tests.unit.airflow_world import Airflow

from topicshift.core.engine.freeze import ABANDONED_AFTER, Freeze, abandoned
from topicshift.core.engine.words import Ask, MigrationState, Row, Step
from topicshift_airflow import abandoned as looks
from topicshift_airflow.operators import freeze
from topicshift_airflow.operators.freeze import RESUME_DAG, ResumeAbandoned, ResumeOnSource, WatchedOperator
from topicshift_airflow.triggers.journal import FreezeTrigger

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
FREEZE_OF_A_MINUTE = Freeze.begin(BEGAN, timedelta(seconds=60))


@pytest.mark.parametrize(
    ("alive", "rolling_back", "pointing", "after_s", "over"),
    [
        (False, False, False, 1, True),
        (False, True, False, 1, True),
        (False, False, True, 1, True),
        (True, False, False, 119, False),
        (None, False, False, 119, False),
        (True, False, False, 121, True),
        (None, False, False, 121, True),
        (True, True, False, 9999, False),
        (None, True, False, 9999, False),
        (True, False, True, 9999, False),
        (None, False, True, 9999, False),
    ],
)
def test_when_a_freeze_counts_as_abandoned(
    alive: bool | None, rolling_back: bool, pointing: bool, after_s: int, over: bool
) -> None:
    assert timedelta(seconds=60) == ABANDONED_AFTER
    now = BEGAN + timedelta(seconds=after_s)
    found, why = abandoned(
        freeze=FREEZE_OF_A_MINUTE, owner_alive=alive, rolling_back=rolling_back, pointing=pointing, now=now
    )
    assert found is over and why


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """A run whose producers stand still; the cut-over waits for a person."""
    made = Airflow(
        monkeypatch, approvals={"plan": "auto", "freeze": "auto", "certificate": "required", "retire": "auto"}
    )
    timed(made, monkeypatch)
    made.until(Step.STOP_PRODUCERS)
    assert made.world.where() == {("payments", False)}
    return made


def alive(monkeypatch: pytest.MonkeyPatch, answer: bool | None) -> None:
    """What Airflow says of the run that owns the migration."""
    monkeypatch.setattr(looks, "owner_alive", lambda _: answer)


def timed(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are taken by the world's clock."""
    for module in (looks, freeze):
        monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda _: airflow.world.clock.now()))


def watch(airflow: Airflow, migration: str | None = None) -> Any:
    return airflow.run(ResumeAbandoned(task_id="watch"), params={"migration": migration})


@pytest.mark.parametrize("watching", [True, False])
def test_producers_resume_the_fence_is_lifted_and_the_run_stays_the_owner(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, watching: bool
) -> None:
    world = airflow.world
    before = world.journal.current(world.claim.migration_id)
    alive(monkeypatch, False)
    watch(airflow, world.claim.migration_id if watching else None)
    assert world.where() == {("payments", True)} and not world.denied()
    assert (world.state(Row.FREEZE), world.state(Row.FENCE)) == ("undone", "undone")
    after = world.journal.current(world.claim.migration_id)
    assert (after.owner, after.state, after.active) == (before.owner, "open", True), "it can be cleared and go on"
    assert after.epoch > before.epoch, "what the run may still have under way cannot write any more"
    with pytest.raises(AirflowSkipException, match="No freeze and no rehearsal is left behind"):
        watch(airflow)


@pytest.mark.parametrize("answer", [True, None])
def test_a_healthy_run_is_left_alone_and_watched_over(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, answer: bool | None
) -> None:
    alive(monkeypatch, answer)
    parked = watch(airflow, airflow.world.claim.migration_id)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, FreezeTrigger)
    with pytest.raises(AirflowSkipException):
        watch(airflow)
    assert airflow.world.where() == {("payments", False)}


def test_the_watch_ends_with_the_freeze_or_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    timed(airflow, monkeypatch)
    world = airflow.world
    alive(monkeypatch, True)

    def look(**how: Any) -> str | None:
        return looks.look(world.journal, world.claim.migration_id, **how)

    airflow.until(Step.CREATE_TARGET)
    assert look() is None, "the freeze is still to come"
    alive(monkeypatch, False)
    assert look(ask_airflow=False) is None and look() == "over"
    alive(monkeypatch, True)
    airflow.until(Step.SWITCH_PRODUCERS)
    assert world.state(Row.FREEZE) == "done" and look() == "over"


def test_after_the_intent_to_point_no_timer_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person has two hours to start a producer; the lease is over long before."""
    airflow = Airflow(monkeypatch, producers=[{"name": "checkout", "kind": "manual"}])
    timed(airflow, monkeypatch)
    world = airflow.world
    airflow.until(Step.STOP_PRODUCERS)
    world.answer(world.asks(until=Step.STOP_PRODUCERS))
    assert world.asks(until=Step.SWITCH_PRODUCERS).ask is Ask.START_BY_HAND
    for answer in (True, None):
        alive(monkeypatch, answer)
        world.clock.advance(3600)
        assert looks.look(world.journal, world.claim.migration_id) is None
        with pytest.raises(AirflowSkipException):
            watch(airflow)
    assert world.state(Row.FREEZE) == "intended" and world.denied()


def test_what_a_person_must_look_at_makes_the_run_red_and_changes_nothing(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = airflow.world
    world.answer(world.asks())
    world.apps.deaf |= {"billing"}
    world.advance(until=Step.SWITCH_PRODUCERS, patience_s=1.0)
    world.write("payments-v2")
    alive(monkeypatch, False)
    with pytest.raises(AirflowFailException, match="AmbiguousState"):
        watch(airflow)
    assert world.state(Row.FREEZE) == "intended" and world.denied()


def test_a_migration_that_was_taken_over_meanwhile_is_left_to_its_new_owner(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = airflow.world
    alive(monkeypatch, False)
    opened = freeze.open_context

    def taken(*args: Any, **how: Any) -> Any:
        found = opened(*args, **how)
        monkeypatch.setattr(world, "context", _later(world))
        return found

    monkeypatch.setattr(freeze, "open_context", taken)
    watch(airflow, world.claim.migration_id)
    assert world.where() == {("payments", False)}


def _later(world: Any) -> Any:
    make = world.context

    def made(*args: Any, **how: Any) -> Any:
        ctx = make(*args, **how)
        world.journal.take_over(world.claim.migration_id, "topic_rollback/run-2")
        return ctx

    return made


# ------------------------------------------------------------------------------------- the run's own way back


def back() -> ResumeOnSource:
    return ResumeOnSource(task_id="resume_on_source")


def test_the_run_itself_resumes_when_a_task_of_its_freeze_has_failed(airflow: Airflow) -> None:
    result = airflow.run(back())
    assert result["freeze"] == "undone" and result["start_by_hand"] == []
    assert airflow.world.where() == {("payments", True)} and not airflow.world.denied()
    assert airflow.run(back())["freeze"] == "undone", "cleared, it finds nothing to do"


def test_a_run_that_stopped_nobody_has_nothing_to_resume_and_ends_its_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.until(Step.CREATE_TARGET)
    airflow.world.verifier.start()
    with pytest.raises(AirflowSkipException, match="No producer was stopped"):
        airflow.run(back())
    assert airflow.world.verifier.state()[0] == "absent", "its driver would hold the run for hours"
    monkeypatch.setattr(airflow.world.journal, "find", lambda **_: [])
    with pytest.raises(AirflowSkipException, match="never locked a topic"):
        airflow.run(back())


def test_producers_that_are_on_the_target_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.until(Step.SWITCH_PRODUCERS)
    assert airflow.run(back())["freeze"] == "done"
    assert airflow.world.where() == {("payments-v2", True)}


def test_the_watch_is_there_before_the_freeze_and_costs_nothing_within(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.until(Step.CREATE_TARGET)
    fence = WatchedOperator(task_id="fence", until=Step.STOP_PRODUCERS)
    migration = airflow.world.claim.migration_id
    airflow.world.verifier.start()
    airflow.run(fence)
    assert airflow.runs == {(RESUME_DAG, migration): {"migration": migration}}
    airflow.runs.clear()
    assert airflow.world.state(Row.FREEZE) == "intended"
    airflow.run(fence)
    assert not airflow.runs
    assert airflow.world.journal.current(migration).state == MigrationState.OPEN
