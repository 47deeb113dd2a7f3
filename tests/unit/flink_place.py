"""A cluster, a JobManager in memory with a consumer and a producer, and the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_flink import FakeJob, FakeJobManager
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster, FakeTransaction

SOURCE, TARGET, GROUP = "payments", "payments-v2", "scores"
JAR = "jobs.jar"


def words(args: Sequence[str]) -> tuple[str, str, str]:
    """What the jar makes of its arguments: ``name uid topic``."""
    name, uid, topic = args[:3]
    return name, uid, topic


def told(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a consumer."""
    usual = {"job": name, "jar": JAR, "args": [name, "{uid}", "{topic}", "--all"], "source_uid": f"{name}-in"}
    return {**usual, "starts_at": "committed_or_earliest", **more}


def writes(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a producer."""
    return {"job": name, "jar": JAR, "args": [name, f"{name}-in", "{topic}"], **more}


scorer = Participant("scorer", "consumer", "flink", GROUP, None, told("scorer"), "none")
intake = Participant("intake", "producer", "flink", settings=writes("intake"))


class JobsPlace:
    """A cluster with both topics, an audit trail, and the controller that a subclass makes, with its own ``scorer``."""

    controller: FlinkController
    scorer: Participant

    def __init__(self) -> None:
        self.now_ms = 5
        self.cluster = FakeCluster(now_ms=lambda: self.now_ms)
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.cluster.commit(GROUP, SOURCE, dict.fromkeys(range(3), 0))
        self.clock = ManualClock()
        self.trail: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=self.say, told=self.told)

    def say(self, name: str, data: Mapping[str, Any]) -> None:
        self.trail.append({"name": name, **data})

    def told(self, name: str) -> list[dict[str, Any]]:
        return [t for t in self.trail if t["name"] == name]

    def able(self, who: Participant | None = None) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who or self.scorer]))

    def state(self, who: Participant | None = None) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [who or self.scorer])
        return found

    def where(self, who: Participant | None = None) -> tuple[str, str | None]:
        found = self.state(who)
        return found.status, found.topic

    def stand(self, *who: Participant) -> None:
        self.controller.stop(self.ctx, who or [self.scorer])

    def go(self, topic: str, *who: Participant) -> None:
        """Pointed and started."""
        self.controller.point(self.ctx, who or [self.scorer], topic)
        self.controller.start(self.ctx, who or [self.scorer])

    def moved(self, *who: Participant) -> None:
        """Stopped, and started on the target at the group's offsets."""
        self.stand(*who)
        self.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))
        self.go(TARGET, *who)


class Place(JobsPlace):
    """Both jobs run on the source."""

    scorer = scorer

    def __init__(self) -> None:
        super().__init__()
        self.manager = FakeJobManager(words)
        self.manager.upload(JAR)
        self.first = self.manager.submit("a" * 32, ["scorer", "scorer-in", SOURCE, "--all"], 4)
        self.other = self.manager.submit("b" * 32, ["intake", "intake-in", SOURCE], 2)
        self.controller = self.new()

    def new(self) -> FlinkController:
        """A controller of another process."""
        return FlinkController(self.cluster, lambda _: self.manager, self.clock)

    def job(self, name: str = "scorer") -> FakeJob:
        """The one that was started last."""
        return self.manager.job(name)

    def open(self, name: str, topic: str, began_ms: int = 5) -> FakeTransaction:
        """A transaction that is open."""
        self.now_ms = began_ms
        made = self.cluster.begin(name)
        made.produce(topic, 0)
        return made

    def effects(self) -> list[str]:
        """Requests that change something, from now on."""
        heard: list[str] = []
        self.manager.on_call = lambda call: heard.append(call) if not call.startswith("GET ") else None
        return heard
