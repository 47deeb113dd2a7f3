"""Text from outside, such as the name of a group, as it may be shown: it changes neither terminal, log nor page.

Kafka takes any text as a group's id, escape sequences of a terminal and the marks that turn the direction of writing
among them.
"""

from __future__ import annotations

import json
import re
from typing import Any

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

SPARK_APPLICATION = "spark application: "
"""How the line of a Spark job begins that names its application; whoever has submitted the job listens for it."""


def printable(text: str) -> str:
    """``text`` with what cannot be seen written as its code (``\\x1b``); line ends and tabs stay."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The same, with line ends and tabs as codes, too: a name cannot add a line to an answer."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_json(text: str) -> str:
    """A JSON text with what cannot be seen in its JSON spelling (``\\u009b``): the same value."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def unseen(text: str) -> bool:
    """Whether it holds a character that cannot be seen, a line end or a tab among them."""
    return one_line(text) != text


def parse_json(text: str | bytes) -> Any:
    """A JSON value that anybody may have written. Raises ``json.JSONDecodeError`` or another ``ValueError``.

    Python's own parser raises ``RecursionError`` for a value that is nested deeply, which is no ``ValueError``.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", "", 0) from None


def bytes_text(value: float) -> str:
    """A number of bytes for a person: ``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"
