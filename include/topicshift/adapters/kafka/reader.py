"""What a drain certificate is made from, read from a real cluster without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topicshift.adapters.kafka.commits import observe_commits
from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.groups import observe_groups, observe_listing
from topicshift.adapters.kafka.offsets import observe_offsets, observe_topic
from topicshift.adapters.kafka.records import observe_records
from topicshift.adapters.kafka.tail import first_timestamps, observe_tails
from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.drain.strays import NamedRecord
from topicshift.core.errors import TopicshiftError
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, PartitionOffsets


class KafkaDrainReader:
    """Implements :class:`topicshift.ports.DrainReader` on one :class:`Connection`. Changes nothing in the cluster."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._kinds: dict[str, str] = {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], timeout_s: float = 10.0) -> KafkaDrainReader:
        """A reader with a connection of its own; ``config`` is a librdkafka config."""
        return cls(Connection(config, timeout_s))

    async def topic(self, name: str) -> tuple[str, int] | None:
        """Id and partition count, None when the broker says that there is no such topic."""
        found = await observe_topic(self.connection, name)
        return None if found is None else (found.topic_id, found.partitions)

    async def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        """See :func:`observe_offsets`."""
        return await observe_offsets(self.connection, topic, partitions)

    async def listing(self) -> GroupListing:
        """See :func:`observe_listing`."""
        found = await observe_listing(self.connection)
        self._kinds = {g.group: g.kind for g in found.groups}
        return found

    async def describe(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """See :func:`observe_groups`."""
        found = await observe_groups(self.connection, groups, self._kinds)
        self._kinds |= {g.group: g.kind for g in found.values() if g.error is None and g.state != "DEAD"}
        return found

    async def commits(self, groups: Sequence[str], topic: str, partitions: Iterable[int]) -> dict[str, GroupCommits]:
        """See :func:`observe_commits`."""
        return await observe_commits(self.connection, groups, topic, partitions, kinds=self._kinds)

    async def tails(self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float) -> dict[TailRange, Tail]:
        """See :func:`observe_tails`."""
        return await observe_tails(self.connection, topic, ranges, timeout_s=timeout_s)

    async def records(
        self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
    ) -> list[NamedRecord]:
        """See :func:`observe_records`."""
        return await observe_records(self.connection, topic, ranges, timeout_s=timeout_s, most=most)

    async def timestamps(self, topic: str, starts: Mapping[int, int]) -> dict[int, int | None]:
        """See :func:`first_timestamps`."""
        return await asyncio.to_thread(first_timestamps, self.connection, topic, starts)

    async def sizes(self, topic: str) -> dict[int, int]:
        """Bytes of each partition's log on its largest replica (DescribeLogDirs; needs DESCRIBE on the cluster)."""
        return await asyncio.to_thread(self._sizes, topic)

    def _sizes(self, topic: str) -> dict[int, int]:
        from kafka.errors import KafkaError

        found: dict[int, int] = {}
        try:
            answers = self.connection.kafka_python.describe_log_dirs([topic])
        except (KafkaError, OSError, ValueError, TopicshiftError):
            return found  # the forecast takes what is missing as a risk
        for answer in answers:
            for folder in answer["log_dirs"]:
                for entry in folder["topics"]:
                    for p in entry["partitions"] if entry["name"] == topic else ():
                        index = p["partition_index"]
                        found[index] = max(found.get(index, 0), p["partition_size"])
        return found

    async def close(self) -> None:
        """Let go of the connection."""
        await asyncio.to_thread(self.connection.close)
