"""The go: what a person is shown before anybody is stopped, and what their yes counts for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.test_acts_people import BY_HAND, moves
from tests.unit.world import SOURCE, World

from topicshift.acts import gate, questions
from topicshift.acts.advance import Asking, Waiting
from topicshift.acts.planning import accepted_plan
from topicshift.commands import answer
from topicshift.core.engine.go import HOLDS, Forecast, ask_for, bound_of, still_holds
from topicshift.core.engine.words import Act, Ask, Row, Step, mark_of
from topicshift.core.errors import DrainTimedOut, Refused
from topicshift.core.kafka.cluster import Acl
from topicshift_airflow.operators.advance import QUESTION_DAG, AdvanceOperator
from topicshift_airflow.questions import Question

ASKED: dict[str, Any] = {"approvals": {"plan": "auto", "freeze": "required", "retire": "auto"}}
BATCH = Acl("TOPIC", SOURCE, "LITERAL", "User:batch", "*", "WRITE", "ALLOW")
NOW = datetime(2026, 3, 1, 2, tzinfo=UTC)

# ---------------------------------------------------------------------------------------------------------- pure

seconds = st.floats(0, 1e5, allow_nan=False)
forecasts = st.builds(
    Forecast,
    settle_s=st.floats(0, 10),
    drain_s=st.none() | seconds,
    stop_s=st.none() | seconds,
    gone_s=st.none() | seconds,
)
covered = st.fixed_dictionaries(
    {
        "plan_hash": st.text(max_size=5),
        "producers": st.lists(st.text(max_size=3), max_size=3),
        "groups": st.lists(st.text(max_size=3), max_size=3),
        "deny": st.lists(st.text(max_size=3), max_size=3),
        "freeze_budget_s": st.floats(5, 86_400),
        "window": st.none() | st.lists(st.text(max_size=3), min_size=2, max_size=2),
        "attempt": st.integers(1, 5),
    }
)


@given(covered, forecasts, st.none() | st.integers(0, 100_000))
def test_a_yes_holds_for_what_was_shown(about: dict[str, Any], forecast: Forecast, left_s: int | None) -> None:
    last = None if left_s is None else NOW + timedelta(seconds=left_s)
    budget_s = about["freeze_budget_s"]
    shown = ask_for(about, forecast, budget_s=budget_s, last=last, now=NOW)
    until = datetime.fromisoformat(shown["until"])
    assert until <= NOW + HOLDS and (last is None or until <= last)
    assert 0 < shown["freeze_at_most_s"] <= budget_s

    def holds(what: dict[str, Any], now: datetime = NOW, cast: Forecast | None = forecast, hand: bool = False) -> bool:
        return still_holds(shown, what, cast, budget_s=budget_s, stopped_by_hand=hand, now=now)

    known = forecast.seconds is not None
    assert holds(about) == (known and until > NOW), "who was asked a moment ago is not asked again"
    assert holds(about, hand=True) == (until > NOW)
    assert not holds(about, until) and not holds(about, until, hand=True)
    assert not holds(about, cast=None)
    for key, value in about.items():
        assert not holds({**about, key: [value, "changed"]}), f"{key} is part of what a yes is for"
        assert not holds({k: v for k, v in about.items() if k != key})


@given(forecasts, forecasts, st.floats(5, 86_400))
def test_a_yes_holds_while_the_forecast_stays_below_the_bound(one: Forecast, two: Forecast, budget_s: float) -> None:
    shown = ask_for({}, one, budget_s=budget_s, last=None, now=NOW)
    assert shown["freeze_at_most_s"] == bound_of(one, budget_s)
    holds = still_holds(shown, {}, two, budget_s=budget_s, stopped_by_hand=False, now=NOW)
    predicted = two.seconds
    assert holds == (predicted is not None and min(predicted, budget_s) <= shown["freeze_at_most_s"])


# ------------------------------------------------------------------------------------------------------ the engine


def predict(monkeypatch: pytest.MonkeyPatch, drain_s: float) -> None:
    monkeypatch.setattr(gate, "forecast_of", lambda record, groups: Forecast(0.5, drain_s, groups=groups))


def asked(w: World, **how: Any) -> Asking:
    asking = w.asks(**how)
    assert asking.ask is Ask.FREEZE
    assert w.state(Row.FREEZE) is None or w.state(Row.FREEZE) == "undone"
    assert w.where() == {(SOURCE, True)}, "nobody is stopped yet"
    assert not w.denied()
    return asking


def test_the_go_comes_before_anybody_is_stopped_and_says_what_it_is_for() -> None:
    w = World(**ASKED)
    asking = asked(w)
    about = asking.about
    assert about["plan_hash"] == w.journal.current(w.claim.migration_id).plan_hash
    assert (about["producers"], about["groups"]) == (["checkout", "billing"], ["ledger-g", "fraud-g"])
    assert (about["deny"], about["freeze_budget_s"], about["attempt"]) == (["User:batch"], 120.0, 1)
    assert (about["freeze_at_most_s"], about["window"]) == (10.0, None)
    assert datetime.fromisoformat(about["until"]) - asking.view.now <= HOLDS
    w.answer(asking)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert [(e["act"], e["how"]) for e in w.events("approved")][1] == (Ask.FREEZE, "person")
    assert w.kinds().index("approved") < w.kinds().index("freeze_begun")


@pytest.mark.parametrize(("said", "error"), [("no", Refused), ("silence", DrainTimedOut)])
def test_without_a_go_nobody_is_ever_stopped_and_it_is_asked_again(said: str, error: Any) -> None:
    w = World(**ASKED)
    asking = asked(w)
    w.answer(asking, said)
    with pytest.raises(error, match="before a person says go"):
        w.advance(_asker(w, asking))
    assert w.where() == {(SOURCE, True)} and not w.denied() and w.state(Row.FREEZE) is None
    assert not w.events("freeze_begun")
    w.clock.advance(1)
    w.answer(asked(w))
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def _asker(w: World, asking: Asking) -> Any:
    """The task that has asked goes on with the answer; it began before that."""
    ctx = w.context()
    ctx.began_at = asking.view.began_at
    return ctx


def test_a_yes_is_no_licence_to_skip_the_gate() -> None:
    w = World(**ASKED)
    w.answer(asked(w))
    w.write(records=50)
    assert "50 records behind" in w.waits(patience_s=1)
    assert w.state(Row.FREEZE) is None and w.where() == {(SOURCE, True)}
    for group in ("ledger-g", "fraud-g"):
        w.drain(group)
    w.advanced()
    assert [e["act"] for e in w.events("asked")].count(Ask.FREEZE) == 1, "the yes still holds"


def test_a_forecast_that_moves_below_the_bound_asks_nobody_again(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(**ASKED)
    predict(monkeypatch, 4.0)
    asking = asked(w)
    assert asking.about["freeze_at_most_s"] == 10.0
    w.answer(asking)
    predict(monkeypatch, 9.0)
    w.advanced()
    assert [e["act"] for e in w.events("asked")].count(Ask.FREEZE) == 1


def changed(w: World, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if change == "forecast":
        predict(monkeypatch, 20.0)
    elif change == "time":
        w.clock.advance(HOLDS.total_seconds())
    elif change == "deny":
        w.cluster.delete_acls([BATCH])


@pytest.mark.parametrize("change", ["forecast", "time", "deny"])
@pytest.mark.parametrize("answered", [True, False])
def test_a_question_that_has_changed_is_a_new_one_and_looks_new(
    change: str, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = World(**ASKED)
    first = asked(w)
    w.answer(first) if answered else w.show(first)
    changed(w, change, monkeypatch)
    second = asked(w)
    assert mark_of(second.about) != mark_of(first.about)
    w.show(second)
    with pytest.raises(Refused, match="counts for nothing"):
        w.answer_late(first)
    assert w.state(Row.FREEZE) is None
    w.answer_late(second)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def test_a_go_is_for_one_freeze() -> None:
    w = World(**ASKED)
    w.answer(asked(w))
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    assert w.state(Row.FREEZE) == "intended"
    w.advanced(wanted="resume")
    again = asked(w)
    assert again.about["attempt"] == 2
    w.answer(again)
    w.advanced()
    assert w.kinds().count("freeze_begun") == 2


@pytest.mark.parametrize("freeze", ["required", "auto"])
@pytest.mark.parametrize("who", ["User:rogue", "User:*"])
def test_who_may_write_since_the_plan_keeps_the_gate_shut_by_name(freeze: str, who: str) -> None:
    """Nobody has accepted that it is denied, so it would write on into the freeze."""
    rogue = Acl("TOPIC", SOURCE, "LITERAL", who, "*", "WRITE", "ALLOW")
    w = World(approvals={"plan": "auto", "freeze": freeze, "retire": "auto"})
    w.advanced(until=Step.CREATE_TARGET)
    if freeze == "required":
        w.answer(asked(w))
    w.cluster.create_acls([rogue])
    assert f"{who}: an ACL that was made after the plan lets it write to payments" in w.waits(patience_s=5)
    assert w.state(Row.FREEZE) is None
    w.cluster.delete_acls([rogue])
    w.advanced()


def test_a_producer_that_tells_its_principal_after_the_plan_is_no_new_writer() -> None:
    """Its right was there when the plan was made; only its name was not known."""
    w = World(approvals={"plan": "auto", "freeze": "auto", "retire": "auto"})
    late = Acl("TOPIC", SOURCE, "LITERAL", "User:late", "*", "WRITE", "ALLOW")
    w.cluster.create_acls([late])
    w.advanced(until=Step.CREATE_TARGET)
    assert "User:late" in (accepted_plan(w.context()).writers or ())
    w.advanced()


def test_nobody_is_denied_who_was_not_named_in_the_go() -> None:
    """Who gets the right to write between the go and the fence is not denied: the ends are the judge."""
    w = World(**ASKED)
    w.advanced(until=Step.CREATE_TARGET)
    w.cluster.delete_acls([BATCH])
    asking = asked(w)
    assert asking.about["deny"] == []
    w.answer(asking)
    w.advance(leave=frozenset({Act.DENY.value}))
    assert w.state(Row.FREEZE) == "intended"
    w.cluster.create_acls([BATCH])
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    assert w.state(Row.FENCE) == "done" and not w.denied()
    assert any("User:batch may write since the plan was approved" in note for note in w.data(Row.FENCE)["notes"])


def test_a_deny_that_a_late_request_set_is_named_in_the_next_go() -> None:
    """The next freeze takes it for its own, so whoever says go is told whom it holds."""
    w = World(**ASKED)
    w.answer(asked(w))
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    (deny,) = {a for a in w.acls() if a.permission == "DENY"}
    w.advanced(wanted="resume")
    w.cluster.create_acls([deny])
    asking = w.asks()
    assert (asking.ask, asking.about["deny"], asking.about["attempt"]) == (Ask.FREEZE, ["User:batch"], 2)
    w.answer(asking)
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    assert (w.state(Row.FENCE), w.data(Row.FENCE)["acls_added"]) == ("done", [asdict(deny)])


def test_a_deny_that_a_late_request_sets_after_the_go_asks_nobody_again() -> None:
    w = World(**ASKED)
    w.answer(asked(w))
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    (deny,) = {a for a in w.acls() if a.permission == "DENY"}
    w.advanced(wanted="resume")
    w.answer(asked(w))
    w.cluster.create_acls([deny])
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    assert (w.state(Row.FENCE), w.data(Row.FENCE)["acls_added"]) == ("done", [asdict(deny)])


def test_who_would_be_denied_is_never_taken_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from topicshift.core.errors import Unreadable

    w = World(**ASKED)

    def unread(*_: Any, **__: Any) -> Any:
        raise Unreadable("the file store does not answer")

    w.advanced(until=Step.CREATE_TARGET)
    monkeypatch.setattr(gate, "deny_of", unread)
    assert "who would be denied cannot be told: the file store does not answer" in w.waits(patience_s=1)
    monkeypatch.undo()
    asked(w)


def test_the_go_comes_before_a_person_stops_producers_and_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(**BY_HAND, **ASKED)
    first = asked(w)
    w.answer(first)
    second = w.asks()
    assert second.ask is Ask.STOP_BY_HAND
    left = questions.timeout_of(Ask.STOP_BY_HAND, second.about, second.view.record, second.view.now)
    assert left == timedelta(hours=4)
    late = datetime.fromisoformat(first.about["until"]) - timedelta(minutes=5)
    assert questions.timeout_of(Ask.STOP_BY_HAND, second.about, second.view.record, late) == timedelta(minutes=5)
    back, days = replace(second.view.record, way="back1."), late + timedelta(days=3)
    assert questions.timeout_of(Ask.STOP_BY_HAND, second.about, back, days) == timedelta(hours=4), "it has no go"
    moves(w, "legacy", None)
    w.answer(second)
    predict(monkeypatch, 60.0)
    assert w.asks().ask is Ask.START_BY_HAND, "it stands still already, so no forecast asks anybody again"


def test_the_last_freeze_of_a_migration_tells_how_long_producers_take_to_stop() -> None:
    w = World(**ASKED)
    w.answer(asked(w))
    w.advance(leave=frozenset({Act.INTEND_SWITCH.value}))
    w.advanced(wanted="resume")
    told, stopped = (datetime.fromisoformat(w.data(Row.STOP_PRODUCERS)[k]) for k in ("at", "stopped_at"))
    found = asked(w).view.gate
    assert found.forecast.stop_s == (stopped - told).total_seconds()  # type: ignore[union-attr]


# --------------------------------------------------------------------------------------------------------- Airflow

BEGIN = (Ask.STOP_BY_HAND, Act.BEGIN_FREEZE)


def go_task() -> AdvanceOperator:
    return AdvanceOperator(task_id="go", until=Step.STOP_PRODUCERS, leave=BEGIN)


def test_the_question_shows_what_will_happen_and_its_answers_carry_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **ASKED)
    airflow.until(Step.CREATE_TARGET)
    airflow.world.verifier.start()
    ready = AdvanceOperator(task_id="ready", until=Step.STOP_PRODUCERS, leave=("go_given", *BEGIN))
    airflow.run(ready)
    assert not airflow.shown, "the gate leaves the question to the task after it"
    question = airflow.asked(go_task())
    mark = mark_of(question.about)
    assert question.subject == f"Stop the producers of payments and move to payments-v2? [{mark}]"
    assert (question.yes, question.no) == (f"Go [{mark}]", f"Not now [{mark}]")
    for text in (
        "**predicted**",
        "| freeze budget | 120 s |",
        "`User:batch`",
        "| window | none |",
        "at most** | 10 s |",
    ):
        assert text in question.body, question.body
    assert "| stop_producers | stop producer checkout (route) |" in question.body
    airflow.answered(go_task(), question, question.yes)
    assert airflow.world.state(Row.FREEZE) is None, "the freeze is the next task's"


def test_an_old_answer_to_a_changed_go_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **ASKED)
    airflow.until(Step.CREATE_TARGET)
    airflow.world.verifier.start()
    task = go_task()
    old = airflow.asked(task)
    airflow.world.cluster.delete_acls([BATCH])
    parked = airflow.answered(task, old, old.yes)
    assert isinstance(parked, TaskDeferred), "it is asked anew, in a run of its own"
    ((dag_id, _), conf) = next(iter(airflow.runs.items()))
    new = Question(**conf)
    assert dag_id == QUESTION_DAG and new.ask == Ask.FREEZE
    assert new.yes != old.yes and new.about["deny"] == []
    assert airflow.world.state(Row.FREEZE) is None and airflow.world.where() == {(SOURCE, True)}


def test_a_go_that_is_marked_as_success_is_no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **ASKED)
    airflow.until(Step.CREATE_TARGET)
    airflow.world.verifier.start()
    fence = AdvanceOperator(task_id="fence", until=Step.STOP_PRODUCERS, through=Step.SWITCH_PRODUCERS)
    assert airflow.asked(fence).ask == Ask.FREEZE
    assert airflow.world.state(Row.FREEZE) is None


def test_the_go_is_given_from_a_terminal_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(**ASKED)
    asking = asked(w)
    w.show(asking)

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[Any]:
        yield w.context()

    def say(*args: str) -> Any:
        return CliRunner().invoke(
            answer.command, [w.claim.migration_id, Ask.FREEZE.value, "yes", "--bootstrap-server", "x:1", *args]
        )

    monkeypatch.setattr(answer, "open_context", opened)
    wrong = say("--about", "00000000")
    assert isinstance(wrong.exception, Refused) and "Nothing was said" in str(wrong.exception)
    w.write(records=50)
    waits = say("--about", mark_of(asking.about))
    assert isinstance(waits.exception, Refused) and "50 records behind" in str(waits.exception), "not past the gate"
    for group in ("ledger-g", "fraud-g"):
        w.drain(group)
    assert say("--about", mark_of(asking.about)).exception is None
    w.advanced()
    assert [e["about"] for e in w.events("approved") if e["act"] == Ask.FREEZE] == [asking.about]


def test_waiting_is_no_answer() -> None:
    w = World(**ASKED)
    asking = asked(w)
    w.show(asking)
    for _ in range(3):
        w.clock.advance(3600)
        assert asked(w).about == asking.about, "the same question, until its time is over"
    assert not isinstance(w.advance(until=Step.CREATE_TARGET), Waiting)
