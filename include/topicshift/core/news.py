"""Whether what is waited for is news: a log that repeats itself twice a second hides the line that matters. Pure."""

from __future__ import annotations

import re
from typing import Final

REPEAT_S: Final = 30.0
"""Seconds after which a text is news again where nothing but its numbers has changed."""

_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")


class News:
    """What was said last, and when (seconds by any clock)."""

    def __init__(self) -> None:
        self._text, self._at = "", 0.0

    def __call__(self, text: str, now: float) -> bool:
        """Whether to say this now; remembered as said if so."""
        if text == self._text:
            return False
        if _NUMBER.sub("", text) == _NUMBER.sub("", self._text) and 0 <= now - self._at < REPEAT_S:
            return False
        self._text, self._at = text, now
        return True
