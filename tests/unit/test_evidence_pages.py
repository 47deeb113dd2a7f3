"""Evidence opens in the browser: the link, the page, and what the page may not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from topicshift_airflow.links import page_of
from topicshift_airflow.web import app


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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPICSHIFT_EVIDENCE", str(tmp_path / "evidence"))
    folder = tmp_path / "evidence" / "payments-1"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<h1>proven</h1>")
    (tmp_path / "secret").write_text("secret")
    return tmp_path


@pytest.fixture
def client(store: Path) -> Iterator[TestClient]:
    """Somebody who may read; who may is for Airflow's auth manager to say, and for the end-to-end test."""
    (access,) = [d.dependency for route in app.routes for d in getattr(route, "dependencies", [])]
    assert access is not None
    app.dependency_overrides[access] = lambda: None
    yield TestClient(app)
    app.dependency_overrides.clear()


def test_a_report_is_shown_and_can_reach_nothing(client: TestClient) -> None:
    answer = client.get("/evidence/payments-1/report.html")
    assert (answer.status_code, answer.text) == (200, "<h1>proven</h1>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "sandbox" in policy and "allow-same-origin" not in policy


@pytest.mark.parametrize("path", ["payments-1/none.html", "none/report.html", "%2e%2e/secret", "..%2f..%2fx/secret"])
def test_what_is_no_evidence_is_not_shown(client: TestClient, path: str) -> None:
    answer = client.get(f"/evidence/{path}")
    assert answer.status_code == 404 and "secret" not in answer.text.replace(path, "").replace("'secret'", "")


def test_every_page_asks_who_is_there() -> None:
    for route in app.routes:
        assert getattr(route, "dependencies", []), f"{route} has no authentication"
