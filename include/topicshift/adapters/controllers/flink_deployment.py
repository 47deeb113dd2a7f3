"""One FlinkDeployment at its API server, and its job at its JobManager, which the API server leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topicshift.adapters.controllers.flink_access import Running
from topicshift.adapters.controllers.kubernetes_objects import Objects
from topicshift.adapters.rest import Ask
from topicshift.core.errors import AccessDenied, NotFound, Transient, Unreadable
from topicshift.core.flink import deployment
from topicshift.core.flink.deployment import Kept, Shown, kept_of
from topicshift.core.flink.job import Job, jobs_of
from topicshift.core.kubernetes.workload import Json, Place
from topicshift.core.spec.flink import FlinkDeploymentSettings
from topicshift.ports import ControlContext, Participant


def settings_of(who: Participant) -> FlinkDeploymentSettings:
    """The settings of a participant. The spec has checked them."""
    return FlinkDeploymentSettings.model_validate(dict(who.settings))


@dataclass(frozen=True)
class Deployed(Running):
    """What is asked about one deployment. ``ask`` leads to its JobManager, ``api`` to its API server."""

    api: Ask

    @classmethod
    def of(cls, api: Ask, who: Participant, ctx: ControlContext, told: Sequence[Mapping[str, Any]]) -> Deployed:
        """For a participant."""
        settings = settings_of(who)
        path = deployment.manager_path(settings.namespace, settings.deployment)

        def ask(method: str, at: str, body: Any = None) -> Any:
            return api(method, path + at, body)

        return cls(ask, who, ctx, told, api)

    @property
    def settings(self) -> FlinkDeploymentSettings:
        """The settings of its participant."""
        return settings_of(self.who)

    @property
    def name(self) -> str:
        """As people name it: ``FlinkDeployment/NAME``."""
        return f"FlinkDeployment/{self.settings.deployment}"

    @property
    def objects(self) -> Objects:
        """The objects of its namespace."""
        return Objects(self.api, self.settings.namespace)

    @property
    def path(self) -> str:
        """Where its API server has it."""
        return deployment.path_of(self.settings.namespace, self.settings.deployment)

    @property
    def place(self) -> Place:
        """Where its topic is named."""
        return Place.of(self.settings.topic_in)

    @property
    def uid_place(self) -> Place:
        """Where the uid of its source is named."""
        return Place.of(self.settings.uid_in or self.settings.topic_in)

    @property
    def other(self) -> Mapping[str, str]:
        """For each topic of the migration the other one."""
        return {self.ctx.source: self.ctx.target, self.ctx.target: self.ctx.source}

    def thing(self) -> Json:
        """The deployment."""
        return self.objects.get(self.path, self.name)

    def kept(self, thing: Mapping[str, Any]) -> Kept | None:
        """What was there before this migration stopped it. Raises ``Transient`` where another one has."""
        try:
            found = kept_of(thing)
        except ValueError as error:
            raise Transient(f"{error}. Look at it, and take it away by hand") from None
        if found is not None and found.migration != self.ctx.migration:
            raise Transient(
                f"migration {found.migration} has stopped it and not put it back. End that migration first, or put its "
                "job's fields back and take the annotation away by hand"
            )
        return found

    def topic(self, thing: Mapping[str, Any]) -> str | None:
        """Which topic of the migration a spec names, None for neither or both."""
        return deployment.named(thing, self.place, self.ctx.source, self.ctx.target)

    def on(self, seen: Shown) -> str | None:
        """The topic of the spec that its operator has acted on last: what its job runs with, or did at its end."""
        return self.topic(seen.last) if seen.last is not None else None

    def job(self, seen: Shown) -> Job:
        """Its job, as its JobManager has it. Raises ``Unreadable`` where it does not know it."""
        for job in self._read("/jobs/overview", jobs_of):
            if job.jid == seen.jid:
                return job
        raise Unreadable(f"its JobManager knows no job {seen.jid or 'of its status'}")

    def kept_elsewhere(self) -> str:
        """The newest complete savepoint of it that a FlinkStateSnapshot names, in words for a person; empty if none."""
        path = deployment.path_of(self.settings.namespace, resource=deployment.SNAPSHOTS)
        try:
            found = self.objects.listed(path)
        except (NotFound, AccessDenied):
            return ""
        ours = [
            s
            for s in found
            if ((s.get("spec") or {}).get("jobReference") or {}).get("name") == self.settings.deployment
            and (s.get("spec") or {}).get("savepoint") is not None
            and (s.get("status") or {}).get("state") == "COMPLETED"
        ]
        if not ours:
            return ""
        last = max(ours, key=lambda s: str(s["metadata"].get("creationTimestamp") or ""))
        return (
            f" FlinkStateSnapshot {last['metadata']['name']} names {(last.get('status') or {}).get('path')}; see "
            "whether it was taken at its stop, and redeploy from it (initialSavepointPath, savepointRedeployNonce)"
        )
