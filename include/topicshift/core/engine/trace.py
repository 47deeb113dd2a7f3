"""A view as plain values and back: the audit trail keeps what each act was decided on, so that it can be decided again.

Only what rules look at is kept of journal rows; the rest of a row (offsets, ACLs) is in the journal itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from topicshift.core.engine import view as views
from topicshift.core.engine.words import Ask, MigrationState, StepState
from topicshift.core.spec.model import Cutover

KEPT: Final = frozenset(
    (
        *("act_until", "at", "attempt", "error", "lease_until", "question", "said", "started_at", "substance"),
        *("taken_at", "until", "why"),
    )
)
"""Keys of a journal row's data that rules look at."""

_CLASSES: Final = {c.__name__: c for c in vars(views).values() if isinstance(c, type) and is_dataclass(c)}
_ENUMS: Final[tuple[type[Enum], ...]] = (Ask, MigrationState, StepState, Cutover)


def dump(value: Any) -> Any:
    """Plain values for JSON, with the class of each dataclass as ``is``."""
    if isinstance(value, views.StepRecord):
        data = {k: v for k, v in value.data.items() if k in KEPT}
        return {"is": "StepRecord", "state": dump(value.state), "data": data, "finished_at": value.finished_at}
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: dump(getattr(value, f.name)) for f in fields(value)}
        return {"is": type(value).__name__, **found}
    if isinstance(value, Enum):
        return {"enum": type(value).__name__, "value": value.value}
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, Mapping):
        return {"map": {str(k): dump(v) for k, v in value.items()}}
    if isinstance(value, frozenset | set):
        return {"set": sorted((dump(v) for v in value), key=str)}
    return [dump(v) for v in value] if isinstance(value, tuple | list) else value


def load(value: Any) -> Any:
    """The inverse of :func:`dump`."""
    if isinstance(value, list):
        return tuple(load(v) for v in value)
    if not isinstance(value, Mapping):
        return value
    if value.get("is") == "StepRecord":
        return views.StepRecord(load(value["state"]), value["data"], value["finished_at"])
    if "is" in value:
        return _CLASSES[value["is"]](**{k: load(v) for k, v in value.items() if k != "is"})
    if "enum" in value:
        return next(e for e in _ENUMS if e.__name__ == value["enum"])(value["value"])
    if "time" in value:
        return datetime.fromisoformat(value["time"])
    if "seconds" in value:
        return timedelta(seconds=value["seconds"])
    if "set" in value:
        return frozenset(load(v) for v in value["set"])
    return {k: load(v) for k, v in value["map"].items()}


def view_of(trace: Mapping[str, Any]) -> views.View:
    """The view that an act of the audit trail was decided on."""
    found = load(trace["view"])
    assert isinstance(found, views.View)
    return found
