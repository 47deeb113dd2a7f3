"""Ends the process that moves an application before and after each effect on it, once each, on real parts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tests.unit.world import Killed, World

from topicshift.adapters.controllers import hooks
from topicshift.adapters.controllers.http import Call, Services
from topicshift.adapters.rest import Ask
from topicshift.core.errors import TopicshiftError

_T = TypeVar("_T")
_MOST = 100
_ACTS = ("stop", "point", "start")
_ASKS = ("/config/validate", "/selfsubjectaccessreviews")


class Reaper:
    """Of each effect the first try is killed before it, the second one after it; the third one passes.

    Nothing is killed outside of :meth:`driven`.
    """

    def __init__(self) -> None:
        self._tries: Counter[str] = Counter()
        self._kills = False
        self.deaths: list[str] = []
        """Each effect, in the order of the kills before them and after them."""

    def driven(self, world: World, **how: Any) -> list[str]:
        """Let one process after another advance to the end; the effects, each of which has killed two of them."""
        self._tries.clear()
        self.deaths.clear()
        self._kills = True
        try:
            for _ in range(_MOST):
                try:
                    world.advanced(**how)
                    break
                except Killed:
                    continue
            else:
                raise AssertionError(f"it comes to no end: {self.deaths[-4:]}")
        finally:
            self._kills = False
        effects = [death.removesuffix(" before") for death in self.deaths if death.endswith(" before")]
        assert sorted(self.deaths) == sorted(f"{e} {when}" for e in effects for when in ("before", "after"))
        return effects

    def around(self, effect: str, act: Callable[[], _T]) -> _T:
        """Do it, or die before or after it. What fails has no effect, and kills nobody."""
        if not self._kills:
            return act()
        self._tries[effect] += 1
        if self._tries[effect] == 1:
            self._dies(f"{effect} before")
        try:
            found = act()
        except TopicshiftError:
            self._tries[effect] = min(self._tries[effect], 1)
            raise
        if self._tries[effect] == 2:
            self._dies(f"{effect} after")
        return found

    def _dies(self, where: str) -> None:
        self.deaths.append(where)
        raise Killed

    def asking(self, ask: Ask) -> Ask:
        """The same requests to a service, where those that change something kill."""

        def asked(method: str, path: str, body: Any = None) -> Any:
            if method == "GET" or path.endswith(_ASKS):
                return ask(method, path, body)
            return self.around(_text(method, path, body), lambda: ask(method, path, body))

        return asked

    def calling(self, call: hooks.Call) -> hooks.Call:
        """The same hooks, where those that act kill."""

        def called(name: str, moment: str, told: Mapping[str, str], timeout_s: float) -> hooks.Answer:
            if moment not in _ACTS:
                return call(name, moment, told, timeout_s)
            effect = " ".join(filter(None, (name, moment, told["TOPICSHIFT_TOPIC"])))
            return self.around(effect, lambda: call(name, moment, told, timeout_s))

        return called

    def serving(self, services: Services) -> Services:
        """The same requests to applications, where those that change something kill."""
        return _Served(self, services)


class _Served:
    def __init__(self, reaper: Reaper, services: Services) -> None:
        self._reaper, self._services = reaper, services

    def know(self, connection: str) -> None:
        self._services.know(connection)

    def send(self, connection: str, call: Call) -> Any:
        if call.method == "GET":
            return self._services.send(connection, call)
        effect = f"{connection}: {_text(call.method, call.path, call.body)}"
        return self._reaper.around(effect, lambda: self._services.send(connection, call))


def _text(method: str, path: str, body: Any) -> str:
    """The request in words; of an object of Kubernetes what is written, without what its API server keeps in it."""
    if isinstance(body, Mapping) and "metadata" in body:
        notes = body["metadata"].get("annotations") or {}
        ours = {key: text for key, text in notes.items() if not key.startswith("deployment.kubernetes.io/")}
        body = [body.get("spec"), body.get("data"), ours]
    return f"{method} {path}" + (f" {json.dumps(body, sort_keys=True)}" if body is not None else "")
