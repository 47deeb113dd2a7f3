"""Where a Flink job is, by its JobManager, the commits of its group and the transactions of its sink."""

from __future__ import annotations

from topicshift.adapters.controllers.flink_access import Access, Seen
from topicshift.adapters.controllers.flink_proof import Proof
from topicshift.core.flink.job import Job
from topicshift.ports import ClusterAdmin, ParticipantState

_STARTS = frozenset({"point", "start", "restart", "lag"})
"""Moments after which a job that lives is one that was started."""


class Look(Proof):
    """One look at one job. ``group``: what Kafka shows of a consumer's group, beside the job itself."""

    def __init__(self, access: Access, admin: ClusterAdmin, group: ParticipantState | None = None) -> None:
        super().__init__(access, admin, group)
        self._access = access

    def state(self) -> ParticipantState:
        """Its state. Raises ``Unreadable`` where it cannot be told."""
        seen = self._access.seen()
        job = self._access.one(seen)
        if job is not None:
            return self._living(job)
        if seen.newest is None:
            self._access.snapshot(seen)
            return self.standing(self._access.pointed, self._access.pointed, self._access.who.name)
        return self._ended(seen, seen.newest)

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
            return self.standing(on, self._access.pointed, job.jid)
        return self._state("unknown", on, job.text(), job.jid)

    def _stopped_last(self, job: Job) -> bool:
        return self._access.last.get("moment") == "stop" or bool(self._access.stops(job.jid))

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
        why = self.not_there(job, on)
        return self._state("unknown" if why else "running", on, why or failed or self.beside_before(job.jid), job.jid)

    def _not_yet(self, job: Job, on: str) -> str:
        return self._narrow_text(job) if self.narrow(job, on) else ""

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

    def lag(self, topic: str) -> int:
        """Records of the topic that its group has not committed. Raises ``Unreadable``."""
        return sum(end - at for _, at, end in self._positions(topic).values())
