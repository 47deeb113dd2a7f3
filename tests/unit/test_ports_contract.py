"""What the verifier and the executor promise, held against the fake ones and the real ones alike."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from topicshift.adapters.executor import ThreadExecutor
from topicshift.adapters.verifier import GONE_AFTER_S, STARTS_WITHIN_S, FileVerifier
from topicshift.core.errors import Transient, Unreadable
from topicshift.ports import Executor
from topicshift.testing.fake_ports import FakeVerifier, InlineExecutor
from topicshift_spark.files import Folder
from topicshift_spark.requests import heartbeat, mark_of, serve

# ------------------------------------------------------------------------------------------------- the verifier


class Ahead:
    """The clock of this machine, and what a test adds to it."""

    def __init__(self) -> None:
        self.by = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.by

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class FakeSide:
    """The fake verifier, which is its own job."""

    def __init__(self) -> None:
        self.verifier: Any = FakeVerifier()

    def start(self) -> None:
        self.verifier.start()

    def die(self) -> None:
        self.verifier.dies()

    def close(self) -> None: ...


class FileSide:
    """Files, and the job's own loop and heartbeat in a thread."""

    def __init__(self) -> None:
        self.clock = Ahead()
        self.verifier: Any = FileVerifier("m", self.clock)
        self._alive = threading.Event()
        self._thread: threading.Thread | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self.verifier.arm()
        self._alive.set()
        self._thread = threading.Thread(target=self._job)
        self._thread.start()
        self._threads.append(self._thread)
        until(lambda: self.verifier.state()[0] == "ready")

    def _job(self) -> None:
        armed = mark_of(Folder(str(self.verifier.requests)))
        requests, answers = Folder(str(self.verifier.requests)), Folder(str(self.verifier.answers))

        def reply(name: str, content: bytes, _last_try: bool) -> bool:
            said = {"question": hashlib.sha256(content).hexdigest(), "verdict": "verified"}
            answers.write(f"{name}.verification.json", json.dumps(said))
            return True

        with heartbeat(requests, every_s=0.02):
            requests.write("ready.json", "{}")
            end = serve(requests, reply, seconds=60, alive=self._alive.is_set, armed=armed)
        if self._alive.is_set():  # one that was killed leaves no word
            answers.write("verifier.json", json.dumps({"verdict": end.value, "armed": armed}))

    def die(self) -> None:
        self._alive.clear()
        assert self._thread is not None
        self._thread.join()
        self.clock.by = timedelta(seconds=GONE_AFTER_S + 1)

    def close(self) -> None:
        self._alive.clear()
        for thread in self._threads:
            thread.join()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(params=[FakeSide, FileSide], ids=["fake", "files"])
def side(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    made = request.param()
    yield made
    made.close()


def answered(side: Any, subject: str, paper: bytes) -> bool:
    answer = side.verifier.answer(subject)
    return answer is not None and answer["question"] == hashlib.sha256(paper).hexdigest()


def test_it_is_absent_until_it_is_started_and_ready_once_it_can_answer(side: Any) -> None:
    assert side.verifier.state()[0] == "absent"
    side.verifier.arm()
    assert side.verifier.state()[0] == "starting"
    side.start()
    assert side.verifier.state()[0] == "ready"


def test_each_subject_has_its_own_answer_and_a_new_certificate_a_new_one(side: Any) -> None:
    side.start()
    for subject, paper in (("", b'{"a": 1}'), ("ledger/g 1", b'{"b": 1}'), ("ledger-g 1", b'{"c": 1}')):
        assert side.verifier.answer(subject) is None
        side.verifier.request(subject, paper)
        side.verifier.request(subject, paper)
        until(lambda subject=subject, paper=paper: answered(side, subject, paper))  # type: ignore[misc]
        assert side.verifier.answer(subject)["verdict"] == "verified"
    side.verifier.request("", b'{"a": 2}')
    until(lambda: answered(side, "", b'{"a": 2}'))
    assert answered(side, "ledger/g 1", b'{"b": 1}')


def test_one_that_was_killed_shows_as_gone_and_another_takes_its_place(side: Any) -> None:
    side.start()
    side.die()
    assert side.verifier.state()[0] == "gone"
    side.verifier.request("", b"{}")
    side.close()
    if isinstance(side, FileSide):
        side.clock.by = timedelta()
    side.start()
    until(lambda: answered(side, "", b"{}"))


def test_one_that_was_called_off_is_absent_and_can_be_started_again(side: Any) -> None:
    side.start()
    side.verifier.abort()
    assert side.verifier.state()[0] == "absent"
    side.start()
    assert side.verifier.state()[0] == "ready"


def test_one_that_was_released_ends(side: Any) -> None:
    side.start()
    side.verifier.release()
    until(lambda: side.verifier.state()[0] == "gone")


def test_one_that_never_says_ready_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    clock = Ahead()
    verifier = FileVerifier("m", clock)
    verifier.arm()
    clock.by = timedelta(seconds=STARTS_WITHIN_S + 1)
    assert verifier.state()[0] == "gone"


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_an_answer_that_is_none_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TOPICSHIFT_WORK", str(tmp_path))
    verifier = FileVerifier("m", Ahead())
    verifier.arm()
    (verifier.answers / "all.verification.json").write_text(text)
    with pytest.raises(Unreadable, match=r"all\.verification\.json"):
        verifier.answer("")


# ------------------------------------------------------------------------------------------------- the executor


@pytest.fixture(params=["inline", "threads"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "inline":
        yield InlineExecutor()
        return
    made = ThreadExecutor()
    yield made
    made.close()


def test_errors_of_the_product_are_answers_and_others_are_raised(executor: Executor) -> None:
    def late() -> None:
        raise Transient("broker 2")

    found = executor.gather({"a": lambda: 1, "b": late})
    assert found["a"] == 1 and isinstance(found["b"], Transient)
    with pytest.raises(ZeroDivisionError):
        executor.gather({"a": lambda: 1 // 0})
    assert executor.gather({}) == {}


def test_a_coroutine_is_run_from_plain_code(executor: Executor) -> None:
    async def look() -> int:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        return 7

    assert executor.run(look) == 7

    async def late() -> int:
        raise Transient("broker 2")

    with pytest.raises(Transient):
        executor.run(late)
    assert executor.run(look) == 7


def test_questions_are_asked_side_by_side() -> None:
    executor, meeting = ThreadExecutor(), threading.Barrier(5)
    try:
        found = executor.gather({str(n): lambda: meeting.wait(10) for n in range(5)})
        assert sorted(found.values()) == list(range(5))
    finally:
        executor.close()


def test_what_is_asked_may_ask_more_side_by_side_also_when_every_thread_is_busy() -> None:
    executor, busy = ThreadExecutor(threads=2), threading.Barrier(2)

    def several() -> list[int]:
        busy.wait(10)
        meeting = threading.Barrier(3)
        return sorted(executor.gather({str(n): lambda: meeting.wait(10) for n in range(3)}).values())

    try:
        assert executor.gather({"a": several, "b": several}) == {"a": [0, 1, 2], "b": [0, 1, 2]}
    finally:
        executor.close()
