"""A namespace of a real API server, with a kubelet that runs its pods as local processes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from lab.kubelet import Kubelet
from lab.kubernetes import ControlPlane
from lab.runfolder import ROOT
from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, Transient
from topicshift.core.kubernetes.workload import differing, path_of

Json = dict[str, Any]
USER, NOBODY = "topicshift", "nobody"
"""The user with the rights of the page, bound in each namespace, and one without any."""


def rules_of_the_page(kind: str = "kubernetes") -> list[dict[str, Any]]:
    """The Role that the page of a kind asks for."""
    page = (ROOT / "docs/participants" / f"{kind}.md").read_text()
    rules: list[dict[str, Any]] = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    return rules


class Namespace:
    """One namespace: what is made in it is compared at the end. Close it."""

    def __init__(self, plane: ControlPlane, namespace: str, home: Path, rules: Sequence[Mapping[str, Any]]) -> None:
        self.plane, self.namespace, self.home = plane, namespace, home
        self.admin, self.ask, self.may_not = plane.ask(), plane.ask(USER), plane.ask(NOBODY)
        self.admin("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        group = "rbac.authorization.k8s.io"
        self.admin("POST", f"{rbac}/roles", {"metadata": {"name": "mover"}, "rules": list(rules)})
        subject = {"kind": "User", "name": USER, "apiGroup": group}
        role = {"kind": "Role", "name": "mover", "apiGroup": group}
        self.admin(
            "POST", f"{rbac}/rolebindings", {"metadata": {"name": "mover"}, "subjects": [subject], "roleRef": role}
        )
        self.kubelet = Kubelet(self.admin, namespace, home / "pods").start()
        self.made: dict[str, Json] = {}

    def path(self, resource: str, name: str = "") -> str:
        """Where objects of a resource (``apps/v1/deployments``, ``v1/configmaps``) are."""
        version, _, plural = resource.rpartition("/")
        root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, resource: str, thing: Mapping[str, Any]) -> str:
        """Make an object; its path."""
        made = self.admin("POST", self.path(resource), {**thing, "metadata": dict(thing["metadata"])})
        return self.path(resource, made["metadata"]["name"])

    def workload(
        self, kind: str, name: str, command: Sequence[str], count: int = 1, *, container: Any = None, **spec: Any
    ) -> str:
        """A workload that runs this command, with its topic in ``KAFKA_TOPIC`` where ``container`` says no more."""
        labels = {"app": name}
        app = {"name": "app", "image": "none", "command": list(command), **(container or {})}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [app]}}
        body = {"replicas": count, "selector": {"matchLabels": labels}, "template": template, **spec}
        if kind == "StatefulSet":
            body["serviceName"] = name
        version = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1"
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body}
        return self.create(f"{version}/{kind.lower()}s", thing)

    def autoscaler(self, kind: str, name: str, **spec: Any) -> str:
        """An HPA of a workload."""
        version = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1"
        ref = {"apiVersion": version, "kind": kind, "name": name}
        metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
        body = {"scaleTargetRef": ref, "metrics": [{"type": "Resource", "resource": metric}], **spec}
        thing = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
        return self.create("autoscaling/v2/horizontalpodautoscalers", {**thing, "spec": body})

    def get(self, path: str) -> Json:
        """An object as it is."""
        found: Json = self.admin("GET", path, None)
        return found

    def pods(self, name: str) -> list[Json]:
        """Pods of a workload that the API server lists."""
        found: list[Json] = self.admin("GET", self.path("v1/pods") + f"?labelSelector=app%3D{name}", None)["items"]
        return found

    def ready(self, name: str) -> int:
        """How many of them are ready, and do not end."""
        return sum(
            1
            for p in self.pods(name)
            if not p["metadata"].get("deletionTimestamp")
            and {"type": "Ready", "status": "True"}.items()
            <= next((c for c in p["status"].get("conditions") or () if c["type"] == "Ready"), {}).items()
        )

    def keep(self, *paths: str) -> None:
        """Remember these objects as they are now."""
        self.made = {path: deepcopy(self.get(path)) for path in paths}

    def differs(self) -> set[str]:
        """Every field that is not as it was, but for what Kubernetes' own controllers write."""
        return {
            f"{path.rsplit('/', 1)[1]} {'.'.join(map(str, d))}"
            for path, one in self.made.items()
            for d in differing(one, self.get(path))
            if d[-1] != "deployment.kubernetes.io/revision"
        }

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 150.0) -> Any:
        """Wait for something that the API server shows."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = holds()
            except (Transient, NotFound):
                found = None
            if found:
                return found
            assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
            time.sleep(0.05)

    def acted(self, act: Callable[[], None], what: str) -> None:
        """As the engine does: again, while it cannot be done now."""

        def tried() -> bool:
            try:
                act()
            except Transient:
                return False
            return True

        self.until(tried, what)

    def close(self) -> None:
        """End every pod, and the namespace."""
        self.kubelet.stop()
        self.admin("DELETE", f"/api/v1/namespaces/{self.namespace}", None)


def ask_of(ask: Ask) -> Callable[[str], Ask]:
    """What every connection's name leads to."""
    return lambda _: ask


__all__ = ["NOBODY", "USER", "Namespace", "ask_of", "path_of", "rules_of_the_page"]
