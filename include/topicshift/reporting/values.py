"""How the report writes times and durations, and how it looks into evidence that may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def inside(value: Any, *path: str) -> Any:
    """What stands at this place of nested objects, None where nothing does."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def when(text: Any) -> datetime | None:
    """A time of the evidence (ISO 8601), None if it is none, or names no time zone."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def clock(time: datetime | None) -> str:
    """A moment for a person, to the second; empty for none."""
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else ""


def seconds_text(seconds: float | None) -> str:
    """A duration for a person: ``0.42 s``, ``3.1 s``, ``2 min 05 s``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
