"""Alarms are told to whoever is configured, and a notifier that fails ends nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from airflow.sdk import BaseHook, Variable
from airflow.sdk.bases.notifier import BaseNotifier

from topicshift_airflow.notifiers import tell

ALARM = {
    "migration": "m-1",
    "topic": "payments",
    "group": "ledger",
    "code": "no_members",
    "lag": 4,
    "text": "It stands.",
}
SEEN: list[str] = []


class Kept(BaseNotifier):
    """Keeps what it was told."""

    template_fields = ("message",)

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message

    def notify(self, context: Any) -> None:
        SEEN.append(self.message)


class Hook(HTTPServer):
    """A chat service's web hook."""

    def __init__(self, status: int = 200) -> None:
        self.posts: list[tuple[str, str | None, dict[str, Any]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.posts.append((handler.path, handler.headers.get("Authorization"), json.loads(body)))
                handler.send_response(status)
                handler.end_headers()

            def log_message(handler, *args: Any) -> None:  # noqa: N805
                return

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with Hook() as running:
        connect(monkeypatch, running)
        yield running
        running.shutdown()


def connect(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    value = {"conn_type": "http", "host": "127.0.0.1", "port": hook.server_port, "schema": "http"}
    value |= {"password": "hush", "extra": {"path": "/services/alarms"}}
    monkeypatch.setenv("AIRFLOW_CONN_TOPICSHIFT_ALARMS", json.dumps(value))


def test_nobody_is_configured() -> None:
    assert tell(ALARM) == ([], [])


def test_a_web_hook_gets_text_and_fields(hook: Hook) -> None:
    assert tell(ALARM) == (["WebhookNotifier(topicshift_alarms)"], [])
    ((path, token, body),) = hook.posts
    assert (path, token) == ("/services/alarms", "Bearer hush")
    assert body == {"text": "payments: It stands. (m-1)", "alarm": ALARM | {"title": "payments: no_members"}}


def test_airflows_own_notifiers_are_named_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    rows = [{"class": f"{__name__}.Kept", "kwargs": {"message": "{{ alarm.group }} {{ alarm.code }}"}}]
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", json.dumps(rows))
    assert tell(ALARM) == (["Kept"], [])
    assert SEEN == ["ledger no_members"]


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("no json", "no JSON list"),
        ('{"class": "x"}', "no JSON list"),
        ('[{"kwargs": {}}]', "no JSON list"),
        ('[{"class": "no_such_module.Notifier"}]', "Notifier: ModuleNotFoundError"),
        ('[{"class": "json.JSONDecoder"}]', "JSONDecoder: TypeError"),
    ],
)
def test_what_is_configured_wrongly_is_said_and_the_others_are_told(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TOPICSHIFT_NOTIFIERS", variable)
    told, failed = tell(ALARM)
    assert len(told) == len(hook.posts) == 1
    assert len(failed) == 1 and said in failed[0]


@pytest.mark.parametrize("asked", ["get_connection", "get_variable"])
def test_what_cannot_be_looked_up_is_said_and_ends_nothing(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError("Access denied by Execution API")

    if asked == "get_connection":
        monkeypatch.setattr(BaseHook, "get_connection", denied)
        assert tell(ALARM) == ([], ["topicshift_alarms: PermissionError"])
    else:
        monkeypatch.setattr(Variable, "get", denied)
        assert tell(ALARM) == (["WebhookNotifier(topicshift_alarms)"], ["topicshift_notifiers: PermissionError"])


def test_a_hook_that_refuses_is_named_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Hook(status=500) as running:
        connect(monkeypatch, running)
        told, failed = tell(ALARM)
        running.shutdown()
    assert (told, failed) == ([], ["WebhookNotifier(topicshift_alarms): HTTPError"])
    assert "hush" not in caplog.text
