"""Run an executable of the installation for one moment of a migration."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from topicshift.core.text import printable

ENV = "TOPICSHIFT_HOOKS"
"""Names the folder whose executables a spec may name. Whoever may write there decides what a worker runs."""

KEPT = 2000
"""So many characters from the end of a hook's output are kept."""

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
"""What a hook gets of this process's environment: Airflow's connections, which are in it, are none of its business."""


@dataclass(frozen=True)
class Answer:
    """How a hook ended. ``code``: its exit code, None where it was ended after its time or could not be started.

    ``missing``: there is no hook of that name that may be run, for the reason in ``why``.
    """

    code: int | None
    out: str = ""
    err: str = ""
    why: str = ""
    missing: bool = False

    def text(self) -> str:
        """What it said, or why it said nothing, for a person."""
        said = " ".join((self.err or self.out).split())
        end = self.why or f"exit code {self.code}"
        return f"{end}: {said}" if said else end


def folder() -> Path | None:
    """The installation's folder of hooks; None where it has none."""
    named = os.environ.get(ENV, "").strip()
    return Path(named) if named else None


def find(where: Path | None, name: str) -> tuple[Path | None, str]:
    """The executable of that name, or why there is none that may be run."""
    if where is None:
        return None, f"{ENV} names no folder of hooks on this host"
    path = where / name
    try:
        # A link may lead anywhere: what is run has to lie in the folder itself.
        real = path.resolve(strict=True)
        inside = real.parent == where.resolve(strict=True)
    except OSError as error:
        return None, f"{path} cannot be opened: {error.strerror or error}"
    if not inside:
        return None, f"{path} leads out of {where}"
    if not real.is_file() or not os.access(real, os.X_OK):
        return None, f"{path} is no executable file"
    return real, ""


Call = Callable[[str, str, Mapping[str, str], float], Answer]
"""A hook's name, the moment, what it is told as environment variables, and its time in seconds, to its answer."""


def caller(where: Path | None) -> Call:
    """Calls the hooks of this folder."""

    def call(name: str, moment: str, told: Mapping[str, str], timeout_s: float) -> Answer:
        path, why = find(where, name)
        return Answer(None, why=why, missing=True) if path is None else run(path, moment, told, timeout_s)

    return call


def run(path: Path, moment: str, told: Mapping[str, str], timeout_s: float) -> Answer:
    """Run ``path moment`` with what it is told as environment variables, for ``timeout_s`` seconds at most.

    It is waited for by its own end, not by that of its output, which a process that it started may hold open. After
    its time it is ended with everything in its session.
    """
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | dict(told)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [str(path), moment], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )
        except OSError as error:
            return Answer(None, why=f"it cannot be started ({error.strerror or error})")
        try:
            code: int | None = process.wait(timeout_s)
            why = ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code, why = None, f"it had not ended after {timeout_s:g} s and was killed"
        return Answer(code, _end(out), _end(err), why)


def _end(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4 * KEPT))
    return printable(file.read().decode("utf-8", "replace"))[-KEPT:]
