"""Pause, postpone, abort and close: each says first what it does, and every advancer obeys it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from tests.unit.airflow_world import Airflow
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts import orders
from topicshift.acts.advance import Asking, Done, Waiting
from topicshift.core.engine.need import need
from topicshift.core.engine.words import Ask, MigrationState, Row, Step
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.kafka.by_hand import delete_topic
from topicshift.core.policy.model import Installation
from topicshift.core.spec.windows import next_start
from topicshift_airflow.operators import end
from topicshift_airflow.operators import orders as operators
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.operators.end import ObserveRollback, RollBack
from topicshift_airflow.operators.orders import GiveOrder
from topicshift_airflow.triggers.journal import RowTrigger

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])


def at(step: Step | None, **spec: Any) -> World:
    """A migration that has come so far; a group lags, so that no freeze ends by itself."""
    w = World(**spec)
    if step is not None:
        if step is Step.STOP_PRODUCERS:
            w.cluster.commit("fraud-g", SOURCE, {0: 9})
        w.advance(until=step)
    return w


def switched(**spec: Any) -> World:
    """Producers are on the target, and no group is."""
    w = World(cutover="producers_first", **spec)
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.cluster.commit("ledger-g", SOURCE, {0: 9})
    assert isinstance(w.advance(until=Step.SWITCH_PRODUCERS), Done)
    assert w.where() == {(TARGET, True)}
    return w


def row(w: World) -> tuple[str, bool]:
    found = w.journal.current(w.claim.migration_id)
    return found.state, found.active


# -------------------------------------------------------------------------------------------------- pause


@pytest.mark.parametrize("step", [None, Step.PLAN, Step.CREATE_TARGET])
def test_a_pause_begins_nothing_new_until_it_is_ended(step: Step | None) -> None:
    w = at(step)
    before = dict(w.record().steps)
    orders.pause(w.context(), "the bank is counting")
    assert "paused by topicshift" in w.waits(patience_s=30.0)
    assert "the bank is counting" in w.waits(patience_s=0.0)
    after = {n: s for n, s in w.record().steps.items() if n != "pause"}
    assert after == before
    assert row(w)[1] == (step is Step.CREATE_TARGET), "a pause locks nothing"
    assert "the bank is counting" in orders.unpause(w.context())
    assert orders.unpause(w.context()) == ""
    w.advanced()
    assert row(w) == ("done", False)
    assert len(w.events("paused")) == len(w.events("unpaused")) == 1


def test_armed_participants_follow_at_leisure_in_a_pause_and_are_armed_again() -> None:
    w = at(Step.CREATE_TARGET)
    w.advance(w.context(spark=False), patience_s=2.0)  # no verifier is there, so the gate is shut
    assert any(w.apps.armed.values())
    does = orders.pause_prospect(w.record()).does
    assert any("disarmed" in line for line in does)
    orders.pause(w.context(), "x")
    w.waits(patience_s=2.0)
    assert not any(w.apps.armed.values())
    orders.unpause(w.context())
    w.advanced()


def test_a_pause_is_refused_while_producers_stand_still() -> None:
    w = at(Step.STOP_PRODUCERS)
    assert w.record().freeze is not None
    with pytest.raises(Refused, match="resume-on-source"):
        orders.pause(w.context(), "x")
    assert w.state(Row.PAUSE) is None
    assert isinstance(orders.resume_on_source(w.context(), 60.0), Done)
    orders.pause(w.context(), "x")
    assert isinstance(w.advance(patience_s=5.0), Waiting)
    assert w.where() == {(SOURCE, True)}


def test_after_the_switch_a_pause_holds_groups_and_the_proof_but_not_the_watch_over_the_fence() -> None:
    w = switched()
    assert "stay on payments" in orders.pause_prospect(w.record()).does[0]
    orders.pause(w.context(), "x")
    w.drain("ledger-g")
    assert "is not released" in w.waits(patience_s=3.0)
    assert not w.record().released
    deny = next(a for a in w.acls() if a.principal == "User:*" and a.permission == "DENY")
    w.cluster.delete_acls([deny])
    w.waits(patience_s=3.0)
    assert deny in w.acls(), "the DENY is put back in a pause too"
    orders.unpause(w.context())
    w.drain("fraud-g")
    assert isinstance(w.advance(until=Step.SWITCH_CONSUMERS), Done)
    orders.pause(w.context(), "y")
    assert "y" in w.waits(patience_s=1.0)
    assert w.state(Row.ORDER_PROOF) is None
    orders.unpause(w.context())
    w.advanced()


def test_a_migration_that_has_ended_takes_no_order() -> None:
    w = at(None)
    w.advanced()
    for order in (
        lambda: orders.pause(w.context(), "x"),
        lambda: orders.postpone(w.context(), w.clock.now() + timedelta(hours=1), "x"),
        lambda: orders.abort(w.context(), "x", 1.0),
    ):
        with pytest.raises(Refused, match="ended already"):
            order()


# ----------------------------------------------------------------------------------------------- postpone


def test_no_freeze_begins_before_its_time() -> None:
    w = at(None)
    until = w.clock.now() + timedelta(hours=5)
    orders.postpone(w.context(), until, "a sale")
    assert until.isoformat() in w.waits(patience_s=2.0)
    assert w.state(Row.CREATE_TARGET) == "done", "what comes before the freeze goes on"
    assert w.state(Row.ARM) is None
    later = until + timedelta(hours=1)
    orders.postpone(w.context(), later, "a longer sale")
    w.clock.advance(5.5 * 3600)
    assert later.isoformat() in w.waits(patience_s=2.0)
    w.clock.advance(3600)
    w.advanced()
    assert datetime.fromisoformat(w.data(Row.FREEZE)["started_at"]) >= later


def test_a_postponement_may_be_ended_and_cannot_be_given_once_the_freeze_has_begun() -> None:
    w = at(None)
    orders.postpone(w.context(), w.clock.now() + timedelta(hours=5), "x")
    w.waits(patience_s=1.0)
    assert orders.no_longer_postponed(w.context())
    assert not orders.no_longer_postponed(w.context())
    with pytest.raises(Refused, match="is over"):
        orders.postpone(w.context(), w.clock.now(), "x")
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advance(until=Step.STOP_PRODUCERS)
    for _ in range(2):
        with pytest.raises(Refused, match=r"has begun|switched already"):
            orders.postpone(w.context(), w.clock.now() + timedelta(hours=5), "x")
        w.drain("fraud-g")
        w.advance(until=Step.SWITCH_PRODUCERS)


def test_the_next_window_is_in_the_time_zone_of_the_spec() -> None:
    w = at(None, window={"cron": "30 2 * * SUN", "timezone": "Europe/Berlin", "duration": "2h"})
    found = orders.next_window(w.context())
    assert found > w.clock.now()
    assert (found.weekday(), found.tzinfo) == (6, UTC)
    winter = next_start("30 2 * * *", "Europe/Berlin", datetime(2026, 1, 5, tzinfo=UTC))
    summer = next_start("30 2 * * *", "Europe/Berlin", datetime(2026, 7, 5, tzinfo=UTC))
    assert (winter, summer) == (datetime(2026, 1, 5, 1, 30, tzinfo=UTC), datetime(2026, 7, 5, 0, 30, tzinfo=UTC))
    with pytest.raises(Refused, match="no window"):
        orders.next_window(World().context())


# -------------------------------------------------------------------------------------------------- abort


@ORDERS
@pytest.mark.parametrize("step", [None, Step.PLAN, Step.CREATE_TARGET, Step.STOP_PRODUCERS])
def test_an_abort_leaves_what_was_there_before(cutover: str, step: Step | None) -> None:
    w = at(step, cutover=cutover)
    held = w.record().active
    does = orders.abort_prospect(w.context(), w.record()).does
    assert any("deleted" in line for line in does) == held
    assert isinstance(orders.abort(w.context(), "not this year", 120.0), Done)
    assert row(w) == (("rolled_back", False) if held else ("failed", False))
    assert w.where() == {(SOURCE, True)}
    assert w.acls() == w.before
    assert TARGET not in w.cluster.topic_names()
    assert not any(w.apps.armed.values())
    assert w.events("abort") == [{"reason": "not this year", "by": "topicshift"}]


def test_a_paused_migration_is_aborted_and_may_be_opened_again() -> None:
    w = at(Step.CREATE_TARGET)
    orders.pause(w.context(), "x")
    orders.postpone(w.context(), w.clock.now() + timedelta(hours=5), "x")
    assert isinstance(orders.abort(w.context(), "x", 60.0), Done)
    assert (w.state(Row.PAUSE), w.state(Row.POSTPONE)) == ("undone", "undone")


def test_a_question_ends_with_its_migration_so_that_the_task_that_asks_wakes_up() -> None:
    w = World(approvals={"plan": "auto", "freeze": "required", "retire": "auto"})
    w.show(w.asks())
    assert w.state(Row.QUESTION, "stop_producers.go") == "intended"
    assert isinstance(orders.abort(w.context(), "x", 60.0), Done)
    assert w.state(Row.QUESTION, "stop_producers.go") == "undone"


def test_where_named_people_decide_an_abort_is_refused_before_anything_is_done() -> None:
    w = at(Step.STOP_PRODUCERS)
    w.policy = Installation.model_validate(
        {"apiVersion": "topicshift-policy/v1", "answers": [{"question": "rollback", "people": ["ada"]}]}
    )
    with pytest.raises(Refused, match=r"not counted.*topic_rollback"):
        orders.abort(w.context(), "x", 60.0)
    assert w.where() == {(SOURCE, False)}
    assert w.events("abort") == []


def test_after_the_switch_an_abort_says_which_way_is_left() -> None:
    w = switched()
    w.write(TARGET, records=3)
    with pytest.raises(Refused, match=r"forward_only.*topicshift advance.*topicshift close"):
        orders.abort(w.context(), "x", 60.0)
    assert w.where() == {(TARGET, True)}
    assert w.events("abort") == []


def test_what_cannot_be_read_aborts_nothing() -> None:
    w = at(Step.CREATE_TARGET)
    w.cluster.fail("offsets", Unreadable("no leader"))
    with pytest.raises(Unreadable, match="cannot be told"):
        orders.abort(w.context(), "x", 60.0)
    assert w.state(Row.ROLLBACK) is None


def test_resuming_says_first_what_it_does() -> None:
    w = at(Step.CREATE_TARGET)
    assert orders.resume_prospect(w.context(), w.record()).does == ("nothing: no freeze is running",)
    w = at(Step.STOP_PRODUCERS)
    assert "producers resume on payments" in orders.resume_prospect(w.context(), w.record()).does[0]


# ------------------------------------------------------------------------------------------------ Airflow


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow(monkeypatch)
    monkeypatch.setattr(operators, "open_context", _opened(made))
    monkeypatch.setattr(
        operators, "find_migration", lambda _: made.world.journal.current(made.world.claim.migration_id)
    )
    return made


def _opened(made: Airflow) -> Any:
    from topicshift_airflow.operators import end

    return end.open_context


def order(airflow: Airflow, name: str, **more: Any) -> Any:
    params = {"migration": SOURCE, "order": name, "reason": "r", "until": None, "only_say": False, **more}
    task = GiveOrder(task_id="give_order")
    run = SimpleNamespace(triggering_user_name="kim")
    return task.execute(airflow.context(task) | {"params": params, "dag_run": run})


def test_a_task_waits_in_the_triggerer_for_the_end_of_a_hold(airflow: Airflow) -> None:
    task = AdvanceOperator(task_id="create_target.create", until=Step.CREATE_TARGET)
    order(airflow, "pause")
    parked = airflow.run(task)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, RowTrigger)
    assert parked.trigger.row == "pause"
    assert order(airflow, "go on")["outcome"].startswith("goes on; it was paused by user:kim")
    until = airflow.world.clock.now() + timedelta(hours=2)
    order(airflow, "postpone", until=until.isoformat())
    airflow.until(Step.CREATE_TARGET)
    gate = AdvanceOperator(task_id="stop_producers.ready", until=Step.STOP_PRODUCERS)
    parked = airflow.run(gate)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, RowTrigger)
    assert (parked.trigger.row, parked.trigger.moment) == ("postpone", until.timestamp())
    assert order(airflow, "go on")["outcome"] == "goes on; it was postponed"


def test_what_an_order_has_done_is_told_as_the_engine_wrote_it_down(airflow: Airflow) -> None:
    airflow.until(Step.CREATE_TARGET)
    given = order(airflow, "abort")
    assert given["happened"] == ["the target: taken back", "producers and groups back on the source: done"]


def test_an_order_is_only_said_or_refused_or_carried_out(airflow: Airflow) -> None:
    said = order(airflow, "abort", only_say=True)
    assert said["would"] and said["outcome"] == "only said"
    assert row(airflow.world) == ("open", False)
    airflow.until(Step.CREATE_TARGET)
    assert order(airflow, "resume on source")["outcome"] == "no freeze is running"
    with pytest.raises(AirflowFailException, match="no time zone"):
        order(airflow, "postpone", until="2030-01-01T00:00:00")
    with pytest.raises(AirflowFailException, match="no window"):
        order(airflow, "postpone")
    with pytest.raises(AirflowFailException, match="is none"):
        order(airflow, "explode")
    assert order(airflow, "abort")["outcome"] == "it was rolled back"
    with pytest.raises(AirflowFailException, match="ended already"):
        order(airflow, "pause")


def test_close_gives_both_topics_free(airflow: Airflow) -> None:
    airflow.until(Step.CREATE_TARGET)
    said = order(airflow, "close")
    assert said["outcome"] == "failed"
    assert any("delete it if nobody uses it" in line for line in said["would"])
    assert said["left"] == [
        f"topic {TARGET} was made for this migration: delete it if nobody uses it: {delete_topic(TARGET)}"
    ]
    assert row(airflow.world) == ("failed", False)
    with pytest.raises(AirflowFailException, match="ended already"):
        order(airflow, "close", only_say=True)


def test_going_on_says_first_what_it_ends(airflow: Airflow) -> None:
    assert order(airflow, "go on", only_say=True)["would"] == ["nothing: it is not held"]
    order(airflow, "pause")
    order(airflow, "postpone", until="2030-01-01T00:00:00+00:00")
    would = order(airflow, "go on", only_say=True)["would"]
    assert "paused by user:kim" in would[0] and "postponed until 2030-01-01" in would[1]
    assert order(airflow, "go on")["outcome"].endswith("; postponed")
    assert airflow.world.record().postponed_until is None


def test_an_abort_on_a_way_back_says_yes_for_nobody_who_stops_producers_by_hand() -> None:
    """An abort is a yes to the rollback alone, never to a question that somebody has to act on."""
    w = World(producers=[{"name": "checkout", "principal": "User:checkout", "kind": "manual"}])
    w.advanced()
    w.write(TARGET, 1, 4)
    for group in ("ledger-g", "fraud-g"):
        w.drain(group, TARGET)
    w.answer(w.asks(wanted="rollback"))
    asking = w.asks(wanted="rollback")
    assert asking.ask is Ask.STOP_BY_HAND and w.record().mirrored
    outcome = orders.abort(w.context(), "x", 60.0)
    assert isinstance(outcome, Asking) and outcome.ask is Ask.STOP_BY_HAND
    assert [e for e in w.events("approved") if e["act"] == Ask.STOP_BY_HAND.value][1:] == [], "of the way forward alone"


# --------------------------------------------------------------------------------------------------- with a reason


def test_an_abort_and_a_close_without_a_reason_are_refused_as_on_the_command_line(airflow: Airflow) -> None:
    airflow.world.advance(until=Step.CREATE_TARGET)
    for name in ("abort", "close"):
        with pytest.raises(AirflowFailException, match="reason: it is empty"):
            order(airflow, name, reason="  ")
        order(airflow, name, reason="", only_say=True)
    assert airflow.world.events("abort") == [] and airflow.world.record().state is MigrationState.OPEN


def test_who_aborted_and_why_is_in_the_words_of_the_state(airflow: Airflow) -> None:
    airflow.world.advance(until=Step.CREATE_TARGET)
    order(airflow, "abort", reason="the wrong topic")
    world = airflow.world
    found = need(world.record(), "x", world.journal.events(world.claim.migration_id), world.clock.now())
    assert found.what == "nothing: aborted by kim: the wrong topic"


def test_a_rollback_is_looked_at_first_says_why_and_is_written_down_once(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = airflow.world
    world.advance(until=Step.CREATE_TARGET)
    monkeypatch.setattr(end, "find_migration", lambda _: world.journal.find()[-1])
    monkeypatch.setattr(end, "owner_alive", lambda _: False)
    monkeypatch.setattr(end, "owner_of", lambda _: "topic_rollback/x")
    airflow.triggered_by = "kim"
    look, act = ObserveRollback(task_id="observe"), RollBack(task_id="roll_back")
    with pytest.raises(AirflowSkipException):
        airflow.run(look, params={"migration": SOURCE, "only_say": True})
    assert airflow.pushed["said"]["type"] == "free" and airflow.pushed["said"]["would"][0].startswith("free: ")
    params = {"migration": SOURCE}
    assert airflow.run(look, params=params)["type"] == "free", (
        "a person is asked before anything is done, so no script is refused"
    )
    airflow.run(act, params={**params, "reason": "too slow"})
    (told,) = world.events("rollback_ordered")
    assert told == {"reason": "too slow", "by": "user:kim"}


@pytest.mark.parametrize("there", [False, True])
def test_an_abort_says_what_becomes_of_the_target_by_who_made_it(there: bool) -> None:
    w = World()
    w.advance(until=Step.CREATE_TARGET)
    record = w.record()
    if there:
        step = record.steps["create_target"]
        data = {**step.data, "ours": False}
        record = replace(record, steps={**record.steps, "create_target": replace(step, data=data)})
    lines = orders.abort_lines(record)
    wanted = f"{TARGET} stays: it was there before" if there else f"{TARGET} is deleted if it is still empty: this"
    assert any(line.startswith(wanted) for line in lines), lines
    assert lines[-1] == f"the migration ends as rolled back, and {SOURCE} and {TARGET} are free for another"
