"""A replayer over a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topicshift.core.drain.replay import KeySeen, ReplayOrder
from topicshift.core.drain.strays import Replayed
from topicshift.core.errors import Unreadable
from topicshift.testing.fakes import FakeCluster


class FakeReplayer:
    """:class:`topicshift.ports.Replayer` over a :class:`FakeCluster`, whose records have no keys.

    ``known`` says what a topic has of a key. ``on_write`` is called before and after the records are written.
    """

    def __init__(self, cluster: FakeCluster, on_write: Callable[[str], None] = lambda _: None) -> None:
        self.known: dict[bytes, KeySeen] = {}
        self.written: dict[tuple[int, int], Replayed] = {}
        """Every record that was written, by its place on the source."""
        self._cluster = cluster
        self._on_write = on_write

    def keys(self, topic: str, since: Mapping[bytes, int | None], *, timeout_s: float) -> dict[bytes, KeySeen]:
        """What ``known`` has of these keys."""
        return {key: self.known[key] for key in since if key in self.known}

    def replay(self, order: ReplayOrder, *, timeout_s: float) -> list[Replayed]:
        """Append what is not there yet, all or none."""
        ends = self._cluster.offsets(order.source)
        for wanted in order.records:
            held = ends[wanted.partition]
            if not (held.log_start or 0) <= wanted.offset < (held.end or 0):
                raise Unreadable(
                    f"{order.source}[{wanted.partition}] has no record at offset {wanted.offset} any more."
                )
        self._on_write("replay")
        for wanted in order.records:
            place = (wanted.partition, wanted.offset)
            if place not in self.written:
                at = self._cluster.offsets(order.target)[wanted.to_partition].end or 0
                self._cluster.produce(order.target, wanted.to_partition, 1)
                self.written[place] = Replayed(
                    partition=place[0], offset=place[1], to_partition=wanted.to_partition, to_offset=at
                )
        self._on_write("replayed")
        return [self.written[w.partition, w.offset] for w in order.records]

    def close(self) -> None:
        """Nothing is open."""
