"""One workload at its API server: its objects, by their addresses, and the one way in which they are changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from topicshift.adapters.rest import Ask, Conflict
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.kubernetes import scalers
from topicshift.core.kubernetes.workload import (
    Json,
    Place,
    Pod,
    at_place,
    differing,
    named,
    not_as_written,
    path_of,
    pods_of,
    selector,
)
from topicshift.core.spec.kinds import KubernetesSettings
from topicshift.ports import Participant

_CONFLICTS = 4
MANAGER = "topicshift"
"""Name under which the API server notes the fields that were written."""


def settings_of(who: Participant) -> KubernetesSettings:
    """The settings of a participant. The spec has checked them."""
    return KubernetesSettings.model_validate(dict(who.settings))


@dataclass(frozen=True)
class Access:
    """What is asked about one workload. ``source`` and ``target``: the topics of the migration."""

    ask: Ask
    settings: KubernetesSettings
    source: str
    target: str

    @property
    def kind(self) -> str:
        """Deployment, StatefulSet or Rollout."""
        return self.settings.workload.partition("/")[0]

    @property
    def name(self) -> str:
        """As the spec names it: ``KIND/NAME``."""
        return self.settings.workload

    @property
    def place(self) -> Place:
        """Where the topic is named."""
        return Place.of(self.settings.topic_in)

    @property
    def path(self) -> str:
        """Where the API server has the workload."""
        return path_of(self.kind, self.settings.namespace, self.name.partition("/")[2])

    @property
    def holder_path(self) -> str:
        """Where the API server has the object that names the topic: the workload, or a ConfigMap."""
        if self.place.kind != "configmap":
            return self.path
        return f"/api/v1/namespaces/{quote(self.settings.namespace)}/configmaps/{quote(self.place.name)}"

    def get(self, path: str, what: str) -> Json:
        """An object. Raises ``NotFound`` in words, and ``Unreadable`` for an answer that is none."""
        try:
            found = self.ask("GET", path, None)
        except NotFound:
            raise NotFound(
                f"its API server knows no {what} in namespace {self.settings.namespace}; see name, namespace and "
                "connection."
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise Unreadable(f"what its API server says of {what} is not understood")
        return found

    def workload(self) -> Json:
        """The workload."""
        return self.get(self.path, self.name)

    def holder(self) -> Json:
        """The object that names the topic."""
        what = f"ConfigMap {self.place.name}" if self.place.kind == "configmap" else self.name
        return self.get(self.holder_path, what)

    def topic(self, holder: Mapping[str, Any]) -> str | None:
        """Which topic of the migration it is pointed to, None for neither or both."""
        return named(at_place(holder, self.place, self.settings.container), self.source, self.target)

    def listed(self, path: str) -> list[Json]:
        """Every object of a list. Raises ``Unreadable`` for one that is not whole."""
        found = self.ask("GET", path, None)
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list) or (found.get("metadata") or {}).get("continue"):
            raise Unreadable(f"the list {path} is not understood, or not whole")
        return items

    def all_pods(self, where: str = "") -> list[Json]:
        """Pods of the namespace, of a label selector where one is given."""
        query = f"?labelSelector={quote(where, safe='')}" if where else ""
        return self.listed(f"/api/v1/namespaces/{quote(self.settings.namespace)}/pods{query}")

    def pods(self, workload: Mapping[str, Any]) -> list[Pod]:
        """Every pod of its selector that has not ended, those that end now included. Raises as :meth:`listed`."""
        try:
            where = selector(workload)
        except (ValueError, KeyError) as error:
            raise Unreadable(f"the pods of {self.name} cannot be told: {error}") from None
        return pods_of(self.all_pods(where), self.place, self.settings.container, self.source, self.target)

    # ------------------------------------------------------------------------------------------- autoscalers

    def scaler_path(self, name: str) -> str:
        """Where the API server has an autoscaler; with ``KIND/`` alone all of the kind."""
        kind, _, one = name.partition("/")
        group, version, resource = scalers.GROUPS[kind]
        all_ = f"/apis/{group}/{version}/namespaces/{quote(self.settings.namespace)}/{resource}"
        return f"{all_}/{quote(one)}" if one else all_

    def has_keda(self) -> bool:
        """Whether KEDA's kinds are known to the API server."""
        group, version, _ = scalers.GROUPS["ScaledObject"]
        try:
            self.ask("GET", f"/apis/{group}/{version}", None)
        except NotFound:
            return False
        return True

    def scalers(self) -> dict[str, Json]:
        """The autoscalers of the workload, by ``KIND/NAME``."""
        kinds = ["HorizontalPodAutoscaler", *(["ScaledObject"] if self.has_keda() else [])]
        of = (self.kind, self.name.partition("/")[2])
        return {
            f"{kind}/{one['metadata']['name']}": one
            for kind in kinds
            for one in self.listed(self.scaler_path(f"{kind}/"))
            if scalers.scales(one, *of)
        }

    # ----------------------------------------------------------------------------------------------- changes

    def change(
        self,
        path: str,
        alter: Callable[[Json], Json],
        still: Callable[[], None],
        say: Callable[[Mapping[str, Any]], None],
    ) -> bool:
        """Read, alter and write an object; whether it was written.

        The write names the version that was read: where somebody else has written meanwhile, it is read and altered
        anew. ``still`` is called just before each write; what shows otherwise than it was written is said.
        """
        for left in reversed(range(_CONFLICTS)):
            seen = self.get(path, path.rsplit("/", 1)[1])
            wanted = alter(seen)
            if not differing(seen, wanted):
                return False
            still()
            try:
                shown = self.ask("PUT", f"{path}?fieldManager={MANAGER}", wanted)
            except Conflict:
                if not left:
                    raise
                continue
            others = not_as_written(seen, wanted, shown)
            if others:
                say({"moment": "write", "object": path, "differs": ", ".join(others[:10])})
            return True
        raise AssertionError("the last try answers or raises")
