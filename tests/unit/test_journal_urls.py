"""Where the journal is: Airflow's and SQLAlchemy's spellings, the default, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url

from topicshift.adapters.journal import default_url, from_airflow_uri
from topicshift.adapters.journal.engine import make_engine
from topicshift.adapters.journal.urls import has_password, shown
from topicshift.core.errors import SpecError

EXTRA = quote(json.dumps({"sslmode": "require", "use_pool": True, "nested": {"a": 1}}))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("postgres://u:p@h:5432/db", "postgresql+psycopg://u:p@h:5432/db"),
        ("postgresql://u:p%40ss%2Fword@h/db", "postgresql+psycopg://u:p%40ss%2Fword@h/db"),
        ("postgresql+psycopg2://u@h/db", "postgresql+psycopg://u@h/db"),
        ("POSTGRES://h/db", "postgresql+psycopg://h/db"),
        ("postgres://h/db?sslmode=verify-full&pool_size=3", "postgresql+psycopg://h/db?sslmode=verify-full"),
        (f"postgres://u:p@h/db?__extra__={EXTRA}", "postgresql+psycopg://u:p@h/db?sslmode=require"),
        ("postgresql:///db?host=%2Fvar%2Frun", "postgresql+psycopg:///db?host=%2Fvar%2Frun"),
        ("sqlite:////var/lib/j.db", "sqlite:////var/lib/j.db"),
        ("sqlite://%2Fvar%2Flib%2Fj.db", "sqlite:////var/lib/j.db"),
        ("sqlite:////var/lib/j.db?timeout=3", "sqlite:////var/lib/j.db"),
    ],
)
def test_urls_that_are_understood(given: str, wanted: str) -> None:
    assert make_url(from_airflow_uri(given)) == make_url(wanted)
    assert from_airflow_uri(from_airflow_uri(given)) == from_airflow_uri(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mysql://u:hunter2@h/db", "SQLite and PostgreSQL"),
        ("", "without a scheme"),
        ("/var/lib/journal.db", "without a scheme"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("postgres://u:hunter2@h:5432", "names no database"),
        ("postgres://u:hunter2@h:port/db", "not a number"),
        ("postgres://u:hunter2@h/db?__extra__=nonsense", "not JSON"),
        ("postgres://u:hunter2@h/db?__extra__=%5B1%5D", "not a JSON object"),
    ],
)
def test_urls_that_are_refused_without_showing_a_password(given: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        from_airflow_uri(given)
    assert "hunter2" not in str(caught.value)


def test_the_default_lies_under_airflow_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TOPICSHIFT_HOME", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert default_url() == f"sqlite:///{tmp_path}/topicshift/journal.db"
    monkeypatch.setenv("TOPICSHIFT_HOME", str(tmp_path / "own"))
    assert default_url() == f"sqlite:///{tmp_path}/own/journal.db"


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("postgresql://u:p@h/db", True),
        ("postgresql://h/db?password=p", True),
        ("not a url with u:p@h", True),
        ("postgresql://u@h/db", False),
        ("sqlite:////a/b.db", False),
    ],
)
def test_passwords_are_noticed(url: str, answer: bool) -> None:
    assert has_password(url) is answer


def test_a_shown_url_has_no_password() -> None:
    assert shown("postgresql+psycopg://u:hunter2@h/db") == "postgresql+psycopg://u:***@h/db"
    assert "hunter2" not in shown("what is hunter2")


@pytest.mark.parametrize(("query", "wanted"), [("", 15_000), ("?tcp_user_timeout=90000", "90000")])
def test_a_database_behind_a_cut_network_is_lost_in_seconds(query: str, wanted: object) -> None:
    """Without bounds of its own a connection waits for a quarter of an hour, as Linux does."""
    seen: dict[str, Any] = {}
    engine = make_engine(from_airflow_uri(f"postgresql://h/db{query}"))

    @event.listens_for(engine, "do_connect")
    def look(_dialect: object, _record: object, _words: object, named: dict[str, Any]) -> None:
        seen.update(named)
        raise OSError("nobody is called")

    with pytest.raises(OSError, match="nobody is called"):
        engine.connect()
    assert seen["tcp_user_timeout"] == wanted
    silent_s = seen["keepalives_idle"] + seen["keepalives_interval"] * seen["keepalives_count"]
    assert (silent_s, seen["connect_timeout"]) == (15, 10)
