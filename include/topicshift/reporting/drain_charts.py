"""The drain as charts: for each group its lag over time, from ``drain_progress*.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH, HEIGHT = 600, 72
"""Of a chart's view box."""


def chart(name: str, progress: Mapping[str, Any]) -> dict[str, Any] | None:
    """The charts of one file, None where it holds no series. What does not read as numbers is left out."""
    groups = [c for g in progress.get("groups") or () if isinstance(g, Mapping) and (c := _group(g)) is not None]
    return {"name": name, "groups": groups} if groups else None


def _group(group: Mapping[str, Any]) -> dict[str, Any] | None:
    points = [
        (float(p[0]), float(p[1]))
        for p in group.get("series") or ()
        if isinstance(p, list | tuple) and len(p) == 2 and all(isinstance(v, int | float) for v in p)
    ]
    if not points:
        return None
    began, ended = points[0][0], points[-1][0]
    highest = max(lag for _, lag in points)
    span = max(ended - began, 1e-3)
    line = " ".join(
        f"{WIDTH * (at - began) / span:.1f},{HEIGHT - (HEIGHT - 4) * lag / max(highest, 1.0):.1f}" for at, lag in points
    )
    return {
        "group": str(group.get("group")),
        "line": line,
        "highest": f"{highest:,.0f}",
        "last": f"{points[-1][1]:,.0f}",
        "seconds": ended - began,
        "alarm": str(group.get("alarm") or ""),
        "alarm_text": str(group.get("alarm_text") or ""),
    }
