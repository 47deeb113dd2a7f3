"""A topic's name in a text: as a whole word, so that `payments` is not found in `payments-v2`. Pure."""

from __future__ import annotations

import re


def whole(topic: str) -> re.Pattern[str]:
    """Finds the topic's name where nothing that a longer topic's name could have stands before or after it."""
    return re.compile(rf"(?<![A-Za-z0-9._-]){re.escape(topic)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9_-])")


def names(text: str, topic: str) -> int:
    """How often the text names the topic."""
    return len(whole(topic).findall(text))


def exchanged(text: str, old: str, new: str) -> str | None:
    """The text with ``new`` where it names ``old``; None where it does not name it once alone, or names ``new`` too.

    Its own inverse with ``old`` and ``new`` exchanged.
    """
    if names(text, old) != 1 or names(text, new):
        return None
    return whole(old).sub(lambda _: new, text)
