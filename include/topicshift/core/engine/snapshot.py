"""A migration as its journal shows it at one moment: for status, pages and scripts, which ask no cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.engine.freeze import Freeze, lasted
from topicshift.core.engine.view import Member, Policy, Record, StepRecord
from topicshift.core.engine.words import MigrationState, Row, StepState, plain_name
from topicshift.core.rows import MigrationRow, StepRow
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.shadows import real_name


def record_of(row: MigrationRow, steps: Sequence[StepRow], policy: Policy) -> Record:
    """A migration as the engine needs it, from its journal rows."""
    return Record(
        migration_id=row.migration_id,
        source=row.source,
        target=row.target,
        state=MigrationState(row.state),
        active=row.active,
        plan_hash=row.plan_hash,
        policy=policy,
        steps={s.step: StepRecord(StepState(s.state), s.data, s.finished_at) for s in steps},
        epoch=row.epoch,
    )


def record_to_show(row: MigrationRow, steps: Sequence[StepRow]) -> Record:
    """The migration for the engine's words. A spec of another version still tells its order and participants."""

    def named(key: str) -> list[Mapping[str, Any]]:
        given = row.spec.get(key)
        return [m for m in given if isinstance(m, Mapping)] if isinstance(given, list | tuple) else []

    policy = Policy(
        Cutover(str(row.spec.get("cutover", Cutover.DRAIN_FIRST.value))),
        tuple(Member(str(p.get("name")), manual=p.get("kind") == "manual") for p in named("producers")),
        tuple(Member(str(c.get("name")), str(c.get("group")), c.get("kind") == "manual") for c in named("consumers")),
        frozenset(),
        timedelta(0),
        rehearsal=rehearses(row) is not None,
    )
    return record_of(row, steps, policy)


def rehearses(row: MigrationRow) -> str | None:
    """The topic that this is a rehearsal for; None for a migration."""
    return real_name(row.source) if row.spec.get("mode") == "rehearse" else None


def freeze_seen(record: Record, now: datetime) -> dict[str, Any] | None:
    """The freeze: since when, how long it was or has been (seconds), and the seconds in which a run may still act.

    It begins before the first producer is told to stop and ends when the last one was seen to run again, so producers
    stood still for no longer than that; their own logs say less.
    """
    row = record.step(Row.FREEZE)
    return None if row is None else _freeze(row, now)


def freezes_seen(steps: Sequence[StepRow], now: datetime) -> list[dict[str, Any]]:
    """The last freeze of the way forward and of each way back, as :func:`freeze_seen`, in their order.

    ``back`` says whether it is one of a way back, ``budget_s`` how long it might have lasted.
    """
    found = []
    for row in steps:
        if plain_name(row.step) == Row.FREEZE:
            clock = Freeze.from_data(row.data)
            budget = (clock.lease_until - clock.started_at).total_seconds()
            seen = _freeze(StepRecord(StepState(row.state), row.data, row.finished_at), now)
            found.append({"back": row.step != Row.FREEZE, "budget_s": budget, **seen})
    return found


def _freeze(row: StepRecord, now: datetime) -> dict[str, Any]:
    seen = lasted(row.state, row.data, now)
    freeze, running = seen.freeze, seen.running
    undoing = row.state is StepState.UNDOING
    return {
        "running": running,
        "started_at": freeze.started_at.isoformat(),
        "seconds": seen.seconds,
        "act_until": freeze.act_until.isoformat(),
        "lease_until": freeze.lease_until.isoformat(),
        "seconds_left": round(freeze.left(now), 3) if running else None,
        "how": "producers are being resumed on the source" if undoing else row.data.get("how"),
    }


def watch_found(steps: Sequence[StepRow]) -> list[dict[str, Any]]:
    """What the watch over the source has found and what still holds, each with the time since when."""
    row = next((s for s in steps if s.step == Row.WATCH), None)
    found = row.data.get("found", ()) if row is not None else ()
    return [{k: one.get(k) for k in ("code", "level", "subject", "seen", "do", "since")} for one in found]
