"""The switch of the producers: intended, pointed, ended."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from topicshift.acts.context import MigrationContext
from topicshift.acts.questions import about_of, approve_by_spec
from topicshift.acts.telling import tell
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.view import View
from topicshift.core.engine.where import seen
from topicshift.core.engine.words import Ask, Row, StepState
from topicshift.core.errors import OwnershipLost, Refused
from topicshift.ports import Controller, Participant


def intend_switch(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down that producers are about to be pointed to the target: from now on no timer resumes them."""
    approve_by_spec(ctx, Ask.CERTIFICATE, about_of(Ask.CERTIFICATE, "", view.record, view))
    ctx.intend(Row.SWITCH_PRODUCERS, {"target": ctx.row.target, "at": ctx.clock.now().isoformat()})


class _PointRefused(Exception):
    """A controller refuses to point: the act is over."""


def point_producers(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Point producers that are not on the target yet, and start them there, those under a lease first.

    One that cannot be reached now keeps no other from it. A controller that refuses (its lease is about to end, or the
    point was too late to count) ends the act: what shows at the next look decides. So does a right that is missing: as
    few as may be are on the target where a person has to decide.
    """
    freeze = view.record.freeze
    control = ctx.control(freeze.lease_until if freeze is not None else None)
    away = {m.name for m in view.record.policy.producers if not seen(view, m).runs_on("target")}

    def act(controller: Controller, who: list[Participant]) -> None:
        try:
            controller.point(control, who, ctx.row.target)
        except OwnershipLost:
            raise
        except Refused as error:
            ctx.event("point_refused", {"producers": [p.name for p in who], "why": str(error)})
            ctx.log(f"not pointed to {ctx.row.target}: {error}")
            raise _PointRefused from error
        ctx.check_seat()
        controller.start(control, who)

    with suppress(_PointRefused):
        tell(ctx, [p for p in ctx.driven(ctx.producers) if p.name in away], act, refusal_ends=True)


def send(ctx: MigrationContext, producers: list[Participant], topic: str) -> None:
    """Point producers to a topic and start them there, outside of any lease; one that fails keeps no other from it."""

    def act(controller: Controller, who: list[Participant]) -> None:
        controller.point(ctx.control(), who, topic)
        ctx.check_seat()
        controller.start(ctx.control(), who)

    tell(ctx, producers, act)


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
