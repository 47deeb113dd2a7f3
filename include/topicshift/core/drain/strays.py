"""Strays: records that came to the source after its fence while producers were on the target. Pure.

Each fence anew is one generation: the offsets from which and up to which it counts, and which groups had been released
by then and cannot see what came between. The JSON of :class:`Strays` is a public contract (``strays.json``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from topicshift.core.base import Model
from topicshift.core.drain.decision import TailRange
from topicshift.core.fence.point import FenceOffsets

MOST_NAMED = 10_000
"""Records of one generation that are named; where more came, no person can answer for each of them."""


@dataclass(frozen=True)
class NamedRecord:
    """A record by its place and key. ``timestamp_ms`` is in ms since the epoch, None where it has none."""

    partition: int
    offset: int
    key: bytes | None
    timestamp_ms: int | None = None


class Stray(Model):
    """One record. ``key`` is its text, null where it has none or is no text; ``key_hex`` is null without a key."""

    partition: int
    offset: int
    key: str | None
    key_hex: str | None
    timestamp_ms: int | None = None

    @staticmethod
    def of(record: NamedRecord) -> Stray:
        """The record as JSON has it."""
        text = None
        if record.key is not None:
            try:
                text = record.key.decode("utf-8")
            except UnicodeDecodeError:
                text = None
        hex_ = record.key.hex() if record.key is not None else None
        return Stray(
            partition=record.partition, offset=record.offset, key=text, key_hex=hex_, timestamp_ms=record.timestamp_ms
        )

    def line(self, topic: str) -> str:
        """One line for a person."""
        if self.key_hex is None:
            key = "no key"
        else:
            key = f"key {self.key!r}" if self.key is not None else f"key 0x{self.key_hex}"
        return f"{topic}[{self.partition}] offset {self.offset}, {key}"


class Generation(Model):
    """One fence anew: records in [from, to) of each partition. ``unseen_by``: groups that had left the source.

    ``complete``: every record is named. ``records`` are readable ones; markers of transactions are none.
    """

    generation: int
    taken_at: str
    why: str
    from_offsets: FenceOffsets
    to_offsets: FenceOffsets
    unseen_by: list[str]
    records: list[Stray]
    complete: bool


class Replayed(Model):
    """A record that was written to the target again: its place on the source, and there."""

    partition: int
    offset: int
    to_partition: int
    to_offset: int


class Strays(Model):
    """All generations of a migration, oldest first, and what of them was replayed."""

    topic: str
    topic_id: str
    generations: list[Generation] = Field(default_factory=list)
    replayed: list[Replayed] = Field(default_factory=list)

    def left(self, generation: Generation) -> list[Stray]:
        """Records of a generation that were not replayed."""
        done = {(r.partition, r.offset) for r in self.replayed}
        return [r for r in generation.records if (r.partition, r.offset) not in done]

    @property
    def unseen(self) -> list[Stray]:
        """Records that some released group cannot see any more."""
        return [r for g in self.generations if g.unseen_by for r in self.left(g)]

    @property
    def groups(self) -> list[str]:
        """Groups that cannot see some record any more."""
        return sorted({group for g in self.generations if self.left(g) or not g.complete for group in g.unseen_by})

    @property
    def complete(self) -> bool:
        """Whether every record that a released group cannot see is named."""
        return all(g.complete for g in self.generations if g.unseen_by)

    @property
    def mark(self) -> str:
        """SHA-256 of exactly what a person is asked about: the records that are unseen, and the groups."""
        named = [
            [g.generation, sorted(g.unseen_by), [[r.partition, r.offset, r.key_hex] for r in self.left(g)]]
            for g in self.generations
            if g.unseen_by
        ]
        return hashlib.sha256(json.dumps([self.topic, self.topic_id, named]).encode()).hexdigest()

    def with_generation(self, made: Generation) -> Strays:
        """With this generation, in the place of one of the same number."""
        others = [g for g in self.generations if g.generation != made.generation]
        return self.model_copy(update={"generations": sorted([*others, made], key=lambda g: g.generation)})

    def with_replayed(self, made: Sequence[Replayed]) -> Strays:
        """With these, each in the place of one of the same record."""
        known = {(r.partition, r.offset): r for r in (*self.replayed, *made)}
        return self.model_copy(update={"replayed": [known[place] for place in sorted(known)]})


def ranges_between(from_: Mapping[int, int], to: Mapping[int, int]) -> list[TailRange]:
    """What came between two fences, by partition."""
    return [TailRange(p, from_.get(p, 0), end) for p, end in sorted(to.items()) if end > from_.get(p, 0)]


def named(records: Sequence[NamedRecord]) -> list[Stray]:
    """Records in the order of their places."""
    return [Stray.of(r) for r in sorted(records, key=lambda r: (r.partition, r.offset))]
