"""How far a migration is, told from its journal alone: for status, pages and reports."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from topicshift.core.engine.view import Record, StepRecord
from topicshift.core.engine.words import ORDER, STEPS, MigrationState, Row, Step, StepState


class Mark(StrEnum):
    """How far a step is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"
    NOT_FINISHED = "not_finished"
    """It was begun, and its migration has ended before it."""
    NOT_DONE = "not_done"
    """Its migration has ended before it; whether it was waited for is not said."""


_OF_STATE: Mapping[StepState | None, Mark] = {
    None: Mark.WAITING,
    StepState.INTENDED: Mark.RUNNING,
    StepState.DONE: Mark.DONE,
    StepState.UNDOING: Mark.UNDOING,
    StepState.UNDONE: Mark.UNDONE,
}


def marks(record: Record) -> dict[Step, Mark]:
    """How far each step is, in the order of this migration. At most one step that was not begun counts as running.

    Of a migration that has ended none is under way, and none is waited for but the retirement of one that is done.
    """
    order = (*ORDER[record.policy.cutover], Step.RETIRE)
    found = {step: _mark(record, step) for step in order}
    if record.state is MigrationState.OPEN and Mark.UNDONE not in found.values():
        for step in order:
            if found[step] is Mark.WAITING:
                found[step] = Mark.RUNNING
            if found[step] is not Mark.DONE:
                break
    if record.over:
        ends = {Mark.RUNNING: Mark.NOT_FINISHED, Mark.UNDOING: Mark.NOT_FINISHED}
        if record.state is not MigrationState.DONE:
            ends[Mark.WAITING] = Mark.NOT_DONE
        found = {step: ends.get(mark, mark) for step, mark in found.items()}
    return found


def _mark(record: Record, step: Step) -> Mark:
    if step is Step.PLAN:
        return Mark.DONE if record.plan_hash else Mark.RUNNING
    if step is Step.APPROVE:
        return Mark.DONE if record.at(Row.CREATE_TARGET) is not None else Mark.WAITING
    if step is Step.STOP_PRODUCERS:
        return _stopped(record)
    if step in (Step.DRAIN, Step.VERIFY_DRAIN):
        row = Row.CERTIFICATE if step is Step.DRAIN else Row.VERIFICATION
        return Mark.DONE if all(record.done(row, s) for s in record.certificates) else Mark.WAITING
    if step is Step.SWITCH_CONSUMERS:
        return _groups(record)
    if step is Step.VERIFY:
        ended = (MigrationState.DONE, MigrationState.RETIRED, MigrationState.REHEARSED)
        return Mark.DONE if record.state in ended or record.done(Row.ORDER_PROOF) else Mark.WAITING
    if step is Step.RETIRE and record.state is MigrationState.RETIRED:
        return Mark.DONE
    own = next(iter(STEPS[step].rows), None)
    assert own is not None, f"{step.value} has no row in STEPS: say here how far it is"
    return _OF_STATE[record.at(own)]


def _stopped(record: Record) -> Mark:
    freeze = record.at(Row.FREEZE)
    if freeze in (StepState.INTENDED, StepState.DONE):
        return Mark.DONE if record.done(Row.FENCE) else Mark.RUNNING
    return _OF_STATE[freeze]


def _groups(record: Record) -> Mark:
    groups = [record.at(Row.SWITCH_GROUP, g) for g in record.policy.groups]
    if groups and all(g is StepState.DONE for g in groups):
        return Mark.DONE
    if any(g is not None and g.in_effect for g in groups):
        return Mark.RUNNING
    return Mark.UNDONE if StepState.UNDONE in groups else Mark.WAITING


def step_under_way(record: Record) -> Step | None:
    """The step that this migration is at, None when nothing of it is under way."""
    return next((step for step, mark in marks(record).items() if mark is Mark.RUNNING), None)


def open_questions(record: Record) -> list[StepRecord]:
    """Questions that wait for a person's answer."""
    prefix = f"{Row.QUESTION.value}:"
    return [r for name, r in record.steps.items() if name.startswith(prefix) and r.state is StepState.INTENDED]
