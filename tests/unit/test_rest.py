"""Services that are asked by HTTP: addresses and log-ins of connections, typed errors, and no secret told."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from topicshift.adapters.rest import Ask, Conflict, Endpoint, Failed, asker, endpoint, endpoint_from_env
from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError, Transient, Unreadable

SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ({"conn_type": "http", "host": "connect", "port": 8083}, "http://connect:8083"),
        ({"conn_type": "http", "host": "connect", "schema": "https"}, "https://connect"),
        ({"conn_type": "https", "host": "connect"}, "https://connect"),
        ({"conn_type": "http", "host": "https://connect:8083/"}, "https://connect:8083"),
        ("http://connect:8083", "http://connect:8083"),
        (f"http://me:{SECRET}@connect:8083/https", "https://connect:8083"),
    ],
)
def test_a_connection_in_the_environment_is_an_address(said: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WORKERS", said if isinstance(said, str) else json.dumps(said))
    found = endpoint_from_env("workers")
    assert found.url == url and SECRET not in repr(found)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        "postgres://me:hush-hush@host/db",
        '{"conn_type": "http"}',
        '{"conn_type": "http", "host": "file:///etc/passwd"}',
        '{"conn_type": "http", "host": "http://me:hush-hush@connect"}',
        '{"conn_type": "http", "host": "connect", "port": "hush-hush"}',
        "http://connect:hush-hush",
    ],
)
def test_what_is_no_address_is_refused_without_telling_its_log_in(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WORKERS", said)
    with pytest.raises(SpecError) as error:
        endpoint_from_env("workers")
    assert SECRET not in str(error.value) and ("workers" in str(error.value) or "WORKERS" in str(error.value))


def test_a_log_in_is_sent_as_the_connection_has_it() -> None:
    both = endpoint("w", {"conn_type": "http", "host": "c", "login": "me", "password": SECRET})
    assert both.headers() == {"Authorization": "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()}
    token = endpoint("w", {"conn_type": "http", "host": "c", "password": SECRET})
    assert token.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert endpoint("w", {"conn_type": "http", "host": "c"}).headers() == {}


def test_headers_of_a_connections_extra_are_sent_and_never_shown() -> None:
    """Flag services take a key as it is, without the word Bearer."""
    extra = json.dumps({"headers": {"Authorization": SECRET, "X-Team": "payments"}})
    found = endpoint("w", {"conn_type": "http", "host": "c", "password": "other", "extra": extra})
    assert found.headers() == {"Authorization": SECRET, "X-Team": "payments"}
    assert SECRET not in repr(found)
    assert endpoint("w", {"conn_type": "http", "host": "c", "extra": "{}"}).headers() == {}


@pytest.mark.parametrize(
    "extra", ["{", "[]", '{"headers": ["hush-hush"]}', '{"headers": {"X-A": "hush-hush\\r\\nX: y"}}']
)
def test_an_extra_that_is_not_understood_is_refused_without_telling_it(extra: str) -> None:
    with pytest.raises(SpecError, match="extra of the connection 'w'") as error:
        endpoint("w", {"conn_type": "http", "host": "c", "extra": extra})
    assert SECRET not in str(error.value)


class Service(BaseHTTPRequestHandler):
    """Answers ``/CODE`` with that code."""

    def do_GET(self) -> None:
        self.server.heard.append(self.headers.get("Authorization"))  # type: ignore[attr-defined]
        self.server.types.append(self.headers.get("Content-Type"))  # type: ignore[attr-defined]
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        code = int(self.path.strip("/") or 200)
        text = {202: b"", 201: b"<html>"}.get(code, b'{"heard": %s}' % (body or b"null"))
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/200")
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Drop by drop, for as long as somebody listens."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.stop.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b" ")
                self.wfile.flush()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    server.heard, server.types, server.stop = [], [], threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.stop.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def service(server: HTTPServer) -> tuple[Ask, list[Any]]:
    return asker(Endpoint(f"http://127.0.0.1:{server.server_port}", "me", SECRET)), server.heard  # type: ignore[attr-defined]


def test_what_is_sent_is_heard(service: tuple[Ask, list[Any]]) -> None:
    ask, heard = service
    assert ask("PUT", "/200", {"a": 1}) == {"heard": {"a": 1}}
    assert ask("PUT", "/202", None) is None
    assert heard[0].startswith("Basic ")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, AccessDenied),
        (403, AccessDenied),
        (404, NotFound),
        (400, Refused),
        (422, Refused),
        (409, Conflict),
        (429, Transient),
        (500, Failed),
        (503, Failed),
        (302, Unreadable),
        (201, Unreadable),
    ],
)
def test_an_error_says_what_it_means_and_repeats_nothing(
    service: tuple[Ask, list[Any]], code: int, kind: type[Exception]
) -> None:
    ask, heard = service
    with pytest.raises(kind) as error:
        ask("PUT", f"/{code}", {"password": SECRET})
    assert type(error.value) is kind and f"/{code}" in str(error.value)
    assert SECRET not in str(error.value) + repr(error.value) and len(heard) == 1, "a redirect is not followed"
    if isinstance(error.value, Failed):
        assert SECRET.encode() in error.value.said, "it can be looked at, and is in no message"


def test_an_answer_that_does_not_matter_may_be_anything(service: tuple[Ask, list[Any]], server: HTTPServer) -> None:
    ask = asker(Endpoint(f"http://127.0.0.1:{server.server_port}"), content_type="a/b; c=d", any_answer=True)
    assert ask("PUT", "/201", {}) is None and ask("PUT", "/200", {}) is None
    assert server.types[-1] == "a/b; c=d"  # type: ignore[attr-defined]
    with pytest.raises(AccessDenied):
        ask("PUT", "/403", {})


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for_beyond_its_time(server: HTTPServer) -> None:
    began = time.monotonic()
    with pytest.raises(Transient, match="no answer"):
        asker(Endpoint(f"http://127.0.0.1:{server.server_port}"), 0.3)("POST", "/x", None)
    assert time.monotonic() - began < 3


def test_nobody_who_answers_is_a_passing_fault() -> None:
    with pytest.raises(Transient, match=r"GET /x at http://127\.0\.0\.1:1: no answer"):
        asker(Endpoint("http://127.0.0.1:1"))("GET", "/x", None)
