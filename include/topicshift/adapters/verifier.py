"""The armed drain verification of a migration, spoken to by files in its work folder.

The Spark job (``spark_jobs/drain_verification.py --armed``) writes ``ready.json`` once it can answer, touches ``alive``
every two seconds, and leaves ``verifier.json`` when it ends, with the mark that it was ``started`` with.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from topicshift.adapters.work import answers_folder, put, requests_folder
from topicshift.core.drain.names import file_name
from topicshift.core.errors import Unreadable
from topicshift.core.text import parse_json
from topicshift.ports import Clock

GONE_AFTER_S: Final = 10.0
"""Seconds without a sign of life after which a verifier that was ready counts as gone."""

STARTS_WITHIN_S: Final = 600.0
"""Seconds within which a verifier that was started says that it is ready; after that it counts as gone."""

ALL: Final = "all"
"""Name of the certificate for every group."""

READY, ALIVE, STARTED, DONE, ABORT, ENDED = "ready.json", "alive", "started", "done", "abort", "verifier.json"

State = Literal["absent", "starting", "ready", "gone"]


class FileVerifier:
    """:class:`topicshift.ports.Verifier` over files."""

    def __init__(self, migration_id: str, clock: Clock) -> None:
        self.requests = requests_folder(migration_id)
        self.answers = answers_folder(migration_id)
        self._clock = clock

    def arm(self) -> None:
        """Fresh folders for a job that is about to start: what an earlier one left there to end it is taken away."""
        for folder in (self.requests, self.answers):
            folder.mkdir(parents=True, exist_ok=True)
        for name in (READY, ALIVE, DONE, ABORT):
            (self.requests / name).unlink(missing_ok=True)
        (self.answers / ENDED).unlink(missing_ok=True)
        put(self.requests / STARTED, uuid.uuid4().hex.encode())

    def state(self) -> tuple[State, str]:
        """Where the job is, and why. One that was called off counts as absent: the next freeze starts another."""
        if (self.requests / ABORT).exists():
            return "absent", "it was called off"
        ended = self._json(self.answers / ENDED)
        if ended is not None and ended.get("armed", self._armed()) == self._armed():
            return "gone", f"it has ended ({ended.get('verdict')})"
        alive, started = self._age(ALIVE), self._age(STARTED)
        if alive is not None and (self.requests / READY).exists():
            return ("ready", "") if alive <= GONE_AFTER_S else ("gone", f"no sign of life for {alive:.0f} s")
        if started is None:
            return "absent", ""
        if started <= STARTS_WITHIN_S:
            return "starting", f"started {started:.0f} s ago"
        return "gone", f"started {started:.0f} s ago, and never ready"

    def request(self, subject: str, certificate: bytes) -> None:
        """Ask for one certificate to be verified by reading. Idempotent."""
        path = self.requests / f"{_name(subject)}.certificate.json"
        if not path.exists() or path.read_bytes() != certificate:
            put(path, certificate)

    def answer(self, subject: str) -> Mapping[str, Any] | None:
        """The latest answer for this subject."""
        return self._json(self.answers / f"{_name(subject)}.verification.json")

    def release(self) -> None:
        """It has answered everything and may end."""
        put(self.requests / DONE, b"")

    def abort(self) -> None:
        """Call it off: the run does not go on."""
        put(self.requests / ABORT, b"")

    def _armed(self) -> str | None:
        """The mark of the job that was started last; one before it may still be about to say how it ended."""
        path = self.requests / STARTED
        return path.read_text() if path.exists() else None

    def _age(self, name: str) -> float | None:
        """Seconds since the file was last written, None where there is none."""
        try:
            return self._clock.now().timestamp() - (self.requests / name).stat().st_mtime
        except FileNotFoundError:
            return None

    @staticmethod
    def _json(path: Path) -> Mapping[str, Any] | None:
        """Raises ``Unreadable`` for a file that is not what a verifier writes."""
        try:
            found = parse_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Unreadable(f"{path} of the drain verifier cannot be read: {error}. See its log.") from None
        if not isinstance(found, dict):
            raise Unreadable(f"{path} of the drain verifier holds no JSON object. See its log.")
        return found


def _name(subject: str) -> str:
    return file_name(subject or ALL)
