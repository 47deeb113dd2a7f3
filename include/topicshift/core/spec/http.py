"""What a participant of kind ``http`` takes under ``settings``: see ``docs/participants/http.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import combinations
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from topicshift.core.base import Model
from topicshift.core.http.answers import same
from topicshift.core.http.templates import ALWAYS, AT_POINT, names_in
from topicshift.core.spec.duration import Duration
from topicshift.core.spec.fields import SECRET, ConnectionId, Topic, no_secret

MAX_REQUEST_S = 4.0
"""The longest that one request may be waited for, in seconds."""

MAX_ACT_S = 9.0
"""The longest that all requests of one act may take, in seconds: an act of three ends before its seat (30 s) does."""


def _timeout(value: timedelta) -> timedelta:
    if not 0.1 <= value.total_seconds() <= MAX_REQUEST_S:
        raise ValueError(f"a request may take between 100 ms and {MAX_REQUEST_S:g} s")
    return value


def _path(value: str) -> str:
    named = [name for name, _ in parse_qsl(urlsplit(value).query, keep_blank_values=True) if SECRET.search(name)]
    if named:
        raise ValueError(no_secret(named[0]))
    return value


def _body(value: JsonValue) -> JsonValue:
    for name in _names(value):
        if SECRET.search(name):
            raise ValueError(no_secret(name))
    return value


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


Path = Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=2000), AfterValidator(_path)]
Pointer = Annotated[str, Field(pattern=r"^(/[^/]*)+$", max_length=500)]
Word = str | bool | int | float | None
Conditions = Annotated[dict[Pointer, Word | list[Word]], Field(min_length=1, max_length=20)]


class Request(Model):
    """One request to each of ``connections``; without any, to each of the participant's."""

    path: Path
    method: Literal["PUT", "DELETE", "POST", "PATCH"] = "POST"
    body: Annotated[JsonValue, AfterValidator(_body)] = None
    content_type: str = Field(default="application/json", pattern=r"^[\w.+-]+/[\w.+-]+(; ?[\w.-]+=[\w.+-]+)*$")
    connections: list[ConnectionId] = Field(default=[], max_length=50)
    repeatable: bool = False
    """Whether sending it twice does the same as sending it once. PUT and DELETE are by what HTTP says of them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.method in ("POST", "PATCH") and not self.repeatable:
            raise ValueError(
                f"{self.method} {self.path} may be sent twice, because a run can be killed after it was sent. Say "
                "`repeatable: true` where twice does the same as once; a request that toggles does not"
            )
        return self


class Look(Model):
    """A request that only reads."""

    path: Path
    connections: list[ConnectionId] = Field(default=[], max_length=50)


class Observe(Look):
    """What is asked, and what its answer means: JSON pointers, and the values they have to lead to."""

    running: Conditions
    stopped: Conditions
    topic: Pointer


def _values(value: dict[str, Word]) -> dict[str, Word]:
    if value and (len(value) < 2 or any(same(a, b) for a, b in combinations(value.values(), 2))):
        raise ValueError("it has to give each of the two topics, by its name, a value of its own")
    return value


def _several(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


Requests = Annotated[list[Request], BeforeValidator(_several), Field(min_length=1, max_length=5)]


class HttpSettings(Model):
    """Of kind ``http``."""

    stop: Requests
    point: Requests
    start: Requests
    observe: Observe
    restarts_on: Literal["pointed", "source"]
    """Where a process works that starts and cannot ask: where it was pointed to (or nowhere), or on the source."""
    connections: Annotated[list[ConnectionId], Field(min_length=1, max_length=50)] = Field(default=["http_default"])
    can_i: Look | None = None
    values: Annotated[dict[Topic, Word], AfterValidator(_values), Field(max_length=10)] = Field(default={})
    """By which values the application knows the topics, where that is not by their names."""
    timeout: Annotated[Duration, AfterValidator(_timeout)] = timedelta(seconds=2)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for moment, requests in (("stop", self.stop), ("point", self.point), ("start", self.start)):
            allowed = {*ALWAYS, *(AT_POINT if moment == "point" else ())}
            for each in requests:
                odd = sorted((names_in(each.path) | names_in(each.body)) - allowed)
                if odd:
                    raise ValueError(f"${{{odd[0]}}} is not known at {moment}; known are {', '.join(sorted(allowed))}")
        looks = [look.path for look in (self.observe, self.can_i) if look is not None]
        odd = sorted(names_in(looks) - set(ALWAYS))
        if odd:
            raise ValueError(f"${{{odd[0]}}} is not known here; known are {', '.join(sorted(ALWAYS))}")
        used = set().union(*(names_in(r.path) | names_in(r.body) for r in self.point))
        if not used & {"topic", "value"}:
            raise ValueError("no request of `point` uses ${topic} or ${value}, so it would be the same for both topics")
        if "value" in used and not self.values:
            raise ValueError("${value} needs `values`")
        return self
