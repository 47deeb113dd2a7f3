"""What a task waits with in the triggerer, by what the engine waits for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from topicshift.acts.advance import Waiting
from topicshift.acts.context import MigrationContext
from topicshift.acts.drain_inputs import DrainInputs
from topicshift.core.drain.names import suffix
from topicshift.core.engine.words import Ask, Row, Step

FROZEN_S, CALM_S, LATE_S = 2.0, 10.0, 15.0
"""Seconds to the next look: while producers stand still, while nobody is held up, and where Kafka ends it by itself."""

WAY_BACK_S = 4.0
"""Seconds to the next look on a way back while nobody is held up."""

GATE_ALARM_S = 300.0
"""A gate that stays shut for so long, in seconds, raises an alarm, or after ``alarm_after`` where that is longer."""

LONG = timedelta(days=2)
"""Longest wait of one trigger where nothing ends it; the task looks then and waits on."""


_HOLDS = {"pause_kept": Row.PAUSE.value, "postponement_kept": Row.POSTPONE.value}
"""The row of the journal that ends the wait of a rule."""


def trigger_for(ctx: MigrationContext, waiting: Waiting, consumer: str, *, woken: bool) -> Any:
    """The trigger that fits. ``woken``: this task has waited before, so it waits a little longer before it looks."""
    from topicshift_airflow.triggers.journal import ClockTrigger, RowTrigger

    decision = waiting.decision
    if waiting.view.record.mirrored:  # one task drives the whole way back, and looks for itself
        frozen = waiting.view.record.freeze is not None
        return ClockTrigger(moment=ctx.clock.now().timestamp() + (FROZEN_S if frozen else WAY_BACK_S))
    if decision.rule in ("gate", "verifier_started"):  # the verifier's own task starts it, and starts it anew
        # Producers that a person has stopped stand still: nobody waits for the groups any more.
        stopped = waiting.view.answer(Ask.STOP_BY_HAND).said == "yes"
        return _gate(ctx, drain=not stopped, pause_s=4.0 if woken else 1.0)
    if decision.rule == "drained" and decision.step is Step.DRAIN:
        return _drain(ctx, consumer)
    now = ctx.clock.now()
    if decision.rule in _HOLDS:
        moment = datetime.fromisoformat(decision.until) if decision.until else now + LONG
        return RowTrigger(moment=moment.timestamp(), migration_id=ctx.row.migration_id, row=_HOLDS[decision.rule])
    if decision.until:
        until = datetime.fromisoformat(decision.until)
        longest = {"screamed": until - now, "window_open": LONG}.get(decision.rule, timedelta(seconds=LATE_S))
        moment = min(until, now + longest)
    else:
        moment = now + timedelta(seconds=CALM_S if ctx.record().freeze is None else FROZEN_S)
    return ClockTrigger(moment=moment.timestamp(), migration_id=ctx.row.migration_id)


def _inputs(ctx: MigrationContext, consumer: str) -> dict[str, Any]:
    readers = [r.model_dump(mode="json") for r in ctx.spec.readers_of(consumer)]
    policy = ctx.installation() if readers else None
    places = {"places": policy.reader_locations} if policy is not None and policy.reader_locations is not None else {}
    own = [c.group for c in ctx.spec.consumers]
    return {**DrainInputs.from_spec(ctx.spec, consumer=consumer).values(), "readers": readers, "own": own, **places}


def _common(ctx: MigrationContext, consumer: str, deadline: datetime) -> dict[str, Any]:
    return {
        "kafka_conn_id": ctx.spec.kafka_conn_id,
        "migration_id": ctx.row.migration_id,
        "inputs": _inputs(ctx, consumer),
        "deadline": deadline.timestamp(),
    }


def _gate(ctx: MigrationContext, *, drain: bool, pause_s: float) -> Any:
    from topicshift_airflow.triggers.drain import GateTrigger

    window = ctx.policy.opening(ctx.clock.now())
    late = ctx.begin_by if window is None else window.last
    return GateTrigger(
        **_common(ctx, "", late or ctx.clock.now() + LONG),
        budget_s=ctx.spec.freeze_budget.total_seconds(),
        pause_s=pause_s,
        drain=drain,
        owner=ctx.claim.owner,
        epoch=ctx.claim.epoch,
        alarm_after_s=max(GATE_ALARM_S, ctx.spec.alarm_after.total_seconds()),
    )


def _drain(ctx: MigrationContext, consumer: str) -> Any:
    from topicshift_airflow.triggers.drain import DrainTrigger

    record = ctx.record()
    fence, freeze = ctx.fence_of(record), record.freeze
    return DrainTrigger(
        **_common(ctx, consumer, freeze.act_until if freeze is not None else ctx.clock.now() + LONG),
        fence=fence.point.model_dump(mode="json"),
        progress_name=f"drain_progress{suffix(consumer)}.json",
        owner=ctx.claim.owner,
        epoch=ctx.claim.epoch,
        alarm_after_s=ctx.spec.alarm_after.total_seconds(),
    )
