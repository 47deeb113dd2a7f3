"""What stands for Airflow's API server in tests of the plugin's pages: its settings, its auth manager, and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api import security
from airflow.models import DagModel
from fastapi.testclient import TestClient

from topicshift.adapters.journal import SqlJournal
from topicshift_airflow import runtime
from topicshift_airflow.web import app

Right = tuple[str, tuple[DagAccessEntity, str]]
"""A DAG, and what may be done with it."""

READS, TRIGGERS = (DagAccessEntity.XCOM, "GET"), (DagAccessEntity.RUN, "POST")


def rights_of(users: Mapping[str, set[Right]]) -> type[SimpleAuthManager]:
    """An auth manager with rights by DAG: those of each user."""

    class Rights(SimpleAuthManager):
        def is_authorized_dag(
            self, *, user: Any, method: str, access_entity: Any = None, details: Any = None, **_: Any
        ) -> bool:
            return (details.id, (access_entity, method)) in users[user.username]

    return Rights


def serve(home: Path, monkeypatch: pytest.MonkeyPatch, rights: type[SimpleAuthManager]) -> None:
    """Evidence and journal lie below ``home``; ``rights`` is the auth manager."""
    monkeypatch.setenv("TOPICSHIFT_EVIDENCE", str(home / "evidence"))
    monkeypatch.setenv("TOPICSHIFT_HOME", str(home))
    monkeypatch.setattr(runtime, "find_connection", lambda _: None)
    monkeypatch.setattr(security, "get_auth_manager", rights)
    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", rights)
    monkeypatch.setattr(DagModel, "get_team_name", staticmethod(lambda _: None))
    monkeypatch.setattr(DagModel, "get_dag_id_to_team_name_mapping", staticmethod(dict.fromkeys))


@contextmanager
def journal_served(
    home: Path, monkeypatch: pytest.MonkeyPatch, rights: Mapping[str, set[Right]]
) -> Iterator[SqlJournal]:
    """The journal behind the pages, whose users have these rights."""
    serve(home, monkeypatch, rights_of(rights))
    opened = runtime.open_journal()
    assert isinstance(opened, SqlJournal)
    yield opened
    opened.close()


@contextmanager
def logged_in() -> Iterator[Callable[[str], TestClient]]:
    """The pages as a user sees them; whom a token names is for Airflow to say, and for the end-to-end test."""

    def client(name: str) -> TestClient:
        app.dependency_overrides[security.get_user] = lambda: SimpleAuthManagerUser(username=name, role=None)
        return TestClient(app)

    yield client
    app.dependency_overrides.clear()
