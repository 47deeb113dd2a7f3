"""A cluster, an API server in memory with a producer and a group on it, and the controller of kind ``kubernetes``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from topicshift.adapters.controllers.kubernetes import KubernetesController
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.kubernetes.workload import Json, differing, path_of
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fake_kubernetes import FakeApiServer, workload
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET, GROUP, SHOP = "payments", "payments-v2", "ledger-g", "shop"


def settings(name: str, kind: str = "Deployment", **more: Any) -> dict[str, Any]:
    return {"workload": f"{kind}/{name}", "namespace": SHOP, "topic_in": "env:KAFKA_TOPIC"} | more


checkout = Participant("checkout", "producer", "kubernetes", settings=settings("checkout"))
ledger = Participant("ledger", "consumer", "kubernetes", GROUP, None, settings("ledger", "StatefulSet"), "none")
HPA = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/it"
KEDA = f"/apis/keda.sh/v1alpha1/namespaces/{SHOP}/scaledobjects/it"
MAP = f"/api/v1/namespaces/{SHOP}/configmaps/names"


def labelled(name: str, kind: str, count: int = 1, **more: Any) -> Json:
    return workload(kind, SOURCE, count, labels={"app": name}, **more)


class Place:
    """A cluster, an API server with a producer and a group, and the controller."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.api = FakeApiServer(self.changed)
        self.checkout_path = path_of("Deployment", SHOP, "checkout")
        self.ledger_path = path_of("StatefulSet", SHOP, "ledger")
        self.api.create(self.checkout_path, labelled("checkout", "Deployment", 2))
        self.api.create(self.ledger_path, labelled("ledger", "StatefulSet", 2))
        self.controller = KubernetesController(self.cluster, lambda _: self.api, ManualClock())
        self.said: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=lambda name, data: self.said.append({**data, "of": name}))

    def changed(self) -> None:
        """The group's members are its pods that are ready."""
        self.cluster.commit(GROUP, SOURCE, {0: 0})
        for member in ("0", "1"):
            self.cluster.leave(GROUP, member)
        path = path_of("StatefulSet", SHOP, "ledger")
        if path not in self.api.objects:
            return
        for n, pod in enumerate(self.api.pods(path)[:2]):
            if pod["status"]["conditions"][0]["status"] == "True":
                topic = pod["spec"]["containers"][0]["env"][0]["value"]
                self.cluster.join(GROUP, GroupMember(str(n), str(n), "h", assignment={topic: (n,)}))

    @property
    def deployment(self) -> Json:
        return self.api.objects[self.checkout_path]

    @property
    def stateful_set(self) -> Json:
        return self.api.objects[self.ledger_path]

    def scaler(self, path: str, **spec: Any) -> Json:
        ref = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"}}
        return self.api.create(path, {"metadata": {"annotations": {"a": "b"}}, "spec": ref | spec})

    def keda(self, topic: str = SOURCE) -> Json:
        trigger = {"type": "kafka", "metadata": {"topic": topic, "consumerGroup": GROUP}}
        return self.scaler(KEDA, triggers=[{"type": "cron", "metadata": {"start": SOURCE}}, trigger])

    def able(self, who: Participant = checkout) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who]))

    def state(self, who: Participant = checkout) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [who])
        return found

    def to(self, topic: str, *who: Participant) -> None:
        for act in (self.controller.stop, lambda c, p: self.controller.point(c, p, topic), self.controller.start):
            act(self.ctx, [*(who or (checkout, ledger))])

    def specs(self) -> dict[str, Json]:
        """Everything but pods, as it is now."""
        return {path: deepcopy(o) for path, o in self.api.objects.items() if "/pods/" not in path}

    def differs(self, before: dict[str, Json]) -> list[str]:
        return [f"{path} {d}" for path, one in before.items() for d in differing(one, self.api.objects[path])]
