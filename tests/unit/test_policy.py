"""What the installation policy does not let anybody do, and whose answer counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.airflow_world import Airflow
from tests.unit.cli.parts import SPEC
from tests.unit.test_fence_again import half
from tests.unit.world import AUTO, SOURCE, TARGET, World

from topicshift import cli
from topicshift.acts.advance import Asking, Waiting
from topicshift.adapters.policy import PolicyFile
from topicshift.adapters.readers import refusal
from topicshift.core.checks.installation import forbidden
from topicshift.core.engine.people import Person, objection, second_wanted, still_counts
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import NotCounted, PreflightFailed, Refused, SpecError, Unreadable
from topicshift.core.policy.floor import lies_below
from topicshift.core.policy.model import Installation
from topicshift.core.policy.who import Who
from topicshift.core.spec.answers import QUESTIONS
from topicshift.core.spec.io import InvalidSpec, parse_model
from topicshift.core.spec.participants import Reader
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.operators.end import AnswerQuestion
from topicshift_airflow.questions import Question
from topicshift_airflow.triggers.journal import AnswerTrigger

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = {"approvals": {"plan": "required", "freeze": "auto", "retire": "auto"}}
DAY = 86_400
ADA, GRACE = Person("ada", "1"), Person("grace", "2")


def policy(**keys: Any) -> Installation:
    return Installation.model_validate({"apiVersion": "topicshift-policy/v1", **keys})


def rule(question: str, *people: str, two: bool = False) -> Installation:
    return policy(answers=[{"question": question, "people": list(people) or None, "two_people": two}])


# ----------------------------------------------------------------------------------------------------- the file


def example() -> str:
    return (ROOT / "docs" / "policy.md").read_text("utf-8").split("```yaml\n")[1].split("```")[0]


def test_the_example_of_the_page_is_a_policy() -> None:
    made = parse_model(example(), "docs/policy.md", Installation)
    assert made.members(["role:oncall", "kim"]) == {"ada", "grace", "mary", "kim"}
    assert made.floor == {"plan", "freeze", "retire"}


def test_every_question_has_a_name_in_policies_and_specs() -> None:
    assert {ask.name.lower() for ask in Ask} == set(QUESTIONS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("- a", "it holds a list"),
        ("connections: [a]", "apiVersion: it is missing"),
        (example() + "topcis: [a]", "Did you mean `topics`?"),
        (example() + "topics: [a]", "the key is written twice"),
        (example().replace("question: retire", "question: retired"), "Did you mean `retire`?"),
        (example().replace("plan: required", "plans: required"), "Did you mean `plan`?"),
        (example().replace('"role:oncall"', '"role:onkall"'), "Did you mean `oncall`?"),
        (example().replace("question: retire", "question: freeze"), "there are two rules for 'freeze'"),
        (example().replace("[ada, grace, mary]", "[ada]"), "one person alone may answer 'retire', and it takes two"),
        (example().replace("after: 7d", "after: soon"), "retire.after"),
        (example().replace("two_people", "two_peple"), "Did you mean `two_people`?"),
        (example().replace("oncall: [ada, grace, mary]", "oncall: []"), "roles.oncall"),
        ("{", "this is not YAML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_and_says_where(text: str, says: str) -> None:
    with pytest.raises(InvalidSpec, match="the policy: ") as told:
        parse_model(text, "the policy", Installation)
    assert says in str(told.value)


def test_the_file_is_read_anew_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    read = PolicyFile(file)
    with pytest.raises(Unreadable, match="cannot be read"):
        read()
    file.write_text(example())
    first = read()
    assert first is not None and read() is first
    file.write_text(example().replace("7d", "30d"))
    assert read() != first
    file.write_text("topics: 3")
    with pytest.raises(SpecError, match="topics"):
        read()
    assert PolicyFile(None)() is None


@pytest.mark.parametrize(
    ("location", "place", "below"),
    [
        ("s3://bucket/a/b", "s3://bucket/a", True),
        ("s3://bucket/ab", "s3://bucket/a", False),
        ("s3://bucket/a/../b", "s3://bucket/a", False),
        ("s3://other/a", "s3://bucket", False),
        ("gs://bucket/a", "s3://bucket", False),
        ("/mnt/a", "file:///mnt", True),
        ("/mnt/a", "/", True),
        ("http://a:8083/x", "http://a:80830/", False),
        ("http://[a", "http://a", False),
        ("s3://checkpoints", "s3://checkpoints", True),
        ("s3://checkpoints/x", "s3://checkpoints/", True),
        ("s3://checkpoints", "s3://checkpoints/", True),
        ("S3://Checkpoints/x", "s3://checkpoints", True),
        ("s3://checkpoints/x::http://elsewhere/", "s3://checkpoints", False),
        ("s3://checkpoints/x?=/../../y", "s3://checkpoints", False),
        ("s3://checkpoints/x#y", "s3://checkpoints", False),
        ("s3://checkpoints/%2e%2e/y", "s3://checkpoints", False),
        ("abfs://evidence@account/x", "abfs://evidence@account", True),
        ("abfs://evidence@account/x", "abfs://account", False),
        ("/mnt/%2E%2E/etc", "/mnt", False),
        ("mnt/a", "mnt", False),
    ],
)
def test_where_evidence_may_lie(location: str, place: str, below: bool) -> None:
    """What the policy's check says (lint, plan, form) is what the run does."""
    assert lies_below(location, place) is below
    assert (refusal(location, [place]) is None) is below
    reader = Reader.model_construct(name="r", kind="evidence_file", location=location)
    found = forbidden(World().spec.model_copy(update={"readers": [reader]}), TARGET, policy(reader_locations=[place]))
    assert [f.code for f in found] == ([] if below else ["TS805"])


# ------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.setenv("TOPICSHIFT_POLICY", str(tmp_path / "policy.yaml"))

    def call(*words: str) -> tuple[int, str]:
        code = cli.run(words)
        return code, "".join(capsys.readouterr())

    return call


def test_lint_refuses_a_spec_below_the_policy(tmp_path: Path, run: Any) -> None:
    spec, file = tmp_path / "spec.yaml", tmp_path / "policy.yaml"
    spec.write_text(SPEC.format(source="invoices"))
    code, said = run("lint", str(spec))
    assert code == 4 and "cannot be read" in said, "a policy that is named and not there is unknown"
    file.write_text(example())
    code, said = run("lint", str(spec))
    assert code == 3 and "TS802 error: source: 'invoices'; the policy allows payments*, orders*." in said
    spec.write_text(SPEC.format(source="payments"))
    assert run("lint", str(spec))[0] == 0
    file.write_text(example() + "topcis: []")
    code, said = run("lint", str(spec))
    assert code == 2 and "Did you mean `topics`?" in said


def test_an_answer_from_a_terminal_is_refused_where_people_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from topicshift.commands import answer

    w = World(**REQUIRED)
    asking = w.asks()

    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        yield w.context()

    monkeypatch.setattr(answer, "open_context", opened)
    words = ("answer", SOURCE, asking.ask.value, "yes", "--bootstrap-server", "nowhere:1")
    w.policy = rule("plan", "ada")
    assert cli.run(words) == 3
    assert "an answer from a terminal is of nobody that it knows" in capsys.readouterr().err
    assert w.asks().ask is Ask.PLAN and w.events("answer_not_counted")
    w.policy = None
    assert cli.run(words) == 0


# ------------------------------------------------------------------------------------------------ in the engine


def test_a_plan_below_the_policy_is_refused_and_nothing_is_made() -> None:
    w = World()
    w.policy = policy(topics=["orders*"], approvals={"plan": "required"})
    with pytest.raises(PreflightFailed) as told:
        w.advance()
    assert "TS802" in str(told.value) and "TS803" in str(told.value)
    assert w.cluster.topic(TARGET) is None


def test_a_policy_that_cannot_be_read_is_unknown() -> None:
    w = World()
    w.policy = Unreadable("the policy cannot be read")
    with pytest.raises(Unreadable, match="TS501 error: policy"):
        w.advance()
    w.policy = None
    w.advance(until=Step.CREATE_TARGET)
    w.policy = Unreadable("the policy cannot be read")
    assert "what the installation policy allows cannot be told" in w.waits(until=Step.STOP_PRODUCERS, patience_s=1)
    assert w.state(Row.FREEZE) is None


def test_a_policy_that_was_tightened_after_the_plan_stops_the_run_before_the_freeze() -> None:
    w = World()
    w.advance(until=Step.CREATE_TARGET)
    w.policy = policy(connections=["kafka_eu"])
    with pytest.raises(Refused, match="TS801"):
        w.advance()
    assert w.state(Row.FREEZE) is None


def test_a_policy_that_was_tightened_in_the_freeze_ends_it_on_the_source() -> None:
    w = World()
    w.advance(until=Step.DRAIN)
    assert w.state(Row.FREEZE) == "intended"
    w.policy = policy(topics=["orders"])
    with pytest.raises(Refused, match="TS802"):
        w.advance()
    assert w.where() == {(SOURCE, True)} and not w.denied()


def test_after_the_switch_a_policy_stops_nobody_half_way() -> None:
    w = World()
    w.advance(until=Step.SWITCH_PRODUCERS)
    w.policy = policy(topics=["orders"])
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def test_what_was_auto_is_asked_where_the_policy_was_tightened() -> None:
    w = World()
    w.advance(until=Step.DRAIN)
    w.policy = policy(approvals={"certificate": "required"})
    assert w.asks().ask is Ask.CERTIFICATE


def test_a_source_is_kept_as_long_as_the_policy_says_now() -> None:
    w = World(retire={"after": "1d"})
    w.advanced()
    w.clock.advance(8 * DAY)
    w.policy = policy(retire={"after": "30d", "scream_test": "3h"})
    w.waits(wanted="retire", patience_s=0)
    assert w.state(Row.SCREAM_TEST) is None
    w.clock.advance(23 * DAY)
    w.waits(wanted="retire", patience_s=0)
    assert w.state(Row.SCREAM_TEST) == "intended"
    w.clock.advance(2 * 3600)
    w.waits(wanted="retire", patience_s=0)
    w.policy = policy(topics=["orders"])
    with pytest.raises(Refused, match="TS802"):
        w.advance(wanted="retire")
    assert w.state(Row.SCREAM_TEST) == "undone", "everybody is let in again"
    assert w.cluster.topic(SOURCE) is not None


def test_a_yes_by_the_spec_is_none_once_a_person_is_wanted() -> None:
    w = World()
    w.advanced()
    w.clock.advance(8 * DAY)
    w.waits(wanted="retire", patience_s=0)
    w.policy = policy(approvals={"retire": "required"})
    assert w.asks(wanted="retire").ask is Ask.RETIRE


def test_a_process_without_the_policy_does_not_carry_on_what_was_planned_under_one() -> None:
    w = World()
    w.policy = policy(topics=["payments*"])
    w.advance(until=Step.CREATE_TARGET)
    w.policy = None
    assert "planned under an installation policy" in w.waits(patience_s=1)
    w.policy = policy(topics=["payments*"])
    w.advanced()


# ------------------------------------------------------------------------------------------------------- people


def test_only_people_who_are_named_are_counted_and_the_question_stays_open() -> None:
    w = World(**REQUIRED)
    w.policy = rule("plan", "ada", "id:2")
    asking = w.asks()
    for who in (None, Person("carl", "3"), Person("id:2", "9")):
        with pytest.raises(NotCounted):
            w.answer(asking, person=who)
        assert w.asks().ask is Ask.PLAN
    assert [e["act"] for e in w.events("answer_not_counted")] == [Ask.PLAN.value] * 3
    w.answer(asking, person=Person("somebody", "2"))
    w.advance(until=Step.CREATE_TARGET)


def test_a_spec_narrows_and_a_yes_of_somebody_who_may_no_longer_answer_counts_no_more() -> None:
    w = World(**REQUIRED, answers=[{"question": "plan", "people": ["ada"]}])
    w.policy = rule("plan", "ada", "grace")
    asking = w.asks()
    with pytest.raises(NotCounted, match="grace is not among"):
        w.answer(asking, person=GRACE)
    w.answer(asking, person=ADA)
    w.policy = rule("plan", "grace")
    with pytest.raises(PreflightFailed, match="TS806"):
        w.advance()
    w = World(**REQUIRED)
    w.answer(w.asks(), person=ADA)
    w.policy = rule("plan", "grace")
    assert w.asks().ask is Ask.PLAN


def test_two_people_in_a_run_that_nobody_triggered() -> None:
    w = World(**REQUIRED)
    w.policy = rule("plan", two=True)
    asking = w.asks()
    w.answer(asking, person=ADA)
    assert w.asks().about == asking.about and w.state(Row.QUESTION, Ask.PLAN.value) == "intended"
    with pytest.raises(NotCounted, match="ada was the first"):
        w.answer(asking, person=Person("another name", "1"))
    w.answer(asking, person=GRACE)
    w.advance(until=Step.CREATE_TARGET)
    assert [len(w.events(kind)) for kind in ("first_yes", "approved")] == [1, 1]


@pytest.mark.parametrize("question", ["freeze", "certificate", "strays", "rollback", "retire"])
def test_every_question_takes_two_people_where_the_policy_says_so(question: str) -> None:
    asked_by_spec = {question: "required"} if question in ("freeze", "certificate", "retire") else {}
    w = half("producers_first") if question == "strays" else World(approvals=AUTO | asked_by_spec)
    w.policy = rule(question, two=True)
    wanted: dict[str, Any] = {"wanted": question} if question in ("rollback", "retire") else {}
    if question == "strays":
        w.write(partition=1)
        w.waits(patience_s=30.0)
        w.drain("fraud-g")
    if wanted:
        w.advanced()
        w.clock.advance(8 * DAY)
    asking = w.asks(**wanted)
    assert asking.ask.name.lower() == question
    w.answer(asking, person=ADA)
    again = w.asks(**wanted)
    assert (again.ask, again.about) == (asking.ask, asking.about), "one yes is none"
    with pytest.raises(NotCounted, match="ada was the first"):
        w.answer_late(again, person=ADA)
    w.answer_late(again, person=GRACE)
    outcome = w.advance(**wanted, patience_s=60.0)
    assert not isinstance(outcome, Asking), outcome
    assert [e["act"] for e in w.events("approved") if e["how"] == "person"] == [asking.ask.value]


def test_who_triggered_the_run_is_one_of_the_two() -> None:
    w = World(**REQUIRED)
    w.policy = rule("plan", two=True)
    asking = w.asks()
    w.show(asking, triggered_by="ada")
    with pytest.raises(NotCounted, match="ada triggered the run"):
        w.answer_late(asking, person=ADA)
    w.answer_late(asking, person=GRACE)
    w.advance(until=Step.CREATE_TARGET)


def test_one_no_is_enough() -> None:
    w = World(**REQUIRED)
    w.policy = rule("plan", two=True)
    asking = w.asks()
    w.show(asking, triggered_by="ada")
    w.answer_late(asking, "no", person=ADA)
    with pytest.raises(Refused, match="said no"):
        w.advance()


NAMES = st.sampled_from(["ada", "grace", "carl"])
ROWS = st.fixed_dictionaries({}, optional={"triggered_by": NAMES, "first": NAMES.map(lambda n: {"name": n, "id": n})})


@given(st.one_of(st.none(), st.frozensets(NAMES, min_size=1)), st.booleans(), ROWS, NAMES)
def test_a_yes_that_counts_is_of_people_who_may_and_of_two_where_two_are_wanted(
    people: frozenset[str] | None, two: bool, row: dict[str, Any], name: str
) -> None:
    who, person = Who(people, two), Person(name, name)
    if objection(who, person, "yes", row):
        return
    assert people is None or name in people
    said = {**row, "user": person.values()}
    if two and not second_wanted(who, row):
        others = {row.get("triggered_by"), row.get("first", {}).get("name")} - {None, name}
        assert others, "two different people stand behind it"
    if not second_wanted(who, row) and (people is None or row.get("first", {}).get("name") in {None, *people}):
        assert still_counts(who, said)
    if two:
        assert not still_counts(who, {"user": person.values()}), "of the second one alone"


# ------------------------------------------------------------------------------------------------ Airflow's tasks


def test_a_second_person_is_asked_in_a_question_that_looks_new(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **REQUIRED)
    airflow.world.policy = rule("plan", "ada", "grace", two=True)
    airflow.until(Step.PLAN)
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    asked = airflow.asked(task)
    assert "Only ada, grace may answer. It takes two different people" in asked.body
    again = airflow.answered(task, asked, asked.yes, user="carl")
    assert Question(**again.kwargs["question"]).subject == asked.subject, (
        "not counted, so the same question is asked again"
    )
    parked = airflow.answered(task, asked, asked.yes, user="ada")
    assert isinstance(parked.trigger, AnswerTrigger)
    ((_, name), conf) = next(iter(airflow.runs.items()))
    second = Question(**conf)
    assert second.subject == f"Second yes: {asked.subject}" and "**ada has said yes" in second.body
    assert second.about == asked.about and name == second.name != asked.name
    asker = AnswerQuestion(task_id="answer")
    context = airflow.context(asker, params=conf)
    with pytest.raises(BaseException) as shown:
        asker.execute(context)
    with pytest.raises(BaseException) as shown_again:  # the first one tries to be the second one too
        asker.execute_complete(context, _said(second.yes, "ada"), **shown.value.kwargs)
    assert shown_again.value.kwargs == shown.value.kwargs
    asker.execute_complete(context, _said(second.yes, "grace"), **shown.value.kwargs)
    assert task.resume(airflow.context(task), {"status": "changed"})["plan_hash"] == asked.about["plan_hash"]


def _said(option: str, user: str) -> dict[str, Any]:
    return {"chosen_options": [option], "responded_by_user": {"name": user}}


def test_who_triggered_the_run_may_not_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    airflow = Airflow(monkeypatch, **REQUIRED)
    airflow.triggered_by = "ada"
    airflow.world.policy = rule("plan", two=True)
    airflow.until(Step.PLAN)
    task = AdvanceOperator(task_id="plan", until=Step.APPROVE)
    asked = airflow.asked(task)
    assert airflow.answered(task, asked, asked.yes, user="ada").kwargs["question"]["subject"] == asked.subject
    assert airflow.answered(task, asked, asked.yes, user="grace")["plan_hash"]


def test_a_policy_that_cannot_be_read_in_the_freeze_gives_producers_back_at_the_budget() -> None:
    w = World()
    w.advance(until=Step.DRAIN)
    w.policy = Unreadable("gone")
    outcome = w.advance(patience_s=1)
    assert isinstance(outcome, Waiting) and "cannot be told" in outcome.why
    w.clock.advance(121)
    with pytest.raises(Exception, match="budget"):
        w.advance()
    assert w.where() == {(SOURCE, True)}
