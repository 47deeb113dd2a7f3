"""``python -m lab.stack up|down|status|run``: the stack for a person."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from lab.airflow_services import AirflowFailed
from lab.broker import BrokerFailed
from lab.java import NoJava
from lab.load_life import Life, LoadFailed
from lab.runfolder import ROOT, FolderInUse, FolderUnusable, RunFolder
from lab.stack import Stack, default_run_folder, wait_gone
from lab.traffic import SOURCE, start_traffic
from lab.upkeep import EndedTooOften, Upkeep

FAILURES = (
    FolderInUse,
    BrokerFailed,
    AirflowFailed,
    LoadFailed,
    EndedTooOften,
    NoJava,
    TimeoutError,
    FileNotFoundError,
)
"""What a part of the stack, or its traffic, fails with; the message is for a person."""

START_TIMEOUT = 420.0
STOP_TIMEOUT = 60.0


def say(line: str) -> None:
    """One line of talk on stderr."""
    print(line, file=sys.stderr, flush=True)


def show(folder: RunFolder) -> None:
    """The answer on stdout: where everything is."""
    facts = folder.read_state()
    if facts.get("airflow"):
        password = json.loads(Path(facts["passwords"]).read_text())[facts["user"]]
        print(f"Airflow    {facts['airflow']}   log in as {facts['user']} with {password}")
    config = _short(facts["kafka_config"])
    print(f"Kafka      {facts['bootstrap']}   --kafka-config {config}")
    if facts.get("journal"):
        print(f"Look       .venv/bin/topicshift status --journal {facts['journal']} --kafka-config {config}")
    if facts.get("env"):
        print(f"Shell      . {shlex.quote(_short(facts['env']))}   then topicshift needs none of these options")
    print(f"Logs       {_short(facts['logs'])}")
    run = "" if folder.path == default_run_folder("up") else f" RUN={_short(str(folder.path))}"
    print(f"Stop it    make down{run}", flush=True)


def _short(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


class Interrupted(Exception):
    """SIGINT or SIGTERM has come."""


def end_on_signals() -> threading.Event:
    """Turn SIGINT and SIGTERM into ``Interrupted`` in the main thread, once; the event says that it has come."""
    came = threading.Event()

    def handler(_number: int, _frame: FrameType | None) -> None:
        if not came.is_set():
            came.set()
            raise Interrupted

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)
    return came


def run(folder: Path, *, live: bool, airflow: bool, postgres: bool = False, fresh: bool = False) -> int:
    """Run the stack in this process until a signal comes. 0 after a signal, 1 where a part failed.

    A part that does not come up is a failure. One that ends later is started again, a bounded number of times.
    """
    end_on_signals()
    stack = Stack(folder, postgres=postgres, go_on=not fresh)
    traffic: Life | None = None
    ended: str | None = None
    ready = False

    def tell(line: str) -> None:
        say(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {line}")

    upkeep = Upkeep(tell)
    try:
        stack.start(lambda line: say(f"  {line}"), airflow=airflow, announce=False)
        if live:
            traffic = Life(stack.folder.folder("life"), stack.properties_file, topic=SOURCE)
            start_traffic(stack.broker.superuser_config(), traffic, lambda line: say(f"  {line}"))
        stack.announce()
        ready = True
        show(stack.folder)
        while True:
            before = upkeep.values()
            stack.keep_up(upkeep)
            if traffic is not None:
                traffic.keep_up(upkeep)
            if upkeep.values() != before:
                stack.announce(upkeep)
            time.sleep(0.5)
    except Interrupted:
        return 0
    except FAILURES as problem:
        tell(f"error: {problem}")
        if stack.went_on and not ready:
            say("make up FRESH=1 begins afresh, without what the run before left; journal and evidence are put aside")
        ended = None if isinstance(problem, FolderInUse) else str(problem)  # there, the state is the other run's
        return 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # stopping is not interrupted
        if traffic is not None:
            traffic.stop()
        stack.stop()
        if ended is not None:
            stack.folder.write_ended(ended)


def up(path: Path, *, live: bool, airflow: bool, postgres: bool = False, fresh: bool = False) -> int:
    """Start the stack in the background, wait until it is ready, and show where it is."""
    folder = RunFolder(path)
    owner = folder.owner()
    if owner is not None:
        if folder.read_state().get("status") == "ready":
            say(f"already up (process {owner.pid})")
            show(folder)
            return 0
        say(f"error: process {owner.pid} is starting or stopping a stack in {_short(str(path))}; wait, or make down")
        return 1
    if (how := folder.how_it_ended()) is not None:
        say(f"  the run before: {how}")
    folder.clear_state()
    log = folder.folder("logs") / "stack.log"
    if log.exists():
        log.replace(log.with_name("stack.before.log"))
    command = [sys.executable, "-m", "lab.stack", "run", "--run-folder", str(folder.path)]
    command += (["--live"] if live else []) + ([] if airflow else ["--no-airflow"])
    command += (["--postgres"] if postgres else []) + (["--fresh"] if fresh else [])
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=ROOT
        )
    try:
        return _wait_up(folder, child, log)
    except KeyboardInterrupt:
        child.terminate()
        child.wait(STOP_TIMEOUT)
        say("interrupted; everything has been stopped")
        return 130


def _wait_up(folder: RunFolder, child: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_TIMEOUT
    told = 0
    while True:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("  ")]
        for line in lines[told:]:
            say(line)
        told = len(lines)
        if child.poll() is not None:
            say("\n".join(log.read_text(errors="replace").splitlines()[-20:]))
            return 1
        if folder.read_state().get("status") == "ready" and folder.owner() is not None:
            show(folder)
            return 0
        if time.monotonic() > deadline:
            child.terminate()
            child.wait(STOP_TIMEOUT)
            say(f"error: not ready after {START_TIMEOUT:.0f} s; see {_short(str(log))}")
            return 1
        time.sleep(0.2)


def down(path: Path) -> int:
    """Stop the stack of a run folder: exactly the process that the state file names, if it is still that process."""
    if not path.is_dir():
        say(f"nothing runs in {_short(str(path))}")
        return 0
    folder = RunFolder(path)
    owner = folder.owner()
    if owner is None:
        folder.clear_state()
        say(f"nothing runs in {_short(str(path))}")
        return 0
    owner.terminate()
    if not wait_gone(owner, STOP_TIMEOUT):
        say(f"process {owner.pid} did not end in {STOP_TIMEOUT:.0f} s; killing it and what it started")
        owner.kill()
        wait_gone(owner, 10)
    folder.clear_state()
    say("stopped")
    return 0


def status(path: Path) -> int:
    """0 and where it is when it is up, 3 when nothing runs."""
    folder = RunFolder(path) if path.is_dir() else None
    if folder is None or folder.owner() is None:
        how = folder.how_it_ended() if folder is not None else None
        say(f"nothing runs in {_short(str(path))}" + (f": {how}" if how else ""))
        if folder is not None and how:
            say(f"Its log: {_short(str(folder / 'logs' / 'stack.log'))}. make up goes on with what is there.")
        return 3
    state = folder.read_state()
    print(f"status     {state.get('status')} (process {state.get('pid')})")
    for each in state.get("again", ()):
        times = f"{each['times']} time{'' if each['times'] == 1 else 's'}"
        print(f"restarted  {each['name']} had ended and was started again {times}, last at {each['last']}")
    if state.get("status") == "ready":
        show(folder)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.stack", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (
        ("up", "start it in the background"),
        ("run", "run it until Ctrl-C"),
        ("down", "stop it"),
        ("status", "is it up, and where"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("--run-folder", type=Path, default=default_run_folder("up"), help="default: build/up")
        if name in ("up", "run"):
            command.add_argument("--live", action="store_true", help="with live producers and consumers")
            command.add_argument("--no-airflow", action="store_true", help="Kafka alone")
            command.add_argument("--postgres", action="store_true", help="Airflow's data and the journal on PostgreSQL")
            command.add_argument("--fresh", action="store_true", help="do not go on with what the run before left")
    args = parser.parse_args(argv)
    path = args.run_folder.resolve()
    act: dict[str, Callable[[], int]] = {
        "up": lambda: up(path, live=args.live, airflow=not args.no_airflow, postgres=args.postgres, fresh=args.fresh),
        "run": lambda: run(path, live=args.live, airflow=not args.no_airflow, postgres=args.postgres, fresh=args.fresh),
        "down": lambda: down(path),
        "status": lambda: status(path),
    }
    try:
        return act[args.command]()
    except FolderUnusable as problem:
        say(f"error: {problem}")
        return 2
