"""Where a Flink job is, by its JobManager, the commits of its group and the transactions of its sink."""

from __future__ import annotations

from typing import Any

from topicshift.adapters.controllers.flink_access import Access, Seen
from topicshift.core.errors import Transient, Unreadable
from topicshift.core.flink.ids import vertex_id
from topicshift.core.flink.job import Job
from topicshift.ports import ClusterAdmin, InstanceState, ParticipantState

_STARTS = frozenset({"point", "start", "restart", "lag"})
"""Moments after which a job that lives is one that was started."""


class Look:
    """One look at one job. ``group``: what Kafka shows of a consumer's group, beside the job itself."""

    def __init__(self, access: Access, admin: ClusterAdmin, group: ParticipantState | None = None) -> None:
        self._access = access
        self._admin = admin
        self._group = group

    def state(self) -> ParticipantState:
        """Its state. Raises ``Unreadable`` where it cannot be told."""
        seen = self._access.seen()
        job = self._access.one(seen)
        if job is not None:
            return self._living(job)
        if seen.newest is None:
            self._access.snapshot(seen)
            return self._standing(self._access.pointed, self._access.who.name)
        return self._ended(seen, seen.newest)

    def _state(self, status: Any, topic: str | None, why: str = "", instance: str = "") -> ParticipantState:
        who = self._access.who
        return ParticipantState(who, status, topic, (InstanceState(instance or who.name, status, topic, None),), why)

    # --------------------------------------------------------------------------------------------- one that ended

    def _ended(self, seen: Seen, job: Job) -> ParticipantState:
        on = self._access.topic(job.jid)
        if job.state in ("FAILED", "CANCELED") and self._access.saved(job) and self._stopped_last(job):
            # Whoever stops it goes on: it is started from its savepoint, and stopped anew.
            return self._state(
                "unknown", on, f"its savepoint is complete, and {job.text()}: it did not finish", job.jid
            )
        if job.state == "FINISHED":
            found = self._access.snapshot(seen)
            if not self._access.noted(found):
                return self._state("unknown", on, f"{job.text()}, and its savepoint is not noted yet", job.jid)
            return self._standing(on, job.jid)
        return self._state("unknown", on, job.text(), job.jid)

    def _stopped_last(self, job: Job) -> bool:
        return self._access.last.get("moment") == "stop" or bool(self._access.stops(job.jid))

    def _standing(self, on: str | None, instance: str) -> ParticipantState:
        """It has finished: whether it stands by its transactions and its group, too."""
        left = self.transactions(on)
        if left:
            return self._state("unknown", on, f"it has finished, and transactions of it are open: {left}", instance)
        group = self._group
        if group is not None and group.status != "stopped":
            return self._state(group.status, None, f"its job has finished; {group.reason}", instance)
        return self._state("stopped", self._access.pointed, "", instance)

    # -------------------------------------------------------------------------------------------- one that lives

    def _living(self, job: Job) -> ParticipantState:
        on = self._access.topic(job.jid)
        if on is None:
            why = f"{job.text()} and was not started by this migration, so which topic it is on cannot be told"
            return self._state("running", None, why, job.jid)
        stops = self._access.stops(job.jid)
        if stops and (not stops[-1].over or stops[-1].good):
            # Nobody may take it for one that runs: it is about to stand, whatever was wanted since.
            return self._state("unknown", on, f"its savepoint is being taken, and {job.text()}", job.jid)
        failed = f"a stop of it failed ({stops[-1].failure}), and it runs on" if stops else ""
        started = self._access.last.get("moment") in _STARTS
        if not started:
            return self._state("running", on, failed or ("" if job.state == "RUNNING" else job.text()), job.jid)
        why = self._not_there(job, on)
        return self._state("unknown" if why else "running", on, why or failed or self._beside(job), job.jid)

    def _not_there(self, job: Job, on: str) -> str:
        """Why a job that was started has not arrived; empty where it has."""
        return (
            self._not_running(job)
            or self._wrong_source(job, on)
            or (self._narrow_text(job) if self.narrow(job, on) else "")
            or (self._unread(on) if on == self._access.ctx.target else "")
            or self._lingering(job, on)
        )

    def _not_running(self, job: Job) -> str:
        late = [v.name for v in self._access.vertices(job.jid) if v.state != "RUNNING"]
        if job.state != "RUNNING" or late:
            return job.text() + (f"; not running: {', '.join(late)[:300]}" if late else "")
        taken = self._access.checkpoints(job.jid)
        if taken.failing or not taken.completed:
            return f"it runs, and its latest checkpoint is not complete: {taken.text()}"
        return ""

    def _wrong_source(self, job: Job, on: str) -> str:
        """A source with the uid of before would take up the partitions of the other topic where it left them."""
        if self._access.who.role == "producer":
            return ""
        ctx = self._access.ctx
        uid, other = self._access.uid(on), self._access.uid(ctx.target if on == ctx.source else ctx.source)
        there = {v.vid for v in self._access.vertices(job.jid)}
        if vertex_id(uid) in there and vertex_id(other) not in there:
            return ""
        return f"its source has not the uid {uid!r}, so it may read {ctx.source} and {ctx.target} together"

    def _beside(self, job: Job) -> str:
        before = [str(t["checkpoints"]) for t in self._access.told if t.get("moment") == "stop"]
        return f"{self._access.checkpoints(job.jid).text()} (before: {before[-1]})" if before else ""

    # ------------------------------------------------------------------------------------------------- parallelism

    def narrow(self, job: Job, topic: str) -> bool:
        """Whether it runs on the target with less parallelism than it is to have."""
        access = self._access
        if access.settings.start_parallelism is None or topic == access.home or job.state != "RUNNING":
            return False
        return access.parallelism(job.jid) < access.wide

    def _narrow_text(self, job: Job) -> str:
        access, settings = self._access, self._access.settings
        return (
            f"it runs at parallelism {access.parallelism(job.jid)} of {access.wide} until its lag has stayed below "
            f"{settings.raise_below} for {settings.raise_after.total_seconds():g} s (now {self.lag(access.pointed)})"
        )

    # ------------------------------------------------------------------------------------------------------- Kafka

    def lag(self, topic: str) -> int:
        """Records of the topic that its group has not committed. Raises ``Unreadable``."""
        return sum(end - at for _, at, end in self._positions(topic).values())

    def _unread(self, topic: str) -> str:
        """Partitions that hold records and in which the group has committed none; empty where there is none such."""
        if self._access.who.role == "producer":
            return ""
        late = [
            f"{topic}[{p}] (at {at} of {end})"
            for p, (first, at, end) in sorted(self._positions(topic).items())
            if at <= first < end
        ]
        return f"it runs, and its commits do not move on {', '.join(late[:5])}" if late else ""

    def _positions(self, topic: str) -> dict[int, tuple[int, int, int]]:
        """Log start, commit (the log start without one) and end of each partition."""
        group = str(self._access.who.group)
        offsets = self._admin.offsets(topic)
        commits = self._admin.commits([group], topic, sorted(offsets)).get(group)
        if commits is None or commits.error or commits.errors:
            raise Unreadable(f"the commits of group {group} on {topic} cannot be read")
        found = {}
        for p, seen in offsets.items():
            if seen.end is None or seen.log_start is None:
                raise Unreadable(f"the ends of {topic}[{p}] cannot be read")
            at = commits.offsets.get(p)
            found[p] = (seen.log_start, seen.log_start if at is None else at, seen.end)
        return found

    def _sinks(self, on: str | None) -> list[str]:
        """Topics that it writes to in transactions."""
        access = self._access
        if access.settings.transactional_id_prefix is None:
            return []
        return list(access.settings.sinks) if access.who.role == "consumer" else [on] if on is not None else []

    def transactions(self, on: str | None, before_ms: int | None = None) -> str:
        """Its open transactions, in words; those that began before a time alone, where one is given."""
        prefix = self._access.settings.transactional_id_prefix or ""
        found = [
            f"{t.transactional_id} on {topic}"
            for topic in self._sinks(on)
            for t in self._admin.transactions(topic)
            if t.transactional_id.startswith(prefix)
            and (before_ms is None or (t.started_ms is not None and t.started_ms < before_ms))
        ]
        return ", ".join(found[:5])

    def _lingering(self, job: Job, on: str) -> str:
        """Transactions that the run before left open: they hold back whoever reads the sink's topics."""
        left = self.transactions(on, job.began)
        return f"it runs, and transactions from before its start are open: {left}" if left else ""


def never_committed(admin: ClusterAdmin, group: str, topic: str) -> list[int]:
    """Partitions in which the group has no commit. Raises ``Transient`` where that cannot be read."""
    offsets = admin.offsets(topic)
    commits = admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        raise Transient(f"the commits of group {group} on {topic} cannot be read now")
    return [p for p in sorted(offsets) if commits.offsets.get(p) is None]
