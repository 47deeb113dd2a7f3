"""A cluster, an API server in memory with an operator that is played, two FlinkDeployments, and the controller."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.unit.flink_place import GROUP, SOURCE, JobsPlace, words

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.flink.deployment import path_of
from topicshift.core.kubernetes.workload import Json, differing
from topicshift.ports import Participant
from topicshift.testing.fake_flink import FakeJob, FakeJobManager
from topicshift.testing.fake_flink_operator import FakeFlinkOperator
from topicshift.testing.fake_kubernetes import FakeApiServer

SHOP = "shop"
SCORER, INTAKE = path_of(SHOP, "scorer"), path_of(SHOP, "intake")


def told(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a consumer."""
    usual = {"deployment": name, "namespace": SHOP, "topic_in": "args", "source_uid": f"{name}-in"}
    return {**usual, "starts_at": "committed_or_earliest", **more}


def writes(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a producer."""
    return {"deployment": name, "namespace": SHOP, "topic_in": "args", **more}


scorer = Participant("scorer", "consumer", "flink", GROUP, None, told("scorer"), "none")
intake = Participant("intake", "producer", "flink", settings=writes("intake"))


def deployment(name: str, topic: str = SOURCE, **job: Any) -> Json:
    """A FlinkDeployment whose job has its name, its source's uid and its topic as arguments."""
    args = [name, f"{name}-in", topic, "--all"]
    body = {"jarURI": "local:///jobs.jar", "args": args, "parallelism": 4, "upgradeMode": "last-state", **job}
    config = {"execution.checkpointing.savepoint-dir": "s3://saved", "taskmanager.numberOfTaskSlots": "2"}
    return {
        "apiVersion": "flink.apache.org/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": {"name": name, "annotations": {"team": "shop"}},
        "spec": {
            "image": "jobs",
            "flinkVersion": "v2_3",
            "flinkConfiguration": config,
            "job": {"state": "running", **body},
        },
    }


class Cluster:
    """An API server with an operator, and its JobManagers."""

    def __init__(self) -> None:
        self.manager = FakeJobManager(words)
        self.operator = FakeFlinkOperator(self.manager)
        self.api = FakeApiServer()
        self.api.operators["flinkdeployments"] = self.operator
        for path, name in ((SCORER, "scorer"), (INTAKE, "intake")):
            self.api.services[f"{name}-rest:8081"] = self.manager
            self.api.create(path, deployment(name))

    def job(self, name: str = "scorer") -> FakeJob:
        """The one that was started last."""
        return self.manager.job(name)

    def live(self) -> list[str]:
        """Names of jobs that run."""
        return self.manager.live()


class Place(Cluster, JobsPlace):
    """Both jobs run on the source."""

    scorer = scorer

    def __init__(self) -> None:
        Cluster.__init__(self)
        JobsPlace.__init__(self)
        self.session = FakeJobManager(words)
        at = {"kubernetes_default": self.api, "flink_default": self.session}
        self.controller = FlinkController(self.cluster, at.__getitem__, self.clock)
        self.before = deepcopy(self.api.objects)

    def go(self, topic: str, *who: Participant) -> None:
        """Pointed and started, and put back once it runs."""
        super().go(topic, *who)
        self.controller.start(self.ctx, who or [self.scorer])

    def differs(self) -> dict[str, Any]:
        """Every field of both objects that is not as it was, but for the status."""
        return {
            f"{path.rsplit('/', 1)[1]} {'.'.join(map(str, at))}": _at(self.api.objects[path], at)
            for path, one in self.before.items()
            for at in differing(one, self.api.objects[path])
        }

    def reconcile(self) -> None:
        """The operator looks again."""
        self.api.reconcile()

    def writes(self) -> list[str]:
        """Requests that change something, from now on."""
        heard: list[str] = []
        self.api.on_call = lambda call: heard.append(call) if call.startswith("PUT ") else None
        return heard


def _at(thing: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        thing = thing.get(step) if isinstance(thing, dict) else thing[step]
    return thing
