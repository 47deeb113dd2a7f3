"""Autoscalers of a workload: how each is paused and put back, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from topicshift.core.kafka.named import exchanged, names
from topicshift.core.kubernetes.workload import Json, notes_of, with_annotations

GROUPS = {
    "HorizontalPodAutoscaler": ("autoscaling", "v2", "horizontalpodautoscalers"),
    "ScaledObject": ("keda.sh", "v1alpha1", "scaledobjects"),
}
"""Kinds of autoscaler: API group, version and resource. ``ScaledObject`` is KEDA's, and may not be installed."""

PAUSED, PAUSED_AT = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
_KEDA = {PAUSED: "true", PAUSED_AT: "0"}
_DIRECTIONS = ("scaleUp", "scaleDown")
_KAFKA = ("kafka", "apache-kafka")


def scales(scaler: Mapping[str, Any], kind: str, name: str) -> bool:
    """Whether it scales this workload. An HPA that KEDA has made goes with its ScaledObject, and is left to it."""
    owners = scaler["metadata"].get("ownerReferences") or ()
    if any(o.get("kind") == "ScaledObject" for o in owners):
        return False
    ref = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
    return (ref.get("kind") or "Deployment", ref.get("name")) == (kind, name)


def state(scaler: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields that are changed to pause it, as they are; None for one that is not there."""
    if kind == "ScaledObject":
        return {key: notes_of(scaler).get(key) for key in _KEDA}
    return {"behavior": (scaler.get("spec") or {}).get("behavior")}


def is_paused(scaler: Mapping[str, Any], kind: str) -> bool:
    """Whether it is paused in the way in which it is paused here."""
    now = state(scaler, kind)
    if kind == "ScaledObject":
        return now == _KEDA
    return all(((now["behavior"] or {}).get(d) or {}).get("selectPolicy") == "Disabled" for d in _DIRECTIONS)


def paused(scaler: Json, kind: str) -> Json:
    """A copy that is paused, by the documented means of its kind.

    KEDA needs both annotations: without ``paused-replicas`` it holds the number of replicas that it last saw. An HPA
    leaves a workload of 0 replicas alone, unless its own minimum is 0; with both directions disabled it always does.
    """
    if kind == "ScaledObject":
        return with_annotations(scaler, _KEDA)
    made = deepcopy(scaler)
    behavior = made["spec"].setdefault("behavior", {}) or {}
    made["spec"]["behavior"] = {
        **behavior,
        **{d: {**(behavior.get(d) or {}), "selectPolicy": "Disabled"} for d in _DIRECTIONS},
    }
    return made


def restored(scaler: Json, kind: str, before: Mapping[str, Any]) -> Json:
    """A copy with these fields as they were."""
    if kind == "ScaledObject":
        return with_annotations(scaler, {key: before.get(key) for key in _KEDA})
    made = deepcopy(scaler)
    if before.get("behavior") is None:
        made["spec"].pop("behavior", None)
    else:
        made["spec"]["behavior"] = deepcopy(before["behavior"])
    return made


def _triggers(scaler: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for n, trigger in enumerate((scaler.get("spec") or {}).get("triggers") or ()):
        topic = (trigger.get("metadata") or {}).get("topic")
        if trigger.get("type") in _KAFKA and topic:
            yield n, str(topic)


def triggers_on(scaler: Mapping[str, Any], topic: str) -> int:
    """How many of its Kafka triggers name the topic."""
    return sum(1 for _, named in _triggers(scaler) if names(named, topic))


def retriggered(scaler: Json, old: str, new: str) -> Json:
    """A copy whose Kafka triggers watch ``new`` where they watched ``old``."""
    made = deepcopy(scaler)
    for n, topic in _triggers(scaler):
        changed = exchanged(topic, old, new)
        if changed is not None:
            made["spec"]["triggers"][n]["metadata"]["topic"] = changed
    return made
