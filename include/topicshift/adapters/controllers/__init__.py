"""Controllers: stop, point, start and observe participants of one kind.

:func:`controller` makes one by its kind. A kind is either one of :data:`KINDS` or an entry point of the group
``topicshift.controllers`` in an installed package: a callable that takes a :class:`ControllerEnv` and returns an
object with the methods of :class:`topicshift.ports.Controller`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from topicshift.adapters.clock import SystemClock
from topicshift.adapters.rest import Endpoints, asker, endpoint_from_env
from topicshift.core.errors import SpecError
from topicshift.core.spec.fields import did_you_mean
from topicshift.core.spec.kinds import ENTRY_POINTS, kinds
from topicshift.ports import Clock, ClusterAdmin, Controller


@dataclass(frozen=True)
class ControllerEnv:
    """What a controller may need. ``endpoint`` gives the address and log-in of a connection, by its name.

    ``places`` gives the places below which evidence may be read; None: wherever the person who types says.
    """

    kafka_config: Mapping[str, Any]
    admin: ClusterAdmin | None = None
    clock: Clock = field(default_factory=SystemClock)
    endpoint: Endpoints = endpoint_from_env
    places: Callable[[], Sequence[str] | None] = lambda: None


Factory = Callable[[ControllerEnv], Controller]


def _admin(env: ControllerEnv, kind: str, why: str = "judges groups by Kafka") -> ClusterAdmin:
    """The admin client. Raises ``SpecError`` where there is none."""
    if env.admin is None:
        raise SpecError(f"The controller of kind {kind} {why}, so it needs an admin client.")
    return env.admin


def _route(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.route import RouteController
    from topicshift.adapters.route_store import RouteStore

    return RouteController(RouteStore(env.kafka_config), env.clock)


def _manual(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.manual import ManualController

    return ManualController(_admin(env, "manual", "judges by the offsets in Kafka"))


def _command(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.command import CommandController
    from topicshift.adapters.controllers.hooks import folder

    return CommandController(_admin(env, "command"), folder())


def _connect(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.connect import ConnectController

    return ConnectController(_admin(env, "connect"), lambda name: asker(env.endpoint(name)), env.clock)


def _kubernetes(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.kubernetes import KubernetesController

    return KubernetesController(_admin(env, "kubernetes"), lambda name: asker(env.endpoint(name)), env.clock)


def _http(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.http import HttpController, RestServices

    return HttpController(_admin(env, "http"), RestServices(env.endpoint), env.clock)


def _flink(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.flink import FlinkController

    return FlinkController(_admin(env, "flink"), lambda name: asker(env.endpoint(name)), env.clock)


def _spark_streaming(env: ControllerEnv) -> Controller:
    from topicshift.adapters.controllers.hooks import folder
    from topicshift.adapters.controllers.spark_streaming import SparkStreamingController
    from topicshift.adapters.readers import refusal

    def allowed(location: str) -> str | None:
        places = env.places()
        return None if places is None else refusal(location, places)

    return SparkStreamingController(_admin(env, "spark_streaming", "keeps offsets in Kafka"), folder(), allowed)


KINDS: dict[str, Factory] = {
    "route": _route,
    "manual": _manual,
    "command": _command,
    "connect": _connect,
    "kubernetes": _kubernetes,
    "http": _http,
    "flink": _flink,
    "spark_streaming": _spark_streaming,
}
"""The kinds that ship."""


def controller(kind: str, env: ControllerEnv) -> Controller:
    """The controller for participants of this kind. Contacts nobody yet.

    Raises ``SpecError`` for an unknown kind (with a suggestion) and for one whose package cannot be loaded.
    """
    if kind in KINDS:
        return KINDS[kind](env)
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name == kind:
            try:
                factory: Factory = entry.load()
            except (ImportError, AttributeError) as exc:
                raise SpecError(
                    f"The controller of kind {kind} ({entry.value}) cannot be loaded: {exc}. Install what it needs."
                ) from exc
            return factory(env)
    hint = did_you_mean(kind, kinds())
    raise SpecError(
        f"There is no controller of kind {kind!r}, so nobody could stop or start such a participant. {hint}"
    )


@contextmanager
def controllers(env: ControllerEnv) -> Iterator[Callable[[str], Controller]]:
    """Gives the controller of a kind, as :func:`controller` does; each is made once, and let go at the end."""
    with ExitStack() as made:

        @cache
        def of(kind: str) -> Controller:
            one = controller(kind, env)
            made.callback(one.close)
            return one

        yield of
