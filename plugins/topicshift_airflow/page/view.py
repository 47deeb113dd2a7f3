"""Plain values to HTML. Everything is escaped by Jinja; a template has no inline script or style."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from topicshift.reporting.values import seconds_text, when

_CODE: Final = re.compile("`([^`]+)`")

TONES: Final = {
    **dict.fromkeys(("done", "retired", "rehearsed", "running", "yes"), "good"),
    **dict.fromkeys(("failed", "undoing", "error", "no", "forward_only", "unknown"), "bad"),
    **dict.fromkeys(("rolled_back", "undone", "warning", "stopped", "not running", "nobody answered"), "warn"),
}
"""The colour of a word; others are neutral."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": lambda value: seconds_text(value) if value is not None else "–",
        "clock": clock,
        "day": day,
        "tone": lambda word: TONES.get(str(word), "open"),
        "words": lambda name: str(name).replace("_", " "),
        "url": lambda text: quote(str(text), safe=""),
        "json": lambda value: json.dumps(value),
        "counted": counted,
        "marked": marked,
        "count": lambda value: f"{value:,.0f}" if isinstance(value, int | float) else "?",
    }
    return made


def counted(n: int, one: str) -> str:
    """A count with its noun: ``1 file``, ``2 files``."""
    return f"{n:,} {one}{'' if n == 1 else 's'}"


def marked(text: Any) -> str:
    """Text with quotation marks around what stands between two backticks; a tag would be one that a name could make."""
    return _CODE.sub(r"“\1”", str(text))


def rendered(template: str, **values: Any) -> str:
    """A page as HTML."""
    return _environment().get_template(template).render(**values)


def clock(text: Any) -> str:
    """A time as ``14:03:07``, in UTC; as it stands where it is none."""
    at = when(text)
    return f"{at.astimezone(UTC):%H:%M:%S}" if at is not None else str(text or "–")


def day(text: Any) -> str:
    """A time as ``2026-03-01 14:03``, in UTC; as it stands where it is none."""
    at: datetime | None = when(text)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}" if at is not None else str(text or "–")
