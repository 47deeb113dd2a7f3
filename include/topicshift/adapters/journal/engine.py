"""Engines and transactions: one short transaction a write, retried only when it surely did nothing."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from topicshift.adapters.journal.urls import shown
from topicshift.core.errors import TopicshiftError, Transient, Unreadable

T = TypeVar("T")

_ATTEMPTS = 6
_BUSY_S = 15.0
_CONNECTION: Final[Mapping[str, Any]] = {
    "application_name": "topicshift",
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
"""Settings of a connection to PostgreSQL, where the URL has no others. A database that the network hides is lost after
15 s: without these settings Linux would wait for it for a quarter of an hour."""
_WRITE = "topicshift_write"
_RETRY_STATES = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available


def make_engine(url: str) -> Engine:
    """An engine for this SQLAlchemy URL. Nothing is opened yet."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed, hide_parameters=True, connect_args={"timeout": _BUSY_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    arguments = {name: value for name, value in _CONNECTION.items() if name not in parsed.query}
    return sa.create_engine(
        parsed, hide_parameters=True, pool_size=2, max_overflow=8, pool_pre_ping=True, connect_args=arguments
    )


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own BEGIN comes late and never IMMEDIATE; with None it leaves transactions to _begin_sqlite.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    deadline = time.monotonic() + _BUSY_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # SQLite does not wait for its busy time-out when several processes switch a new file to WAL at once.
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


class Database:
    """Runs short transactions and turns driver errors into the product's, without SQL or values in them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.postgres = engine.dialect.name == "postgresql"
        self.name = shown(engine.url.render_as_string(hide_password=True))

    def write(self, work: Callable[[Connection, int], T]) -> T:
        """Run ``work(connection, attempt)`` in one transaction that takes the write lock at its start (SQLite).

        It runs again after a deadlock, a busy database or a lost connection. In the last case the commit may have
        happened: ``work`` sees ``attempt > 0`` and must find that out.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self.engine.connect().execution_options(**{_WRITE: True}) as connection, connection.begin():
                    return work(connection, attempt)
            except SQLAlchemyError as exc:
                if attempt == _ATTEMPTS - 1 or not _passing(exc):
                    raise self.error(exc, "written") from exc
            time.sleep(random.uniform(0.005, 0.02) * 2**attempt)  # noqa: S311 - spreads retries, nothing secret
        raise AssertionError("unreachable: the last attempt returns or raises")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one snapshot of the journal."""
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if self.postgres else {}
        for attempt in range(_ATTEMPTS):
            try:
                with self.engine.connect().execution_options(**options) as connection, connection.begin():
                    return work(connection)
            except SQLAlchemyError as exc:
                if attempt == _ATTEMPTS - 1 or not _passing(exc):
                    raise self.error(exc, "read") from exc
            time.sleep(random.uniform(0.005, 0.02) * 2**attempt)  # noqa: S311 - spreads retries, nothing secret
        raise AssertionError("unreachable: the last attempt returns or raises")

    def error(self, exc: SQLAlchemyError, act: str) -> TopicshiftError:
        """The product's error for a driver's: passing faults are ``Transient``, all others ``Unreadable``."""
        cause = getattr(exc, "orig", None) or exc
        said = " ".join(str(cause).split())
        kind = Transient if _passing(exc) else Unreadable
        return kind(
            f"The journal {self.name} could not be {act}: {said.rstrip('.')}. Without it no run knows what was "
            "done, so nothing goes on. Check that the database is up, reachable and writable for this "
            "user, then try again."
        )


def _passing(exc: SQLAlchemyError) -> bool:
    if not isinstance(exc, DBAPIError):
        return isinstance(exc, sa.exc.TimeoutError)
    if exc.connection_invalidated:
        return True
    cause = exc.orig
    if isinstance(cause, sqlite3.OperationalError):
        return "locked" in str(cause) or "busy" in str(cause)
    return getattr(cause, "sqlstate", None) in _RETRY_STATES
