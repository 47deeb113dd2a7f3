"""People are told once of each thing that happens, and nobody who is told holds up a migration."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.world import SOURCE, TARGET, World

from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import Refused
from topicshift.core.notices import NOTICE, TELLING_S, Told, notices, teller_of
from topicshift.core.policy.model import Installation
from topicshift.core.rows import EventRow
from topicshift.ports import Claim
from topicshift_airflow import abandoned
from topicshift_airflow import notices as telling
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.triggers import journal as triggers
from topicshift_airflow.triggers.journal import FreezeTrigger

ASKED = {"approvals": {"plan": "required", "freeze": "auto", "retire": "required"}}
DAY = 86_400
TOLD: list[dict[str, Any]] = []


class Kept(BaseNotifier):
    """Keeps what it was told."""

    def notify(self, context: Any) -> None:
        TOLD.append(dict(context["alarm"]))


class Broken(BaseNotifier):
    """Fails, and its error holds a secret."""

    def notify(self, context: Any) -> None:
        raise OSError("https://hooks.example/hunter2")


RELEASE = threading.Event()


class Hangs(BaseNotifier):
    """Gives no answer."""

    def notify(self, context: Any) -> None:
        RELEASE.wait(30)


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    TOLD.clear()
    configure(monkeypatch, "Kept")


def configure(monkeypatch: pytest.MonkeyPatch, *names: str, **more: Any) -> None:
    rows = [{"class": f"{__name__}.{name}", **more} for name in names]
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", json.dumps(rows))


def seen(w: World) -> list[str]:
    """Codes of everything that should have been told."""
    row = w.journal.current(w.claim.migration_id)
    return [n.kind.value for n in notices(telling.seen_of(w.journal, row), w.clock.now())]


def tell(w: World, **how: Any) -> list[str]:
    """What a teller tells now."""
    return [n.kind.value for n in telling.tell_untold(w.journal, w.claim.migration_id, w.clock.now(), **how)]


# ------------------------------------------------------------------------------------------------ what is told


def test_a_migration_from_its_question_to_the_deletion_of_its_source() -> None:
    w = World(**ASKED)
    assert tell(w) == []
    asking = w.asks()
    w.show(asking)
    assert tell(w) == ["person_wanted"] and tell(w) == [], "once"
    assert asking.decision.why in TOLD[-1]["text"] and TOLD[-1]["topic"] == SOURCE
    w.answer_late(asking)
    w.advance(until=Step.STOP_PRODUCERS)
    assert tell(w) == ["freeze_begun"]
    w.advanced()
    assert tell(w) == ["freeze_ended"] and "Producers write to payments-v2 after" in TOLD[-1]["text"]
    w.clock.advance(8 * DAY)
    asking = w.asks(wanted="retire")
    w.answer(asking)
    w.waits(wanted="retire", patience_s=0)
    w.clock.advance(600)
    assert tell(w) == ["retirement_due"] and "Everybody is denied on payments" in TOLD[-1]["text"]
    w.clock.advance(3600)
    w.advance(wanted="retire")
    assert tell(w) == ["source_deleted"]
    assert len({t["id"] for t in TOLD}) == len(TOLD)


def test_people_are_told_of_the_freeze_of_a_way_back_too() -> None:
    w = World()
    w.advanced()
    w.write(TARGET)
    for group in ("ledger-g", "fraud-g"):
        w.drain(group, TARGET)
    tell(w)
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"drained"}))
    assert tell(w) == ["freeze_begun"] and "Producers of payments-v2 are stopped" in TOLD[-1]["text"]
    w.advanced(wanted="rollback")
    assert tell(w) == ["freeze_ended"] and "Producers write to payments after" in TOLD[-1]["text"]


def test_a_freeze_that_ends_on_the_source_says_why_and_a_run_that_stands_too(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(freeze_alarm_after="30s", producers=[{"name": "legacy", "kind": "manual"}, {"name": "checkout"}])
    w.controllers["manual"].running["legacy"] = False
    w.answer(w.asks())
    w.advance(until=Step.STOP_PRODUCERS)
    tell(w)
    w.clock.advance(29)
    assert tell(w) == []
    w.clock.advance(2)
    assert tell(w) == ["freeze_overlong"] and tell(w) == []
    w.clock.advance(120)
    ctx = w.context()
    with pytest.raises(Exception, match="budget"), ctx.recorded("drain.wait"):
        w.advance(ctx)
    assert sorted(tell(w)) == ["producers_resumed", "run_stands"]
    text = {t["code"]: t["text"] for t in TOLD}
    assert "START BY HAND on payments: legacy" in text["producers_resumed"]
    assert text["run_stands"].startswith("drain.wait failed (DrainTimedOut)")


def test_what_nobody_has_to_do_and_what_is_old_is_not_told() -> None:
    w = World()
    w.advance(until=Step.CREATE_TARGET)
    assert seen(w) == [], "the spec has answered by itself"
    w.advance(until=Step.STOP_PRODUCERS)
    assert seen(w) == ["freeze_begun"]
    w.clock.advance(3601)
    assert "freeze_begun" not in seen(w)


def test_a_passing_fault_is_no_run_that_stands() -> None:
    w = World()
    ctx = w.context()
    ctx.event("step_failed", {"task": "t", "error": "Transient", "message": "again"})
    assert seen(w) == []
    ctx.event("step_failed", {"task": "t", "error": "AirflowException", "message": "the job died"})
    assert seen(w) == ["run_stands"]


def test_the_second_of_two_people_is_told_too() -> None:
    from topicshift.core.engine.people import Person

    w = World(**ASKED)
    rule = {"question": "plan", "two_people": True}
    w.policy = Installation.model_validate({"apiVersion": "topicshift-policy/v1", "answers": [rule]})
    asking = w.asks()
    w.show(asking)
    assert tell(w) == ["person_wanted"]
    w.clock.advance(1)
    w.answer_late(asking, person=Person("ada"))
    assert tell(w) == ["person_wanted"] and "ada has said yes; another person has to, too" in TOLD[-1]["text"]


# ------------------------------------------------------------------------------------------------------ once


def test_a_teller_that_was_killed_is_followed_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(**ASKED)
    w.show(w.asks())

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(telling, "_tell", killed)
        with pytest.raises(KeyboardInterrupt):
            tell(w)
    assert tell(w) == [], "it may be telling at this moment"
    w.clock.advance(TELLING_S + 1)
    assert tell(w) == ["person_wanted"] and tell(w) == []
    assert len(TOLD) == 1


def test_of_two_at_the_same_moment_one_tells() -> None:
    w = World(**ASKED)
    w.show(w.asks())
    event, mine = w.journal.event, []

    def late(claim: Claim, kind: str, actor: str, data: Any) -> Any:
        if kind == NOTICE and data["state"] == "telling" and not mine:
            mine.append(data["by"])
            event(claim, kind, actor, {**data, "by": "another"})
        return event(claim, kind, actor, data)

    w.journal.event = late  # type: ignore[method-assign]
    assert tell(w) == [] and TOLD == []


@given(st.lists(st.tuples(st.floats(0, 90), st.booleans()), max_size=12))
def test_whoever_comes_when_a_notice_has_one_teller_a_minute_and_none_once_it_is_told(
    tellers: list[tuple[float, bool]],
) -> None:
    at, trail, sent, done = datetime(2026, 1, 1, tzinfo=UTC), list[EventRow](), list[datetime](), False
    for n, (pause, lives) in enumerate(tellers):
        at += timedelta(seconds=pause)
        trail.append(_mark(at, n, "telling"))
        if teller_of(trail, "k") != str(n):
            continue
        assert not done and (not sent or (at - sent[-1]).total_seconds() > TELLING_S)
        sent.append(at)
        if lives:
            trail.append(_mark(at, n, "told"))
            done = True
    assert len(sent) >= bool(tellers), "and it is told to the first one who comes"


def _mark(at: datetime, teller: int, state: str) -> EventRow:
    data = {"key": "k", "by": str(teller), "state": state}
    return EventRow(0, "m", 1, at.isoformat(), "topicshift", NOTICE, data, "", "")


# ------------------------------------------------------------------------------------------------ in Airflow


def test_a_task_tells_before_it_asks_and_a_retry_tells_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **ASKED)
    airflow.until(Step.PLAN)
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    airflow.asked(task)
    airflow.asked(task)
    assert [t["code"] for t in TOLD] == ["person_wanted"]
    with pytest.raises(AirflowFailException):
        airflow.answered(task, airflow.asked(task), "Reject")
    assert [t["code"] for t in TOLD] == ["person_wanted", "run_stands"]


def test_notifiers_that_fail_or_hang_hold_up_nothing_and_no_secret_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    RELEASE.clear()
    configure(monkeypatch, "Broken", "Hangs", "Kept")
    monkeypatch.setattr(telling, "WAIT_S", 0.2)
    airflow = Airflow(monkeypatch, **ASKED)
    airflow.until(Step.PLAN)
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    question = airflow.asked(task)
    assert airflow.answered(task, question, question.yes)["plan_hash"]
    events = airflow.world.events(NOTICE)
    assert [e["state"] for e in events] == ["telling", "told"]
    assert events[1]["not_told"] == ["no answer within 0.2 s"]
    configure(monkeypatch, "Broken")
    airflow.world.context().event("step_failed", {"task": "t", "error": "Refused", "message": "no"})
    assert tell(airflow.world) == ["run_stands"]
    assert airflow.world.events(NOTICE)[-1]["not_told"] == ["Broken: OSError"]
    assert "hunter2" not in caplog.text + repr(airflow.world.events(NOTICE))
    RELEASE.set()


def test_a_journal_that_fails_while_people_are_told_fails_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch)
    airflow.until(Step.PLAN)

    def away(*_: Any, **__: Any) -> Any:
        raise Refused("the journal is away")

    monkeypatch.setattr(telling, "tell_untold", away)
    assert airflow.run(AdvanceOperator(task_id="plan", until=Step.APPROVE))["plan_hash"]


def test_only_what_a_notifier_wants_and_nothing_where_nobody_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(**ASKED)
    w.show(w.asks())
    monkeypatch.delenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS")
    assert tell(w) == [] and not w.events(NOTICE)
    configure(monkeypatch, "Kept", only=["freeze_begun"])
    assert tell(w) == ["person_wanted"] and TOLD == []


def test_in_a_freeze_the_watch_tells_and_no_task_does(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, freeze_alarm_after="30s")
    world = airflow.world
    airflow.until(Step.STOP_PRODUCERS)
    airflow.run(AdvanceOperator(task_id="stop", until=Step.STOP_PRODUCERS))
    assert world.state(Row.FREEZE) == "intended" and TOLD == []
    monkeypatch.setattr("topicshift_airflow.runtime.open_journal", lambda: world.journal)
    monkeypatch.setattr(world.journal, "close", lambda: None)
    clock = type("D", (), {"now": staticmethod(lambda _=None: world.clock.now())})
    monkeypatch.setattr(abandoned, "datetime", clock)
    monkeypatch.setattr(triggers, "datetime", clock)
    monkeypatch.setattr(abandoned, "owner_alive", lambda _: True)
    monkeypatch.setattr(triggers, "LOOK_EVERY_S", 0.01)

    async def watch() -> None:
        trigger = asyncio.create_task(anext(FreezeTrigger(migration_id=world.claim.migration_id).run()))  # type: ignore[arg-type]
        for code, seconds in (("freeze_begun", 31), ("freeze_overlong", 0)):
            async with asyncio.timeout(20):
                while code not in [t["code"] for t in TOLD]:  # noqa: ASYNC110 - another thread tells
                    await asyncio.sleep(0.05)
            world.clock.advance(seconds)
        trigger.cancel()

    asyncio.run(watch())
    assert [t["code"] for t in TOLD] == ["freeze_begun", "freeze_overlong"]


def test_every_kind_is_in_the_page() -> None:
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "docs" / "notifications.md").read_text("utf-8")
    assert all(f"| `{kind}` |" in page for kind in Told)
