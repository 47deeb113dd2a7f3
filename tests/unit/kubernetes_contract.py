"""What a Kubernetes API server does, as the controller relies on it: run on the fake server and on a real one."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Protocol

import pytest

from topicshift.adapters.rest import Ask, Conflict
from topicshift.core.errors import AccessDenied, NotFound, Refused
from topicshift.core.kubernetes import scalers
from topicshift.core.kubernetes.workload import (
    BEFORE,
    Before,
    Place,
    before_of,
    differing,
    not_as_written,
    path_of,
    pods_of,
    replicas,
    scaled,
    selector,
)

Until = Callable[[Callable[[], Any], str], Any]


class Where(Protocol):
    """A namespace with a running workload of each kind, by the name ``it``; ``may_not`` asks as one without rights."""

    ask: Ask
    may_not: Ask
    namespace: str
    until: Until


class Case(Protocol):
    """One truth of a running API server, of a workload of this kind."""

    __name__: str

    def __call__(self, at: Where, kind: str) -> None: ...


def pods(at: Where, kind: str) -> list[Any]:
    where = selector(at.ask("GET", path_of(kind, at.namespace, "it"), None)).replace("=", "%3D")
    found = at.ask("GET", f"/api/v1/namespaces/{at.namespace}/pods?labelSelector={where}", None)["items"]
    return pods_of(found, Place.of("env:KAFKA_TOPIC"), None, "payments", "payments-v2")


def all_ready(at: Where, kind: str) -> bool:
    found = pods(at, kind)
    return len(found) == 2 and all(p.ready for p in found)


def its_pods_say_who_owns_them_and_which_topic_they_got(at: Where, kind: str) -> None:
    at.until(lambda: all_ready(at, kind), "its pods are ready")
    found = pods(at, kind)
    owners = {p.owner.rsplit("-", 1)[0] if kind == "Deployment" else p.owner for p in found}
    assert owners == {"ReplicaSet/it" if kind == "Deployment" else "StatefulSet/it"}
    assert {p.topic for p in found} == {"payments"}


def what_is_not_there_is_told_apart(at: Where, kind: str) -> None:
    with pytest.raises(NotFound):
        at.ask("GET", path_of(kind, at.namespace, "nobody"), None)
    with pytest.raises(NotFound):
        at.ask("GET", "/apis/nothing.example/v1", None)


def an_annotation_starts_no_pod_anew_and_is_taken_away(at: Where, kind: str) -> None:
    at.until(lambda: all_ready(at, kind), "its pods are ready")
    path, names = path_of(kind, at.namespace, "it"), {p.name for p in pods(at, kind)}
    seen, kept = at.ask("GET", path, None), Before("m", 2, {"a/b": {"c": None}})
    shown = at.until(lambda: _put(at, path, lambda o: scaled(o, replicas(o), kept)), "it is written")
    assert before_of(shown) == kept
    # Of a Deployment the generation counts annotations too, so its controller has to see them.
    more = shown["metadata"]["generation"] - seen["metadata"]["generation"]
    assert more == (1 if kind == "Deployment" else 0)
    shown = at.until(lambda: _put(at, path, lambda o: scaled(o, replicas(o), None)), "it is taken away")
    assert BEFORE not in (shown["metadata"].get("annotations") or {}) and not differing(seen, shown)
    at.until(lambda: _settled(at.ask("GET", path, None)), "its controller has seen that")
    assert {p.name for p in pods(at, kind)} == names


def a_write_that_names_an_old_version_is_refused(at: Where, kind: str) -> None:
    path = path_of(kind, at.namespace, "it")
    old = at.until(lambda: at.ask("GET", path, None), "it is there")
    at.until(lambda: _written(at, path, "first"), "it is written")
    with pytest.raises(Conflict):
        at.ask("PUT", path, {**old, "metadata": {**old["metadata"], "annotations": {"a": "second"}}})
    assert at.ask("GET", path, None)["metadata"]["annotations"]["a"] == "first"


def _written(at: Where, path: str, text: str) -> bool:
    seen = at.ask("GET", path, None)
    notes = {**(seen["metadata"].get("annotations") or {}), "a": text}
    try:
        shown = at.ask("PUT", path, {**seen, "metadata": {**seen["metadata"], "annotations": notes}})
    except Conflict:
        return False
    return not not_as_written(seen, {**seen, "metadata": {**seen["metadata"], "annotations": notes}}, shown)


def scaled_to_zero_its_pods_go_and_scaled_up_there_are_new_ones(at: Where, kind: str) -> None:
    at.until(lambda: all_ready(at, kind), "its pods are ready")
    path, uids = path_of(kind, at.namespace, "it"), {p.name for p in pods(at, kind)}
    at.until(lambda: _scaled(at, path, 0), "it is scaled")
    at.until(lambda: pods(at, kind) == [], "no pod is left")
    at.until(lambda: _settled(at.ask("GET", path, None)), "its controller has seen that")
    at.until(lambda: _scaled(at, path, 2), "it is scaled up")
    at.until(lambda: all_ready(at, kind), "its new pods are ready")
    assert kind == "StatefulSet" or not uids & {p.name for p in pods(at, kind)}


def _scaled(at: Where, path: str, count: int) -> bool:
    seen = at.ask("GET", path, None)
    try:
        return replicas(at.ask("PUT", path, scaled(seen, count, None))) == count
    except Conflict:
        return False


def _settled(seen: Any) -> bool:
    return bool(seen["status"]["observedGeneration"] >= seen["metadata"]["generation"])


def rights_are_told_before_they_are_needed(at: Where, kind: str) -> None:
    def may(ask: Ask, verb: str) -> bool:
        asked = {"namespace": at.namespace, "verb": verb, "group": "", "resource": "pods", "name": ""}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        answer = ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    assert may(at.ask, "list") and not may(at.may_not, "list")
    with pytest.raises(AccessDenied):
        at.may_not("GET", f"/api/v1/namespaces/{at.namespace}/pods", None)


def an_autoscaler_is_paused_and_put_back_as_it_was(at: Where, kind: str) -> None:
    path = f"/apis/autoscaling/v2/namespaces/{at.namespace}/horizontalpodautoscalers/it-{kind.lower()}"
    scaler = "HorizontalPodAutoscaler"
    before = at.ask("GET", path, None)
    assert scalers.scales(before, kind, "it") and not scalers.is_paused(before, scaler)
    seen = at.until(lambda: _put(at, path, lambda s: scalers.paused(s, scaler)), "it is paused")
    assert scalers.is_paused(seen, scaler)
    state = scalers.state(before, scaler)
    shown = at.until(lambda: _put(at, path, lambda s: scalers.restored(s, scaler, state)), "it is put back")
    assert not differing(before, shown)


def _put(at: Where, path: str, alter: Callable[[Any], Any]) -> Any:
    seen = at.ask("GET", path, None)
    wanted = alter(deepcopy(seen))
    try:
        shown = at.ask("PUT", path, wanted)
    except Conflict:
        return None
    assert not_as_written(seen, wanted, shown) == []
    return shown


def one_that_is_immutable_keeps_its_data(at: Where, kind: str) -> None:
    path = f"/api/v1/namespaces/{at.namespace}/configmaps/fixed"
    seen = at.ask("GET", path, None)
    with pytest.raises(Refused):
        at.ask("PUT", path, {**seen, "data": {"topic": "other"}})
    assert at.ask("GET", path, None)["data"] == {"topic": "payments"}


CONTRACT: list[Case] = [
    its_pods_say_who_owns_them_and_which_topic_they_got,
    what_is_not_there_is_told_apart,
    an_annotation_starts_no_pod_anew_and_is_taken_away,
    a_write_that_names_an_old_version_is_refused,
    scaled_to_zero_its_pods_go_and_scaled_up_there_are_new_ones,
    rights_are_told_before_they_are_needed,
    an_autoscaler_is_paused_and_put_back_as_it_was,
    one_that_is_immutable_keeps_its_data,
]
HPA = {"minReplicas": 2, "maxReplicas": 4}


def objects(kind: str) -> dict[str, Any]:
    """What a :class:`Where` has, beside the workload itself, by resource."""
    ref = {"apiVersion": "apps/v1", "kind": kind, "name": "it"}
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    return {
        "horizontalpodautoscalers": {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": f"it-{kind.lower()}"},
            "spec": {**HPA, "scaleTargetRef": ref, "metrics": [{"type": "Resource", "resource": metric}]},
        },
        "configmaps": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "fixed"},
            "immutable": True,
            "data": {"topic": "payments"},
        },
    }
