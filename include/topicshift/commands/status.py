"""``topicshift status``: every migration's step, owner and freeze, the way back, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from topicshift.commands import no_journal
from topicshift.commands.common import (
    EXIT_OK,
    EXIT_UNKNOWN,
    answer,
    console,
    escape,
    journal_option,
    kafka_options_if_wanted,
    open_journal,
    say,
)
from topicshift.commands.migration import rows_of
from topicshift.core.errors import TopicshiftError

if TYPE_CHECKING:
    from rich.console import Console

    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.engine.progress import Mark
    from topicshift.core.engine.view import FenceFact, Record, SourceFact, TargetFact, Unknown
    from topicshift.ports import ClusterAdmin, EventRow, MigrationRow, StepRow

_NOT_ASKED = "not asked: name the cluster with --bootstrap-server or --kafka-config"


@click.command(
    help="Show migrations: those that are open, or one by its id or by one of its topics. The type of rollback is "
    "computed live, so it needs a cluster. Where the journal cannot be read, the routes of the named cluster are shown."
)
@click.argument("migration", required=False)
@click.option("--all", "everything", is_flag=True, help="Closed migrations too (without MIGRATION).")
@journal_option
@kafka_options_if_wanted
def command(
    migration: str | None,
    everything: bool,
    journal_url: str | None,
    kafka_config: dict[str, Any] | None,
    as_json: bool,
) -> int:
    """Exit code 0, or 4 if the cluster was named and could not be read."""
    dead = no_journal.why_dead(journal_url) if kafka_config is not None else None
    if dead is not None and kafka_config is not None:
        return no_journal.status(kafka_config, migration, dead, as_json=as_json)
    journal = open_journal(journal_url)
    admin = None
    try:
        rows = _rows(journal, migration, everything)
        if kafka_config is not None:
            from topicshift.adapters.kafka.admin import KafkaAdmin

            admin = KafkaAdmin(kafka_config)
        # Asked once: a cluster that does not answer costs one time-out, not one for each migration.
        silent = _why_not(admin.cluster) if admin is not None and rows else None
        now = datetime.now(UTC)
        found = [_describe(journal, row, admin, silent, now) for row in rows]
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
        out = console()
        if migration is None:
            _table(found, out)
        else:
            for one in found:
                _page(one, out)
    unread = [m for m in found if m["rollback"]["type"] is None and kafka_config is not None]
    for one in unread:
        say(f"{one['migration']}: the type of rollback cannot be told: {one['rollback']['why']}")
    return EXIT_UNKNOWN if unread else EXIT_OK


def _rows(journal: SqlJournal, wanted: str | None, everything: bool) -> list[MigrationRow]:
    if wanted is not None:
        return rows_of(journal, wanted)
    rows = [r for r in journal.find() if everything or r.active or r.state == "open"]
    # What is open goes first, the newest last: that is where the eye ends up.
    return sorted(rows, key=lambda r: (r.state == "open" and r.active, r.updated_at), reverse=True)


def _describe(
    journal: SqlJournal, row: MigrationRow, admin: ClusterAdmin | None, dead: str | None, now: datetime
) -> dict[str, Any]:
    from topicshift.acts.later import later_migration
    from topicshift.core.engine import progress
    from topicshift.core.engine.mirror import live

    steps, events = journal.steps(row.migration_id), journal.events(row.migration_id)
    held = _record(row, steps)
    way_back, known = _rollback(held, admin, dead, lambda: later_migration(journal, row)), live(held)
    freeze = _freeze(known, now)
    marks = progress.marks(known)
    step = progress.step_under_way(known)
    return {
        "migration": row.migration_id,
        "source": row.source,
        "target": row.target,
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
        "waits_for": progress.waits_for(known, [(e.kind, e.data) for e in events]),
        "watch": _watch(steps),
        "last_event": _last(events),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _record(row: MigrationRow, steps: Sequence[StepRow]) -> Record:
    """The migration for the engine's words. A spec of another version still tells its order and groups."""
    from topicshift.acts.context import record_of
    from topicshift.core.engine.view import Member, Policy
    from topicshift.core.spec.cutover import Cutover

    def named(key: str) -> list[Mapping[str, Any]]:
        return [m for m in row.spec.get(key, ()) if isinstance(m, dict)]

    policy = Policy(
        Cutover(str(row.spec.get("cutover", Cutover.DRAIN_FIRST.value))),
        tuple(Member(str(p.get("name"))) for p in named("producers")),
        tuple(Member(str(c.get("name")), str(c.get("group"))) for c in named("consumers")),
        frozenset(),
        timedelta(0),
    )
    return record_of(row, steps, policy)


def _freeze(record: Record, now: datetime) -> dict[str, Any] | None:
    """The freeze: since when, how long it was or has been (seconds), and the seconds in which a run may still act."""
    from topicshift.core.engine.freeze import Freeze
    from topicshift.core.engine.words import Row

    row = record.step(Row.FREEZE)
    if row is None:
        return None
    freeze = Freeze.from_data(row.data)
    running = row.state in ("intended", "undoing")
    ended = row.data.get("ended_at")
    until = now if running or ended is None else datetime.fromisoformat(str(ended))
    return {
        "running": running,
        "started_at": freeze.started_at.isoformat(),
        "seconds": round((until - freeze.started_at).total_seconds(), 3),
        "act_until": freeze.act_until.isoformat(),
        "lease_until": freeze.lease_until.isoformat(),
        "seconds_left": round(freeze.left(now), 3) if running else None,
        "how": "producers are being resumed on the source" if row.state == "undoing" else row.data.get("how"),
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


def _watch(steps: Sequence[StepRow]) -> list[dict[str, Any]]:
    """What the watch over the source has found and what still holds, each with the time since when."""
    row = next((s for s in steps if s.step == "watch"), None)
    found = row.data.get("found", ()) if row is not None else ()
    return [{k: one.get(k) for k in ("code", "level", "subject", "seen", "do", "since")} for one in found]


def _last(events: Sequence[EventRow]) -> dict[str, Any] | None:
    if not events:
        return None
    last = events[-1]
    return {"at": last.at, "kind": last.kind, "actor": last.actor}


# ------------------------------------------------------------------------------------------------- for people


def _table(found: Sequence[dict[str, Any]], out: Console) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("migration", "topics", "state", "step", "freeze", "rollback", "waits for", "owner"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(
            escape(one["migration"]),
            escape(f"{one['source']} to {one['target']}"),
            _state(one),
            one["step"] or "-",
            _freeze_text(one["freeze"]),
            one["rollback"]["type"] or "?",
            escape(one["waits_for"]),
            escape(one["owner"]),
        )
    out.print(table)


def _page(one: dict[str, Any], out: Console) -> None:
    from rich.table import Table

    out.print(f"[bold]{escape(one['migration'])}[/]  {escape(one['source'])} to {escape(one['target'])}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    kind = one["rollback"]["type"]
    for name, value in (
        ("state", _state(one)),
        ("order", one["cutover"]),
        ("steps", "  ".join(_styled(s["step"], s["state"]) for s in one["steps"])),
        ("waits for", escape(one["waits_for"])),
        ("freeze", _freeze_text(one["freeze"])),
        ("rollback", f"{kind or '?'} ({escape(one['rollback']['why'])})"),
        ("owner", escape(f"{one['owner']} (epoch {one['epoch']})")),
        ("plan", one["plan_hash"] or "not decided yet"),
        ("cluster", escape(one["cluster_id"])),
        ("begun", one["created_at"]),
        ("last event", escape("{at} {kind} by {actor}".format(**one["last_event"])) if one["last_event"] else "-"),
    ):
        table.add_row(name, value)
    out.print(table)
    for found in one["watch"]:
        style = "bold red" if found["level"] == "error" else "yellow"
        out.print(f"[{style}]{found['code']}[/] since {found['since']}: {escape(str(found['seen']))}")
        out.print(f"  do: {escape(str(found['do']))}")


def _state(one: dict[str, Any]) -> str:
    style = {"open": "bold", "done": "green", "retired": "green", "failed": "bold red", "rolled_back": "yellow"}
    active = ", going back" if one["going_back"] else ", acting" if one["active"] else ""
    return f"[{style.get(one['state'], 'bold')}]{one['state']}[/]{active}"


def _styled(step: str, mark: Mark | str) -> str:
    style = {"done": "green", "running": "bold yellow", "undoing": "bold red", "undone": "magenta", "waiting": "dim"}
    sign = {"done": "✓", "running": "▶", "undoing": "✗", "undone": "↩", "waiting": "·"}
    return f"[{style[mark]}]{sign[mark]} {step}[/]"


def _freeze_text(freeze: dict[str, Any] | None) -> str:
    if freeze is None:
        return "none so far"
    if not freeze["running"]:
        return f"{freeze['seconds']:.1f} s, ended: {freeze['how'] or 'unknown how'}"
    left = freeze["seconds_left"]
    said = f"{left:.0f} s left" if left > 0 else f"[bold red]over since {-left:.0f} s[/]"
    return f"[bold yellow]running[/] for {freeze['seconds']:.0f} s, {said}"
