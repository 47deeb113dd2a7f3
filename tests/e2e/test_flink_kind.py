"""Kind ``flink`` through a real scheduler: exactly-once jobs of a real Flink cluster, moved under live load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.integration.flink_world import Flow, Jobs, compiled

from lab.flink import FlinkCluster
from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.flink.job import read_vertices

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
TOPIC, USER, SECRET = "readings", "fraud", "canary-of-the-jobmanager"


@pytest.fixture
def jobs(stack: Stack, tmp_path: Path) -> Iterator[Jobs]:
    """A cluster with our jar, and Airflow's connection to it."""
    with FlinkCluster(tmp_path / "cluster") as cluster:
        cluster.upload(compiled(tmp_path))
        log_in = {"host": "127.0.0.1", "port": cluster.port, "login": "me", "password": SECRET}
        with connection(stack, "flink_readings", **log_in):
            yield Jobs(cluster)


class Readings(Applications):
    """A job that writes the topic in transactions, and one that reads it and writes on in transactions."""

    topic, named, secrets = TOPIC, f"{TOPIC}-intake", (SECRET,)

    def __init__(self, stack: Stack, jobs: Jobs, admin: KafkaAdmin) -> None:
        rights = [
            *allow(USER, "TOPIC", f"{TOPIC}-up", "READ", "DESCRIBE"),
            *allow(USER, "TOPIC", TOPIC, "READ", "WRITE", "DESCRIBE"),
            *allow(USER, "TOPIC", f"{TOPIC}-scored", "WRITE", "DESCRIBE"),
            *allow(USER, "GROUP", f"{TOPIC}-", "READ", "DESCRIBE", prefixed=True),
            *allow(USER, "TRANSACTIONAL_ID", f"{TOPIC}-", "WRITE", "DESCRIBE", prefixed=True),
        ]
        grant(stack.broker.superuser_config(), rights)
        self.jobs = jobs
        client = stack.properties_file(USER)
        self.flow = Flow(jobs, stack.broker.superuser_config(), admin, TOPIC, client=client)
        self.before = self.shape()

    def members(self) -> dict[str, Any]:
        where = {"connection": "flink_readings"}
        return {
            "producers": [{**self.flow.producer(**where), "principal": f"User:{USER}"}],
            "consumers": [self.flow.consumer(**where)],
        }

    def shape(self) -> dict[str, set[tuple[str, int]]]:
        """Id and parallelism of each vertex that lives, by job. A source's id follows from its uid."""
        return {name: self.vertices(name) for name in (self.flow.intake, self.flow.scorer)}

    def vertices(self, name: str) -> set[tuple[str, int]]:
        live = [self.jobs.ask("GET", f"/jobs/{job.jid}", None) for job in self.jobs.named(name) if job.live]
        return {(v.vid, v.parallelism) for job in live for v in read_vertices(job)}

    def is_moved(self) -> bool:
        """The one that writes is as it was, the one that reads has another source and is as wide as before."""
        writes, reads = (self.shape()[name] for name in (self.flow.intake, self.flow.scorer))
        wrote, read = (self.before[name] for name in (self.flow.intake, self.flow.scorer))
        return writes == wrote and len(reads - read) == len(read - reads) == 1 and {n for _, n in reads} == {2}

    def counts(self) -> list[int]:
        return [self.flow.given()]

    def proven(self) -> None:
        """Everything came out once and in order, and neither job has lost its state on the way."""
        self.flow.proven()


def test_exactly_once_jobs_go_on_after_an_abort_and_are_moved(stack: Stack, jobs: Jobs) -> None:
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        readings = Readings(stack, jobs, admin)
        try:
            aborted_then_moved(stack, readings)
        finally:
            readings.flow.close()
