"""What a plan is made from: one dated look at the world, each part read by itself. Pure values.

A part that could not be read is None (or empty) here and named, with the reason, in :attr:`Snapshot.unread`: a check
never mistakes "could not be read" for "is not there".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topicshift.core.drain.discovery import GroupListing
from topicshift.core.kafka.cluster import (
    Acl,
    ActiveProducer,
    ClusterInfo,
    GroupCommits,
    GroupInfo,
    PartitionOffsets,
    TopicInfo,
    Transaction,
)

PARTS: dict[str, str] = {
    "cluster": "the cluster and its brokers",
    "topics": "the names of the topics",
    "source": "the source topic",
    "target": "the target topic",
    "acls": "the ACLs",
    "offsets": "the offsets of the source",
    "target_offsets": "the offsets of the target",
    "groups": "the list of consumer groups",
    "described": "the members of the consumer groups",
    "commits": "the committed offsets of the consumer groups",
    "producers": "the active producers of the source",
    "transactions": "the unfinished transactions on the source",
    "migrations": "the other migrations",
}
"""Each part by name, in words."""


@dataclass(frozen=True)
class OtherMigration:
    """A migration that has claimed its source and target."""

    source: str
    target: str
    owner: str


@dataclass(frozen=True)
class MovedBefore:
    """A migration of the same source that has ended well: where it went, and the topic and ends of its fence."""

    target: str
    owner: str
    topic_id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Snapshot:
    """One look at the world.

    ``source`` and ``target`` are None where the broker says that there is no such topic. ``described`` and ``commits``
    hold every listed group and every declared one. ``impact`` is impact.json, None where the keys were not measured;
    ``no_impact`` then says why they need not be (somebody said so, or a later step measures them).
    ``own_target_id`` is the topic id of a target that this very migration made before (a plan taken again).
    ``journalled`` is false where there was no journal to read ``migrations`` from.
    """

    taken_at: str
    cluster: ClusterInfo | None = None
    topics: frozenset[str] | None = None
    source: TopicInfo | None = None
    target: TopicInfo | None = None
    acls: frozenset[Acl] | None = None
    offsets: Mapping[int, PartitionOffsets] | None = None
    target_offsets: Mapping[int, PartitionOffsets] | None = None
    groups: GroupListing | None = None
    described: Mapping[str, GroupInfo] | None = None
    commits: Mapping[str, GroupCommits] | None = None
    producers: tuple[ActiveProducer, ...] | None = None
    transactions: tuple[Transaction, ...] | None = None
    impact: Mapping[str, Any] | None = None
    no_impact: str | None = None
    migrations: tuple[OtherMigration, ...] = ()
    journalled: bool = True
    moved: tuple[MovedBefore, ...] = ()
    own_target_id: str | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.unread) - set(PARTS)
        if unknown:
            raise ValueError(f"no such part of a snapshot: {', '.join(sorted(unknown))}")
