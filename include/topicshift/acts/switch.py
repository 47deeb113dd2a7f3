"""The switch of the producers: intended, pointed, ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from topicshift.acts.context import MigrationContext
from topicshift.acts.questions import about_of, approve_by_spec
from topicshift.acts.telling import Late, beside, stages, worst
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.view import View
from topicshift.core.engine.where import nobody_on_target, seen
from topicshift.core.engine.words import Ask, Row, StepState
from topicshift.core.errors import Refused, Transient
from topicshift.ports import Controller, Participant


def intend_switch(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down that producers are about to be pointed to the target: from now on no timer resumes them."""
    approve_by_spec(ctx, Ask.CERTIFICATE, about_of(Ask.CERTIFICATE, "", view.record, view))
    ctx.intend(Row.SWITCH_PRODUCERS, {"target": ctx.row.target, "at": ctx.clock.now().isoformat()})


def point_producers(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Point producers that are not on the target yet, and start them there, those under a lease first.

    An error of one under a lease ends the act: its application could go on with the source by itself while others
    already write to the target. Of the others all are pointed before the first is started. One that cannot be reached
    now keeps no other from it. Where one refuses, or a right is missing, and nobody is on the target yet, nobody is
    started there, and who was pointed there is pointed back: so all can still go on with the source.
    """
    freeze = view.record.freeze
    control = ctx.control(freeze.lease_until if freeze is not None else None)
    away = {m.name for m in view.record.policy.producers if not seen(view, m).runs_on("target")}
    nobody_there = nobody_on_target(view)
    for stage in stages(ctx, [p for p in ctx.driven(ctx.producers) if p.name in away]):
        late = beside(ctx, stage, lambda controller, who: controller.point(control, who, ctx.row.target))
        behind = {p for one in late for p in one.participants}
        pointed = [p for p in stage if p not in behind]
        refused = nobody_there and not all(isinstance(one.error, Transient) for one in late)
        if refused:
            late += beside(ctx, pointed, lambda controller, who: controller.point(control, who, ctx.row.source))
        left = _unless_refused(ctx, late)
        if not refused and not (late and ctx.leased(stage[0])):
            nobody_there = False
            left += beside(ctx, pointed, lambda controller, who: controller.start(control, who))
        if left:
            raise worst(left)
        if late:
            return


def _unless_refused(ctx: MigrationContext, late: Sequence[Late]) -> list[Late]:
    """Those without refusals of a controller: these are in the audit trail, and what shows at the next look decides."""
    for one in late:
        if isinstance(one.error, Refused):
            names, why = [p.name for p in one.participants], str(one.error)
            ctx.event("point_refused", {"producers": names, "why": why})
            ctx.log(f"{', '.join(names)}: not pointed to {ctx.row.target}: {why}")
    return [one for one in late if not isinstance(one.error, Refused)]


def send(ctx: MigrationContext, producers: list[Participant], topic: str) -> None:
    """Point producers to a topic and start them there, outside of any lease, all side by side.

    One that fails keeps no other from it, one under a lease neither.
    """

    def act(controller: Controller, who: list[Participant]) -> None:
        controller.point(ctx.control(), who, topic)
        ctx.check_seat()
        controller.start(ctx.control(), who)

    if late := beside(ctx, producers, act):
        raise worst(late)


def end_freeze(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The freeze has ended: every producer runs on the target.

    The switch stays intended until everything else is written, so that a try that dies in between is finished by the
    next.
    """
    row = view.record.step(Row.FREEZE)
    assert row is not None
    ended = str(row.data["ended_at"]) if row.state is StepState.DONE else ctx.clock.now().isoformat()
    lasted = datetime.fromisoformat(ended) - Freeze.from_data(row.data).started_at
    data = {"finished_at": ended, "freeze_seconds": round(lasted.total_seconds(), 3)}
    ctx.finish(Row.FREEZE, {"ended_at": ended, "how": "switched"})
    ctx.event("producers_switched", {"target": ctx.row.target, **data, "why": decision.why})
    ctx.finish(Row.SWITCH_PRODUCERS, data)
