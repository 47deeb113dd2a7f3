"""An act whose effect does not show is told again, but ever more seldom: a wait of hours fills no trail and no log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.world import World

from topicshift.acts.memory import Told
from topicshift.core.engine.decision import RETELL_MOST_S, RETELL_S, due
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Act, Step
from topicshift.core.errors import Transient
from topicshift_airflow.operators.advance import AdvanceOperator

SILENT_S = 15 * 60


def never_armed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that was killed before the migration: it arms nothing until it counts as gone."""
    monkeypatch.setattr(world.apps, "arm", lambda ctx, participants: None)


def acts(world: World, act: Act) -> int:
    return sum(e["act"] == act.value for e in world.events("act"))


def test_a_task_that_waits_a_quarter_of_an_hour_arms_a_handful_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    world = airflow.world
    never_armed(world, monkeypatch)
    airflow.until(Step.CREATE_TARGET)
    task = AdvanceOperator(task_id="stop", until=Step.STOP_PRODUCERS)
    began, parked = world.clock.now(), airflow.run(task)
    while world.clock.now() - began < timedelta(seconds=SILENT_S):
        assert isinstance(parked, TaskDeferred)
        world.clock.sleep(80.0)
        fresh = AdvanceOperator(task_id="stop", until=Step.STOP_PRODUCERS)  # another process each time
        with pytest.raises(TaskDeferred) as caught:
            fresh.resume(airflow.context(fresh), {"status": "due"}, **(parked.kwargs or {}))
        parked = caught.value
    assert 4 <= acts(world, Act.ARM) <= 12
    assert "not armed yet" in " ".join(world.said)


def test_numbers_that_move_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.advance(until=Step.CREATE_TARGET)
    began = world.clock.now()
    world.apps.lost["checkout"] = ""
    monkeypatch.setattr(
        world.apps,
        "lost",
        Counting(lambda: f"silent for {(world.clock.now() - began).total_seconds():.1f} s"),
    )
    before = len(world.said)
    world.advance(until=Step.STOP_PRODUCERS, patience_s=70.0)
    waits = [text for text in world.said[before:] if text.startswith("waiting:")]
    assert 2 <= len(waits) <= 6, waits


class Counting(dict[str, str]):
    """Every producer is unknown, for a reason with a number that moves."""

    def __init__(self, reason: Any) -> None:
        self.reason = reason

    def __contains__(self, name: object) -> bool:
        return name == "checkout"

    def __getitem__(self, name: str) -> str:
        return str(self.reason())


@settings(max_examples=30, deadline=None)
@given(st.floats(60.0, 7200.0), st.floats(4.0, 30.0))
def test_repetitions_grow_with_the_logarithm_of_the_wait(lasts_s: float, look_s: float) -> None:
    now = start = datetime(2026, 1, 1, tzinfo=UTC)
    told: Told | None = None
    count = 0
    while (now - start).total_seconds() < lasts_s:
        age = {} if told is None else {Act.ARM.value: (now - told.at).total_seconds()}
        times = {} if told is None else {Act.ARM.value: told.times}
        view: Any = View(record=None, now=now, began_at=start, told=age, times=times)
        if due(view, Act.ARM):
            told, count = Told(now) if told is None else told.again(now), count + 1
        now += timedelta(seconds=look_s)
    doublings = int(lasts_s / RETELL_S).bit_length()
    assert 1 <= count <= 3 + doublings + lasts_s / RETELL_MOST_S


def test_an_act_whose_reply_was_lost_is_performed_again_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a freeze nobody has five seconds to see whether it was done all the same."""
    world = World()
    real, calls = world.apps.point, list[tuple[set[str], datetime]]()

    def point(ctx: Any, participants: Any, topic: str) -> None:
        calls.append(({p.name for p in participants}, world.clock.now()))
        real(ctx, participants, topic)
        if len(calls) == 1:
            raise Transient("no reply")

    monkeypatch.setattr(world.apps, "point", point)
    world.advanced(until=Step.SWITCH_PRODUCERS)
    (told, at), *again = calls
    assert set[str]().union(*(names for names, _ in again)) == told == {"checkout", "billing"}
    assert all(then - at <= timedelta(seconds=2) for _, then in again)
