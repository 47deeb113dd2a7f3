"""What an application's answer says of it: JSON pointers, conditions, and the state that follows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

EVERY = "*"
"""A part of a pointer that stands for every element of a list, or every value of an object."""


@dataclass(frozen=True)
class Seen:
    """What one answer says. ``topic``: None where it names neither topic; ``why``: what is unclear, for a person."""

    status: Literal["running", "stopped", "unknown"]
    topic: str | None
    why: str = ""


def found(answer: Any, pointer: str) -> list[Any]:
    """The values that a JSON pointer (RFC 6901) leads to: one, or with ``*`` in it as many as there are.

    Raises ``LookupError`` with the place where the way ends; ``*`` over nothing is such an end, too.
    """
    values = [answer]
    for name in _parts(pointer):
        values = [inner for value in values for inner in _step(value, name, pointer)]
        if not values:
            raise LookupError(f"{pointer}: {name!r} is empty")
    return values


def _parts(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")


def _step(value: Any, name: str, pointer: str) -> list[Any]:
    if isinstance(value, Mapping):
        if name in value:
            return [value[name]]
        if name == EVERY:
            return list(value.values())
    elif isinstance(value, list):
        if name == EVERY:
            return list(value)
        if name.isdecimal() and int(name) < len(value):
            return [value[int(name)]]
    raise LookupError(f"{pointer}: there is no {name!r}")


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same: ``true`` is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def unmet(answer: Any, conditions: Mapping[str, Any]) -> list[str]:
    """The conditions that do not hold, in words. A list of values means: one of these."""
    wrong = []
    for pointer, wanted in conditions.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        try:
            others = [v for v in found(answer, pointer) if not any(same(v, a) for a in allowed)]
        except LookupError as error:
            wrong.append(str(error.args[0]))
            continue
        if others:
            wrong.append(f"{pointer} is {_short(others[0])}")
    return wrong


def _short(value: Any) -> str:
    """Numbers, yes and no, and short words are shown; what is longer may be anything."""
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return repr(value) if isinstance(value, str) and len(value) <= 60 else "something else"


def judge(
    answer: Any,
    running: Mapping[str, Any],
    stopped: Mapping[str, Any],
    pointer: str,
    topics: Mapping[str, Any],
) -> Seen:
    """What the answer says. ``topics``: each topic of the migration, and the value by which the application knows it.

    What holds neither all conditions of *running* nor all of *stopped*, or all of both, is unknown, and so is one that
    runs on a topic that cannot be told.
    """
    topic, why = _topic(answer, pointer, topics)
    runs, stands = unmet(answer, running), unmet(answer, stopped)
    if not runs and not stands:
        return Seen("unknown", topic, "its answer says that it runs and that it stands")
    if not stands:
        return Seen("stopped", topic, why)
    if runs:
        return Seen("unknown", topic, f"it says neither that it runs ({runs[0]}) nor that it stands ({stands[0]})")
    return Seen("running" if topic is not None else "unknown", topic, why)


def _topic(answer: Any, pointer: str, topics: Mapping[str, Any]) -> tuple[str | None, str]:
    try:
        values = found(answer, pointer)
    except LookupError as error:
        return None, f"which topic it is on is not said ({error.args[0]})"
    named = {next((t for t, known in topics.items() if same(v, known)), None) for v in values}
    if len(named) == 1 and None not in named:
        return named.pop(), ""
    odd = next((v for v in values if not any(same(v, known) for known in topics.values())), None)
    if odd is not None:
        return None, f"{pointer} is {_short(odd)}, which is neither topic of the migration"
    return None, f"{pointer} names both topics of the migration"
