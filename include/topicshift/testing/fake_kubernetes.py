"""A Kubernetes API server in memory, asked as :class:`topicshift.adapters.rest.Ask` asks a real one.

Held against the real one by the contract that ``tests/integration/test_kubernetes_api.py`` runs on both. Its
controllers and its kubelet act at once: pods are there, and gone, with the write that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import parse_qs, urlsplit

from topicshift.adapters.rest import Ask, Conflict
from topicshift.core.errors import AccessDenied, NotFound, Refused, Transient
from topicshift.core.kubernetes.workload import Json, notes_of, path_of, replicas

_APIS = {"keda.sh": "v1alpha1", "argoproj.io": "v1alpha1", "kustomize.toolkit.fluxcd.io": "v1"}
_WORKLOADS = ("deployments", "statefulsets", "rollouts")


class FakeApiServer:
    """Objects by their path. ``on_call`` hears of each request before it is answered, and of each effect after it.

    ``on_change`` hears when pods may have changed. ``conflicts``: so many writes find that somebody else has written.
    ``lingers`` and ``broken`` name workloads whose pods do not end, or do not become ready; ``held`` Rollouts that stay
    at a step. ``denied``: pairs of a verb and a resource. ``installed``: the API groups of others that it knows.
    ``dead``: it does not answer. ``operators``: by resource, what gives an object another status; ``services``: by
    ``NAME:PORT``, what requests are passed on to.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.objects: dict[str, Json] = {}
        self.on_change = on_change
        self.on_call: Callable[[str], None] = lambda _: None
        self.conflicts = 0
        self.lingers: set[str] = set()
        self.broken: set[str] = set()
        self.denied: set[tuple[str, str]] = set()
        self.held: set[str] = set()
        self.installed = set(_APIS)
        self.dead = False
        self.operators: dict[str, Callable[[Json], Json | None]] = {}
        self.services: dict[str, Ask] = {}
        self._count = 0

    # ------------------------------------------------------------------------------------------ for the tests

    def create(self, path: str, thing: Mapping[str, Any]) -> Json:
        """An object at this path; a workload gets its pods."""
        made: Json = deepcopy(dict(thing))
        name = path.rsplit("/", 1)[1]
        made["metadata"] = {"name": name, **made.get("metadata", {}), "generation": 1, "resourceVersion": self._next()}
        self.objects[path] = made
        self.reconcile()
        return made

    def pods(self, path: str) -> list[Json]:
        """The pods of a workload."""
        labels = self.objects[path]["spec"]["selector"]["matchLabels"]
        return [p for p in self._in("pods", path) if labels.items() <= p["metadata"].get("labels", {}).items()]

    def reconcile(self) -> None:
        """The controllers and the kubelet do what they have to."""
        for path, one in list(self.objects.items()):
            resource = path.rsplit("/", 2)[1]
            if resource in _WORKLOADS:
                self._reconcile(path, one)
            while resource in self.operators and (status := self.operators[resource](one)) is not None:
                one["status"] = status
                one["metadata"]["resourceVersion"] = self._next()
        self.on_change()

    # ------------------------------------------------------------------------------------------------- requests

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Answer one request. Raises the errors that a real server's answers become."""
        self.on_call(f"{method} {path}")
        if self.dead:
            raise Transient(f"{method} {path}: no answer (refused). Nothing is known until it is asked again.")
        parts = urlsplit(path)
        if "/services/" in path:
            return self._passed_on(method, path, body)
        at, query = parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()}
        if method == "POST":
            return self._reviewed(body)
        steps = at.strip("/").split("/")
        if len(steps) <= 3 and steps[0] == "apis":
            return self._group(method, at, steps[1])
        listed = "namespaces" not in steps or len(steps) - steps.index("namespaces") == 3
        resource = steps[-1] if listed else steps[-2]
        verb = "update" if method == "PUT" else "list" if listed else "get"
        if (verb, resource) in self.denied:
            raise AccessDenied(f"{method} {at} is not allowed (HTTP 403). Check login, password and rights.")
        if listed:
            return {"metadata": {}, "items": [deepcopy(o) for o in self._in(resource, at) if _selected(o, query)]}
        if at not in self.objects:
            raise NotFound(f"{method} {at}: there is no such thing (HTTP 404).")
        if method == "PUT":
            self._put(at, body)
            self.on_call(f"{method} {path} answered")
        return deepcopy(self.objects[at])

    def _passed_on(self, method: str, path: str, body: Any) -> Any:
        if ("get", "services/proxy") in self.denied:
            raise AccessDenied(f"{method} {path} is not allowed (HTTP 403). Check login, password and rights.")
        name, _, rest = path.split("/services/", 1)[1].partition("/proxy")
        if name not in self.services:
            raise NotFound(f"{method} {path}: there is no such thing (HTTP 404).")
        return self.services[name](method, rest, body)

    def _group(self, method: str, at: str, group: str) -> Json:
        if group not in self.installed:
            raise NotFound(f"{method} {at}: there is no such thing (HTTP 404).")
        return {"preferredVersion": {"version": _APIS[group]}}

    def _reviewed(self, body: Any) -> Json:
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return {**body, "status": {"allowed": (asked["verb"], resource) not in self.denied}}

    def _put(self, path: str, wanted: Json) -> None:
        seen = self.objects[path]
        if self.conflicts:
            self.conflicts -= 1
            seen["metadata"]["resourceVersion"] = self._next()
        if wanted["metadata"].get("resourceVersion") != seen["metadata"]["resourceVersion"]:
            raise Conflict(f"PUT {path} cannot be done now (HTTP 409). It is asked again.")
        if seen.get("immutable") and wanted.get("data") != seen.get("data"):
            raise Refused(f"PUT {path} was refused (HTTP 422). Its own log says why.")
        made = {**deepcopy(wanted), **({"status": seen["status"]} if "status" in seen else {})}
        changed = made.get("spec") != seen.get("spec")
        if "/deployments/" in path:
            changed = changed or notes_of(made) != notes_of(seen)
        made["metadata"] |= {
            "resourceVersion": self._next(),
            "generation": seen["metadata"]["generation"] + changed,
        }
        self.objects[path] = made
        self.reconcile()

    # ---------------------------------------------------------------------------------------------- controllers

    def _reconcile(self, path: str, one: Json) -> None:
        wanted, name = replicas(one), str(one["metadata"]["name"])
        for pod in self._own(path):
            old = pod["spec"] != one["spec"]["template"]["spec"] and not one["spec"].get("paused")
            if wanted == 0 or old or _ends(pod):
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                if name not in self.lingers:
                    del self.objects[_pod_path(path, str(pod["metadata"]["name"]))]
        # A Deployment does not wait for pods that end, a StatefulSet has only one of each name.
        there = [p for p in self._own(path) if "/statefulsets/" in path or not _ends(p)]
        for _ in range(wanted - len(there)):
            self._run(path, one)
        for pod in self._own(path):
            ready = name not in self.broken
            state = {} if ready else {"waiting": {"reason": "CrashLoopBackOff", "message": "hush"}}
            pod["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "containerStatuses": [{"state": state}],
            }
        before = one.get("status", {})
        one["status"] = {"observedGeneration": one["metadata"]["generation"], "replicas": wanted}
        if "/rollouts/" in path:
            current = str(one["spec"]["template"])
            stable = before.get("stableRS", current) if name in self.held else current
            phase = "Healthy" if stable == current else "Paused"
            generation = str(one["metadata"]["generation"])
            one["status"] |= {"observedGeneration": generation, "currentPodHash": current, "stableRS": stable}
            one["status"]["phase"] = phase

    def _own(self, path: str) -> list[Json]:
        return [p for p in self.pods(path) if p["metadata"]["ownerReferences"] == [_owner(path)]]

    def _run(self, path: str, one: Json) -> None:
        owner = _owner(path)
        pod = f"{owner['name']}-{self._next()}"
        template = deepcopy(one["spec"]["template"])
        meta = {**template.get("metadata", {}), "name": pod, "ownerReferences": [owner]}
        self.objects[_pod_path(path, pod)] = {"metadata": meta, "spec": template["spec"]}

    # ------------------------------------------------------------------------------------------------- helpers

    def _next(self) -> str:
        self._count += 1
        return str(self._count)

    def _in(self, resource: str, path: str) -> list[Json]:
        namespace = path.split("/namespaces/", 1)[1].split("/", 1)[0]
        return [
            o for p, o in self.objects.items() if p.rsplit("/", 1)[0].endswith(f"/namespaces/{namespace}/{resource}")
        ]


def _ends(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _owner(path: str) -> Json:
    """What controls the pods of a workload."""
    name = path.rsplit("/", 1)[1]
    if "/statefulsets/" not in path:
        return {"kind": "ReplicaSet", "name": f"{name}-5d4", "controller": True}
    return {"kind": "StatefulSet", "name": name, "controller": True}


def _pod_path(workload: str, pod: str) -> str:
    namespace = workload.split("/namespaces/", 1)[1].split("/", 1)[0]
    return f"/api/v1/namespaces/{namespace}/pods/{pod}"


def _selected(thing: Json, query: Mapping[str, str]) -> bool:
    labels = thing["metadata"].get("labels", {})
    pairs = [p.partition("=") for p in query.get("labelSelector", "").split(",") if p]
    return all(labels.get(key) == value for key, _, value in pairs)


def workload(kind: str, topic: str, count: int = 1, **spec: Any) -> Json:
    """A workload whose one container has its topic in the variable ``KAFKA_TOPIC``."""
    labels = {"app": "it"} | spec.pop("labels", {})
    container = {"name": "app", "image": "app", "env": [{"name": "KAFKA_TOPIC", "value": topic}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container | spec.pop("container", {})]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {},
        "spec": {"replicas": count, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


__all__ = ["FakeApiServer", "path_of", "workload"]
