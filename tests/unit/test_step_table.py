"""A step, a row, an act or a question that was added in one place only is missed here, by name."""

from __future__ import annotations

import pytest
from tests.unit.plan_world import spec, world
from tests.unit.world import World

from topicshift.acts import questions as timeouts
from topicshift.acts.registry import ACTS
from topicshift.commands.advance import command
from topicshift.core.engine.forward import FORWARD
from topicshift.core.engine.progress import marks
from topicshift.core.engine.retire import RETIRE
from topicshift.core.engine.words import BESIDE, ORDER, STEPS, Act, Ask, Row, Step, label
from topicshift.core.plan.model import make_plan
from topicshift.core.spec.cutover import Cutover
from topicshift.reporting.markdown import go_markdown
from topicshift_airflow import docs, questions
from topicshift_airflow.operators import tasks

ABOUT = {
    "source": "payments",
    "target": "payments-v2",
    "freeze_budget_s": 60.0,
    "freeze_at_most_s": 60.0,
    "deny": [],
    "until": "2026-03-01T02:00:00+00:00",
    "window": None,
    "producers": ["checkout"],
}

BOTH = pytest.mark.parametrize("cutover", Cutover)


def test_the_table_has_every_step_and_each_row_stands_in_it_once() -> None:
    assert set(STEPS) == set(Step)
    rows = [row for doc in STEPS.values() for row in doc.rows] + list(BESIDE)
    assert sorted(rows) == sorted(Row)


@BOTH
def test_every_order_has_every_step_and_the_retirement_apart(cutover: Cutover) -> None:
    assert sorted(ORDER[cutover]) == sorted(set(Step) - {Step.RETIRE})


@BOTH
def test_every_step_has_documented_tasks_rules_and_a_place_in_the_plan(cutover: Cutover) -> None:
    ruled = {rule.step for rule in FORWARD.rules} | {Step.VERIFY_DRAIN}  # the rules of the drain name it themselves
    planned = {action.step for action in make_plan(spec(cutover=cutover.value), world()).actions}
    for step in ORDER[cutover]:
        names = [f"{step.value}.{task.task_id}" for task in tasks.line_of(step, cutover, None, ("ledger",))]
        assert names and all(docs.task_doc(name) for name in names), step
        assert docs.tooltip(step), step
        assert step in ruled, step
        assert step.value in planned or step is Step.PLAN, step


@BOTH
def test_how_far_each_step_is_can_be_told_from_the_first_moment(cutover: Cutover) -> None:
    record = World(cutover=cutover.value).record()
    assert list(marks(record)) == [*ORDER[cutover], Step.RETIRE]


@BOTH
def test_the_go_says_what_will_be_done_in_every_step_after_it(cutover: Cutover) -> None:
    plan = make_plan(spec(cutover=cutover.value), world())
    said = go_markdown(plan, ABOUT, None, plan.spec)
    after = ORDER[cutover][ORDER[cutover].index(Step.STOP_PRODUCERS) : ORDER[cutover].index(Step.VERIFY)]
    assert [step for step in after if f"| {step.value} |" not in said] == []


def test_the_command_can_stop_after_each_step() -> None:
    (until,) = [p for p in command.params if p.name == "until"]
    assert tuple(until.type.choices) == ORDER[Cutover.DRAIN_FIRST]  # type: ignore[attr-defined]


def test_every_act_is_performed_and_every_question_has_its_words_and_its_time() -> None:
    assert set(ACTS) == set(Act)
    assert set(questions._TEXTS) == set(timeouts._TIMEOUTS) == set(Ask)
    assert RETIRE.rules


def test_rows_are_named_to_people_by_their_step() -> None:
    assert label("switch_consumer:ledger-g") == "switch_consumers (group on the target: ledger-g)"
    assert label("ask:approve.plan") == "question (a person's answer: approve.plan)"
    assert label("of another version") == "of another version"
