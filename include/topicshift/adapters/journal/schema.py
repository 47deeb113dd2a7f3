"""The journal's schema: checked with one query, made or upgraded by Alembic only when that says so.

Alembic takes a tenth of a second to import and a task opens the journal inside the freeze, so it stays out of the
usual way. Upgrades are safe when many processes start at once: they run one after another, inside one transaction.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from topicshift.adapters.journal.engine import Database
from topicshift.core.errors import NotFound, Unreadable

VERSION_TABLE: Final = "topicshift_schema_version"
"""Alembic's table, named so that the journal can share a database."""

REVISIONS: Final = ("0001", "0002")
"""Every revision this code knows, oldest first. The last one is the schema it needs."""

_LOCK_KEY: Final = 0x746F706963736869  # "topicshi": the advisory lock of schema changes
_alembic = threading.Lock()  # Alembic's environment is one global of the process


def ensure_schema(database: Database, *, create: bool) -> None:
    """Bring the schema to the last revision this code knows.

    With ``create`` false a database without any journal is left alone and ``NotFound`` raised. A journal with a
    revision unknown to this code raises ``Unreadable``: a newer Topicshift wrote it, and reading it with the wrong
    idea of its tables would be guessing.
    """
    found = database.read(current_revision)
    if found == REVISIONS[-1]:
        return
    _refuse_unknown(database, found)
    if found is None and not create:
        raise NotFound(
            f"There is no journal at {database.name}: no migration was ever run with it. "
            "Name the right one with --journal or TOPICSHIFT_JOURNAL, or start a migration first."
        )
    database.write(lambda connection, _attempt: _upgrade(database, connection))


def current_revision(connection: Connection) -> str | None:
    """The revision of the schema, None where there is no journal."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant


def _refuse_unknown(database: Database, found: str | None) -> None:
    if found is not None and found not in REVISIONS:
        raise Unreadable(
            f"The journal {database.name} has schema {found}, and this Topicshift knows schemas up to {REVISIONS[-1]}: "
            "a newer one wrote it. Schemas are never taken back, because that would drop parts of the audit trail. "
            "Install the newer Topicshift here too; nothing was changed."
        )


def _upgrade(database: Database, connection: Connection) -> None:
    if database.postgres:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    found = current_revision(connection)
    _refuse_unknown(database, found)
    if found == REVISIONS[-1]:
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    with _alembic:
        command.upgrade(config, REVISIONS[-1])
