"""Java ``.properties`` texts, as Kafka's tools write and read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from topicshift.core.errors import SpecError


@dataclass(frozen=True)
class Property:
    """One property as written: where it stands, its key and value."""

    line: int
    key: str
    value: str


def parse_properties(text: str, *, name: str) -> list[Property]:
    """The properties of a Java ``.properties`` text, in order (comments, continuations and escapes as Java reads them).

    ``name`` is what errors call the text. Raises ``SpecError`` with line and key for a line without a separator
    and for a key that stands twice with different values.
    """
    found: dict[str, Property] = {}
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        start, raw = number, lines[number].lstrip()
        number += 1
        if not raw or raw[0] in "#!":
            continue
        while (len(raw) - len(raw.rstrip("\\"))) % 2 == 1 and number < len(lines):
            raw = raw[:-1] + lines[number].lstrip()
            number += 1
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:]\s*(.*)$", raw, re.DOTALL)
        if match is None:
            word = raw.split()[0]
            raise SpecError(
                f"{name}, line {start + 1}: {word!r} has no value. Each line of a client properties file is "
                "key=value. Add the value, or take the line out."
            )
        prop = Property(start + 1, unescape(match[1]), unescape(match[2]).strip(" \t"))
        before = found.get(prop.key)
        if before is not None and before.value != prop.value:
            raise SpecError(
                f"{name}, line {prop.line}: {prop.key} is set again, after line {before.line}, to another value. "
                "Which one is meant cannot be told. Keep one of the two lines."
            )
        found[prop.key] = prop
    return list(found.values())


def unescape(text: str) -> str:
    """What a text with Java's escapes (``\\n``, ``\\u00e9``, ``\\=``) stands for."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)
