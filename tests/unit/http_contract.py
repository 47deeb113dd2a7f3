"""What an application with an interface of its own does: run on the fake one and on a real Spring Boot application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from topicshift.adapters.controllers.http import Call
from topicshift.core.errors import NotFound, Refused

Until = Callable[[Callable[[], Any], str], Any]
Send = Callable[[Call], Any]

SETTINGS: dict[str, Any] = {
    "connections": ["checkout"],
    "stop": {"path": "/actuator/payments", "body": {"run": False}, "repeatable": True},
    "point": [
        {"path": "/actuator/env", "body": {"name": "payments.topic", "value": "${topic}"}, "repeatable": True},
        {"path": "/actuator/refresh", "repeatable": True},
    ],
    "start": {"path": "/actuator/payments", "body": {"run": True}, "repeatable": True},
    "observe": {
        "path": "/actuator/payments",
        "running": {"/state": "running"},
        "stopped": {"/state": "stopped"},
        "topic": "/topic",
    },
    "restarts_on": "pointed",
}
"""The settings of such an application, as a spec has them."""


class Case(Protocol):
    """One truth of a running application on ``topic``; another is ``topic-v2``. ``until`` waits for a condition."""

    __name__: str

    def __call__(self, send: Send, topic: str, until: Until) -> None: ...


def post(path: str, body: Any = None, *, reads: bool = False) -> Call:
    return Call("POST", path, body, "application/json", 5.0, reads)


def state(send: Send) -> dict[str, Any]:
    found = send(Call("GET", "/actuator/payments", None, "application/json", 5.0, True))
    assert isinstance(found, dict)
    return found


def run(send: Send, wanted: bool) -> None:
    send(post("/actuator/payments", {"run": wanted}))


def stopped(send: Send, until: Until) -> None:
    run(send, False)
    until(lambda: state(send)["state"] == "stopped", "it stands")


def it_says_what_it_does(send: Send, topic: str, until: Until) -> None:
    assert state(send) == {"state": "running", "topic": topic, "configured": topic}


def what_it_does_not_know_is_refused(send: Send, topic: str, until: Until) -> None:
    with pytest.raises(NotFound):
        send(post("/actuator/nothing"))
    with pytest.raises(Refused):
        send(post("/actuator/payments", {"run": "yes"}))
    assert state(send)["state"] == "running"


def a_stop_takes_effect_after_the_batch(send: Send, topic: str, until: Until) -> None:
    run(send, False)
    assert state(send)["state"] == "stopping", "it has answered, and works on"
    until(lambda: state(send)["state"] == "stopped", "it stands")
    run(send, False)
    assert state(send)["state"] == "stopped"


def a_property_alone_changes_nothing_and_a_refresh_does(send: Send, topic: str, until: Until) -> None:
    stopped(send, until)
    send(post("/actuator/env", {"name": "payments.topic", "value": f"{topic}-v2"}))
    assert state(send) == {"state": "stopped", "topic": topic, "configured": f"{topic}-v2"}
    assert send(post("/actuator/refresh", reads=True)) == ["payments.topic"]
    assert state(send) == {"state": "stopped", "topic": f"{topic}-v2", "configured": f"{topic}-v2"}
    assert send(post("/actuator/refresh", reads=True)) == []


def it_starts_on_the_topic_that_it_was_pointed_to_and_only_once(send: Send, topic: str, until: Until) -> None:
    stopped(send, until)
    for _ in range(2):
        send(post("/actuator/env", {"name": "payments.topic", "value": f"{topic}-v2"}))
        send(post("/actuator/refresh"))
    for _ in range(2):
        run(send, True)
        assert state(send) == {"state": "running", "topic": f"{topic}-v2", "configured": f"{topic}-v2"}


CONTRACT: list[Case] = [
    it_says_what_it_does,
    what_it_does_not_know_is_refused,
    a_stop_takes_effect_after_the_batch,
    a_property_alone_changes_nothing_and_a_refresh_does,
    it_starts_on_the_topic_that_it_was_pointed_to_and_only_once,
]
