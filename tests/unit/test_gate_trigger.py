"""The gate's wait: it opens inside its time alone, and only for a verifier that is really there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift.core.drain.certificate import Verdict
from topicshift.core.errors import Transient, Unreadable
from topicshift.testing.fake_ports import FakeVerifier
from topicshift_airflow.triggers.drain import DrainTrigger, GateTrigger

NOW = datetime(2026, 1, 1, 3, tzinfo=UTC)


class Gate:
    """Every group would drain at once."""

    def __init__(self, budget_s: float) -> None: ...

    def add(self, certificate: Any, at: float) -> Any:
        return SimpleNamespace(waits=(), seconds={"ledger": 0.5})

    def progress(self, at: float, waits: Any) -> Any:
        return {"at": at, "waits": waits}


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> FakeVerifier:
    """An armed verifier that has said ready."""
    made = FakeVerifier()
    made.start()
    monkeypatch.setattr("topicshift.adapters.verifier.FileVerifier", lambda *_: made)
    return made


@pytest.fixture(autouse=True)
def no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read says nothing of the migration."""

    def away() -> Any:
        raise Transient("the database is away")

    monkeypatch.setattr("topicshift_airflow.runtime.open_journal", away)


@pytest.fixture
def trigger(verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch) -> GateTrigger:
    async def nothing(**_: Any) -> None: ...

    async def taker(_: Any) -> Any:
        return SimpleNamespace(now=lambda: NOW, take=nothing, reader=SimpleNamespace(close=nothing))

    monkeypatch.setattr("topicshift.core.drain.gate.Gate", Gate)
    monkeypatch.setattr(GateTrigger, "taker", taker)
    monkeypatch.setattr("topicshift_airflow.triggers.drain._write", lambda *_: None)
    return GateTrigger(
        kafka_conn_id="kafka_default",
        migration_id="m",
        inputs={"topic": "payments"},
        deadline=NOW.timestamp() + 60,
        budget_s=60,
        pause_s=0,
        owner="topic_migration/run-1",
        epoch=1,
        alarm_after_s=20,
    )


def wait(trigger: GateTrigger) -> dict[str, Any]:
    return asyncio.run(trigger.wait())


def test_it_opens_when_everything_is_ready(trigger: GateTrigger) -> None:
    assert wait(trigger) == {"status": "ready"}


def test_where_producers_stand_still_already_only_the_verifier_counts(
    trigger: GateTrigger, verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was stopped by hand must not wait for a group that falls behind somebody who writes on."""
    monkeypatch.setattr(Gate, "add", lambda *_: SimpleNamespace(waits=("ledger is behind",), seconds={}))
    trigger.drain = False
    assert wait(trigger) == {"status": "ready"}
    real = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _=0: real(0))
    states = [("gone", "why"), ("starting", ""), ("ready", "")]
    monkeypatch.setattr(verifier, "state", lambda: states.pop(0))
    assert wait(trigger) == {"status": "ready"} and not states


def test_after_its_time_the_task_is_woken_to_say_so(trigger: GateTrigger) -> None:
    trigger.deadline = NOW.timestamp()
    assert wait(trigger) == {"status": "deadline"}


@pytest.mark.parametrize("state", ["absent", "starting", "gone"])
def test_a_verifier_that_is_not_there_keeps_it_shut(
    trigger: GateTrigger, verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    states = [(state, "why"), ("ready", "")]
    monkeypatch.setattr(verifier, "state", lambda: states.pop(0))
    real = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _=0: real(0))
    assert wait(trigger) == {"status": "ready"} and not states


def test_a_look_that_fails_for_a_moment_keeps_it_shut_and_does_not_end_it(
    trigger: GateTrigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[BaseException | None] = [Transient("broker 2 does not answer"), None]

    async def take(**_: Any) -> None:
        if (error := looks.pop(0)) is not None:
            raise error

    async def close() -> None: ...

    async def taker(_: Any) -> Any:
        return SimpleNamespace(now=lambda: NOW, take=take, reader=SimpleNamespace(close=close))

    monkeypatch.setattr(GateTrigger, "taker", taker)
    monkeypatch.setattr(asyncio, "sleep", lambda _=0: close())
    assert wait(trigger)["status"] == "ready" and not looks


def test_a_gate_that_stays_shut_tells_people_once_and_says_when_it_is_over(
    trigger: GateTrigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    kept: list[tuple[str, dict[str, Any]]] = []
    lag = iter(range(90, 0, -1))

    class Shut(Gate):
        def add(self, certificate: Any, at: float) -> Any:
            left = next(lag)
            return SimpleNamespace(waits=(f"group ledger would need {left}.5 s",) if left > 50 else ())

    async def close(*_: Any, **__: Any) -> None: ...

    async def taker(_: Any) -> Any:
        moments = iter(NOW.timestamp() + n for n in range(200))
        now: Any = SimpleNamespace(timestamp=lambda: next(moments))
        return SimpleNamespace(now=lambda: now, take=close, reader=SimpleNamespace(close=close))

    logged: list[str] = []
    monkeypatch.setattr("topicshift.core.drain.gate.Gate", Shut)
    monkeypatch.setattr(GateTrigger, "taker", taker)
    monkeypatch.setattr(asyncio, "sleep", close)
    files: list[tuple[str, str]] = []
    monkeypatch.setattr("topicshift_airflow.triggers.drain._write", lambda _, name, text: files.append((name, text)))
    monkeypatch.setattr("topicshift_airflow.notifiers.tell", lambda alarm: (told.append(alarm), ([], []))[1])
    monkeypatch.setattr(
        "topicshift_airflow.alarms.Alarms._record", lambda self, kind, data: kept.append((kind, dict(data)))
    )
    monkeypatch.setattr(trigger.log, "info", lambda text, *args: logged.append(text % args))
    assert wait(trigger) == {"status": "ready"}
    (alarm,) = told
    assert alarm["code"] == "gate_shut" and "nobody is stopped yet: group ledger would need" in alarm["text"]
    assert [kind for kind, _ in kept] == ["alarm", "alarm_over"]
    assert {name for name, _ in files} == {"gate_progress.json"} and 5 < len(files) < 20, "every three seconds"
    assert json.loads(files[0][1])["waits"] == ["group ledger would need 90.5 s"]
    assert len(logged) == 2, "forty looks at a number that moves are two lines of the log"


class Full:
    """A store that takes nothing."""

    def write(self, *_: Any) -> None:
        raise Unreadable("Evidence could not be written: no space left on device")


class Watch:
    """One look, after which everything is drained."""

    certificate = SimpleNamespace(verdict=Verdict.DRAINED)

    def __init__(self, *_: Any, **__: Any) -> None: ...

    async def __aiter__(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(at=NOW.timestamp(), groups=[], alarms=[], line=lambda: "ledger: nothing left")


def test_a_chart_that_cannot_be_kept_ends_no_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close() -> None: ...

    async def taker(*_: Any) -> Any:
        return SimpleNamespace(now=lambda: NOW, reader=SimpleNamespace(close=close))

    monkeypatch.setattr(DrainTrigger, "taker", taker)
    monkeypatch.setattr("topicshift.acts.drain_watch.DrainWatch", Watch)
    monkeypatch.setattr("topicshift.adapters.evidence.evidence_from_env", Full)
    drain = DrainTrigger(
        kafka_conn_id="kafka_default",
        migration_id="m",
        inputs={"topic": "payments"},
        fence={"topic": "payments", "fence_offsets": {"0": 4}, "topic_id": "id", "taken_at": NOW.isoformat()},
        deadline=NOW.timestamp() + 60,
        progress_name="drain_progress.json",
        owner="o",
        epoch=1,
    )
    assert asyncio.run(drain.wait()) == {"status": "drained"}


def test_its_arguments_come_back_from_the_database(trigger: GateTrigger) -> None:
    _, arguments = trigger.serialize()
    assert GateTrigger(**arguments).serialize() == trigger.serialize()
