"""A Flink SQL Gateway, asked by its REST interface: statements, one after the other, in a session of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from topicshift.adapters.rest import Ask, Failed
from topicshift.core.errors import Refused, TopicshiftError, Transient, Unreadable
from topicshift.core.flink.job import version_of
from topicshift.ports import Clock

RUNS_S = 20.0
"""Usual bound of all statements of one session, in seconds: an act ends before its seat (30 s) does."""

TARGET = "execution.target"
NOWHERE = "topicshift-looks-only"
"""A target of execution that nothing answers to: with it a job is made from its plan, and nobody runs it."""

_NOBODY_RUNS_IT = b"No ExecutorFactory found"
_CAUSE = re.compile(rb"Caused by: ([A-Za-z_$][\w.$]*)")

_UNDER_WAY = frozenset({"INITIALIZED", "PENDING", "RUNNING"})


class SqlGateway:
    """One gateway. Messages of failures are never repeated: they may quote a table's settings.

    Args:
        ask: asks its REST interface.
        clock: tells when a session's time is over.
        runs_s: bound of all statements of one session, in seconds; whoever has no seat to keep may wait longer.
    """

    def __init__(self, ask: Ask, clock: Clock, runs_s: float = RUNS_S) -> None:
        self._ask = ask
        self._clock = clock
        self._runs_s = runs_s

    def version(self) -> tuple[int, int] | None:
        """The version of Flink that it says of itself, None where it says none."""
        found = self._ask("GET", "/v1/info", None)
        return version_of({"flink-version": found.get("version")} if isinstance(found, Mapping) else None)

    @contextmanager
    def session(self, settings: Mapping[str, str]) -> Iterator[Session]:
        """A session with these settings, closed afterwards; one that could not be closed ends by itself."""
        answer = self._ask("POST", "/v1/sessions", {"properties": dict(settings)})
        handle = _word(answer, "sessionHandle")
        try:
            yield Session(self._ask, self._clock, f"/v1/sessions/{handle}", self._runs_s)
        finally:
            with suppress(TopicshiftError):
                self._ask("DELETE", f"/v1/sessions/{handle}", None)


class Session:
    """A session of a gateway: what is made known in it is known in it alone."""

    def __init__(self, ask: Ask, clock: Clock, path: str, runs_s: float) -> None:
        self._ask = ask
        self._clock = clock
        self._path = path
        self._runs_s = runs_s
        self._until = clock.now() + timedelta(seconds=runs_s)

    def run(self, statement: str, called: str) -> None:
        """Run it to its end.

        Raises ``Refused`` where it fails, and ``Transient`` where it has not ended in time.

        Args:
            statement: one statement of SQL.
            called: what a message calls it.
        """
        path, status = self._ended(statement, called)
        if status != "FINISHED":
            raise Refused(f"{called} failed at its SQL Gateway ({_cause(self._failure(path)) or status}); see its log")

    def translate(self, statement: str, called: str) -> None:
        """Make a job of a statement that would run one, in a session whose ``execution.target`` is ``NOWHERE``.

        Raises ``Refused`` where no job can be made of it, and ``Transient`` where it has not ended in time.
        """
        path, status = self._ended(statement, called)
        said = self._failure(path) if status != "FINISHED" else b""
        if _NOBODY_RUNS_IT not in said:
            raise Refused(f"{called} cannot be translated by its SQL Gateway ({_cause(said) or status}); see its log")

    def _ended(self, statement: str, called: str) -> tuple[str, str]:
        """Where its operation is, and the state in which it has ended."""
        answer = self._ask("POST", f"{self._path}/statements", {"statement": statement})
        path = f"{self._path}/operations/{_word(answer, 'operationHandle')}"
        while (status := _word(self._ask("GET", f"{path}/status", None), "status")) in _UNDER_WAY:
            if self._clock.now() >= self._until:
                raise Transient(f"{called} has not ended {self._runs_s:g} s after its session began at its SQL Gateway")
            self._clock.sleep(0.05)
        return path, status

    def _failure(self, path: str) -> bytes:
        """What is said of an operation that failed."""
        try:
            self._ask("GET", f"{path}/result/0", None)
        except Failed as error:
            return error.said
        return b""


def _cause(said: bytes) -> str:
    """The class of the innermost failure: its message may quote a setting."""
    found = _CAUSE.findall(said)
    return found[-1].decode()[:120] if found else ""


def _word(answer: Any, key: str) -> str:
    found = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(found, str) or not found:
        raise Unreadable(f"the answer of its SQL Gateway has no {key}")
    return found
