"""What tests of the command line share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

from topicshift import cli
from topicshift.adapters.journal import SqlJournal


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("TOPICSHIFT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    """The journal that commands find by themselves."""
    with closing(SqlJournal(f"sqlite:///{tmp_path}/airflow/topicshift/journal.db")) as made:
        yield made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line; gives exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.run(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


@pytest.fixture
def with_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[click.Command], None]:
    """Puts a command in the place of ``size``."""

    def put(command: click.Command) -> None:
        monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)

    return put
