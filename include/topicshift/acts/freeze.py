"""The freeze: participants armed for it, its clock started, producers told to stop."""

from __future__ import annotations

from topicshift.acts.context import MigrationContext
from topicshift.acts.questions import about_of, approve_by_spec, attempt_of
from topicshift.acts.telling import tell
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Ask, Row, StepState


def arm(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Tell participants that a migration is planned, and make what they need before they can report."""
    ctx.intend(Row.ARM, {"at": ctx.clock.now().isoformat()})
    for controller, members in ctx.by_kind([*ctx.producers, *ctx.consumers]):
        ctx.check_seat()
        for done in controller.prepare(ctx.control()):
            ctx.log(done)
        controller.arm(ctx.control(), members)
    ctx.finish(Row.ARM, {})


def disarm(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Participants follow at leisure again."""
    disarm_all(ctx)


def disarm_all(ctx: MigrationContext) -> None:
    """Let every participant follow at leisure again, outside the engine's order (a migration is closed) as well."""
    for controller, members in ctx.by_kind([*ctx.producers, *ctx.consumers]):
        ctx.check_seat()
        controller.disarm(ctx.control(), members)
    ctx.finish(Row.ARM, {}, state=StepState.UNDONE)


def begin_freeze(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Start the clock of the freeze. ``attempt`` counts the freezes of this migration."""
    approve_by_spec(ctx, Ask.FREEZE, about_of(Ask.FREEZE, "", view.record, view))
    freeze = Freeze.begin(ctx.clock.now(), view.record.policy.freeze_budget)
    data = ctx.intend(Row.FREEZE, {**freeze.to_data(), "attempt": attempt_of(view.record)})
    ctx.event("freeze_begun", data)


def stop_producers(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Tell every producer to stop, until the lease of the freeze ends at the latest. It is done once all say so."""
    freeze = view.record.freeze
    assert freeze is not None
    ctx.intend(Row.STOP_PRODUCERS, {"at": ctx.clock.now().isoformat(), "how": "told"})
    until = freeze.lease_until
    tell(ctx, ctx.driven(ctx.producers), lambda controller, who: controller.stop(ctx.control(until), who))
