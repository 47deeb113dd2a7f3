"""Rows of the journal as plain values, and the right to write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """The right to act on one migration. Every write names it and fails if a newer epoch owns the migration."""

    migration_id: str
    epoch: int
    owner: str


@dataclass(frozen=True)
class MigrationRow:
    """One migration as journalled. ``state``: open, done, failed, rolled_back, retired. Times ISO 8601 UTC."""

    migration_id: str
    cluster_id: str
    source: str
    target: str
    owner: str
    epoch: int
    state: str
    active: bool
    step: str | None
    plan_hash: str | None
    spec: Mapping[str, Any]
    created_at: str
    updated_at: str


@dataclass(frozen=True)
class StepRow:
    """One step of a migration. ``state``: see :class:`topicshift.core.engine.words.StepState`. ``data`` is JSON."""

    step: str
    state: str
    epoch: int
    data: Mapping[str, Any]
    started_at: str
    finished_at: str | None


@dataclass(frozen=True)
class EventRow:
    """One event of the audit trail; ``hash`` covers all of it and ``prev_hash``."""

    seq: int
    migration_id: str
    epoch: int
    at: str
    actor: str
    kind: str
    data: Mapping[str, Any]
    prev_hash: str
    hash: str


@dataclass(frozen=True)
class Seat:
    """The one act of a migration that is under way: only the holder of the seat acts.

    ``act`` and ``subject`` say what is done, ``holder`` by whom, ``attempt`` counts the holders of this very act. After
    ``until`` (ISO 8601 UTC) the holder may send nothing any more, and another one may take the seat over.
    """

    migration_id: str
    act: str
    subject: str
    holder: str
    attempt: int
    epoch: int
    began_at: str
    until: str
