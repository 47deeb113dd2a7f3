"""What the demo shows while it runs: steps, lag of each group, freeze clock, what is waited for; and the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from topicshift.core.engine.words import ORDER
from topicshift.core.spec.cutover import Cutover

STEPS = tuple(step.value for step in ORDER[Cutover.DRAIN_FIRST])
ASKS = "asks"
"""State of a deferred task whose question nobody has answered."""

_MARK = {
    "success": ("done", "green"),
    "running": ("running", "cyan"),
    "deferred": ("waiting", "yellow"),
    ASKS: ("asks a person", "magenta"),
    "up_for_retry": ("tries again", "yellow"),
    "failed": ("failed", "bold red"),
    "upstream_failed": ("not reached", "red"),
    "skipped": ("skipped", "dim"),
}
_WEIGHT = ("failed", "upstream_failed", ASKS, "running", "deferred", "up_for_retry", "queued", "scheduled")


def step_of(task_id: str) -> str:
    """The step (task group) that a task belongs to."""
    return task_id.split(".")[0]


@dataclass
class StepState:
    """One step: its state, and when it ran (seconds since the epoch, None where it has not)."""

    name: str
    state: str = ""
    began: float | None = None
    ended: float | None = None

    def seconds(self, now: float) -> float | None:
        """How long it took, or has taken so far."""
        if self.began is None:
            return None
        return (self.ended if self.ended is not None else now) - self.began


def _time(value: Any) -> float | None:
    return datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() if value else None


def steps_from(tasks: Sequence[Mapping[str, Any]]) -> list[StepState]:
    """Steps from Airflow's task instances. The armed verifier runs beside the others and does not stretch its step."""
    out = []
    for name in STEPS:
        mine = [
            t
            for t in tasks
            if step_of(t["task_id"]) == name
            and not (t["task_id"].endswith("drain_verification"))
            and t["state"] not in ("skipped", None, "removed")
        ]
        armed_failed = any(t["task_id"].endswith("drain_verification") and t["state"] == "failed" for t in tasks)
        states = [t["state"] for t in mine]
        if name == "verify_drain" and armed_failed:
            states.append("failed")
        began = [b for t in mine if (b := _time(t["start_date"])) is not None]
        ended = [e for t in mine if (e := _time(t["end_date"])) is not None]
        state = next((s for s in _WEIGHT if s in states), "success" if states else "")
        over = bool(ended) and state in ("success", "failed", "upstream_failed")
        out.append(StepState(name, state, min(began, default=None), max(ended) if over else None))
    return out


@dataclass
class View:
    """Everything on the screen; refreshed by the demo, rendered by rich."""

    title: str
    steps: list[StepState] = field(default_factory=list)
    lags: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Group -> lag on source and target, in offsets."""
    freeze: str = ""
    waits: str = ""
    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """A line that stays on the screen for a while."""
        self.said = [*self.said, f"{datetime.now(UTC):%H:%M:%S}  {text}"][-6:]

    def __rich__(self) -> Group:
        now = datetime.now(UTC).timestamp()
        steps = Table(box=box.SIMPLE, title=self.title, title_justify="left", title_style="bold", expand=False)
        steps.add_column("step", min_width=18)
        steps.add_column("state", min_width=14)
        steps.add_column("seconds", justify="right")
        for s in self.steps:
            word, style = _MARK.get(s.state, (s.state, "dim"))
            took = s.seconds(now)
            steps.add_row(s.name, Text(word, style=style), "" if took is None else f"{took:.1f}")
        lag = Table(box=box.SIMPLE)
        lag.add_column("group")
        lag.add_column("lag on source", justify="right")
        lag.add_column("lag on target", justify="right")
        for name, (source, target) in self.lags.items():
            lag.add_row(name, *("-" if n is None else f"{n:,}" for n in (source, target)))
        words = [Text(f"freeze: {self.freeze}", style="bold yellow" if "running" in self.freeze else "")]
        if self.waits:
            words.append(Text(f"waits for: {self.waits}", style="yellow"))
        words += [Text(line, style="dim") for line in self.said]
        return Group(steps, lag, *words)


def proof_table(summary: Mapping[str, Any]) -> Table:
    """The proof, from the applications' own logs."""
    table = Table(box=box.SIMPLE_HEAVY, title="Proof, from the applications' own logs", title_justify="left")
    table.add_column("group")
    for name in ("sent", "processed", "lost", "duplicated", "out of order per key"):
        table.add_column(name, justify="right")
    for name, g in summary["groups"].items():
        cells = []
        for key in ("lost", "duplicated", "out_of_order"):
            cells.append(Text(f"{g[key]:,}", style="green" if g[key] == 0 else "bold red"))
        table.add_row(name, f"{summary['sent']:,}", f"{g['processed']:,}", *cells)
    return table


def duration_table(summary: Mapping[str, Any]) -> Table:
    """How long each step took, and the freeze."""
    table = Table(box=box.SIMPLE_HEAVY, title="Durations", title_justify="left")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for step in summary["steps"]:
        table.add_row(step["name"], f"{step['seconds']:.1f}")
    freeze = summary["freeze_seconds"]
    table.add_row(Text("freeze", style="bold"), Text("-" if freeze is None else f"{freeze:.1f}", style="bold"))
    return table
