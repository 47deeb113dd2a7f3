"""One Flink job at its JobManager: what is asked about it, and what the audit trail remembers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from topicshift.adapters.rest import Ask
from topicshift.core.errors import NotFound, Transient, Unreadable
from topicshift.core.flink import ids
from topicshift.core.flink.job import (
    LEFT,
    Checkpoints,
    Job,
    Stop,
    Vertex,
    jobs_named,
    read_checkpoints,
    read_stop,
    read_vertices,
)
from topicshift.core.spec.flink import FlinkJob, FlinkSession
from topicshift.ports import ControlContext, Participant

_T = TypeVar("_T")
_MOST_STOPS = 50
MOST_TRIES = 20
"""So often a job is started from the same snapshot; then somebody has to look."""


@dataclass(frozen=True)
class Snapshot:
    """What a job goes on from. ``topic``: the one of the migration that it was on; ``job``: the id it had."""

    path: str
    topic: str
    parallelism: int
    job: str


@dataclass(frozen=True)
class Seen:
    """The jobs of its name, oldest first."""

    jobs: tuple[Job, ...]

    @property
    def live(self) -> tuple[Job, ...]:
        """Those that have not ended."""
        return tuple(j for j in self.jobs if j.live)

    @property
    def newest(self) -> Job | None:
        """The one that was started last."""
        return self.jobs[-1] if self.jobs else None

    @property
    def left(self) -> bool:
        """Whether its JobManager has let go of it without an end."""
        return not self.live and self.newest is not None and self.newest.state == LEFT


@dataclass(frozen=True)
class Running:
    """What is asked of a JobManager about one job. ``told``: what the audit trail has of it, oldest first."""

    ask: Ask
    who: Participant
    ctx: ControlContext
    told: Sequence[Mapping[str, Any]]

    @property
    def settings(self) -> FlinkJob:
        """What the spec says of the job itself."""
        raise NotImplementedError

    @property
    def home(self) -> str:
        """The topic that it was on at first: on a way back it is the target, since source and target are exchanged."""
        return str(self.told[0]["home"]) if self.told else self.ctx.source

    @property
    def last(self) -> Mapping[str, Any]:
        """What was told last; empty where nothing was."""
        return self.told[-1] if self.told else {}

    def _read(self, path: str, reads: Callable[[Any], _T]) -> _T:
        answer = self.ask("GET", path, None)
        try:
            return reads(answer)
        except ValueError as error:
            raise Unreadable(f"GET {path}: {error}") from None

    def checkpoints(self, jid: str) -> Checkpoints:
        """Its checkpoints."""
        return self._read(f"/jobs/{jid}/checkpoints", read_checkpoints)

    def vertices(self, jid: str) -> list[Vertex]:
        """The vertices of its graph."""
        return self._read(f"/jobs/{jid}", read_vertices)

    def parallelism(self, jid: str) -> int:
        """The largest of its vertices."""
        return max((v.parallelism for v in self.vertices(jid)), default=1)

    def uid(self, topic: str) -> str:
        """The uid of its source on a topic; empty for a producer, whose source stays as it is."""
        today = self.settings.source_uid
        if self.who.role == "producer" or today is None:
            return ""
        return today if topic == self.home else self.settings.target_uid or f"{today}-{topic}"


@dataclass(frozen=True)
class Access(Running):
    """What is asked about one job of a session cluster, whatever it is made from."""

    @property
    def settings(self) -> FlinkSession:
        """The settings of its participant."""
        raise NotImplementedError

    id_in: ClassVar[str]
    """Where a person who starts it by hand says its id."""

    def cannot_begin(self, config: Any, version: tuple[int, int]) -> Iterator[str]:
        """What would keep it from being started, one line a fault.

        ``config`` is its JobManager's answer to ``/config``, ``version`` the one of Flink.
        """
        raise NotImplementedError

    def begin(self, jid: str, topic: str, snapshot: Snapshot, parallelism: int) -> None:
        """Start it under an id from a snapshot on a topic. Raises ``Transient`` where that cannot be done now."""
        raise NotImplementedError

    def leaves(self, topic: str, snapshot: Snapshot) -> bool:
        """Whether the state of its source stays behind, since it has another uid on that topic."""
        return bool(self.uid(topic)) and topic != snapshot.topic

    @property
    def pointed(self) -> str:
        """The topic that it was pointed to last; the one of before where it never was."""
        found = [str(t["after"]) for t in self.told if t.get("moment") == "point"]
        return found[-1] if found else self.home

    @property
    def wide(self) -> int:
        """The parallelism that it is to have in the end; 0 where that is not known yet."""
        had = (int(t["parallelism"]) for t in self.told if t.get("moment") == "stop")
        return self.settings.parallelism or next(had, 0)

    # ---------------------------------------------------------------------------------------- its JobManager

    def seen(self) -> Seen:
        """The jobs of its name."""
        return Seen(tuple(self._read("/jobs/overview", lambda answer: jobs_named(answer, self.settings.job))))

    def one(self, seen: Seen) -> Job | None:
        """The one job that lives. Raises ``Transient`` where there are several."""
        if len(seen.live) > 1:
            names = ", ".join(j.jid for j in seen.live)
            raise Transient(f"{len(seen.live)} jobs are named {self.settings.job!r} ({names}): cancel all but one")
        return seen.live[0] if seen.live else None

    def stops(self, jid: str) -> list[Stop]:
        """The stops of a job that were asked for, as far as its JobManager remembers them."""
        found: list[Stop] = []
        while len(found) < _MOST_STOPS:
            try:
                found.append(self._read(f"/jobs/{jid}/savepoints/{ids.trigger_id(jid, len(found))}", read_stop))
            except NotFound:
                return found
        return found

    # --------------------------------------------------------------------------------------------- its topics

    def family(self, topic: str) -> str:
        """What the ids of its jobs on a topic begin with."""
        return ids.family(self.ctx.migration, self.who.name, topic)

    def topic(self, jid: str) -> str | None:
        """The topic that a job is on. One that nobody of this migration started is where it was at first.

        None for one that somebody has started since.
        """
        for topic in (self.ctx.source, self.ctx.target):
            if jid.startswith(self.family(topic)):
                return topic
        started = any(t.get("moment") in ("start", "restart") for t in self.told)
        return None if started else self.home

    def snapshot(self, seen: Seen) -> Snapshot:
        """What its job that has ended goes on from. Raises ``Transient`` where that is not known: nothing is started.

        Without a snapshot it would begin anew, and with an old one it would write again what it has written.
        """
        job = seen.newest
        if job is None:
            return self._remembered("its JobManager knows no job of that name (any more)")
        if seen.live or seen.left:
            raise Transient(f"{job.text()}, so somebody may go on with it")
        path = self.saved(job)
        topic = self.topic(job.jid)
        if path and topic is not None:
            return Snapshot(path, topic, self.parallelism(job.jid), job.jid)
        if not path and topic is not None and job.state != "FINISHED" and not self.checkpoints(job.jid).completed:
            return self._remembered(f"{job.text()} and completed no checkpoint", job.jid)
        raise Transient(
            f"{job.text()}, and what it would have to go on from is not known. {self._by_hand(self.pointed)}"
        )

    def saved(self, job: Job) -> str:
        """The savepoint that a job that has ended left as its latest snapshot; empty without one."""
        good = [s.location for s in self.stops(job.jid) if s.good]
        if job.state == "FINISHED" and good:
            return good[-1]
        return self.checkpoints(job.jid).savepoint

    def _remembered(self, why: str, jid: str = "") -> Snapshot:
        """The snapshot that the audit trail has, of the job of this id that was started from it and got no further.

        Without an id it is the one with which it was pointed, as long as no job was started from that.
        """
        saved = [t for t in self.told if t.get("savepoint")]
        if jid:
            saved = [t for t in saved if self._from(str(t["savepoint"]), jid)]
        elif self.last.get("moment") not in ("saved", "point"):
            saved = []
        if saved:
            last = saved[-1]
            return Snapshot(str(last["savepoint"]), str(last["saved_on"]), int(last["parallelism"]), str(last["of"]))
        raise Transient(f"{why}, and what it would have to go on from is not known. {self._by_hand(self.pointed)}")

    def noted(self, found: Snapshot) -> bool:
        """Whether the audit trail has a snapshot, so that it is known whatever its JobManager forgets."""
        return any(t.get("savepoint") == found.path for t in self.told)

    def _from(self, savepoint: str, jid: str) -> bool:
        begins = [self.family(t) for t in (self.ctx.source, self.ctx.target)]
        return any(ids.job_id(b, savepoint, n) == jid for b in begins for n in range(MOST_TRIES))

    def _by_hand(self, topic: str) -> str:
        begins = self.family(topic)
        return (
            f"Find its latest savepoint or retained checkpoint, and start it from there on {topic} with a job id that "
            f"begins with {begins} ({self.id_in}), so that it is known to be on {topic}"
        )
