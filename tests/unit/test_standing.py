"""A wait in the triggerer ends with its migration, and tells nobody of one that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.unit.airflow_world import Airflow

from topicshift.acts.questions import name_of
from topicshift.core.engine.words import Ask, Step
from topicshift.core.errors import Transient
from topicshift_airflow.alarms import Alarms
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.triggers import standing
from topicshift_airflow.triggers.drain import DrainTrigger, GateTrigger
from topicshift_airflow.triggers.journal import AnswerTrigger, ClockTrigger, RowTrigger
from topicshift_airflow.triggers.standing import CHANGED

NOW = datetime(2026, 1, 1, 3, tzinfo=UTC)
LATER = 4_000_000_000.0
FENCE = {"topic": "payments", "fence_offsets": {"0": 4}, "topic_id": "id", "taken_at": NOW.isoformat()}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow(monkeypatch)
    monkeypatch.setattr("topicshift_airflow.runtime.open_journal", lambda: made.world.journal)
    monkeypatch.setattr(made.world.journal, "close", lambda: None)
    return made


def shared(airflow: Airflow) -> dict[str, Any]:
    claim = airflow.world.claim
    return {
        "kafka_conn_id": "kafka_default",
        "migration_id": claim.migration_id,
        "inputs": {"topic": "payments"},
        "deadline": LATER,
        "owner": claim.owner,
        "epoch": claim.epoch,
    }


def gate(airflow: Airflow) -> Any:
    return GateTrigger(**shared(airflow), budget_s=60, alarm_after_s=1)


def drain(airflow: Airflow) -> Any:
    return DrainTrigger(**shared(airflow), fence=FENCE, progress_name="drain_progress.json")


def clock(airflow: Airflow) -> Any:
    return ClockTrigger(moment=LATER, migration_id=airflow.world.claim.migration_id)


def row(airflow: Airflow) -> Any:
    airflow.world.journal.intend(airflow.world.claim, "pause", {})
    return RowTrigger(moment=LATER, migration_id=airflow.world.claim.migration_id, row="pause")


def question(airflow: Airflow) -> Any:
    name = name_of(Ask.FREEZE)
    airflow.world.journal.intend(airflow.world.claim, name, {"about": {}})
    return AnswerTrigger(moment=LATER, migration_id=airflow.world.claim.migration_id, row=name, ti_id="no-uuid")


def end(airflow: Airflow) -> None:
    world = airflow.world
    world.claim = world.journal.take_over(world.claim.migration_id, world.claim.owner)
    world.journal.set_state(world.claim, "rolled_back", active=False)


def take_over(airflow: Airflow) -> None:
    airflow.world.journal.take_over(airflow.world.claim.migration_id, "topic_rollback/run-2")


EVERY_S = 0.003


def after(monkeypatch: pytest.MonkeyPatch, looks: int, act: Callable[[], object]) -> None:
    """Do something before the n-th look at the migration; no other sleep ends within the test."""
    seen, real = [0], asyncio.sleep
    monkeypatch.setattr(standing, "STANDING_EVERY_S", EVERY_S)

    async def sleep(seconds: float = 0) -> None:
        if seconds == EVERY_S:
            seen[0] += 1
            if seen[0] == looks:
                act()
        await real(seconds if seconds > 1000 else min(seconds, EVERY_S))

    monkeypatch.setattr(asyncio, "sleep", sleep)


async def first(trigger: Any) -> dict[str, Any]:
    async with asyncio.timeout(5):
        async for event in trigger.run():
            return dict(event.payload)
    raise AssertionError("no event")


def never(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gate and drain that wait for ever; what they let go of in the end is kept."""
    closed = list[str]()

    async def wait(self: Any) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            closed.append(type(self).__name__)

    for kind in (GateTrigger, DrainTrigger):
        monkeypatch.setattr(kind, "wait", wait)
    monkeypatch.setattr(AnswerTrigger, "_answer", lambda _: None)
    return closed


@pytest.mark.parametrize("ends", [end, take_over])
@pytest.mark.parametrize("wait", [gate, drain, clock, row, question])
def test_every_wait_is_over_once_its_migration_has_ended_or_changed_hands(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Airflow], Any], ends: Callable[[Airflow], None]
) -> None:
    closed, trigger = never(monkeypatch), wait(airflow)
    assert type(trigger)(**trigger.serialize()[1]).serialize() == trigger.serialize()
    after(monkeypatch, 3, lambda: ends(airflow))
    assert asyncio.run(first(trigger)) == CHANGED
    assert closed == ([type(trigger).__name__] if wait in (gate, drain) else []), "a wait lets go of its clients"


@pytest.mark.parametrize("wait", [gate, drain])
def test_a_wait_whose_claim_was_renewed_is_over(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Airflow], Any]
) -> None:
    never(monkeypatch)
    trigger = wait(airflow)
    airflow.world.journal.renew(airflow.world.claim, "an order")
    after(monkeypatch, 0, lambda: None)
    assert asyncio.run(first(trigger)) == CHANGED


@pytest.mark.parametrize("wait", [gate, drain, clock, row])
def test_a_journal_that_is_away_ends_no_wait(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Airflow], Any]
) -> None:
    never(monkeypatch)
    trigger = wait(airflow)
    real, seen = airflow.world.journal.current, [0]

    def current(migration_id: str) -> Any:
        seen[0] += 1
        if seen[0] < 5:
            raise Transient("the database is away")
        return real(migration_id)

    monkeypatch.setattr(airflow.world.journal, "current", current)
    after(monkeypatch, 9, lambda: end(airflow))
    assert asyncio.run(first(trigger)) == CHANGED and seen[0] > 5


def test_nobody_is_told_of_a_gate_of_a_migration_that_is_over(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[Any]()
    monkeypatch.setattr("topicshift_airflow.notifiers.tell", lambda alarm: (told.append(alarm), ([], []))[1])
    stuck = SimpleNamespace(group="ledger-g", alarm=SimpleNamespace(value="stuck"), alarm_text="no commit", lag=3)

    def tell() -> int:
        gate, drain = (Alarms(stale, "payments") for _ in range(2))
        asyncio.run(gate.gate("ledger is behind"))
        asyncio.run(gate.gate(""))
        asyncio.run(drain.take(SimpleNamespace(alarms=[stuck])))  # type: ignore[arg-type]
        return len(told)

    stale = airflow.world.claim
    assert tell() == 2, "while it goes on"
    end(airflow)
    caplog.clear()
    assert tell() == 2 and not caplog.records, "neither an alarm nor a word that it could not be written down"


@pytest.mark.parametrize("wait", [gate, drain])
def test_a_chart_is_not_written_over_once_the_trail_has_named_it_at_the_end(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Airflow], Any]
) -> None:
    files = list[str]()
    monkeypatch.setattr("topicshift_airflow.triggers.drain._write", lambda _, name, text: files.append(text))
    trigger = wait(airflow)
    asyncio.run(trigger.keep("gate_progress.json", "while it goes on"))
    end(airflow)
    asyncio.run(trigger.keep("gate_progress.json", "later"))
    assert files == ["while it goes on"]


def test_the_task_that_comes_back_is_red(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow.until(Step.CREATE_TARGET)
    task = AdvanceOperator(task_id="ready", until=Step.STOP_PRODUCERS)
    end(airflow)
    with pytest.raises(AirflowFailException, match="is rolled_back"):
        task.resume(airflow.context(task), dict(CHANGED))
