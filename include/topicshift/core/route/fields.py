"""Reading JSON that anybody may have written: each field checked, each fault a :class:`RouteFormatError`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationError

from topicshift.core.kafka.rules import topic_name_problem

VERSION = 1
"""The format version of both records. A reader refuses a higher one."""

MAX_COUNT = 2**53 - 1
"""The highest epoch or claim: the highest whole number that every JSON library reads exactly."""

MAX_MS = 253_402_300_799_999
"""The last ms of the year 9999."""

MAX_DEPTH = 32
"""The deepest nesting of a record."""

MAX_NAME = 500
"""The longest name of a participant, instance, group or migration, characters."""


class RouteFormatError(ValueError):
    """A record does not follow the protocol; the message names the field. Clients keep the route they have."""


@contextmanager
def document(what: str) -> Iterator[None]:
    """Whatever goes wrong while a record is read makes it one that is not understood."""
    try:
        yield
    except RouteFormatError:
        raise
    except ValidationError as exc:
        error = exc.errors()[0]
        name = ".".join(str(part) for part in error["loc"] if part != "[key]")
        raise RouteFormatError(f"{what}: {name} is {printable(error['input'])}: {error['msg']}") from None
    except Exception as exc:  # noqa: BLE001 - these may be anybody's bytes, and no fault in them may reach further
        raise RouteFormatError(f"{what} cannot be read: {type(exc).__name__}: {str(exc)[:200]}") from None


def printable(value: Any) -> str:
    """A value for a message: short, and never a cause of another fault."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - such as a whole number of too many digits
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:80] + "..."


def _no_constant(name: str) -> NoReturn:
    raise RouteFormatError(f"it holds {name}, which is no JSON")


def _check_depth(data: Any) -> None:
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
        if not level:
            return
    raise RouteFormatError(f"it is nested more than {MAX_DEPTH} deep")


def object_of(value: bytes | str, what: str, *, any_version: bool = False) -> dict[str, Any]:
    """The JSON object that a record holds."""
    text = value.decode("utf-8") if isinstance(value, bytes) else value
    parsed = json.loads(text, parse_constant=_no_constant)
    if not isinstance(parsed, dict):
        raise RouteFormatError(f"{what} is not a JSON object but {type(parsed).__name__}")
    _check_depth(parsed)
    json.dumps(parsed, ensure_ascii=False).encode()  # what cannot be written back is not understood
    version = parsed.get("v")
    if not any_version and (type(version) is not int or not 1 <= version <= VERSION):
        raise RouteFormatError(f"{what} has v={printable(version)}; this client reads versions 1 to {VERSION}")
    return parsed


# ------------------------------------------------------------------------------------------------ types of fields


def name_problem(value: Any) -> str | None:
    """Why a value is no name of a participant, instance, group or principal; None where it is one."""
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
        return f"not a non-empty string of at most {MAX_NAME} printable characters"
    return None


def _name(value: str) -> str:
    if problem := name_problem(value):
        raise ValueError(problem)
    return value


def _topic(value: str) -> str:
    if problem := topic_name_problem(value):
        raise ValueError(f"no topic name: {problem}")
    return value


def _partition(value: Any) -> Any:
    if isinstance(value, str) and (not value.isascii() or not value.isdigit() or len(value) > 10):
        raise ValueError("no partition")
    return value


Name = Annotated[str, Strict(), AfterValidator(_name)]
Topic = Annotated[Name, AfterValidator(_topic)]
Ms = Annotated[int, Strict(), Field(ge=0, le=MAX_MS)]
Length = Annotated[int, Strict(), Field(ge=1, le=MAX_MS)]
Beat = Annotated[int, Strict(), Field(ge=1, le=86_400_000)]
Epoch = Annotated[int, Strict(), Field(ge=1, le=MAX_COUNT)]
Count = Annotated[
    int, Strict(), Field(ge=0, le=MAX_COUNT), BeforeValidator(lambda value: 0 if value is None else value)
]
"""A count of which null means 0."""
Flag = Annotated[bool, Strict()]
Partition = Annotated[int, BeforeValidator(_partition)]
Offset = Annotated[int, Strict(), Field(ge=-1, lt=2**63)]
Reason = Annotated[str, BeforeValidator(lambda value: value[:1000] if isinstance(value, str) else "")]
