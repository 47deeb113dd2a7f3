"""Lag over time with its forecast, from what the waits of a drain and of the gate leave behind. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

WIDTH, HEIGHT, TOP = 600.0, 120.0, 6.0
"""Of a chart's view box."""

_LARGEST: Final = 1e15
"""Numbers beyond it are no lag, no rate and no time."""

_MOST_FORECAST: Final = 4.0
"""A forecast is drawn for at most this many times the span that was followed, so that the past stays readable."""


def series_of(data: bytes | None) -> dict[str, Any]:
    """A file of progress as plain values: ``at`` (a time, None if not known), ``wanted_s``, ``waits``, and ``groups``.

    What is missing, or not what it should be, is left out, or None.
    """
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        value = {}
    given = value if isinstance(value, dict) else {}
    return {
        "at": _time(given.get("at")),
        "wanted_s": _number(given.get("wanted_s")),
        "waits": [str(w) for w in _items(given.get("waits"))],
        "groups": [_group(g) for g in _items(given.get("groups")) if isinstance(g, dict)],
    }


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
    return float(value) if usable else None


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    pairs = [p for p in _items(group.get("series")) if isinstance(p, list) and len(p) == 2]
    points = [(at, lag) for at, lag in ((_number(p[0]), _number(p[1])) for p in pairs) if None not in (at, lag)]
    return {
        "group": str(group.get("group")),
        "lag": _number(group.get("lag")),
        "rate": _number(group.get("rate")),
        "seconds_left": _number(group.get("seconds_left")),
        "sure": str(group.get("sure") or ""),
        "alarm": str(group.get("alarm") or ""),
        "alarm_text": str(group.get("alarm_text") or ""),
        "series": points,
    }


def groups(progress: Mapping[str, Any], over: datetime | None = None) -> list[dict[str, Any]]:
    """What :func:`series_of` has of each group, with when it was seen and a chart of its lag.

    ``over``: when its migration has ended. Nothing is drawn of later than that, and nothing is forecast.
    """
    if over is not None:
        progress = _until(progress, over)
    return [
        {**group, "seen_at": progress["at"], "chart": _chart(group["series"], group["seconds_left"])}
        for group in progress["groups"]
    ]


def since(progress: Mapping[str, Any], began: datetime | None) -> dict[str, Any]:
    """What :func:`series_of` has, empty where that was seen before ``began``: of an earlier freeze, or another way."""
    at = progress["at"]
    if began is None or (at is not None and at >= began):
        return dict(progress)
    return series_of(None)


def _until(progress: Mapping[str, Any], over: datetime) -> dict[str, Any]:
    found = list[dict[str, Any]]()
    for group in progress["groups"]:
        series = [(at, lag) for at, lag in group["series"] if at <= over.timestamp()]
        cut = len(series) < len(group["series"])
        if cut and not series:
            continue
        last = max(series)[1] if cut else group["lag"]
        none = {"rate": None, "seconds_left": None, "sure": "", "alarm": "", "alarm_text": ""}
        found.append({**group, **none, "series": series, "lag": last})
    return {**progress, "at": min(progress["at"], over) if progress["at"] is not None else None, "groups": found}


def followed(points: Sequence[tuple[float, float]]) -> bool:
    """Whether a lag was seen at two moments: one alone has no rate, and nothing can be forecast or drawn of it."""
    return len({at for at, _ in points}) > 1


def _chart(points: list[tuple[float, float]], left: float | None) -> dict[str, Any] | None:
    """Points of the lag as they were seen, and of the forecast: a straight line to zero."""
    if not followed(points):
        return None
    points = sorted(points)
    began, ended = points[0][0], points[-1][0]
    highest, span = max(lag for _, lag in points), max(ended - began, 1.0)
    ahead = min(left, span * _MOST_FORECAST) if left and left > 0 and points[-1][1] > 0 else 0.0
    scale = WIDTH / (span + ahead)

    def place(at: float, lag: float) -> str:
        return f"{(at - began) * scale:.1f},{HEIGHT - (HEIGHT - TOP) * lag / max(highest, 1.0):.1f}"

    line = " ".join(place(at, lag) for at, lag in points)
    forecast = ""
    if ahead and left:
        end = points[-1][1] * (1 - ahead / left)
        forecast = f"{place(ended, points[-1][1])} {place(ended + ahead, end)}"
    return {
        "line": line,
        "area": f"{place(began, 0)} {line} {place(ended, 0)}",
        "forecast": forecast,
        "highest": highest,
        "last": points[-1][1],
        "seconds": ended - began,
        "ahead_s": ahead,
    }
