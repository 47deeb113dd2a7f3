"""Evidence opens in the browser: the link, the page, and what the page may not do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from tests.unit.api_server import logged_in, serve

from topicshift.core.errors import Unreadable
from topicshift.ports import Claim
from topicshift_airflow import runtime
from topicshift_airflow.links import MigrationLink, page_of
from topicshift_airflow.web import app
from topicshift_plugin import TopicshiftPlugin, evidence_app


@pytest.mark.parametrize(
    ("evidence", "page"),
    [
        ("file:///var/evidence/payments-1/report.html", "/topicshift/evidence/payments-1/report.html"),
        ("s3://bucket/topicshift/payments-1/impact.html", "/topicshift/evidence/payments-1/impact.html"),
        ("https://reports.example/payments-1/report.html", "https://reports.example/payments-1/report.html"),
        ("", ""),
    ],
)
def test_a_link_leads_where_a_browser_can_go(evidence: str, page: str) -> None:
    assert page_of(evidence) == page


def test_a_link_keeps_the_path_under_which_airflow_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/prod/")
    assert page_of("file:///e/payments-1/report.html") == "/prod/topicshift/evidence/payments-1/report.html"


def test_a_task_links_to_the_page_of_its_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(dag_id="topic_migration", run_id="manual__2026-01-01T00:00:00+00:00")
    own = SimpleNamespace()
    found = MigrationLink().get_link(own, ti_key=run)
    assert found == "/topicshift/run?dag_id=topic_migration&run_id=manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    ordered = SimpleNamespace(migration_id="payments-1")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/prod/")
    assert MigrationLink().get_link(ordered, ti_key=run) == "/prod/topicshift/migrations/payments-1"


READERS = {
    "payments-owner": {"topic_migration__payments"},
    "form-reader": {"topic_migration"},
    "rollback-reader": {"topic_rollback"},
    "assessor": {"topic_assessment"},
    "stranger": set(),
}
"""Users, and the DAGs whose XComs each may read."""


class Rights(SimpleAuthManager):
    """An auth manager with rights by DAG, as Airflow's FAB or Keycloak have them."""

    def is_authorized_dag(self, *, user: Any, access_entity: Any = None, details: Any = None, **_: Any) -> bool:
        return access_entity is DagAccessEntity.XCOM and details.id in READERS[user.username]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Evidence and journal of a migration of ``topic_migration__payments``, of one that was rolled back, and others."""
    serve(tmp_path, monkeypatch, Rights)
    journal = runtime.open_journal()

    def claim(source: str, owner: str) -> str:
        topics = {"source": source, "target": f"{source}-v2"}
        made = journal.claim(cluster_id="c", owner=owner, spec={}, owner_alive=lambda _: True, **topics)
        return made.migration_id

    found = {
        "payments": claim("payments", "topic_migration__payments/scheduled__1"),
        "orders": claim("orders", "topic_migration/manual__1"),
        "back": claim("back", "topic_migration__payments/scheduled__2"),
        "tricky": claim("assessment-of-risk", "topic_migration__payments/scheduled__3"),
        "assessment": "assessment-manual__1",
        "unknown": "gone-1",
    }
    journal.take_over(found["back"], "topic_rollback/manual__1")
    journal.close()
    for folder in found.values():
        (tmp_path / "evidence" / folder).mkdir(parents=True)
        (tmp_path / "evidence" / folder / "report.html").write_text("<h1>proven</h1>")
    (tmp_path / "secret").write_text("secret")
    return found


@pytest.fixture
def client() -> Iterator[Callable[[str], TestClient]]:
    with logged_in() as made:
        yield made


def test_a_report_is_shown_and_can_reach_nothing(client: Any, world: dict[str, str]) -> None:
    answer = client("payments-owner").get(f"/evidence/{world['payments']}/report.html")
    assert (answer.status_code, answer.text) == (200, "<h1>proven</h1>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "sandbox" in policy and "allow-same-origin" not in policy


def test_evidence_is_for_those_who_may_read_the_dag_of_its_run(client: Any, world: dict[str, str]) -> None:
    seen = {
        user: {name for name, f in world.items() if client(user).get(f"/evidence/{f}/report.html").status_code == 200}
        for user in READERS
    }
    assert seen == {
        "payments-owner": {"payments", "back", "tricky"},
        "form-reader": {"orders"},
        "rollback-reader": {"back"},
        "assessor": {"assessment"},
        "stranger": set(),
    }


def test_the_index_lists_what_this_user_may_read_and_leads_to_each_file(client: Any, world: dict[str, str]) -> None:
    def listed(user: str) -> set[str]:
        answer = client(user).get("/evidence/")
        assert answer.status_code == 200 and "script" not in answer.text
        return {name for name, folder in world.items() if f'href="{folder}/"' in answer.text}

    assert listed("payments-owner") == {"payments", "back", "tricky"}
    assert (listed("form-reader"), listed("stranger")) == ({"orders"}, set())
    page = client("payments-owner").get(f"/evidence/{world['payments']}/")
    assert 'href="report.html"' in page.text
    assert client("stranger").get(f"/evidence/{world['payments']}/").status_code == 403
    assert client("payments-owner").get("/evidence/%2e%2e/").status_code in (403, 404)


def test_the_index_has_what_is_open_first_and_shows_names_as_text(
    client: Any, world: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = runtime.open_journal()
    row = journal.current(world["tricky"])
    journal.set_state(Claim(row.migration_id, row.epoch, row.owner), "failed", active=False)
    journal.close()
    text = client("payments-owner").get("/evidence/").text
    assert text.index(world["payments"]) < text.index(world["tricky"]), "the one that is over was changed last"

    def unreadable(**_: Any) -> None:
        raise Unreadable("the journal does not answer")

    monkeypatch.setattr("topicshift_airflow.web.open_journal", unreadable)
    assert client("payments-owner").get("/evidence/").status_code == 502


@pytest.mark.parametrize("path", ["none.html", "%2e%2e", "..%2fsecret", "..%2f..%2fsecret"])
def test_what_is_no_evidence_is_not_shown(client: Any, world: dict[str, str], path: str) -> None:
    answer = client("payments-owner").get(f"/evidence/{world['payments']}/{path}")
    assert answer.status_code == 404 and "secret" not in answer.text.replace(path, "").replace("'secret'", "")
    outside = client("payments-owner").get(f"/evidence/%2e%2e/{path}")
    assert outside.status_code in (403, 404) and "secret" not in outside.text.replace(path, "").replace("'secret'", "")


def test_nobody_is_let_in_while_the_journal_cannot_be_read(
    client: Any, world: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(**_: Any) -> None:
        raise Unreadable("the journal does not answer")

    monkeypatch.setattr("topicshift_airflow.web.open_journal", unreadable)
    answer = client("payments-owner").get(f"/evidence/{world['payments']}/report.html")
    assert answer.status_code == 502 and "does not answer" in answer.text and "proven" not in answer.text


def test_every_page_of_the_plugin_refuses_strangers(client: Any, world: dict[str, str]) -> None:
    """Without a log-in, and logged in without the right to the DAG."""
    assert [mounted["app"] for mounted in TopicshiftPlugin.fastapi_apps] == [evidence_app], "walk the new one, too"
    assert not TopicshiftPlugin.flask_blueprints and not TopicshiftPlugin.fastapi_root_middlewares
    walked = 0
    for route in app.routes:
        assert isinstance(route, APIRoute), f"{route} is not walked"
        url = re.sub(r"{folder}|{migration_id}", world["payments"], route.path).replace("{name}", "report.html")
        url += "?dag_id=topic_migration__payments&run_id=scheduled__1" if route.path == "/run" else ""
        for method in route.methods:
            assert TestClient(evidence_app).request(method, url).status_code == 401
            stranger = client("stranger").request(method, url)
            if route.path in EMPTY_FOR_STRANGERS:
                assert stranger.status_code == 200 and "payments" not in stranger.text, route.path
            else:
                assert stranger.status_code in (403, 404), route.path
            app.dependency_overrides.clear()
            walked += 1
    assert walked > len(EMPTY_FOR_STRANGERS)


EMPTY_FOR_STRANGERS = {
    *("/evidence/", "/", "/run", "/api/migrations", "/start", "/api/start"),
    *("/page.css", "/page.js", "/icon.svg", "/icon-dark.svg"),
}
"""Pages that show nothing to those who may read nothing: lists without an entry, and what every page is drawn with."""
