"""The gate before the freeze, and what the freeze would be: how long, whom it denies, until when it may begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from topicshift.acts.context import MigrationContext
from topicshift.acts.drain import DrainTaker
from topicshift.acts.fence import deny_of, late_denies, new_writers
from topicshift.acts.rehearsed import last_rehearsal
from topicshift.core.checks.followers import strays
from topicshift.core.drain.gate import Gate
from topicshift.core.engine.go import Forecast
from topicshift.core.engine.view import GateFact, Record, Unknown
from topicshift.core.engine.words import Row
from topicshift.core.errors import Refused, TopicshiftError
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.findings import Finding
from topicshift.core.kafka.cluster import Acl
from topicshift.ports import ParticipantState

_NEW = (
    "an ACL that was made after the plan lets it write to {source}, and nobody has accepted that it is denied. Take "
    "that right away; or close this migration, declare the application under producers, and plan anew"
)


def look_at_gate(ctx: MigrationContext, record: Record, taker: DrainTaker, now: datetime) -> GateFact:
    """Whether the groups would drain well within the budget, who follows the route unasked, and how long it would take.

    Fed from one look to the next through the memory of the advancer, because rates need time.
    """
    if ctx.memory.gate is None:
        ctx.memory.gate = Gate(ctx.spec.freeze_budget.total_seconds())
    certificate = ctx.ports.executor.run(lambda: taker.take(second_sample=False))
    decision = ctx.memory.gate.add(certificate, now.timestamp())
    waits = (*decision.waits, *(f"{f.subject}: {f.seen}" for f in _strays(ctx)))
    late = ctx.begin_by is not None and now >= ctx.begin_by
    forecast = forecast_of(record, decision.seconds)
    rehearsed = last_rehearsal(ctx)
    if rehearsed is not None:
        forecast = replace(forecast, own_s=max(0.0, rehearsed.freeze_s - forecast.settle_s), rehearsed_at=rehearsed.at)
    return GateFact(waits, late, forecast)


def _strays(ctx: MigrationContext) -> list[Finding]:
    """Applications on the route that came since the plan was made, and that nobody would wait for."""
    kinds = {p.kind for p in (*ctx.producers, *ctx.consumers)}
    found = [f for kind in sorted(kinds) for f in ctx.controller(kind).followers(ctx.control())]
    return list(strays(ctx.spec, found))


def forecast_of(record: Record, groups: Mapping[str, float | None]) -> Forecast:
    """The predicted freeze: what each group needs, and what producers took to stop in the last freeze, if any.

    ``groups``: seconds that each needs for what it has not read; None where that cannot be told.
    """
    drain: float | None = 0.0
    if record.policy.drain_first:
        needs = list(groups.values())
        drain = None if not needs or None in needs else max(n for n in needs if n is not None)
    return Forecast(FenceSettings().settle_s, drain, _stop_s(record), groups=dict(groups))


def _stop_s(record: Record) -> float | None:
    row = record.step(Row.STOP_PRODUCERS)
    told, stopped = (row.data.get(key) if row is not None else None for key in ("at", "stopped_at"))
    if told is None or stopped is None:
        return None
    return max(0.0, (datetime.fromisoformat(str(stopped)) - datetime.fromisoformat(str(told))).total_seconds())


def with_people(
    ctx: MigrationContext,
    record: Record,
    gate: GateFact | Unknown,
    states: Sequence[ParticipantState] | Unknown,
    acls: Iterable[Acl] | Unknown,
) -> GateFact | Unknown:
    """The gate with whom the freeze would deny, and how long one dead instance could hold it up.

    A DENY of an earlier freeze that a late request set is the next one's too, so those whom it holds are among them.

    Raises ``Refused`` where plan.json is not the plan that was accepted: that does not heal by waiting.
    """
    if isinstance(gate, Unknown):
        return gate
    for fact in (states, acls):
        if isinstance(fact, Unknown):
            return replace(gate, denied=fact)
    assert not isinstance(states, Unknown) and not isinstance(acls, Unknown)
    try:
        deny, new = deny_of(ctx, acls, states), new_writers(ctx, acls, states)
        late = late_denies(record, acls, ctx.row.source)
    except Refused:
        raise
    except TopicshiftError as error:
        return replace(gate, denied=Unknown(str(error)))
    gone_ms = max((s.gone_ms for s in states if s.gone_ms is not None), default=None)
    forecast = gate.forecast
    if forecast is not None and gone_ms is not None:
        forecast = replace(forecast, gone_s=gone_ms / 1000)
    return replace(
        gate,
        forecast=forecast,
        denied=tuple(sorted({a.principal for a in (*deny.bindings, *late)})),
        waits=(*gate.waits, *(f"{who}: {_NEW.format(source=ctx.row.source)}" for who in new)),
    )
