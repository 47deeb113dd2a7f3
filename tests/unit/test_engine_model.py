"""A model check of the protocol: every interleaving of a small world, with a kill after every instruction.

The world has two producers (``r`` follows a route, so the lease ends its pause; ``k`` stays stopped until somebody
starts it), consumer groups, a freeze clock in three phases (time to act; the margin; the lease is over), and one write
that goes round every control. Advancers ask :func:`next_act`, the very function that the product runs, take the seat,
and carry the act out instruction by instruction. Between any two instructions an advancer may be killed or stalled; a
stalled one loses its seat to the next, under a higher epoch, and what it does after it woke is refused.

One assumption is stated, not checked: an effect that was sent in time arrives before the lease is over. That is what
the margin of a lease is for.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from topicshift.core.engine import view as v
from topicshift.core.engine.decision import Decision, Kind
from topicshift.core.engine.engine import RULES, next_act
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Act, MigrationState, Row, StepState, row_of
from topicshift.core.spec.cutover import Cutover

TIME, MARGIN, OVER = range(3)
PRODUCERS = ("r", "k")
START = datetime(2026, 1, 1, tzinfo=UTC)
FREEZE = Freeze.begin(START, timedelta(seconds=120))
NOW = {TIME: START, MARGIN: FREEZE.act_until, OVER: FREEZE.lease_until + timedelta(seconds=1)}
SWITCHED_ROWS = (Row.SWITCH_PRODUCERS, Row.STOP_PRODUCERS, Row.CERTIFICATE, Row.VERIFICATION)


class Advancer(NamedTuple):
    """One act under way: the next instruction, and the epoch and clock under which the seat was taken."""

    act: Act
    subject: str
    epoch: int
    began: int
    at: int = 0
    stalled: bool = False


class Rows(tuple[tuple[str, StepState], ...]):
    """The journal's rows by name. Hundreds of thousands of worlds share a few hundred journals: hashed once."""

    def __hash__(self) -> int:
        try:
            return self.kept  # type: ignore[has-type,no-any-return]
        except AttributeError:
            self.kept = super().__hash__()
            return self.kept

    @functools.cached_property
    def states(self) -> dict[str, StepState]:
        return dict(self)


class World(NamedTuple):
    """All there is: the cluster, the applications, the journal, and the advancers."""

    at: tuple[str, ...] = ("source", "source")
    target: bool = False
    records: bool = False
    unread: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    """Groups that left the source before a record came to it, as the list for a person names them."""
    grown: bool = False
    clock: int = TIME
    journal: Rows = Rows()
    advancers: tuple[Advancer | None, ...] = (None,)
    kills: int = 0
    freezes: int = 0
    rogue: int = 0
    epoch: int = 0
    over: bool = False
    go: int = 0
    """The number of the freeze, counted from 1, that a person has said go to last."""

    def advancing(self, i: int, what: Advancer | None) -> World:
        """With another advancer at place ``i``; which is which makes no difference, so they are sorted."""
        all_ = (*self.advancers[:i], what, *self.advancers[i + 1 :])
        return self._replace(advancers=tuple(sorted(all_, key=lambda a: a or ())))

    def row(self, row: Row, subject: str = "") -> StepState | None:
        return self.journal.states.get(row_of(row, subject))

    def rows(self, changed: dict[str, StepState]) -> World:
        return self._replace(journal=kept(Rows(sorted({**self.journal.states, **changed}.items()))))

    def put(self, row: Row, state: StepState, subject: str = "") -> World:
        return self.rows({row_of(row, subject): state})

    def intend(self, row: Row, subject: str = "") -> World:
        """As the journal does it: the intent of a step that is intended or done stays as it is."""
        held = self.row(row, subject) in (StepState.INTENDED, StepState.DONE)
        return self if held else self.put(row, StepState.INTENDED, subject)

    def move(self, producer: str, to: str) -> World:
        return self._replace(at=tuple(to if p == producer else a for p, a in zip(PRODUCERS, self.at, strict=True)))


@functools.cache
def kept(rows: Rows) -> Rows:
    """One object for equal rows."""
    return rows


class Broken(AssertionError):
    """An invariant does not hold."""


class Stopped(Exception):
    """A controller refused, so the act ends here."""


Program = list[Callable[[World], World]]


@dataclass(frozen=True)
class Model:
    """The rules of one world. ``point_order`` is the order in which producers are pointed to the target."""

    cutover: Cutover
    groups: tuple[str, ...] = ("g",)
    kills: int = 2
    freezes: int = 2
    rogue: int = 1
    advancers: int = 1
    stalls: bool = False
    point_order: tuple[str, ...] = PRODUCERS
    checks_seat: bool = True
    decide: Callable[[View], Decision] = next_act
    wanted: str = "forward"
    ordered: bool = False
    """Each group is switched after those before it."""
    asks_go: bool = False
    """A person says go to each freeze, by its number, and may say it at any moment before."""

    # -------------------------------------------------------------------------------------------- what is seen

    def view(self, w: World) -> View:
        data = {
            Row.FREEZE: {**FREEZE.to_data(), "why": "w", "error": "DrainTimedOut"},
            Row.CERTIFICATE: {"substance": "s", "taken_at": NOW[w.clock].isoformat()},
            Row.VERIFICATION: {"substance": "s"},
            Row.FENCE_AGAIN: {"began_at": NOW[w.clock].isoformat(), "unseen": len(w.unseen), "unseen_by": ["g"]},
        }
        steps = {name: v.StepRecord(state, data.get(Row(name.partition(":")[0]), {})) for name, state in w.journal}
        policy = v.Policy(
            self.cutover,
            tuple(v.Member(p) for p in PRODUCERS),
            tuple(
                v.Member(g, group=g, after=self.groups[:i] if self.ordered else ()) for i, g in enumerate(self.groups)
            ),
            frozenset(),
            timedelta(seconds=120),
        )
        state = MigrationState.DONE if w.over else MigrationState.OPEN
        answers = {ask.value: v.Answer("yes") for ask in v.Ask}
        if self.asks_go and w.go <= w.freezes:
            answers[v.Ask.FREEZE.value] = v.Answer(None)
        where = {
            p: v.Whereabouts("stopped", "source") if a == "stopped" else v.Whereabouts("running", a)  # type: ignore[arg-type]
            for p, a in zip(PRODUCERS, w.at, strict=True)
        }
        drained = {
            s: v.DrainFact("not_drained" if w.unread & (set(self.groups) if s == "" else {s}) else "drained", "s")
            for s in ("", *policy.groups)
        }
        return View(
            record=v.Record("m", "source", "target", state, not w.over, "hash", policy, steps, w.epoch),
            now=NOW[w.clock],
            began_at=START - timedelta(days=1),
            wanted=self.wanted,  # type: ignore[arg-type]
            answers=answers,
            plan=v.PlanFact("hash"),
            impact=v.JobFact("measured"),
            target=v.TargetFact(w.target, used=int(w.records)),
            producers=where,
            groups={
                g: v.GroupFact(v.Whereabouts("running", "target" if g in w.moved else "source"), 1, 0)
                for g in self.groups
            },
            fence=v.FenceFact("grown" if w.grown else "", w.grown),
            proof=v.ProofFact(set(w.at) == {"stopped"}),
            still=v.ProofFact(True),
            deny=v.DenyFact(),
            drain=drained,
            verifier=v.VerifierFact("ready", {"s": "verified"}),
            transactions=v.TransactionsFact(),
            gate=v.GateFact(),
            retention_at_risk=False,
            order_proof=v.JobFact("proven"),
            source=v.SourceFact(True),
            policy=v.PolicyFact(),
        )

    # ------------------------------------------------------------------------------------------ the advancers

    def program(self, w: World, i: int) -> Iterator[World]:
        """The worlds after the next instruction of advancer ``i``."""
        mine = w.advancers[i]
        if mine is None:
            yield from self._take_seat(w, i)
            return
        if mine.stalled:
            return
        if mine.epoch < w.epoch:
            yield w.advancing(i, None)  # the seat is gone: refused
            return
        program = program_of(self, mine.act, mine.subject, w.at, w.journal)
        if mine.at >= len(program):
            yield w.advancing(i, None)
            return
        try:
            after = program[mine.at](w)
        except Stopped:
            yield w.advancing(i, None)
            return
        if after.epoch > w.epoch:
            yield after.advancing(i, mine._replace(at=mine.at + 1, epoch=after.epoch))
        else:
            yield after.advancing(i, mine._replace(at=mine.at + 1))

    def _take_seat(self, w: World, i: int) -> Iterator[World]:
        decision = decided(self, w)
        if decision.kind is not Kind.ACT:
            return
        if decision.act is Act.BEGIN_FREEZE and w.freezes >= self.freezes:
            return
        holders = [a for a in w.advancers if a is not None]
        if any(not a.stalled for a in holders):
            return
        assert decision.act is not None
        if w.grown and decision.act in (Act.INTEND_SWITCH, Act.RELEASE_GROUP, Act.CERTIFY):
            raise Broken(f"{decision.act} was decided on a source that had grown after its fence")
        epoch = w.epoch + 1 if holders else w.epoch
        taken = w._replace(epoch=epoch)
        yield taken.advancing(i, Advancer(decision.act, decision.subject, epoch, w.clock))

    def acts(self, act: Act, subject: str, at: tuple[str, ...], journal: Rows) -> Program:
        """The instructions of an act; each looks at what it needs once more, as the product does."""
        done, undone, intended, undoing = StepState.DONE, StepState.UNDONE, StepState.INTENDED, StepState.UNDOING
        moves: dict[Act, Program] = {
            Act.CREATE_TARGET: [
                lambda w: w.intend(Row.CREATE_TARGET),
                lambda w: w._replace(target=True),
                lambda w: w.put(Row.CREATE_TARGET, done),
            ],
            Act.CAPTURE: [lambda w: w.put(Row.BEFORE, done)],
            Act.ARM: [lambda w: w.put(Row.ARM, done)],
            Act.LENGTHEN_RETENTION: [lambda w: w.put(Row.LENGTHEN_RETENTION, done)],
            Act.BEGIN_FREEZE: [lambda w: w.intend(Row.FREEZE)._replace(clock=TIME, freezes=w.freezes + 1)],
            Act.STOP_PRODUCERS: [
                lambda w: w.put(Row.STOP_PRODUCERS, done),
                *(lambda w, p=p: w.move(p, "stopped") for p in PRODUCERS if at[PRODUCERS.index(p)] == "source"),
            ],
            Act.DENY: [lambda w: w.intend(Row.FENCE)],
            Act.RECORD_FENCE: [lambda w: w.put(Row.FENCE, done)._replace(grown=False)],
            Act.BEGIN_FENCE_AGAIN: [
                lambda w: w.put(Row.FENCE_AGAIN, undone),
                lambda w: w.put(Row.FENCE_AGAIN, intended),
            ],
            Act.RECORD_FENCE_AGAIN: [
                *((lambda w, n=n: w.rows({n: undone})) for n, _ in journal if n in self._void(journal)),
                lambda w: w._replace(grown=False),
                lambda w: w.put(Row.FENCE_AGAIN, done)._replace(unseen=w.unseen | self._gone(w)),
            ],
            Act.CERTIFY: [lambda w: w.put(Row.CERTIFICATE, done, subject)],
            Act.REQUEST_VERIFICATION: [lambda w: w.put(Row.VERIFICATION, intended, subject)],
            Act.RECORD_VERIFICATION: [lambda w: w.put(Row.VERIFICATION, done, subject)],
            Act.INTEND_SWITCH: [lambda w: w.intend(Row.SWITCH_PRODUCERS)],
            Act.POINT_PRODUCERS: [lambda w, p=p: self._point(w, p) for p in self.point_order],
            Act.END_FREEZE: [
                lambda w: w.put(Row.FREEZE, done),
                lambda w: w.put(Row.SWITCH_PRODUCERS, done),
            ],
            Act.WIDEN_DENY: [lambda w: w.put(Row.WIDE_DENY, done)],
            Act.RELEASE_GROUP: [
                lambda w: w.intend(Row.SWITCH_GROUP, subject),
                lambda w: w._replace(moved=w.moved | {subject}),
            ],
            Act.FINISH_GROUP: [lambda w: w.put(Row.SWITCH_GROUP, done, subject)],
            Act.RESTORE_RETENTION: [lambda w: w.put(Row.LENGTHEN_RETENTION, undone)],
            Act.DISARM: [lambda w: w.put(Row.ARM, undone)],
            Act.FINISH: [lambda w: w._replace(over=True)],
            Act.BEGIN_RESUME: [lambda w: w.put(Row.FREEZE, undoing)._replace(epoch=w.epoch + 1)],
            Act.GO_ON: [
                lambda w: w.put(Row.FENCE, done),
                lambda w: w.put(Row.TARGET_DENY, undone) if w.row(Row.TARGET_DENY) else w,
                lambda w: w.put(Row.FREEZE, intended),
            ],
            Act.DENY_TARGET: [lambda w: w.intend(Row.TARGET_DENY), lambda w: w.put(Row.TARGET_DENY, done)],
            Act.UNFENCE: [lambda w: w.put(Row.FENCE, undone)],
            Act.RESUME_PRODUCERS: [lambda w, p=p: w.move(p, "source") for p in PRODUCERS],
            Act.END_RESUME: [
                lambda w: w.put(Row.TARGET_DENY, undone) if w.row(Row.TARGET_DENY) else w,
                *(
                    (lambda w, n=n: w.rows({n: undone}))
                    for n, _ in journal
                    if Row(n.partition(":")[0]) in SWITCHED_ROWS
                ),
                lambda w: w.put(Row.FREEZE, undone),
            ],
        }
        return moves[act]

    def _gone(self, w: World) -> frozenset[str]:
        """Groups with something unread that are released, or about to be."""
        begun = (StepState.INTENDED, StepState.DONE)
        return frozenset(g for g in w.unread if w.row(Row.SWITCH_GROUP, g) in begun)

    def _void(self, journal: Rows) -> set[str]:
        """Certificates that a fence anew makes void: those of groups that are on the source."""
        begun = (StepState.INTENDED, StepState.DONE)
        open_ = ["", *(g for g in self.groups if journal.states.get(row_of(Row.SWITCH_GROUP, g)) not in begun)]
        return {row_of(row, s) for row in (Row.CERTIFICATE, Row.VERIFICATION) for s in open_}

    def _point(self, w: World, producer: str) -> World:
        """A controller points who stands still; a route refuses one whose lease is about to end."""
        at = w.at[PRODUCERS.index(producer)]
        if at == "source" or (at == "stopped" and producer == "r" and w.clock != TIME):
            raise Stopped
        return w.move(producer, "target")

    # ------------------------------------------------------------------------------------ everybody else

    def others(self, w: World) -> Iterator[World]:
        if self.asks_go and w.go <= w.freezes < self.freezes:
            yield w._replace(go=w.freezes + 1)
        fence = w.row(Row.FENCE)
        proven = fence in (StepState.DONE, StepState.UNDONE)
        for producer, at in zip(PRODUCERS, w.at, strict=True):
            if at == "source":
                if w.records:
                    raise Broken(f"{producer} wrote to the source after the target held records: keys are crossed")
                if w.moved:
                    raise Broken(f"{producer} wrote to the source after {set(w.moved)} left it: records are lost")
                yield w._replace(unread=frozenset(self.groups), grown=w.grown or proven)
            elif at == "target":
                yield w._replace(records=True)
        for group in w.unread - w.moved:
            yield w._replace(unread=w.unread - {group})
        if fence is StepState.DONE and w.rogue < self.rogue:
            yield w._replace(unread=frozenset(self.groups), grown=True, rogue=w.rogue + 1)
        in_time = any(a is not None and a.began == TIME and not a.stalled for a in w.advancers)
        frozen = w.clock != OVER and w.row(Row.FREEZE) in (StepState.INTENDED, StepState.UNDOING)
        if frozen and not (in_time and w.clock == MARGIN):
            yield w._replace(clock=w.clock + 1)
        if w.clock == OVER and w.at[0] == "stopped":
            yield w.move("r", "source")  # the lease is over: who follows the route goes on where it was
        for i, a in enumerate(w.advancers):
            if a is None:
                continue
            if w.kills < self.kills and not self.stalls:  # one that is stalled for ever is as good as dead
                yield w.advancing(i, None)._replace(kills=w.kills + 1)
            if self.stalls and not a.stalled and w.kills < self.kills:
                yield w.advancing(i, a._replace(stalled=True))._replace(kills=w.kills + 1)
            if a.stalled and (a.epoch < w.epoch or not self.checks_seat):
                yield w.advancing(i, a._replace(stalled=False))

    def check(self, before: World, after: World) -> None:
        """What must hold for each single step of the world."""
        if self.asks_go and after.freezes > before.freezes and before.go != after.freezes:
            raise Broken(f"freeze {after.freezes} began on the go for freeze {before.go}")
        if after.moved is not before.moved:
            self._check_groups(before, after)
        if after.at is not before.at:
            self._check_producers(before, after)
        if after.journal is not before.journal:
            self._check_rows(before, after)

    def _check_groups(self, before: World, after: World) -> None:
        left = after.moved - before.moved
        if left & before.unread and not before.rogue:
            raise Broken(f"{left} left the source with records unread")
        early = [g for g in left for o in self.groups[: self.groups.index(g)] if o not in before.moved]
        if self.ordered and early:
            raise Broken(f"{early} left the source before those that come first were there")
        if left and "source" in after.at:
            raise Broken(f"{left} left the source while a producer still runs on it")
        if left and before.row(Row.WIDE_DENY) is not StepState.DONE:
            raise Broken(f"{left} left the source before the DENY covered everybody")

    def _check_producers(self, before: World, after: World) -> None:
        arrived = [p for p, a, b in zip(PRODUCERS, after.at, before.at, strict=True) if a == "target" != b]
        if arrived:
            if before.row(Row.FENCE) is not StepState.DONE or before.row(Row.SWITCH_PRODUCERS) is None:
                raise Broken(f"{arrived} was switched without a fence or an intent")
            if before.clock == OVER and "r" in arrived:
                raise Broken(f"{arrived} was switched after the lease had ended")
            if self.cutover is Cutover.DRAIN_FIRST and before.unread and not before.rogue:
                raise Broken(f"{arrived} was switched before {set(before.unread)} had drained")
        if any(b == "target" and a == "source" for b, a in zip(before.at, after.at, strict=True)) and before.records:
            raise Broken("a producer went back to the source from a target with records in it")

    def _check_rows(self, before: World, after: World) -> None:
        if after.row(Row.FREEZE) is StepState.UNDONE and after.row(Row.FENCE) not in (None, StepState.UNDONE):
            raise Broken("the freeze has ended and the DENY is left")
        proven = after.row(Row.FENCE) is StepState.DONE and before.row(Row.FENCE) is not StepState.DONE
        if proven and set(after.at) != {"stopped"}:
            raise Broken("a fence was proven while a producer was running")


def decided(model: Model, w: World) -> Decision:
    """What the engine decides in this world; asked once for all worlds that look alike to it."""
    freezes = w.freezes if model.asks_go else 0
    return _decided(model, w._replace(advancers=(), kills=0, freezes=freezes, rogue=0, epoch=0))


@functools.cache
def program_of(model: Model, act: Act, subject: str, at: tuple[str, ...], journal: Rows) -> Program:
    return model.acts(act, subject, at, journal)


@functools.cache
def _decided(model: Model, w: World) -> Decision:
    return model.decide(model.view(w))


def explore(model: Model) -> dict[World, list[World]]:
    """Every world that can be reached, with the worlds that may follow it. Raises ``Broken``."""
    start = World(advancers=(None,) * model.advancers)
    if model.advancers > 1:  # what comes before the freeze is explored with one advancer
        start = start._replace(target=True)
        for row in (Row.CREATE_TARGET, Row.ARM, Row.LENGTHEN_RETENTION):
            start = start.put(row, StepState.DONE)
    graph: dict[World, list[World]] = {start: []}
    todo = deque([start])
    while todo:
        w = todo.popleft()
        after = list(model.others(w))
        for i in range(model.advancers):
            after += model.program(w, i)
        for other in after:
            model.check(w, other)
            if other not in graph:
                graph[other] = []
                todo.append(other)
        graph[w] = after
    return graph


def can_reach(graph: dict[World, list[World]], goals: set[World]) -> set[World]:
    """Every world from which one of the goals can be reached."""
    before: dict[World, list[World]] = {w: [] for w in graph}
    for w, after in graph.items():
        for other in after:
            before[other].append(w)
    seen, todo = set(goals), deque(goals)
    while todo:
        for w in before[todo.popleft()]:
            if w not in seen:
                seen.add(w)
                todo.append(w)
    return seen


def ended(model: Model, w: World) -> str | None:
    """How the run ended in this world; None while it may still go on."""
    if any(a is not None and not a.stalled for a in w.advancers):
        return None
    decision = decided(model, w)
    if decision.kind is Kind.OVER:
        return "moved"
    if decision.kind is Kind.STOP:
        return "stopped"
    resumed = decision.act is Act.BEGIN_FREEZE and set(w.at) == {"source"} and w.freezes >= model.freezes
    return "resumed" if resumed else None


@pytest.mark.parametrize("cutover", list(Cutover))
@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
def test_no_interleaving_loses_a_record_or_crosses_a_key(cutover: Cutover, groups: tuple[str, ...]) -> None:
    model = Model(cutover, groups, kills=1, freezes=2 if len(groups) == 1 else 1)
    graph = explore(model)
    ends = {w: end for w in graph if (end := ended(model, w))}
    assert set(ends.values()) == {"moved", "resumed"}, "a write that goes round every control is contained"
    for w, end in ends.items():
        if end == "moved":
            assert set(w.at) == {"target"}
            assert w.moved == set(groups)
            # What came in or after the act by which it ended is nobody's any more.
            assert w.grown or w.unread <= w.unseen, "what a group cannot see is named"
        if end == "resumed":
            assert w.row(Row.FENCE) is not StepState.DONE
    stuck = set(graph) - can_reach(graph, set(ends))
    assert not stuck, f"{len(stuck)} worlds lead nowhere, for instance {next(iter(stuck))}"


@pytest.mark.parametrize("cutover", [Cutover.DRAIN_FIRST])
def test_two_advancers_and_a_stalled_one_do_no_harm(cutover: Cutover) -> None:
    model = Model(cutover, kills=1, freezes=1, rogue=0, advancers=2, stalls=True)
    graph = explore(model)
    ends = {w: end for w in graph if (end := ended(model, w))}
    assert {"moved", "resumed"} <= set(ends.values())
    stuck = set(graph) - can_reach(graph, set(ends))
    assert not stuck, f"{len(stuck)} worlds lead nowhere, for instance {next(iter(stuck))}"


@pytest.mark.parametrize("cutover", list(Cutover))
def test_without_faults_it_moves_or_resumes_and_never_needs_a_person(cutover: Cutover) -> None:
    model = Model(cutover, ("g", "h"), kills=0, rogue=0)
    graph = explore(model)
    assert {end for w in graph if (end := ended(model, w))} == {"moved", "resumed"}


@pytest.mark.parametrize("cutover", list(Cutover))
def test_groups_are_switched_in_the_order_of_the_spec(cutover: Cutover) -> None:
    model = Model(cutover, ("g", "h"), kills=1, freezes=1, rogue=0, ordered=True)
    graph = explore(model)
    ends = {w: end for w in graph if (end := ended(model, w))}
    assert set(ends.values()) == {"moved", "resumed"}
    stuck = set(graph) - can_reach(graph, set(ends))
    assert not stuck, f"{len(stuck)} worlds lead nowhere, for instance {next(iter(stuck))}"


@pytest.mark.parametrize("cutover", list(Cutover))
def test_no_freeze_begins_on_the_go_for_another(cutover: Cutover) -> None:
    """A second freeze is asked about anew; until a person answers, nobody is stopped."""
    model = Model(cutover, kills=1, rogue=0, asks_go=True)
    graph = explore(model)
    assert "moved" in {ended(model, w) for w in graph}
    waiting = {w for w in graph if decided(model, w).ask is v.Ask.FREEZE}
    assert {0, 1} <= {w.freezes for w in waiting}, "before the first freeze, and before the second"
    assert {w.at for w in waiting} == {("source", "source")}


@pytest.mark.parametrize("cutover", list(Cutover))
def test_a_dead_run_leaves_no_leased_producer_stopped(cutover: Cutover) -> None:
    """From every world, with every advancer dead for good, time alone brings a route's producer back to work."""
    model = Model(cutover, kills=1, freezes=1)
    for w in explore(model):
        dead = w._replace(advancers=(None,))
        for _ in range(4):
            if dead.at[0] != "stopped":
                break
            dead = next(other for other in model.others(dead) if other.clock > dead.clock or other.at[0] != dead.at[0])
        assert dead.at[0] != "stopped"


# ------------------------------------------------------------------------- the check can fail: wrong machines


def without(*names: str) -> Callable[[View], Decision]:
    """The engine without some of its rules."""

    def decide(view: View) -> Decision:
        kept = {table: list(rules) for table, rules in RULES.items()}
        for table in RULES:
            RULES[table] = [r for r in kept[table] if r.name not in names]
        try:
            return next_act(view)
        finally:
            RULES.update(kept)

    return decide


def in_no_order(view: View) -> Decision:
    """The engine without the order of the groups."""
    policy = view.record.policy
    free = replace(policy, consumers=tuple(replace(c, after=()) for c in policy.consumers))
    return next_act(replace(view, record=replace(view.record, policy=free)))


@pytest.mark.parametrize(
    "model",
    [
        Model(Cutover.PRODUCERS_FIRST, ("g", "h"), rogue=0, freezes=1, ordered=True, decide=in_no_order),
        # Whoever has no lease is pointed first: killed in between, the lease ends, and both topics are written.
        Model(Cutover.PRODUCERS_FIRST, point_order=("k", "r"), rogue=0),
        Model(Cutover.DRAIN_FIRST, decide=without("drained")),
        Model(Cutover.PRODUCERS_FIRST, decide=without("deny_widened")),
        Model(Cutover.DRAIN_FIRST, rogue=0, decide=without("producers_stopped")),
        Model(Cutover.PRODUCERS_FIRST, rogue=0, decide=without("producers_pointed")),
        Model(Cutover.DRAIN_FIRST, decide=without("fence_holds")),
        Model(Cutover.DRAIN_FIRST, decide=without("fenced_again")),
        Model(Cutover.DRAIN_FIRST, decide=without("producers_resumed")),
        Model(Cutover.DRAIN_FIRST, decide=without("fence_lifted", "fence_lifted_first")),
        Model(Cutover.PRODUCERS_FIRST, decide=without("budget")),
        Model(Cutover.PRODUCERS_FIRST, decide=without("fence_proven")),
        Model(Cutover.PRODUCERS_FIRST, decide=without("switch_intended")),
        Model(Cutover.PRODUCERS_FIRST, decide=without("freeze_begun")),
        Model(Cutover.DRAIN_FIRST, decide=without("go_given"), asks_go=True),
    ],
)
def test_a_wrong_machine_is_caught(model: Model) -> None:
    model = replace(model, kills=1)
    with pytest.raises(Broken):
        graph = explore(model)
        ends = {w for w in graph if ended(model, w)}
        # No assert: it would be told what differs in a hundred thousand worlds.
        if len(can_reach(graph, ends)) < len(graph):
            raise Broken("some worlds lead nowhere")
        if "moved" not in {ended(model, w) for w in ends}:
            raise Broken("nobody was moved")
