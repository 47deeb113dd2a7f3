"""Children end with their owner, with all that they started, and nobody else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.process import MARK, GuardedProcess, end_marked

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A child that starts a grandchild in a session of its own, as Airflow's tasks and Spark's JVM are.
FAMILY = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n",
]


def wait_line(log: Path) -> str:
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "the child wrote nothing"
        time.sleep(0.02)
    return log.read_text().strip()


def gone(pid: int, timeout: float = 20) -> bool:
    deadline = time.monotonic() + timeout
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_what_the_child_started_ends_with_it(tmp_path: Path, way: str, bystander: subprocess.Popen[bytes]) -> None:
    child = GuardedProcess("family", FAMILY, log=tmp_path / "log").start()
    grandchild = int(wait_line(child.log))
    assert child.alive and psutil.pid_exists(grandchild)
    getattr(child, way)()
    assert not child.alive and gone(child.pid) and gone(grandchild)
    assert bystander.poll() is None, "a process of somebody else was ended"


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    child = GuardedProcess("deaf", [sys.executable, "-c", deaf], log=tmp_path / "log").start()
    wait_line(child.log)
    child.stop(timeout=0.2)
    assert child.exit_code == -signal.SIGKILL


def test_children_end_when_their_owner_is_killed(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom lab.process import GuardedProcess\n"
        f"child = GuardedProcess('child', {FAMILY!r}, log=Path({str(tmp_path / 'log')!r})).start()\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        grandchild = int(wait_line(tmp_path / "log"))
        owner.kill()
    assert gone(child) and gone(grandchild)
    assert bystander.poll() is None, "a process of somebody else was ended"


def test_a_child_that_hides_its_mark_ends_with_its_owner(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    # Airflow's services write a title over their environment: the mark cannot be read any more.
    hidden = (
        "import os, subprocess, sys, time\nimport setproctitle\n"
        "if os.fork():\n    sys.exit(0)\n"
        "setproctitle.setproctitle('x' * 2000)\n"
        "env = {k: v for k, v in os.environ.items() if k != 'TOPICSHIFT_OWNED_BY'}\n"
        "code = 'import time; time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], env=env, start_new_session=True)\n"
        "print(os.getpid(), child.pid, flush=True)\ntime.sleep(600)\n"
    )
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom lab.process import GuardedProcess\n"
        f"GuardedProcess('hidden', [sys.executable, '-c', {hidden!r}], log=Path({str(tmp_path / 'log')!r})).start()\n"
        "print('started', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        child, grandchild = map(int, wait_line(tmp_path / "log").split())
        assert MARK not in psutil.Process(child).environ()
        owner.kill()
    assert gone(child) and gone(grandchild)
    assert bystander.poll() is None, "a process of somebody else was ended"


def test_the_mark_is_compared_from_its_start(tmp_path: Path) -> None:
    env = {**os.environ, MARK: "12-abc"}
    with subprocess.Popen(SLEEP, env=env) as other:
        end_marked("12-abd", grace=0.1)
        end_marked("2-abc", grace=0.1)
        assert other.poll() is None
        end_marked("12-ab", grace=1)
        assert gone(other.pid)


def test_a_second_start_is_refused_while_it_runs(tmp_path: Path) -> None:
    child = GuardedProcess("child", SLEEP, log=tmp_path / "log").start()
    try:
        with pytest.raises(RuntimeError, match="child runs already"):
            child.start()
    finally:
        child.kill()
    assert GuardedProcess("never", SLEEP, log=tmp_path / "log").exit_code is None
