"""What the end of a migration, or of its freeze, has left to be done by hand: one text for status, page and report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Row
from topicshift.core.rows import EventRow

TELLS: Final = frozenset({"closed", "rolled_back", "rehearsal_over", "producers_resumed"})
"""Events that say what is left."""

_OVER: Final = frozenset({"reopened", "went_on", "proof"})
"""Events after which what an earlier one has left does not count any more."""

COUNTED: Final = TELLS | _OVER
"""Kinds of events of which the last one of each kind tells what is left."""


def left_by_hand(events: Iterable[tuple[str, Mapping[str, Any]]], rollback: Mapping[str, Any] | None) -> list[str]:
    """What is left, one line each. ``events``: kind and data, oldest first; ``rollback``: data of its journal row."""
    none: tuple[str, Mapping[str, Any]] = "", {}
    kind, data = next(((k, d) for k, d in reversed(list(events)) if k in COUNTED), none)
    if kind not in TELLS:
        return []
    if kind == "rolled_back" and rollback is not None:
        data = {"not_restored": rollback.get("not_restored"), **data}
    found = {key: data.get(key) for key in ("left", "not_restored", "start_by_hand")}
    lines = {key: [str(x) for x in value] if isinstance(value, list | tuple) else [] for key, value in found.items()}
    by_hand = [f"start by hand on the source: {name}" for name in lines["start_by_hand"]]
    return [*lines["left"], *lines["not_restored"], *by_hand]


def left_of(record: Record, events: Iterable[EventRow]) -> list[str]:
    """The same of a migration as its journal has it."""
    row = record.step(Row.ROLLBACK)
    return left_by_hand(((e.kind, e.data) for e in events), row.data if row is not None else None)
