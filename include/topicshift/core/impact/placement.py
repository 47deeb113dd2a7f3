"""After the switch: what each partition of the target holds, beside what the impact predicted. Pure.

Only gross differences are named: which keys are busy changes with the hour, and a hot key moves a partition's share. An
empty partition is always named, as that is how a count shows that an application still has in its configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from topicshift.core.base import Model
from topicshift.core.kafka.partitions import listed

_ENOUGH = 20
"""Records that a partition should have before anything is concluded from what it has."""
_TIMES, _DEVIATIONS = 2, 5
"""A share is off that is so many times the predicted one, or less than it over this, by so many standard deviations."""


class PartitionShare(Model):
    """One partition of the target: records, their share, and the predicted share. Null is not known."""

    partition: int
    records: int | None
    share: float | None
    predicted: float | None


class Placement(Model):
    """The comparison. ``reason`` says why nothing could be compared; null if it could.

    ``empty``: partitions without a record. ``missed``: those of them for which at least 20 records were predicted.
    ``off``: partitions with more than twice, or less than half, of the predicted share, the fullest first. ``unread``:
    no offsets known.
    """

    reason: str | None
    shares: list[PartitionShare]
    empty: list[int]
    missed: list[int]
    off: list[int]
    unread: list[int]

    @property
    def holds(self) -> bool | None:
        """Whether the target fills as predicted; None where that cannot be said."""
        return None if self.reason or self.unread else not (self.missed or self.off)

    def sentence(self) -> str:
        """For a person: what is empty, what is off, or that all is as predicted."""
        said = [f"{self.reason}." if self.reason else ""]
        if self.unread:
            said.append(f"The offsets of partitions {listed(self.unread)} are not known.")
        named = self.missed
        if self.missed:
            # What an application leaves out that counts to fewer partitions are the last ones, also those of them for
            # which too few records were predicted to be missed.
            rest = list(range(self.missed[0], len(self.shares)))
            last = set(rest) <= set(self.empty)
            named = rest if last else self.missed
            shares = [s.predicted or 0 for s in self.shares if s.partition in named]
            why = (
                f"a producer may have a partition count of {self.missed[0]} in its configuration"
                if last
                else "no key that belongs there was written yet, or a producer places its keys by a rule of its own"
            )
            said.append(
                f"Nothing is in partitions {listed(named)}, for which {sum(shares):.1%} of the records were "
                f"predicted: {why}."
            )
        if waiting := [p for p in self.empty if p not in named]:
            said.append(f"Nothing is in partitions {listed(waiting)} yet.")
        for p in self.off[:3]:
            one = next(s for s in self.shares if s.partition == p)
            said.append(f"Partition {p} has {one.share or 0:.1%} of the records; predicted: {one.predicted or 0:.1%}.")
        if len(self.off) > 3:
            said.append(f"So have {len(self.off) - 3} partitions more another share than predicted.")
        if self.holds:
            said.append("Each partition's share is about the predicted one.")
        return " ".join(filter(None, said))


def placement(impact: Mapping[str, Any], target_ends: Mapping[int, int | None]) -> Placement:
    """Compare the target with what ``impact`` (impact.json) predicts for its count.

    ``target_ends``: partition -> records written to it so far, the end offset less the first one; None if not known.
    """
    partitions = sorted(target_ends)
    counts = {p: target_ends[p] for p in partitions}
    written = sum(n or 0 for n in counts.values())
    predicted, reason = _predicted(impact, len(partitions))
    if reason is None and not written:
        reason = "Nothing was written to the target yet, so no share can be compared"
    shares = [
        PartitionShare(
            partition=p,
            records=n,
            share=n / written if n is not None and written else None,
            predicted=predicted[p] if 0 <= p < len(predicted) else None,
        )
        for p, n in counts.items()
    ]
    comparable = [] if reason else [s for s in shares if s.predicted is not None and s.records is not None]
    return Placement(
        reason=reason,
        shares=shares,
        empty=[p for p, n in counts.items() if n == 0],
        missed=[s.partition for s in comparable if not s.records and (s.predicted or 0) * written >= _ENOUGH],
        off=[
            s.partition
            for s in sorted(comparable, key=lambda s: (s.predicted or 0) - (s.share or 0))
            if s.records and _off(s.records, (s.predicted or 0) * written)
        ],
        unread=[p for p, n in counts.items() if n is None],
    )


def _predicted(impact: Mapping[str, Any], count: int) -> tuple[Sequence[float], str | None]:
    """The share of each partition by the impact, and why there is none to compare with if so."""
    found = next((c for c in impact.get("candidates", []) if c.get("partitions") == count), None)
    if found is None:
        return [], f"The impact was not measured for {count} partitions"
    part = impact.get("partitioner") or {}
    anywhere = (impact.get("null_keys") or 0) + (impact["empty_keys"] if part.get("empty_keys") == "spread" else 0)
    keyed = sum(found["partition_records"])
    if not keyed + anywhere:
        return [], "The source held no record to predict by"
    # What no key places goes everywhere alike: in the long run, as a client keeps to one partition for a while.
    shares = [(n + anywhere / count) / (keyed + anywhere) for n in found["partition_records"]]
    if part.get("name") != "murmur2" or part.get("verdict") == "fixed_count":
        by = f"the keys are placed by {part['name']}" if part.get("name") else "no one rule places the keys"
        return shares, f"Predictions take murmur2 over the target's count, and {by} on the source"
    if part.get("null_keys") == "one_partition" and anywhere > keyed:
        return shares, "Most records have no key and lie in one partition of the source"
    return shares, None


def _off(records: int, predicted: float) -> bool:
    if max(records, predicted) < _ENOUGH:
        return False
    far = abs(records - predicted) > _DEVIATIONS * math.sqrt(max(predicted, 1.0))
    return far and not predicted / _TIMES <= records <= predicted * _TIMES
