"""The names of evidence files that several tasks read."""

from __future__ import annotations

import hashlib
import re

STRAYS = "strays.json"
"""Records that came to the source after its fence, see :mod:`topicshift.core.drain.strays`."""

GATE = "gate_progress.json"
"""What the gate before the freeze has seen so far, for the page: lag by group over time, and what it waits for."""


def is_progress(name: str) -> bool:
    """Whether a file of evidence holds the progress of a drain, on this way or on a way back."""
    return "drain_progress" in name and name.endswith(".json")


def is_chart(name: str) -> bool:
    """Whether a file of evidence holds what a wait has seen so far: it is drawn, and proves nothing."""
    return GATE in name or is_progress(name)


def file_name(consumer: str) -> str:
    """A consumer's name as part of a file name: readable, and different for different names."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "-", consumer)[:80]
    digest = hashlib.sha256(consumer.encode(errors="surrogatepass")).hexdigest()
    return safe if safe == consumer else f"{safe}-{digest[:8]}"


def suffix(consumer: str = "") -> str:
    """What the name of an evidence file of one consumer ends with; nothing for that of all."""
    return f"-{file_name(consumer)}" if consumer else ""


def certificate_name(consumer: str = "") -> str:
    """The evidence file of a certificate."""
    return f"drain_certificate{suffix(consumer)}.json"


def verification_name(consumer: str = "") -> str:
    """The evidence file of a verification."""
    return f"drain_verification{suffix(consumer)}.json"
