"""A drain reader over a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from topicshift.core.drain.decision import Tail, TailRange
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.drain.strays import NamedRecord
from topicshift.core.kafka.cluster import GroupCommits, GroupInfo, PartitionOffsets
from topicshift.ports import ClusterAdmin


class AdminDrainReader:
    """:class:`topicshift.ports.DrainReader` over a :class:`ClusterAdmin` in memory: each call answers at once.

    ``tails`` reads ranges; without it everything in doubt is unknown. Whether a listing is complete is told from the
    operations that DescribeCluster allows, or from there being no authorizer.
    """

    def __init__(
        self,
        admin: ClusterAdmin,
        tails: Callable[[str, Sequence[TailRange]], Mapping[TailRange, Tail]] | None = None,
    ) -> None:
        self._admin = admin
        self._tails = tails

    async def topic(self, name: str) -> tuple[str, int] | None:
        """Id and partition count of the topic."""
        info = self._admin.topic(name)
        return None if info is None else (info.topic_id, info.partitions)

    async def offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
        """Offsets of each partition asked."""
        return self._admin.offsets(topic, list(partitions))

    async def listing(self) -> GroupListing:
        """The groups, complete where DESCRIBE on the cluster is allowed or no authorizer filters."""
        groups, cluster = self._admin.groups(), self._admin.cluster()
        complete = cluster.authorizer is False or bool((cluster.authorized or frozenset()) & {"DESCRIBE", "ALL"})
        why = "" if complete else "this client has no DESCRIBE on the cluster, so groups may be hidden from it"
        return GroupListing(tuple(groups), complete, why)

    async def describe(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """Describe groups."""
        return self._admin.describe_groups(list(groups))

    async def commits(self, groups: Sequence[str], topic: str, partitions: Iterable[int]) -> dict[str, GroupCommits]:
        """Commits by explicit partition."""
        return self._admin.commits(list(groups), topic, list(partitions))

    async def tails(self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float) -> dict[TailRange, Tail]:
        """Read ranges with the function given, or answer that nobody can."""
        wanted = list(ranges)
        if self._tails is None:
            return {r: Tail(found=False, complete=False, error="there is no reader of tails here") for r in wanted}
        return dict(self._tails(topic, wanted))

    async def records(
        self, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
    ) -> list[NamedRecord]:
        """Every offset below the end is a record; none has a key here."""
        found = []
        for r in ranges:
            end = self._admin.offsets(topic, [r.partition])[r.partition].end_committed or 0
            found += [NamedRecord(r.partition, offset, None) for offset in range(r.start, min(r.end, end))]
        return found[:most]

    async def timestamps(self, topic: str, starts: Mapping[int, int]) -> dict[int, int | None]:
        """Not known here."""
        return dict.fromkeys(starts)

    async def sizes(self, topic: str) -> dict[int, int]:
        """Not known here."""
        return {}

    async def close(self) -> None:
        """Close the admin."""
        self._admin.close()
