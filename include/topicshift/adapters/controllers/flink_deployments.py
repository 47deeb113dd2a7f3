"""Flink jobs of a FlinkDeployment: suspended with a savepoint, pointed, and run again by their operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from topicshift.adapters.controllers.flink_deployment import Deployed, settings_of
from topicshift.adapters.controllers.flink_deployment_able import unable
from topicshift.adapters.controllers.flink_proof import Proof
from topicshift.adapters.controllers.flink_way import FlinkWay
from topicshift.core.errors import NotFound, TopicshiftError, Transient
from topicshift.core.flink.deployment import (
    Kept,
    Shown,
    exchanged,
    kept_now,
    leaving,
    named,
    restored,
    resumed,
    suspended,
)
from topicshift.core.flink.job import ENDED, Checkpoints
from topicshift.core.kubernetes.workload import Json
from topicshift.ports import ClusterAdmin, ControlContext, Participant, ParticipantState


class Deployments(FlinkWay[Deployed]):
    """Moves jobs that the Flink Kubernetes Operator runs, by their FlinkDeployment at the API server.

    Nothing is sent to a job itself, since its operator would start it again as its resource says. Each act is one write
    of the resource, which names the version that was read; what was there before is kept in an annotation from the stop
    until the job runs again. A job stands once its operator has suspended it with a savepoint of that stop, which is
    what it would be started from, and no transaction of its sink is open; it runs once its operator has deployed what
    the resource says and its JobManager, reached through the API server, shows what the kind asks of every job.
    """

    def _access(self, who: Participant, ctx: ControlContext) -> Deployed:
        settings = settings_of(who)
        name = f"{settings.namespace}/{settings.deployment}"
        return Deployed.of(
            self._ask_of(settings.connection), who, ctx, [t for t in ctx.told(who.name) if t.get("flink") == name]
        )

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each deployment from being moved: rights, settings, owners, its job; changes nothing.

        An API server or a JobManager that does not answer is asked again for a few seconds.
        """
        access = {p: self._access(p, ctx) for p in participants}
        lines = self._each_unable(access)
        paths = [a.path for a in access.values()]
        return lines + [
            f"{p.name}: {a.name} is declared more than once; it is stopped and started as one"
            for p, a in access.items()
            if paths.count(a.path) > 1
        ]

    def _unable(self, access: Deployed) -> list[str]:
        return unable(access, self._admin)

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Have each suspended with a savepoint, and keep what was there. Raises ``Transient`` where it does not run."""
        self._each(ctx, participants, self._stop)

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Put the topic, and the uid that goes with it, in their places. Raises ``Transient`` until it stands."""
        self._each(ctx, participants, lambda a: self._point(a, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Have each run again; once it does, put back what is left. Raises ``Transient`` without a savepoint."""
        self._each(ctx, participants, self._start)

    def _each(self, ctx: ControlContext, participants: Sequence[Participant], act: Callable[[Deployed], None]) -> None:
        told = {p: self._access(p, ctx).told for p in participants}

        def acted(beside: ControlContext, who: Participant) -> None:
            act(Deployed.of(self._ask_of(settings_of(who).connection), who, beside, told[who]))

        self.each(ctx, participants, acted)

    def _change(self, access: Deployed, moment: str, alter: Callable[[Json], Json], **said: Any) -> None:
        ctx, who = access.ctx, access.who
        name = f"{access.settings.namespace}/{access.settings.deployment}"
        if access.objects.change(access.path, alter, ctx.still, lambda data: ctx.say(who.name, data)):
            ctx.say(who.name, {"moment": moment, "flink": name, "home": access.home, **said})

    def _stop(self, access: Deployed) -> None:
        self._change(access, "stop", lambda thing: _stopped(access, thing), checkpoints=_checkpoints(access))

    def _point(self, access: Deployed, topic: str) -> None:
        before, after = access.other.get(topic, ""), topic
        self._change(access, "point", lambda thing: _pointed(access, thing, topic), before=before, after=after)
        if access.topic(access.thing()) != topic:
            raise Transient(f"its {access.place.text()} does not show {topic} as it was written")

    def _start(self, access: Deployed) -> None:
        self._change(access, "start", lambda thing: _started(access, thing))

    # --------------------------------------------------------------------------------------------- observing

    def _seen(self, access: Deployed, group: ParticipantState | None) -> ParticipantState:
        return Look(access, self._admin, group).state()

    def _checkpoints_now(self, access: Deployed) -> Checkpoints:
        seen = Shown.of(access.thing())
        if not seen.runs:
            raise NotFound(f"it is {seen.text()}")
        return access.checkpoints(seen.jid)


def _checkpoints(access: Deployed) -> str:
    """Its checkpoints before it is stopped, to be shown beside those from after; no reason not to stop it."""
    try:
        return access.checkpoints(Shown.of(access.thing()).jid).text()
    except TopicshiftError:
        return "not known"


def _stopped(access: Deployed, thing: Json) -> Json:
    seen, kept = Shown.of(thing), access.kept(thing)
    if seen.wanted == "suspended":
        if kept is None:
            raise Transient("it is suspended already, and not by this migration; start it by hand first")
        return thing
    if kept is not None and (seen.stands or seen.lifecycle == "FAILED"):  # started, and it never ran
        return suspended(thing, kept)
    if not (seen.runs and seen.seen):
        # Its operator would fall back to its latest checkpoint, of which nothing says that it is the last.
        raise Transient(f"it is stopped with a savepoint once it runs: it is {seen.text()}")
    now = kept_now(thing, access.ctx.migration)
    return suspended(thing, now if kept is None else replace(kept, references=now.references))


def _pointed(access: Deployed, thing: Json, topic: str) -> Json:
    seen, kept = Shown.of(thing), access.kept(thing)
    named_now, on = access.topic(thing), access.on(seen)
    if kept is None or seen.wanted != "suspended" or not seen.stands:
        if named_now == topic:
            return thing
        raise Transient(f"it is pointed to {topic} once it stands: it is {seen.text()}")
    if topic != on and not seen.reference(kept):
        raise Transient(f"it is not pointed to {topic}: {seen.why_none()}")
    made = thing if named_now == topic else _with_topic(access, thing, topic)
    return leaving(made, kept, access.who.role == "consumer" and topic != on)


def _with_topic(access: Deployed, thing: Json, topic: str) -> Json:
    other = access.other[topic]
    made = exchanged(thing, access.place, other, topic)
    if made is not None and access.who.role == "consumer":
        old, new = access.uid(other), access.uid(topic)
        if named(made, access.uid_place, old, new) != new:
            made = exchanged(made, access.uid_place, old, new)
    if made is None:
        raise Transient(
            f"it is not pointed to {topic}: its {access.place.text()} does not name {other}, or its "
            f"{access.uid_place.text()} the uid that goes with it, once and alone. Somebody has changed it; put it "
            "right by hand."
        )
    return made


def _started(access: Deployed, thing: Json) -> Json:
    seen, kept = Shown.of(thing), access.kept(thing)
    if kept is None:
        if seen.wanted == "suspended":
            raise Transient("it is suspended, and how it was is not known; start it by hand")
        return thing
    if seen.wanted == "running":
        return restored(thing, kept) if seen.runs and seen.seen else thing
    there = access.topic(thing) == access.on(seen)
    if not seen.stands:
        if seen.runs and there:  # its operator has not stopped it, and need not
            return restored(thing, kept)
        raise Transient(f"it is started once it stands: it is {seen.text()}")
    if not _may_start(seen, kept, there):
        raise Transient(f"it is not started, for it would begin without its state: {seen.why_none()}")
    return resumed(thing, kept)


def _may_start(seen: Shown, kept: Kept, there: bool) -> bool:
    """Whether its operator would go on from where its job ended: by its latest checkpoint on the same topic alone."""
    return bool(seen.reference(kept)) or (seen.mode == "last-state" and there)


class Look(Proof):
    """One look at one deployment. ``group``: what Kafka shows of a consumer's group, beside the job itself."""

    def __init__(self, access: Deployed, admin: ClusterAdmin, group: ParticipantState | None = None) -> None:
        super().__init__(access, admin, group)
        self._access = access

    def state(self) -> ParticipantState:
        """Its state. Raises ``Unreadable`` where it cannot be told."""
        access, thing = self._access, self._access.thing()
        seen, kept, topic = Shown.of(thing), access.kept(thing), access.topic(thing)
        if seen.wanted == "suspended":
            return self._suspended(seen, kept, topic)
        if kept is not None:
            return self._state("unknown", topic, f"it is started, and not as before yet: it is {seen.text()}")
        if not any(t.get("moment") == "start" for t in access.told):
            return self._state("running", topic, "" if seen.runs and seen.seen else f"it is {seen.text()}")
        if not (seen.runs and seen.seen) or topic is None:
            return self._state("unknown", topic, f"it is {seen.text()}")
        why = self.not_there(access.job(seen), topic)
        return self._state("unknown" if why else "running", topic, why or self.beside_before(seen.jid), seen.jid)

    def _suspended(self, seen: Shown, kept: Kept | None, topic: str | None) -> ParticipantState:
        on = self._access.on(seen)
        if not seen.stands:
            # Nobody may take it for one that runs: it is about to stand, whatever was wanted since.
            return self._state("unknown", on, f"its operator has not suspended it yet: it is {seen.text()}")
        if not seen.reference(kept):
            return self._state("unknown", on, f"{seen.why_none()}.{self._access.kept_elsewhere()}")
        if seen.job not in ENDED or on is None:
            return self._state("unknown", on, f"it is {seen.text()}, which is no end")
        return self.standing(on, topic, self._access.name)
