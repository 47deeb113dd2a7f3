"""Waits that look at the journal: for an answer that is given elsewhere, and over a freeze."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from tests.unit.airflow_world import Airflow, asks

from topicshift.acts.questions import name_of
from topicshift.core.engine.people import Person
from topicshift.core.engine.words import Step
from topicshift.core.errors import Transient
from topicshift.core.policy.model import Installation
from topicshift_airflow import abandoned
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.triggers import journal as triggers
from topicshift_airflow.triggers.journal import AnswerTrigger, ClockTrigger, FreezeTrigger
from topicshift_airflow.triggers.standing import CHANGED

LATER = 4_000_000_000.0
LOOK_EVERY_S = triggers.LOOK_EVERY_S


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow(
        monkeypatch, approvals={"plan": "required", "freeze": "auto", "certificate": "required", "retire": "auto"}
    )
    monkeypatch.setattr(triggers, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("topicshift_airflow.runtime.open_journal", lambda: made.world.journal)
    monkeypatch.setattr(made.world.journal, "close", lambda: None)
    return made


async def first(trigger: Any) -> dict[str, Any]:
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("no event")


def after_looks(monkeypatch: pytest.MonkeyPatch, looks: int, act: Callable[[], object]) -> None:
    """Do something once the trigger has looked so many times."""
    seen, real = [0], asyncio.sleep

    async def sleep(_: float) -> None:
        seen[0] += 1
        if seen[0] == looks:
            act()
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)


def test_it_waits_until_a_moment() -> None:
    assert asyncio.run(first(ClockTrigger(moment=0.0))) == {"status": "moment"}


@pytest.mark.parametrize("looks", [1, 4])  # 1: a quick person, before the trigger has looked at all
def test_an_answer_that_is_given_elsewhere_wakes_the_task(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    world, withdrawn = airflow.world, []

    def withdraw(ti_id: Any, option: str) -> None:
        withdrawn.append(option)
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={}))

    monkeypatch.setattr("topicshift_airflow.airflow_api.withdraw", withdraw)
    asking = world.asks(until=Step.APPROVE)
    row = name_of(asking.ask)
    trigger = AnswerTrigger(
        migration_id=world.claim.migration_id, row=row, ti_id=str(uuid4()), option="Reject", moment=LATER
    )
    assert AnswerTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()
    after_looks(monkeypatch, looks, lambda: world.answer(asking))
    assert asyncio.run(first(trigger)) == {"status": "changed"}
    assert withdrawn == ["Reject"], "nobody shall answer the earlier text any more"
    trigger.moment = 0.0
    assert asyncio.run(first(trigger)) == {"status": "moment"}


def test_the_first_of_two_yes_that_is_given_elsewhere_wakes_the_task_that_asks_the_second(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rule = airflow.world, {"question": "plan", "two_people": True}
    world.policy = Installation.model_validate({"apiVersion": "topicshift-policy/v1", "answers": [rule]})
    monkeypatch.setattr("topicshift_airflow.airflow_api.withdraw", lambda *_: None)
    asking = world.asks(until=Step.APPROVE)
    world.show(asking)
    trigger = AnswerTrigger(
        migration_id=world.claim.migration_id,
        row=name_of(asking.ask),
        ti_id=str(uuid4()),
        option="Reject",
        moment=time.time() + 5,
    )
    after_looks(monkeypatch, 4, lambda: world.answer_late(asking, person=Person("ada")))
    assert asyncio.run(first(trigger)) == {"status": "changed"}


@pytest.mark.parametrize("looks", [1, 4])
def test_an_answer_from_a_terminal_wakes_a_task_that_asks_in_airflow(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    airflow.until(Step.PLAN)
    parked = airflow.run(task)
    assert asks(parked) and parked.timeout > timedelta(minutes=1), "the scheduler ends it where the triggerer is dead"
    monkeypatch.setattr("topicshift_airflow.airflow_api.answer_of", lambda _: None)
    parked.trigger.ti_id, parked.trigger.moment = str(uuid4()), LATER
    asking = airflow.world.asks(until=Step.APPROVE)
    after_looks(monkeypatch, looks, lambda: airflow.world.answer(asking))
    event = asyncio.run(first(parked.trigger))
    assert event == CHANGED
    task.execute_complete(airflow.context(task), event, **parked.kwargs)
    (said,) = airflow.world.events("approved")
    assert said["about"] == asking.about, "told once, by the one who said it"


def test_an_answer_that_came_before_the_task_was_parked_is_not_lost(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.until(Step.PLAN)
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    parked = airflow.run(task)
    said = {
        "chosen_options": [parked.kwargs["question"]["yes"]],
        "responded_by_user": {"id": "1", "name": "kim"},
    }
    parked.trigger.ti_id, parked.trigger.moment = str(uuid4()), LATER
    monkeypatch.setattr("topicshift_airflow.airflow_api.answer_of", lambda _: said)
    after_looks(monkeypatch, 0, lambda: None)
    task.execute_complete(airflow.context(task), asyncio.run(first(parked.trigger)), **parked.kwargs)
    assert airflow.world.journal.events(airflow.world.claim.migration_id)[-1].actor == "user:kim"


def test_the_watch_sees_the_end_of_a_run_and_outlasts_a_journal_that_fails(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = airflow.world
    world.answer(world.asks(until=Step.APPROVE))
    airflow.until(Step.STOP_PRODUCERS)
    alive = [True]
    monkeypatch.setattr(abandoned, "owner_alive", lambda _: alive[0])
    monkeypatch.setattr(abandoned, "datetime", type("D", (), {"now": staticmethod(lambda _: world.clock.now())}))
    real, failures = world.journal.current, [Transient("the database is away"), None]

    def current(migration_id: str) -> Any:
        error = failures.pop(0) if failures else None
        if error is not None:
            raise error
        return real(migration_id)

    monkeypatch.setattr(world.journal, "current", current)
    after_looks(monkeypatch, 5, lambda: alive.__setitem__(0, False))
    assert asyncio.run(first(FreezeTrigger(migration_id=world.claim.migration_id))) == {"status": "abandoned"}
    assert not failures


def watched(airflow: Airflow, monkeypatch: pytest.MonkeyPatch, until_s: float, ends_at_s: float = 1e9) -> Any:
    """Let the watch look for so many seconds, with a run that ends after some: (seconds, looks, questions to Airflow,
    event)."""
    world, seen = airflow.world, {"at": 0.0, "looks": 0, "asked": 0}
    real, current = asyncio.sleep, world.journal.current

    class Over(Exception): ...

    async def sleep(seconds: float) -> None:
        seen["at"] += seconds
        if seen["at"] > until_s:
            raise Over
        await real(0)

    def alive(_: str) -> bool:
        seen["asked"] += 1
        return seen["at"] < ends_at_s

    def look(migration_id: str) -> Any:
        seen["looks"] += 1
        return current(migration_id)

    event = None
    with monkeypatch.context() as patch, contextlib.suppress(Over):
        patch.setattr(triggers, "LOOK_EVERY_S", LOOK_EVERY_S)
        patch.setattr(world.journal, "current", look)
        patch.setattr(abandoned, "owner_alive", alive)
        patch.setattr(abandoned, "datetime", type("D", (), {"now": staticmethod(lambda _: world.clock.now())}))
        patch.setattr(asyncio, "sleep", sleep)
        event = asyncio.run(first(FreezeTrigger(migration_id=world.claim.migration_id)))
    return seen["at"], seen["looks"], seen["asked"], event


def test_a_run_that_ends_in_the_freeze_is_noticed_in_seconds_and_before_it_the_watch_costs_little(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = airflow.world
    world.answer(world.asks(until=Step.APPROVE))
    airflow.until(Step.CREATE_TARGET)
    at, looks, asked, event = watched(airflow, monkeypatch, 3600)
    assert event is None and at > 3600
    told = 1 + 120  # what people are told of is looked for seldom, too
    assert (looks, asked) == (1800 + told, 120), "an hour before the freeze: rows of the journal, and seldom Airflow"
    airflow.until(Step.STOP_PRODUCERS)
    at, _, _, event = watched(airflow, monkeypatch, 3600, ends_at_s=100)
    assert event == {"status": "abandoned"} and at - 100 <= LOOK_EVERY_S
