"""A model check of the protocol: every interleaving of a small world, with a kill after every instruction.

The world has two producers (``r`` follows a route, so the lease ends its pause; ``k`` stays stopped until somebody
starts it), consumer groups, a freeze clock in three phases (time to act; the margin; the lease is over), and one write
that goes round every control. A run is a sequence of single instructions: it asks :func:`states.next_act`, which is the
product's own decision, and carries the act out. Between any two instructions it may be killed (its memory and its
certificates are gone), and a new try starts from the journal and from what it sees.

One assumption is stated, not checked: an act that was begun with time left is over, or its process dead, before the
lease is. That is what the margin of a lease is for.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from topicshift.core.engine import states
from topicshift.core.engine.freeze import GiveBack
from topicshift.core.engine.states import Act, View
from topicshift.core.spec.model import Cutover

TIME, MARGIN, OVER = range(3)
PRODUCERS = ("r", "k")


@dataclass(frozen=True)
class Try:
    """A task in the middle of an act: its next instruction, and the phase of the clock in which it began."""

    act: str
    group: str | None
    began: int
    next: int = 0
    guarded: bool = False
    """It has passed the guard just before the switch, and its moves follow."""
    epoch: int = 0
    """The journal's epoch when it began, or that it raised itself."""


@dataclass(frozen=True)
class World:
    """All there is: the cluster, the applications, the journal, and the run with its place in its program."""

    at: tuple[str, ...] = ("source", "source")
    target: bool = False
    records: bool = False
    unread: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()
    grown: bool = False
    clock: int = TIME
    journal: tuple[tuple[str, str], ...] = ()
    certified: frozenset[str] = frozenset()
    tries: tuple[Try | None, ...] = (None,)
    kills: int = 0
    freezes: int = 0
    rogue: int = 0
    epoch: int = 0

    @property
    def idle(self) -> bool:
        return not any(self.tries)

    def trying(self, i: int, what: Try | None) -> World:
        return replace(self, tries=(*self.tries[:i], what, *self.tries[i + 1 :]))

    def step(self, name: str) -> str | None:
        return dict(self.journal).get(name)

    def put(self, name: str, state: str) -> World:
        return replace(self, journal=tuple(sorted({**dict(self.journal), name: state}.items())))

    def intend(self, name: str) -> World:
        """As the journal does it: the intent of a step that is intended or done stays as it is."""
        return self if self.step(name) in ("intended", "done") else self.put(name, "intended")

    def move(self, producer: str, to: str) -> World:
        return replace(self, at=tuple(to if p == producer else a for p, a in zip(PRODUCERS, self.at, strict=True)))


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Model:
    """The rules of one world. ``switch_order`` is the order in which producers are pointed to the target."""

    cutover: Cutover
    groups: tuple[str, ...] = ("g",)
    kills: int = 2
    freezes: int = 2
    rogue: int = 1
    tries: int = 1
    switch_order: tuple[str, ...] = PRODUCERS
    waits: bool = True
    next_act: Callable[[View], states.Decision] = states.next_act

    # -------------------------------------------------------------------------------------------- the run

    def view(self, w: World) -> View:
        return View(
            cutover=self.cutover,
            groups=self.groups,
            steps=dict(w.journal),
            producers=dict(zip(PRODUCERS, w.at, strict=True)),
            drained=frozenset(self.groups) - w.unread,
            certified=w.certified,
            fence_holds=not w.grown,
            time_left=w.clock == TIME,
            target_records=int(w.records),
        )

    def program(self, w: World, i: int) -> World | None:
        """The world after the next instruction of try ``i``; None where it has nothing to do."""
        task = w.tries[i]
        if task is None:
            decision = self.next_act(self.view(w))
            if decision.act in (Act.WAIT, Act.STOP, Act.CALL_PERSON, Act.VERIFY, Act.NOTHING):
                return None
            if decision.act is Act.BEGIN_FREEZE and w.freezes >= self.freezes:
                return None
            giving_back = [t for t in w.tries if t and t.act == Act.GIVE_BACK.value]
            if decision.act is Act.GIVE_BACK and giving_back:
                return None  # no task runs twice at once
            return w.trying(i, Try(decision.act.value, decision.group, w.clock, epoch=w.epoch))
        if task.act == Act.GIVE_BACK.value and task.next == 0:
            return self._begin_give_back(w, i, task)
        if task.act == Act.GIVE_BACK.value and task.next == 1 and self.waits and len([t for t in w.tries if t]) > 1:
            return None  # until whatever began before has ended or is dead
        after = getattr(self, f"_{task.act}")(w, task)
        if after is None or (after.journal != w.journal and task.epoch < w.epoch):
            return w.trying(i, None)
        guarded = task.guarded or (task.act == Act.SWITCH_PRODUCERS.value and after is w)
        return after.trying(i, replace(task, next=task.next + 1, guarded=guarded))

    def _create_target(self, w: World, task: Try) -> World | None:
        return [
            w.intend(states.CREATE_TARGET),
            replace(w, target=True),
            w.put(states.CREATE_TARGET, "done"),
            None,
        ][task.next]

    def _begin_freeze(self, w: World, task: Try) -> World | None:
        running = w.step(states.FREEZE) == "intended"  # then it is the freeze that is already running
        if task.next == 0 and not running and w.freezes < self.freezes:
            return replace(w.intend(states.FREEZE), clock=TIME, freezes=w.freezes + 1)
        return None

    def _stop_producers(self, w: World, task: Try) -> World | None:
        if task.next >= len(PRODUCERS):
            return None
        # A controller looks before it stops: who is on the target already is not this step's any more.
        return w.move(PRODUCERS[task.next], "stopped") if w.at[task.next] == "source" else w

    def _fence(self, w: World, task: Try) -> World | None:
        if task.next == 0:
            return w.intend(states.FENCE)
        if task.next == 1 and set(w.at) == {"stopped"}:  # the proof: nobody runs, and the source stands still
            if w.step(states.FENCE) == "done":  # proven before: against the same offsets
                return w if not w.grown else None
            return replace(w.put(states.FENCE, "done"), grown=False)
        return None

    def _certify(self, w: World, task: Try) -> World | None:
        if task.next == 0 and task.group not in w.unread and not w.grown:
            return replace(w, certified=w.certified | {str(task.group)})
        return None

    def _switch_producers(self, w: World, task: Try) -> World | None:
        moves = [p for p in self.switch_order if w.at[PRODUCERS.index(p)] != "target"]
        may_act = (
            not w.grown and w.clock == TIME and w.step(states.FREEZE) == "intended" and w.step(states.FENCE) == "done"
        )
        if w.step(states.SWITCH_PRODUCERS) not in ("intended", "done"):
            return w.intend(states.SWITCH_PRODUCERS) if may_act else None
        if moves:
            if not task.guarded:
                return w if may_act else None  # the guard, once more just before the first move
            if w.at[PRODUCERS.index(moves[0])] == "source":
                return None
            return w.move(moves[0], "target")
        if w.step(states.FREEZE) == "intended":
            return w.put(states.FREEZE, "done")
        if w.step(states.SWITCH_PRODUCERS) != "done":
            return w.put(states.SWITCH_PRODUCERS, "done")
        return None

    def _switch_group(self, w: World, task: Try) -> World | None:
        name = states.switch_step(str(task.group))
        if task.next == 0:
            return None if w.grown else w.intend(name)
        if task.next == 1:
            return None if w.grown else replace(w, moved=w.moved | {str(task.group)})
        return w.put(name, "done") if task.next == 2 else None

    def _begin_give_back(self, w: World, i: int, task: Try) -> World:
        if w.step(states.FREEZE) not in ("intended", "failed"):
            return w.trying(i, None)
        mine = replace(task, next=1, epoch=w.epoch + 1)
        return replace(w.put(states.FREEZE, "failed"), epoch=w.epoch + 1).trying(i, mine)

    def _give_back(self, w: World, task: Try) -> World | None:
        if task.next == 1:
            decision, _ = states.give_back(self.view(w))
            if decision is not GiveBack.TO_SOURCE:
                # Once, then the try is over: the freeze runs on as it was.
                return w.put(states.FREEZE, "intended") if w.step(states.FREEZE) == "failed" else None
            return replace(w.put(states.FENCE, "undone"), certified=frozenset())
        if w.step(states.FREEZE) != "failed":
            return None
        if task.next < 2 + len(PRODUCERS):
            return w.move(PRODUCERS[task.next - 2], "source")
        steps = [s for s in (states.SWITCH_PRODUCERS, states.FREEZE) if w.step(s)]
        done = task.next - 2 - len(PRODUCERS)
        return w.put(steps[done], "undone") if done < len(steps) else None

    # ------------------------------------------------------------------------------------ everybody else

    def others(self, w: World) -> Iterator[World]:
        fenced = w.step(states.FENCE) == "done"
        for producer, at in zip(PRODUCERS, w.at, strict=True):
            if at == "source":
                if w.records:
                    raise Broken(f"{producer} wrote to the source after the target held records: keys are crossed")
                if w.moved:
                    raise Broken(f"{producer} wrote to the source after {set(w.moved)} left it: records are lost")
                yield replace(w, unread=frozenset(self.groups), grown=w.grown or fenced)
            elif at == "target":
                yield replace(w, records=True)
        for group in w.unread - w.moved:
            yield replace(w, unread=w.unread - {group})
        if fenced and w.rogue < self.rogue:
            yield replace(w, unread=frozenset(self.groups), grown=True, rogue=w.rogue + 1)
        in_time = any(task is not None and task.began == TIME for task in w.tries)
        if w.step(states.FREEZE) in ("intended", "failed") and w.clock != OVER and not (in_time and w.clock == MARGIN):
            yield replace(w, clock=w.clock + 1)
        if w.clock == OVER and w.at[0] == "stopped":
            yield w.move("r", "source")  # the lease is over: who follows the route goes on where it was
        for i, task in enumerate(w.tries):
            if task is not None and w.kills < self.kills:
                yield replace(w.trying(i, None), certified=frozenset(), kills=w.kills + 1)

    def check(self, before: World, after: World) -> None:
        """What must hold for each single step of the world."""
        left = after.moved - before.moved
        if left & before.unread:
            raise Broken(f"{left} left the source with records unread")
        if left and before.grown:
            raise Broken(f"{left} left a source that had grown after the fence")
        if left and "source" in after.at:
            raise Broken(f"{left} left the source while a producer still runs on it")
        arrived = [p for p, a, b in zip(PRODUCERS, after.at, before.at, strict=True) if a == "target" != b]
        if arrived:
            if before.step(states.FENCE) != "done" or before.step(states.SWITCH_PRODUCERS) != "intended":
                raise Broken(f"{arrived} was switched without a fence or an intent")
            if before.clock == OVER:
                raise Broken(f"{arrived} was switched after the lease had ended")
            if self.cutover is Cutover.DRAIN_FIRST and before.unread and not before.rogue:
                raise Broken(f"{arrived} was switched before {set(before.unread)} had drained")
        if any(b == "target" and a == "source" for b, a in zip(before.at, after.at, strict=True)) and before.records:
            raise Broken("a producer went back to the source from a target with records in it")
        if after.step(states.FENCE) == "done" and before.step(states.FENCE) != "done" and set(after.at) != {"stopped"}:
            raise Broken("a fence was proven while a producer was running")


@functools.cache
def explore(model: Model) -> dict[World, list[World]]:
    """Every world that can be reached, with the worlds that may follow it. Raises ``Broken``."""
    start = World(tries=(None,) * model.tries)
    graph: dict[World, list[World]] = {start: []}
    todo = deque([start])
    while todo:
        w = todo.popleft()
        after = list(model.others(w))
        after += [other for i in range(model.tries) if (other := model.program(w, i)) is not None]
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
    if not w.idle:
        return None
    act = states.next_act(model.view(w)).act
    if act is Act.BEGIN_FREEZE and set(w.at) == {"source"}:
        return "given back" if w.freezes else None
    return {Act.VERIFY: "moved", Act.STOP: "stopped", Act.CALL_PERSON: "person"}.get(act)


@pytest.mark.parametrize("cutover", list(Cutover))
@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
def test_no_interleaving_loses_a_record_or_crosses_a_key(cutover: Cutover, groups: tuple[str, ...]) -> None:
    model = Model(cutover, groups, kills=2 if len(groups) == 1 else 1, freezes=2 if len(groups) == 1 else 1)
    graph = explore(model)
    ends = {w: end for w in graph if (end := ended(model, w))}
    assert set(ends.values()) == {"moved", "given back", "stopped", "person"}
    for w, end in ends.items():
        if end == "moved":
            assert set(w.at) == {"target"}
            assert w.moved == set(groups)
        if end == "given back":
            assert w.step(states.FENCE) != "done"
    stuck = set(graph) - can_reach(graph, set(ends))
    assert not stuck, f"{len(stuck)} worlds lead nowhere, for instance {next(iter(stuck))}"


@pytest.mark.parametrize("cutover", list(Cutover))
def test_two_tries_at_once_do_no_harm(cutover: Cutover) -> None:
    """A task that is cleared while another still runs, giving back among them: whatever the two do."""
    graph = explore(Model(cutover, kills=0, freezes=2, rogue=0, tries=2))
    ends = {w: end for w in graph if (end := ended(Model(cutover), w))}
    assert {"moved", "given back"} <= set(ends.values())
    assert set(graph) == can_reach(graph, set(ends))


@pytest.mark.parametrize("cutover", list(Cutover))
def test_without_faults_it_moves_or_gives_back_and_never_needs_a_person(cutover: Cutover) -> None:
    model = Model(cutover, ("g", "h"), kills=0, rogue=0)
    graph = explore(model)
    ends = {end for w in graph if (end := ended(model, w))}
    assert ends == {"moved", "given back"}


@pytest.mark.parametrize("cutover", list(Cutover))
def test_a_dead_run_leaves_no_leased_producer_stopped(cutover: Cutover) -> None:
    """From every world, with the run dead for good, time alone brings a route's producer back to work."""
    model = Model(cutover, kills=1, freezes=1)
    for w in explore(model):
        dead = replace(w, tries=(None,))
        for _ in range(4):
            if dead.at[0] != "stopped":
                break
            dead = next(other for other in model.others(dead) if other.clock > dead.clock or other.at[0] != dead.at[0])
        assert dead.at[0] != "stopped"


def test_the_way_back_is_what_the_target_says() -> None:
    for w in explore(Model(Cutover.DRAIN_FIRST, kills=1, freezes=1)):
        kind, _ = states.rollback_type(state="open", source_exists=True, target_records=int(w.records))
        assert kind is (states.Rollback.DRAIN_BACK if w.records else states.Rollback.FREE)


# ------------------------------------------------------------------------- the check can fail: wrong machines


def _but(**changes: object) -> Callable[[View], states.Decision]:
    return lambda view: states.next_act(replace(view, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        # Whoever has no lease is switched first: killed in between, the lease ends, and both topics are written.
        (Model(Cutover.PRODUCERS_FIRST, switch_order=("k", "r"), rogue=0), "crossed"),
        # Giving back does not wait for what began before it.
        (Model(Cutover.PRODUCERS_FIRST, rogue=0, tries=2, kills=0, waits=False), "crossed|fence"),
        # Every group counts as drained and certified.
        (Model(Cutover.DRAIN_FIRST, next_act=_but(certified=frozenset({"g"}))), "drained|unread"),
        # The source is never compared with its fence again.
        (Model(Cutover.PRODUCERS_FIRST, next_act=_but(certified=frozenset({"g"}), fence_holds=True)), "unread"),
        # Producers do not wait for the groups, although the order says so.
        (
            Model(
                Cutover.DRAIN_FIRST,
                rogue=0,
                next_act=lambda v: states.next_act(replace(v, cutover=Cutover.PRODUCERS_FIRST)),
            ),
            "before .* had drained",
        ),
    ],
)
def test_a_wrong_machine_is_caught(model: Model, said: str) -> None:
    with pytest.raises(Broken, match=said):
        explore(model)
