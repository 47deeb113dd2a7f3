"""A real hook and a real HTTP interface in one migration, each of which answers only once the other was told."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.unit.test_acts_http import http
from tests.unit.world import World

from topicshift.acts.telling import tell
from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.controllers.http import HttpController, RestServices
from topicshift.adapters.executor import ThreadExecutor
from topicshift.adapters.rest import Endpoint

PATIENCE_S = 4
HOOK = """#!/bin/sh
touch {home}/hook-$1
for try in $(seq {tries}); do
  test -e {home}/http-$1 && exit 0
  sleep 0.1
done
exit 75
"""


class Interface(BaseHTTPRequestHandler):
    """An application that answers its stop once the hook was called."""

    home: Path

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        assert json.loads(self.rfile.read(size)) == {"run": False}
        (self.home / "http-stop").touch()
        until = time.monotonic() + PATIENCE_S
        while not (self.home / "hook-stop").exists() and time.monotonic() < until:
            time.sleep(0.05)
        self.send_response(200 if (self.home / "hook-stop").exists() else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the test's own output."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where the interface answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("At", (Interface,), {"home": tmp_path})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def world(tmp_path: Path, port: int) -> Iterator[World]:
    """A producer that is told by HTTP, and one that a hook moves."""
    hook = tmp_path / "batch"
    hook.write_text(HOOK.format(home=shlex.quote(str(tmp_path)), tries=PATIENCE_S * 10))
    hook.chmod(0o755)
    batch = {"name": "batch", "kind": "command", "settings": {"hook": "batch"}, "principal": "User:batch"}
    w = World(producers=[{"name": "checkout", "principal": "User:checkout", **http("checkout")}, batch])
    services = RestServices(lambda _: Endpoint(f"http://127.0.0.1:{port}"))
    w.controllers["http"] = HttpController(w.cluster, services, w.clock)  # type: ignore[assignment]
    w.controllers["command"] = CommandController(w.cluster, tmp_path)  # type: ignore[assignment]
    w.executor = ThreadExecutor()
    yield w
    w.executor.close()


def test_a_hook_and_an_interface_that_wait_for_each_other_are_both_told(world: World) -> None:
    ctx = world.context()
    until = world.clock.now() + timedelta(seconds=60)
    tell(ctx, ctx.producers, lambda controller, who: controller.stop(ctx.control(until), who))
    said = {e["name"]: e for e in world.events("participant")}
    assert said["batch"]["answer"] == "exit code 0"
