"""Reading JSON that anybody may have written: each field checked, each fault a :class:`RouteFormatError`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

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


def object_of(data: Any, name: str | None, where: str, *, any_version: bool = False) -> dict[str, Any]:
    """A JSON object: the whole record (``name`` None, ``data`` its bytes), or a field of one, empty if missing."""
    if name is not None:
        value = data.get(name, {})
        if not isinstance(value, dict):
            raise RouteFormatError(f"{where}{name} is {printable(value)}, not an object")
        return value
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    parsed = json.loads(text, parse_constant=_no_constant)
    if not isinstance(parsed, dict):
        raise RouteFormatError(f"{where} is not a JSON object but {type(parsed).__name__}")
    _check_depth(parsed)
    json.dumps(parsed, ensure_ascii=False).encode()  # what cannot be written back is not understood
    version = parsed.get("v")
    if not any_version and (type(version) is not int or not 1 <= version <= VERSION):
        raise RouteFormatError(f"{where} has v={printable(version)}; this client reads versions 1 to {VERSION}")
    return parsed


def optional_name(data: Mapping[str, Any], name: str, where: str, *, required: bool = False) -> str | None:
    """A non-empty printable string, or None if it may be missing."""
    value = data.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
        raise RouteFormatError(
            f"{where}{name} is {printable(value)}, not a non-empty string of at most {MAX_NAME} printable characters"
        )
    return value


def topic_of(data: Mapping[str, Any], name: str, where: str) -> str:
    """A legal topic name."""
    value = optional_name(data, name, where, required=True) or ""
    if problem := topic_name_problem(value):
        raise RouteFormatError(f"{where}{name} is {printable(value)}, which is no topic name: {problem}")
    return value


def optional_topic(data: Mapping[str, Any], name: str, where: str) -> str | None:
    """A legal topic name, or None if it is missing."""
    return None if data.get(name) is None else topic_of(data, name, where)


def number(data: Mapping[str, Any], name: str, where: str, least: int, most: int, *, default: int | None = None) -> int:
    """A whole number within bounds; ``default`` where it is missing or null."""
    value = data.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RouteFormatError(f"{where}{name} is {printable(value)}, not a whole number from {least} to {most}")
    return value


def optional_number(data: Mapping[str, Any], name: str, where: str, least: int, most: int) -> int | None:
    """A whole number within bounds, or None if it is missing or null."""
    return None if data.get(name) is None else number(data, name, where, least, most)


def word(data: Mapping[str, Any], name: str, where: str, allowed: Sequence[str], default: str | None = None) -> str:
    """One of these words."""
    value = data.get(name, default)
    if not isinstance(value, str) or value not in allowed:
        raise RouteFormatError(f"{where}{name} is {printable(value)}, none of {', '.join(allowed)}")
    return value
