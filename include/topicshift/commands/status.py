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
from topicshift.commands.migration import named
from topicshift.core.errors import SpecError, TopicshiftError

if TYPE_CHECKING:
    from topicshift.adapters.journal import SqlJournal
    from topicshift.adapters.journal.snapshots import Snapshots
    from topicshift.core.engine.view import FenceFact, Record, SourceFact, TargetFact, Unknown
    from topicshift.core.page.listing import Shown, Unclear
    from topicshift.ports import ClusterAdmin, EventRow

_NOT_ASKED = "not asked: name the cluster with --bootstrap-server or --kafka-config"


@click.command(
    help="Show migrations: those that are open, or one by its id. By the name of a topic: those of it that are open, "
    "the latest one where none is, or all with --all. A freeze that runs comes "
    "first, then what waits for a person. A migration that this version does not understand is shown as unknown, with "
    "the reason (exit code 4), and hides no other. The type of rollback is computed live, so it needs a cluster. Where "
    "the journal cannot be read, or is lost (--without-journal), the routes of the named cluster are shown."
)
@click.argument("migration", required=False)
@click.option("--all", "everything", is_flag=True, help="Closed migrations too.")
@click.option("--watch", is_flag=True, help="Show it again and again, in a terminal, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: seconds between two looks.",
)
@no_journal.lost_option
@journal_option
@kafka_options_if_wanted
def command(
    migration: str | None,
    everything: bool,
    watch: bool,
    every: float,
    lost: bool,
    journal_url: str | None,
    kafka_config: dict[str, Any] | None,
    as_json: bool,
) -> int:
    """Exit code 0, or 4 if the cluster was named and could not be read, or a migration is not understood."""
    if watch and as_json:
        raise SpecError("--watch is for a terminal, --json for a script. Give one of them; a script asks again itself.")
    if lost and kafka_config is None:
        raise SpecError(f"Without a journal it goes by the route: {_NOT_ASKED}.")
    dead = no_journal.why_dead(journal_url, lost=lost) if kafka_config is not None else None
    if dead is not None and kafka_config is not None:
        return no_journal.status(kafka_config, migration, dead, as_json=as_json)
    journal = open_journal(journal_url)
    from topicshift.adapters.journal.snapshots import Snapshots

    kept = Snapshots(journal.overview())
    admin = None
    try:
        if kafka_config is not None:
            from topicshift.adapters.kafka.admin import KafkaAdmin

            admin = KafkaAdmin(kafka_config)

        def look() -> Looked:
            return _look(journal, kept, admin, migration, everything)

        if watch:
            from topicshift.commands.status_view import watching

            return watching(look, whole=migration is not None, every_s=every)
        now, found = look()
        hidden = 0 if migration is None or everything else len(_seen(kept, migration, True)) - len(found)
    finally:
        journal.close()
        if admin is not None:
            admin.close()
    if as_json:
        answer({"taken_at": now.isoformat(timespec="seconds"), "migrations": found})
    else:
        _show(found, everything, whole=migration is not None)
    if hidden:
        say(f"{hidden} more of {migration} {'is' if hidden == 1 else 'are'} closed; --all shows them too.")
    return _unknown(found, cluster_named=kafka_config is not None)


def _show(found: Sequence[dict[str, Any]], everything: bool, *, whole: bool) -> None:
    if not found:
        click.echo("No migration is open." if not everything else "No migration was ever run.")
        if not everything:
            say("--all shows closed ones as well.")
    else:
        from topicshift.commands.status_view import shown

        out = console()
        for part in shown(found, whole=whole):
            out.print(part)


def _unknown(found: Sequence[dict[str, Any]], *, cluster_named: bool) -> int:
    """Say of each migration what is not known of it. Exit code 4 where there is anything, else 0."""
    code = EXIT_OK
    for one in found:
        if one["unclear"] is not None:
            say(f"{one['migration']}: not understood: {one['unclear']}. Was it written by a newer version?")
        elif cluster_named and one["rollback"]["type"] is None:
            say(f"{one['migration']}: the type of rollback cannot be told: {one['rollback']['why']}")
        else:
            continue
        code = EXIT_UNKNOWN
    return code


Looked = tuple[datetime, list[dict[str, Any]]]
"""When it was looked, and what was seen of each migration."""


def _look(
    journal: SqlJournal, kept: Snapshots, admin: ClusterAdmin | None, wanted: str | None, everything: bool
) -> Looked:
    from topicshift.core.engine.need import urgency

    seen = _seen(kept, wanted, everything)
    # Asked once: a cluster that does not answer costs one time-out, not one for each migration.
    silent = _why_not(admin.cluster) if admin is not None and seen else None
    now = datetime.now(UTC)
    return now, sorted((_describe(journal, kept, one, admin, silent, now) for one in seen), key=urgency)


def _seen(kept: Snapshots, wanted: str | None, everything: bool) -> list[Shown | Unclear]:
    from topicshift.core.page.listing import Unclear

    found = kept.all()

    def open_(one: Shown | Unclear) -> bool:
        # What is not understood may be open: nobody can tell that it is not.
        return isinstance(one, Unclear) or one.row.active or one.row.state == "open"

    if wanted is not None:
        by_id = {one.row.migration_id: one for one in found}
        rows = named(sorted((one.row for one in found), key=lambda r: r.created_at), wanted)
        of_it = [by_id[row.migration_id] for row in rows]
        return of_it if everything else [one for one in of_it if open_(one)] or of_it[-1:]
    return sorted((o for o in found if everything or open_(o)), key=lambda o: o.row.updated_at, reverse=True)


def _describe(
    journal: SqlJournal,
    kept: Snapshots,
    one: Shown | Unclear,
    admin: ClusterAdmin | None,
    dead: str | None,
    now: datetime,
) -> dict[str, Any]:
    """One migration as plain values. One that is not understood hides no other: its ``unclear`` says why."""
    from topicshift.core.page.listing import Unclear, entry, not_understood

    last = _last(kept.overview.latest(one.row.migration_id, 1))
    if not isinstance(one, Unclear):
        try:
            return {**_understood(journal, one, admin, dead, now), "last_event": last, "unclear": None}
        except TopicshiftError:
            raise
        except Exception as error:  # noqa: BLE001 - a newer version may have written anything
            one = Unclear(one.row, one.owners, not_understood(error))
    row, told = one.row, entry(one, now)
    return {
        **{k: told[k] for k in ("migration", "source", "target", "rehearses", "cluster_id", "state", "active", "step")},
        "cutover": None,
        "steps": [],
        "journal_steps": [],
        "owner": row.owner,
        "epoch": row.epoch,
        "plan_hash": row.plan_hash,
        "freeze": None,
        "freezes": [],
        "left": [],
        "rollback": {"type": None, "why": "it is not understood"},
        "going_back": False,
        "waits_for": told["waits_for"],
        "waits_on": told["waits_on"],
        "watch": [],
        "last_event": last,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "unclear": one.why,
    }


def _understood(
    journal: SqlJournal, one: Shown, admin: ClusterAdmin | None, dead: str | None, now: datetime
) -> dict[str, Any]:
    from topicshift.acts.later import later_migration
    from topicshift.core.engine import progress
    from topicshift.core.engine.left import left_of
    from topicshift.core.engine.need import need
    from topicshift.core.engine.snapshot import freeze_seen, freezes_seen, record_to_show, rehearses, watch_found

    row, steps, known = one.row, one.steps, one.record
    held = record_to_show(row, steps)
    way_back = _rollback(held, admin, dead, lambda: later_migration(journal, row))
    freeze = freeze_seen(known, now)
    marks = progress.marks(known)
    step, waits = progress.step_under_way(known), need(known, row.owner, one.events, now)
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
        "freezes": freezes_seen(steps, now),
        "left": left_of(held, one.events),
        "rollback": way_back,
        "going_back": known.mirrored,
        "waits_for": waits.what,
        "waits_on": waits.on,
        "watch": watch_found(steps),
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
    from topicshift.core.page.seen import nothing_goes_back

    if record.state is MigrationState.ROLLED_BACK:
        done = record.step(Row.ROLLBACK)
        return {"type": done.data.get("type", "free") if done is not None else "free", "why": "it was rolled back"}
    if record.policy.rehearsal and record.over:
        return {"type": "free", "why": "it was a rehearsal, and has moved nothing"}
    ended = nothing_goes_back(record)
    if ended:
        return {"type": "free", "why": ended}
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
    from topicshift.core.fence.point import ends_elsewhere

    row = record.step(Row.FENCE)
    held = row.data.get("record") if row is not None else None
    if held is None:
        return Unknown("the fence is not proven")
    fence = {int(p): int(o) for p, o in held["fence_offsets"].items()}
    unread, other = ends_elsewhere(record.source, fence, admin.offsets(record.source))
    if unread:
        return Unknown(f"partitions {unread} of {record.source} cannot be read")
    return FenceFact("; ".join(other))


def _why_not(ask: Callable[[], Any]) -> str | None:
    """Why this could not be read; None if it could."""
    try:
        ask()
    except TopicshiftError as exc:
        return str(exc)
    return None


def _last(events: Sequence[EventRow]) -> dict[str, Any] | None:
    """The first of ``events``, which are newest first."""
    if not events:
        return None
    last = events[0]
    return {"at": last.at, "kind": last.kind, "actor": last.actor}
