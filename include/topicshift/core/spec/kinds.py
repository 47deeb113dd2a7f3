"""The kinds of participant: which there are here, and the settings of those that ship."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from topicshift.core.base import Model
from topicshift.core.spec.duration import Duration
from topicshift.core.spec.fields import ConnectionId, Location, Topic, did_you_mean, problem
from topicshift.core.spec.flink import LABEL, OBJECT, FlinkDeploymentSettings, FlinkSettings, FlinkSqlSettings
from topicshift.core.spec.http import HttpSettings

ENTRY_POINTS = "topicshift.controllers"
"""Entry point group under which an installed package offers further kinds."""

BY_OTHER_CHECKS = ("route", "manual")
"""Kinds of which nobody asks ``can_i``: checks of their own look at the route, and a person cannot be tried."""

MAX_HOOK_S = 9.0
"""The longest that one moment of a hook may take, in seconds: an act of three ends before its seat (30 s) does."""


class NoSettings(Model):
    """Of kinds that take none."""


def _timeout(value: timedelta) -> timedelta:
    if not 0.1 <= value.total_seconds() <= MAX_HOOK_S:
        raise ValueError(f"a moment of a hook may take between 100 ms and {MAX_HOOK_S:g} s")
    return value


class HookSettings(Model):
    """Of kind ``command``: see ``docs/participants/command.md``."""

    hook: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """A file in the installation's folder of hooks, and no path."""
    timeout: Annotated[Duration, AfterValidator(_timeout)] = timedelta(seconds=5)


def _folders(value: dict[str, str]) -> dict[str, str]:
    if len(value) < 2 or len({folder.rstrip("/") for folder in value.values()}) < len(value):
        raise ValueError("it has to give each of the two topics, by its name, a folder of its own")
    return value


class SparkSettings(HookSettings):
    """Of kind ``spark_streaming``: see ``docs/participants/spark_streaming.md``."""

    checkpoints: Annotated[dict[Topic, Location], AfterValidator(_folders), Field(max_length=10)]
    """The query's checkpoint folder on each topic, as a path or an fsspec URL."""


class ConnectSettings(Model):
    """Of kind ``connect``: see ``docs/participants/connect.md``."""

    connector: str = Field(min_length=1, max_length=249)
    """The connector's name."""
    connection: ConnectionId = "connect_default"
    """The connection with the address of a Connect worker, and its log-in."""
    topic_setting: str = Field(default="topic", pattern=r"^[A-Za-z0-9._-]{1,200}$")
    """The setting of a source connector that names the topic it writes to; every sink has ``topics``."""
    keep: list[str] = Field(default=[], max_length=50)
    """Settings that name the source as well and stay as they are."""
    mirror: bool = False
    """(consumers) It is MirrorMaker 2's source connector, which copies the topic to another cluster."""


class KubernetesSettings(Model):
    """Of kind ``kubernetes``: see ``docs/participants/kubernetes.md``."""

    workload: str = Field(pattern=rf"^(Deployment|StatefulSet|Rollout)/{OBJECT}$")
    """What runs it: ``Deployment/NAME``, ``StatefulSet/NAME`` or ``Rollout/NAME``."""
    namespace: str = Field(pattern=LABEL)
    """Its namespace."""
    topic_in: str = Field(
        pattern=rf"^(env:[A-Za-z_.-][A-Za-z0-9_.-]*|args|configmap:{OBJECT}/[-._A-Za-z0-9]{{1,253}})$"
    )
    """Where its topic is named: ``env:VARIABLE``, ``args``, or ``configmap:NAME/KEY``."""
    container: str | None = Field(default=None, pattern=LABEL)
    """The one container whose variable or arguments are meant; all of them where it is left out."""
    connection: ConnectionId = "kubernetes_default"
    """The connection that names the API server and the log-in."""


SETTINGS: dict[str, type[Model]] = {
    "route": NoSettings,
    "manual": NoSettings,
    "command": HookSettings,
    "connect": ConnectSettings,
    "kubernetes": KubernetesSettings,
    "http": HttpSettings,
    "flink": FlinkSettings,
    "spark_streaming": SparkSettings,
}
"""The kinds that ship, with what they take under ``settings``."""

OTHERS: dict[str, dict[str, type[Model]]] = {"flink": {"deployment": FlinkDeploymentSettings, "plan": FlinkSqlSettings}}
"""Kinds that move applications in more ways than one: the setting that chooses another one, and what is taken then."""


def settings_of_kind(kind: str, settings: Mapping[str, Any]) -> type[Model] | None:
    """What a participant of this kind takes, by the settings that it has; None for a kind of another package."""
    chosen = (model for key, model in OTHERS.get(kind, {}).items() if key in settings)
    return next(chosen, SETTINGS.get(kind))


def kinds() -> list[str]:
    """Every kind there is a controller for: those that ship and those of installed packages."""
    return sorted({*SETTINGS, *(e.name for e in entry_points(group=ENTRY_POINTS))})


def participant_problems(kind: str, settings: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """What is wrong with a participant's kind and settings; kinds of other packages judge theirs by ``can_i``."""
    model = settings_of_kind(kind, settings)
    if model is not None:
        yield from _settings_problems(kind, model, settings)
    elif kind not in (known := kinds()):
        yield problem(
            f"{kind!r} is no kind of participant",
            "Its controller stops, points and starts the application.",
            did_you_mean(kind, known),
            ("kind",),
        )


def _settings_problems(kind: str, model: type[Model], settings: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    try:
        model.model_validate(dict(settings))
    except ValidationError as error:
        for one in error.errors():
            name = ".".join(map(str, one["loc"])) or "settings"
            yield _told(kind, name, one, list(model.model_fields))


def _told(kind: str, name: str, error: Any, known: list[str]) -> PydanticCustomError:
    if error["type"] == "extra_forbidden":
        seen = f"{name} is no setting of kind {kind}"
        do = did_you_mean(name, known) if known else "Leave it out."
    elif error["type"] == "missing":
        seen, do = f"kind {kind} needs the setting {name}", "Write it under `settings`."
    else:
        seen, do = f"{name}: {error['msg']}", f"See docs/participants/{kind}.md."
    return problem(seen, "The participant could not be moved as it is meant.", do, ("settings", name))
