"""``topicshift status``: every migration's step, owner and freeze, the way back, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

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
from topicshift.core.errors import NotFound, TopicshiftError

if TYPE_CHECKING:
    from rich.console import Console

    from topicshift.adapters.journal import SqlJournal
    from topicshift.core.engine.states import Mark
    from topicshift.ports import ClusterAdmin, EventRow, MigrationRow, StepRow

_NOT_ASKED = "not asked: name the cluster with --bootstrap-server or --kafka-config"


@click.command(
    help="Show migrations: those that are open, or one by its id or by one of its topics. The type of rollback is "
    "computed live, so it needs a cluster."
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
    journal = open_journal(journal_url)
    admin = None
    try:
        rows = _rows(journal, migration, everything)
        if kafka_config is not None:
            from topicshift.adapters.kafka.admin import KafkaAdmin

            admin = KafkaAdmin(kafka_config)
        # Asked once: a cluster that does not answer costs one time-out, not one for each migration.
        dead = _why_not(admin.cluster) if admin is not None and rows else None
        now = datetime.now(UTC)
        way_back = {r.migration_id: _rollback(r, admin, dead) for r in rows}
        found = [_describe(journal, row, way_back[row.migration_id], now) for row in rows]
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
    rows = journal.find()
    if wanted is None:
        return [r for r in rows if everything or r.active or r.state == "open"]
    by_id = [r for r in rows if r.migration_id == wanted]
    by_topic = [r for r in rows if wanted in (r.source, r.target)]
    if not by_id and not by_topic:
        import difflib

        names = {n for r in rows for n in (r.migration_id, r.source, r.target)}
        near = difflib.get_close_matches(wanted, sorted(names), n=1)
        hint = f"Did you mean {near[0]}?" if near else "topicshift status --all lists every migration."
        raise NotFound(f"The journal has no migration {wanted!r} and none that touches such a topic. {hint}")
    return by_id or by_topic


def _describe(journal: SqlJournal, row: MigrationRow, way_back: dict[str, Any], now: datetime) -> dict[str, Any]:
    from topicshift.core.engine import states

    steps, events = journal.steps(row.migration_id), journal.events(row.migration_id)
    known = states.Journalled(
        cutover=_cutover(row),
        groups=tuple(str(c.get("group")) for c in row.spec.get("consumers", []) if isinstance(c, dict)),
        state=row.state,
        active=row.active,
        plan_hash=row.plan_hash,
        steps={s.step: s.state for s in steps},
    )
    freeze = _freeze(steps, now)
    marks = states.marks(known)
    step = states.step_under_way(known)
    return {
        "migration": row.migration_id,
        "source": row.source,
        "target": row.target,
        "cluster_id": row.cluster_id,
        "cutover": known.cutover.value,
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
        "waits_for": states.waits_for(known, [(e.kind, e.data) for e in events]),
        "last_event": _last(events),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _cutover(row: MigrationRow) -> Any:
    from topicshift.core.spec.model import Cutover

    return Cutover(str(row.spec.get("cutover", Cutover.DRAIN_FIRST.value)))


def _freeze(steps: Sequence[StepRow], now: datetime) -> dict[str, Any] | None:
    """The freeze: since when, how long it was or has been (seconds), and the seconds in which a run may still act."""
    from topicshift.core.engine.freeze import Freeze

    row = next((s for s in steps if s.step == "freeze"), None)
    if row is None:
        return None
    freeze = Freeze.from_data(row.data)
    running = row.state in ("intended", "failed")
    ended = row.data.get("ended_at")
    until = now if running or ended is None else datetime.fromisoformat(str(ended))
    return {
        "running": running,
        "started_at": freeze.started_at.isoformat(),
        "seconds": round((until - freeze.started_at).total_seconds(), 3),
        "act_until": freeze.act_until.isoformat(),
        "lease_until": freeze.lease_until.isoformat(),
        "seconds_left": round(freeze.left(now), 3) if running else None,
        "how": "being given back" if row.state == "failed" else row.data.get("how"),
    }


def _rollback(row: MigrationRow, admin: ClusterAdmin | None, dead: str | None) -> dict[str, Any]:
    """The type of rollback and why; ``dead`` says why the cluster that was named does not answer."""
    from topicshift.acts.participants import used_offsets
    from topicshift.core.engine.states import Rollback, rollback_type

    if row.state == "rolled_back":
        return {"type": Rollback.FREE.value, "why": "it was rolled back"}
    if admin is None and row.state != "retired":
        return {"type": None, "why": _NOT_ASKED}
    exists, records, unread = None, None, dead
    if admin is not None and dead is None:
        try:
            exists = admin.topic(row.source) is not None
            records = used_offsets(admin, row.target)
        except TopicshiftError as exc:
            unread = str(exc)
    kind, why = rollback_type(state=row.state, source_exists=exists, target_records=records)
    return {"type": kind.value if kind else None, "why": f"{why}: {unread}" if kind is None and unread else why}


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


# ------------------------------------------------------------------------------------------------- for people


def _table(found: Sequence[dict[str, Any]], out: Console) -> None:
    from rich.markup import escape
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
    from rich.markup import escape
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


def _state(one: dict[str, Any]) -> str:
    style = {"open": "bold", "done": "green", "retired": "green", "failed": "bold red", "rolled_back": "yellow"}
    active = ", acting" if one["active"] else ""
    return f"[{style.get(one['state'], 'bold')}]{one['state']}[/]{active}"


def _styled(step: str, mark: Mark | str) -> str:
    style = {"done": "green", "running": "bold yellow", "failed": "bold red", "undone": "magenta", "waiting": "dim"}
    sign = {"done": "✓", "running": "▶", "failed": "✗", "undone": "↩", "waiting": "·"}
    return f"[{style[mark]}]{sign[mark]} {step}[/]"


def _freeze_text(freeze: dict[str, Any] | None) -> str:
    if freeze is None:
        return "none so far"
    if not freeze["running"]:
        return f"{freeze['seconds']:.1f} s, ended: {freeze['how'] or 'unknown how'}"
    left = freeze["seconds_left"]
    said = f"{left:.0f} s left" if left > 0 else f"[bold red]over since {-left:.0f} s[/]"
    return f"[bold yellow]running[/] for {freeze['seconds']:.0f} s, {said}"
