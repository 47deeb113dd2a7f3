"""A person's order to a migration, given in Airflow: the same as the commands of this name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from topicshift.core.errors import SpecError, Transient
from topicshift_airflow.links import LINKS
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.runtime import find_migration, open_context, typed_failures

Place = tuple[int, int]

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext
    from topicshift.acts.orders import Prospect
    from topicshift.ports import EventRow

ORDERS = ("pause", "go on", "postpone", "resume on source", "abort", "replay", "close")
"""What may be ordered."""

SAID = "said"
"""XCom of what was said before the order was given: what it would do, and why it cannot."""

REASONED = ("abort", "close")
"""Orders that are refused without a reason."""

PATIENCE_S = 120.0
"""Seconds for which a way back is waited for before the task is tried again."""


class GiveOrder(BaseOperator):
    """Say what an order would do and why it cannot, then give it, on behalf of the run that owns the migration."""

    operator_extra_links = LINKS
    evidence_url = ""
    migration_id = ""
    """The migration that the order is given to, which another run owns."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def execute(self, context: Any) -> dict[str, Any]:
        """Returns what was said, and how it ended."""
        params = context["params"]
        order = str(params["order"])
        only_say = bool(params.get("only_say"))
        with typed_failures():
            # As on the command line: who ends a migration says why.
            reason = reason_of(params, needed=order in REASONED and not only_say)
            row = find_migration(str(params["migration"]))
            self.migration_id = row.migration_id
            with open_context(context, row.migration_id, take_over=False) as ctx:
                user = getattr(context.get("dag_run"), "triggering_user_name", None)
                ctx.actor = f"user:{user}" if user else ctx.actor
                until = _until(ctx, params) if order == "postpone" else None
                places = _places(params) if order == "replay" else None
                prospect = _prospect(ctx, order, until, places)
                for line in prospect.does:
                    self.log.info("%s: %s: %s", ctx.row.migration_id, order, line)
                said = {"migration": ctx.row.migration_id, "order": order, **prospect.values()}
                # A task that fails returns nothing: the page tells the reason from this.
                context["ti"].xcom_push(key=SAID, value=said)
                prospect.require()
                if only_say:
                    return {**said, "outcome": "only said"}
                begun = _written(ctx)
                try:
                    with ctx.recorded(self.task_id):
                        given = _give(ctx, order, reason, until, places)
                    return {**said, **given, "happened": _happened(_written(ctx)[len(begun) :])}
                finally:
                    self.evidence_url = ctx.reported


def _written(ctx: MigrationContext) -> Sequence[EventRow]:
    return ctx.journal.events(ctx.row.migration_id, {"step_finished"})


def _happened(events: Sequence[EventRow]) -> list[str]:
    """What the order has done or taken back, as the engine wrote it down; questions are not things that happen."""
    from topicshift.core.engine.words import Row, told

    words = {"done": "done", "undone": "taken back"}
    rows = [(str(e.data.get("step")), words.get(str(e.data.get("state")), "")) for e in events]
    return [f"{told(step)[1] or step}: {how}" for step, how in rows if how and not step.startswith(Row.QUESTION)]


def reason_of(params: Any, *, needed: bool) -> str:
    """Why an order is given, as the form says. Raises ``SpecError`` where it has to say so and is empty."""
    reason = str(params.get("reason") or "").strip()
    if needed and not reason:
        raise SpecError("reason: it is empty. Say why, for whoever reads the audit trail. Nothing was changed.")
    return reason or "no reason given"


def _until(ctx: MigrationContext, params: Any) -> datetime:
    from topicshift.acts.orders import next_window

    text = str(params.get("until") or "").strip()
    if not text:
        return next_window(ctx)
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise SpecError(f"until: {text!r} names no time zone. Write it as {text}+00:00, for UTC.")
    return found.astimezone(UTC)


def _places(params: Any) -> list[Place] | None:
    from topicshift.core.drain.replay import place_of

    text = str(params.get("records") or "").replace(",", " ")
    return [place_of(word) for word in text.split()] or None


def _prospect(ctx: MigrationContext, order: str, until: datetime | None, places: list[Place] | None) -> Prospect:
    from topicshift.acts import orders, replay_order

    record = ctx.refresh()
    if order == "pause":
        return orders.pause_prospect(record)
    if order == "postpone":
        assert until is not None
        return orders.postpone_prospect(record, until, ctx.clock.now())
    if order == "resume on source":
        return orders.resume_prospect(ctx, record)
    if order == "abort":
        return orders.abort_prospect(ctx, record)
    if order == "replay":
        return replay_order.replay_prospect(ctx, record, places)
    if order == "close":
        return orders.close_prospect(ctx, record)
    if order == "go on":
        return orders.go_on_prospect(record)
    raise SpecError(f"order: {order!r} is none. There are: {', '.join(ORDERS)}.")


def _give(
    ctx: MigrationContext, order: str, reason: str, until: datetime | None, places: list[Place] | None
) -> dict[str, Any]:
    """Give the order. Returns ``outcome``, and of a close ``left``: what is left to do by hand."""
    from topicshift.acts.close import close

    if order != "close":
        return {"outcome": _given(ctx, order, reason, until, places)}
    closed = close(ctx, reason)
    for line in closed["left"]:
        ctx.log(f"LEFT TO DO BY HAND: {line}")
    return {"outcome": closed["state"], "left": closed["left"]}


def _given(ctx: MigrationContext, order: str, reason: str, until: datetime | None, places: list[Place] | None) -> str:
    from topicshift.acts import orders

    if order == "pause":
        orders.pause(ctx, reason)
        return "paused"
    if order == "postpone":
        assert until is not None
        orders.postpone(ctx, until, reason)
        return f"postponed until {until.isoformat()}"
    if order == "go on":
        was = [orders.unpause(ctx), "postponed" if orders.no_longer_postponed(ctx) else ""]
        said = "; ".join(w for w in was if w)
        return f"goes on; it was {said}" if said else "it was not held"
    if order == "replay":
        return _replay(ctx, places, reason)
    aborts = order == "abort"
    outcome = orders.abort(ctx, reason, PATIENCE_S) if aborts else orders.resume_on_source(ctx, PATIENCE_S)
    if not isinstance(outcome, orders.Done):
        raise Transient(f"{ctx.row.migration_id} still waits: {outcome.decision.why}. The task is tried again.")
    return outcome.why


def _replay(ctx: MigrationContext, places: list[Place] | None, reason: str) -> str:
    from topicshift.acts.advance import advance
    from topicshift.acts.replay_order import order_replay
    from topicshift.core.engine.words import Act, Row

    order_replay(ctx, places, reason)
    outcome = advance(ctx, leave=frozenset({Act.PROVE_ORDER.value}), patience_s=PATIENCE_S)
    if not ctx.refresh().done(Row.REPLAY):
        raise Transient(f"{ctx.row.migration_id} still waits: {outcome.decision.why}. Its own tasks go on with it.")
    return "the records are in the target"
