"""A person's answer counts for exactly what was asked, as it was shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from tests.unit.airflow_world import Airflow

from topicshift.core.engine.words import Act, Ask, Row, Step
from topicshift_airflow.operators.advance import QUESTION_DAG, AdvanceOperator
from topicshift_airflow.operators.end import AnswerQuestion
from topicshift_airflow.questions import Question, mark_of
from topicshift_airflow.triggers.drain import GateTrigger
from topicshift_airflow.triggers.journal import AnswerTrigger

REQUIRED = {"plan": "required", "freeze": "auto", "retire": "auto"}
PLAN: Any = {"until": Step.APPROVE}


def approve() -> AdvanceOperator:
    return AdvanceOperator(task_id="plan", until=Step.APPROVE)


def planned(monkeypatch: pytest.MonkeyPatch, **spec: Any) -> Airflow:
    airflow = Airflow(monkeypatch, approvals=REQUIRED, **spec)
    airflow.until(Step.PLAN)
    return airflow


def test_a_yes_is_for_the_hash_that_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = planned(monkeypatch)
    task = approve()
    question = airflow.asked(task)
    assert "Move payments (3 partitions) to payments-v2 (6)?" in question.subject
    mark = mark_of(question.about)
    assert question.subject.endswith(f"[{mark}]") and f"`{mark}`" in question.body
    result = airflow.answered(task, question, question.yes)
    assert result["plan_hash"] == question.about["plan_hash"]
    (said,) = airflow.world.events("approved")
    assert said["about"] == question.about
    assert airflow.world.journal.events(airflow.world.claim.migration_id)[-1].actor == "user:kim"


def test_the_log_of_a_task_that_waits_says_what_is_asked_until_when_and_how_to_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    airflow = planned(monkeypatch)
    with caplog.at_level("INFO", logger="topicshift"):
        question = airflow.asked(approve())
    (line,) = (r.getMessage() for r in caplog.records if "waits for a person" in r.getMessage())
    assert question.subject in line and f"topicshift answer {question.migration} approve.plan yes|no" in line
    assert f"until {datetime.fromtimestamp(question.ends_at, UTC):%Y-%m-%d %H:%M:%S} UTC" in line


def test_no_and_silence_end_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for option, said in (("Reject", "said no"), (None, "nobody answered in time")):
        airflow = planned(monkeypatch)
        task = approve()
        question = airflow.asked(task)
        with pytest.raises(AirflowFailException, match=said):
            airflow.answered(task, question, option)
        assert airflow.world.cluster.topic("payments-v2") is None
        assert airflow.world.events("step_failed")


def test_a_question_that_has_changed_is_asked_anew_in_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow goes on showing the first text of a task instance, so the new one needs another place."""
    airflow = planned(monkeypatch)
    task = approve()
    old = airflow.asked(task)
    airflow.world.cluster.alter_topic_configs("payments", set_={"retention.ms": "86400000"})
    parked = airflow.answered(task, old, old.yes)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, AnswerTrigger)
    ((dag_id, name), conf) = next(iter(airflow.runs.items()))
    new = Question(**conf)
    assert dag_id == QUESTION_DAG and name == new.name
    assert new.about != old.about and mark_of(new.about) in new.subject
    assert airflow.world.journal.step(airflow.world.claim.migration_id, Row.CREATE_TARGET) is None
    # Whatever is still answered to the old text counts for nothing, also where it wakes the task.
    woken = task.resume(airflow.context(task), {"chosen_options": ["Approve"]}) if _parks(task, airflow) else None
    assert woken is None
    asker = AnswerQuestion(task_id="answer")
    context = airflow.context(asker, params=conf)
    with pytest.raises(BaseException) as shown:
        asker.execute(context)
    asker.execute_complete(
        context, {"chosen_options": [new.yes], "responded_by_user": {"name": "ada"}}, **shown.value.kwargs
    )
    result = task.resume(airflow.context(task), {"status": "changed"})
    assert result["plan_hash"] == new.about["plan_hash"]
    assert [e["about"] for e in airflow.world.events("approved")] == [old.about, new.about]


def _parks(task: AdvanceOperator, airflow: Airflow) -> bool:
    with pytest.raises(TaskDeferred):
        task.resume(airflow.context(task), {"chosen_options": ["Approve"]})
    return False


def test_an_answer_to_what_is_asked_no_longer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = planned(monkeypatch)
    task = approve()
    old = airflow.asked(task)
    airflow.world.cluster.alter_topic_configs("payments", set_={"retention.ms": "86400000"})
    other = AdvanceOperator(task_id="other", until=Step.APPROVE)
    new = airflow.asked(other)
    airflow.answered(task, old, old.yes)
    assert not airflow.world.events("approved") and len(airflow.world.events("answer_ignored")) == 1
    assert airflow.answered(other, new, new.yes)["plan_hash"] == new.about["plan_hash"]


def test_groups_that_are_asked_about_side_by_side_are_answered_each_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumers = [{"name": n, "group": f"{n}-g", "kind": "manual"} for n in ("ledger", "fraud")]
    airflow = Airflow(monkeypatch, consumers=consumers)
    airflow.until(Step.SWITCH_PRODUCERS)
    tasks = [AdvanceOperator(task_id=n, consumer=n, until=Step.SWITCH_CONSUMERS) for n in ("ledger", "fraud")]
    asked = [airflow.asked(task) for task in tasks]
    assert [q.of for q in asked] == ["ledger-g", "fraud-g"]
    airflow.world.leave("ledger-g")
    airflow.answered(tasks[0], asked[0], asked[0].yes)
    assert airflow.world.state(Row.SWITCH_GROUP, "ledger-g") == "intended"
    assert airflow.world.state(Row.SWITCH_GROUP, "fraud-g") is None, "nobody has stopped fraud"


def test_a_verifier_that_dies_while_people_stop_producers_is_all_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    airflow = Airflow(monkeypatch, producers=[{"name": "checkout", "kind": "manual"}])
    airflow.until(Step.STOP_PRODUCERS, leave=frozenset((Ask.STOP_BY_HAND, Act.BEGIN_FREEZE)))
    fence = AdvanceOperator(task_id="fence", until=Step.STOP_PRODUCERS, through=Step.SWITCH_PRODUCERS)
    question = airflow.asked(fence)
    airflow.world.verifier.dies()
    parked = airflow.answered(fence, question, question.yes)
    assert isinstance(parked, TaskDeferred) and isinstance(parked.trigger, GateTrigger) and not parked.trigger.drain
    airflow.world.verifier.start()
    assert fence.resume(airflow.context(fence), {"status": "ready"})["fence"]["fence_offsets_sum"] == 30


def test_a_switch_leaves_the_start_by_hand_to_the_task_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, producers=[{"name": "checkout", "kind": "manual"}])
    begin = (Ask.STOP_BY_HAND, Act.BEGIN_FREEZE)
    airflow.until(Step.STOP_PRODUCERS, leave=frozenset(begin))
    fence = AdvanceOperator(task_id="fence", until=Step.STOP_PRODUCERS, through=Step.SWITCH_PRODUCERS)
    question = airflow.asked(fence)
    assert question.ask == Ask.STOP_BY_HAND and airflow.world.state(Row.FREEZE) is None, "the clock has not begun"
    assert airflow.answered(fence, question, question.yes)["fence"]["fence_offsets_sum"] == 30
    assert airflow.world.state(Row.SWITCH_PRODUCERS) == "intended"
    switch = AdvanceOperator(task_id="switch", until=Step.SWITCH_PRODUCERS, leave=(Ask.START_BY_HAND,))
    airflow.run(switch)
    by_hand = AdvanceOperator(task_id="by_hand", until=Step.SWITCH_PRODUCERS)
    question = airflow.asked(by_hand)
    assert question.ask == Ask.START_BY_HAND
    airflow.answered(by_hand, question, question.yes)
    assert airflow.world.state(Row.FREEZE) == "done"


def test_a_no_to_work_by_hand_is_asked_about_again_where_the_task_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not done yet is what a person says at one moment; it must not leave producers stopped for good."""
    manual = {"name": "checkout", "kind": "manual", "principal": "User:checkout"}
    airflow = Airflow(monkeypatch, producers=[manual])
    for step, ask in ((Step.STOP_PRODUCERS, Ask.STOP_BY_HAND), (Step.SWITCH_PRODUCERS, Ask.START_BY_HAND)):
        airflow.until(step)  # as far as it comes without a person
        for option in ("no", None, "yes"):
            airflow.world.clock.advance(1)
            task = AdvanceOperator(task_id=f"{step.value}.{option}", until=step)
            question = airflow.asked(task)
            assert question.ask == ask.value
            if option == "yes":
                airflow.answered(task, question, question.yes)
                continue
            with pytest.raises(AirflowFailException, match="Clear the task"):
                airflow.answered(task, question, question.no if option else None)
    assert airflow.world.state(Row.SWITCH_PRODUCERS) == "done"
