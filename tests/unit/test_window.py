"""Maintenance windows: when they are open, and what becomes of a run that misses one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.timetables.trigger import CronTriggerTimetable
from hypothesis import given, settings
from hypothesis import strategies as st
from pendulum import instance
from tests.unit.airflow_world import Airflow
from tests.unit.test_acts_people import moves
from tests.unit.world import SOURCE, World

from topicshift.acts.advance import Waiting
from topicshift.core.engine.words import Act, Ask, MigrationState, Row, Step
from topicshift.core.errors import DrainTimedOut
from topicshift.core.spec.windows import Schedule
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.operators.jobs import ArmedVerification
from topicshift_airflow.triggers.journal import ClockTrigger
from topicshift_airflow.waits import trigger_for

BUDGET = timedelta(minutes=2)


def opens(cron: str, zone: str, now: str, *, minutes: int = 20) -> list[str]:
    """When the window opens and closes that counts at ``now``, in UTC."""
    found = Schedule(cron, zone, timedelta(minutes=minutes)).opening(BUDGET, datetime.fromisoformat(now + "+00:00"))
    assert found.closes - found.last == BUDGET
    return [f"{moment:%Y-%m-%d %H:%M}" for moment in (found.opens, found.closes)]


@pytest.mark.parametrize(
    ("cron", "zone", "now", "opening"),
    [
        ("30 2 * * SUN", "Europe/Berlin", "2026-10-18T12:00", ["2026-10-25 01:30", "2026-10-25 01:50"]),
        ("30 2 * * SUN", "Europe/Berlin", "2026-03-22T12:00", ["2026-03-29 01:30", "2026-03-29 01:50"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00", ["2026-10-25 00:30", "2026-10-25 00:50"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T01:00", ["2026-10-25 01:30", "2026-10-25 01:50"]),
        ("*/30 * * * *", "Australia/Lord_Howe", "2026-04-04T14:50", ["2026-04-04 15:00", "2026-04-04 15:20"]),
        ("0 2 31 * *", "UTC", "2026-03-31T02:19", ["2026-05-31 02:00", "2026-05-31 02:20"]),
        ("0 2 L * *", "UTC", "2028-02-01T00:00", ["2028-02-29 02:00", "2028-02-29 02:20"]),
        ("0 2 29 2 *", "UTC", "2026-03-01T00:00", ["2028-02-29 02:00", "2028-02-29 02:20"]),
        ("0 0 1 1 *", "Pacific/Kiritimati", "2026-12-01T00:00", ["2026-12-31 10:00", "2026-12-31 10:20"]),
    ],
)
def test_summer_time_and_the_ends_of_months(cron: str, zone: str, now: str, opening: list[str]) -> None:
    assert opens(cron, zone, now) == opening


def test_a_window_across_the_change_lasts_as_long_as_any_other() -> None:
    assert opens("30 1 * * SUN", "Europe/Berlin", "2026-10-24T23:40", minutes=180) == [
        "2026-10-24 23:30",
        "2026-10-25 02:30",
    ], "three hours, though the clock on the wall shows two"


def test_a_look_at_another_moment_gets_its_own_window() -> None:
    """What one look found is kept for the next ones for as long as it holds, and for no earlier look."""
    nightly, day = Schedule("0 2 * * *", "UTC", timedelta(hours=2)), timedelta(days=1)
    first = datetime(2026, 6, 1, 3, tzinfo=UTC)
    looks = [first, first + day, first + timedelta(minutes=5), first - day, first + 3 * day, first + day]
    assert [nightly.opening(BUDGET, at).opens.day for at in looks] == [1, 2, 1, 31, 4, 2]
    assert nightly.opening(timedelta(hours=1, minutes=30), first).opens.day == 2, (
        "a longer freeze does not fit any more"
    )


def test_it_is_the_next_window_as_soon_as_no_freeze_can_end_in_this_one() -> None:
    assert opens("0 2 * * *", "UTC", "2026-05-01T02:17") == ["2026-05-01 02:00", "2026-05-01 02:20"]
    assert opens("0 2 * * *", "UTC", "2026-05-01T02:18") == ["2026-05-02 02:00", "2026-05-02 02:20"]


CRONS = ("30 2 * * SUN", "0 2 31 * *", "15 1,2,3 * * *", "45 * * * *", "0 3 L * *", "*/20 2 * * *", "0 0 * * 1-5")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "America/Sao_Paulo")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2024, 1, 1), datetime(2028, 12, 31)),
    st.sampled_from((5, 20, 90, 600)),
)
def test_a_window_opens_when_airflow_starts_the_run_of_its_schedule(
    cron: str, zone: str, at: datetime, minutes: int
) -> None:
    now, duration = at.replace(tzinfo=UTC), timedelta(minutes=minutes)
    found = Schedule(cron, zone, duration).opening(BUDGET, now)
    assert now < found.last and found.closes - found.opens == duration
    assert found.is_open(now) == (found.opens <= now)
    runs, moment = [], instance(now - duration - timedelta(hours=1))
    while not runs or runs[-1] < found.opens:
        moment = CronTriggerTimetable(cron, timezone=zone)._get_next(moment)
        runs.append(moment)
    assert found.opens in runs
    earlier = [r for r in runs if r < found.opens]
    assert all(r + duration - BUDGET <= now for r in earlier), "no opening is passed over"
    assert found.opens.astimezone(ZoneInfo(zone)).tzinfo is not None


# ------------------------------------------------------------------------------------------------------ the engine

NIGHTLY = {"cron": "0 2 * * *", "timezone": "UTC", "duration": "1h"}


def world(hour: int, minute: int = 0, **spec: Any) -> World:
    """A migration with a window from 02:00 to 03:00, at this time of a day, up to the target."""
    w = World(window=NIGHTLY, **spec)
    now = w.clock.now()
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(days=1)
    w.clock.advance((then - now).total_seconds())
    w.advanced(until=Step.CREATE_TARGET)
    return w


def to(w: World, hour: int, minute: int = 0) -> None:
    """The next time that the clock shows this."""
    now = w.clock.now()
    then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    w.clock.advance((then - now).total_seconds() % 86_400)


def test_outside_its_window_nobody_is_armed_and_nobody_is_stopped() -> None:
    w = world(14)
    why = w.waits(patience_s=1)
    assert "the window is closed, and nobody is stopped" in why and "T02:00" in why
    assert w.state(Row.ARM) is None and w.state(Row.FREEZE) is None
    to(w, 2)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == MigrationState.DONE
    begun = datetime.fromisoformat(w.data(Row.FREEZE)["started_at"])
    assert begun.hour == 2


def test_a_missed_window_is_said_and_what_was_prepared_is_put_back_until_the_next() -> None:
    w = world(2, 50)
    w.write(records=50)
    assert "50 records behind" in w.waits(patience_s=1)
    assert (w.state(Row.ARM), w.state(Row.LENGTHEN_RETENTION)) == ("done", "done")
    to(w, 2, 58)  # a freeze of two minutes could still end; from here on it could not
    why = w.waits(patience_s=1)
    assert "the window is closed" in why and "T02:00" in why
    (missed,) = w.events("window_missed")
    assert "the window was missed" in missed["why"] and missed["start_by_hand"] == []
    assert (w.state(Row.ARM), w.state(Row.LENGTHEN_RETENTION)) == ("undone", "undone")
    assert w.verifier.state()[0] == "absent" and w.where() == {(SOURCE, True)}
    for group in ("ledger-g", "fraud-g"):
        w.drain(group)
    w.waits(patience_s=1)
    assert len(w.events("window_missed")) == 1, "said once"
    to(w, 2, 10)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == MigrationState.DONE


GO = {"approvals": {"plan": "auto", "freeze": "required", "retire": "auto"}}


def test_the_go_names_the_window_and_silence_is_asked_about_again_in_the_next() -> None:
    w = world(2, 10, **GO)
    first = w.asks()
    assert first.ask is Ask.FREEZE
    assert [t[11:16] for t in first.about["window"]] == ["02:00", "03:00"] and first.about["until"][11:16] == "02:58"
    w.show(first)
    to(w, 2, 57)
    w.answer_late(first, "silence")
    ctx = w.context()
    ctx.began_at = first.view.began_at  # the task that has asked
    outcome = w.advance(ctx, patience_s=1)
    assert isinstance(outcome, Waiting) and "nobody answered in this window" in outcome.why
    to(w, 2, 58)
    assert "the window is closed" in w.waits(patience_s=1)
    to(w, 2, 1)
    second = w.asks()
    assert second.ask is Ask.FREEZE and second.about["window"] != first.about["window"]
    w.answer(second)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == MigrationState.DONE


def test_a_yes_of_one_window_begins_no_freeze_in_the_next() -> None:
    w = world(2, 10, **GO)
    first = w.asks()
    w.answer(first)
    to(w, 2, 59)
    w.waits(patience_s=1)
    to(w, 2)
    assert w.asks().about != first.about
    assert w.state(Row.FREEZE) is None


def test_who_was_stopped_by_hand_for_a_window_that_closed_is_named_once() -> None:
    by_hand = {"producers": [{"name": "legacy", "kind": "manual", "principal": "User:checkout"}]}
    w = world(2, 10, **by_hand)
    asking = w.asks()
    assert asking.ask is Ask.STOP_BY_HAND
    w.show(asking)
    moves(w, "legacy", None)
    to(w, 2, 59)
    w.answer_late(asking)
    with pytest.raises(DrainTimedOut, match="START BY HAND on payments: legacy"):
        w.advance()
    assert w.events("window_missed")[0]["start_by_hand"] == ["legacy"]
    moves(w, "legacy", SOURCE)
    assert "the window is closed" in w.waits(patience_s=1)
    to(w, 2)
    again = w.asks()
    assert again.ask is Ask.STOP_BY_HAND, "a stop for one window is none for the next"
    assert w.state(Row.FREEZE) is None


# --------------------------------------------------------------------------------------------------------- Airflow


def airflow_at(monkeypatch: pytest.MonkeyPatch, hour: int) -> Airflow:
    airflow = Airflow(monkeypatch, window=NIGHTLY)
    w = airflow.world
    to(w, hour)
    airflow.until(Step.PLAN)
    airflow.until(Step.CREATE_TARGET)
    return airflow


def test_a_task_waits_for_the_window_in_the_triggerer_until_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = airflow_at(monkeypatch, 14)
    task = AdvanceOperator(task_id="ready", until=Step.STOP_PRODUCERS, leave=("go_given", Act.BEGIN_FREEZE))
    parked = airflow.run(task)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, ClockTrigger)
    moment = datetime.fromtimestamp(parked.trigger.moment, UTC)
    assert moment - airflow.world.clock.now() > timedelta(hours=11) and moment.hour == 2


def test_the_wait_for_the_gate_ends_with_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(2, 30)
    w.write(records=50)
    ctx = w.context()
    waiting = w.advance(ctx, patience_s=1)
    assert isinstance(waiting, Waiting)
    trigger = trigger_for(ctx, waiting, "", woken=False)
    assert datetime.fromtimestamp(trigger.deadline, UTC).strftime("%H:%M") == "02:58"


def test_the_armed_verifier_is_started_for_the_window_and_not_days_before(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = airflow_at(monkeypatch, 14)
    task = ArmedVerification(task_id="drain_verification")
    with pytest.raises(TaskDeferred) as parked:
        task.execute(airflow.context(task))
    opens_at = datetime.fromtimestamp(parked.value.trigger.moment, UTC) + task.lead  # type: ignore[union-attr]
    assert opens_at.strftime("%H:%M") == "02:00"
    to(airflow.world, 1, 59)
    task._await_window(airflow.context(task))
    to(airflow.world, 14)
    task._await_window(airflow.context(task), missed=True)  # called off, and no window was missed: the run has failed


def test_the_armed_verifier_waits_again_where_its_window_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = airflow_at(monkeypatch, 2)
    w, task = airflow.world, ArmedVerification(task_id="drain_verification")
    task._await_window(airflow.context(task))
    w.write(records=50)
    w.waits(patience_s=1)
    to(w, 3)
    w.waits(patience_s=1)
    with pytest.raises(TaskDeferred):
        task._await_window(airflow.context(task), missed=True)
