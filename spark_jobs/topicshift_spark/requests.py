"""Certificates that come one by one into a folder, and what ends the wait for them.

The run writes ``NAME.certificate.json`` (``all``, or a group's name), the job answers ``NAME.verification.json``. The
file ``done`` ends the job when everything is answered, the file ``abort`` ends it at once. The job writes ``alive``.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from topicshift.core.errors import TopicshiftError
from topicshift_spark.files import Folder

DONE, ABORT, ALIVE, STARTED = "done", "abort", "alive", "started"
BEAT_S = 2.0
"""Seconds between two signs of life."""
_REQUEST = re.compile(r"([\w.-]+)\.certificate\.json")
_POLL_S = 0.05
_POLL_REMOTE_S = 0.5
_TRIES = 40


class End(StrEnum):
    """Why the job ended."""

    DONE = "done"
    ABORTED = "aborted"
    DEADLINE = "deadline"
    ORPHANED = "orphaned"

    @property
    def exit_code(self) -> int:
        """0 when the run said that it has all its answers, 4 otherwise."""
        return 0 if self is End.DONE else 4


def owner_alive() -> Callable[[], bool]:
    """Tells whether the JVM that started this process lives, and the task behind it (``TOPICSHIFT_OWNER_PID``).

    A task that was killed cannot call its verifier off, and its next try submits another one.
    """
    parent = os.getppid()
    owner = int(os.environ.get("TOPICSHIFT_OWNER_PID", "0"))

    def alive() -> bool:
        if os.getppid() != parent:
            return False
        try:
            os.kill(owner or os.getpid(), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is there, as another user
        return True

    return alive


def mark_of(folder: Folder) -> str | None:
    """The mark with which the newest job of this folder was started, None where nobody left one."""
    return folder.read(STARTED).decode() if STARTED in folder.marks() else None


@contextmanager
def heartbeat(folder: Folder, every_s: float = BEAT_S) -> Iterator[None]:
    """Write ``alive`` into the folder now and every so often, in a thread of its own: reading a tail may take long.

    The first one is written before anything else is done; a later one that fails is tried again at the next beat.
    """
    folder.write(ALIVE, "")
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            with suppress(TopicshiftError, OSError):
                folder.write(ALIVE, "")

    thread = threading.Thread(target=beat, name="topicshift-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def serve(
    folder: Folder,
    answer: Callable[[str, bytes, bool], bool],
    *,
    seconds: float,
    alive: Callable[[], bool],
    armed: str | None = None,
) -> End:
    """Pass every certificate to ``answer(name, content, last_try)`` once, and again when its content changes.

    ``answer`` returns false where the content makes no sense yet: a writer that does not rename shows half a file for a
    moment. It is then asked again, up to two seconds (``last_try``). Ends after ``seconds``, when ``alive`` says that
    nobody waits for answers any more, or when another job was started (``armed`` is :func:`mark_of` at the beginning).
    """
    until = time.monotonic() + seconds
    pause = _POLL_S if folder.local else _POLL_REMOTE_S
    seen: dict[str, object] = {}
    digests: dict[str, str] = {}
    tries: dict[str, int] = {}
    started: object = None
    while True:
        marks = folder.marks()
        if ABORT in marks or (STARTED in marks and marks[STARTED] != started and mark_of(folder) != armed):
            return End.ABORTED
        started = marks.get(STARTED)
        for file, mark in marks.items():
            request = _REQUEST.fullmatch(file)
            if request is None or seen.get(file) == mark:
                continue
            name = request[1]
            try:
                content = folder.read(file)
            except TopicshiftError:
                if tries.get(name, 0) >= _TRIES:
                    raise
                tries[name] = tries.get(name, 0) + 1
                continue
            digest = hashlib.sha256(content).hexdigest()
            if digests.get(name) != digest and not answer(name, content, tries.get(name, 0) >= _TRIES):
                tries[name] = tries.get(name, 0) + 1
                continue
            seen[file], digests[name] = mark, digest
            tries.pop(name, None)
        if DONE in marks and not tries:
            return End.DONE
        if time.monotonic() >= until:
            return End.DEADLINE
        if not alive():
            return End.ORPHANED
        time.sleep(pause)
