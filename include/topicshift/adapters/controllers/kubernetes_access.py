"""One workload at its API server: its objects, by their addresses, and what it is pointed to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from topicshift.adapters.controllers.kubernetes_objects import Objects
from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.kubernetes import scalers
from topicshift.core.kubernetes.workload import (
    Json,
    Place,
    Pod,
    at_place,
    named,
    path_of,
    pods_of,
    selector,
)
from topicshift.core.spec.kinds import KubernetesSettings
from topicshift.ports import Participant


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
    def objects(self) -> Objects:
        """The objects of its namespace."""
        return Objects(self.ask, self.settings.namespace)

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

    def workload(self) -> Json:
        """The workload."""
        return self.objects.get(self.path, self.name)

    def holder(self) -> Json:
        """The object that names the topic."""
        what = f"ConfigMap {self.place.name}" if self.place.kind == "configmap" else self.name
        return self.objects.get(self.holder_path, what)

    def topic(self, holder: Mapping[str, Any]) -> str | None:
        """Which topic of the migration it is pointed to, None for neither or both."""
        return named(at_place(holder, self.place, self.settings.container), self.source, self.target)

    def all_pods(self, where: str = "") -> list[Json]:
        """Pods of the namespace, of a label selector where one is given."""
        query = f"?labelSelector={quote(where, safe='')}" if where else ""
        return self.objects.listed(f"/api/v1/namespaces/{quote(self.settings.namespace)}/pods{query}")

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
            for one in self.objects.listed(self.scaler_path(f"{kind}/"))
            if scalers.scales(one, *of)
        }
