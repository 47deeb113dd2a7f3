"""A run folder: where one run of the stack keeps its data, logs, secrets and state, and nothing of any other run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psutil

from topicshift.core.files import write_whole

ROOT = Path(os.environ.get("TOPICSHIFT_ROOT") or Path(__file__).resolve().parents[1])
"""The project's folder: the one above ``lab`` unless TOPICSHIFT_ROOT names another."""


class FolderInUse(RuntimeError):
    """Another run holds the folder. The message names its process."""


class FolderUnusable(RuntimeError):
    """The folder cannot be a run folder. The message says why, and what to name instead."""


_OURS = (".lock", "state.json")


class RunFolder:
    """One run's own folder. Readable by its owner alone, since secrets of the run lie in it.

    Args:
        path: the folder; made where it is missing. One that holds anything else than a run is refused: a run removes
            what an earlier one has left in it, and shuts everybody else out.

    Raises:
        FolderUnusable: it is no run folder, or cannot be made or written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not any((self.path / name).exists() for name in _OURS):
                if any(self.path.iterdir()):
                    raise FolderUnusable(
                        f"{self.path} holds files that are no run of this stack. A run removes what an earlier one "
                        "left there, so it takes a folder of its own: name an empty or a new one, with RUN=."
                    )
                self.path.chmod(0o700)
                (self.path / ".lock").touch(mode=0o600)
            self.path.chmod(0o700)
            if not os.access(self.path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
        except OSError as error:
            raise FolderUnusable(
                f"{self.path} cannot be a run folder: {error.strerror}. Name another, with RUN=."
            ) from None
        self._lock: IO[str] | None = None

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def folder(self, name: str) -> Path:
        """A sub-folder, made where it is missing."""
        made = self.path / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def lock(self) -> None:
        """Hold the folder until ``unlock`` or the end of this process.

        Raises:
            FolderInUse: another process holds it.
        """
        if self._lock is not None:
            return
        handle = (self.path / ".lock").open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            state = self.read_state()
            who = f" (process {state['pid']})" if "pid" in state else ""
            raise FolderInUse(
                f"a run{who} already lives in {self.path}. Stop it first (Ctrl-C there, or make down RUN={self.path}), "
                "or name another folder, with RUN=."
            ) from None
        self._lock = handle

    @property
    def locked(self) -> bool:
        """Whether it is held by this very object, so that what lies in it is its own."""
        return self._lock is not None

    def unlock(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_private(self, name: str, text: str) -> Path:
        """Write a file that only its owner can read, atomically."""
        return write_private(self.path / name, text)

    def secret(self, name: str, length: int = 24) -> str:
        """A random secret of this run, made at first use and kept in a file of mode 0600; letters and digits."""
        path = self.folder("secrets") / name
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
        alphabet = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
        value = "".join(secrets.choice(alphabet) for _ in range(length))
        write_private(path, value)
        return value

    # ------------------------------------------------------------------------------------------------ state

    def write_state(self, **values: Any) -> None:
        """Write the state file: what runs here, with this process's id and start time. No secrets."""
        me = psutil.Process()
        state = {"pid": me.pid, "started": me.create_time(), **values}
        write_private(self.path / "state.json", json.dumps(state, indent=1))

    def read_state(self) -> dict[str, Any]:
        """The state as last written; empty where there is none."""
        try:
            state = json.loads((self.path / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_ended(self, why: str) -> None:
        """Leave in the state file when and why the run has ended, for whoever asks later."""
        state = {"status": "ended", "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", "why": why}
        write_private(self.path / "state.json", json.dumps(state, indent=1))

    def how_it_ended(self) -> str | None:
        """When and why the last run ended, where it was not stopped: None where it was, or still runs."""
        state = self.read_state()
        if self.owner() is not None:
            return None
        if state.get("status") == "ended":
            return f"it ended at {state.get('at')}: {state.get('why')}"
        if "pid" in state:
            return f"its process {state['pid']} is gone without a word: it was killed, or the machine was restarted"
        return None

    def clear_state(self) -> None:
        """Remove the state file."""
        (self.path / "state.json").unlink(missing_ok=True)

    def owner(self) -> psutil.Process | None:
        """The process that wrote the state, where it still runs; a reused pid has another start time and is not it."""
        state = self.read_state()
        if "pid" not in state or "started" not in state:
            return None
        with contextlib.suppress(psutil.Error, TypeError, ValueError):
            process = psutil.Process(int(state["pid"]))
            if abs(process.create_time() - float(state["started"])) < 0.5 and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def write_private(path: Path, text: str) -> Path:
    """Write a file of mode 0600, whole or not at all."""
    write_whole(path, text, private=True)
    return path
