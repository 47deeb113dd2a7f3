"""Kind ``flink`` through a real scheduler: exactly-once jobs of a real Flink cluster, moved under live load.

Two are jobs from a jar; a third one is of a FlinkDeployment at a real API server, whose operator is played.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.e2e.small import until
from tests.integration.flink_deployment_world import LiveJobs, served, service
from tests.integration.flink_world import Flow, Jobs, compiled, readable, words
from tests.integration.kubernetes_players import FLINK, flink_operator, install, playing
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, rules_of_the_page
from tests.unit.flink_deployment_place import deployment

from lab.flink import FlinkCluster
from lab.kubernetes import ControlPlane
from lab.rights import allow, grant
from lab.runfolder import ROOT
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.flink.job import read_vertices
from topicshift.testing.fake_flink_operator import FakeFlinkOperator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.kubernetes,
    pytest.mark.long,
]
TOPIC, OWNER, SECRET = "readings", "fraud", "canary-of-the-jobmanager"
GRADER, GRADED = f"{TOPIC}-grader", f"{TOPIC}-graded"


@pytest.fixture
def jobs(stack: Stack, tmp_path: Path) -> Iterator[Jobs]:
    """A cluster with our jar, and Airflow's connection to it."""
    with FlinkCluster(tmp_path / "cluster", slots=6) as cluster:
        cluster.upload(compiled(tmp_path))
        log_in = {"host": "127.0.0.1", "port": cluster.port, "login": "me", "password": SECRET}
        with connection(stack, "flink_readings", **log_in):
            yield Jobs(cluster)


@pytest.fixture
def streams(stack: Stack, jobs: Jobs, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace with an operator, and Airflow's connection to it as a user with the rights of the page."""
    with (
        ControlPlane(tmp_path / "plane", ROOT / "build/cache/kubernetes", (USER, NOBODY)) as plane,
        served(jobs.ask) as at,
    ):
        made = Namespace(plane, "streams", tmp_path, rules_of_the_page("flink"))
        install(plane.ask(), made.until, FLINK)
        service(made, GRADER, *at)
        extra = json.dumps({"kube_config_path": str(plane.kubeconfig(USER))})
        operator = FakeFlinkOperator(LiveJobs(jobs))  # type: ignore[arg-type]
        try:
            with (
                connection(stack, "kubernetes_readings", "kubernetes", extra=extra),
                playing(flink_operator(plane.ask(), "streams", operator)),
            ):
                yield made
        finally:
            made.close()


class Readings(Applications):
    """A job that writes the topic in transactions, and two that read it and write on in transactions."""

    topic, named = TOPIC, f"{TOPIC}-intake"

    def __init__(self, stack: Stack, jobs: Jobs, streams: Namespace, admin: KafkaAdmin) -> None:
        rights = [
            *allow(OWNER, "TOPIC", f"{TOPIC}-up", "READ", "DESCRIBE"),
            *allow(OWNER, "TOPIC", TOPIC, "READ", "WRITE", "DESCRIBE"),
            *allow(OWNER, "TOPIC", f"{TOPIC}-scored", "WRITE", "DESCRIBE"),
            *allow(OWNER, "TOPIC", GRADED, "WRITE", "DESCRIBE"),
            *allow(OWNER, "GROUP", f"{TOPIC}-", "READ", "DESCRIBE", prefixed=True),
            *allow(OWNER, "TRANSACTIONAL_ID", f"{TOPIC}-", "WRITE", "DESCRIBE", prefixed=True),
        ]
        grant(stack.broker.superuser_config(), rights)
        self.secrets = (SECRET, str(streams.plane.endpoint(USER).password))
        self.jobs, self.streams = jobs, streams
        client = stack.properties_file(OWNER)
        self.flow = Flow(jobs, stack.broker.superuser_config(), admin, TOPIC, client=client)
        admin.create_topic(GRADED, 2, 1, {})
        servers = stack.broker.bootstrap
        told = {"name": GRADER, "from": TOPIC, "to": GRADED, "uid": f"{GRADER}-in", "group": f"{TOPIC}-grades"}
        self.deployed(words(servers, **told, prefix=GRADER, client=client))
        self.before = self.shape()

    def deployed(self, args: list[str]) -> None:
        """A FlinkDeployment with these arguments, whose job runs."""
        path = self.streams.create(
            "flink.apache.org/v1beta1/flinkdeployments", deployment(GRADER, args=args, parallelism=2)
        )
        self.jobs.cluster.until(lambda: self.jobs.runs(GRADER), "it runs and completes a checkpoint")
        self.streams.until(lambda: self.streams.get(path)["status"]["observedGeneration"] == 1, "its operator says so")
        self.streams.keep(path)

    def members(self) -> dict[str, Any]:
        where = {"connection": "flink_readings"}
        return {
            "producers": [{**self.flow.producer(**where), "principal": f"User:{OWNER}"}],
            "consumers": [self.flow.consumer(**where), self.grader()],
        }

    def grader(self) -> dict[str, Any]:
        """The spec's word for the job of the FlinkDeployment."""
        settings = {"deployment": GRADER, "namespace": "streams", "topic_in": "args", "source_uid": f"{GRADER}-in"}
        settings |= {"starts_at": "committed_or_earliest", "sinks": [GRADED], "transactional_id_prefix": GRADER}
        settings |= {"connection": "kubernetes_readings"}
        return {
            "name": "grader",
            "kind": "flink",
            "group": f"{TOPIC}-grades",
            "settings": settings,
            "stored_offsets": "none",
        }

    def shape(self) -> dict[str, set[tuple[str, int]] | set[str]]:
        """Id and parallelism of each vertex that lives, by job, and every field of the resource that is another.

        A source's id follows from its uid.
        """
        live = {name: self.vertices(name) for name in (self.flow.intake, self.flow.scorer, GRADER)}
        return {**live, "differs": self.streams.differs()}

    def vertices(self, name: str) -> set[tuple[str, int]]:
        live = [self.jobs.ask("GET", f"/jobs/{job.jid}", None) for job in self.jobs.named(name) if job.live]
        return {(v.vid, v.parallelism) for job in live for v in read_vertices(job)}

    def is_moved(self) -> bool:
        """The one that writes is as it was, those that read have another source and are as wide as before."""
        now = self.shape()
        others = [(now[name], self.before[name]) for name in (self.flow.scorer, GRADER)]
        words = {f"{GRADER} spec.job.args.{n}" for n in (5, 9)}
        return (
            now[self.flow.intake] == self.before[self.flow.intake]
            and all(len(now - before) == len(before - now) == 1 and len(now) == len(before) for now, before in others)
            and {n for vertices, _ in others for _, n in vertices} == {2}
            and now["differs"] == words
        )

    def graded(self) -> dict[str, list[list[int]]]:
        """What the job of the FlinkDeployment has written."""
        return readable(self.flow.config, GRADED, 2)

    def counts(self) -> list[int]:
        return [self.flow.given(), sum(map(len, self.graded().values()))]

    def proven(self) -> None:
        """Everything came out of both once and in order, and no job has lost its state on the way."""
        self.flow.proven()
        until(lambda: self.graded() == self.flow.wanted(), "everything comes out")


def test_exactly_once_jobs_go_on_after_an_abort_and_are_moved(stack: Stack, jobs: Jobs, streams: Namespace) -> None:
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        readings = Readings(stack, jobs, streams, admin)
        try:
            aborted_then_moved(stack, readings)
        finally:
            readings.flow.close()
