"""The controller for applications that run as workloads of Kubernetes: scaled to 0, pointed, and scaled up again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from topicshift.adapters.controllers.kubernetes_able import unable
from topicshift.adapters.controllers.kubernetes_access import Access, settings_of
from topicshift.adapters.controllers.plain import PlainController, patiently
from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, TopicshiftError, Transient
from topicshift.core.kubernetes import rollout, scalers
from topicshift.core.kubernetes.workload import Before, Json, Pod, before_of, pointed, replicas, scaled
from topicshift.ports import Clock, ClusterAdmin, ControlContext, InstanceState, Participant, ParticipantState


class KubernetesController(PlainController):
    """Moves workloads by their API server: scaled to 0, its topic's name exchanged, scaled to what it was.

    What the API server answers to an act is no evidence, and neither is ``status.replicas``: a workload stands once no
    pod matches its selector, ending ones included; it runs once as many as it wants are ready and name the topic. What
    was there before is kept in an annotation of the workload, written before anything is changed and taken away with
    the last change, so whoever looks next can go on from there. ``ask_of`` gives what asks the API server of a
    connection.
    """

    kind = "kubernetes"
    needs_person = False

    def __init__(self, admin: ClusterAdmin, ask_of: Callable[[str], Ask], clock: Clock) -> None:
        super().__init__(admin)
        self._clock = clock
        self._ask_of = cache(ask_of)

    def _access(self, who: Participant, ctx: ControlContext) -> Access:
        return Access(self._ask_of(settings_of(who).connection), settings_of(who), ctx.source, ctx.target)

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each workload from being moved: rights, settings, owners; changes nothing.

        An API server that does not answer is asked again for a few seconds.
        """
        return self.lines_of(
            participants,
            lambda p: patiently(p.name, lambda: unable(self._access(p, ctx), ctx.migration), self._clock),
        )

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Remember what is there, pause autoscalers, scale to 0. Raises ``Transient`` where that cannot be done now."""
        self.each(ctx, participants, self._stop)

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Put the topic in the place of the other one. Raises ``Transient`` while a pod of the workload is left."""
        self.each(ctx, participants, lambda c, p: self._point(c, p, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Put autoscalers and replicas back as they were, and forget what was remembered. Raises as ``stop`` does."""
        self.each(ctx, participants, self._start)

    def _stop(self, ctx: ControlContext, who: Participant) -> None:
        access = self._access(who, ctx)
        found = access.scalers()
        workload = access.workload()
        before = _remembered(workload, ctx.migration)
        if before is None and replicas(workload) == 0:
            raise Transient("it has 0 replicas already, and how many it had is not known; scale it as it was by hand")
        kept = before.scalers if before is not None else {}
        wanted = {
            name: kept[name]
            if name in kept and scalers.is_paused(one, _kind(name))
            else scalers.state(one, _kind(name))
            for name, one in found.items()
        }
        count = before.replicas if before is not None else replicas(workload)
        remembered = Before(ctx.migration, count, {**kept, **wanted})
        if remembered != before:
            self._change(ctx, who, access.path, lambda w: scaled(w, replicas(w), _same(w, before, remembered)))
        for name in found:
            path = access.scaler_path(name)
            if self._change(ctx, who, path, partial(scalers.paused, kind=_kind(name))):
                ctx.say(who.name, {"moment": "stop", "paused": name})
        if self._change(ctx, who, access.path, lambda w: scaled(w, 0, before_of(w))):
            ctx.say(who.name, {"moment": "stop", "workload": access.name, "replicas": f"{count} -> 0"})

    def _point(self, ctx: ControlContext, who: Participant, topic: str) -> None:
        access = self._access(who, ctx)
        other = ctx.target if topic == ctx.source else ctx.source
        workload, pods, on = self._look(access)
        place = access.place.text()
        if on != topic:
            if replicas(workload) or pods:
                left = ", ".join(p.text() for p in pods[:5]) or f"it wants {replicas(workload)}"
                raise Transient(f"it is pointed to {topic} once no pod of it is left: {left}")
            made = self._change(ctx, who, access.holder_path, lambda o: self._pointed(access, o, other, topic))
            if made:
                ctx.say(who.name, {"moment": "point", "at": place, "before": other, "after": topic})
            if access.topic(access.holder()) != topic:
                raise Transient(f"its {place} does not show {topic} as it was written")
        before = _remembered(workload, ctx.migration)
        for name in before.scalers if before is not None else ():
            if _kind(name) != "ScaledObject":
                continue
            path = access.scaler_path(name)
            if self._change(ctx, who, path, lambda s: scalers.retriggered(s, other, topic)):
                ctx.say(who.name, {"moment": "point", "at": f"triggers of {name}", "before": other, "after": topic})

    def _pointed(self, access: Access, found: Json, old: str, new: str) -> Json:
        if access.topic(found) == new:
            return found
        made = pointed(found, access.place, access.settings.container, old, new)
        if made is None:
            raise Transient(
                f"it is not pointed to {new}: its {access.place.text()} does not name {old} once and alone. Somebody "
                "has changed it; put it right by hand."
            )
        return made

    def _start(self, ctx: ControlContext, who: Participant) -> None:
        access = self._access(who, ctx)
        workload = access.workload()
        before = _remembered(workload, ctx.migration)
        if before is None:
            if replicas(workload) == 0:
                raise Transient("it has 0 replicas, and how many it had is not known; scale it as it was by hand")
            return
        if access.kind == "Rollout" and not rollout.promoted(workload):
            raise Transient(
                "its new template is not promoted yet, and pods of the old one would be started; where it stays so: "
                f"kubectl argo rollouts promote --full {access.name.partition('/')[2]} -n {access.settings.namespace}"
            )
        for name, state in before.scalers.items():
            self._put_back(ctx, who, access, name, state)

        def up(seen: Json) -> Json:
            return scaled(seen, replicas(seen) or before.replicas, None)

        if self._change(ctx, who, access.path, up):
            ctx.say(who.name, {"moment": "start", "workload": access.name, "replicas": f"0 -> {before.replicas}"})

    def _put_back(
        self, ctx: ControlContext, who: Participant, access: Access, name: str, state: Mapping[str, Any]
    ) -> None:
        kind = _kind(name)

        def back(seen: Json) -> Json:
            return scalers.restored(seen, kind, state) if scalers.is_paused(seen, kind) else seen

        try:
            if self._change(ctx, who, access.scaler_path(name), back):
                ctx.say(who.name, {"moment": "start", "put back": name})
            left = scalers.state(self._ask(access, access.scaler_path(name)), kind)
        except NotFound:
            ctx.say(who.name, {"moment": "start", "not put back": f"{name}, which is gone"})
            return
        if left != dict(state):
            ctx.say(who.name, {"moment": "start", "not put back": f"{name}, which somebody has changed"})

    # --------------------------------------------------------------------------------------------- changes

    def _ask(self, access: Access, path: str) -> Json:
        found: Json = access.ask("GET", path, None)
        return found

    def _change(self, ctx: ControlContext, who: Participant, path: str, alter: Callable[[Json], Json]) -> bool:
        """Read, alter and write an object, whole, as long as nobody else changed it meanwhile; whether it was written.

        The write names the version that was read. Where that is no longer the newest, what is to be done is decided
        anew from what is there. What shows afterwards otherwise than it was written is named in the audit trail.
        """
        access = self._access(who, ctx)
        return access.objects.change(path, alter, ctx.still, lambda data: ctx.say(who.name, data))

    # --------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant; what its API server or Kafka does not tell is unknown."""
        return self.beside_groups(ctx, participants, lambda p, group: self._observed(ctx, p, group))

    def _observed(self, ctx: ControlContext, who: Participant, group: ParticipantState | None) -> ParticipantState:
        try:
            access = self._access(who, ctx)
            workload, pods, on = self._look(access)
            seen = _pods_state(who, access, workload, pods, on)
            return seen if group is None else _with_group(who, seen, group, ctx)
        except (TopicshiftError, ValueError) as error:
            return ParticipantState(who, "unknown", None, reason=str(error))

    def _look(self, access: Access) -> tuple[Json, list[Pod], str | None]:
        """The workload, its pods, and the topic that it is pointed to."""
        workload = access.workload()
        holder = access.holder() if access.place.kind == "configmap" else workload
        return workload, access.pods(workload), access.topic(holder)


def _pods_state(
    who: Participant, access: Access, workload: Json, pods: Sequence[Pod], on: str | None
) -> ParticipantState:
    """Where it is by its pods. ``on``: the topic that it is pointed to, which is what new pods get."""
    wanted, meta, status = replicas(workload), workload["metadata"], workload.get("status") or {}
    # A pod reads a ConfigMap when it starts, and that is changed only while there is no pod.
    topics = {on if access.place.kind == "configmap" else p.topic for p in pods}
    instances = tuple(InstanceState(p.name, "running", p.topic or on, None) for p in pods)

    def state(how: Any, topic: str | None, why: str = "") -> ParticipantState:
        return ParticipantState(who, how, topic, instances, why)

    if wanted == 0:
        if pods:
            return state("running", None, f"{len(pods)} pod(s) are left: {', '.join(p.text() for p in pods[:5])}")
        if int(status.get("observedGeneration") or 0) < int(meta.get("generation") or 0):
            return state("running", None, f"{access.name} has 0 replicas, and its controller has not seen that yet")
        stands = InstanceState(access.name, "stopped", on, None)
        return ParticipantState(who, "stopped", on, (stands,))
    if before_of(workload) is not None:
        return state("running", None, f"{access.name} is not put back yet: its autoscalers, its replicas")
    if topics - {on}:
        return state("running", None, f"its pods are on {_texts(topics)}, and it is pointed to {on}")
    ready = [p for p in pods if p.ready]
    more = len(pods) > wanted and access.place.kind == "configmap"  # of those it is not known what they read
    if len(ready) < wanted or more:
        late = ", ".join(p.text() for p in pods if not p.ready) or "the others are not there yet"
        return state("unknown", on, f"{len(ready)} of {wanted} pods are ready: {late[:300]}")
    return state("running", on)


def _with_group(
    who: Participant, pods: ParticipantState, group: ParticipantState, ctx: ControlContext
) -> ParticipantState:
    """A consumer: its pods, and its group as Kafka shows it. What is read counts, whatever the pods say.

    On the source whatever is left of it has only to be stopped; on the target all of it has to run.
    """

    def state(how: Any, topic: str | None, why: str) -> ParticipantState:
        return ParticipantState(who, how, topic, group.instances or pods.instances, why)

    if group.status == "unknown":
        return state("unknown", pods.topic, group.reason)
    if group.status == "running":
        if pods.status == "unknown" and ctx.target in (group.topic, pods.topic):
            return state("unknown", pods.topic, pods.reason)
        if pods.status == "stopped" or group.topic != pods.topic:
            why = f"its group reads {group.topic}, and its pods are {pods.status} on {pods.topic}"
            return state("running", group.topic, pods.reason or group.reason or why)
        return state("running", group.topic, pods.reason)
    if pods.status == "stopped":
        return pods
    why = pods.reason or "its pods run, and its group has no members"
    if {i.topic for i in pods.instances} == {ctx.source}:
        return state("running", ctx.source, why)
    return state("unknown" if pods.topic == ctx.target else "running", pods.topic, why)


def _texts(topics: set[str | None]) -> str:
    return ", ".join(sorted(str(t) if t is not None else "no topic that is known" for t in topics))


def _kind(name: str) -> str:
    return name.split("/", 1)[0]


def _remembered(workload: Json, migration: str) -> Before | None:
    """What the workload says was there before. Raises ``Transient`` where another migration has said so."""
    try:
        before = before_of(workload)
    except ValueError as error:
        raise Transient(f"{error}. Look at it, and take it away by hand") from None
    if before is not None and before.migration != migration:
        raise Transient(
            f"migration {before.migration} has stopped it and not put it back ({before.replicas} replicas). End that "
            "migration first, or scale it as it was and take the annotation away by hand"
        )
    return before


def _same(workload: Json, seen: Before | None, wanted: Before) -> Before:
    """What to remember, as long as nobody has written it meanwhile."""
    if before_of(workload) != seen or (seen is None and replicas(workload) != wanted.replicas):
        raise Transient("somebody has changed it at this moment; it is looked at again")
    return wanted
