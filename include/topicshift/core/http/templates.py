"""Fill a request with the names of a migration. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_PLACE = re.compile(r"\$\{([^}]*)\}")

ALWAYS = ("participant", "group", "migration")
"""Names that every request may use."""

AT_POINT = ("topic", "value")
"""Names that a request of *point* may use besides. On a way back source and target change places: neither is one."""


def names_in(value: Any) -> set[str]:
    """The names that a path or a body uses."""
    if isinstance(value, str):
        return set(_PLACE.findall(value))
    if isinstance(value, Mapping):
        return {n for k, v in value.items() for n in names_in(k) | names_in(v)}
    if isinstance(value, list):
        return {n for v in value for n in names_in(v)}
    return set()


def filled_path(path: str, names: Mapping[str, Any]) -> str:
    """The path with each name in it, quoted as one part."""
    return _PLACE.sub(lambda found: quote(_text(names[found[1]]), safe=""), path)


def filled(body: Any, names: Mapping[str, Any]) -> Any:
    """The body with each name in it; a text that is one name alone becomes its value, of whatever type."""
    if isinstance(body, str):
        whole = _PLACE.fullmatch(body)
        return names[whole[1]] if whole else _PLACE.sub(lambda found: _text(names[found[1]]), body)
    if isinstance(body, Mapping):
        return {str(filled(k, names)): filled(v, names) for k, v in body.items()}
    if isinstance(body, list):
        return [filled(v, names) for v in body]
    return body


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
