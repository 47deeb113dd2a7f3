"""Skew: how unevenly partitions and keys are loaded, and how far more partitions can help. Plain numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

HOT_SHARE = 0.30
"""Above this share of the traffic a partition is hot ..."""
HOT_OVER_EVEN = 1.25
"""... if it also has more than this times its even share: of three partitions each has a third."""


def shares(loads: Sequence[float]) -> list[float]:
    """Each load as a share of their sum; all zero where there is no load."""
    total = sum(loads)
    return [x / total if total else 0.0 for x in loads]


def hot_partitions(loads: Sequence[float]) -> list[int]:
    """The partitions with more than 30 % of the load and more than 1.25 times the even share."""
    limit = max(HOT_SHARE, HOT_OVER_EVEN / len(loads)) if loads else 1.0
    return [p for p, share in enumerate(shares(loads)) if share > limit]


def gini(loads: Sequence[float]) -> float | None:
    """Gini coefficient of the loads: 0 is even, (n-1)/n is everything in one. None without any load.

    Formula: ``(2 * sum(i * x_i) / (n * sum(x)) - (n + 1) / n`` over the loads in ascending order, i from 1.
    """
    total, n = sum(loads), len(loads)
    if not total:
        return None
    weighted = sum(i * x for i, x in enumerate(sorted(loads), 1))
    return max(0.0, 2 * weighted / (n * total) - (n + 1) / n)


def useful_partitions(hottest_key_share: float | None) -> int | None:
    """The first count beyond which more partitions do not lower the hottest partition: ``ceil(1 / share)``.

    The partition that holds the hottest key has at least the key's share. Once an even share (1/M) is no more than
    that, this key alone sets the maximum. None without a keyed record.
    """
    return math.ceil(1 / hottest_key_share - 1e-12) if hottest_key_share else None


def looks_like_schema_ids(keys_by_id: Mapping[int, int], keyed: int, *, overflow: bool = False) -> bool:
    """Whether prefixes that could be schema ids are some: half of the keys have one, and few ids have many keys each.

    ``keys_by_id`` counts distinct keys; ``overflow`` says that there were more ids than could be kept.
    """
    with_prefix = sum(keys_by_id.values())
    if overflow or not keys_by_id or with_prefix * 2 < keyed:
        return False
    return len(keys_by_id) == 1 or with_prefix >= 2 * len(keys_by_id)
