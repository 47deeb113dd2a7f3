"""A view as plain values and back: the audit trail keeps what each act was decided on, so that it can be decided again.

Only what rules look at is kept of journal rows; the rest of a row (offsets, ACLs) is in the journal itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter

from topicshift.core.engine.view import View

KEPT: Final = frozenset(
    (
        *("act_until", "at", "attempt", "called_off", "error", "lease_until", "question", "said", "started_at"),
        *("by", "count", "reason", "began_at", "unseen", "unseen_by", "complete"),
        *("substance", "taken_at", "until", "why"),
    )
)
"""Keys of a journal row's data that rules look at."""

_VIEW: Final = TypeAdapter(View)


def dump(view: View) -> dict[str, Any]:
    """Plain values for JSON."""
    steps = {
        name: replace(row, data={k: v for k, v in row.data.items() if k in KEPT})
        for name, row in view.record.steps.items()
    }
    found: dict[str, Any] = _VIEW.dump_python(replace(view, record=replace(view.record, steps=steps)), mode="json")
    return found


def view_of(trace: Mapping[str, Any]) -> View:
    """The view that an act of the audit trail was decided on. Raises ``ValueError`` for what is no view."""
    return _VIEW.validate_python(trace["view"])
