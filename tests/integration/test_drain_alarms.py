"""A group that stands still while the DAG's trigger waits: in the audit trail, told to people, and in the series."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.notifier import BaseNotifier
from tests.integration.drain_cases import Kit

from lab.broker import EmbeddedBroker
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.adapters.evidence import evidence_from_env
from topicshift.adapters.journal import SqlJournal
from topicshift.reporting.run_view import build
from topicshift_airflow.triggers.drain import DrainTrigger

pytestmark = pytest.mark.broker
TOLD: list[dict[str, Any]] = []


class Kept(BaseNotifier):
    """A team's notifier."""

    def notify(self, context: Any) -> None:
        TOLD.append(context["alarm"])


def test_a_stuck_group_is_told_to_people_and_the_end_of_it_as_well(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TOLD.clear()
    monkeypatch.setenv("TOPICSHIFT_EVIDENCE", str(tmp_path / "evidence"))
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    monkeypatch.setenv("AIRFLOW_CONN_TOPICSHIFT_JOURNAL", url)
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_OF_TEST",
        json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}}),
    )
    monkeypatch.setenv(
        "AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", json.dumps([{"class": "none.Such"}, {"class": f"{__name__}.Kept"}])
    )
    journal = SqlJournal(url)
    with Kit(broker, tmp_path) as kit:
        topic = kit.topic(2)
        kit.produce(topic, 3, 0)
        kit.produce(topic, 3, 1)
        group = f"ledger-{topic}"
        kit.commit(group, topic, {0: 1, 1: 3})
        claim = journal.claim(
            cluster_id="c", source=topic, target=f"{topic}-v2", owner="dag/run", spec={}, owner_alive=lambda _: True
        )
        ends = kit.ends(topic, 2)
        store = evidence_from_env()
        fence = {"topic": topic, "topic_id": kit.topic_id(topic), "taken_at": "2026-01-01T00:00:01+00:00"}
        trigger = DrainTrigger(
            kafka_conn_id="kafka_of_test",
            migration_id=claim.migration_id,
            inputs={**DrainInputs(topic, declared=(group,), compare=False).values(), "readers": []},
            deadline=time.time() + 60,
            fence={**fence, "fence_offsets": ends},
            progress_name="drain_progress.json",
            owner=claim.owner,
            epoch=claim.epoch,
            alarm_after_s=0.4,
        )
        assert DrainTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()

        async def follow() -> dict[str, Any]:
            waiting = asyncio.create_task(trigger.wait())
            while not TOLD and not waiting.done():  # noqa: ASYNC110 - the alarm comes from other code
                await asyncio.sleep(0.05)
            kit.commit(group, topic, {0: 2})
            while not _kinds(journal, claim.migration_id, "alarm_over") and not waiting.done():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            kit.commit(group, topic, {0: 3})
            return await waiting

        assert asyncio.run(follow()) == {"status": "drained"}
    assert TOLD[0]["code"] == "no_members"
    assert (TOLD[0]["group"], TOLD[0]["topic"], TOLD[0]["lag"]) == (group, topic, 2)
    (first, *_) = _kinds(journal, claim.migration_id, "alarm")
    assert first.data["told"] == ["Kept"]
    assert [who.split(":")[0] for who in first.data["not_told"]] == ["Such"]
    assert "no members" in first.data["text"]
    view = build({"drain_progress.json": store.read(claim.migration_id, "drain_progress.json") or b""})
    journal.close()
    (drawn,) = view.drains
    assert [(g["group"], g["highest"], g["last"]) for g in drawn["groups"]] == [(group, "2", "0")]


def _kinds(journal: SqlJournal, migration_id: str, kind: str) -> list[Any]:
    return [e for e in journal.events(migration_id) if e.kind == kind]
