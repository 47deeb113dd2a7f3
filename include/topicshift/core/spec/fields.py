"""The kinds of value that a spec's fields hold, and how a wrong one is told.

A validator's error carries *seen*, *why* and *do* (see :func:`problem`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from topicshift.core.kafka.rules import principal_problem, topic_name_problem
from topicshift.core.route.fields import MAX_NAME
from topicshift.core.text import unseen

_CONNECTION = re.compile(r"(?!.*\.\.)[\w#!:()-][\w.#!/:()-]{0,199}", re.ASCII)

SECRET = re.compile(r"(?i)passw|secret|token|credential|authorization|api[-_]?key|private[-_]?key|jaas")
"""Names of what nobody writes into a spec."""


def no_secret(name: str, place: str = "the connection") -> str:
    """Why such a name is refused, and where it belongs."""
    return f"{name!r} looks like a secret, and a spec is shown in journal and evidence; it belongs to {place}"


def problem(seen: str, why: str, do: str, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """A validation error in three parts; ``at`` is a path below the model that raises it."""
    ctx: dict[str, Any] = {"seen": seen, "why": why, "do": do, "at": list(at), "more": []}
    return PydanticCustomError("spec", "{seen}. {why} {do}", ctx)


def raise_all(problems: Iterable[PydanticCustomError]) -> None:
    """Raise the first, with the others in its context, so that all of them can be reported at once."""
    found = list(problems)
    if found:
        first = dict(found[0].context or {})
        first["more"] = [p.context for p in found[1:]]
        raise PydanticCustomError("spec", "{seen}. {why} {do}", first)


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """``Did you mean `x`?`` or the list of what is known, as a sentence."""
    close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"Did you mean `{close[0]}`?" if close else "Known are: " + ", ".join(known) + "."


def _topic(value: str) -> str:
    wrong = topic_name_problem(value)
    if wrong:
        shown = value if len(value) <= 60 else value[:57] + "..."
        raise problem(f"{shown!r} is no topic name: {wrong}", "Kafka would refuse it.", "Write a legal name.")
    return value


def _name(value: str) -> str:
    if unseen(value):
        raise problem(
            f"{value!r} holds a character that cannot be seen",
            "The name is shown in questions, logs and on pages, and could look there like another one.",
            "Write it without control characters and marks of direction.",
        )
    return value


def _participant(value: str) -> str:
    if len(_name(value)) > MAX_NAME:
        raise problem(
            f"the name has {len(value):,} characters, the most is {MAX_NAME}",
            "A route client reports under this name, and a longer one is not understood.",
            "Shorten it, here and in the application.",
        )
    return value


def _connection(value: str) -> str:
    if not _CONNECTION.fullmatch(value):
        raise problem(
            f"{_name(value)!r} is no name of an Airflow connection",
            "Airflow takes 1 to 200 letters, digits and . _ - # ! / : ( ) for it, and neither a path nor blanks.",
            "Write the connection's id, such as `kafka_default`.",
        )
    return value


def _principal(value: str) -> str:
    wrong = principal_problem(_name(value))
    if value.partition(":")[2] == "*":
        raise problem(
            f"{value!r} is everybody, not the principal of one application",
            "The write fence spares or denies exactly this principal.",
            "Write the application's own, or leave it out where it is not known.",
        )
    if wrong:
        raise problem(
            f"{value!r} is no Kafka principal: {wrong}",
            "The write fence spares or denies exactly this principal.",
            "Write it as the broker's authorizer log shows it.",
        )
    return value


def _location(value: str) -> str:
    place = urlsplit(value)
    user, at, _ = place.netloc.rpartition("@")
    # `container@account` is how Azure's URLs name a place; there is no password in it.
    if at and (":" in user or place.scheme in ("http", "https")):
        raise problem(
            "the location holds credentials",
            "A spec is kept in the journal and the evidence, and shown in Airflow.",
            "Take them out of the URL, and let the network or the file system's own settings identify this client.",
        )
    return value


def _header(value: str) -> str:
    if not value.strip():
        raise problem(
            "the header's name is blank", "No record carries such a header.", "Name it, or leave the field out."
        )
    return value


Topic = Annotated[str, AfterValidator(_topic), Field(json_schema_extra={"pattern": r"^[a-zA-Z0-9._-]{1,249}$"})]
Name = Annotated[str, AfterValidator(_name)]
Participant = Annotated[str, AfterValidator(_participant)]
ConnectionId = Annotated[str, AfterValidator(_connection)]
Kind = Annotated[
    str,
    Field(
        json_schema_extra={
            "examples": ["route", "manual", "command", "connect", "kubernetes", "http", "flink", "spark_streaming"]
        }
    ),
]
Principal = Annotated[str, AfterValidator(_principal)]
Location = Annotated[str, AfterValidator(_location)]
Header = Annotated[str, AfterValidator(_header)]
