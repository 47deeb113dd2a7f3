"""The ports of the product over the simulated world: journal, drain reader, verifier, and what stands for Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.drain.strays import NamedRecord
from topicshift.core.errors import TopicshiftError, Unreadable
from topicshift.core.proof import audit
from topicshift.ports import Claim, MigrationRow, Seat, StepRow
from topicshift.testing.drain_reader import AdminDrainReader
from topicshift.testing.fake_journal import FakeJournal

from .history import History
from .kernel import BASE, Kernel, Process
from .world import World


class SimJournal(FakeJournal):
    """The fake journal, which tells the history what its rows say."""

    def __init__(self, clock: Any, history: History, kernel: Kernel) -> None:
        super().__init__(clock)
        self.history, self.kernel = history, kernel

    def _append(self, row: MigrationRow, kind: str, actor: str, data: Mapping[str, Any], at: str | None = None) -> None:
        super()._append(row, kind, actor, data, at)
        if kind in ("claimed", "reopened", "taken_over", "renewed", "seat_taken_over", "replaced"):
            self.history.add("journal", "epoch", migration=row.migration_id, epoch=row.epoch)
        if kind in ("claimed", "reopened"):
            self.history.add("journal", "state", migration=row.migration_id, state="open", active=False)
        elif kind == "state":
            self.history.add("journal", "state", migration=row.migration_id, state=data["state"], active=data["active"])
        if kind in ("claimed", "reopened", "state", "replaced"):
            self._tell_holders()
        elif kind == "plan":
            self.history.add("journal", "plan", migration=row.migration_id, plan_hash=data["plan_hash"])
        elif kind in ("step_intended", "step_finished"):
            self._tell_row(row.migration_id, data["step"])

    def _tell_holders(self) -> None:
        held = dict(self._topics)
        before = getattr(self, "_told", {})
        for key in {*held, *before}:
            if held.get(key) != before.get(key):
                self.history.add("journal", "holds", topic=key[1], migration=held.get(key))
        self._told = held

    def _tell_row(self, migration: str, step: str) -> None:
        row = self._steps[migration][step]
        record = row.data.get("record") if step == "fence" else None
        fence = None
        offsets = _fence_offsets(record)
        if isinstance(record, Mapping) and offsets:
            fence = {
                "topic_id": record.get("topic_id"),
                "offsets": {int(p): int(o) for p, o in offsets.items()},
            }
        by = self.kernel.running
        self.history.add(
            "journal", "row", migration=migration, step=step, state=row.state, fence=fence, epoch=row.epoch,
            by=by.name if by else "", since=by.since if by else 0.0,
        )  # fmt: skip

    def event(self, claim: Claim, kind: str, actor: str, data: Mapping[str, Any]) -> None:  # type: ignore[override]
        """As the port says; nobody asks for the event's hash."""
        self._append(self._owned(claim), kind, actor, audit.plain(data))

    def take_seat(self, claim: Claim, *args: Any, trace: Any = None, **kwargs: Any) -> tuple[Claim, Seat] | None:
        """As the port says; nobody reads here what an act was decided on."""
        got = super().take_seat(claim, *args, **kwargs)
        if got is not None:
            until = (datetime.fromisoformat(got[1].until) - BASE).total_seconds()
            self.history.add(got[1].holder, "seat", migration=claim.migration_id, until=until)
        return got

    def leave_seat(self, seat: Seat) -> None:
        """As the port says."""
        super().leave_seat(seat)
        self.history.add(seat.holder, "seat_left", migration=seat.migration_id)

    def finish(self, claim: Claim, step: str, data: Mapping[str, Any], state: str = "done") -> StepRow:
        """As the port says; a row that was undone is told too."""
        return super().finish(claim, step, data, state)


class SimReader(AdminDrainReader):
    """A drain reader over the simulated cluster; nothing in it waits."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster)
        self._world = world

    async def listing(self) -> GroupListing:
        """Every group."""
        return GroupListing(tuple(self._admin.groups()), True, "")

    async def tails(self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float) -> dict[TailRange, Tail]:
        """Read each range."""
        out: dict[TailRange, Tail] = {}
        for r in ranges:
            try:
                found = [x for x in self._world.cluster.fetch(topic, r.partition, r.start, 10_000) if x.offset < r.end]
            except TopicshiftError as error:
                out[r] = Tail(found=False, complete=False, error=str(error))
                continue
            out[r] = Tail(found=bool(found), complete=True, records=len(found))
        return out

    async def records(
        self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
    ) -> list[NamedRecord]:
        """The records themselves."""
        found = []
        for r in ranges:
            for x in self._world.cluster.fetch(topic, r.partition, r.start, most):
                if x.offset < r.end:
                    found.append(NamedRecord(r.partition, x.offset, x.key.encode()))
        return found[:most]

    async def timestamps(self, topic: str, starts: Mapping[int, int]) -> dict[int, int | None]:
        """Everything is fresh."""
        return dict.fromkeys(starts, self._world.kernel.ms)

    async def sizes(self, topic: str) -> dict[int, int]:
        """Small."""
        return dict.fromkeys(range(self._world.cluster.partitions(topic) or 0), 1000)

    async def close(self) -> None:
        """Nothing to close."""


class SimVerifier:
    """The armed verifier of one migration: it comes up, answers after a while, and may die."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._state: Literal["absent", "starting", "ready", "gone"] = "absent"
        self._answers: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """The Spark driver is started."""
        self._state = "starting"
        self._world.kernel.after(self._world.rng.uniform(1.0, 4.0), self._ready)

    def _ready(self) -> None:
        if self._state == "starting":
            self._state = "ready"

    def die(self) -> None:
        """The driver is killed; its heartbeat ends, and the Spark task is tried again after a while."""
        if self._state in ("starting", "ready"):
            self._state = "gone"
            self._world.kernel.after(self._world.rng.uniform(8.0, 30.0), self._again)

    def _again(self) -> None:
        if self._state == "gone":
            self.begin()

    def state(self) -> tuple[Literal["absent", "starting", "ready", "gone"], str]:
        """Where it is."""
        return self._state, ""

    def request(self, subject: str, certificate: bytes) -> None:
        """Ask for one certificate."""
        if self._state == "ready":
            self._world.kernel.after(self._world.rng.uniform(0.3, 2.0), lambda: self._answer(subject, certificate))

    def _answer(self, subject: str, certificate: bytes) -> None:
        if self._state == "ready":
            self._answers[subject] = {
                "question": hashlib.sha256(certificate).hexdigest(),
                "verdict": verdict(self._world, json.loads(certificate)),
            }

    def answer(self, subject: str) -> Mapping[str, Any] | None:
        """The latest answer."""
        return self._answers.get(subject)

    def release(self) -> None:
        """It may end."""
        if self._state != "absent":
            self._state = "gone"

    def abort(self) -> None:
        """It is called off."""
        self._state = "absent"


def verdict(world: World, certificate: Mapping[str, Any]) -> str:
    """What reading says about a certificate, from the records themselves."""
    topic, fence = certificate["topic"], certificate["fence_offsets"] or {}
    if world.cluster.topic_id(topic) != certificate["topic_id"]:
        return "fence_broken"
    for p, end in fence.items():
        bounds = world.cluster.bounds(topic, int(p))
        if bounds is None or bounds[1] != end:
            return "fence_broken"
    for group in certificate["groups"]:
        for row in group["partitions"]:
            p = row["partition"]
            at = world.cluster.committed(group["group"], topic, p)
            start = row["log_start"] if at is None else at
            if any(r.offset < fence.get(str(p), 0) for r in world.cluster.fetch(topic, p, start or 0, 10_000)):
                return "not_drained"
    return "verified"


def _fence_offsets(record: Any) -> Mapping[str, int]:
    return record["fence_offsets"] if isinstance(record, Mapping) else {}


def order_verdict(world: World, fence: Mapping[str, Any] | None) -> str:
    """What the order proof says, from the records themselves: nothing behind the fence, no key back in its numbers."""
    ends = _fence_offsets(fence)
    for p, end in ends.items():
        bounds = world.cluster.bounds(world.source, int(p))
        if bounds is None or bounds[1] < end:
            return "unknown"
    highest: dict[str, int] = {}
    for topic in (world.source, world.target):
        of_topic: dict[str, list[int]] = {}
        for p in range(world.cluster.partitions(topic) or 0):
            end = ends.get(str(p), 0) if topic == world.source else None
            for r in world.cluster.fetch(topic, p, 0, 100_000):
                if end is not None and r.offset >= end:
                    return "violated"
                of_topic.setdefault(r.key, []).append(r.seq)
        for key, seqs in of_topic.items():
            if min(seqs) < highest.get(key, -1):
                return "violated"
        for key, seqs in of_topic.items():
            highest[key] = max(seqs)
    return "proven"


def describe_call(world: World, port: str, method: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """What a call that changes the world does, in the checker's words. Taken before the effect."""
    if port == "routes" and method == "write":
        route, have = args[0], world.routes.read(world.source)
        before = world.routes.read_at if have is None else {g: e.topic for g, e in have.groups.items()}
        released = [g for g, e in route.groups.items() if e.topic == world.target and before.get(g) != world.target]
        return {
            "points": route.active,
            "pointed_before": have.active if have else world.routes.named,
            "released": released,
            "migration": route.migration,
            "state": route.state.value,
        }
    if method == "alter_commits":
        return {"group": args[0], "topic": args[1]}
    if method == "create_acls":
        denies = sorted(a.principal for a in args[0] if (a.name, a.permission) == (world.source, "DENY"))
        return {"denies": denies, "acls": [str(a) for a in args[0]]}
    if method == "alter_topic_configs":
        return {"topic": args[0]}
    if method == "delete_acls":
        return {"acls": [str(a) for a in args[0]]}
    if method == "delete_topic":
        return {"topic": args[0], "topic_id": world.cluster.topic_id(args[0])}
    return {}


Gather = Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]]


class SimExecutor:
    """Asks one question after the other; errors of the product are values, as the port says."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def gather(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The result of each call."""
        out: dict[str, Any] = {}
        for name, call in calls.items():
            try:
                out[name] = call()
            except TopicshiftError as error:
                out[name] = error
        return out


__all__ = ["SimExecutor", "SimJournal", "SimReader", "SimVerifier", "Unreadable", "describe_call", "order_verdict"]
