"""The stack of a person stays up: what ends is started again, a bounded number of times, and is told of."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab import kept, stack_cli
from lab.airflow_services import AirflowServices
from lab.load_life import Life
from lab.process import GuardedProcess
from lab.runfolder import RunFolder
from lab.stack import Stack
from lab.upkeep import EndedTooOften, Upkeep

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def wait_until_gone(process: GuardedProcess) -> None:
    """Wait until it has ended, and its exit code is known."""
    deadline = time.monotonic() + 30
    while process.alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill_9(process: GuardedProcess) -> int:
    """SIGKILL from outside, as a person does it; the pid that it had."""
    pid = process.pid
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(process)
    return pid


def test_a_killed_scheduler_is_started_again_and_said(tmp_path: Path, cleanup: ExitStack) -> None:
    services = AirflowServices(RunFolder(tmp_path / "run"))
    cleanup.callback(services.stop)
    for name in ("scheduler", "triggerer"):
        services.processes[name] = GuardedProcess(name, SLEEPS, log=tmp_path / f"{name}.log").start()
    said: list[str] = []
    upkeep = Upkeep(said.append)
    services.keep_up(upkeep)
    assert said == [] and upkeep.values() == []
    other = services.processes["triggerer"].pid
    old = kill_9(services.processes["scheduler"])
    services.keep_up(upkeep)
    services.check_alive()
    assert services.processes["scheduler"].pid != old and services.processes["triggerer"].pid == other
    assert said == ["scheduler has ended with code -9; starting it again (1 of at most 5)"]
    assert [(v["name"], v["times"]) for v in upkeep.values()] == [("scheduler", 1)]


def test_what_ends_again_and_again_is_given_up_with_its_last_words(tmp_path: Path, cleanup: ExitStack) -> None:
    now = [0.0]
    upkeep = Upkeep(lambda _: None, limit=2, window_s=60, clock=lambda: now[0])
    process = GuardedProcess("scheduler", [sys.executable, "-c", "print('no database')"], log=tmp_path / "s.log")
    cleanup.callback(process.stop)
    process.start()
    for _ in range(2):
        wait_until_gone(process)
        upkeep.again("scheduler", process.exit_code, process.tail(), process.restart)
    wait_until_gone(process)
    with pytest.raises(EndedTooOften, match=r"(?s)scheduler .*2 times in 1 minutes.*no database"):
        upkeep.again("scheduler", process.exit_code, process.tail(), process.restart)
    now[0] = 61.0
    upkeep.again("scheduler", process.exit_code, process.tail(), process.restart)
    assert upkeep.values()[0]["times"] == 3


def test_a_producer_goes_on_with_the_sequence_numbers_of_its_log(tmp_path: Path) -> None:
    life = Life(tmp_path, lambda _: tmp_path / "none")
    life.seqs.write_text(json.dumps({"a": 7, "b": 1}))
    head = "# {}\nkey,seq,topic,partition,offset,t\n"
    (tmp_path / "sent-checkout-0.csv").write_text(head + "a,3,t,0,0,1\nb,4,t,0,1,2\nc,0,t,0,2,3\nd,12")
    life.take_up()
    assert json.loads(life.seqs.read_text()) == {"a": 7, "b": 5, "c": 1}


def left_by_a_run(folder: RunFolder, *, airflow: bool = False, postgres: bool = False, ready: bool = True) -> None:
    """The files that a run leaves, with evidence of one migration."""
    for name in ("kafka/node-1/meta.properties", "topicshift/evidence/payments-1/plan.json", "topicshift/journal.db"):
        folder.folder(str(Path(name).parent))
        (folder / name).write_text("kept")
    (folder / "kafka/cluster.id").write_text("kept")
    if airflow:
        folder.folder("airflow")
        (folder / "airflow/airflow.db").write_text("kept")
    if ready:
        kept.mark(folder, airflow=airflow, postgres=postgres)


def test_a_run_goes_on_with_what_a_ready_one_of_its_kind_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert kept.why_not(folder, airflow=True, postgres=False) == ""
    left_by_a_run(folder, airflow=True)
    assert kept.why_not(folder, airflow=True, postgres=False) is None
    assert "another version" in (kept.why_not(folder, airflow=False, postgres=False) or "")
    assert "PostgreSQL" in (kept.why_not(folder, airflow=True, postgres=True) or "")
    (folder / "airflow/airflow.db").unlink()
    assert kept.why_not(folder, airflow=True, postgres=False) == "airflow/airflow.db is missing"
    (folder / kept.MARK).unlink()
    assert "never became ready" in (kept.why_not(folder, airflow=True, postgres=False) or "")


@pytest.mark.parametrize("go_on", [False, True])
def test_a_run_that_begins_afresh_keeps_the_evidence_and_says_where(tmp_path: Path, go_on: bool) -> None:
    folder = RunFolder(tmp_path / "run")
    left_by_a_run(folder, ready=False)
    said: list[str] = []
    Stack(folder.path, go_on=go_on)._take_over(said.append, True)
    assert (folder / "before/evidence/payments-1/plan.json").read_text() == "kept"
    assert (folder / "before/journal.db").exists() and not (folder / "topicshift").exists()
    assert not (folder / "kafka").exists()
    assert any(str(folder / "before") in line for line in said)
    assert any("never became ready" in line and "removed" in line for line in said) == go_on


def test_evidence_that_was_put_aside_outlives_a_run_without_any(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    left_by_a_run(folder)
    kept.begin_afresh(folder)
    folder.folder("topicshift")
    assert kept.begin_afresh(folder) is None
    assert (folder / "before/evidence/payments-1/plan.json").exists()


def test_status_says_why_the_stack_went_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_ended("scheduler has ended with code -9, and was started again 5 times")
    assert stack_cli.status(folder.path) == 3
    said = capsys.readouterr().err
    assert "nothing runs in" in said and "scheduler has ended with code -9" in said and "stack.log" in said


def test_status_says_that_the_stack_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_private("state.json", json.dumps({"pid": 2**22 + 1, "started": 1.0, "status": "ready"}))
    assert stack_cli.status(folder.path) == 3
    assert "is gone without a word" in capsys.readouterr().err


def test_status_says_what_was_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    again = [{"name": "scheduler", "times": 1, "last": "2026-01-01 00:00:00 UTC"}]
    folder.write_state(status="starting", again=again)
    assert stack_cli.status(folder.path) == 0
    assert (
        "scheduler had ended and was started again 1 time, last at 2026-01-01 00:00:00 UTC" in capsys.readouterr().out
    )
