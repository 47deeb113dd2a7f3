"""A real Unleash server on a real PostgreSQL, and applications that follow one of its flags by Unleash's own client."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.ports_free import claim, release
from lab.postgres import create_database
from topicshift.adapters.rest import Ask, Endpoint, asker, endpoint
from topicshift.core.errors import TopicshiftError

FLAG = "payments-topic"
ROOT = "/api/admin/projects/default/features"
WHERE = "environments/development/strategies"
APP = Path(__file__).parent / "unleash" / "app.mjs"


def modules() -> Path:
    """The folder with the packages ``unleash-server`` and, which it brings along, ``unleash-client``."""
    return Path(os.environ["TOPICSHIFT_UNLEASH"]) / "node_modules"


def until(holds: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Wait for a condition; a service that does not answer yet does not meet it."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(TopicshiftError):
            found = holds()
            if found:
                return found
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Child:
    """A Node process. ``port``: where it listens."""

    def __init__(self, log: Path) -> None:
        self._log, (self.port,) = log, claim()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], **env: str) -> None:
        """Begin it."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env})

    def kill(self) -> None:
        """End the process, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        """End it, and give its port back."""
        self.kill()
        release([self.port])


class Unleash(Child):
    """The server, with one flag whose variant names the topic. ``strategy``: the id of the rule with that variant."""

    def __init__(self, home: Path, postgres: str) -> None:
        super().__init__(home / "unleash.log")
        self._admin, self.client = f"*:*.{secrets.token_hex(16)}", f"default:development.{secrets.token_hex(16)}"
        self._database = create_database(postgres, f"unleash_{secrets.token_hex(4)}")
        self.url = f"http://127.0.0.1:{self.port}"
        self.strategy = ""

    @property
    def secret(self) -> str:
        """The admin token, which may be seen nowhere."""
        return self._admin

    def endpoint(self) -> Endpoint:
        """As a connection of the installation has it."""
        more = {"headers": {"Authorization": self._admin}}
        return endpoint("unleash", {"conn_type": "http", "host": "127.0.0.1", "port": self.port, "extra": more})

    @property
    def ask(self) -> Ask:
        """Ask it as an administrator."""
        return asker(self.endpoint(), 10.0)

    def start(self) -> None:
        """Begin a process, and wait until it answers."""
        parts = urlsplit(self._database)
        self.run(
            ["node", str(modules() / "unleash-server" / "dist" / "server.js")],
            DATABASE_URL=parts._replace(scheme="postgres").geturl(),
            DATABASE_SSL="false",
            PORT=str(self.port),
            HTTP_HOST="127.0.0.1",
            INIT_ADMIN_API_TOKENS=self._admin,
            INIT_CLIENT_API_TOKENS=self.client,
            CHECK_VERSION="false",
            SEND_TELEMETRY="false",
            LOG_LEVEL="error",
            NODE_ENV="production",
        )
        until(lambda: self.ask("GET", "/health", None), f"Unleash answers: {self._log.read_text()[-2000:]}", 120)

    def names(self, topic: str) -> dict[str, Any]:
        """The rule whose variant names the topic."""
        payload = {"type": "string", "value": topic}
        variant = {"name": "topic", "weight": 1000, "weightType": "variable", "stickiness": "default"}
        rollout = {"rollout": "100", "stickiness": "default", "groupId": FLAG}
        return {"name": "flexibleRollout", "parameters": rollout, "variants": [{**variant, "payload": payload}]}

    def flag(self, topic: str) -> None:
        """Make the flag, on, with this topic."""
        self.ask("POST", ROOT, {"name": FLAG, "type": "release"})
        self.strategy = str(self.ask("POST", f"{ROOT}/{FLAG}/{WHERE}", self.names(topic))["id"])
        asker(self.endpoint(), 10.0, any_answer=True)("POST", f"{ROOT}/{FLAG}/environments/development/on", None)

    def rule(self) -> Any:
        """The rule as it is now."""
        return self.ask("GET", f"{ROOT}/{FLAG}/{WHERE}/{self.strategy}", None)


class FlagApp(Child):
    """One instance of the application. ``otherwise``: the topic in its code, for when it knows nothing of the flag."""

    def __init__(self, home: Path, name: str, unleash: Unleash, otherwise: str) -> None:
        super().__init__(home / f"{name}.log")
        self._home, self._name, self._unleash, self._otherwise = home, name, unleash, otherwise
        self._starts = 0

    def endpoint(self) -> Endpoint:
        """Where it is asked."""
        return Endpoint(f"http://127.0.0.1:{self.port}")

    def start(self) -> None:
        """Begin a process that remembers nothing, and wait until it answers."""
        self._starts += 1
        folder = self._home / f"{self._name}-{self._starts}"
        folder.mkdir()
        words = [str(self.port), self._unleash.url, self._unleash.client, self._otherwise, str(folder)]
        self.run(["node", str(APP), *words], UNLEASH_MODULES=str(modules()))
        until(self.state, f"{self._name} answers")

    def tell(self, run: bool) -> None:
        """Let it work, or stop."""
        asker(self.endpoint())("PUT", "/admin/run", {"run": run})

    def state(self) -> dict[str, str]:
        """What it says of itself."""
        found: dict[str, str] = asker(self.endpoint())("GET", "/admin/state", None)
        return found


@contextlib.contextmanager
def running(*made: Any) -> Iterator[None]:
    """Start them, and end them afterwards."""
    try:
        for one in made:
            one.start()
        yield
    finally:
        for one in made:
            one.close()


def plain(rule: Any) -> str:
    """A rule in words, for a comparison."""
    return json.dumps(rule, sort_keys=True)
