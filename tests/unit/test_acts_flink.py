"""Flink jobs in a migration: killed at any call, each job goes on as it must, from the snapshot that it must."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.flink_place import JAR, told, words, writes
from tests.unit.ways import ALL, KindWorld, killed_at, killed_at_each_effect, moved
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.adapters.executor import ThreadExecutor
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut
from topicshift.ports import ControlContext, Participant
from topicshift.testing.fake_flink import FakeJob, FakeJobManager

few = settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
GROUP = "scores"
MIXED: dict[str, Any] = {
    "producers": [
        {"name": "intake", "kind": "flink", "settings": writes("intake"), "principal": "User:checkout"},
        {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
    ],
    "consumers": [
        {"name": "scorer", "kind": "flink", "settings": told("scorer"), "group": GROUP},
        {"name": "fraud", "group": "fraud-g"},
    ],
}


class Streaming(KindWorld):
    """A migration of a job that writes, a job that reads, a hook and an application on the route."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.manager = self.fake = FakeJobManager(words)
        super().__init__(**{**MIXED, **changes})
        self.leave(GROUP)
        self.cluster.calls.clear()
        self.submitted()
        self.jobs = {name: fields(self.job(name)) for name in ("scorer", "intake")}
        self.manager.on_call = self.fuse.burn
        self.controllers["flink"] = self.controller()  # type: ignore[assignment]

    moved_args = {
        "scorer": ["scorer", "scorer-in-payments-v2", TARGET, "--all"],
        "intake": ["intake", "intake-in", TARGET],
    }

    def submitted(self) -> None:
        """What runs at first."""
        self.manager.upload(JAR)
        self.manager.submit("a" * 32, ["scorer", "scorer-in", SOURCE, "--all"], 4)
        self.manager.submit("b" * 32, ["intake", "intake-in", SOURCE], 2)

    def controller(self) -> FlinkController:
        return FlinkController(self.cluster, lambda _: self.manager, self.clock)

    def context(self, *args: Any, **how: Any) -> Any:
        """Each process has a controller of its own, which remembers nothing."""
        self.controllers["flink"] = self.controller()  # type: ignore[assignment]
        return super().context(*args, **how)

    def job(self, name: str) -> FakeJob:
        return self.manager.job(name)

    def live(self) -> list[str]:
        return self.manager.live()

    def differs(self) -> dict[str, Any]:
        """Every field of every job that is not as before."""
        return {
            f"{name}.{key}": value
            for name, before in self.jobs.items()
            for key, value in fields(self.job(name)).items()
            if before[key] != value
        }

    def unharmed(self) -> bool:
        """Everything is as before, and runs once."""
        return self.differs() == {} and self.live() == ["intake", "scorer"] and self.hook_unharmed()

    def arrived(self) -> None:
        super().arrived()
        assert self.differs() == {
            "scorer.args": self.moved_args["scorer"],
            "scorer.works on": {TARGET},
            "intake.args": self.moved_args["intake"],
            "intake.works on": {TARGET},
        }
        assert self.live() == ["intake", "scorer"]
        self.hook_arrived()

    def stands(self) -> None:
        assert not self.unharmed()

    def on_target(self) -> None:
        assert self.job("scorer").topic == TARGET


def fields(job: FakeJob) -> dict[str, Any]:
    """What makes a job what it is."""
    works_on = job.reads if job.name == "scorer" else {job.topic}
    return {"args": job.args, "parallelism": job.parallelism, "state": job.state, "works on": works_on}


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_jobs_move_beside_other_kinds(cutover: str) -> None:
    w = Streaming(cutover=cutover)
    w.advanced()
    w.arrived()
    said = [(e["name"], e["moment"]) for e in w.events("participant") if e["name"] in ("scorer", "intake")]
    assert said == [(name, moment) for name in ("intake", "scorer") for moment in ("stop", "saved", "point", "start")]
    assert len(w.manager.jobs) == 4


@ALL
def test_killed_before_or_after_every_effect_on_the_job_manager_it_ends_where_it_would(way: str) -> None:
    """At each stop and start, on the way there and on both ways back."""
    count = {"forward": 8, "resume": 2, "rollback": 8, "drain_back": 8}[way]
    killed_at_each_effect(Streaming, way, lambda call: not call.startswith("GET "), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 400), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Streaming, way, at)


def test_others_are_told_while_a_savepoint_is_waited_for() -> None:
    """Its job is the first in the spec; it is stopped only once the hook's application has been told."""
    w, told, waited = Streaming(), threading.Event(), list[bool]()
    hook, w.executor = w.controllers["command"], ThreadExecutor()
    stop = hook.stop

    def stops(ctx: ControlContext, who: Sequence[Participant]) -> None:
        stop(ctx, who)
        told.set()

    def heard(call: str) -> None:
        if call.startswith("POST /jobs/") and "/stop" in call:
            waited.append(told.wait(5))

    hook.stop, w.manager.on_call = stops, heard  # type: ignore[method-assign]
    try:
        w.advanced(until=Step.STOP_PRODUCERS)
    finally:
        w.executor.close()  # type: ignore[attr-defined]
    assert waited and all(waited)


def test_a_job_that_fails_while_it_is_stopped_is_committed_first_and_stopped_anew() -> None:
    w = Streaming()
    w.manager.finishes = False

    def mended(job: FakeJob) -> None:
        w.manager.finishes = w.manager.finishes or job.state == "FAILED"

    w.manager.on_change = mended
    w.advanced()
    w.arrived()
    assert "restart" in {e["moment"] for e in w.events("participant")}


def test_a_savepoint_that_fails_ends_the_freeze_with_every_job_as_before() -> None:
    w = Streaming()
    w.manager.saves = False
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("a stop of it failed (java.util.concurrent.CompletionException)" in line for line in w.said)
    assert w.unharmed() and w.acls() == w.before
    assert len(w.manager.jobs) == 2


def test_a_job_whose_savepoint_is_slow_is_put_back_once_it_stands() -> None:
    """The budget ends while the savepoint is taken: it would stand for ever, if it were taken for one that runs."""
    w = Streaming()
    w.manager.slow = True

    def late(_: str) -> None:
        if w.state(Row.FREEZE) == "undoing":
            w.manager.settle()

    w.manager.on_call = late
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced(patience_s=30)
    assert w.unharmed() and w.acls() == w.before


def test_a_job_that_fails_on_the_target_is_started_until_it_runs() -> None:
    w = Streaming()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.manager.starts = False
    assert "is FAILED" in w.waits(patience_s=30)
    w.manager.starts = True
    w.advanced()
    w.arrived()


def test_a_job_manager_that_forgets_everything_in_the_freeze_loses_no_job() -> None:
    w = Streaming()
    w.advanced(until=Step.VERIFY_DRAIN)
    w.manager.forget()
    w.manager.submit("c" * 32, ["scorer", "scorer-in", SOURCE, "--all"], 4)
    w.advanced()
    w.arrived()


def test_a_job_that_takes_long_to_run_on_the_way_back_is_not_stopped_again() -> None:
    """It was seen off the target, and is on the source: whatever it waits for, it is no writer on the target."""
    w = moved(Streaming)
    w.answer(w.asks(wanted="rollback"))
    w.manager.checkpoints = False
    why = w.waits(patience_s=60, wanted="rollback")
    assert "intake" in why and "its latest checkpoint is not complete" in why
    w.manager.checkpoints = True
    for job in w.manager.jobs.values():
        job.completed = job.completed or 1
    w.advanced(wanted="rollback")
    w.back()
    assert [j.topic for j in w.manager.jobs.values() if j.name == "intake"] == [SOURCE, TARGET, SOURCE]
