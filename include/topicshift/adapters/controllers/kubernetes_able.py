"""What would keep a workload of Kubernetes from being moved: rights, settings, and who would put it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from topicshift.adapters.controllers.kubernetes_access import Access
from topicshift.adapters.controllers.kubernetes_objects import Right, right_text
from topicshift.adapters.rest import Ask
from topicshift.core.errors import AccessDenied, NotFound, Unreadable
from topicshift.core.kubernetes import owners, rollout, scalers
from topicshift.core.kubernetes.workload import (
    RESOURCES,
    Json,
    Pod,
    at_place,
    before_of,
    foreign,
    pointed,
    replicas,
)

ARGOCD = "argocd"
"""Namespace of an Argo CD application whose tracking annotation names none."""


def unable(access: Access, migration: str) -> list[str]:
    """One line for each fault; empty where the workload can be moved. Raises as the API server's answers do."""
    keda = access.has_keda()
    missing = [right for right in rights(access, keda) if not access.objects.may(right)]
    if missing:
        where = f"namespace {access.settings.namespace}"
        return [f"its connection may not {right_text(r)} in {where}" for r in missing]
    workload, found = access.workload(), access.scalers()
    changed = {access.name: workload, **found}
    if access.place.kind == "configmap":
        changed[f"ConfigMap {access.place.name}"] = access.holder()
    return [
        *_state(access, workload, migration),
        *_topic(access, changed),
        *(line for name, one in found.items() for line in _scaler(access, name, one)),
        *owned(access.ask, changed),
    ]


def rights(access: Access, keda: bool) -> Iterator[Right]:
    """What the controller does with the objects of one workload."""
    group, _, resource = RESOURCES[access.kind]
    name = access.name.partition("/")[2]
    yield from (("get", group, resource, name), ("update", group, resource, name), ("list", "", "pods", ""))
    if access.place.kind == "configmap":
        yield from ((verb, "", "configmaps", access.place.name) for verb in ("get", "update"))
    for kind, (group, _, resource) in scalers.GROUPS.items():
        if kind != "ScaledObject" or keda:
            yield from ((verb, group, resource, "") for verb in ("list", "get", "update"))


def _state(access: Access, workload: Json, migration: str) -> Iterator[str]:
    spec, status, meta = workload.get("spec") or {}, workload.get("status") or {}, workload["metadata"]
    try:
        before = before_of(workload)
    except ValueError as error:
        yield f"{error}; take it away by hand"
        return
    if before is not None and before.migration != migration:
        yield (
            f"migration {before.migration} has stopped it and not put it back ({before.replicas} replicas); end that "
            "one first, or scale it as it was and take the annotation away by hand"
        )
    wanted, pods = replicas(workload), access.pods(workload)
    if not wanted:
        yield f"{access.name} wants 0 replicas; it has to run before it can be moved and put back as it was"
    if spec.get("paused"):
        yield f"{access.name} is paused, so its pods would not get the new topic; resume its rollout"
    if access.kind == "Rollout":
        yield from rollout.wrong(workload)
    strategy = spec.get("updateStrategy") or {}
    if (strategy.get("rollingUpdate") or {}).get("partition"):
        yield f"{access.name} updates in partitions, so some pods would keep the old topic; set its partition to 0"
    others = foreign(pods, *access.name.split("/", 1))
    if others:
        yield f"its selector matches pods that are not its own: {_names(others)}; nobody could tell when it stands"
        return
    seen = int(status.get("observedGeneration") or 0) >= int(meta.get("generation") or 0)
    late = [p for p in pods if not p.ready]
    if wanted and (late or len(pods) != wanted or not seen):
        ready = len(pods) - len(late)
        yield f"{ready} of {wanted} pods are ready ({_names(late)}); it has to run before it can be moved"
    away = [p for p in pods if p.topic != access.source and access.place.kind != "configmap"]
    if away and not late:
        yield f"pods do not name {access.source} in their {access.place.text()}: {_names(away)}"


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(p.text() for p in pods[:5]) or "none of them is late"


def _topic(access: Access, changed: Mapping[str, Json]) -> Iterator[str]:
    config_map = access.place.kind == "configmap"
    holder = changed[f"ConfigMap {access.place.name}" if config_map else access.name]
    found = at_place(holder, access.place, access.settings.container)
    inside = f" of container {access.settings.container}" if access.settings.container else ""
    if not found or (None in found.values()):
        yield (
            f"its {access.place.text()}{inside} is not there, or is taken from elsewhere (valueFrom); say in topic_in "
            "where the topic's name is written"
        )
    elif pointed(holder, access.place, access.settings.container, access.source, access.target) is None:
        yield f"its {access.place.text()}{inside} has to name {access.source} once, and not {access.target}"
    if config_map and holder.get("immutable"):
        yield f"ConfigMap {access.place.name} is immutable, so it cannot be changed"
    if config_map:
        yield from _shared(access, changed[access.name])


def _shared(access: Access, workload: Json) -> Iterator[str]:
    """Others that take the topic from the same ConfigMap would be sent to the target with their next restart."""
    mine = {p.name for p in access.pods(workload)}
    others = [
        str(p["metadata"]["name"])
        for p in access.all_pods()
        if p["metadata"]["name"] not in mine and _takes(p.get("spec") or {}, access.place.name)
    ]
    if others:
        yield (
            f"ConfigMap {access.place.name} is read by other pods too: {', '.join(sorted(others)[:5])}; they would be "
            "sent to the target with their next restart. Give this application a ConfigMap of its own"
        )


def _takes(spec: Any, name: str) -> bool:
    """Whether a pod refers to the ConfigMap, in whatever way."""
    if isinstance(spec, Mapping):
        refers = any(
            isinstance(spec.get(key), Mapping) and spec[key].get("name") == name
            for key in ("configMapRef", "configMapKeyRef", "configMap")
        )
        return refers or any(_takes(v, name) for v in spec.values())
    return isinstance(spec, list) and any(_takes(v, name) for v in spec)


def _scaler(access: Access, name: str, scaler: Json) -> Iterator[str]:
    if scalers.triggers_on(scaler, access.target):
        yield f"a trigger of {name} names {access.target} already, so it could not be exchanged and put back"


def owned(ask: Ask, changed: Mapping[str, Json]) -> Iterator[str]:
    """Who would put these objects back, by their names, and how that is kept off."""
    for name, thing in changed.items():
        above = owners.controller_of(thing)
        if above:
            yield f"{name} is controlled by {above}, which would put it back; it has to be moved by that"
        owner = owners.owner_of(thing)
        if owner is None:
            continue
        why = _awake(ask, owner)
        if why:
            yield f"{name} is kept as Git has it by {owner.text()}{why}. {owners.way(owner)}"


def _awake(ask: Ask, owner: owners.Owner) -> str:
    """Why this tool would put an object back; empty where it says of itself that it is paused."""
    if not owner.kind or not owner.name:
        return ", and which one that is cannot be told"
    namespace = owner.namespace or ARGOCD
    try:
        found = _of_tool(ask, owner, namespace)
    except AccessDenied:
        right = f"get {owner.resource}.{owner.group} in namespace {namespace}"
        return f", and its connection may not {right} to see whether it is paused"
    except NotFound:
        return f", which is not found in namespace {namespace}, so whether it is paused cannot be told"
    return "" if owners.is_paused(owner, found) else ", which is not paused"


def _of_tool(ask: Ask, owner: owners.Owner, namespace: str) -> Json:
    """The object that the tool goes by, in the version that the API server prefers."""
    group = ask("GET", f"/apis/{owner.group}", None)
    try:
        version = group["preferredVersion"]["version"]
    except (KeyError, TypeError):
        raise Unreadable(f"the versions of {owner.group} are not understood") from None
    path = f"/apis/{owner.group}/{version}/namespaces/{quote(namespace)}/{owner.resource}/{quote(owner.name)}"
    found = ask("GET", path, None)
    if not isinstance(found, dict):
        raise Unreadable(f"what its API server says of {owner.text()} is not understood")
    return found
