"""One seed, one run: the world, the product and the checker put together."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from topicshift.acts.context import MigrationContext, Ports
from topicshift.acts.open import open_migration
from topicshift.acts.rollback import going_back, refuse_while_going_back
from topicshift.adapters.controllers.manual import ManualController
from topicshift.adapters.controllers.route import RouteController
from topicshift.core.engine.freeze import Freeze, abandoned
from topicshift.core.engine.words import Act
from topicshift.core.errors import DrainTimedOut, NotFound, OwnershipLost, Refused, TopicshiftError
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeEvidence

from . import checker, orchestra
from .faults import Faulty, Injector
from .kernel import BASE, InlineExecutor, Kernel, OutOfTime, Process, SimClock, drive
from .manual import ManualProducer, back_by_hand
from .people import People, Press
from .retirement import RetirementRun, cancel, retire
from .routes import RouteOf
from .runbook import Operator
from .scenario import Scenario
from .simports import SimExecutor, SimJournal, SimReader, SimVerifier, describe_call, order_verdict
from .specs import IMPACT, SimContext, spec_of
from .world import APP_FAULTS, HANDS, SOURCE, TARGET, Hand, World, lay_on

SAFETY_S = 280.0
"""The longest time in which faults may strike."""
ASKED_BACK_S = 215.0
"""For so long a rollback that was asked for may be on its way to its first row: whoever is asked may take 200 s."""

BY_HAND_S = 3.0
"""A person who is told to start applications by hand has done it after so long."""

LIVENESS_S = 700.0
"""Once all is healed, everything has to come to its end within this time."""
MOST_RETIREMENTS = 8
"""The DAG of the retirement runs so often at most."""
BY_HAND: dict[str, Callable[[MigrationContext], Any]] = {"retirement_cancelled": cancel, "retire_asked": retire}
"""What a person may do about a retirement."""
READ_S, IDLE_S = 600.0, 40.0
"""At the end of a run groups read on for so long, and no longer than so long after the last record."""


@dataclass
class Result:
    """What came of one seed."""

    scenario: Scenario
    violations: list[checker.Violation]
    outcome: str
    calls: int
    faults: Counter[str]
    seconds: float
    history: Any = field(repr=False, default=None)


class Simulation:
    """The run of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.kernel = Kernel(f"kernel {scenario.seed}")
        self.world = World(self.kernel, random.Random(f"world {scenario.seed}"), scenario.shape)
        self.history = self.world.history
        self.journal = SimJournal(_True(self.kernel), self.history, self.kernel)
        self.evidence = FakeEvidence()
        self.injector = Injector(self.kernel, self.history, scenario.faults)
        self.people = People(self.world, scenario.moods)
        self.runs: list[orchestra.DagRun] = []
        self.forms: dict[tuple[str, str], tuple[str, Mapping[str, Any], Press]] = {}
        """What is shown to people last for each task: the question, what it is about, and what takes an answer."""
        self.verifiers: dict[str, SimVerifier] = {}
        self.processes: list[Process] = []
        self.errors: dict[str, str] = {}
        self.said: dict[str, str] = {}
        self.healed = False
        self._executor = InlineExecutor()
        self._milestones: dict[str, list[Hand]] = {}
        self._resuming: orchestra.Task | None = None
        self._rollbacks = 0
        self.retirements: list[RetirementRun] = []
        self._retirement_due = False
        self._asked_back: float | None = None
        self._by_hand_at = 0.0
        self._of: dict[str, str] = {}
        self.beside: dict[str, str] = {}
        """Commands that go on with a migration of the name given here, under whoever owns it."""
        self.operator = Operator(self)
        self._look_again = 0.0
        timed = [5.0 + hand.at for hand in scenario.hands if not hand.after]
        self._last_hand = max([30.0, *timed])

    # ------------------------------------------------------------------------------------------- for orchestrators

    def process(self, name: str, body: Callable[[], Any]) -> Process:
        """A new process of the product."""
        made = Process(self.kernel, name, body, skew=0.0 if self.healed else self.scenario.skew)
        self.processes.append(made)
        return made

    @cached_property
    def spec(self) -> Spec:
        """The spec that this migration follows."""
        return spec_of(self.scenario, self.world)

    def context(self, process: Process, owner: str) -> MigrationContext:
        """The context of one process that acts for an owner; the first task of a run opens the migration.

        Raises ``Refused`` for a later one where the run owns none any more, as the product's tasks do.
        """
        ports = self._ports(process)
        joined = self._join.get(owner)
        if joined is not None:
            claim, row = joined(ports)
        elif any(r.owner == owner and r.at for r in self.runs) and not self.journal.find(owner=owner):
            raise Refused(f"The run {owner} owns no migration (any more).")
        else:
            claim, row = open_migration(
                self.spec, admin=ports.admin, journal=ports.journal, owner=owner, owner_alive=self.owner_alive
            )
        ports.verifier = self._wrap(
            self.verifiers.setdefault(row.migration_id, SimVerifier(self.world)), "verifier", process
        )
        return SimContext(
            ports=ports,
            row=row,
            claim=claim,
            holder=process.name,
            log=lambda text: self.note(process.name, "log", text),
            began_at=ports.clock.now(),
        )

    @property
    def _join(self) -> dict[str, Callable[[Ports], Any]]:
        def same_owner(ports: Ports, migration: str = "") -> Any:
            row = ports.journal.current(migration or self.migration_id())
            return Claim(row.migration_id, row.epoch, row.owner), row

        out: dict[str, Callable[[Ports], Any]] = {"command": same_owner, "watch": same_owner}
        for owner, named in self.beside.items():
            out[owner] = lambda ports, named=named: same_owner(ports, named)
        for owner in self._of:
            out[owner] = lambda ports, owner=owner: self._take_over(ports, owner)
        return out

    def _take_over(self, ports: Ports, owner: str) -> Any:
        if owner.startswith("topic_retirement"):
            refuse_while_going_back(ports.journal, self._of[owner])
        claim = ports.journal.take_over(self._of[owner], owner)
        return claim, ports.journal.current(claim.migration_id)

    def migration_id(self) -> str:
        """The latest migration of the source. Raises ``NotFound`` where there is none yet."""
        rows = self.journal.find(source=SOURCE)
        if not rows:
            raise NotFound(f"The journal has no migration of {SOURCE}.")
        return rows[-1].migration_id

    def _wrap(self, port: Any, name: str, process: Process) -> Any:
        return Faulty(port, name, process, self.injector, describe=lambda *call: describe_call(self.world, *call))

    def _ports(self, process: Process) -> Ports:
        clock = SimClock(process)
        admin = self._wrap(self.world.cluster, "admin", process)
        journal = self._wrap(self.journal, "journal", process)
        admin.acted = journal.acted = clock.acted
        executor = SimExecutor(process)
        executor.run = lambda work: drive(process, work())  # type: ignore[attr-defined]

        def controller(kind: str, _admin: Any) -> Any:
            if kind == "manual":
                return ManualController(admin)
            return RouteController(self._wrap(RouteOf(self.world, process), "routes", process), clock)

        return Ports(
            journal=journal,
            evidence=self._wrap(self.evidence, "evidence", process),
            clock=clock,
            executor=executor,  # type: ignore[arg-type]
            make_admin=lambda: admin,
            make_reader=lambda: self._wrap(SimReader(self.world), "reader", process),
            make_controller=controller,
            verifier=None,  # type: ignore[arg-type]
            run_job=self._job,
            owner_alive=self.owner_alive,
        )

    def _job(self, ctx: MigrationContext, act: Act) -> None:
        """What stands for spark-submit: takes a while, and leaves its result as evidence."""
        migration = ctx.row.migration_id
        if act is Act.MEASURE_IMPACT:
            ctx.clock.sleep(3.0)
            ctx.write("impact.json", json.dumps(IMPACT))
        elif act is Act.START_VERIFIER:
            self.verifiers[migration].begin()
        elif act is Act.PROVE_ORDER:
            fence = self._fence_file(migration)
            verdict = order_verdict(self.world, fence)  # Spark fixes the ends that it reads to when it starts
            ctx.clock.sleep(3.0)
            told = {} if fence is None else {"fence_offsets": fence["fence_offsets"]}
            ctx.write("order_proof.json", json.dumps({"verdict": verdict, **told}))

    def _fence_file(self, migration: str) -> Any:
        data = self.evidence.read(migration, "fence.json")
        return None if data is None else json.loads(data)

    def owner_alive(self, owner: str) -> bool | None:
        """Whether the run of this name lives, as Airflow would tell."""
        return next((r.alive for r in self.runs if r.owner == owner), None)

    def note(self, who: str, what: str, text: str) -> None:
        """A line of a process's log."""
        _, by_hand, where = text.partition("START BY HAND on ")
        if by_hand:
            topic = where.split(":", 1)[0]
            self._by_hand_at = self.kernel.now + BY_HAND_S
            self.kernel.after(BY_HAND_S, lambda: back_by_hand(self.world, topic))
        if self.said.get(who) != text:
            self.said[who] = text
            self.history.add(who, "note", kind=what, text=text)

    def broken(self, who: str, error: BaseException) -> None:
        """A process ended with an error that is none of the product's."""
        self.errors[who] = f"{type(error).__name__}: {error}"
        self.last_error = error

    # ------------------------------------------------------------------------------------------------- the run

    def run(self) -> Result:
        """From the beginning to the verdict."""
        shape, h = self.scenario.shape, self.history
        required = (
            ["approve.plan", "stop_producers.go", "switch_producers.switch"]
            if self.scenario.approvals == "required"
            else []
        )
        required += ["retire.approve"] if required else []
        required += ["stop_producers.fence"] if shape.manual_producers else []
        h.add("world", "world", source=SOURCE, target=TARGET, order=shape.order, budget_s=shape.budget_s,
              groups=[c.group for c in self.world.consumers], required=required,
              calm=not self.scenario.parts and not self.scenario.skew, skew=self.scenario.skew,
              retire_after_s=shape.retire_after_s, scream_s=shape.scream_s,
              retention_s=max(0, shape.retention_ms) / 1000,
              windows=shape.window and [(at, at + shape.window.open_s) for at in shape.window.opens])  # fmt: skip
        self.world.begin()
        for hand in self.scenario.hands:
            if hand.after:
                self._milestones.setdefault(hand.after, []).append(hand)
            else:
                self.kernel.at(5.0 + hand.at, lambda hand=hand: self._lay_on(hand))
        if self._milestones:
            self.kernel.every(0.5, self._watch_milestones)
        self.kernel.every(10.0, self._watch_freeze)
        self.kernel.after(5.0, self._trigger)
        try:
            self.kernel.run(SAFETY_S, self._quiet_already)
            self._heal()
            self.kernel.run(self.kernel.now + LIVENESS_S, lambda: self.operator.gave_up or self.all_over())
            self.kernel.run(self.kernel.now + shape.budget_s + checker.SLACK_S, self._all_wrote())
            h.add("world", "quiet")
            self.world.quiet = True
            self.kernel.run(self.kernel.now + READ_S, self._all_read())
        except OutOfTime as error:
            self.errors["kernel"] = str(error)
        self._end()
        violations = checker.judge(h)
        self._let_go()
        kinds: Counter[str] = Counter(f.kind for f in self.injector.hit)
        kinds.update(e["hand"] for e in h.of("hand") if e["did"] is not False)
        return Result(self.scenario, violations, self._outcome(), self.injector.calls, kinds, self.kernel.now, h)

    def _trigger(self) -> None:
        run = orchestra.DagRun(self, f"run{len(self.runs) + 1}")
        self.runs.append(run)
        run.begin()

    def _quiet_already(self) -> bool:
        """Nothing will come of itself any more, and every hand was laid on."""
        return self.all_over() and self.kernel.now > self._last_hand

    def _all_wrote(self) -> Callable[[], bool]:
        """Whether every producer has written since now."""
        events, seen, wrote = self.history.events, [len(self.history.events)], set[str]()

        def all_wrote() -> bool:
            wrote.update(e.who for e in events[seen[0] :] if e.what == "produce" and e["outcome"] == "ok")
            seen[0] = len(events)
            return all(i.name in wrote for p in self.world.producers for i in p.instances if i.alive)

        return all_wrote

    def _all_read(self) -> Callable[[], bool]:
        """Whether every group has read what lies in the topic that it is on, or reads nothing more."""
        seen, since = [-1], [self.kernel.now]

        def all_read() -> bool:
            if len(self.history.events) != seen[0]:
                seen[0], since[0] = len(self.history.events), self.kernel.now
            return self._at_ends() or self.kernel.now - since[0] > IDLE_S

        return all_read

    def _at_ends(self) -> bool:
        cluster = self.world.cluster
        for consumer in self.world.consumers:
            topic = _place(consumer)
            if topic is None or consumer.coordinator.rebalancing:
                return False
            for p in range(cluster.partitions(topic) or 0):
                bounds = cluster.bounds(topic, p)
                if bounds is not None and cluster.committed(consumer.group, topic, p) != bounds[1]:
                    return False
        return True

    def all_over(self) -> bool:
        if self._asked_back is not None and self.kernel.now < self._asked_back + ASKED_BACK_S:
            return False
        if self.kernel.now <= self._by_hand_at or self._retirement_due:
            return False
        if any(r.state in ("running", "failing") for r in (*self.runs, *self.retirements)):
            return False
        rows = self.journal.find(source=SOURCE)
        return bool(rows) and all(r.state != "open" and not r.active for r in rows)

    def _watch_milestones(self) -> float | None:
        for row in self.journal.find(source=SOURCE):
            seat = self.journal.seat(row.migration_id)
            names = [s.step for s in self.journal.steps(row.migration_id)] + ([seat.act] if seat is not None else [])
            for name in names:
                for hand in self._milestones.pop(name, []):
                    self._last_hand = max(self._last_hand, self.kernel.now + hand.at + 1.0)
                    self.kernel.after(hand.at, lambda hand=hand: self._lay_on(hand))
        return -1.0 if not self._milestones or self.healed else None

    def _watch_freeze(self) -> float | None:
        """The DAG that looks every few seconds for a freeze that nobody ends."""
        task = self._resuming
        if task is not None and not task.stopped and task.process is not None and not task.process.over:
            return None
        for row in self.journal.find(source=SOURCE):
            freeze, switch, back = (
                self.journal.step(row.migration_id, s) for s in ("freeze", "switch_producers", "rollback")
            )
            if row.state != "open" or freeze is None or freeze.state not in ("intended", "undoing"):
                continue
            over, _ = abandoned(
                freeze=Freeze.from_data(freeze.data),
                owner_alive=self.owner_alive(row.owner),
                rolling_back=back is not None and back.state == "intended",
                pointing=switch is not None and switch.state in ("intended", "done", "undoing"),
                now=self.kernel.time,
            )
            if over and self.kernel.now >= self._look_again:
                self._look_again = self.kernel.now + (60.0 if self._resuming is not None else 0.0)
                self._resuming = orchestra.Task(self, "watch", "resume", orchestra.watch, lambda *_: None).start()
        return None

    def _lay_on(self, hand: Hand) -> None:
        if self.healed:
            return
        if hand.what in HANDS or hand.what in APP_FAULTS:
            lay_on(self.world, hand)
            return
        did = self._peoples_hand(hand.what)
        self.history.add("person", "hand", hand=hand.what, did=did, amount=hand.amount)

    def _peoples_hand(self, what: str) -> object:
        run = self.runs[-1] if self.runs else None
        rng = self.world.rng
        if what == "triggered_twice":
            self._trigger()
            return True
        if run is None or not self.journal.find(source=SOURCE):
            return False
        if what == "cleared" and run.state != "deleted":
            run.clear(rng.randrange(0, 4))
        elif what == "marked_success":
            run.mark_success()
        elif what == "marked_failed" and run.state == "running":
            run.fail("marked as failed by hand")
        elif what == "run_deleted":
            run.delete()
        elif what == "run_paused":
            run.paused_until = self.kernel.now + rng.uniform(20.0, 200.0)
        elif what == "verifier_dies":
            for verifier in self.verifiers.values():
                verifier.die()
        elif what in ("command_line", "second_advancer"):
            orchestra.Task(self, "command", "advance", orchestra.forward, lambda *_: None, retries=0).start()
        elif what == "resume_asked":
            orchestra.Task(self, "command", "resume", orchestra.resume, lambda *_: None).start()
        elif what == "rollback_asked":
            self.roll_back()
        elif what in BY_HAND:
            return self.by_hand(what, BY_HAND[what])
        else:
            return False
        return True

    def roll_back(self, migration: str = "") -> orchestra.Task:
        self._rollbacks += 1
        self._asked_back = self.kernel.now
        owner = f"topic_rollback/{self._rollbacks}"
        self._of[owner] = migration or self.migration_id()
        final = (OwnershipLost, DrainTimedOut)  # one that was called off is asked for anew by a person alone
        return orchestra.Task(self, owner, "rollback", orchestra.rollback, self._rolled_back, final=final).start()

    def _rolled_back(self, how: str, result: Any) -> None:
        self._asked_back = None
        self.note("topic_rollback", "run", f"{how}: {result}"[:300])

    def retire_later(self) -> None:
        """The migration is done, or its retirement had to wait or has failed: the DAG runs again on another day."""
        if not self.scenario.shape.retire_after_s or len(self.retirements) >= MOST_RETIREMENTS:
            return
        self._retirement_due = True
        self.kernel.after(self.world.rng.uniform(10.0, 25.0), self.retire)

    def retire(self) -> bool:
        """One run of the retirement's DAG, if there is a finished migration, and no other run of it."""
        self._retirement_due = False
        finished = [r for r in self.journal.find(source=SOURCE) if r.state == "done" and not self._goes_back(r)]
        if not finished or any(r.state == "running" for r in self.retirements):
            return False
        owner = f"topic_retirement/{len(self.retirements) + 1}"
        self._of[owner] = finished[-1].migration_id
        self.retirements.append(RetirementRun(self, owner))
        self.retirements[-1].begin()
        return True

    def _goes_back(self, row: Any) -> bool:
        return going_back(self.journal, row.migration_id)

    def by_hand(self, name: str, work: Callable[[MigrationContext], Any]) -> bool:
        """A retirement, or its end, that somebody asks for."""
        owner = f"topic_retirement/hand{len(self._of)}"
        self._of[owner] = self.migration_id()
        orchestra.Task(self, owner, name, work, lambda *_: None, retries=0).start()
        return True

    def operator_looks(self, run: orchestra.DagRun) -> None:
        """A run has failed: somebody clears it after a while, or rolls it back."""
        rng = self.world.rng
        if self.healed:
            return
        if run.cleared < 2 and rng.random() < 0.7:
            again = lambda: run.clear(rng.randrange(0, 3)) if run.state == "failed" and not self.healed else None  # noqa: E731
            self.kernel.after(rng.uniform(10.0, 60.0), again)
        elif rng.random() < 0.5:
            self.kernel.after(rng.uniform(10.0, 60.0), lambda: None if self.healed else self.roll_back())

    # ------------------------------------------------------------------------------------------------ liveness

    def _heal(self) -> None:
        """All faults end: what is stalled wakes, what is broken works, what was paused goes on."""
        self.healed = self.injector.healed = self.people.healed = True
        self._milestones.clear()
        self.history.add("world", "healed")
        self.world.heal()
        for process in self.processes:
            process.skew = 0.0
            process._stalled_until = min(process._stalled_until, self.kernel.now)
        for run in self.runs:
            run.paused_until = -1.0
        self.operator.begin()

    def _let_go(self) -> None:
        """End what is still at work; what it says then is not told."""
        said = len(self.history.events)
        for process in self.processes:
            process.end()
        del self.history.events[said:]

    def fall_apart(self) -> None:
        """After the run: break the circles in which its parts hold each other, so that the collector finds little."""
        world = self.world
        apps = (*world.producers, *world.consumers)
        for part in (*self.processes, *self.runs, *apps, world.cluster, world.routes, world, self.kernel):
            vars(part).clear()
        for part in (self.journal, self.injector, self.operator, self):
            vars(part).clear()

    def _end(self) -> None:
        world, rows = self.world, []
        for row in self.journal.find(source=SOURCE):
            why = next((t for w, t in reversed(list(self.said.items())) if t), "")
            rows.append(
                {"migration": row.migration_id, "state": row.state, "active": row.active, "why": why, "ends_by": ""}
            )
        last = self.journal.find(source=SOURCE)
        topics = (SOURCE, TARGET)
        self.history.add(
            "world", "end",
            places={c.group: _place(c) for c in world.consumers},
            commits={
                (c.group, t, p): world.cluster.committed(c.group, t, p)
                for c in world.consumers for t in topics for p in range(world.cluster.partitions(t) or 0)
            },
            ids={t: world.cluster.topic_id(t) for t in topics},
            state=last[-1].state if last else "none",
            why=rows[-1]["why"] if rows else "",
            migrations=rows,
            broken=self.errors,
            instances=[i.name for p in world.producers for i in p.instances if i.alive and not self._is_persons(p)],
            closed=self.operator.closed,
            denied=sorted({a.operation for a in world.cluster.acls() if a.permission == "DENY" and a.name == SOURCE}),
            accepted=[a for r in last for a in self._accepted(r.migration_id)],
        )  # fmt: skip

    def _accepted(self, migration: str) -> list[dict[str, Any]]:
        """The list of late records that a person has accepted, as its file has it."""
        asked, data = self.journal.step(migration, "ask:verify.strays"), self.evidence.read(migration, "strays.json")
        if asked is None or data is None or asked.data.get("said") != "yes":
            return []
        strays = json.loads(data)
        return [
            {
                "topic_id": strays["topic_id"],
                "groups": g["unseen_by"],
                "records": {(r["partition"], r["offset"]) for r in g["records"]},
            }
            for g in strays["generations"]
        ]

    def _is_persons(self, app: Any) -> bool:
        """Whether a person keeps it stopped: one that said no, or was never told to start it."""
        return isinstance(app, ManualProducer) and not app.running

    def _outcome(self) -> str:
        rows = self.journal.find(source=SOURCE)
        if not rows:
            return "never begun"
        row = rows[-1]
        if row.active or row.state == "open":
            return "stands with reason"
        if self.operator.closed:
            return "closed, with what is left named"
        resumed = any(s.step == "freeze" and s.state == "undone" for s in self.journal.steps(row.migration_id))
        return f"{row.state}, resumed on the source" if resumed and row.state == "failed" else row.state


def _place(consumer: Any) -> str | None:
    topics = {i.topic for i in consumer.instances if i.alive and i.joined}
    return topics.pop() if len(topics) == 1 else None


class _True:
    """The journal's database keeps true time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def now(self) -> Any:
        return self._kernel.time

    def sleep(self, seconds: float) -> None:
        raise RuntimeError("the journal does not sleep")


def simulate(scenario: Scenario) -> Result:
    """Run one scenario."""
    simulation = Simulation(scenario)
    result = simulation.run()
    simulation.fall_apart()
    return result


__all__ = ["BASE", "Result", "Simulation", "TopicshiftError", "replace", "simulate"]
