"""What a replay of late records would do: where each would go, and who sees it a second time. Pure.

A replayed record bears :data:`HEADER`, so that an application, and the order proof, can tell it from a live one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topicshift.core.drain.strays import Replayed, Stray, Strays
from topicshift.core.errors import SpecError
from topicshift.core.impact.partitioning import RULE, partition_of

HEADER = "topicshift-replayed"
"""Header of a replayed record. Its value is the record's place on the source, see :func:`mark_of_place`."""


def mark_of_place(topic: str, partition: int, offset: int) -> bytes:
    """Where the record lies on the source: ``payments/1/10``. A topic's name has no slash in it."""
    return f"{topic}/{partition}/{offset}".encode()


def place_of_mark(mark: bytes, topic: str) -> tuple[int, int] | None:
    """Partition and offset on this topic; None for the mark of another topic, and for what is none."""
    parts = mark.decode("utf-8", "replace").split("/")
    if len(parts) != 3 or parts[0] != topic or not all(p.isascii() and p.isdigit() for p in parts[1:]):
        return None
    return int(parts[1]), int(parts[2])


@dataclass(frozen=True)
class KeySeen:
    """A key in the target from some time on: its partitions, and how many records."""

    partitions: frozenset[int]
    records: int


@dataclass(frozen=True)
class Wanted:
    """A record to be replayed: its place on the source, and the partition of the target that it goes to."""

    partition: int
    offset: int
    to_partition: int


@dataclass(frozen=True)
class ReplayOrder:
    """Everything that one replay does. ``since``: where the target ended before it began, by partition.

    ``name`` is the migration's: two replays of one migration shut each other out.
    """

    name: str
    source: str
    target: str
    records: tuple[Wanted, ...]
    since: Mapping[int, int]


@dataclass(frozen=True)
class Offer:
    """What the replay of one record would do. ``to`` is None where its partition is not known, with ``why``.

    ``again``: groups that have read it on the source, and would get it a second time. ``later``: records of its key in
    the target that are as late or later, after which it would come.
    """

    stray: Stray
    to: int | None
    later: int = 0
    again: tuple[str, ...] = ()
    why: str = ""

    def line(self, source: str, target: str) -> str:
        """One line for a person."""
        text = self.stray.line(source)
        if self.to is None:
            return f"{text}: cannot be replayed: {self.why}"
        text += f" -> {target}[{self.to}]"
        if self.later:
            text += f"; WARNING: {target} has {self.later} later record(s) of its key, and it would come after them"
        if self.again:
            text += f"; a second time for {', '.join(self.again)}"
        return text


def offer(
    strays: Strays,
    records: Sequence[Stray],
    *,
    seen: Mapping[str, KeySeen],
    partitions: int,
    partitioner: str | None,
    groups: Collection[str],
) -> list[Offer]:
    """What a replay of these records would do.

    ``seen``: keys (in hex) that the target has. ``partitioner``: the rule that the plan has found, None where it found
    none. ``groups``: every group of the migration.
    """
    unseen_by = {(r.partition, r.offset): set(g.unseen_by) for g in strays.generations for r in g.records}
    out = []
    for stray in records:
        again = tuple(sorted(set(groups) - unseen_by.get((stray.partition, stray.offset), set())))
        known = seen.get(stray.key_hex) if stray.key_hex is not None else None
        to, why = _partition(stray, known, partitions, partitioner)
        out.append(Offer(stray, to, known.records if known else 0, again, why))
    return out


def _partition(stray: Stray, known: KeySeen | None, partitions: int, partitioner: str | None) -> tuple[int | None, str]:
    if stray.key_hex is None:
        return stray.partition % partitions, ""
    if known is not None and len(known.partitions) > 1:
        return None, "its key lies in several partitions of the target"
    if known is not None:
        return min(known.partitions), ""
    place = None
    if partitioner in RULE:
        place = partition_of(str(partitioner), bytes.fromhex(stray.key_hex), partitions)
    if place is None:
        return None, "the target has no record of its key yet, and the rule that places keys is not known"
    return place, ""


def rule_of(impact: Mapping[str, Any]) -> str | None:
    """The rule that places keys under another partition count, by ``impact.json``; None where none is known."""
    found = impact.get("partitioner") or {}
    name = found.get("name")
    return name if name in RULE and found.get("verdict") != "fixed_count" else None


def replayed_of(found: Mapping[tuple[int, int], tuple[int, int]]) -> list[Replayed]:
    """Places on the source and in the target, as the evidence has them."""
    return [
        Replayed(partition=p, offset=o, to_partition=to_p, to_offset=to_o)
        for (p, o), (to_p, to_o) in sorted(found.items())
    ]


def place_of(text: str) -> tuple[int, int]:
    """Partition and offset of ``1:42``. Raises ``SpecError``."""
    partition, _, offset = text.strip().partition(":")
    if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
        raise SpecError(f"{text!r} is no place of a record. Write its partition and its offset: 1:42.")
    return int(partition), int(offset)
