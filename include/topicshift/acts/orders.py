"""What a person may order of a migration: pause, postpone, abort, resume on the source; each says first what it does.

An order is a row of the journal that the engine's rules look at, or an advance with another aim, so every advancer
obeys it: a task of Airflow as well as a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from topicshift.acts.advance import Asking, Done, Outcome, Waiting, advance
from topicshift.acts.close import close, close_lines, not_closed
from topicshift.acts.context import MigrationContext
from topicshift.acts.observe import observe
from topicshift.acts.questions import record_answer, record_question
from topicshift.core.engine.back import rollback_type
from topicshift.core.engine.decision import Kind, over
from topicshift.core.engine.engine import next_act
from topicshift.core.engine.hold import paused, why_paused
from topicshift.core.engine.people import objection
from topicshift.core.engine.view import Record
from topicshift.core.engine.where import before_freeze, planning
from topicshift.core.engine.words import Ask, MigrationState, Row, StepState
from topicshift.core.errors import Refused, TopicshiftError, Unreadable
from topicshift.core.policy.who import Who
from topicshift.core.spec.windows import next_start


@dataclass(frozen=True)
class Prospect:
    """What an order would do, one line each, and why it cannot; ``cannot`` is empty where it can.

    ``unknown``: whether it can is not known.
    """

    does: tuple[str, ...]
    cannot: str = ""
    unknown: bool = False

    def require(self) -> None:
        """Raises ``Refused`` with the reason where it cannot, ``Unreadable`` where that is not known."""
        if self.cannot:
            raise (Unreadable if self.unknown else Refused)(f"{self.cannot} Nothing was changed.")

    def values(self) -> dict[str, Any]:
        """Plain values."""
        return {"would": list(self.does), "cannot": self.cannot or None}


def ended(record: Record) -> str:
    """Why a migration that has ended takes no order, empty while it has not."""
    if record.state is not MigrationState.OPEN or record.over:
        return f"{record.migration_id} has ended already ({record.state.value}); its topics are free."
    return ""


def rolling_back(record: Record) -> bool:
    """Whether a rollback was begun: it is finished, or called off, before anything else."""
    return record.mirrored or record.at(Row.ROLLBACK) is StepState.INTENDED


def sign(ctx: MigrationContext, reason: str) -> dict[str, Any]:
    """Who gives the order, when and why."""
    return {"by": ctx.actor, "at": ctx.clock.now().isoformat(timespec="seconds"), "reason": reason}


def write_order(ctx: MigrationContext, row: Row, data: Mapping[str, Any]) -> None:
    """Write an order, over the one of its kind that stands, or was carried out."""
    if ctx.refresh().done(row):
        ctx.finish(row, {}, state=StepState.UNDONE)
    ctx.intend(row, data)
    ctx.finish(row, data, state=StepState.INTENDED)


# -------------------------------------------------------------------------------------------------- pause


def pause_prospect(record: Record) -> Prospect:
    """What a pause would do now. Producers that stand still are never left so by it."""
    if ended(record):
        return Prospect((), ended(record))
    if rolling_back(record):
        return Prospect((), f"{record.migration_id} is being rolled back, which a pause does not hold up.")
    if record.freeze is not None:
        return Prospect(
            (),
            f"Producers of {record.source} may stand still for {record.migration_id}: a pause would leave them so. "
            f"End the freeze first: topicshift resume-on-source {record.migration_id}.",
        )
    if record.in_effect(Row.SWITCH_PRODUCERS):
        open_ = [g for g in record.policy.groups if not record.begun(Row.SWITCH_GROUP, g)]
        held = f"groups {', '.join(open_)} stay on {record.source}" if open_ else "the order proof is not begun"
        return Prospect((f"{held}; producers go on with {record.target}; the fence is looked after",))
    lines = [f"nothing new is begun; producers and groups go on with {record.source}"]
    if record.in_effect(Row.ARM):
        lines.append("participants are disarmed until the migration goes on")
    return Prospect(tuple(lines))


def pause(ctx: MigrationContext, reason: str) -> None:
    """Begin nothing new until :func:`unpause`. Raises ``Refused`` in a freeze, and for a migration that has ended."""
    pause_prospect(ctx.refresh()).require()
    data = sign(ctx, reason)
    write_order(ctx, Row.PAUSE, data)
    ctx.event("paused", data)


def unpause(ctx: MigrationContext) -> str:
    """Go on; returns what the pause was, empty where there was none."""
    record = ctx.refresh()
    if not paused(record):
        return ""
    was = why_paused(record)
    ctx.finish(Row.PAUSE, {}, state=StepState.UNDONE)
    ctx.event("unpaused", {"by": ctx.actor})
    return was


def go_on_prospect(record: Record) -> Prospect:
    """What the end of a pause and of a postponement would do now."""
    if ended(record):
        return Prospect((), ended(record))
    held = [why_paused(record)] if paused(record) else []
    if record.postponed_until is not None:
        held.append(f"the freeze was postponed until {record.postponed_until.isoformat()}")
    if not held:
        return Prospect(("nothing: it is not held",))
    return Prospect((*(f"this ends: {line}" for line in held), "the task that waits goes on, or topicshift advance"))


# ----------------------------------------------------------------------------------------------- postpone


def next_window(ctx: MigrationContext) -> datetime:
    """The beginning of the next maintenance window of the spec. Raises ``Refused`` where the spec has none."""
    window = ctx.spec.window
    if window is None:
        raise Refused(f"The spec of {ctx.row.migration_id} has no window. Name a time instead: --until.")
    return next_start(window.cron, window.timezone, ctx.clock.now())


def postpone_prospect(record: Record, until: datetime, now: datetime) -> Prospect:
    """What a postponement would do now."""
    if ended(record):
        return Prospect((), ended(record))
    if rolling_back(record):
        return Prospect((), f"{record.migration_id} is being rolled back, which a postponement does not hold up.")
    if record.freeze is not None:
        why = f"The freeze of {record.migration_id} has begun. To end it: topicshift resume-on-source"
        return Prospect((), f"{why} {record.migration_id}.")
    if record.in_effect(Row.SWITCH_PRODUCERS):
        return Prospect((), f"Producers of {record.migration_id} were switched already: no freeze is left to postpone.")
    if until <= now:
        return Prospect((), f"{until.isoformat()} is over: it is {now.isoformat(timespec='seconds')}.")
    lines = [f"the freeze does not begin before {until.isoformat()}; what comes before it goes on"]
    if record.in_effect(Row.ARM) and before_freeze(record):
        lines.append("participants are disarmed until then")
    return Prospect(tuple(lines))


def postpone(ctx: MigrationContext, until: datetime, reason: str) -> None:
    """Begin no freeze before ``until``. Raises ``Refused`` once it has begun, and for a time that is over."""
    postpone_prospect(ctx.refresh(), until, ctx.clock.now()).require()
    data = {"until": until.isoformat(), **sign(ctx, reason)}
    write_order(ctx, Row.POSTPONE, data)
    ctx.event("postponed", data)


def no_longer_postponed(ctx: MigrationContext) -> bool:
    """The freeze may begin as soon as its gate opens; whether it had been postponed."""
    if ctx.refresh().postponed_until is None:
        return False
    ctx.finish(Row.POSTPONE, {}, state=StepState.UNDONE)
    ctx.event("postponement_ended", {"by": ctx.actor})
    return True


# ------------------------------------------------------------------------------------- resume on the source


def resume_prospect(ctx: MigrationContext, record: Record) -> Prospect:
    """What resuming on the source would do now."""
    decision = next_act(observe(ctx, record, "resume"))
    if decision.kind is Kind.OVER:
        return Prospect((f"nothing: {decision.why}",))
    if decision.kind is Kind.STOP:
        return Prospect((), f"{decision.why}. {decision.do}".strip())
    if decision.kind is Kind.WAIT:
        return Prospect((), f"{decision.why}.", unknown=True)
    return Prospect((f"producers resume on {record.source}, and the DENY is lifted: {decision.why}",))


def resume_on_source(ctx: MigrationContext, patience_s: float) -> Outcome:
    """End the freeze, if one runs. Raises the error of a decision to stop."""
    frozen = ctx.refresh().freeze is not None
    try:
        return advance(ctx, wanted="resume", patience_s=patience_s)
    except TopicshiftError as error:
        record = ctx.refresh()
        if not frozen or record.at(Row.FREEZE) is not StepState.UNDONE:
            raise
        # Producers are back: for a run that is the failure it has to end with, for this order the answer.
        return Done(str(error), record, over(str(error)))


# -------------------------------------------------------------------------------------------------- abort


def _untouched(record: Record) -> bool:
    return planning(record) and record.freeze is None and not record.active


def abort_prospect(ctx: MigrationContext, record: Record) -> Prospect:
    """What an abort would do now: the way back that holds, else which ways are left."""
    if ended(record):
        return Prospect((), ended(record))
    if _untouched(record):
        return Prospect(abort_lines(record))
    if rolling_back(record):
        return Prospect(("the rollback that was begun is finished",))
    ctx.installation()
    why = objection(ctx.policy.who.get(Ask.ROLLBACK, Who()), None, "yes", {})
    if why:
        return Prospect((), f"A yes to a rollback is not counted from here: {why}. It is asked by topic_rollback.")
    kind, why = rollback_type(observe(ctx, record, "rollback"))
    if kind is None:
        return Prospect((), f"Which way back holds cannot be told: {why}.", unknown=True)
    if kind != "free":
        back = (
            f"`topicshift rollback {record.migration_id}` (or `topic_rollback`) goes back, with the target drained; "
            if kind == "drain_back"
            else ""
        )
        return Prospect(
            (),
            f"{record.migration_id} cannot be aborted any more ({kind}): {why}. What is left: {back}"
            f"`topicshift advance {record.migration_id}` goes on; `topicshift close {record.migration_id}` gives both "
            "topics free, and names what is left to do by hand.",
        )
    return Prospect(abort_lines(record))


def abort_lines(record: Record) -> tuple[str, ...]:
    """What the end of a migration does while nothing was written to the target."""
    if _untouched(record):
        return ("nothing was changed yet: the migration ends as failed, and both topics are free",)
    lines = []
    if record.freeze is not None:
        lines.append(f"the freeze ends: producers resume on {record.source}, and the DENY is lifted")
    elif record.in_effect(Row.SWITCH_PRODUCERS):
        lines.append(f"producers and groups go back to {record.source}, as long as {record.target} stays empty")
    if record.in_effect(Row.CREATE_TARGET):
        made = record.step(Row.CREATE_TARGET)
        ours = made is not None and made.data.get("ours")
        stays = f"{record.target} stays: it was there before this migration"
        unknown = f"{record.target} is deleted if this migration is seen to have made it, and it is still empty"
        deleted = f"{record.target} is deleted if it is still empty: this migration made it"
        lines.append(unknown if ours is None else deleted if ours else stays)
    if record.in_effect(Row.LENGTHEN_RETENTION):
        lines.append(f"the retention of {record.source} is set back to what it was before this migration lengthened it")
    lines.append(f"applications stop waiting for this migration, and go on with {record.source}")
    return (*lines, f"the migration ends as rolled back, and {record.source} and {record.target} are free for another")


def abort(ctx: MigrationContext, reason: str, patience_s: float) -> Outcome:
    """End the migration in the way that holds now. Raises ``Refused`` where none does, with the ways that are left.

    Raises also what a rollback stops with.
    """
    record = ctx.refresh()
    abort_prospect(ctx, record).require()
    ctx.event("abort", {"reason": reason, "by": ctx.actor})
    if _untouched(record):
        closed = close(ctx, reason)
        return Done("nothing was changed", ctx.refresh(), over(f"the migration is {closed['state']}"))
    if record.freeze is not None and not rolling_back(record):
        outcome = resume_on_source(ctx, patience_s)
        if not isinstance(outcome, Done) or ctx.refresh().freeze is not None:
            return outcome
    outcome = advance(ctx, wanted="rollback", patience_s=patience_s)
    if isinstance(outcome, Asking) and outcome.ask is Ask.ROLLBACK:
        # Whoever aborts was told what it does, and has said yes to that.
        record_question(ctx, outcome.ask, outcome.subject, outcome.about, outcome.decision.why)
        record_answer(ctx, outcome.ask, outcome.subject, outcome.about, "yes", actor=ctx.actor)
        outcome = advance(ctx, wanted="rollback", patience_s=patience_s)
    return outcome


# -------------------------------------------------------------------------------------------------- close


def close_prospect(ctx: MigrationContext, record: Record, *, even_frozen: bool = False) -> Prospect:
    """What closing would do now, with what it would leave to be done by hand."""
    why_not = not_closed(record, even_frozen=even_frozen)
    return Prospect((), why_not) if why_not else Prospect(close_lines(ctx.record_as_held(), record))


__all__ = ["Asking", "Done", "Prospect", "Waiting", "abort", "pause", "postpone", "resume_on_source", "unpause"]
