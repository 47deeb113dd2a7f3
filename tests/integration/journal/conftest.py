"""Journals to test: in memory, SQLite in a file, PostgreSQL for real."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lab.postgres import with_schema
from topicshift.adapters.journal import SqlJournal
from topicshift.ports import Clock
from topicshift.testing.fake_journal import FakeJournal

_numbers = itertools.count()


@pytest.fixture(scope="session")
def quick_postgres_url(postgres_url: str) -> str:
    """The server of this run, told not to wait for the disk: no test here cuts the power."""
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("ALTER SYSTEM SET fsync = off"))
        connection.execute(sa.text("SELECT pg_reload_conf()"))
    engine.dispose()
    return postgres_url


@pytest.fixture
def new_postgres_url(quick_postgres_url: str) -> str:
    """A new, empty schema of the database, as an Airflow connection would name it."""
    name = f"journal_{next(_numbers)}"
    engine = sa.create_engine(quick_postgres_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    engine.dispose()
    return with_schema(quick_postgres_url, name).replace("postgresql+psycopg://", "postgres://")


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
