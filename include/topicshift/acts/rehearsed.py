"""What the latest rehearsal of a migration has measured."""

from __future__ import annotations

from dataclasses import dataclass

from topicshift.acts.context import MigrationContext
from topicshift.core.engine.words import MigrationState, Row
from topicshift.core.spec.shadows import real_name


@dataclass(frozen=True)
class Rehearsal:
    """Seconds for which shadow producers stood still, and when that ended (ISO 8601)."""

    freeze_s: float
    at: str


def last_rehearsal(ctx: MigrationContext) -> Rehearsal | None:
    """The latest rehearsal of this source in this order that has ended well; looked up once by each advancer."""
    if not ctx.memory.rehearsal:
        ctx.memory.rehearsal.append(_find(ctx))
    return ctx.memory.rehearsal[0]


def _find(ctx: MigrationContext) -> Rehearsal | None:
    cutover = ctx.spec.cutover.value
    for row in reversed(ctx.journal.find()):
        if (
            row.state == MigrationState.REHEARSED
            and row.cluster_id == ctx.row.cluster_id
            and real_name(row.source) == ctx.row.source
            and row.spec.get("cutover") == cutover
        ):
            switch = ctx.journal.step(row.migration_id, Row.SWITCH_PRODUCERS)
            if switch is not None and "freeze_seconds" in switch.data:
                return Rehearsal(float(switch.data["freeze_seconds"]), str(switch.data["finished_at"]))
    return None
