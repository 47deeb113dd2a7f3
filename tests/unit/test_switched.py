"""The end of the switch is an event of the target's asset, so that DAGs that are scheduled on the topic follow."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors
from tests.unit.airflow_world import Airflow
from tests.unit.world import SOURCE, TARGET

from topicshift.core.engine.words import Step
from topicshift.core.errors import SpecError
from topicshift.core.spec.cutover import Cutover
from topicshift_airflow.dag_factory import migration_dag
from topicshift_airflow.operators import switched
from topicshift_airflow.operators.switched import SWITCHED, SwitchedOperator, asset_uri


def task() -> SwitchedOperator:
    return SwitchedOperator(task_id="switch_producers.by_hand", until=Step.SWITCH_PRODUCERS)


def events_of(run: Airflow) -> list[Any]:
    """What the task tells Airflow."""
    run.world.advanced(until=Step.SWITCH_PRODUCERS)
    outlets, operator = OutletEventAccessors(), task()
    operator.execute(run.context(operator, outlet_events=outlets))
    return list(outlets[AssetAlias(SWITCHED)].asset_alias_events)


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_the_switch_tells_airflow_of_the_target(monkeypatch: pytest.MonkeyPatch, cutover: str) -> None:
    run = Airflow(monkeypatch, cutover=cutover)
    config = {"bootstrap.servers": "SASL_SSL://broker-1:9092, broker-2:9092", "sasl.password": "secret"}
    monkeypatch.setattr(switched, "kafka_config", lambda _: config)
    (event,) = events_of(run)
    assert event.dest_asset_key.uri == f"kafka://broker-1:9092/{TARGET}"
    assert event.extra["migration"] == run.world.claim.migration_id
    assert (event.extra["source"], event.extra["target"]) == (SOURCE, TARGET)
    assert (
        event.extra["at"]
        == run.world.journal.step(run.world.claim.migration_id, "switch_producers").data["finished_at"]
    )
    assert "secret" not in str(event)


def test_a_connection_that_cannot_be_read_fails_no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Airflow(monkeypatch)

    def missing(_: str) -> Any:
        raise SpecError("no such connection")

    monkeypatch.setattr(switched, "kafka_config", missing)
    assert events_of(run) == []
    monkeypatch.setattr(switched, "kafka_config", lambda _: {"bootstrap.servers": ""})
    assert events_of(run) == []
    monkeypatch.setattr(switched, "kafka_config", lambda _: {"bootstrap.servers": "broker-1:9092"})
    operator = task()
    assert operator.execute(run.context(operator)) is not None, "Airflow gave no accessor for events"


@pytest.mark.parametrize("cutover", list(Cutover))
def test_one_task_of_a_migration_has_the_outlet(cutover: Cutover) -> None:
    dag = migration_dag("x", cutover)
    assert [t.task_id for t in dag.tasks if t.outlets] == ["switch_producers.by_hand"]
    assert dag.get_task("switch_producers.by_hand").outlets == [AssetAlias(SWITCHED)]


@pytest.mark.parametrize(
    ("servers", "uri"),
    [("a:1", "kafka://a:1/t"), ("a:1,b:2", "kafka://a:1/t"), ("PLAINTEXT://[::1]:9092", "kafka://[::1]:9092/t")],
)
def test_the_uri_of_a_topic(servers: str, uri: str) -> None:
    assert asset_uri(servers, "t") == uri
