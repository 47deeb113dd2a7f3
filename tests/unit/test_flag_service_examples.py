"""The page's example of LaunchDarkly, over HTTP, against its published interface for feature flags, played here."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from topicshift.acts.context import producers_of
from topicshift.adapters.controllers.http import HttpController, RestServices
from topicshift.adapters.rest import Endpoint
from topicshift.core.errors import AccessDenied, Refused
from topicshift.core.spec.io import load_spec
from topicshift.ports import ControlContext, Participant
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

PAGE = Path(__file__).parents[2] / "docs" / "participants" / "http.md"
SOURCE, TARGET, KEY = "payments", "payments-v2", "api-canary"
SEMANTIC = "application/json; domain-model=launchdarkly.semanticpatch"
VARIATIONS = {
    SOURCE: "6f1f4b2e-0000-4000-8000-000000000001",
    TARGET: "6f1f4b2e-0000-4000-8000-000000000002",
}


@dataclass
class Flag:
    """A flag of an environment with its fallthrough variation, and one application that follows it."""

    variation: str = VARIATIONS[SOURCE]
    running: bool = True
    heard: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Status and JSON of one request."""
        self.heard.append(f"{method} {path}")
        if path == "/admin/run":
            self.running = body["run"]
            return 200, {}
        if path == "/admin/state":
            return 200, {"state": "running" if self.running else "stopped", "variation": self.variation}
        if (method, path) != ("PATCH", "/api/v2/flags/shop/payments-topic"):
            return 404, {"code": "not_found"}
        if headers.get("Authorization") != KEY:
            return 401, {"code": "unauthorized"}
        # Without this type of content a PATCH is a list of JSON patch operations.
        if headers.get("Content-Type") != SEMANTIC or body.get("environmentKey") != "production":
            return 400, {"code": "invalid_request"}
        for told in body["instructions"]:
            if told["kind"] != "updateFallthroughVariationOrRollout" or told["variationId"] not in VARIATIONS.values():
                return 400, {"code": "invalid_request"}
            self.variation = told["variationId"]
        return 200, {"key": "payments-topic"}


@pytest.fixture
def flag() -> Flag:
    return Flag()


@pytest.fixture
def address(flag: Flag) -> Iterator[str]:
    """Where both answer."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, said = flag.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def do_GET(self) -> None:
            self._reply()

        def do_PUT(self) -> None:
            self._reply()

        def do_PATCH(self) -> None:
            self._reply()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the test's own output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def controller(address: str, key: str = KEY) -> HttpController:
    """With the log-in of the service in the extra of its connection alone."""
    extra = {"launchdarkly": {"Authorization": key}}
    services = RestServices(lambda name: Endpoint(address, more=extra.get(name, {})))
    return HttpController(FakeCluster(authorizer=True), services, ManualClock())


@pytest.fixture
def checkout(tmp_path: Path) -> Participant:
    """The producer of the example as the page has it."""
    text = next(t for t in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "launchdarkly" in t)
    (tmp_path / "spec.yaml").write_text(text)
    return producers_of(load_spec(tmp_path / "spec.yaml"))[0]


CTX = ControlContext("m", SOURCE, TARGET, 1)


def test_the_example_moves_a_flag_there_and_back(flag: Flag, address: str, checkout: Participant) -> None:
    moves = controller(address)
    for topic in (TARGET, SOURCE):
        moves.stop(CTX, [checkout])
        assert moves.observe(CTX, [checkout])[0].status == "stopped"
        moves.point(CTX, [checkout], topic)
        moves.start(CTX, [checkout])
        state = moves.observe(CTX, [checkout])[0]
        assert (state.status, state.topic, flag.variation) == ("running", topic, VARIATIONS[topic])
    assert flag.heard.count("PATCH /api/v2/flags/shop/payments-topic") == 2


def test_a_key_that_is_wrong_and_a_variation_that_is_gone_name_the_participant(
    flag: Flag, address: str, checkout: Participant, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller(address).stop(CTX, [checkout])
    with pytest.raises(AccessDenied, match=r"checkout: PATCH .*HTTP 401"):
        controller(address, "api-old").point(CTX, [checkout], TARGET)
    monkeypatch.delitem(VARIATIONS, TARGET)
    with pytest.raises(Refused, match=r"checkout: PATCH .*HTTP 400"):
        controller(address).point(CTX, [checkout], TARGET)
    assert flag.variation == VARIATIONS[SOURCE]
