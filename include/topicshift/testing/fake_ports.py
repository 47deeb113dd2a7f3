"""The smaller ports in memory: an executor without threads, and a drain verifier."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from topicshift.core.errors import TopicshiftError


class InlineExecutor:
    """:class:`topicshift.ports.Executor` that asks one after the other, and runs coroutines that never really wait."""

    def gather(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The result of each call, or the ``TopicshiftError`` that it raised, as a value. Other errors are raised."""
        return {name: self._ask(call) for name, call in calls.items()}

    @staticmethod
    def _ask(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except TopicshiftError as error:
            return error

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The result of a coroutine, on a loop that is kept: making one takes longer than most coroutines."""
        global _loop
        if _loop is None:
            _loop = asyncio.new_event_loop()
        return _loop.run_until_complete(work())


_loop: asyncio.AbstractEventLoop | None = None
atexit.register(lambda: _loop.close() if _loop is not None else None)


class FakeVerifier:
    """:class:`topicshift.ports.Verifier` in memory: it answers at once what ``verdict`` says.

    ``deaf`` keeps it from answering, ``dies`` lets it end; :meth:`start` is what the Spark task does.
    """

    def __init__(self, verdict: Callable[[Mapping[str, Any]], str] = lambda _: "verified") -> None:
        self.verdict = verdict
        self.deaf = False
        self._state: Literal["absent", "starting", "ready", "gone"] = "absent"
        self._requests: dict[str, bytes] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}

    def arm(self) -> None:
        """A job is about to start."""
        self._state = "starting"

    def start(self) -> None:
        """A job has started, and is ready at once."""
        self.arm()
        self._state = "ready"
        self._reply()

    def dies(self) -> None:
        """The job ends before its time."""
        self._state = "gone"

    def state(self) -> tuple[Literal["absent", "starting", "ready", "gone"], str]:
        """Where it is."""
        return self._state, ""

    def request(self, subject: str, certificate: bytes) -> None:
        """Ask for one certificate to be verified."""
        self._requests[subject] = certificate
        self._reply()

    def _reply(self) -> None:
        if self.deaf or self._state != "ready":
            return
        for subject, paper in self._requests.items():
            question = hashlib.sha256(paper).hexdigest()
            if self._answers.get(subject, {}).get("question") != question:
                said = self.verdict(json.loads(paper))
                self._answers[subject] = {"question": question, "verdict": said, "seconds": 0.1, "reader": "spark"}

    def answer(self, subject: str) -> Mapping[str, Any] | None:
        """The latest answer."""
        self._reply()
        return self._answers.get(subject)

    def release(self) -> None:
        """It may end."""
        self._state = "gone"

    def abort(self) -> None:
        """Call it off."""
        self._state = "absent"
