"""Which of the measured candidate counts to take, judged by skew alone. Pure.

With wanted rates :func:`topicshift.core.sizing.sizing.recommend` decides; this is for a report that knows only keys.
The gain of a count is how often it halves the hottest partition, ``log2(now / then)``; a doubling of the partitions
costs half a halving, and more beyond 50; one parent for every partition is worth a little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from topicshift.core.base import Model
from topicshift.core.impact.report import Candidate, Impact, Kind
from topicshift.core.sizing.sizing import SWEET_SPOT

_COST_OF_DOUBLING = 0.5
_COST_BEYOND_SWEET_SPOT = 1.0
_ONE_PARENT = 0.25


class Choice(Model):
    """The count to take among the candidates, the runner-up, and why. None where there is nothing to choose."""

    partitions: int | None
    runner_up: int | None
    reasons: list[str]


def choose(impact: Impact) -> Choice:
    """The candidate with the best score; larger counts than the source's are preferred where there are any."""
    if impact.kind is Kind.UNKEYED:
        return Choice(partitions=None, runner_up=None, reasons=[impact.in_place.reason])
    n, now = impact.source.partitions, impact.source.max_keyed_partition_share
    usable = [c for c in impact.candidates if c.partitions != n and c.max_partition_share]
    usable = [c for c in usable if c.partitions > n] or usable
    if not usable or not now:
        return Choice(partitions=None, runner_up=None, reasons=["There is no keyed record to judge a count by."])
    ranked = sorted(usable, key=lambda c: (-_score(c, n, now), c.partitions))
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Choice(
        partitions=best.partitions,
        runner_up=second.partitions if second else None,
        reasons=_reasons(impact, best, second, usable, now),
    )


def _score(candidate: Candidate, n: int, now: float) -> float:
    count, share = candidate.partitions, candidate.max_partition_share or 1.0
    gain = math.log2(now / share)
    cost = _COST_OF_DOUBLING * math.log2(max(count / n, 1e-9))
    beyond = _COST_BEYOND_SWEET_SPOT * max(0.0, math.log2(count / SWEET_SPOT[1]))
    return round(gain - cost - beyond + _ONE_PARENT * (candidate.parents_max == 1), 9)


def _reasons(
    impact: Impact, best: Candidate, second: Candidate | None, usable: Sequence[Candidate], now: float
) -> list[str]:
    share = best.max_partition_share or 0.0
    n, out = impact.source.partitions, []
    useful, hottest = impact.limits.useful_partitions, impact.limits.hottest_key_share
    if useful is not None and hottest and useful <= n:
        out.append(
            f"No count relieves the hottest partition: one key alone has {hottest:.1%} of the keyed records. Take more "
            "partitions for the other keys' sake only."
        )
    out.append(
        f"The hottest partition falls from {now:.1%} of the keyed records to {share:.1%}; an even share would be "
        f"{1 / best.partitions:.1%}."
        if share < now
        else f"The hottest partition holds {share:.1%} of the keyed records, {now:.1%} now; no candidate does better."
    )
    if best.parents_max == 1:
        out.append(f"It is {best.partitions // n} times {n}, so every new partition has exactly one parent.")
    if useful is not None and hottest and useful > n and any(c.partitions > useful for c in usable):
        out.append(
            f"The hottest key alone has {hottest:.1%}: beyond {useful} partitions more of them do not lower the "
            "hottest partition."
        )
    if best.hot_partitions:
        out.append(f"{len(best.hot_partitions)} of its partitions would still be hot, over 30 %.")
    if second:
        out.append(
            f"Runner-up: {second.partitions}, whose hottest partition would hold {second.max_partition_share or 0:.1%}."
        )
    out.append("This weighs skew alone. With the wanted records/s, `topicshift size` works out how many are needed.")
    return out
