"""A run keeps the spec that it began to act with, and its DAG's order, whatever its file says later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from topicshift.core.engine.words import Row
from topicshift.core.errors import SpecError
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster
from topicshift_airflow.operators import open as opening

SPEC: dict[str, Any] = {
    "source": "payments",
    "partitions": 6,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger"}, {"name": "fraud", "group": "fraud"}],
}
FORM = {**SPEC, "spec_file": None, "target": None, "freeze_budget": "120s"}
FIRST, OTHER = Cutover.DRAIN_FIRST, Cutover.PRODUCERS_FIRST


class Ti:
    dag_id, run_id = "topic_migration__payments", "scheduled__1"

    def xcom_push(self, **_: Any) -> None: ...


def test_tasks_are_mapped_over_the_consumers_of_the_spec_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, journal, file = FakeCluster(), FakeJournal(ManualClock()), dict(SPEC)
    cluster.create_topic("payments", 3, 1, {})

    @contextmanager
    def opened() -> Iterator[FakeJournal]:
        yield journal

    monkeypatch.setattr(opening, "journal", opened)
    monkeypatch.setattr(opening, "kafka_config", lambda _: {})
    monkeypatch.setattr("topicshift.adapters.kafka.admin.KafkaAdmin", lambda _: cluster)
    monkeypatch.setattr("topicshift.core.spec.form.spec_from_form", lambda *_: Spec.model_validate(file))
    read_spec = opening.OpenMigration(task_id="read_spec", cutover=FIRST, spec_file="payments.yaml")
    context = {"ti": Ti()}
    assert read_spec.execute(context) == ["ledger", "fraud"]
    file["consumers"] = SPEC["consumers"][:1]
    assert read_spec.execute(context) == ["ledger"], "nothing was done yet: the new one counts"
    (row,) = journal.find()
    journal.intend(Claim(row.migration_id, row.epoch, row.owner), Row.CREATE_TARGET, {})
    file["consumers"] = [{"name": "search", "group": "search"}]
    assert read_spec.execute(context) == ["ledger"]
    file["cutover"] = OTHER.value
    with pytest.raises(AirflowFailException, match="Trigger topic_migration_producers_first"):
        read_spec.execute(context)


@pytest.mark.parametrize("order", [FIRST, OTHER])
def test_the_dag_is_the_order(order: Cutover) -> None:
    assert opening.spec_of_form(FORM, order).cutover is order
    assert opening.spec_of_form({**FORM, "cutover": order.value}, order).cutover is order


def test_a_spec_of_the_other_order_is_refused_with_the_name_of_its_dag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SPEC_FOLDER", tmp_path)
    (tmp_path / "a.yaml").write_text(
        "source: a\npartitions: 6\ncutover: producers_first\nproducers: [{name: p}]\nconsumers: [{name: c, group: c}]\n"
    )
    with pytest.raises(SpecError, match=r"is producers_first.*Trigger topic_migration_producers_first"):
        opening.spec_of_form({"spec_file": "a.yaml"}, FIRST)
    assert opening.spec_of_form({"spec_file": "a.yaml"}, OTHER).cutover is OTHER
    with pytest.raises(SpecError, match=r"is drain_first.*Trigger topic_migration with"):
        opening.spec_of_form({**FORM, "cutover": "drain_first"}, OTHER)
    with pytest.raises(SpecError, match="no field is filled in"):
        opening.spec_of_form({"spec_file": None, "source": None, "producers": []}, FIRST)
