"""Work on a migration that is named, not owned yet: rollback and retirement take it over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topicshift.core.errors import NotFound, SpecError
from topicshift.ports import MigrationRow
from topicshift_airflow.runtime import Run, open_journal, open_run, typed_failures


@contextmanager
def named_migration(context: Mapping[str, Any], migration_id: str) -> Iterator[Run]:
    """Take a migration over for this run, by its id."""
    with typed_failures(context), open_run(context, migration_id) as run:
        yield run


def find_migration(wanted: str) -> MigrationRow:
    """The newest migration with this id, source or target. Raises ``NotFound`` with those there are."""
    journal = open_journal()
    try:
        rows = journal.find()
    finally:
        journal.close()
    if not wanted.strip():
        raise SpecError("migration: is empty. Give the id of a migration, or the name of its source or target topic.")
    hits = [r for r in rows if wanted in (r.migration_id, r.source, r.target)]
    if not hits:
        known = ", ".join(f"{r.migration_id} ({r.state})" for r in rows[-5:]) or "none"
        raise NotFound(f"migration: {wanted!r} is not in the journal. The latest are: {known}.")
    return hits[-1]
