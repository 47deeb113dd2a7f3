"""``topicshift status``: every migration's step, owner and freeze, the way back, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands import no_journal
from topicshift.commands.common import (
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    console,
    journal_option,
    kafka_options_if_wanted,
    open_journal,
    say,
)
from topicshift.commands.migration import rows_of
from topicshift.core.errors import SpecError, TopicshiftError

if TYPE_CHECKING:
    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.engine.view import FenceFact, Record, SourceFact, TargetFact, Unknown
    from topicshift.ports import ClusterAdmin, EventRow, MigrationRow

_NOT_ASKED = "not asked: name the cluster with --bootstrap-server or --kafka-config"


@click.command(
    help="Show migrations: those that are open, or one by its id or by one of its topics. A freeze that runs comes "
    "first, then what waits for a person. The type of rollback is computed live, so it needs a cluster. Where the "
    "journal cannot be read, the routes of the named cluster are shown."
)
@click.argument("migration", required=False)
@click.option("--all", "everything", is_flag=True, help="Closed migrations too (without MIGRATION).")
@click.option("--watch", is_flag=True, help="Show it again and again, in a terminal, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: seconds between two looks.",
)
@journal_option
@kafka_options_if_wanted
def command(
    migration: str | None,
    everything: bool,
    watch: bool,
    every: float,
    journal_url: str | None,
    kafka_config: dict[str, Any] | None,
    as_json: bool,
) -> int:
    """Exit code 0, or 4 if the cluster was named and could not be read."""
    if watch and as_json:
        raise SpecError("--watch is for a terminal, --json for a script. Give one of them; a script asks again itself.")
    dead = no_journal.why_dead(journal_url) if kafka_config is not None else None
    if dead is not None and kafka_config is not None:
        return no_journal.status(kafka_config, migration, dead, as_json=as_json)
    journal = open_journal(journal_url)
    admin = None
    try:
        if kafka_config is not None:
            from topicshift.adapters.kafka.admin import KafkaAdmin

            admin = KafkaAdmin(kafka_config)

        def look() -> Looked:
            return _look(journal, admin, migration, everything)

        if watch:
            from topicshift.commands.status_view import watching

            return watching(look, whole=migration is not None, every_s=every)
        now, found = look()
    finally:
        journal.close()
        if admin is not None:
            admin.close()
    if as_json:
        answer({"taken_at": now.isoformat(timespec="seconds"), "migrations": found})
    elif not found:
        click.echo("No migration is open." if not everything else "No migration was ever run.")
        if not everything:
            say("--all shows closed ones as well.")
    else:
        from topicshift.commands.status_view import shown

        out = console()
        for part in shown(found, whole=migration is not None):
            out.print(part)
    unread = [m for m in found if m["rollback"]["type"] is None and kafka_config is not None]
    for one in unread:
        say(f"{one['migration']}: the type of rollback cannot be told: {one['rollback']['why']}")
    return EXIT_UNKNOWN if unread else EXIT_OK


Looked = tuple[datetime, list[dict[str, Any]]]
"""When it was looked, and what was seen of each migration."""


def _look(journal: SqlJournal, admin: ClusterAdmin | None, wanted: str | None, everything: bool) -> Looked:
    from topicshift.core.engine.need import urgency

    rows = _rows(journal, wanted, everything)
    # Asked once: a cluster that does not answer costs one time-out, not one for each migration.
    silent = _why_not(admin.cluster) if admin is not None and rows else None
    now = datetime.now(UTC)
    return now, sorted((_describe(journal, row, admin, silent, now) for row in rows), key=urgency)


def _rows(journal: SqlJournal, wanted: str | None, everything: bool) -> list[MigrationRow]:
    if wanted is not None:
        return rows_of(journal, wanted)
    rows = [r for r in journal.find() if everything or r.active or r.state == "open"]
    return sorted(rows, key=lambda r: r.updated_at, reverse=True)


def _describe(
    journal: SqlJournal, row: MigrationRow, admin: ClusterAdmin | None, dead: str | None, now: datetime
) -> dict[str, Any]:
    from topicshift.acts.later import later_migration
    from topicshift.core.engine import progress
    from topicshift.core.engine.mirror import live
    from topicshift.core.engine.need import need
    from topicshift.core.engine.snapshot import freeze_seen, record_to_show, rehearses, watch_found

    steps, events = journal.steps(row.migration_id), journal.events(row.migration_id)
    held = record_to_show(row, steps)
    way_back, known = _rollback(held, admin, dead, lambda: later_migration(journal, row)), live(held)
    freeze = freeze_seen(known, now)
    marks = progress.marks(known)
    step, waits = progress.step_under_way(known), need(known, row.owner, events, now)
    return {
        "migration": row.migration_id,
        "source": row.source,
        "target": row.target,
        "rehearses": rehearses(row),
        "cluster_id": row.cluster_id,
        "cutover": known.policy.cutover.value,
        "state": row.state,
        "active": row.active,
        "step": step.value if step else None,
        "steps": [{"step": s.value, "state": m.value} for s, m in marks.items()],
        "journal_steps": [
            {"step": s.step, "state": s.state, "started_at": s.started_at, "finished_at": s.finished_at} for s in steps
        ],
        "owner": row.owner,
        "epoch": row.epoch,
        "plan_hash": row.plan_hash,
        "freeze": freeze,
        "rollback": way_back,
        "going_back": known.mirrored,
        "waits_for": waits.what,
        "waits_on": waits.on,
        "watch": watch_found(steps),
        "last_event": _last(events),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _rollback(record: Record, admin: ClusterAdmin | None, dead: str | None, later: Callable[[], str]) -> dict[str, Any]:
    """The type of rollback and why; ``dead`` says why the cluster that was named does not answer.

    ``later`` says which later migration is in the way.
    """
    from topicshift.core.engine.back import rollback_type
    from topicshift.core.engine.view import Unknown, View
    from topicshift.core.engine.words import MigrationState, Row

    if record.state is MigrationState.ROLLED_BACK:
        done = record.step(Row.ROLLBACK)
        return {"type": done.data.get("type", "free") if done is not None else "free", "why": "it was rolled back"}
    if record.policy.rehearsal and record.over:
        return {"type": "free", "why": "it was a rehearsal, and has moved nothing"}
    if admin is None and record.state is not MigrationState.RETIRED:
        return {"type": None, "why": _NOT_ASKED}
    source: SourceFact | Unknown = Unknown(dead or "it was not asked")
    target: TargetFact | Unknown = source if isinstance(source, Unknown) else Unknown("it was not asked")
    fence: FenceFact | Unknown = Unknown("it was not asked")
    if admin is not None and dead is None:
        try:
            source = replace(_source(record, admin), later=later())
            fence = _fence(record, admin) if source.exists else fence
            target = _target(admin, record)
        except TopicshiftError as exc:
            source = Unknown(str(exc))
    now = datetime.now(UTC)
    kind, why = rollback_type(View(record, now, now, source=source, target=target, fence=fence))
    return {"type": kind, "why": why}


def _target(admin: ClusterAdmin, record: Record) -> TargetFact:
    """The target: whether it is the one that was made, and the sum of END_U, None where a partition cannot be read."""
    from topicshift.core.engine.view import TargetFact
    from topicshift.core.engine.words import Row
    from topicshift.core.kafka.cluster import total_end
    from topicshift.core.proof.verification import same_topic_id

    info, made = admin.topic(record.target), record.step(Row.CREATE_TARGET)
    if info is None:
        return TargetFact(False, used=0)
    used = total_end(admin.offsets(record.target).values())
    wanted = None if made is None else made.data.get("topic_id")
    return TargetFact(True, used=used, same=wanted is None or same_topic_id(info.topic_id, str(wanted)))


def _source(record: Record, admin: ClusterAdmin) -> SourceFact:
    """Whether the source exists, and is the topic that the migration began with."""
    from topicshift.core.engine.view import SourceFact
    from topicshift.core.engine.words import Row
    from topicshift.core.proof.verification import same_topic_id

    made, seen = record.step(Row.CREATE_TARGET), admin.topic(record.source)
    known = made.data.get("source_id") if made is not None else None
    return SourceFact(
        seen is not None, same=seen is not None and (not known or same_topic_id(seen.topic_id, str(known)))
    )


def _fence(record: Record, admin: ClusterAdmin) -> FenceFact | Unknown:
    """Whether the source still ends where its fence was taken."""
    from topicshift.core.engine.view import FenceFact, Unknown
    from topicshift.core.engine.words import Row

    row = record.step(Row.FENCE)
    held = row.data.get("record") if row is not None else None
    if held is None:
        return Unknown("the fence is not proven")
    ends, fence = admin.offsets(record.source), {int(p): int(o) for p, o in held["fence_offsets"].items()}
    unread = [p for p in fence if p not in ends or ends[p].end is None]
    if unread:
        return Unknown(f"partitions {unread} of {record.source} cannot be read")
    other = [
        f"{record.source}[{p}] ends at {ends[p].end}, fence {o}" for p, o in sorted(fence.items()) if ends[p].end != o
    ]
    return FenceFact("; ".join(other))


def _why_not(ask: Callable[[], Any]) -> str | None:
    """Why this could not be read; None if it could."""
    try:
        ask()
    except TopicshiftError as exc:
        return str(exc)
    return None


def _last(events: Sequence[EventRow]) -> dict[str, Any] | None:
    if not events:
        return None
    last = events[-1]
    return {"at": last.at, "kind": last.kind, "actor": last.actor}
