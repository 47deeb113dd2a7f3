"""Child processes that end with their owner: at ``stop``, at Ctrl-C, and even when the owner is killed.

Each child starts in a process group of its own and carries a random mark in its environment, which its own children
inherit. Stopping ends the group first and then whatever still carries the mark (Airflow's tasks and Spark's JVMs leave
the group). A watcher process, one for each owner, holds the read end of a pipe: when the owner is gone without having
stopped its children, the pipe closes and the watcher ends them. Nothing without the mark is ever touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

MARK = "TOPICSHIFT_OWNED_BY"

_owner_mark = f"{os.getpid()}-{secrets.token_hex(8)}"
_watcher_lock = threading.Lock()
_watcher: subprocess.Popen[bytes] | None = None


def marked(mark: str) -> list[psutil.Process]:
    """Live processes whose environment carries a mark that starts with this one, never the caller itself."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK, "").startswith(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_marked(mark: str, *, grace: float = 3.0) -> None:
    """SIGTERM, then after ``grace`` seconds SIGKILL, for every process that carries the mark."""
    for _ in range(3):  # a process may have forked between the look and the kill
        found = marked(mark)
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, alive = psutil.wait_procs(found, timeout=grace)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=grace)


def _start_watcher() -> None:
    global _watcher
    with _watcher_lock:
        if _watcher is not None and _watcher.poll() is None:
            return
        _watcher = subprocess.Popen(
            [sys.executable, "-m", "topicshift.testing.process", _owner_mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )


class GuardedProcess:
    """One child in a group of its own, output appended to a log file; it does not outlive this process.

    Args:
        name: what messages call it.
        command: the argument list; no secrets in it.
        log: the file that takes stdout and stderr.
        env: its environment; this process's own by default.
        cwd: its working folder.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd
        self._mark = f"{_owner_mark}-{secrets.token_hex(4)}"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, which is the id of its group too.

        Raises:
            RuntimeError: it has not been started.
        """
        if self._child is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, None while it runs or where it never started."""
        return self._child.poll() if self._child else None

    def start(self) -> GuardedProcess:
        """Start it.

        Raises:
            RuntimeError: it runs already.
            OSError: it could not be started.
        """
        if self.alive:
            raise RuntimeError(f"{self.name} runs already")
        _start_watcher()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        out: IO[bytes]
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**self._env, MARK: self._mark},
                cwd=self._cwd,
            )
        return self

    def signal_group(self, number: int) -> None:
        """Send a signal to its process group; passed over when it is gone."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """SIGKILL for it and all that it started; returns when they are gone."""
        if self._child is None:
            return
        if self.alive:
            self.signal_group(signal.SIGKILL)
            self._child.wait()
        end_marked(self._mark, grace=0.0)

    def ask_to_stop(self) -> None:
        """SIGTERM for it alone, not for its group: an orderly shutdown is its own to do. Does not wait."""
        if self._child is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGTERM)

    def stop(self, timeout: float = 15.0) -> None:
        """End it and all that it started: SIGTERM, then SIGKILL after ``timeout`` seconds."""
        if self._child is None:
            return
        if self.alive:
            self.ask_to_stop()
            try:
                self._child.wait(timeout)
            except subprocess.TimeoutExpired:
                self.signal_group(signal.SIGKILL)
                self._child.wait()
        self.signal_group(signal.SIGTERM)  # members of the group that its leader left behind
        end_marked(self._mark)

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 64_000))
                text = log.read().decode(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(it wrote nothing)"


def _watch(mark: str) -> None:
    """Wait until the owner is gone (its end of the pipe closes), then end what it left behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    time.sleep(0.1)
    end_marked(mark)


if __name__ == "__main__":
    _watch(sys.argv[1])
