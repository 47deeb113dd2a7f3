"""A cluster, an API server in memory with an operator that is played, two FlinkDeployments, and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tests.unit.flink_place import GROUP, SOURCE, TARGET, words

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.flink.deployment import path_of
from topicshift.core.kubernetes.workload import Json, differing
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_flink import FakeJob, FakeJobManager
from topicshift.testing.fake_flink_operator import FakeFlinkOperator
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fake_kubernetes import FakeApiServer
from topicshift.testing.fakes import FakeCluster

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
        return [j for j in self.manager.jobs.values() if j.name == name][-1]

    def live(self) -> list[str]:
        """Names of jobs that run."""
        return sorted(j.name for j in self.manager.jobs.values() if j.state == "RUNNING")


class Place(Cluster):
    """Both jobs run on the source."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 5
        self.cluster = FakeCluster(now_ms=lambda: self.now_ms)
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.cluster.commit(GROUP, SOURCE, dict.fromkeys(range(3), 0))
        self.clock = ManualClock()
        self.trail: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=self.say, told=self.told)
        self.session = FakeJobManager(words)
        at = {"kubernetes_default": self.api, "flink_default": self.session}
        self.controller = FlinkController(self.cluster, at.__getitem__, self.clock)
        self.before = deepcopy(self.api.objects)

    def say(self, name: str, data: Mapping[str, Any]) -> None:
        self.trail.append({"name": name, **data})

    def told(self, name: str) -> list[dict[str, Any]]:
        return [t for t in self.trail if t["name"] == name]

    def able(self, who: Participant = scorer) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who]))

    def state(self, who: Participant = scorer) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [who])
        return found

    def where(self, who: Participant = scorer) -> tuple[str, str | None]:
        found = self.state(who)
        return found.status, found.topic

    def stand(self, *who: Participant) -> None:
        self.controller.stop(self.ctx, who or [scorer])

    def go(self, topic: str, *who: Participant) -> None:
        """Pointed and started, and put back once it runs."""
        self.controller.point(self.ctx, who or [scorer], topic)
        for _ in range(2):
            self.controller.start(self.ctx, who or [scorer])

    def moved(self, *who: Participant) -> None:
        """Stopped, and started on the target at the group's offsets."""
        self.stand(*who)
        self.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))
        self.go(TARGET, *who)

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
