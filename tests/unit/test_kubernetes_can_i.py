"""What keeps a workload from being moved is said before anything is touched, by name, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.kubernetes_place import (
    HPA,
    SHOP,
    Place,
    checkout,
    labelled,
    ledger,
    settings,
)

from topicshift.core.errors import Transient, Unreadable
from topicshift.core.kubernetes import owners
from topicshift.core.kubernetes.workload import BEFORE, path_of
from topicshift.ports import Participant

ROLLS = {"strategy": {"canary": {}}}


@pytest.fixture
def place() -> Place:
    return Place()


# ------------------------------------------------------------------------------------------------------- can_i


def test_workloads_that_run_as_they_are_declared_can_be_moved(place: Place) -> None:
    place.keda()
    place.scaler(HPA, minReplicas=1, maxReplicas=3)
    before = place.specs()
    assert place.able() == "" and place.able(ledger) == ""
    assert not place.said and place.differs(before) == []


@pytest.mark.parametrize(
    "right",
    [
        ("get", "deployments"),
        ("update", "deployments"),
        ("list", "pods"),
        ("list", "horizontalpodautoscalers"),
        ("update", "horizontalpodautoscalers"),
        ("update", "scaledobjects"),
    ],
)
def test_a_right_that_is_missing_is_named(place: Place, right: tuple[str, str]) -> None:
    place.api.denied = {right}
    assert place.able().startswith(f"checkout: its connection may not {right[0]} {right[1]}")
    assert "in namespace shop" in place.able()


def test_a_right_on_a_kind_that_is_not_installed_is_not_asked_for(place: Place) -> None:
    place.api.installed = set()
    place.api.denied = {("list", "scaledobjects")}
    assert place.able() == ""


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"replicas": 0}, "wants 0 replicas; it has to run before"),
        ({"paused": True}, "is paused, so its pods would not get the new topic"),
        ({"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "updates in partitions"),
        ({"selector": {"matchLabels": {"app": "other"}}}, "0 of 2 pods are ready"),
    ],
)
def test_a_workload_that_could_not_be_moved_says_why(place: Place, change: dict[str, Any], seen: str) -> None:
    place.deployment["spec"] |= change
    assert seen in place.able()


def test_pods_that_are_not_ready_and_those_of_others_are_named(place: Place) -> None:
    place.api.broken = {"checkout"}
    place.api.reconcile()
    assert "0 of 2 pods are ready (checkout-5d4-" in place.able() and "CrashLoopBackOff" in place.able()
    assert "hush" not in place.able()
    place.api.broken = set()
    place.api.create(path_of("Deployment", SHOP, "twin"), labelled("checkout", "Deployment", 1))
    assert "its selector matches pods that are not its own: twin-5d4-" in place.able()


def test_a_namesake_with_a_longer_name_is_told_apart(place: Place) -> None:
    """ReplicaSets of ``checkout-eu`` begin with the name of ``checkout`` as well."""
    place.api.create(path_of("Deployment", SHOP, "checkout-eu"), labelled("checkout", "Deployment", 1))
    assert "its selector matches pods that are not its own: checkout-eu-5d4-" in place.able()


@pytest.mark.parametrize(
    ("env", "seen"),
    [
        ([], "its environment variable KAFKA_TOPIC is not there, or is taken from elsewhere"),
        ([{"name": "KAFKA_TOPIC", "valueFrom": {"secretKeyRef": {"name": "s"}}}], "taken from elsewhere (valueFrom)"),
        ([{"name": "KAFKA_TOPIC", "value": "orders"}], "has to name payments once, and not payments-v2"),
        ([{"name": "KAFKA_TOPIC", "value": "payments,payments"}], "has to name payments once"),
        ([{"name": "KAFKA_TOPIC", "value": "payments,payments-v2"}], "and not payments-v2"),
        ([{"name": "KAFKA_TOPIC", "value": "payments-eu"}], "has to name payments once"),
    ],
)
def test_a_variable_that_does_not_name_the_source_alone_is_refused(place: Place, env: Any, seen: str) -> None:
    place.deployment["spec"]["template"]["spec"]["containers"][0]["env"] = env
    place.api.reconcile()
    assert seen in place.able()


def test_who_puts_it_back_is_named_with_the_way_through_git(place: Place) -> None:
    flux = "kustomize.toolkit.fluxcd.io"
    place.deployment["metadata"]["labels"] = {f"{flux}/name": "shop", f"{flux}/namespace": "flux-system"}
    path = f"/apis/{flux}/v1/namespaces/flux-system/kustomizations/shop"
    assert "Flux Kustomization flux-system/shop, which is not found" in place.able()
    place.api.create(path, {"spec": {}})
    assert "by Flux Kustomization flux-system/shop, which is not paused. Pause it" in place.able()
    assert (
        "flux suspend kustomization shop -n flux-system" in place.able() and "let Git name the target" in place.able()
    )
    place.api.denied = {("get", "kustomizations")}
    assert "may not get kustomizations.kustomize.toolkit.fluxcd.io in namespace flux-system" in place.able()
    place.api.denied = set()
    place.api.objects[path]["spec"]["suspend"] = True
    assert place.able() == ""
    place.api.objects[path]["spec"]["suspend"] = False
    place.deployment["metadata"]["annotations"] = {f"{flux}/reconcile": "disabled"}
    assert place.able() == ""


@pytest.mark.parametrize(
    ("spec", "notes", "paused"),
    [
        ({"syncPolicy": {"automated": {"selfHeal": True}}}, {}, False),
        ({"syncPolicy": {"automated": {}}}, {}, False),
        ({"syncPolicy": {"automated": {"enabled": False}}}, {}, True),
        ({"syncPolicy": {}}, {}, True),
        ({"syncPolicy": {"automated": {}}}, {owners.SKIPPED: "true"}, True),
    ],
)
def test_argo_cd_is_known_by_its_annotation(place: Place, spec: Any, notes: Any, paused: bool) -> None:
    place.scaler(HPA)["metadata"]["annotations"] = {owners.TRACKED: "shop:autoscaling/HorizontalPodAutoscaler:shop/it"}
    path = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/shop"
    place.api.create(path, {"metadata": {"annotations": notes}, "spec": spec})
    seen = "HorizontalPodAutoscaler/it is kept as Git has it by Argo CD Application shop, which is not paused"
    assert (seen not in place.able()) == paused == (place.able() == "")
    assert paused or "argocd app set shop --sync-policy none" in place.able()


@pytest.mark.parametrize(("mode", "paused"), [(None, True), ("enabled", False), ("warn", True), ("disabled", True)])
def test_a_helm_release_of_flux_puts_back_what_drifts_where_it_is_told_to(mode: str | None, paused: bool) -> None:
    owner = owners.Owner("Flux", "HelmRelease", "helm.toolkit.fluxcd.io", "helmreleases", "flux-system", "shop")
    assert owners.is_paused(owner, {"spec": {"driftDetection": {"mode": mode}} if mode else {}}) == paused
    assert owners.is_paused(owner, {"spec": {"driftDetection": {"mode": "enabled"}, "suspend": True}})


def test_an_owner_that_is_known_by_its_fields_alone_and_an_operator_are_refused(place: Place) -> None:
    place.deployment["metadata"]["managedFields"] = [{"manager": "kubectl"}, {"manager": "kustomize-controller"}]
    assert "kept as Git has it by Flux, and which one that is cannot be told" in place.able()
    place.deployment["metadata"] |= {
        "managedFields": [],
        "ownerReferences": [{"kind": "Shop", "name": "eu", "controller": True}],
    }
    assert "Deployment/checkout is controlled by Shop/eu, which would put it back" in place.able()


def test_one_that_another_migration_has_stopped_is_refused(place: Place) -> None:
    place.controller.stop(replace(place.ctx, migration="other"), [checkout])
    assert "migration other has stopped it and not put it back (2 replicas)" in place.able()
    for act in (place.controller.stop, place.controller.start):
        with pytest.raises(Transient, match="checkout: migration other has stopped it"):
            act(place.ctx, [checkout])
    place.deployment["metadata"]["annotations"] = {BEFORE: "two"}
    assert "its annotation topicshift/before is not understood" in place.able()


def test_wrong_names_and_a_server_that_does_not_answer_are_told_apart(place: Place) -> None:
    nobody = Participant("nobody", "producer", "kubernetes", settings=settings("nobody"))
    assert place.able(nobody) == (
        "nobody: its API server knows no Deployment/nobody in namespace shop; see name, namespace and connection."
    )
    place.api.dead = True
    with pytest.raises(Unreadable, match=r"checkout: .*no answer"):
        place.able()
    assert place.state().status == "unknown" and "no answer" in place.state().reason


@pytest.mark.parametrize(
    ("spec", "status", "seen"),
    [
        ({"strategy": {"canary": {"steps": [{"setWeight": 20}]}}}, {}, ""),
        ({"strategy": {"canary": {"steps": [{"setWeight": 20}, {"pause": {}}]}}}, {}, "its canary steps have pause"),
        (
            {"strategy": {"canary": {"steps": [{"setCanaryScale": {"replicas": 1}}]}}},
            {},
            "have setCanaryScale, which run",
        ),
        ({"strategy": {"blueGreen": {"activeService": "a"}}}, {}, "its strategy is not canary"),
        ({"workloadRef": {"kind": "Deployment", "name": "x"}}, {}, "takes its pods from elsewhere"),
        (
            {},
            {"pauseConditions": [{"reason": "CanaryPauseStep"}]},
            "it is paused or aborted, so it ignores its replicas",
        ),
        ({}, {"abort": True}, "it is paused or aborted"),
        ({}, {"phase": "Progressing"}, "its update is not finished (Progressing)"),
        ({}, {"stableRS": "older"}, "its update is not finished (Healthy)"),
    ],
)
def test_a_rollout_that_would_start_other_pods_is_refused(place: Place, spec: Any, status: Any, seen: str) -> None:
    made = place.api.create(path_of("Rollout", SHOP, "canary"), labelled("canary", "Rollout", 2, **ROLLS))
    made["spec"] |= spec
    made["status"] |= status
    able = place.able(Participant("canary", "producer", "kubernetes", settings=settings("canary", "Rollout")))
    assert seen in able and (able == "") == (seen == "")
