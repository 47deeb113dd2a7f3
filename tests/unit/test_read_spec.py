"""A run keeps the spec that it began to act with, whatever its file says when read_spec is cleared."""

from __future__ import annotations

from typing import Any

import pytest

from topicshift.core.spec.model import Spec
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster
from topicshift_airflow.operators import plan

SPEC = {
    "source": "payments",
    "partitions": 6,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}, {"name": "fraud", "group": "fraud"}],
}


class Journal(FakeJournal):
    def close(self) -> None: ...


class Ti:
    dag_id, run_id = "topic_migration__payments", "scheduled__1"

    def xcom_push(self, **_: Any) -> None: ...


def test_tasks_are_mapped_over_the_consumers_of_the_spec_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, journal, file = FakeCluster(), Journal(ManualClock()), dict(SPEC)
    cluster.create_topic("payments", 3, 1, {})
    monkeypatch.setattr(plan, "open_journal", lambda: journal)
    monkeypatch.setattr(plan, "kafka_config", lambda _: {})
    monkeypatch.setattr("topicshift.adapters.kafka.admin.KafkaAdmin", lambda _: cluster)
    monkeypatch.setattr("topicshift.core.spec.form.spec_from_form", lambda *_: Spec.model_validate(file))
    read_spec, context = plan.OpenMigration(task_id="read_spec", spec_file="payments.yaml"), {"ti": Ti()}
    assert read_spec.execute(context) == ["ledger", "fraud"]
    file["consumers"] = SPEC["consumers"][:1]  # type: ignore[index]
    assert read_spec.execute(context) == ["ledger"], "nothing was done yet: the new one counts"
    (row,) = journal.find()
    journal.intend(plan_claim(row), "create_target", {})
    file["consumers"] = [{"name": "search", "group": "search"}]
    assert read_spec.execute(context) == ["ledger"]


def plan_claim(row: Any) -> Any:
    from topicshift.ports import Claim

    return Claim(row.migration_id, row.epoch, row.owner)
