"""A later migration of a topic that this one moved: where it stands in the way of going back."""

from __future__ import annotations

from collections.abc import Iterator

from topicshift.core.engine.words import MigrationState, Row, StepState
from topicshift.ports import Journal, MigrationRow, StepRow

_IN_THE_WAY = (Row.FREEZE, Row.FENCE, Row.SWITCH_PRODUCERS, Row.WIDE_DENY)
"""Rows that say that producers or a topic were left otherwise than this migration left them."""


def later_migration(journal: Journal, row: MigrationRow) -> str:
    """The newest migration that holds, or has moved on, a topic of this one since its switch; in words, empty if none.

    One that was rolled back, or failed before it stopped anybody, left everything as it was, and is passed over.
    """
    since = _switched_at(journal.step(row.migration_id, Row.SWITCH_PRODUCERS), row.created_at)
    found = list(_others(journal, row, since))
    if not found:
        return ""
    last = found[-1]
    holds = last.state == MigrationState.OPEN or last.active
    topics = " and ".join(t for t in (row.source, row.target) if t in (last.source, last.target))
    does = f"holds {topics}, owned by {last.owner}" if holds else f"came after it and has moved {topics} on"
    return (
        f"migration {last.migration_id} ({last.source} to {last.target}, {last.state}) {does}: go back from that first"
    )


def _others(journal: Journal, row: MigrationRow, since: str) -> Iterator[MigrationRow]:
    for other in journal.find():
        if other.migration_id == row.migration_id or other.cluster_id != row.cluster_id:
            continue
        if not {other.source, other.target} & {row.source, row.target}:
            continue
        if other.state == MigrationState.OPEN or other.active or _left(journal, other, since):
            yield other


def _left(journal: Journal, other: MigrationRow, since: str) -> bool:
    steps = {s.step: s for s in journal.steps(other.migration_id)}
    held = [s for name in _IN_THE_WAY if (s := steps.get(name)) is not None and StepState(s.state).in_effect]
    return any(s.started_at > since for s in held)


def _switched_at(step: StepRow | None, otherwise: str) -> str:
    return step.started_at if step is not None else otherwise
