"""What of the topic is read: offset ranges by time, the sample, and the edges of the time slices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import pairwise

from topicshift.core.errors import SpecError
from topicshift.core.impact.sampling import Design, draw
from topicshift_spark.source import Range

SLICES = 8
_ZOOMS = 8
_CROWDED = 0.6


def is_number(text: str) -> bool:
    """Whether these are the ASCII digits of a whole number that any 32 bits hold."""
    return text.isascii() and text.isdecimal() and len(text) <= 9


def parse_time(option: str, text: str | None) -> int | None:
    """ISO 8601 (UTC unless it says otherwise) as milliseconds since the epoch. Raises ``SpecError``."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(f"{option} {text!r} is not a time; write for instance 2026-01-31T12:00:00Z.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000)
    if milliseconds < 0:
        # Kafka takes -1 for the end of the log, -2 for its start, and so on: no question may be asked by these.
        raise SpecError(f"{option} {text!r} is before 1970, where no record's timestamp lies. Leave {option} out.")
    return milliseconds


def parse_sample(text: str | None) -> float | None:
    """``0.05`` and ``5%`` are shares, a whole number above 1 is how many offsets to read. Raises ``SpecError``."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    value = float(match[1]) if match else 0.0
    if match is None or value == 0 or (value > 1 and not match[2] and not value.is_integer()):
        raise SpecError(f"--sample {text!r} is neither a share such as 0.05 or 5% nor a number of records.")
    if match[2]:
        value /= 100
        if value > 1:
            raise SpecError(f"--sample {text!r} is more than everything.")
    return value


def sampled(ranges: Mapping[int, Range], sample: float | None, seed: int) -> Design:
    """The sample over these ranges; everything without ``sample``."""
    plain = {p: (r.start, r.end) for p, r in ranges.items() if r.size}
    offsets = sum(r.size for r in ranges.values())
    if sample is None or not offsets:
        return Design(1.0, (plain,))
    fraction = sample if sample <= 1 else min(1.0, sample / offsets)
    return draw(plain, fraction, seed)


def between(
    ranges: Mapping[int, Range], since: Mapping[int, int] | None, until: Mapping[int, int] | None
) -> dict[int, Range]:
    """The ranges from the first record not older than ``since`` to the first not older than ``until``.

    Both are offsets by partition; a partition that is missing has no such record.
    """
    out = {}
    for p, r in ranges.items():
        start = r.start if since is None else max(r.start, since.get(p, r.end))
        end = r.end if until is None else min(r.end, until.get(p, r.end))
        out[p] = Range(start, max(start, end))
    return out


def slice_edges(
    first_ms: int, last_ms: int, records_before: Callable[[int], int], total: int, slices: int = SLICES
) -> list[int]:
    """Ascending edges of at most ``slices`` time slices from ``first_ms`` to ``last_ms``: n slices have n + 1 edges.

    They are equally wide. Where stray timestamps (0, or far in the future) would crowd nearly everything into one
    slice, the inner edges zoom into that one; what lies outside goes into the first and the last slice.
    ``records_before(t)`` tells how many of ``total`` offsets are older than t.
    """
    low, high = first_ms, last_ms + 1
    for _ in range(_ZOOMS):
        width = high - low
        n = min(slices, width)
        inner = [low + width * i // n for i in range(1, n)]
        if n < slices or not total:
            break
        marks = [0, *(records_before(t) for t in inner), total]
        shares = [(b - a) / total for a, b in pairwise(marks)]
        crowded = max(range(n), key=lambda i: shares[i])
        if shares[crowded] <= _CROWDED:
            break
        edges = [low, *inner, high]
        # Keep a slice's width of room on both sides, so that what lies beside the crowd stays visible.
        wide = edges[crowded + 1] - edges[crowded]
        narrowed = (max(low, edges[crowded] - wide // slices), min(high, edges[crowded + 1] + wide // slices))
        if narrowed == (low, high):
            break
        low, high = narrowed
    return [first_ms, *inner, last_ms + 1]
