"""What proves that a Flink job has arrived or stands: its vertices, its checkpoints, its group, its transactions."""

from __future__ import annotations

from typing import Any

from topicshift.adapters.controllers.flink_access import Running
from topicshift.core.errors import Transient
from topicshift.core.flink.ids import vertex_id
from topicshift.core.flink.job import Job
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.ports import ClusterAdmin, InstanceState, ParticipantState


class Proof:
    """What is seen of one job, whoever starts it. ``group``: what Kafka shows of a consumer's group, beside the job."""

    def __init__(self, access: Running, admin: ClusterAdmin, group: ParticipantState | None = None) -> None:
        self._job_of = access
        self._admin = admin
        self._group = group

    def _state(self, status: Any, topic: str | None, why: str = "", instance: str = "") -> ParticipantState:
        who = self._job_of.who
        return ParticipantState(who, status, topic, (InstanceState(instance or who.name, status, topic, None),), why)

    def beside_before(self, jid: str) -> str:
        """Its checkpoints now, and what they were before it was stopped; empty where it was not."""
        before = [str(t["checkpoints"]) for t in self._job_of.told if t.get("moment") == "stop"]
        return f"{self._job_of.checkpoints(jid).text()} (before: {before[-1]})" if before else ""

    def not_there(self, job: Job, on: str) -> str:
        """Why a job that was started has not arrived; empty where it has."""
        return (
            self._not_running(job)
            or self._wrong_source(job, on)
            or self._not_yet(job, on)
            or (self._unread(on) if on == self._job_of.ctx.target else "")
            or self._lingering(job, on)
        )

    def _not_yet(self, job: Job, on: str) -> str:
        """What else its kind waits for."""
        return ""

    def _not_running(self, job: Job) -> str:
        late = [v.name for v in self._job_of.vertices(job.jid) if v.state != "RUNNING"]
        if job.state != "RUNNING" or late:
            return job.text() + (f"; not running: {', '.join(late)[:300]}" if late else "")
        taken = self._job_of.checkpoints(job.jid)
        if taken.failing or not taken.completed:
            return f"it runs, and its latest checkpoint is not complete: {taken.text()}"
        return ""

    def _wrong_source(self, job: Job, on: str) -> str:
        """A source with the uid of before would take up the partitions of the other topic where it left them."""
        if self._job_of.who.role == "producer":
            return ""
        ctx = self._job_of.ctx
        uid, other = self._job_of.uid(on), self._job_of.uid(ctx.target if on == ctx.source else ctx.source)
        there = {v.vid for v in self._job_of.vertices(job.jid)}
        if vertex_id(uid) in there and vertex_id(other) not in there:
            return ""
        return f"its source has not the uid {uid!r}, so it may read {ctx.source} and {ctx.target} together"

    def _unread(self, topic: str) -> str:
        """Partitions that hold records and in which the group has committed none; empty where there is none such."""
        if self._job_of.who.role == "producer":
            return ""
        late = [
            f"{topic}[{p}] (at {at} of {end})"
            for p, (first, at, end) in sorted(self._positions(topic).items())
            if at <= first < end
        ]
        return f"it runs, and its commits do not move on {', '.join(late[:5])}" if late else ""

    def _positions(self, topic: str) -> dict[int, tuple[int, int, int]]:
        """Log start, commit (the log start without one) and end of each partition."""
        group = str(self._job_of.who.group)
        offsets = self._admin.offsets(topic)
        commits = self._admin.commits([group], topic, sorted(offsets)).get(group)
        if commits is None or commits.error or commits.errors:
            raise error_of_unread(commits)(f"the commits of group {group} on {topic} cannot be read")
        found = {}
        for p, seen in offsets.items():
            if seen.end is None or seen.log_start is None:
                raise error_of_unread(seen)(f"the ends of {topic}[{p}] cannot be read")
            at = commits.offsets.get(p)
            found[p] = (seen.log_start, seen.log_start if at is None else at, seen.end)
        return found

    def _sinks(self, on: str | None) -> list[str]:
        """Topics that it writes to in transactions."""
        access = self._job_of
        if access.settings.transactional_id_prefix is None:
            return []
        return list(access.settings.sinks) if access.who.role == "consumer" else [on] if on is not None else []

    def transactions(self, on: str | None, before_ms: int | None = None) -> str:
        """Its open transactions, in words; those that began before a time alone, where one is given."""
        prefix = self._job_of.settings.transactional_id_prefix or ""
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

    def standing(self, on: str | None, pointed: str | None, instance: str) -> ParticipantState:
        """It has finished on a topic: whether it stands by its transactions and its group, too."""
        left = self.transactions(on)
        if left:
            return self._state("unknown", on, f"it has finished, and transactions of it are open: {left}", instance)
        group = self._group
        if group is not None and group.status != "stopped":
            return self._state(group.status, None, f"its job has finished; {group.reason}", instance)
        return self._state("stopped", pointed, "", instance)


def never_committed(admin: ClusterAdmin, group: str, topic: str) -> list[int]:
    """Partitions in which the group has no commit. Raises ``Transient`` where that cannot be read."""
    offsets = admin.offsets(topic)
    commits = admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        raise Transient(f"the commits of group {group} on {topic} cannot be read now")
    return [p for p in sorted(offsets) if commits.offsets.get(p) is None]
