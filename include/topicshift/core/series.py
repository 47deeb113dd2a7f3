"""Points over time that are kept for charts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def thinned(points: Sequence[T], most: int) -> list[T]:
    """The same points; of more than ``most``, every second one of the older half goes."""
    half = most // 2
    return [*points[:half:2], *points[half:]] if len(points) > most else list(points)
