"""A Flink JobManager in memory, asked as :class:`topicshift.adapters.rest.Ask` asks a real one.

Held against the real one by the contract that ``tests/integration/test_flink_real.py`` runs on both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from topicshift.adapters.rest import Conflict
from topicshift.core.errors import NotFound, Refused
from topicshift.core.flink.ids import vertex_id
from topicshift.core.flink.job import ENDED


@dataclass
class FakeJob:
    """One job. ``state_of``: the topic of each source's state, by its uid; ``stops``: outcomes, by trigger."""

    jid: str
    name: str
    args: list[str]
    parallelism: int
    began: int
    uid: str
    topic: str
    state: str = "RUNNING"
    completed: int = 1
    failed: int = 0
    failing: bool = False
    ms: int = 5
    savepoint: str = ""
    state_of: dict[str, str] = field(default_factory=dict)
    stops: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def reads(self) -> set[str]:
        """The topics that its source reads: those of its state, and the one that it is told."""
        return {self.topic, self.state_of.get(self.uid, self.topic)} if self.state == "RUNNING" else set()


class FakeJobManager:
    """Jobs by id. ``on_call`` hears of each request before it is answered, and of each effect after it.

    ``program`` is what its jar does: arguments to the job's name, its source's uid and its topic. ``saves``: savepoints
    succeed; ``finishes``: jobs finish after it; ``slow``: a stop is under way until :meth:`settle`; ``starts``: jobs
    that are started do not fail at once; ``checkpoints``: they complete one.
    """

    def __init__(
        self,
        program: Callable[[Sequence[str]], tuple[str, str, str]],
        on_change: Callable[[FakeJob], None] = lambda _: None,
    ) -> None:
        self.program, self.on_change = program, on_change
        self.on_call: Callable[[str], None] = lambda _: None
        self.jobs: dict[str, FakeJob] = {}
        self.jars: dict[str, dict[str, Any]] = {}
        self.saved: dict[str, dict[str, str]] = {}
        self.saves = self.finishes = self.starts = self.checkpoints = True
        self.slow = False
        self.version = "2.3.0"
        self.config = {"execution.checkpointing.savepoint-dir": "file:///saved"}
        self.submits = True
        self._now = 1_000

    # ------------------------------------------------------------------------------------------------- the world

    def job(self, name: str) -> FakeJob:
        """The one of this name that was started last."""
        return [j for j in self.jobs.values() if j.name == name][-1]

    def live(self) -> list[str]:
        """Names of the jobs that run."""
        return sorted(j.name for j in self.jobs.values() if j.state == "RUNNING")

    def upload(self, name: str, entry: str = "Job") -> str:
        """A jar."""
        self._now += 1
        jar = f"{self._now}_{name}"
        entries = [{"name": entry, "description": None}] if entry else []
        self.jars[jar] = {"id": jar, "name": name, "uploaded": self._now, "entry": entries}
        return jar

    def submit(self, jid: str, args: Sequence[str], parallelism: int, savepoint: str = "") -> FakeJob:
        """A job that runs, unless it fails at once."""
        self._now += 10
        name, uid, topic = self.program(args)
        one = FakeJob(jid, name, list(args), parallelism, self._now, uid, topic)
        one.state_of = dict(self.saved.get(savepoint, {}))
        if not self.starts:
            one.state, one.completed = "FAILED", 0
        elif not self.checkpoints:
            one.completed = 0
        self.jobs[jid] = one
        self.on_change(one)
        return one

    def go_on(self, jid: str, args: Sequence[str], parallelism: int, savepoint: str, leaves: bool) -> FakeJob:
        """A job that goes on from a savepoint. Raises ``Refused`` where state is left over and may not be."""
        if savepoint not in self.saved:
            raise Refused("POST jars was refused (HTTP 400).")
        uid = self.program(args)[1]
        if uid not in self.saved[savepoint] and not leaves:
            raise Refused("POST jars was refused (HTTP 400): state is left over.")
        one = self.submit(jid, args, parallelism, savepoint)
        one.state_of = {uid: topic for uid, topic in one.state_of.items() if uid == one.uid}
        return one

    def settle(self) -> None:
        """Stops that are under way come to their end."""
        for one in self.jobs.values():
            for trigger, said in one.stops.items():
                if said["status"]["id"] == "IN_PROGRESS":
                    self._end(one, trigger)

    def forget(self) -> None:
        """The JobManager starts anew and knows nothing."""
        self.jobs.clear()

    def _end(self, one: FakeJob, trigger: str) -> None:
        failure: dict[str, Any] = {"class": "java.util.concurrent.CompletionException", "stack-trace": "x: hush\n"}
        outcome: dict[str, Any] = {"failure-cause": failure}
        if self.saves:
            path = f"file:/saved/savepoint-{one.jid[:6]}-{trigger[:12]}"
            self.saved[path] = {**one.state_of, one.uid: one.topic}
            one.savepoint = path
            one.completed += 1
            one.state = "FINISHED" if self.finishes else "FAILED"
            if self.finishes:
                outcome = {"location": path}
        one.stops[trigger] = {"status": {"id": "COMPLETED"}, "operation": outcome}
        self.on_change(one)

    # ---------------------------------------------------------------------------------------------- its interface

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Answer one request. Raises the errors that a real JobManager's answers become."""
        self.on_call(f"{method} {path}")
        parts = [unquote(p) for p in path.strip("/").split("/")]
        if parts[0] == "jobs" and parts[1] != "overview":
            one = self.jobs.get(parts[1])
            if one is None:
                raise NotFound(f"{method} {path}: there is no such thing (HTTP 404).")
            answer = getattr(self, f"_{method.lower()}_{'_'.join(parts[2:3]) or 'job'}")(one, parts[3:], body)
        else:
            answer = getattr(self, f"_{method.lower()}_{parts[0]}")(parts[1:], body)
        if method != "GET":
            self.on_call(f"{method} {path} answered")
        return answer

    def _get_config(self, rest: list[str], body: Any) -> Any:
        return {"flink-version": self.version, "features": {"web-submit": self.submits, "web-cancel": True}}

    def _get_jobmanager(self, rest: list[str], body: Any) -> Any:
        return [{"key": k, "value": v} for k, v in self.config.items()]

    def _get_jars(self, rest: list[str], body: Any) -> Any:
        return {"address": "http://m", "files": list(self.jars.values())}

    def _post_jars(self, rest: list[str], body: Mapping[str, Any]) -> Any:
        if rest[0] not in self.jars or body["jobId"] in self.jobs:
            raise Refused("POST jars was refused (HTTP 400).")
        args, path = body["programArgsList"], body["savepointPath"]
        one = self.go_on(body["jobId"], args, body["parallelism"], path, body["allowNonRestoredState"])
        return {"jobid": one.jid}

    def _get_jobs(self, rest: list[str], body: Any) -> Any:
        return {
            "jobs": [
                {"jid": j.jid, "name": j.name, "state": j.state, "start-time": j.began} for j in self.jobs.values()
            ]
        }

    def _get_job(self, one: FakeJob, rest: list[str], body: Any) -> Any:
        state = "FINISHED" if one.state == "FINISHED" else "RUNNING" if one.state == "RUNNING" else "CANCELED"
        vertex = {"id": vertex_id(one.uid), "name": "Source: in", "status": state, "parallelism": one.parallelism}
        return {"jid": one.jid, "name": one.name, "state": one.state, "vertices": [vertex]}

    def _get_checkpoints(self, one: FakeJob, rest: list[str], body: Any) -> Any:
        if rest == ["config"]:
            return {"mode": "exactly_once", "interval": 1000}
        done = {"id": one.completed, "external_path": "file:/checkpoints/1"}
        saved = {"id": one.completed, "external_path": one.savepoint, "is_savepoint": True}
        first = {"id": one.completed - 1, "external_path": "file:/checkpoints/1"}
        latest: dict[str, Any] = {"completed": None, "savepoint": None, "failed": None, "restored": None}
        if one.savepoint:
            latest |= {"savepoint": saved, "completed": first}
        elif one.completed:
            latest |= {"completed": done}
        if one.failing:
            latest |= {"failed": {"id": one.completed + 1}}
        return {
            "counts": {"completed": one.completed, "failed": one.failed, "in_progress": 0, "restored": 0},
            "summary": {"end_to_end_duration": {"min": 1, "max": one.ms + 4, "avg": one.ms}},
            "latest": latest,
        }

    def _get_savepoints(self, one: FakeJob, rest: list[str], body: Any) -> Any:
        if rest[0] not in one.stops:
            raise NotFound("GET savepoints: there is no such thing (HTTP 404).")
        return one.stops[rest[0]]

    def _post_stop(self, one: FakeJob, rest: list[str], body: Mapping[str, Any]) -> Any:
        if one.state in ENDED:
            raise Conflict("POST stop cannot be done now (HTTP 409).")
        trigger = str(body["triggerId"])
        if trigger not in one.stops:
            one.stops[trigger] = {"status": {"id": "IN_PROGRESS"}, "operation": None}
            if not self.slow:
                self._end(one, trigger)
        return {"request-id": trigger}
