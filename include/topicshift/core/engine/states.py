"""The states of a migration: its steps in both cut-over orders, where it stands, what may come next, the way back.

Everything is decided from plain values: the journal's rows and what was seen a moment ago. Nothing here waits, reads or
acts. ``tests/unit/test_states_model.py`` checks the whole machine against the invariants of the protocol, with a kill
after every instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from topicshift.core.engine.freeze import GiveBack, decide_give_back
from topicshift.core.spec.model import Cutover

CREATE_TARGET: Final = "create_target"
FREEZE: Final = "freeze"
FENCE: Final = "fence"
SWITCH_PRODUCERS: Final = "switch_producers"
DELETE_SOURCE: Final = "delete_source"
ROLLBACK: Final = "rollback"


def switch_step(group: str) -> str:
    """The journal's name of the switch of one group."""
    return f"switch_consumer:{group}"


class Step(StrEnum):
    """The steps of the protocol, by the names of the task groups."""

    PLAN = "plan"
    APPROVE = "approve"
    CREATE_TARGET = "create_target"
    STOP_PRODUCERS = "stop_producers"
    DRAIN = "drain"
    VERIFY_DRAIN = "verify_drain"
    SWITCH_PRODUCERS = "switch_producers"
    SWITCH_CONSUMERS = "switch_consumers"
    VERIFY = "verify"
    RETIRE = "retire"


_HEAD = (Step.PLAN, Step.APPROVE, Step.CREATE_TARGET, Step.STOP_PRODUCERS)
_TAIL = (Step.SWITCH_CONSUMERS, Step.VERIFY, Step.RETIRE)
ORDER: Final[Mapping[Cutover, tuple[Step, ...]]] = {
    Cutover.DRAIN_FIRST: (*_HEAD, Step.DRAIN, Step.VERIFY_DRAIN, Step.SWITCH_PRODUCERS, *_TAIL),
    Cutover.PRODUCERS_FIRST: (*_HEAD, Step.SWITCH_PRODUCERS, Step.DRAIN, Step.VERIFY_DRAIN, *_TAIL),
}
"""The steps of each order, left to right."""


class Mark(StrEnum):
    """How far a step is, as the journal tells it."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    UNDONE = "undone"
    FAILED = "failed"


@dataclass(frozen=True)
class Journalled:
    """A migration as its journal has it: ``steps`` maps the journal's step names to their states."""

    cutover: Cutover
    groups: tuple[str, ...]
    state: str
    active: bool
    plan_hash: str | None
    steps: Mapping[str, str] = field(default_factory=dict)


def marks(migration: Journalled) -> dict[Step, Mark]:
    """How far each step is, in the order of this migration."""
    steps, order = migration.steps, ORDER[migration.cutover]
    groups = [steps.get(switch_step(g)) for g in migration.groups]
    switched = steps.get(SWITCH_PRODUCERS)
    moved = [g for g in groups if g in ("intended", "done")]
    before_switch = order.index(Step.DRAIN) < order.index(Step.SWITCH_PRODUCERS)
    drained = switched in ("intended", "done") if before_switch else bool(groups) and len(moved) == len(groups)
    found = {
        Step.PLAN: Mark.DONE if migration.plan_hash else Mark.RUNNING,
        Step.APPROVE: Mark.DONE if CREATE_TARGET in steps else Mark.WAITING,
        Step.CREATE_TARGET: _mark(steps.get(CREATE_TARGET)),
        Step.STOP_PRODUCERS: _stopped(steps.get(FREEZE), steps.get(FENCE)),
        Step.DRAIN: Mark.DONE if drained else Mark.WAITING,
        Step.VERIFY_DRAIN: Mark.DONE if drained else Mark.WAITING,
        Step.SWITCH_PRODUCERS: _mark(switched),
        Step.SWITCH_CONSUMERS: _all(groups),
        Step.VERIFY: Mark.DONE if migration.state in ("done", "retired") else Mark.WAITING,
        Step.RETIRE: Mark.DONE if migration.state == "retired" else _mark(steps.get(DELETE_SOURCE)),
    }
    for step in order:
        if found[step] is Mark.WAITING:
            # The first step that waits is the one under way, unless nothing can come any more.
            if migration.state == "open" and not any(found[s] in (Mark.UNDONE, Mark.FAILED) for s in order):
                found[step] = Mark.RUNNING
            break
        if found[step] is Mark.RUNNING:
            break
    return {step: found[step] for step in order}


def _mark(state: str | None) -> Mark:
    return {
        None: Mark.WAITING,
        "intended": Mark.RUNNING,
        "done": Mark.DONE,
        "undone": Mark.UNDONE,
        "failed": Mark.FAILED,
    }[state]


def _stopped(freeze: str | None, fence: str | None) -> Mark:
    if freeze == "failed":
        return Mark.FAILED
    if freeze in (None, "undone"):
        return Mark.WAITING if freeze is None else Mark.UNDONE
    return Mark.DONE if fence == "done" else Mark.RUNNING


def _all(groups: list[str | None]) -> Mark:
    if groups and all(g == "done" for g in groups):
        return Mark.DONE
    if any(g in ("intended", "done") for g in groups):
        return Mark.RUNNING
    return Mark.UNDONE if "undone" in groups else Mark.WAITING


def step_under_way(migration: Journalled) -> Step | None:
    """The step that this migration is at, None when nothing of it is under way."""
    return next((step for step, mark in marks(migration).items() if mark is Mark.RUNNING), None)


_WAITS: Final[Mapping[Step, str]] = {
    Step.PLAN: "the checks and the key-rehash impact",
    Step.APPROVE: "the answer to the plan",
    Step.CREATE_TARGET: "the target as planned",
    Step.STOP_PRODUCERS: "every producer stopped, and the source standing still",
    Step.DRAIN: "every group to read up to the fence",
    Step.VERIFY_DRAIN: "the proof that nothing is left to read",
    Step.SWITCH_PRODUCERS: "every producer to write to the target",
    Step.SWITCH_CONSUMERS: "every group to read the target",
    Step.VERIFY: "the proof of order over both topics",
    Step.RETIRE: "its retirement: the retention of the source, a scream test and an approval",
}
_ANSWERS = frozenset({"approved", "refused", "unanswered"})


def waits_for(migration: Journalled, events: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """What the migration waits for, for a person. ``events`` are kind and data of its trail, oldest first.

    A question to a person that nobody has answered yet goes before everything else.
    """
    if migration.state in ("retired", "rolled_back"):
        return "nothing: it is over"
    if migration.state == "done":
        return _WAITS[Step.RETIRE]
    if migration.state == "failed":
        return "a person: it failed" + (", and may have left things changed" if migration.active else "")
    asked: dict[tuple[object, object], Mapping[str, object]] = {}
    failed = None
    for kind, data in events:
        if kind == "asked":
            asked[data.get("act"), data.get("map_index")] = data
        elif kind in _ANSWERS:
            # Mapped tasks ask side by side, each about something else.
            asked = {k: q for k, q in asked.items() if k[0] != data.get("act") or not _answers(data, q)}
        if kind == "step_failed":
            failed = data
        elif kind in ("step_intended", "step_finished", "approved", "asked"):
            failed = None
    if asked:
        return f"a person to answer: {'; '.join(str(q.get('subject')) for q in asked.values())}"
    if failed is not None:
        return f"a person or a retry: {failed.get('task')} failed with {failed.get('error')}"
    step = step_under_way(migration)
    if step is None:
        if migration.steps.get(FREEZE) == "failed":
            return "give_back to put producers back on the source; clear that task if it failed"
        if Mark.UNDONE in marks(migration).values():
            return "a person: producers were put back on the source; clear the run to try again, or roll back"
        return "nothing that the journal knows of"
    if step is Step.SWITCH_CONSUMERS:
        open_ = [g for g in migration.groups if migration.steps.get(switch_step(g)) != "done"]
        return f"groups to read the target: {', '.join(open_)}"
    return _WAITS[step]


def _answers(answer: Mapping[str, object], question: Mapping[str, object]) -> bool:
    return "map_index" not in question or answer.get("about") == question.get("about")


# ------------------------------------------------------------------------------------------------ the way back


class Rollback(StrEnum):
    """What going back takes."""

    FREE = "free"
    """Nothing was written to the target: everything is put back as it was."""
    DRAIN_BACK = "drain_back"
    """The target holds records: the same protocol, with source and target exchanged."""
    FORWARD_ONLY = "forward_only"
    """There is no source to go back to."""


def rollback_type(*, state: str, source_exists: bool | None, target_records: int | None) -> tuple[Rollback | None, str]:
    """The type of rollback that holds now, and why; None where it cannot be told, because it is never guessed.

    ``target_records`` counts the offsets ever used in the target: 0 only if nothing was ever written to it (or it does
    not exist); None where it could not be read. ``source_exists`` is None where that could not be read.
    """
    if state == "retired":
        return Rollback.FORWARD_ONLY, "the source was deleted"
    if source_exists is None:
        return None, "the source could not be looked up"
    if not source_exists:
        return Rollback.FORWARD_ONLY, "the source does not exist any more"
    if target_records is None:
        return None, "the target could not be read"
    if target_records:
        return Rollback.DRAIN_BACK, f"the target holds {target_records} records, which going back would leave behind"
    return Rollback.FREE, "nothing was ever written to the target"


# --------------------------------------------------------------------------------------------- what comes next


class Act(StrEnum):
    """What a run of the migration may do next."""

    CREATE_TARGET = "create_target"
    BEGIN_FREEZE = "begin_freeze"
    STOP_PRODUCERS = "stop_producers"
    FENCE = "fence"
    CERTIFY = "certify"
    SWITCH_PRODUCERS = "switch_producers"
    SWITCH_GROUP = "switch_group"
    VERIFY = "verify"
    GIVE_BACK = "give_back"
    WAIT = "wait"
    STOP = "stop"
    CALL_PERSON = "call_person"
    NOTHING = "nothing"


@dataclass(frozen=True)
class View:
    """What is known at this moment: the journal's rows, and the world as it was just observed.

    ``producers`` maps each producer to ``source``, ``stopped``, ``target`` or None (cannot be told). ``drained`` are
    the groups with nothing unread up to the fence, ``certified`` those whose certificate is valid now. ``fence_holds``
    says that END_U of every partition is still what the fence says, None where it could not be read. ``time_left``: the
    freeze still has its margin. ``target_records`` as in :func:`rollback_type`.
    """

    cutover: Cutover
    groups: tuple[str, ...]
    steps: Mapping[str, str]
    producers: Mapping[str, str | None]
    drained: frozenset[str]
    certified: frozenset[str]
    fence_holds: bool | None
    time_left: bool
    target_records: int | None
    plan_approved: bool = True
    cutover_approved: bool = True


@dataclass(frozen=True)
class Decision:
    """The next act, the group it concerns (for groups), and the reason in words."""

    act: Act
    why: str
    group: str | None = None


def next_act(view: View) -> Decision:
    """What a run may do now. The same for a first try, a retry, a cleared task and a run that was resumed.

    While producers stand still the freeze decides first: without time left they go back to the source, or a person is
    called where that could cross the order of keys. A source that grew after the fence stops everything.
    """
    steps = view.steps
    if not view.plan_approved:
        return Decision(Act.WAIT, "a person has to accept this plan")
    if steps.get(CREATE_TARGET) != "done":
        return Decision(Act.CREATE_TARGET, "the target is not made yet")
    freeze, switched = steps.get(FREEZE), steps.get(SWITCH_PRODUCERS)
    if freeze == "failed":
        return Decision(Act.GIVE_BACK, "producers are being put back on the source")
    if freeze in (None, "undone"):
        return Decision(Act.BEGIN_FREEZE, "producers run on the source")
    if freeze == "intended":
        refused = _inside_the_freeze(view)
        if refused is not None:
            return refused
        if steps.get(FENCE) != "done":
            moving = sorted(p for p, at in view.producers.items() if at != "stopped")
            if moving:
                return Decision(Act.STOP_PRODUCERS, f"not stopped: {', '.join(moving)}")
            return Decision(Act.FENCE, "every producer is stopped")
    if view.fence_holds is not True:
        return _broken(view)
    before_switch = view.cutover is Cutover.DRAIN_FIRST
    if before_switch and switched not in ("intended", "done"):
        waiting = _certify(view)
        if waiting is not None:
            return waiting
    if switched != "done":
        if not view.cutover_approved:
            return Decision(Act.WAIT, "a person has to accept the cut-over")
        return Decision(
            Act.SWITCH_PRODUCERS, "the fence holds" + (", every group has drained" if before_switch else "")
        )
    for group in view.groups:
        if steps.get(switch_step(group)) == "done":
            continue
        if group in view.certified:
            return Decision(Act.SWITCH_GROUP, f"{group} has drained the source", group)
        if group in view.drained:
            return Decision(Act.CERTIFY, f"{group} has nothing left to read", group)
    open_ = [g for g in view.groups if steps.get(switch_step(g)) != "done"]
    if open_:
        return Decision(Act.WAIT, f"not drained: {', '.join(open_)}")
    return Decision(Act.VERIFY, "every producer and every group is on the target")


def _certify(view: View) -> Decision | None:
    for group in view.groups:
        if group in view.drained and group not in view.certified:
            return Decision(Act.CERTIFY, f"{group} has nothing left to read", group)
    missing = [g for g in view.groups if g not in view.certified]
    return Decision(Act.WAIT, f"not drained: {', '.join(missing)}") if missing else None


def _inside_the_freeze(view: View) -> Decision | None:
    if view.time_left:
        return None
    decision, why = give_back(view)
    if decision is GiveBack.TO_SOURCE:
        return Decision(Act.GIVE_BACK, why)
    if decision is GiveBack.AMBIGUOUS:
        return Decision(Act.CALL_PERSON, why)
    return None  # every producer is on the target: what is left is to write that down


def _broken(view: View) -> Decision:
    if view.fence_holds is None:
        return Decision(Act.WAIT, "the source could not be compared with its fence, and unknown is not OK")
    decision, why = give_back(view)
    if view.steps.get(FREEZE) == "intended" and decision is GiveBack.TO_SOURCE:
        return Decision(Act.GIVE_BACK, f"records were written to the source after the fence; {why}")
    return Decision(Act.STOP, "records were written to the source after the fence: every certificate is void")


def give_back(view: View) -> tuple[GiveBack, str]:
    """Whether producers go back to the source after a failure in the freeze (:mod:`topicshift.core.engine.freeze`)."""
    return decide_give_back(
        freeze_state=view.steps.get(FREEZE),
        switch_state=view.steps.get(SWITCH_PRODUCERS),
        producer_topics={p: at if at == "target" else None for p, at in view.producers.items()},
        target="target",
        target_records=view.target_records,
        moved_groups=[g for g in view.groups if view.steps.get(switch_step(g)) in ("intended", "done")],
    )
