"""A drain verifier that dies, or falls silent, before it is needed: another one is started, and not for ever."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.world import World

from lab.airflow_api import wait_until
from topicshift.acts.advance import Asking, Done, advance
from topicshift.acts.context import MigrationContext
from topicshift.adapters import work
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.verifier import GONE_AFTER_S, FileVerifier
from topicshift.commands import spark
from topicshift.core.engine.words import Act, Ask, Step
from topicshift.core.errors import Unreadable
from topicshift.testing.fake_ports import FakeVerifier
from topicshift_airflow.operators.jobs import ArmedVerification


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each start of spark-submit leaves its process id as a line here; it sleeps and says nothing."""
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path / "work"))
    monkeypatch.setattr("topicshift.adapters.spark.connector_jars", lambda: "a.jar")
    found, script = tmp_path / "starts", tmp_path / "spark-submit"
    script.write_text(f"#!/bin/sh\necho $$ >> {found}\nexec sleep 300\n")
    script.chmod(0o755)
    monkeypatch.setattr(spark, "_spark_submit", lambda: str(script))
    return found


@pytest.fixture
def runner() -> Iterator[spark.JobRunner]:
    made = spark.JobRunner({"bootstrap.servers": "127.0.0.1:1"})
    yield made
    made.close()


def processes(starts: Path, count: int) -> list[int]:
    """The processes that were started, once there are so many."""
    wait_until(lambda: starts.exists() and len(starts.read_text().split()) >= count, 30, f"{count} starts")
    return [int(line) for line in starts.read_text().split()]


def test_the_command_line_starts_another_one_and_gives_up_after_a_few(starts: Path, runner: spark.JobRunner) -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    ctx = world.context()
    ctx.refresh()
    ctx.ports.clock = SystemClock()  # files have its time
    verifier = FileVerifier(ctx.row.migration_id, SystemClock())

    def falls_silent() -> None:
        for name in ("ready.json", "alive"):
            path = work.requests_folder(ctx.row.migration_id) / name
            path.touch()
            os.utime(path, (1, SystemClock().now().timestamp() - GONE_AFTER_S - 5))

    for count in range(1, spark.VERIFIER_STARTS + 1):
        runner(ctx, Act.START_VERIFIER)
        (*before, last) = processes(starts, count)
        assert len(before) == count - 1 and verifier.state()[0] == "starting"
        assert not any(alive(pid) for pid in before), "two of them would answer each other's questions"
        assert alive(last)
        falls_silent()
    with pytest.raises(Unreadable, match=r"was started 3 times and each has died \(no sign of life for .* See .*/log"):
        runner(ctx, Act.START_VERIFIER)


def test_two_commands_that_drive_one_migration_start_one_job(starts: Path, runner: spark.JobRunner) -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    ctx, said = world.context(), list[str]()
    ctx.refresh()
    ctx.log = said.append
    other = spark.JobRunner({"bootstrap.servers": "127.0.0.1:1"})
    try:
        other(ctx, Act.MEASURE_IMPACT)
        (first,) = processes(starts, 1)
        runner(ctx, Act.MEASURE_IMPACT)
        assert "another process runs key_rehash_impact for this migration: its result is waited for" in said
        os.kill(first, 9)

        def starts_its_own() -> bool:
            runner(ctx, Act.MEASURE_IMPACT)
            return len(starts.read_text().split()) == 2

        wait_until(starts_its_own, 30, "a job of its own, for the lock goes with the first")
    finally:
        other.close()


def test_a_job_that_failed_says_why_where_the_command_does(starts: Path, runner: spark.JobRunner) -> None:
    script = starts.with_name("spark-submit")
    script.write_text(
        f"#!/bin/sh\necho WARN of Spark\necho 'error: Topic payments was made again.'\necho $$ >> {starts}\nexit 4\n"
    )
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    ctx = world.context()
    ctx.refresh()
    runner(ctx, Act.MEASURE_IMPACT)
    processes(starts, 1)

    def looked() -> str:
        try:
            runner(ctx, Act.MEASURE_IMPACT)
        except Unreadable as error:
            return str(error)
        return ""

    said: list[str] = []
    wait_until(lambda: bool(said.append(looked()) or said[-1]), 30, "its end")
    assert r"left no result (exit code 4): Topic payments was made again. Its log is" in said[-1]


PROVES = """#!/bin/sh
while [ "$1" != --fence ]; do shift; done
fence=$2
while [ "$1" != --output ]; do shift; done
printf '{"verdict": "proven", "checks": [], "fence_offsets": %s}' \
  "$(sed 's/.*"fence_offsets": \\({[^}]*}\\).*/\\1/' "$fence")" > "$2/order_proof.json"
"""


def test_a_proof_that_is_wanted_once_more_is_made_once_more_and_leaves_the_evidence_of_others_alone(
    starts: Path, runner: spark.JobRunner
) -> None:
    starts.with_name("spark-submit").write_text(PROVES)
    world = World()
    world.advanced(until=Step.SWITCH_CONSUMERS)
    ctx = world.context()

    def job(ctx: MigrationContext, act: Act) -> None:
        runner(ctx, act)
        for process, _ in runner._running.values():
            process.wait(30)

    ctx.ports.run_job = job

    def fence() -> Any:
        return json.loads(world.evidence.read(world.claim.migration_id, "fence.json") or b"{}")

    assert isinstance(advance(ctx, until=Step.SWITCH_CONSUMERS), Done)
    assert fence()["stopped"], "the run's own"
    ctx.refresh()
    job(ctx, Act.PROVE_ORDER)
    job(ctx, Act.PROVE_ORDER)
    world.write(partition=1)
    asking = advance(ctx, patience_s=30.0)
    assert isinstance(asking, Asking) and asking.ask is Ask.STRAYS
    world.answer(asking)
    assert isinstance(advance(ctx), Done)
    assert fence()["stopped"], "no job has written over it"
    named = json.loads(world.evidence.read(world.claim.migration_id, "strays.json") or b"{}")
    assert [len(g["records"]) for g in named["generations"]] == [1]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_airflow_ends_a_driver_that_is_silent_so_that_the_next_try_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = ArmedVerification(task_id="drain_verification")
    assert task.retries == 3
    task.look_every_s = 0.0
    states = ["ready", "gone", "gone", "starting", "ready", "gone", "gone", "gone", "gone"]
    verifier: Any = FakeVerifier()
    monkeypatch.setattr(verifier, "state", lambda: (states.pop(0), ""))
    killed = threading.Event()
    monkeypatch.setattr(task, "on_kill", killed.set)
    task._verifier = verifier
    task._end_silent(threading.Event())
    assert killed.is_set() and states == ["gone"], "a moment of silence, or a start, is no death"
