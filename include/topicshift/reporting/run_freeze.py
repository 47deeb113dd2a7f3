"""The freezes of a run, from the journal's rows and events: how long, of how much, and what happened inside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from topicshift.core.engine.words import Row, plain_name
from topicshift.reporting.values import clock, inside, seconds_text, when

_MARKS = {
    "fenced": "fence proven",
    "drained": "drained",
    "verified": "verified",
    "approved": "approved",
    "producers_switched": "producers on the target",
    "producers_resumed": "resumed on the source",
}
_ENDS = ("producers_switched", "producers_resumed", "rolled_back")

Rows = Sequence[Mapping[str, Any]]


def freezes(steps: Rows, events: Rows) -> list[dict[str, Any]]:
    """The last freeze of the way forward and of each way back, in this order, with those before it."""
    found = []
    for row in steps:
        if plain_name(str(row.get("step"))) == Row.FREEZE:
            one = _freeze(row, events)
            if one is not None:
                found.append(one)
    return found


def _freeze(row: Mapping[str, Any], events: Rows) -> dict[str, Any] | None:
    """One freeze as a line: its bounds, and what happened inside it, by share of its length."""
    data = row.get("data") or {}
    began, ended, lease = (when(inside(data, key)) for key in ("started_at", "ended_at", "lease_until"))
    if began is None:
        return None
    length = max((ended - began).total_seconds(), 0.001) if ended else None
    allowed = max((lease - began).total_seconds(), 0.001) if lease else None
    back = str(row.get("step")) != Row.FREEZE
    used = round(100 * length / allowed) if length is not None and allowed is not None else None
    return {
        "back": back,
        "began": clock(began),
        "seconds": length,
        "length": seconds_text(length) if length is not None else "Not over",
        "how": str(data.get("how") or f"it ends by itself at {clock(lease)} UTC"),
        "budget": seconds_text(allowed) if allowed is not None else "",
        "used": used,
        "bar": min(100, used or 0),
        "over": used is not None and used > 100,
        "marks": _marks(events, began, ended or lease or began, back),
        "earlier": _earlier(events, began, back),
    }


def _of_way(event: Mapping[str, Any], back: bool) -> bool:
    return bool(inside(event, "data", "way") == "back") is back


def _marks(events: Rows, began: datetime, last: datetime, back: bool) -> list[dict[str, Any]]:
    length = max((last - began).total_seconds(), 0.001)
    marks = []
    for event in events:
        at, label = when(event.get("at")), _MARKS.get(str(event.get("kind")))
        if at is None or label is None or not began <= at <= last + timedelta(seconds=1) or not _of_way(event, back):
            continue
        passed = (at - began).total_seconds()
        marks.append({"label": label, "at": f"+{passed:.2f} s", "share": round(min(100.0, 100 * passed / length), 2)})
    return marks


def _earlier(events: Rows, last: datetime, back: bool) -> list[dict[str, str]]:
    """The freezes of this way before the last one: when each began, and how long it was at most."""
    found: list[dict[str, str]] = []
    open_: datetime | None = None
    for event in (e for e in events if _of_way(e, back)):
        kind, at = str(event.get("kind")), when(event.get("at"))
        if kind == "freeze_begun":
            open_ = when(inside(event, "data", "started_at")) or at
            if open_ is None or open_ >= last:
                break
            found.append({"began": clock(open_), "length": "of unknown length"})
        elif kind in _ENDS and open_ is not None and at is not None:
            found[-1]["length"] = seconds_text((at - open_).total_seconds())
            open_ = None
    return found
