"""The gate's wait: it opens inside its time alone, and only for a verifier that is really there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift.core.drain.certificate import Verdict
from topicshift.core.errors import Transient, Unreadable
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift_airflow.triggers.drain import DrainTrigger, GateTrigger

NOW = datetime(2026, 1, 1, 3, tzinfo=UTC)


class Gate:
    """Every group would drain at once."""

    def __init__(self, budget_s: float) -> None: ...

    def add(self, certificate: Any, at: float) -> Any:
        return SimpleNamespace(waits=(), seconds={"ledger": 0.5})


@pytest.fixture
def trigger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateTrigger:
    async def nothing(**_: Any) -> None: ...

    async def taker(_: Any) -> Any:
        return SimpleNamespace(now=lambda: NOW, take=nothing, reader=SimpleNamespace(close=nothing))

    monkeypatch.setattr("topicshift.core.drain.gate.Gate", Gate)
    monkeypatch.setattr(GateTrigger, "taker", taker)
    return GateTrigger(
        kafka_conn_id="kafka_default",
        migration_id="m",
        inputs={},
        deadline=NOW.timestamp() + 60,
        budget_s=60,
        ready_file=str(tmp_path / "ready.json"),
        ended_file=str(tmp_path / "verifier.json"),
        pause_s=0,
    )


def wait(trigger: GateTrigger) -> dict[str, Any]:
    return asyncio.run(trigger.wait())


def test_it_opens_when_everything_is_ready(trigger: GateTrigger) -> None:
    Path(trigger.ready_file).touch()
    assert wait(trigger) == {"status": "ready", "seconds": {"ledger": 0.5}}


def test_after_its_time_it_stays_shut_even_if_everything_is_ready(trigger: GateTrigger) -> None:
    Path(trigger.ready_file).touch()
    trigger.deadline = NOW.timestamp()
    assert wait(trigger) == {"status": "deadline", "waits": []}


def test_a_verifier_that_has_ended_left_its_file_behind_and_is_not_trusted(trigger: GateTrigger) -> None:
    Path(trigger.ready_file).touch()
    Path(trigger.ended_file).touch()
    trigger.deadline = NOW.timestamp()
    assert "clear verify_drain.drain_verification" in wait(trigger)["waits"][0]


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
    Path(trigger.ready_file).touch()
    assert wait(trigger)["status"] == "ready" and not looks


class Full:
    """A store that takes nothing."""

    def read(self, *_: Any) -> bytes:
        return (
            FenceRecord(
                topic="payments",
                topic_id="id",
                partitions=1,
                fence_offsets={0: 4},
                began_at=NOW.isoformat(),
                taken_at=NOW.isoformat(),
                settings=FenceSettings(),
                samples=[],
                acls_before=[],
                acls_added=[],
            )
            .model_dump_json()
            .encode()
        )

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
        deadline=NOW.timestamp() + 60,
        progress_name="drain_progress.json",
        owner="o",
        epoch=1,
    )
    assert asyncio.run(drain.wait()) == {"status": "drained"}


def test_its_arguments_come_back_from_the_database(trigger: GateTrigger) -> None:
    _, arguments = trigger.serialize()
    assert GateTrigger(**arguments).serialize() == trigger.serialize()
