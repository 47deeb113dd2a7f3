"""Flink jobs of a session cluster: stopped with a savepoint, and started from it on the other topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from topicshift.adapters.controllers.flink_able import unable
from topicshift.adapters.controllers.flink_access import MOST_TRIES, Access, Seen, Snapshot
from topicshift.adapters.controllers.flink_jar import JarAccess
from topicshift.adapters.controllers.flink_look import Look
from topicshift.adapters.controllers.flink_sql import SqlAccess
from topicshift.adapters.controllers.flink_way import FlinkWay
from topicshift.core.errors import (
    NotFound,
    Refused,
    Transient,
    Unreadable,
)
from topicshift.core.flink import ids
from topicshift.core.flink.job import Checkpoints, Job
from topicshift.ports import ControlContext, Participant, ParticipantState

SAVES_S = 8.0
"""So long a stop waits for its savepoint, in seconds, so that where it is stands in the audit trail at once."""


class SessionJobs(FlinkWay[Access]):
    """Moves jobs by the REST interface of their JobManager: stopped with a savepoint, started from it elsewhere.

    A JobManager knows a job by its id alone, and forgets one that has ended. So the ids of savepoints and of the jobs
    that are started here are made from what they are for, which makes a repeated request the same request; and where a
    job is pointed, and what it goes on from, is in the audit trail. A job stands once its savepoint is complete, all
    of it has finished, and no transaction of its sink is open. It runs once every vertex does, a checkpoint is
    complete and, of a consumer, its group has committed in every partition that holds records.
    """

    def _access(self, who: Participant, ctx: ControlContext) -> Access:
        return self._made(who, ctx, [t for t in ctx.told(who.name) if t.get("flink") == who.settings["job"]])

    def _made(self, who: Participant, ctx: ControlContext, told: Sequence[Mapping[str, Any]]) -> Access:
        if "plan" in who.settings:
            return SqlAccess.of(self._ask_of, self._clock, who, ctx, told)
        return JarAccess.of(self._ask_of, who, ctx, told)

    # ------------------------------------------------------------------------------------------------ before

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """What would keep each job from being moved, by its JobManager's answers; changes nothing.

        A JobManager that does not answer is asked again for a few seconds.
        """
        access = {p: self._access(p, ctx) for p in participants}
        lines = self._each_unable(access)
        jobs = [(a.settings.connection, a.settings.job) for a in access.values()]
        return lines + [
            f"{p.name}: job {job[1]!r} is declared more than once; it is stopped and started as one"
            for p, job in zip(participants, jobs, strict=True)
            if jobs.count(job) > 1
        ]

    def _unable(self, access: Access) -> list[str]:
        return unable(access, self._admin)

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Stop each job with a savepoint. Raises ``Transient`` where that cannot be done now.

        One that failed after its savepoint was complete is started from that where it was, to end its transactions,
        and stopped anew.
        """
        self._each(ctx, participants, self._stop)

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Remember the topic, and the savepoint to start from. Raises ``Transient`` while a job has not ended."""
        self._each(ctx, participants, lambda a: self._point(a, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Start each job from its savepoint where it was pointed. Raises as ``stop`` does."""
        self._each(ctx, participants, self._start)

    def _each(self, ctx: ControlContext, participants: Sequence[Participant], act: Callable[[Access], None]) -> None:
        told = {p: self._access(p, ctx).told for p in participants}

        def acted(beside: ControlContext, who: Participant) -> None:
            try:
                act(self._made(who, beside, told[who]))
            except Refused as error:  # its JobManager says no, not a guard of the migration
                if type(error) is not Refused:
                    raise
                raise Transient(str(error)) from None
            except NotFound as error:  # it has ended, or its JobManager has restarted, since it was looked at
                raise Transient(str(error)) from None

        self.each(ctx, participants, acted)

    def _say(self, access: Access, moment: str, **said: Any) -> None:
        access.ctx.say(access.who.name, {"moment": moment, "flink": access.settings.job, "home": access.home, **said})

    def _stop(self, access: Access) -> None:
        seen = access.seen()
        job = access.one(seen)
        if job is not None:
            self._stop_job(access, job)
        elif seen.newest is not None and seen.newest.state in ("FAILED", "CANCELED"):
            self._again(access, seen)
        elif seen.newest is not None and seen.newest.state == "FINISHED":
            self._note(access, access.snapshot(seen))

    def _note(self, access: Access, found: Snapshot) -> None:
        if not access.noted(found):
            self._say(access, "saved", **_kept(found))

    def _stop_job(self, access: Access, job: Job) -> None:
        stops = access.stops(job.jid)
        if stops and (not stops[-1].over or stops[-1].good):
            return
        before, wide = access.checkpoints(job.jid), access.parallelism(job.jid)
        body: dict[str, Any] = {"drain": False, "triggerId": ids.trigger_id(job.jid, len(stops))}
        if access.settings.savepoints:
            body["targetDirectory"] = access.settings.savepoints
        access.ctx.still()
        access.ask("POST", f"/jobs/{job.jid}/stop", body)
        self._say(access, "stop", job=job.jid, parallelism=wide, checkpoints=before.text())
        self._wait(access, job.jid)

    def _wait(self, access: Access, jid: str) -> None:
        """Note the savepoint, if it is complete soon; else whoever looks next does."""
        until = self._clock.now() + timedelta(seconds=SAVES_S)
        while self._clock.now() < until:
            try:
                seen, stops = access.seen(), access.stops(jid)
                if stops and stops[-1].over and (not stops[-1].good or not seen.live):
                    if stops[-1].good:
                        self._note(access, access.snapshot(seen))
                    return
            except Unreadable:
                pass
            self._clock.sleep(0.1)

    def _again(self, access: Access, seen: Seen) -> None:
        """A job that failed while it was stopped: what its savepoint holds has to be committed where it belongs.

        One that has done nothing since it was started needs no stop: it is as its snapshot left it.
        """
        found = access.snapshot(seen)
        if seen.newest is not None and found.job == seen.newest.jid:
            self._run(access, found, found.topic, found.parallelism, "restart")

    def _point(self, access: Access, topic: str) -> None:
        seen = access.seen()
        job = access.one(seen)
        if job is not None:
            if access.topic(job.jid) == topic and access.pointed == topic:
                return
            raise Transient(f"it is pointed to {topic} once it has ended: {job.text()}")
        found = access.snapshot(seen)
        pointed = [t for t in access.told if t.get("moment") == "point"]
        if pointed and pointed[-1]["after"] == topic and pointed[-1]["savepoint"] == found.path:
            return
        access.ctx.still()
        self._say(access, "point", before=access.pointed, after=topic, **_kept(found))

    def _start(self, access: Access) -> None:
        seen, topic = access.seen(), access.pointed
        job = access.one(seen)
        if job is not None:
            on = access.topic(job.jid)
            if on != topic:
                raise Transient(f"it is started on {topic} once it has ended: {job.text()}, on {on}")
            self._raise(access, job, topic)
            return
        found = access.snapshot(seen)
        self._run(access, found, topic, self._parallelism(access, found, topic), "start")

    def _parallelism(self, access: Access, found: Snapshot, topic: str) -> int:
        """How wide it starts: narrow on its way to the target, and as wide as it was from there on."""
        settings = access.settings
        wide = access.wide or found.parallelism
        narrow = settings.start_parallelism
        if narrow is None or topic == access.home or found.topic == topic:
            return wide
        return min(narrow, wide)

    def _run(self, access: Access, found: Snapshot, topic: str, parallelism: int, moment: str) -> None:
        known = {j.jid for j in access.seen().jobs}
        tries = (ids.job_id(access.family(topic), found.path, n) for n in range(MOST_TRIES))
        jid = next((t for t in tries if t not in known), None)
        if jid is None:
            raise Transient(f"it ended {MOST_TRIES} times after it was started from {found.path}: see why")
        access.begin(jid, topic, found, parallelism)
        self._say(access, moment, job=jid, topic=topic, **{**_kept(found), "parallelism": parallelism})

    # ------------------------------------------------------------------------------------------ parallelism

    def _raise(self, access: Access, job: Job, topic: str) -> None:
        """Note since when its lag is small; once that is long enough, stop it, so that it starts as wide as it was."""
        look = Look(access, self._admin)
        if not look.narrow(job, topic):
            return
        lag = look.lag(topic)
        below, now = lag < access.settings.raise_below, self._clock.now()
        last = access.last
        since = last.get("since") if last.get("moment") == "lag" and last.get("below") else None
        if below and since and now - datetime.fromisoformat(str(since)) >= access.settings.raise_after:
            self._stop_job(access, job)
        elif below != bool(since):
            self._say(access, "lag", records=lag, below=below, since=now.isoformat())

    # --------------------------------------------------------------------------------------------- observing

    def _seen(self, access: Access, group: ParticipantState | None) -> ParticipantState:
        return Look(access, self._admin, group).state()

    def _checkpoints_now(self, access: Access) -> Checkpoints:
        job = access.one(access.seen())
        if job is None:
            raise NotFound("no job of it runs")
        return access.checkpoints(job.jid)


def _kept(found: Snapshot) -> Mapping[str, Any]:
    return {"savepoint": found.path, "saved_on": found.topic, "of": found.job, "parallelism": found.parallelism}
