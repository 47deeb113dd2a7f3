"""Which records a member was given, so that none is processed twice while it keeps its partition.

A cooperative rebalance stops the partitions that stay, and starts them again where librdkafka takes the member to be:
taken while records are handed out, that can be some records back, and they come a second time. As long as the
partition was neither revoked nor lost, nobody else has read them in between.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confluent_kafka import Message

KEPT: Final = 100
"""Records of a partition that are remembered although they are committed: the position can be behind those, too."""

MOST: Final = 100_000
"""Records of a partition that are remembered at most, where commits do not get through."""

Key = tuple[str, int]
"""Topic and partition."""


class Given:
    """Remembers the records of each partition since its last commit, and a few before.

    A record is known by its offset, its time and the epoch of the leader that took it in: a topic that was made again,
    or that lost its end, has other records at the same offsets.
    """

    def __init__(self) -> None:
        self._given: dict[Key, dict[int, tuple[tuple[int, int], int | None]]] = {}

    def again(self, message: Message) -> bool:
        """Whether this record was given before; it is remembered if not."""
        given = self._given.setdefault((message.topic() or "", message.partition() or 0), {})
        offset, mark = message.offset() or 0, (message.timestamp(), message.leader_epoch())
        if given.get(offset) == mark:
            return True
        given[offset] = mark
        if len(given) > MOST:
            del given[next(iter(given))]
        return False

    def committed(self, key: Key, offset: int) -> None:
        """The records before this offset are committed: all but the last of them are forgotten."""
        given = self._given.get(key)
        while given is not None and len(given) > KEPT:
            first = next(iter(given))
            if first >= offset:
                return
            del given[first]

    def forget(self, keys: Collection[Key]) -> None:
        """These partitions were taken away."""
        for key in keys:
            self._given.pop(key, None)
