"""Lineage is told of source and target by the tasks that move them, where its provider is installed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.airflow_world import Airflow
from tests.unit.world import SOURCE, TARGET

from topicshift.core.engine.words import Step
from topicshift.core.errors import SpecError
from topicshift_airflow import lineage
from topicshift_airflow.lineage import Lineage, namespace_of
from topicshift_airflow.operators.advance import AdvanceOperator

CLUSTER = "kafka://broker-1:9092"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Connections that were looked up."""
    found: list[str] = []

    def config(conn_id: str) -> dict[str, str]:
        found.append(conn_id)
        return {"bootstrap.servers": "SASL_SSL://broker-1:9092, broker-2:9092", "sasl.password": "secret"}

    monkeypatch.setattr(lineage, "kafka_config", config)
    monkeypatch.setattr(lineage, "installed", lambda: True)
    return found


def told(monkeypatch: pytest.MonkeyPatch, step: Step, **spec: Any) -> Lineage | None:
    run = Airflow(monkeypatch, **spec)
    run.world.advanced(until=step)
    operator = AdvanceOperator(task_id="step", until=step)
    run.run(operator)
    return operator.lineage


@pytest.mark.parametrize("step", [Step.CREATE_TARGET, Step.SWITCH_PRODUCERS, Step.SWITCH_CONSUMERS])
@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_the_target_is_told_as_made_from_the_source(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], step: Step, cutover: str
) -> None:
    assert told(monkeypatch, step, cutover=cutover) == Lineage(CLUSTER, (SOURCE,), (TARGET,))
    assert asked == ["kafka_default"]


def test_the_steps_that_move_nothing_tell_nothing(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    assert told(monkeypatch, Step.PLAN) is None
    assert told(monkeypatch, Step.DRAIN) is None
    assert asked == []


def test_nothing_is_looked_up_without_the_provider(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(lineage, "installed", lambda: False)
    assert told(monkeypatch, Step.SWITCH_PRODUCERS) is None and asked == []
    assert AdvanceOperator(task_id="step").get_openlineage_facets_on_complete(None) is None


def test_a_connection_that_cannot_be_read_fails_no_step(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    def missing(_: str) -> Any:
        raise SpecError("no such connection")

    monkeypatch.setattr(lineage, "kafka_config", missing)
    assert told(monkeypatch, Step.SWITCH_PRODUCERS) is None
    monkeypatch.setattr(lineage, "kafka_config", lambda _: {})
    assert told(monkeypatch, Step.SWITCH_PRODUCERS) is None


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("a:1,b:2", "kafka://a:1"),
        ("a", "kafka://a:9092"),
        ("SSL://a,b:1", "kafka://a:9092"),
        ("PLAINTEXT://[::1]:9094", "kafka://[::1]:9094"),
        ("[::1]", "kafka://[::1]:9092"),
    ],
)
def test_the_namespace_has_a_port(servers: str, namespace: str) -> None:
    assert namespace_of(servers) == namespace
