"""Flink jobs from SQL on a real broker, a real cluster and a real SQL Gateway: exactly once, moved under live load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.flink_sql_world import SqlFlow, counts
from tests.integration.flink_world import Flow, Jobs
from tests.integration.test_flink_real import Migration
from tests.unit.flink_sql_contract import a_gateway_keeps_to

from lab.broker import EmbeddedBroker
from lab.flink import FlinkCluster
from lab.flink_sql import SqlGateway
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.flink import FlinkController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.rest import Ask
from topicshift.core.spec.flink import FlinkSqlSettings
from topicshift.ports import ControlContext, Participant

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    with FlinkCluster(tmp_path_factory.mktemp("flink") / "cluster", slots=8) as cluster:
        yield Jobs(cluster)


@pytest.fixture(scope="module")
def gateway(jobs: Jobs) -> Iterator[SqlGateway]:
    with SqlGateway(jobs.cluster) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


class FromSql(Migration):
    """Both jobs come from SQL."""

    flow: SqlFlow

    def __init__(self, gateway: SqlGateway, home: Path, *args: Any, **changes: Any) -> None:
        self.gateway, self.home = gateway, home
        super().__init__(*args, **changes)

    def flows(self, config: Mapping[str, Any], admin: KafkaAdmin, topic: str) -> Flow:
        return SqlFlow(self.gateway, self.home, self.jobs, config, admin, topic)

    def ask_of(self, connection: str) -> Ask:
        usual = FlinkSqlSettings.model_fields["gateway"].default
        return self.gateway.ask if connection == usual else super().ask_of(connection)

    def unable(self) -> str:
        """What keeps the job that reads from being moved."""
        told = self.flow.consumer()
        who = Participant("scorer", "consumer", "flink", told["group"], None, told["settings"], "none")
        controller = FlinkController(self.cluster, self.ask_of, SystemClock())
        return "\n".join(controller.can_i(ControlContext("m", self.source, self.target, 1), [who]))


@pytest.fixture
def migrate(
    jobs: Jobs,
    gateway: SqlGateway,
    broker: EmbeddedBroker,
    admin: KafkaAdmin,
    topic_name: Callable[..., str],
    tmp_path: Path,
) -> Iterator[Callable[..., FromSql]]:
    made: list[FromSql] = []

    def make(**changes: Any) -> FromSql:
        made.append(FromSql(gateway, tmp_path, jobs, broker, admin, topic_name(), **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_everything_comes_out_once_and_in_order_there_and_back_with_records_in_the_target(
    migrate: Callable[..., FromSql],
) -> None:
    """Both jobs go to the target with their counts, work there, and come back with its records read."""
    w = migrate()
    a_gateway_keeps_to(
        w.gateway.ask,
        w.flow.gateway,
        [s.replace("{topic}", w.source) for s in w.flow.statements[w.flow.scorer]],
        str(w.flow.plan(w.flow.scorer)),
    )
    w.advanced()
    w.flow.goes_on()
    (gone,) = w.before[w.flow.scorer] - w.shape(w.flow.scorer)
    assert gone and w.shape(w.flow.intake) == w.before[w.flow.intake], "the source of the one that reads is another"
    w.goes_back()


def test_a_freeze_that_is_taken_back_leaves_every_job_as_it_was(migrate: Callable[..., FromSql]) -> None:
    migrate(cutover="producers_first").is_taken_back()


def test_a_job_of_a_plain_insert_is_refused_and_so_is_a_plan_that_is_not_there(migrate: Callable[..., FromSql]) -> None:
    """Its operators have other ids, under which nobody finds its state again."""
    w = migrate()
    assert w.unable() == ""
    flow, name = w.flow, w.flow.scorer
    (flow.home / f"{name}-{flow.uids[1]}.json").unlink()
    assert f"could not be started on {w.target}: the plan" in w.unable()
    w.jobs.cancel(name)
    with flow.gateway.session({"pipeline.name": name}) as session:
        flow.known(session, name)
        session.run(counts("payments", "scored"), "INSERT")
    w.jobs.cluster.until(lambda: w.jobs.runs(name), "it runs")
    assert "begins with an operator of the uid" in w.unable()
