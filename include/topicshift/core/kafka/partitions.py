"""Partitions in a text for a person."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 8


def listed(partitions: Iterable[int]) -> str:
    """Partitions as ranges: ``0-3, 7``; at most eight of them."""
    runs: list[list[int]] = []
    for p in sorted(partitions):
        if runs and p == runs[-1][1] + 1:
            runs[-1][1] = p
        else:
            runs.append([p, p])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:_MOST])
    return shown + (f" and {len(runs) - _MOST} more" if len(runs) > _MOST else "")
