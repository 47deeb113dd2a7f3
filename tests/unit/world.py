"""One world for the tests of the engine and its acts: a cluster, a journal, applications, people, and a clock.

A test opens a migration, lets it :meth:`World.advance`, and looks at what came of it. Each call of ``advance`` is a new
process, as a task of Airflow is; :class:`Fuse` kills it at any call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.unit.plan_world import IMPACT

from topicshift.acts.advance import Asking, Done, Outcome, Waiting, advance
from topicshift.acts.context import MigrationContext, Ports
from topicshift.acts.open import open_migration
from topicshift.acts.questions import record_answer, record_question
from topicshift.adapters.controllers.shadow import ShadowController
from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.engine.people import Person
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Act, Row, row_of
from topicshift.core.errors import TopicshiftError
from topicshift.core.kafka.cluster import Acl, GroupMember
from topicshift.core.policy.model import Installation
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, ControlContext, DrainReader, Executor, Participant
from topicshift.testing.drain_reader import AdminDrainReader
from topicshift.testing.fake_controllers import FakeController
from topicshift.testing.fake_journal import FakeEvidence, FakeJournal, ManualClock
from topicshift.testing.fake_ports import FakeVerifier, InlineExecutor
from topicshift.testing.fake_rehearser import FakeRehearser
from topicshift.testing.fake_replayer import FakeReplayer
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET, PARTITIONS, OWNER = "payments", "payments-v2", 3, "topic_migration/run-1"
AUTO = {"plan": "auto", "freeze": "auto", "retire": "auto"}
SPEC: dict[str, Any] = {
    "source": SOURCE,
    "target": TARGET,
    "partitions": 6,
    "approvals": AUTO,
    "producers": [
        {"name": "checkout", "principal": "User:checkout"},
        {"name": "billing", "principal": "User:billing"},
    ],
    "consumers": [{"name": "ledger", "group": "ledger-g"}, {"name": "fraud", "group": "fraud-g"}],
}


def said(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec whose consumers say that they store no offsets: where the plan needs no person, it has to be said."""
    return spec | {"consumers": [{"stored_offsets": "none", **c} for c in spec["consumers"]]}


WRITERS = ("User:checkout", "User:billing", "User:batch")


class Killed(BaseException):
    """The process ended here."""


class Fuse:
    """Kills at the n-th call that passes through it, counted from 0; None never does."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self, _call: str = "") -> None:
        """One call passes."""
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Killed


class WorldJournal(FakeJournal):
    """A journal whose caller may be killed before and after each write."""

    def __init__(self, clock: ManualClock, fuse: Fuse) -> None:
        super().__init__(clock)
        self._fuse = fuse

    def intend(self, *args: Any, **kwargs: Any) -> Any:
        self._fuse.burn()
        row = super().intend(*args, **kwargs)
        self._fuse.burn()
        return row

    def finish(self, *args: Any, **kwargs: Any) -> Any:
        self._fuse.burn()
        row = super().finish(*args, **kwargs)
        self._fuse.burn()
        return row

    def set_state(self, *args: Any, **kwargs: Any) -> None:
        self._fuse.burn()
        super().set_state(*args, **kwargs)
        self._fuse.burn()


class Applications(FakeController):
    """Applications of one kind; groups that are released to the target commit its log start, as clients do."""

    def __init__(
        self, world: World, kind: str = "route", *, needs_person: bool = False, seeded: bool | None = None
    ) -> None:
        super().__init__(kind, needs_person=needs_person, seeded=seeded)
        self.world = world

    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self.world.fuse.burn()
        super().arm(ctx, participants)
        self.armed |= {p.name: True for p in participants}  # one that will not stop follows closely all the same

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self.world.fuse.burn()
        super().disarm(ctx, participants)

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        if not self.needs_person:
            self._do(lambda: super(Applications, self).stop(ctx, participants))
            for p in participants:
                if self.seeded and p.group is not None and p.name not in self.deaf:
                    self.world.leave(p.group)

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        if not self.needs_person:
            self._do(lambda: super(Applications, self).point(ctx, participants, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        if not self.needs_person:
            self._do(lambda: super(Applications, self).start(ctx, participants))
            for p in participants:
                if p.group is not None and p.name not in self.deaf:
                    self.world.join(p.group, self.topic.get(p.name, ctx.source))
                    if self.topic.get(p.name) == ctx.target and not self.seeded:
                        self.world.seed(p.group)

    def _do(self, act: Callable[[], None]) -> None:
        self.world.fuse.burn()
        act()
        self.world.fuse.burn()


class World:
    """See the module. ``at``: when it begins. Other keyword arguments change the spec."""

    policy: Installation | TopicshiftError | None = None
    """The installation policy; an error: it cannot be read."""
    order_proof: bytes | None = None
    """What Spark finds of the order of keys; None: a bare verdict, ``proof``."""
    report: Any = None
    """Draws the report, where a test wants one."""

    def __init__(self, *, authorizer: bool = True, at: datetime | None = None, **changes: Any) -> None:
        self.fuse = Fuse()
        self.clock = ManualClock(at)
        self.journal = WorldJournal(self.clock, self.fuse)
        self.evidence = FakeEvidence()
        self.verifier = FakeVerifier()
        self.executor: Executor = InlineExecutor()
        self.cluster = FakeCluster(authorizer=authorizer, now_ms=lambda: int(self.clock.now().timestamp() * 1000))
        self.replayer = FakeReplayer(self.cluster, self.fuse.burn)
        self.rehearser = FakeRehearser(self.cluster, self.fuse.burn)
        self.controllers = {
            "route": Applications(self),
            "manual": Applications(self, "manual", needs_person=True),
            "command": Applications(self, "command", seeded=True),
        }
        self.proof = "proven"
        self.said: list[str] = []
        self.processes = 0
        self.spec: Spec = spec_from_params(said(SPEC | changes))
        self.source = self.spec.source
        self.cluster.create_topic(self.source, PARTITIONS, 1, {})
        if authorizer:
            self.cluster.create_acls(Acl("TOPIC", self.source, "LITERAL", w, "*", "WRITE", "ALLOW") for w in WRITERS)
        for partition in range(PARTITIONS):
            self.cluster.produce(self.source, partition, 10, producer_id=self.cluster.new_producer_id())
        for consumer in self.spec.consumers:
            self.join(consumer.group, self.source)
            self.drain(consumer.group, self.source)
        self.claim: Claim = self.open()
        self.before = self.acls()
        """ACLs of the source before the migration."""
        self.cluster.calls.clear()
        self.cluster.on_call = self.fuse.burn

    @property
    def apps(self) -> Applications:
        """The applications under a controller."""
        return self.controllers["route"]

    # ------------------------------------------------------------------------------------------------ the world

    def join(self, group: str, topic: str) -> None:
        """One member of the group reads the topic."""
        self.cluster.join(
            group, GroupMember(f"{group}-1", f"{group}-1", "h", assignment={topic: (0,)}, topics=(topic,))
        )

    def leave(self, group: str) -> None:
        """Its member leaves."""
        self.cluster.leave(group, f"{group}-1")

    def drain(self, group: str, topic: str = SOURCE) -> None:
        """The group reads everything."""
        self.cluster.commit(group, topic, {p: o.end or 0 for p, o in _quietly(self.cluster, topic).items()})

    def seed(self, group: str) -> None:
        """The group commits the log start of every partition of the target where it has no commit."""
        target = self.spec.target or TARGET
        ends = _quietly(self.cluster, target)
        held = self.cluster._groups[group].commits
        self.cluster.commit(group, target, {p: o.log_start or 0 for p, o in ends.items() if (target, p) not in held})

    def write(self, topic: str = SOURCE, partition: int = 0, records: int = 1) -> None:
        """Somebody whom no DENY stops writes."""
        self.cluster.produce(topic, partition, records)

    def where(self) -> set[tuple[str, bool]]:
        """Topic and state (whether it runs) of every producer."""
        found = set()
        for p in self.spec.producers:
            apps = self.controllers[p.kind]
            found.add((apps.topic.get(p.name, self.spec.source), apps.running.get(p.name, True)))
        return found

    def acls(self, topic: str = SOURCE) -> set[Acl]:
        """ACLs of a topic."""
        return {a for a in self.cluster._acls if a.name == topic}

    def denied(self) -> set[str]:
        """Principals that are denied to write to the source."""
        return {a.principal for a in self.acls() if a.operation == "WRITE" and a.permission == "DENY"}

    # ------------------------------------------------------------------------------------------- the migration

    def open(self, owner: str = OWNER) -> Claim:
        """Open the migration for this owner."""
        claim, _ = open_migration(
            self.spec, admin=self.cluster, journal=self.journal, owner=owner, owner_alive=lambda _: True
        )
        return claim

    def tick(self) -> None:
        """No two processes begin at the same moment."""
        self.clock.advance(0.001)

    def reader(self) -> DrainReader:
        """What certificates are made from."""
        return AdminDrainReader(self.cluster, self._tails)

    def context(self, holder: str | None = None, *, spark: bool = True, owner: str | None = None) -> MigrationContext:
        """A new process that advances the migration; ``spark``: whether it runs Spark jobs."""
        self.processes += 1
        self.tick()
        row = self.journal.current(self.claim.migration_id)
        return MigrationContext(
            ports=Ports(
                journal=self.journal,
                evidence=self.evidence,
                clock=self.clock,
                executor=self.executor,
                make_admin=lambda: self.cluster,
                make_reader=self.reader,
                make_replayer=lambda: self.replayer,
                make_rehearser=lambda: self.rehearser,
                make_shadow_controller=ShadowController,
                make_controller=lambda kind, _admin: self.controllers[kind],
                verifier=self.verifier,
                run_job=self._job if spark else None,
                report=self.report,
                installation=self._installation,
            ),
            row=row,
            claim=Claim(row.migration_id, row.epoch, owner or row.owner),
            holder=holder or f"process-{self.processes}",
            log=self.said.append,
            began_at=self.clock.now(),
        )

    def _installation(self) -> Installation | None:
        if isinstance(self.policy, TopicshiftError):
            raise self.policy
        return self.policy

    def _tails(self, topic: str, ranges: Sequence[TailRange]) -> Mapping[TailRange, Tail]:
        return {r: Tail(found=True, complete=True, records=r.end - r.start) for r in ranges}

    def _job(self, ctx: MigrationContext, act: Act) -> None:
        if act is Act.START_VERIFIER:
            self.verifier.start()
        elif act is Act.MEASURE_IMPACT:
            records = [200, 180, 170, 160, 150, 140]
            candidate = {"partitions": 6, "max_partition_share": 0.2, "partition_records": records}
            impact = IMPACT | {"topic": ctx.row.source, "candidates": [candidate]}
            ctx.write("impact.json", json.dumps(impact))
        else:
            bare = json.dumps({"verdict": self.proof, "checks": [], "reason": ""})
            ctx.write("order_proof.json", self.order_proof or bare)

    def advance(self, ctx: MigrationContext | None = None, **how: Any) -> Outcome:
        """Let a process advance the migration; see :func:`topicshift.acts.advance.advance`."""
        return advance(ctx or self.context(), **how)

    def advanced(self, **how: Any) -> Done:
        """Advance to the end of what was asked for, with a yes to every question, as tasks that are woken again do."""
        for _ in range(50):
            outcome = self.advance(**how)
            if isinstance(outcome, Asking):
                self.answer(outcome)
            elif isinstance(outcome, Done):
                return outcome
        raise AssertionError(f"it comes to no end: {outcome}")

    def waits(self, **how: Any) -> str:
        """What it waits for, when it has to."""
        outcome = self.advance(**how)
        assert isinstance(outcome, Waiting), outcome
        return outcome.why

    def asks(self, **how: Any) -> Asking:
        """What it asks, when it asks."""
        outcome = self.advance(**how)
        assert isinstance(outcome, Asking), outcome
        return outcome

    def answer(self, asking: Asking, said: Any = "yes", actor: str = "user:ada", person: Person | None = None) -> None:
        """A person sees the question, and answers it."""
        self.show(asking)
        self.answer_late(asking, said, actor, person)

    def show(self, asking: Asking, triggered_by: str = "") -> None:
        """A person sees the question, in a run that this user has triggered."""
        ctx = self.context()
        ctx.triggered_by = triggered_by
        ctx.refresh()
        record_question(ctx, asking.ask, asking.subject, asking.about, asking.decision.why)

    def answer_late(
        self, asking: Asking, said: Any = "yes", actor: str = "user:ada", person: Person | None = None
    ) -> None:
        """A person answers a question that was shown a while ago."""
        ctx = self.context()
        ctx.refresh()
        record_answer(ctx, asking.ask, asking.subject, asking.about, said, actor=actor, person=person)

    def until_done(self, kills: Sequence[int], **how: Any) -> Done:
        """Advance to the end; each number kills the process at that call, and another one goes on."""
        for n in kills:
            self.fuse.left = n
            try:
                return self.advanced(**how)
            except Killed:
                self.clock.advance(31)  # until the seat of the killed one is free
            finally:
                self.fuse.left = None
        return self.advanced(**how)

    # --------------------------------------------------------------------------------------------- the journal

    def record(self) -> Record:
        """The migration as its journal has it."""
        return self.context().record()

    def state(self, row: Row, subject: str = "") -> str | None:
        """State of a journal row."""
        found = self.journal.step(self.claim.migration_id, row_of(row, subject))
        return None if found is None else found.state

    def data(self, row: Row, subject: str = "") -> Mapping[str, Any]:
        """Data of a journal row."""
        found = self.journal.step(self.claim.migration_id, row_of(row, subject))
        assert found is not None, f"{row} was never written"
        return found.data

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        """Data of every event of this kind."""
        return [e.data for e in self.journal.events(self.claim.migration_id) if e.kind == kind]

    def kinds(self) -> list[str]:
        """Kinds of all events."""
        return [e.kind for e in self.journal.events(self.claim.migration_id)]


def _quietly(cluster: FakeCluster, topic: str) -> Mapping[int, Any]:
    """Offsets of a topic, without a call that a test would count or a fuse would see."""
    held, cluster.on_call = cluster.on_call, None
    try:
        return cluster.offsets(topic)
    finally:
        cluster.on_call = held
        cluster.calls.pop()


def at_call(w: World, method: str, act: Any, *, when: Any = lambda: True) -> None:
    """Do something once, just before the cluster is asked this."""

    def look(called: str) -> None:
        if called == method and when():
            w.cluster.on_call = None
            act()

    w.cluster.on_call = look
