"""The gate's wait: it opens inside its time alone, and only for a verifier that is really there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift_airflow.triggers.drain import GateTrigger

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

    monkeypatch.setattr("topicshift.core.gate.Gate", Gate)
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


def test_its_arguments_come_back_from_the_database(trigger: GateTrigger) -> None:
    _, arguments = trigger.serialize()
    assert GateTrigger(**arguments).serialize() == trigger.serialize()
