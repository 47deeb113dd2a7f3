"""Durations as people write them in a spec: ``90s``, ``15m``, ``2h``, ``7d``, ``1h30m``, ``500ms``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WRONG = "{!r} is not a duration; write for instance 90s, 15m, 2h, 7d or 1h30m"


def parse_duration(value: Any) -> timedelta:
    """Turn ``"1h30m"``, a number of seconds or a timedelta into a timedelta.

    Raises ``ValueError`` with the accepted forms for anything else, and for negative values.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and value.strip():
        text = value.strip().lower().replace(" ", "")
        parts = _PART.findall(text)
        if "".join(n + u for n, u in parts) != text:
            raise ValueError(_WRONG.format(value))
        seconds = sum(float(n) * _UNITS[u] for n, u in parts)
    else:
        raise ValueError(_WRONG.format(value))
    if not 0 <= seconds < 10 * 366 * 86400:
        raise ValueError(f"{value!r} is out of range; a duration lies between 0 and ten years")
    return timedelta(seconds=seconds)


def format_duration(value: timedelta) -> str:
    """The shortest spelling that :func:`parse_duration` reads back to the same value (to the millisecond)."""
    ms = round(value.total_seconds() * 1000)
    if ms == 0:
        return "0s"
    out = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        n, ms = divmod(ms, size)
        if n:
            out += f"{n}{unit}"
    return out


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$", "examples": ["120s", "2h"]}),
]
"""A duration field of a spec."""
