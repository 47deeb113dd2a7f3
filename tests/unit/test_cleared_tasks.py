"""Tasks of a migration in their order, twice, cleared, or marked as success by hand: the outcome is the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from tests.unit.airflow_world import Airflow, asks
from tests.unit.world import SOURCE, World

from topicshift import cli
from topicshift.acts.advance import advance
from topicshift.acts.close import close
from topicshift.acts.orders import abort
from topicshift.core.engine.need import need
from topicshift.core.engine.words import ORDER, Row, Step
from topicshift.core.spec.cutover import Cutover
from topicshift_airflow.operators import tasks
from topicshift_airflow.operators.advance import AdvanceOperator
from topicshift_airflow.operators.jobs import KeyRehashImpact, OrderProof, SparkJobOperator
from topicshift_airflow.operators.open import OpenMigration
from topicshift_airflow.operators.spark import NotNeeded

CONSUMERS = ("ledger", "fraud")


class Run:
    """The tasks of a run, as its DAG holds them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cutover: Cutover, **spec: Any) -> None:
        self.airflow = Airflow(monkeypatch, cutover=cutover.value, **spec)
        monkeypatch.setattr("topicshift.reporting.run_report.write_report", lambda *_: "report.html")
        monkeypatch.setattr(tasks, "_mapped", self._mapped)
        self.tasks = [t for step in ORDER[cutover] for t in self._line(step, cutover)]

    def _mapped(self, task_id: str, step: Step, consumers: Any, evidence: str = "", through: Any = None) -> Any:
        how: dict[str, Any] = {"until": step, "evidence": evidence}
        if consumers is None:
            return [AdvanceOperator(task_id=task_id, **how)]
        return [AdvanceOperator(task_id=f"{task_id}-{c}", consumer=c, through=through, **how) for c in consumers]

    def _line(self, step: Step, cutover: Cutover) -> list[Any]:
        line = tasks.line_of(step, cutover, None, CONSUMERS)
        flat = [t for task in line for t in (task if isinstance(task, list) else [task])]
        return [t for t in flat if not isinstance(t, OpenMigration)]

    def task(self, task_id: str) -> Any:
        return next(t for t in self.tasks if t.task_id == task_id)

    def go(self, *without: str) -> list[Any]:
        """Run every task; those in ``without`` are marked as success by hand. Questions are answered with yes."""
        out = []
        for task in self.tasks:
            if task.task_id in without:
                continue
            if isinstance(task, SparkJobOperator):
                self._spark(task)
                continue
            result = self.airflow.run(task)
            while asks(result):
                question = self.airflow.shown.pop(task.task_id)
                result = self.airflow.answered(task, question, question.yes)
            out.append((task.task_id, result))
        return out

    def _spark(self, task: Any) -> None:
        """As the job would: look at the engine, then write the evidence."""
        try:
            task.before(self.airflow.context(task))
        except NotNeeded:
            return
        if task.act.value != "start_verifier":
            self.airflow.world._job(self.airflow.world.context(), task.act)

    def armed(self) -> None:
        """The verifier's task, which runs beside the line."""
        self.airflow.world.verifier.start()


@pytest.fixture(params=list(Cutover))
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run(monkeypatch, request.param)
    made.armed()
    return made


def snapshot(run: Run) -> Any:
    world = run.airflow.world
    return (world.journal.steps(world.claim.migration_id), world.where(), world.cluster._acls, world.journal.find())


def test_the_line_of_tasks_moves_everybody(run: Run) -> None:
    results = dict(run.go())
    world = run.airflow.world
    assert world.where() == {("payments-v2", True)}
    assert world.journal.current(world.claim.migration_id).state == "done"
    assert results["report"]["verdict"] == "proven"
    assert results["fence"]["fence"]["fence_offsets_sum"] == 30 and results["create"]["create_target"]["topic_id"]


def test_after_the_end_a_cleared_task_is_skipped_and_changes_nothing(run: Run) -> None:
    run.go()
    before = snapshot(run)
    for task in run.tasks:
        if task.task_id == "report":
            continue
        with pytest.raises(AirflowSkipException):
            task.before(run.airflow.context(task)) if isinstance(task, SparkJobOperator) else run.airflow.run(task)
    assert snapshot(run) == before
    assert run.airflow.run(run.task("report"))["report"] == "report.html"
    assert snapshot(run) == before


AFTER_THE_FENCE = ("certificate", "confirm", "switch", "by_hand")


def before_the_freeze(run: Run) -> None:
    """Everything up to the task that stops producers."""
    run.armed()
    run.airflow.until(Step.CREATE_TARGET)
    for task_id in ("transactions", "ready", "go"):
        run.airflow.run(run.task(task_id))


def test_in_a_freeze_one_task_acts_to_the_switch_and_those_after_it_record_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    world = run.airflow.world
    before_the_freeze(run)
    assert world.where() == {(SOURCE, True)}
    run.airflow.run(run.task("fence"))
    assert world.where() == {("payments-v2", True)}, "nobody waits for the scheduler"
    rows, acted = world.journal.steps(world.claim.migration_id), world.data(Row.SWITCH_PRODUCERS)
    world.clock.advance(60)
    told = {name: run.airflow.run(run.task(name)) for name in AFTER_THE_FENCE}
    added = [row.step for row in world.journal.steps(world.claim.migration_id) if row not in rows]
    assert added == [Row.WIDE_DENY], "what the freeze has done is done once"
    assert told["certificate"]["certificate"]["sha256"] == world.data(Row.CERTIFICATE)["sha256"]
    assert told["confirm"]["verification"]["verdict"] == "verified"
    for task in ("switch", "by_hand"):
        assert told[task]["switch_producers"].items() <= acted.items(), "with the act's own times"


@pytest.mark.parametrize("cleared", [False, True])
def test_in_a_freeze_a_task_holds_its_worker_for_10_seconds_of_waiting_at_most(
    monkeypatch: pytest.MonkeyPatch, cleared: bool
) -> None:
    """Whether it is woken or cleared then, the next one goes on from the journal."""
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    airflow, world, certificate = run.airflow, run.airflow.world, run.task("certificate")
    before_the_freeze(run)
    world.cluster.commit("fraud-g", SOURCE, {0: 9})

    def took(what: Callable[[], Any]) -> float:
        began = world.clock.now()
        parked.append(what())
        return (world.clock.now() - began).total_seconds()

    def again() -> Any:
        if cleared:
            return airflow.run(certificate)
        try:
            return certificate.resume(airflow.context(certificate), {"status": "due"}, **parked[-1].kwargs)
        except TaskDeferred as parks:
            return parks

    parked: list[Any] = []
    assert 10 <= took(lambda: airflow.run(run.task("fence"))) < 12, "its own step is done: the next one waits"
    assert 10 <= took(lambda: airflow.run(certificate)) < 12
    for _ in range(2):
        assert isinstance(parked[-1], TaskDeferred) and not asks(parked[-1])
        assert world.where() == {(SOURCE, False)}
        assert 10 <= took(again) < 12
    world.drain("fraud-g")
    assert took(again) < 1 and parked[-1]["certificate"]["sha256"]
    for name in AFTER_THE_FENCE[1:]:
        assert took(lambda name=name: airflow.run(run.task(name))) < 10  # type: ignore[misc]
    assert world.where() == {("payments-v2", True)} and len(world.events("freeze_begun")) == 1


@pytest.mark.parametrize("ends", ["aborted", "closed"])
@pytest.mark.parametrize("step", [Step.PLAN, Step.CREATE_TARGET, Step.STOP_PRODUCERS])
def test_a_run_whose_migration_was_ended_by_a_person_is_red(
    monkeypatch: pytest.MonkeyPatch, ends: str, step: Step
) -> None:
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    world = run.airflow.world
    run.armed()
    run.airflow.until(step)
    if ends == "aborted":
        abort(world.context(), "not this year", 60.0)
    else:
        close(world.context(), "not this year", even_frozen=True)
    ended, before = world.journal.current(world.claim.migration_id).state, snapshot(run)
    assert ended == ("failed" if ends == "closed" or step is Step.PLAN else "rolled_back")
    for task in [*run.tasks, tasks.drain_verification()]:
        with pytest.raises(AirflowFailException, match=f"is {ended}"):  # skipped, it would leave the run green
            task.before(run.airflow.context(task)) if isinstance(task, SparkJobOperator) else run.airflow.run(task)
    back = tasks.resume_on_source()
    with pytest.raises(AirflowSkipException, match=f"is {ended}"):
        run.airflow.run(back)
    assert snapshot(run) == before and not world.events("step_failed")


def test_every_task_may_run_twice(run: Run) -> None:
    twice = [t for task in run.tasks for t in (task, task)]
    run.tasks = twice[:-2] + twice[-1:]
    run.go()
    assert run.airflow.world.where() == {("payments-v2", True)}
    freezes = [e for e in run.airflow.world.kinds() if e == "freeze_begun"]
    assert len(freezes) == 1, "nobody is stopped again"


@pytest.mark.parametrize(
    "marked",
    [
        ("check", "decide"),
        ("plan",),
        ("create",),
        ("transactions", "ready"),
        ("go",),
        ("certificate", "confirm", "certificate-ledger", "confirm-fraud"),
        ("switch", "by_hand"),
        ("fence",),
    ],
)
def test_a_task_that_is_marked_as_success_proves_nothing_and_is_done_by_the_next(
    monkeypatch: pytest.MonkeyPatch, marked: tuple[str, ...]
) -> None:
    for cutover in Cutover:
        run = Run(
            monkeypatch,
            cutover,
            approvals={"plan": "required", "freeze": "required", "certificate": "required", "retire": "auto"},
        )
        run.armed()
        if marked[0] == "check":
            with pytest.raises(AirflowFailException, match=r"Clear the tasks before this one"):
                run.go("check")
            continue
        run.go(*marked)
        world = run.airflow.world
        assert world.journal.current(world.claim.migration_id).state == "done"
        assert [e["act"] for e in world.events("approved") if e["how"] == "person"] == [
            "approve.plan",
            "stop_producers.go",
            "switch_producers.switch",
        ]
        rows = {Row.CERTIFICATE, Row.VERIFICATION}
        subjects = ("",) if cutover is Cutover.DRAIN_FIRST else ("ledger-g", "fraud-g")
        assert {world.state(row, s) for row in rows for s in subjects} == {"done"}


def test_no_group_leaves_the_source_before_the_producers_have(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(
        monkeypatch,
        Cutover.DRAIN_FIRST,
        approvals={"plan": "auto", "freeze": "auto", "certificate": "required", "retire": "auto"},
    )
    run.armed()
    groups = [t for t in run.tasks if t.task_id.startswith("switch-")]
    run.airflow.until(Step.STOP_PRODUCERS)
    assert asks(run.airflow.run(groups[0])), "it asks for the cut-over first"
    assert run.airflow.world.state(Row.SWITCH_GROUP, "ledger-g") is None


def test_a_freeze_that_ended_in_its_own_time_is_not_begun_again_by_the_same_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    run.armed()
    world = run.airflow.world
    run.airflow.until(Step.CREATE_TARGET)
    world.apps.deaf |= {"billing"}
    with pytest.raises(AirflowFailException, match="DrainTimedOut"):
        for _ in range(100):
            run.airflow.run(run.task("fence"))
    assert world.where() == {("payments", True)} and world.state(Row.FREEZE) == "undone"
    assert world.events("step_failed")[-1]["task"] == "fence"


# ------------------------------------------------------------------------------------------- what the trail says


def last_failure(world: Any) -> tuple[str, str]:
    """Task and error of the last failed step, which is also what `topicshift status` tells."""
    events = world.journal.events(world.claim.migration_id)
    said = world.events("step_failed")[-1]
    later = world.clock.now() + timedelta(minutes=5)  # its run might have ended it by itself until then
    found = need(world.record(), world.claim.owner, events, later)
    assert found.on == "person" and f"{said['task']} failed with {said['error']}" in found.what
    return said["task"], said["error"]


def test_a_drain_that_does_not_end_in_its_time_is_a_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    run.armed()
    world, drain = run.airflow.world, run.task("certificate")
    world.cluster.commit("fraud-g", "payments", {0: 9})
    run.airflow.until(Step.STOP_PRODUCERS)
    assert isinstance(run.airflow.run(drain), TaskDeferred), "it waits in the triggerer"
    world.clock.advance(130)
    with pytest.raises(AirflowFailException, match=r"DrainTimedOut.*back on the source.*fraud-g: start its consumers"):
        drain.resume(run.airflow.context(drain), {"status": "deadline", "why": "fraud-g: start its consumers"})
    assert last_failure(world) == ("certificate", "DrainTimedOut")
    assert world.where() == {("payments", True)}


def test_a_spark_job_that_fails_is_a_failed_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    airflow = Airflow(monkeypatch)
    world, act = airflow.world, airflow.world._job
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    monkeypatch.setattr(world, "_job", lambda ctx, what: None)
    task = KeyRehashImpact(task_id="key_rehash_impact")
    advance(world.context(spark=False), patience_s=1)
    monkeypatch.setattr(task, "_submit", lambda *_: None)
    with pytest.raises(AirflowException, match="left no result"):
        task.execute(airflow.context(task))
    assert last_failure(world) == ("key_rehash_impact", "AirflowException")
    monkeypatch.setattr(world, "_job", act)
    world.advanced()


@pytest.mark.parametrize("when", ["before the proof", "while it reads"])
def test_a_record_that_comes_before_the_order_is_proven_is_contained_by_the_last_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: str
) -> None:
    run = Run(monkeypatch, Cutover.DRAIN_FIRST)
    run.armed()
    world, proof, last = run.airflow.world, run.task("order_proof"), run.task("report")
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    verdicts = ["violated"] if when == "while it reads" else []

    def submit(self: OrderProof, context: Any, folder: Path) -> None:
        verdict = verdicts.pop() if verdicts else "proven"
        if verdict == "violated":
            world.write(partition=1)
        (folder / "order_proof.json").write_text(json.dumps({"schema": "t/v1", "verdict": verdict, "checks": []}))

    monkeypatch.setattr(OrderProof, "_submit", submit)
    run.airflow.until(Step.SWITCH_CONSUMERS)
    if when == "before the proof":
        world.write(partition=1)
    proof.execute(run.airflow.context(proof))  # not skipped: the last task would be, too
    assert not world.events("step_failed")
    run.airflow.run(last)
    question = run.airflow.shown.pop(last.task_id)
    assert "1 record" in question.subject
    run.airflow.answered(last, question, question.yes)
    assert world.journal.current(world.claim.migration_id).state == "done"


def test_what_a_command_fails_with_is_a_failed_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.advanced(until=Step.SWITCH_PRODUCERS)
    world.cluster.add_partitions(SOURCE, 4)

    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        yield world.context()

    monkeypatch.setattr("topicshift.commands.advance.open_context", opened)
    assert cli.run(["advance", world.claim.migration_id, "--bootstrap-server", "b:9092"]) == 3
    assert "4 partitions now" in capsys.readouterr().err
    assert last_failure(world) == ("topicshift advance", "FenceBroken")
