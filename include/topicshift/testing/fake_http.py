"""Applications with an interface of their own, in memory, asked as the controller of kind ``http`` asks real ones.

The interface is that of the Spring Boot application of ``tests/integration/spring/Toggled.java``, and held against it
by the contract that ``tests/integration/test_http_real.py`` runs on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from topicshift.adapters.controllers.http import Call
from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError, Transient

PROPERTY = "payments.topic"


@dataclass
class FakeApp:
    """One process. ``topic`` is what it works on, or will when it starts; ``configured`` what its property says.

    ``batch``: looks at its state that pass before a stop takes effect; ``deaf``: requests, as ``METHOD /path``, that
    are answered as good ones and do nothing; ``broken``: the error that such a request ends with; ``wakes``: how often
    it starts again by itself after a stop. ``other`` is what nobody has asked it to change.
    """

    topic: str
    state: str = "running"
    configured: str = ""
    other: dict[str, Any] = field(default_factory=lambda: {"spring.kafka.listener.concurrency": "3"})
    batch: int = 0
    wakes: int = 0
    deaf: set[str] = field(default_factory=set)
    broken: dict[str, Exception] = field(default_factory=dict)
    left: int = 0
    again: bool = False

    def __post_init__(self) -> None:
        self.configured = self.configured or self.topic

    def fields(self) -> dict[str, Any]:
        """Everything that a migration may have changed of it."""
        return {"topic": self.topic, "state": self.state, "configured": self.configured, **self.other}

    def settle(self) -> None:
        """Time goes by: a batch ends, and one that wakes by itself does."""
        if self.state == "stopping":
            self.left -= 1
            if self.left < 0:
                self.state, self.again = ("running" if self.again else "stopped"), False
        elif self.state == "stopped" and self.wakes:
            self.wakes -= 1
            self.state = "running"

    def answer(self, what: str, body: Any) -> Any:
        """Answer one request. Raises the errors that a real application's answers become."""
        if what in self.broken:
            raise self.broken[what]
        if what in self.deaf:
            return None
        if what == "GET /actuator/payments":
            self.settle()
            return {"state": self.state, "topic": self.topic, "configured": self.configured}
        if what == "POST /actuator/payments":
            self._run(body["run"])
        elif what == "POST /actuator/env":
            self._set(body["name"], body["value"])
        elif what == "POST /actuator/refresh":
            changed, self.topic = [PROPERTY] * (self.topic != self.configured), self.configured
            return changed
        else:
            raise NotFound(f"{what}: there is no such thing (HTTP 404). Check the name and the address.")
        return None

    def _run(self, wanted: Any) -> None:
        if not isinstance(wanted, bool):
            raise Refused("POST /actuator/payments was refused (HTTP 400).")
        self.again = wanted and self.state == "stopping"
        if wanted and self.state == "stopped":
            self.state = "running"
        elif not wanted and self.state == "running":
            self.left = self.batch
            self.state = "stopping" if self.batch else "stopped"

    def _set(self, name: str, value: str) -> None:
        if name == PROPERTY:
            self.configured = value
        else:
            self.other[name] = value


class FakeServices:
    """:class:`topicshift.adapters.controllers.http.Services` over applications in memory, by their connection.

    ``on_call`` hears of each request before it is answered, and of each effect after it; ``on_change`` of each
    connection whose application may have changed. Those in ``locked`` do not take their log-in, those in ``down`` do
    not answer.
    """

    def __init__(self, on_change: Callable[[str], None] = lambda _: None) -> None:
        self.apps: dict[str, FakeApp] = {}
        self.on_change = on_change
        self.on_call: Callable[[str], None] = lambda _: None
        self.locked: set[str] = set()
        self.down: set[str] = set()

    def know(self, connection: str) -> None:
        """See :class:`topicshift.adapters.controllers.http.Services`."""
        if connection not in self.apps:
            raise SpecError(f"There is no connection {connection!r}.")

    def send(self, connection: str, call: Call) -> Any:
        """See :class:`topicshift.adapters.controllers.http.Services`."""
        self.know(connection)
        what = f"{call.method} {call.path}"
        self.on_call(f"{what} at {connection}")
        if connection in self.down:
            raise Transient(f"{what} at http://{connection}: no answer (Connection refused).")
        if connection in self.locked:
            raise AccessDenied(f"{what} at http://{connection} is not allowed (HTTP 401).")
        answer = self.apps[connection].answer(what, call.body)
        self.on_change(connection)
        if call.method != "GET":
            self.on_call(f"{what} at {connection} answered")
        return answer if call.reads else None
