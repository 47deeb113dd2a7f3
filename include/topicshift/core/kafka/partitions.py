"""Partitions in a text for a person."""

from __future__ import annotations

from collections.abc import Iterable


def listed(partitions: Iterable[int], most: int = 8) -> str:
    """Partitions as ranges: ``0-3, 7``; at most so many of them."""
    runs: list[list[int]] = []
    for p in sorted(partitions):
        if runs and p == runs[-1][1] + 1:
            runs[-1][1] = p
        else:
            runs.append([p, p])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:most])
    return shown + (f" and {len(runs) - most} more" if len(runs) > most else "")
