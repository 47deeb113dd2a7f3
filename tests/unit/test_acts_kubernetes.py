"""Workloads of Kubernetes in a migration: killed at any call, every field of every object is as it must be."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ways import ALL, KindWorld, frozen, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.kubernetes import KubernetesController
from topicshift.core.engine.words import Step
from topicshift.core.errors import AccessDenied, DrainTimedOut
from topicshift.core.kubernetes.workload import Json, differing, path_of
from topicshift.testing.fake_kubernetes import FakeApiServer, workload

few = settings(max_examples=3, deadline=None)
GROUP, SHOP = "ledger-g", "shop"
HPA = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/checkout"
KEDA = f"/apis/keda.sh/v1alpha1/namespaces/{SHOP}/scaledobjects/ledger"
CHECKOUT, LEDGER = path_of("Deployment", SHOP, "checkout"), path_of("StatefulSet", SHOP, "ledger")
TOPIC_AT = ("spec", "template", "spec", "containers", 0, "env", 0, "value")


def told(name: str, kind: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "kubernetes",
        "settings": {"workload": f"{kind}/{name}", "namespace": SHOP, "topic_in": "env:KAFKA_TOPIC"},
    }


MIXED: dict[str, Any] = {
    "producers": [
        {**told("checkout", "Deployment"), "principal": "User:checkout"},
        {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
    ],
    "consumers": [{**told("ledger", "StatefulSet"), "group": GROUP}, {"name": "fraud", "group": "fraud-g"}],
}


class Deployed(KindWorld):
    """A migration of a Deployment with an HPA, a StatefulSet with KEDA, a hook and an application on the route."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.api = self.fake = FakeApiServer()
        super().__init__(**{**MIXED, **changes})
        self.cluster.calls.clear()
        self.api.on_change = self.changed
        self.api.create(CHECKOUT, workload("Deployment", SOURCE, 2, labels={"app": "checkout"}))
        self.api.create(LEDGER, workload("StatefulSet", SOURCE, 3, labels={"app": "ledger"}))
        ref = {"kind": "Deployment", "name": "checkout"}
        self.api.create(HPA, {"spec": {"scaleTargetRef": ref, "minReplicas": 1, "maxReplicas": 4}})
        ref = {"kind": "StatefulSet", "name": "ledger"}
        trigger = {"type": "kafka", "metadata": {"topic": SOURCE}}
        self.api.create(KEDA, {"spec": {"scaleTargetRef": ref, "triggers": [trigger]}})
        self.objects = self.now()
        self.api.on_call = self.fuse.burn
        self.controllers["kubernetes"] = KubernetesController(self.cluster, lambda _: self.api, self.clock)  # type: ignore[assignment]

    def changed(self) -> None:
        """The group reads what its pods that are ready read."""
        if LEDGER not in self.api.objects:
            return
        self.leave(GROUP)
        for pod in self.api.pods(LEDGER):
            if "status" in pod and pod["status"]["conditions"][0]["status"] == "True":
                self.join(GROUP, pod["spec"]["containers"][0]["env"][0]["value"])

    def now(self) -> dict[str, Json]:
        return {path: deepcopy(o) for path, o in self.api.objects.items() if "/pods/" not in path}

    def differs(self) -> set[tuple[str, Any]]:
        """Every field of every object that is not as before."""
        now = self.now()
        assert now.keys() == self.objects.keys()
        return {(path, d) for path, one in self.objects.items() for d in differing(one, now[path])}

    def topics(self) -> set[str]:
        """What the pods that run are on."""
        pods = [*self.api.pods(CHECKOUT), *self.api.pods(LEDGER)]
        assert len(pods) == 5
        return {p["spec"]["containers"][0]["env"][0]["value"] for p in pods}

    def unharmed(self) -> bool:
        """Everything is as before, and runs."""
        return self.differs() == set() and self.topics() == {SOURCE} and self.hook_unharmed()

    def arrived(self) -> None:
        super().arrived()
        trigger = ("spec", "triggers", 0, "metadata", "topic")
        assert self.differs() == {(CHECKOUT, TOPIC_AT), (LEDGER, TOPIC_AT), (KEDA, trigger)}
        assert self.topics() == {TARGET}
        assert self.api.objects[KEDA]["spec"]["triggers"][0]["metadata"]["topic"] == TARGET
        self.hook_arrived()

    def stands(self) -> None:
        assert self.differs() and not self.api.pods(CHECKOUT)

    def on_target(self) -> None:
        assert self.topics() == {TARGET}


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_workloads_move_beside_other_kinds(cutover: str) -> None:
    w = Deployed(cutover=cutover)
    w.advanced()
    w.arrived()
    said = [(e["name"], e["moment"]) for e in w.events("participant") if e["name"] in ("checkout", "ledger")]
    assert list(dict.fromkeys(said)) == [(n, m) for n in ("checkout", "ledger") for m in ("stop", "point", "start")]


@ALL
def test_killed_before_or_after_every_effect_on_an_api_server_it_ends_where_it_would(way: str) -> None:
    """At each write of stop, point and start, on the way there and on every way back."""
    # Remembered, the autoscaler paused, scaled to 0; pointed, with KEDA's trigger; put back, scaled up: twice each.
    count = {"forward": 26, "resume": 4, "rollback": 26, "drain_back": 26}[way]
    killed_at_each_effect(Deployed, way, lambda call: call.startswith("PUT "), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 400), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Deployed, way, at)


def test_a_pod_that_does_not_end_ends_the_freeze_with_every_field_as_before() -> None:
    """``status.replicas`` is 0, and a terminating pod may still write."""
    w = Deployed()
    w.api.lingers = {"checkout"}
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("2 pod(s) are left" in line for line in w.said)
    w.api.lingers = set()
    w.api.reconcile()
    assert w.unharmed() and w.acls() == w.before


def test_pods_that_never_become_ready_on_the_target_are_waited_for_by_name() -> None:
    w = Deployed()
    w.advanced(until=Step.VERIFY_DRAIN)
    w.api.broken = {"checkout"}
    why = w.waits(patience_s=30)
    assert "checkout" in why and "0 of 2 pods are ready" in why and "CrashLoopBackOff" in why
    w.api.broken = set()
    w.api.reconcile()
    w.advanced()
    w.arrived()


def test_an_api_server_that_dies_in_the_freeze_leaves_a_way_back() -> None:
    w = frozen(Deployed)
    w.api.dead = True
    why = w.waits(patience_s=30, wanted="resume")
    assert "checkout" in why and "no answer" in why
    w.api.dead = False
    w.advanced(wanted="resume")
    w.back()


def test_a_right_that_is_taken_away_in_the_freeze_names_the_participant_and_leaves_a_way_back() -> None:
    w = Deployed()
    w.advanced(until=Step.VERIFY_DRAIN)
    w.api.denied = {("update", "deployments")}
    with pytest.raises(AccessDenied, match=r"^checkout: PUT .*deployments/checkout.*HTTP 403"):
        w.advanced()
    w.api.denied = set()
    w.advanced()
    w.arrived()


def test_objects_that_others_write_at_the_same_time_are_written_all_the_same() -> None:
    w = Deployed()
    w.advanced(until=Step.APPROVE)
    w.api.conflicts = 5
    w.advanced()
    w.arrived()
