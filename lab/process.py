"""Child processes that end with their owner: at ``stop``, at Ctrl-C, and even when the owner is killed.

Each child starts in a process group of its own and carries a random mark in its environment, which its own children
inherit. Stopping ends the group first and then whatever still carries the mark (Airflow's tasks and Spark's JVMs leave
the group) or lives in the session that the child leads (Airflow's services write their titles over their environment,
and the mark with it). A watcher process, one for each owner, holds the read end of a pipe: when the owner is gone
without having stopped its children, the pipe closes and the watcher ends them. Nothing else is ever touched.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

MARK = "TOPICSHIFT_OWNED_BY"

_owner_mark = f"{os.getpid()}-{secrets.token_hex(8)}"
_watcher_lock = threading.Lock()
_watcher: subprocess.Popen[bytes] | None = None


def marked(mark: str, sessions: Mapping[int, float] | None = None) -> list[psutil.Process]:
    """Live processes that belong to the owner of a mark, never the caller itself.

    Args:
        mark: processes belong whose environment carries a mark that starts with this one.
        sessions: so do those of these sessions: the leader's process id -> when it was created (seconds of the epoch).
            What any of these started belongs too. A leader of another age is somebody else's, who was given the same
            process id.
    """
    ours = {}
    for sid, created in (sessions or {}).items():
        try:
            ours[sid] = psutil.Process(sid).create_time() == created
        except psutil.Error:
            ours[sid] = True  # while a session has members its id is given to nobody else
    found: dict[int, psutil.Process] = {}
    born: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            born.setdefault(process.ppid(), []).append(process)
            if ours.get(os.getsid(process.pid)) or process.environ().get(MARK, "").startswith(mark):
                found[process.pid] = process
    todo = list(found)
    while todo:
        for child in born.get(todo.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                todo.append(child.pid)
    found.pop(os.getpid(), None)
    return list(found.values())


def end_marked(mark: str, sessions: Mapping[int, float] | None = None, *, grace: float = 3.0) -> None:
    """SIGTERM, then after ``grace`` seconds SIGKILL, for every process that :func:`marked` finds."""
    for _ in range(3):  # a process may have forked between the look and the kill
        found = marked(mark, sessions)
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


def _tell_watcher(sid: int, created: float) -> None:
    """Tell the watcher of a session to end, should this process be gone first."""
    with _watcher_lock:
        if _watcher is None or _watcher.stdin is None:
            raise RuntimeError("a watcher is started before any child")
        _watcher.stdin.write(f"{sid} {created!r}\n".encode())
        _watcher.stdin.flush()


def _start_watcher() -> None:
    global _watcher
    with _watcher_lock:
        if _watcher is not None and _watcher.poll() is None:
            return
        _watcher = subprocess.Popen(
            [sys.executable, "-m", "lab.process", _owner_mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )


@contextlib.contextmanager
def owned_by_us() -> Iterator[None]:
    """Children that others start inside the block (a library's server) end with this process too, however it ends.

    They are not stopped by anybody here; the mark in their environment lets the watcher find them.
    """
    _start_watcher()
    before = os.environ.get(MARK)
    os.environ[MARK] = f"{_owner_mark}-{secrets.token_hex(4)}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


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
        self._sessions: dict[int, float] = {}

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
        # Not waited for yet, so it is there even where it has ended already.
        created = psutil.Process(self._child.pid).create_time()
        self._sessions[self._child.pid] = created
        _tell_watcher(self._child.pid, created)
        return self

    def restart(self) -> GuardedProcess:
        """End what is left of it, and start it anew with the same command."""
        self.stop()
        return self.start()

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
        end_marked(self._mark, self._sessions, grace=0.0)

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
        end_marked(self._mark, self._sessions)

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
    told = b""
    while piece := os.read(0, 4096):
        told += piece
    time.sleep(0.1)
    sessions = {}
    for line in told.decode().splitlines():
        sid, created = line.split()
        sessions[int(sid)] = float(created)
    end_marked(mark, sessions)


if __name__ == "__main__":
    _watch(sys.argv[1])
