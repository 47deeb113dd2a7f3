"""Rollback of the type ``free``: nothing was written to the target yet, so everything is put back as it was."""

from __future__ import annotations

from datetime import datetime

from topicshift.acts.before import tell_restored
from topicshift.acts.close import end_waits
from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import open_target, restore
from topicshift.acts.resume import take_back
from topicshift.acts.switch import send
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import MigrationState, Row, StepState


def begin_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down that the migration is rolled back; the migration's verifier is called off."""
    if view.record.in_effect(Row.ROLLBACK):
        ctx.finish(Row.ROLLBACK, {}, state=StepState.UNDONE)  # of a migration that was opened again after it
    ctx.intend(Row.ROLLBACK, {"type": "free", "why": decision.why})
    ctx.ports.verifier.abort()


def stop_on_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Stop producers that were pointed to the target, so that it can be looked at once more.

    They stand still for the freeze budget at most: a longer lease, or a second one, is for those alone that were left
    behind when others went back to the source.
    """
    row, now = view.record.step(Row.ROLLBACK), ctx.clock.now()
    told = row.data.get("lease_until") if row is not None else None
    until = datetime.fromisoformat(told) if told else now
    if until <= now:
        until = now + view.record.policy.freeze_budget
        ctx.finish(Row.ROLLBACK, {"lease_until": until.isoformat()}, state=StepState.INTENDED)
    for controller, members in ctx.by_kind(ctx.driven(ctx.producers)):
        ctx.check_seat()
        controller.stop(ctx.control(until), members)


def end_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Records have come to the target meanwhile: producers go on there, and nothing is rolled back."""
    restore(ctx, view.record)
    open_target(ctx, view.record)
    send(ctx, ctx.driven(ctx.producers), ctx.row.target)
    ctx.event("rollback_called_off", {"why": decision.why})
    ctx.finish(Row.ROLLBACK, {"called_off": decision.why}, state=StepState.UNDONE)


def finish_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Everything is as it was before; both topics are free."""
    record = view.record
    by_hand = [p.name for p in record.policy.producers if p.manual]
    by_hand += [f"{c.name} (group {c.group})" for c in record.policy.consumers if c.manual and _moved(view, c.group)]
    ctx.outrun(record, "the migration is rolled back")
    open_target(ctx, record)
    take_back(ctx, record, "rolled back")
    end_waits(ctx, record)
    if record.in_effect(Row.FREEZE):
        ended = {"ended_at": ctx.clock.now().isoformat(), "how": "rolled back"}
        ctx.finish(Row.FREEZE, ended, state=StepState.UNDONE)
    row = record.step(Row.ROLLBACK)
    ctx.event("rolled_back", {"why": row.data.get("why") if row is not None else None, "start_by_hand": by_hand})
    if by_hand:
        ctx.log(f"START BY HAND on {ctx.row.source}: {', '.join(by_hand)}")
    found = tell_restored(ctx, record, "rolled back")
    differs = [*found.differs, *found.unknown] if found is not None else []
    # The migration is closed before its rollback is done: a try that dies in between is finished by the next.
    ctx.journal.set_state(ctx.claim, MigrationState.ROLLED_BACK.value, active=False)
    finished = {"finished_at": ctx.clock.now().isoformat(), "start_by_hand": by_hand, "not_restored": differs}
    ctx.finish(Row.ROLLBACK, finished)


def _moved(view: View, group: str) -> bool:
    """Whether a person has stopped this group for its switch, or started it on the target, whatever came of it."""
    return view.record.step(Row.SWITCH_GROUP, group) is not None
