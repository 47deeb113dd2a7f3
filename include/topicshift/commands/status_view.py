"""What ``topicshift status`` shows to people: a line a migration, or all of one; once, or again and again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from topicshift.commands.common import EXIT_OK, console, escape
from topicshift.core.errors import SpecError, TopicshiftError

if TYPE_CHECKING:
    from topicshift.core.engine.progress import Mark


def shown(found: Sequence[dict[str, Any]], *, whole: bool) -> list[RenderableType]:
    """All of each migration, or a table with one line for each."""
    return [page(one) for one in found] if whole else [table(found)]


def watching(look: Callable[[], tuple[datetime, list[dict[str, Any]]]], *, whole: bool, every_s: float) -> int:
    """Show what ``look`` sees again and again, until Ctrl-C.

    What could not be read keeps the last picture, with its time.

    Raises ``SpecError`` where there is no terminal, and whatever the first look raises.
    """
    out = console()
    if not out.is_terminal:
        raise SpecError("--watch needs a terminal, and stdout is none. In a script ask for --json, again and again.")
    (at, found), wrong = look(), ""
    with contextlib.suppress(KeyboardInterrupt), Live(console=out, auto_refresh=False) as live:
        while True:
            live.update(_Fitted(_picture(at, found, wrong, whole, every_s)), refresh=True)
            time.sleep(every_s)
            try:
                (at, found), wrong = look(), ""
            except TopicshiftError as error:
                wrong = f"not read since: {' '.join(str(error).split())}"
    return EXIT_OK


def _picture(
    at: datetime, found: Sequence[dict[str, Any]], wrong: str, whole: bool, every_s: float
) -> list[RenderableType]:
    head = f"[dim]as of {at:%H:%M:%S} UTC, every {every_s:g} s; Ctrl-C ends[/]"
    lines: list[RenderableType] = [head, f"[bold red]{escape(wrong)}[/]"] if wrong else [head]
    return [*lines, *(shown(found, whole=whole) if found else ["No migration is open."])]


class _Fitted:
    """Parts one under the other, as many lines as the terminal has; the last one says how many more there are."""

    def __init__(self, parts: Sequence[RenderableType]) -> None:
        self.parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines that fit."""
        lines = console.render_lines(Group(*self.parts), options.update(height=None), pad=False)
        room = options.size.height - 1  # where the cursor rests
        cut = len(lines) - room
        for line in lines if cut <= 0 else lines[: room - 1]:
            yield from line
            yield Segment.line()
        if cut > 0:
            said = f"{cut + 1} more lines: a higher terminal shows them, and so does the command without --watch"
            yield Text(said, style="dim", no_wrap=True, overflow="ellipsis")


def table(found: Sequence[dict[str, Any]]) -> Table:
    """One line a migration; what does not fit is cut off, and stands whole under ``topicshift status MIGRATION``."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    # What has no width of its own is "waits for", which gets the rest of the line.
    for name, most in (("migration", 34), ("at", 16), ("freeze", 15), ("back", 12), ("waits for", None)):
        made.add_column(name, no_wrap=True, overflow="ellipsis", max_width=most, ratio=None if most else 1)
    for one in found:
        made.add_row(
            escape(one["migration"]),
            _at(one),
            _freeze_cell(one["freeze"]) if one["unclear"] is None else "?",
            one["rollback"]["type"] or "?",
            _waits(one),
        )
    return made


def _at(one: dict[str, Any]) -> str:
    """The step that it is at, or its state once it is over."""
    if one["going_back"]:
        return "[bold]going back[/]"
    return one["step"] or "-" if one["state"] == "open" else _state(one)


def _waits(one: dict[str, Any]) -> str:
    style = {"person": "bold yellow", "itself": "default", "nobody": "dim"}[one["waits_on"]]
    return f"[{style}]{escape(one['waits_for'])}[/]"


def _freeze_cell(freeze: dict[str, Any] | None) -> str:
    if freeze is None:
        return "-"
    if not freeze["running"]:
        return f"{freeze['seconds']:.1f} s"
    left = freeze["seconds_left"]
    said = f"{left:.0f} s left" if left > 0 else "[bold red]over[/]"
    return f"[bold yellow]{freeze['seconds']:.0f} s[/], {said}"


def page(one: dict[str, Any]) -> Group:
    """All of one migration."""
    head = f"[bold]{escape(one['migration'])}[/]  {escape(one['source'])} to {escape(one['target'])}"
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(style="cyan", no_wrap=True)
    rows.add_column(overflow="fold")
    kind = one["rollback"]["type"]
    for name, value in (
        *((("rehearsal of", escape(one["rehearses"])),) if one["rehearses"] else ()),
        ("state", _state(one)),
        ("order", one["cutover"] or "not known"),
        ("steps", "  ".join(_styled(s["step"], s["state"]) for s in one["steps"]) or "not known"),
        ("waits for", _waits(one)),
        *(("freeze back" if f["back"] else "freeze", _freeze_text(f)) for f in one["freezes"]),
        *(() if one["freezes"] else (("freeze", "none so far" if one["unclear"] is None else "not known"),)),
        ("rollback", f"{kind or '?'} ({escape(one['rollback']['why'])})"),
        ("owner", escape(f"{one['owner']} (epoch {one['epoch']})")),
        ("plan", one["plan_hash"] or "not decided yet"),
        ("cluster", escape(one["cluster_id"])),
        ("begun", one["created_at"]),
        ("last event", escape("{at} {kind} by {actor}".format(**one["last_event"])) if one["last_event"] else "-"),
    ):
        rows.add_row(name, value)
    lines = [f"[yellow]left to do by hand:[/] {escape(text)}" for text in one["left"]]
    for found in one["watch"]:
        style = "bold red" if found["level"] == "error" else "yellow"
        lines.append(f"[{style}]{found['code']}[/] since {found['since']}: {escape(str(found['seen']))}")
        lines.append(f"  do: {escape(str(found['do']))}")
    return Group(head, rows, *lines)


def _state(one: dict[str, Any]) -> str:
    style = {"open": "bold", "done": "green", "retired": "green", "failed": "bold red", "rolled_back": "yellow"}
    style |= {"rehearsed": "green", "unknown": "bold red"}
    active = (
        ", going back" if one["going_back"] else ", acting" if one["active"] and one["waits_on"] == "itself" else ""
    )
    return f"[{style.get(one['state'], 'bold')}]{one['state']}[/]{active}"


def _styled(step: str, mark: Mark | str) -> str:
    style = {"done": "green", "running": "bold yellow", "undoing": "bold red", "undone": "magenta"}
    style |= {"waiting": "dim", "not_finished": "dim", "not_done": "dim"}
    sign = {"done": "✓", "running": "▶", "undoing": "✗", "undone": "↩", "waiting": "·", "not_finished": "✗"}
    sign |= {"not_done": "-"}
    return f"[{style[mark]}]{sign[mark]} {step}[/]"


def _freeze_text(freeze: dict[str, Any]) -> str:
    if not freeze["running"]:
        return f"{freeze['seconds']:.1f} s at most, ended: {freeze['how'] or 'unknown how'}"
    left = freeze["seconds_left"]
    said = f"{left:.0f} s left" if left > 0 else f"[bold red]over since {-left:.0f} s[/]"
    return f"[bold yellow]running[/] for {freeze['seconds']:.0f} s, {said}"
