"""Producers resume on the source after a freeze that is not to go on."""

from __future__ import annotations

from topicshift.acts.before import tell_restored
from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import open_target, restore
from topicshift.acts.switch import send
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.mirror import named_on
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.where import seen
from topicshift.core.engine.words import Row, StepState

FREEZE_ROWS = frozenset(
    {
        *(Row.STOP_PRODUCERS, Row.CERTIFICATE, Row.VERIFICATION, Row.SWITCH_PRODUCERS),
        *(Row.FENCE_AGAIN, Row.REPLAY),
    }
)
"""Rows that hold for one freeze alone."""


def begin_resume(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Shut out everybody else who still acts on this migration, and mark the freeze as being taken back."""
    ctx.claim = ctx.journal.renew(ctx.claim, f"producers resume on the source: {decision.why}")
    ctx.finish(Row.FREEZE, {"why": decision.why, "error": decision.error}, state=StepState.UNDOING)


def go_on(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The freeze is not taken back after all: somebody is on the target already."""
    restore(ctx, view.record)
    open_target(ctx, view.record)
    ctx.event("resume_called_off", {"why": decision.why})
    state = StepState.DONE if view.record.done(Row.SWITCH_PRODUCERS) else StepState.INTENDED
    ctx.finish(Row.FREEZE, {}, state=state)


def resume_producers(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Point producers that are not on the source to it, and start them there."""
    away = {m.name for m in view.record.policy.producers if not seen(view, m).runs_on("source")}
    send(ctx, [p for p in ctx.driven(ctx.producers) if p.name in away], ctx.row.source)


def end_resume(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The freeze is over: what was certified in it is void, and its verifier is called off."""
    by_hand = [p.name for p in view.record.policy.producers if p.manual]
    ctx.ports.verifier.abort()
    open_target(ctx, view.record)
    take_back(ctx, view.record, "resumed on the source")
    row = view.record.step(Row.FREEZE)
    why = row.data.get("why") if row is not None else None
    ctx.event("producers_resumed", {"why": why, "start_by_hand": by_hand})
    tell_restored(ctx, view.record, "producers resumed on the source")
    if by_hand:
        ctx.log(f"START BY HAND on {ctx.row.source}: {', '.join(by_hand)}")
    data = {"ended_at": ctx.clock.now().isoformat(), "how": "resumed on the source", "start_by_hand": by_hand}
    ctx.finish(Row.FREEZE, data, state=StepState.UNDONE)


def take_back(ctx: MigrationContext, record: Record, how: str) -> None:
    """Everything that held for this freeze alone is undone."""
    for name, step in record.steps.items():
        if name.split(":", 1)[0] in FREEZE_ROWS and step.state.in_effect:
            ctx.journal.finish(ctx.claim, named_on(record.way, name), {"how": how}, state=StepState.UNDONE.value)
