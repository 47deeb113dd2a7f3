"""A person's order to go back: which type of rollback holds now, what it would do, and doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topicshift.acts.advance import Asking, Done, Outcome, advance
from topicshift.acts.context import MigrationContext
from topicshift.acts.observe import observe
from topicshift.acts.orders import Prospect, resume_on_source
from topicshift.acts.questions import about_of, record_answer, record_question
from topicshift.core.engine.back import ROLLBACK_TYPES, rollback_type
from topicshift.core.engine.people import objection
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Ask, MigrationState, Row, StepState
from topicshift.core.errors import Refused
from topicshift.core.policy.who import Who


@dataclass(frozen=True)
class WayBack(Prospect):
    """What a rollback would do now. ``kind``: its type, None if that cannot be told; ``about``: what a yes is for."""

    kind: str | None = None
    why: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Plain values."""
        return {"type": self.kind, "why": self.why, **super().values()}


def way_back(ctx: MigrationContext, record: Record, *, asks: bool = False) -> WayBack:
    """The type of rollback that holds now, live, with what it would do and why it cannot.

    ``asks``: the caller asks a person by itself, so that whose yes counts is no matter here.
    """
    name = record.migration_id
    held = ctx.record_as_held()
    begun = held.step(Row.ROLLBACK)
    if begun is not None and begun.state is StepState.INTENDED:
        why = str(begun.data.get("why") or "it was accepted")
        return WayBack(("the rollback that was begun goes on",), kind=str(begun.data.get("type")), why=why)
    if held.state is MigrationState.ROLLED_BACK and not held.active:
        return WayBack((), f"{name} was rolled back already; there is nothing to do.")
    ctx.installation()
    not_here = objection(ctx.policy.who.get(Ask.ROLLBACK, Who()), None, "yes", {})
    view = observe(ctx, record, "rollback")
    kind, why = rollback_type(view)
    if kind is None:
        return WayBack((), f"Which way back holds cannot be told: {why}.", unknown=True, why=why)
    if kind not in ROLLBACK_TYPES:
        return WayBack((), f"{name} cannot go back ({kind}): {why}.", kind=kind, why=why)
    if not_here and not asks:
        cannot = f"A yes to a rollback is not counted from here: {not_here}. It is asked by topic_rollback."
        return WayBack((), cannot, kind=kind, why=why)
    does = [f"{kind}: {why}"]
    if record.freeze is not None:
        does.append(f"the freeze ends: producers resume on {record.source}, and the DENY is lifted")
    does.append(_said(kind, record))
    if kind == "drain_back":
        does.append(f"producers stand still for {record.policy.freeze_budget.total_seconds():g} s at most")
    return WayBack(tuple(does), kind=kind, why=why, about=about_of(Ask.ROLLBACK, "", record, view))


def _said(kind: str, record: Record) -> str:
    text = ROLLBACK_TYPES[kind].format(source=record.source, target=record.target)
    return text.replace("`", "")


def go_back(ctx: MigrationContext, reason: str, shown: WayBack, patience_s: float) -> Outcome:
    """Roll the migration back by the type that was shown and accepted, or go on with the rollback that was begun.

    Raises ``Refused`` where another type, or a rollback of something else, holds by now, and what a rollback stops
    with.
    """
    shown.require()
    record = ctx.refresh()
    ctx.event("rollback_ordered", {"reason": reason, "by": ctx.actor, "type": shown.kind})
    if record.freeze is not None and not record.mirrored and record.at(Row.ROLLBACK) is not StepState.INTENDED:
        outcome = resume_on_source(ctx, patience_s)
        if not isinstance(outcome, Done) or ctx.refresh().freeze is not None:
            return outcome
    outcome = advance(ctx, wanted="rollback", patience_s=patience_s)
    if not isinstance(outcome, Asking) or outcome.ask is not Ask.ROLLBACK:
        return outcome
    # Whoever orders it was told what it does, and has said yes to that.
    if outcome.about != shown.about:
        raise Refused(
            f"What the rollback of {record.migration_id} is about has changed since it was shown: it is "
            f"{outcome.about['rollback']} now ({outcome.decision.why}). Nothing was begun. Look again: topicshift "
            f"rollback {record.migration_id} --what"
        )
    record_question(ctx, outcome.ask, outcome.subject, outcome.about, outcome.decision.why)
    record_answer(ctx, outcome.ask, outcome.subject, outcome.about, "yes", actor=ctx.actor)
    return advance(ctx, wanted="rollback", patience_s=patience_s)
