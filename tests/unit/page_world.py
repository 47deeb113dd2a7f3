"""A migration of :class:`tests.unit.world.World` in a SQL journal and an evidence folder, as the pages find it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.unit.world import World

from topicshift.adapters.evidence import FsspecEvidence
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.tables import events, migrations, steps
from topicshift.core.plan.draft import Draft
from topicshift.core.proof.audit import canonical_json, genesis_hash, hash_of
from topicshift.core.rows import EventRow, MigrationRow, StepRow

REQUIRED = {"plan": "required", "freeze": "required", "certificate": "auto", "retire": "auto"}


def keep(
    journal: SqlJournal,
    row: MigrationRow,
    rows: Sequence[StepRow],
    trail: Sequence[EventRow],
    *,
    instead: bool = False,
) -> None:
    """Write a migration into a journal as it is. ``instead``: of the one of this id, as who has all rights could."""
    head = trail[-1].hash if trail else genesis_hash(row.migration_id)
    values = asdict(row) | {"spec": canonical_json(dict(row.spec)), "event_count": len(trail), "event_head": head}
    told = [asdict(e) | {"data": canonical_json(dict(e.data))} for e in trail]
    made = [
        asdict(s) | {"data": canonical_json(dict(s.data)), "migration_id": row.migration_id, "position": n}
        for n, s in enumerate(rows)
    ]

    def write(connection: Any, _attempt: int) -> None:
        if instead:
            for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'").all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            for table in (events, steps, migrations):
                connection.execute(table.delete().where(table.c.migration_id == row.migration_id))
        connection.execute(migrations.insert().values(**values))
        for table, all_ in ((steps, made), (events, told)):
            if all_:
                connection.execute(table.insert(), all_)

    journal._db().write(write)


def change(journal: SqlJournal, table: sa.Table, which: Any, **values: Any) -> None:
    """Change rows behind the journal's back, as a newer version, or whoever has all rights, could."""

    def write(connection: Any, _attempt: int) -> None:
        connection.execute(table.update().where(which).values(**values))

    journal._db().write(write)


def renamed(
    row: MigrationRow, trail: Sequence[EventRow], migration_id: str, **changes: Any
) -> tuple[MigrationRow, list[EventRow]]:
    """The same migration under another id, with a chain of its own."""
    before, out = genesis_hash(migration_id), []
    for event in trail:
        bare = replace(event, migration_id=migration_id, prev_hash=before, hash="")
        out.append(replace(bare, hash=hash_of(bare)))
        before = out[-1].hash
    return replace(row, migration_id=migration_id, **changes), out


def publish(world: World, journal: SqlJournal, evidence: Path) -> str:
    """Copy the world's migration, as it is now, to where the pages look; returns its id."""
    name = world.claim.migration_id
    keep(journal, world.journal.current(name), world.journal.steps(name), world.journal.events(name))
    store = FsspecEvidence(str(evidence))
    for file in world.evidence.names(name):
        store.write(name, file, world.evidence.read(name, file) or b"")
    return name


def leave_draft(evidence: Path, run: str, found: Draft) -> str:
    """What ``topic_assessment`` leaves of a topic; returns its folder."""
    FsspecEvidence(str(evidence)).write(f"assessment-{run}", "draft.yaml", found.yaml())
    return f"assessment-{run}"


def drain_progress(at: float = 1_700_000_000.0) -> bytes:
    """What the wait for a drain leaves behind: one group on its way, one that is stuck."""
    going = {"group": "ledger-g", "lag": 400, "rate": 100.0, "seconds_left": 4.0, "sure": "high", "alarm": None}
    stuck = {"group": "fraud-g", "lag": 900, "rate": 0.0, "seconds_left": None, "sure": "none", "alarm": "too_slow"}
    return json.dumps(
        {
            "at": at,
            "groups": [
                going | {"alarm_text": "", "series": [[at - 8, 1200], [at - 4, 800], [at, 400]]},
                stuck | {"alarm_text": "fraud-g has not come nearer for 61 s", "series": [[at - 8, 900], [at, 900]]},
            ],
        }
    ).encode()
