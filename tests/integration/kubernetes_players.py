"""Those who change workloads beside us, played by what their documentation says of them: KEDA, Argo CD, Flux.

Each has its kinds as a minimal CRD at the real API server, and looks as often as it can.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from topicshift.adapters.rest import Ask, Conflict
from topicshift.core.errors import NotFound, TopicshiftError
from topicshift.testing.fake_flink_operator import FakeFlinkOperator

KINDS = {
    "scaledobjects.keda.sh": ("ScaledObject", "v1alpha1"),
    "applications.argoproj.io": ("Application", "v1alpha1"),
    "rollouts.argoproj.io": ("Rollout", "v1alpha1"),
    "kustomizations.kustomize.toolkit.fluxcd.io": ("Kustomization", "v1"),
}
FLINK = {
    "flinkdeployments.flink.apache.org": ("FlinkDeployment", "v1beta1"),
    "flinkstatesnapshots.flink.apache.org": ("FlinkStateSnapshot", "v1beta1"),
}
Json = dict[str, Any]


def install(
    ask: Ask, until: Callable[[Callable[[], Any], str], Any], kinds: Mapping[str, tuple[str, str]] = KINDS
) -> None:
    """Make their kinds known, as minimal CRDs."""
    for name, (kind, version) in kinds.items():
        plural, _, group = name.partition(".")
        any_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": any_, "status": any_}}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": schema,
                        "subresources": {"status": {}},
                    }
                ],
            },
        }
        ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        path = f"/apis/{group}/{version}/namespaces/default/{plural}"
        until(lambda path=path: _known(ask, path), f"{kind} is known")  # type: ignore[misc]


def _known(ask: Ask, path: str) -> bool:
    with contextlib.suppress(NotFound):
        ask("GET", path, None)
        return True
    return False


@contextlib.contextmanager
def playing(look: Callable[[], None]) -> Iterator[None]:
    """Look again and again, until the block ends."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(0.05):
            with contextlib.suppress(TopicshiftError):
                look()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def keda(ask: Ask, namespace: str) -> Callable[[], None]:
    """KEDA: holds what ``paused-replicas`` says, leaves what is paused, else keeps between minimum and maximum."""

    def look() -> None:
        for one in ask("GET", f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects", None)["items"]:
            notes, spec = one["metadata"].get("annotations") or {}, one["spec"]
            ref = spec["scaleTargetRef"]
            resource = {"Deployment": "deployments", "StatefulSet": "statefulsets"}[ref.get("kind", "Deployment")]
            path = f"/apis/apps/v1/namespaces/{namespace}/{resource}/{ref['name']}"
            seen = ask("GET", path, None)
            now = seen["spec"]["replicas"]
            if "autoscaling.keda.sh/paused-replicas" in notes:
                wanted = int(notes["autoscaling.keda.sh/paused-replicas"])
            elif notes.get("autoscaling.keda.sh/paused") == "true":
                wanted = now
            else:
                wanted = max(int(spec.get("minReplicaCount", 0)), min(now, int(spec.get("maxReplicaCount", 100))))
            if wanted != now:
                with contextlib.suppress(Conflict):
                    ask("PUT", path, {**seen, "spec": {**seen["spec"], "replicas": wanted}})

    return look


def rollouts(ask: Ask, namespace: str, held: set[str]) -> Callable[[], None]:
    """Argo Rollouts: a ReplicaSet for each template, the new one promoted at once, or never where it is ``held``.

    A paused one is left alone; while a template is not promoted, it is the old one whose pods are scaled.
    """
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"

    def look() -> None:
        for one in ask("GET", f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/rollouts", None)["items"]:
            if not one["spec"].get("paused"):
                play(one)

    def play(one: Json) -> None:
        name, status = one["metadata"]["name"], one.get("status") or {}
        current = hashlib.sha256(json.dumps(one["spec"]["template"], sort_keys=True).encode()).hexdigest()[:9]
        stable = status.get("stableRS", current) if name in held else current
        for pod_hash in (current, stable):
            with contextlib.suppress(Conflict):
                ask("POST", sets, _set_of(one, pod_hash))
        for each in ask("GET", sets, None)["items"]:
            if each["metadata"]["ownerReferences"][0]["uid"] != one["metadata"]["uid"]:
                continue
            wanted = one["spec"]["replicas"] if each["metadata"]["name"] == f"{name}-{stable}" else 0
            if each["spec"]["replicas"] != wanted:
                path = f"{sets}/{each['metadata']['name']}"
                ask("PUT", path, {**each, "spec": {**each["spec"], "replicas": wanted}})
        now = {"observedGeneration": str(one["metadata"]["generation"]), "currentPodHash": current, "stableRS": stable}
        now["phase"] = "Healthy" if stable == current else "Paused"
        if now != status:
            path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/rollouts/{name}/status"
            ask("PUT", path, {**one, "status": now})

    return look


def _set_of(one: Json, pod_hash: str) -> Json:
    name, template = one["metadata"]["name"], deepcopy(one["spec"]["template"])
    labels = {**template["metadata"]["labels"], "rollouts-pod-template-hash": pod_hash}
    template["metadata"]["labels"] = labels
    owner = {"apiVersion": one["apiVersion"], "kind": "Rollout", "name": name, "uid": one["metadata"]["uid"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name}-{pod_hash}",
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def flink_operator(ask: Ask, namespace: str, operator: FakeFlinkOperator) -> Callable[[], None]:
    """The Flink Kubernetes Operator: what it makes of each FlinkDeployment is written to its status."""
    root = f"/apis/flink.apache.org/v1beta1/namespaces/{namespace}"

    def write(path: str, status: Json) -> None:
        while True:
            with contextlib.suppress(Conflict):
                ask("PUT", f"{path}/status", {**ask("GET", path, None), "status": status})
                return

    def look() -> None:
        for one in ask("GET", f"{root}/flinkdeployments", None)["items"]:
            status = operator(one)
            if status is not None:
                write(f"{root}/flinkdeployments/{one['metadata']['name']}", status)
        for name, noted in operator.snapshots.items():
            with contextlib.suppress(Conflict):
                reference = {"kind": "FlinkDeployment", "name": noted["name"]}
                spec = {"jobReference": reference, "savepoint": {"path": noted["path"], "alreadyExists": True}}
                head = {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkStateSnapshot"}
                ask("POST", f"{root}/flinkstatesnapshots", {**head, "metadata": {"name": name}, "spec": spec})
                write(f"{root}/flinkstatesnapshots/{name}", {"state": "COMPLETED", "path": noted["path"]})

    return look


def gitops(ask: Ask, path: str, awake: Callable[[], bool]) -> Callable[[], None]:
    """Argo CD with self-heal, or Flux: puts a workload back as Git has it (as it is now), while it is awake."""
    git = deepcopy(ask("GET", path, None)["spec"])

    def look() -> None:
        if not awake():
            return
        seen = ask("GET", path, None)
        if any(seen["spec"][key] != git[key] for key in ("replicas", "template")):
            with contextlib.suppress(Conflict):
                ask("PUT", path, {**seen, "spec": {**seen["spec"], **{k: git[k] for k in ("replicas", "template")}}})

    return look
