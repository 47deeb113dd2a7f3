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
from topicshift.core.kafka.mirror import Flow
from topicshift.core.policy.model import Installation
from topicshift.core.route.judge import Follower

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
    "beside": "what else the consumer groups read",
    "transactional": "which producers of the source write in transactions",
    "producers": "the active producers of the source",
    "transactions": "the unfinished transactions on the source",
    "migrations": "the other migrations",
    "followers": "the applications on the route of this topic",
    "route_topics": "the topics of the route",
    "unable": "whether the controllers can move the participants",
    "flows": "what MirrorMaker 2 copies",
    "create": "whether the brokers would make the target",
    "policy": "the installation policy",
    "lengthen": "whether the brokers would lengthen the retention of the source",
}
"""Each part by name, in words."""


@dataclass(frozen=True)
class OtherMigration:
    """A migration that has claimed its source and target."""

    source: str
    target: str
    owner: str


MEASURED_NEXT = "the next task measures them"
"""Why a plan has no impact yet: the migration, or assessment, that makes it goes on to measure the keys."""


@dataclass(frozen=True)
class MovedBefore:
    """A migration of the same source that has ended well: where it went, and the topic and ends of its fence.

    ``denied``: the principals whom its fence denies WRITE; ``going_back``: its rollback has begun.
    """

    target: str
    owner: str
    topic_id: str
    offsets: Mapping[int, int]
    denied: frozenset[str] = frozenset()
    going_back: bool = False


@dataclass(frozen=True)
class Refusal:
    """What the brokers refuse of a change: the config's name, or None for the topic's name, count or replicas."""

    config: str | None
    value: str | None
    reason: str


@dataclass(frozen=True)
class DryRun:
    """A change that the brokers were asked to judge without making it, and what they refuse of it."""

    configs: Mapping[str, str]
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """One look at the world.

    ``source`` and ``target`` are None where the broker says that there is no such topic. ``described`` and ``commits``
    hold every listed group and every declared one. ``impact`` is impact.json, None where the keys were not measured;
    ``no_impact`` then says why they need not be (somebody said so, or a later step measures them).
    ``own_target_id`` is the topic id of a target that this very migration made before (a plan taken again).
    ``journalled`` is false where there was no journal to read ``migrations`` from. ``followers`` are all that the
    route knows, declared or not; ``gone_ms``: how long a silent instance of a producer on it can hold the freeze.
    ``unable``: what controllers say that keeps them from moving participants, one line each; None: nobody was asked.
    ``flows``: the connectors of MirrorMaker 2 on the Connect workers that spec and policy name; ``copied``: how far
    those that are participants have copied the source, by their group and partition.
    ``route_topics`` are those of the route's two topics that exist. ``create`` and ``lengthen`` are None where there
    was nothing to ask. ``policy`` is None where the installation has none. ``beside``: the other topics that each
    declared group reads, with their partitions (None: that cannot be told). ``transactional``: the transactional ids of
    producers that have written to the source.
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
    beside: Mapping[str, Mapping[str, int | None]] | None = None
    producers: tuple[ActiveProducer, ...] | None = None
    transactional: tuple[str, ...] | None = None
    transactions: tuple[Transaction, ...] | None = None
    impact: Mapping[str, Any] | None = None
    no_impact: str | None = None
    followers: tuple[Follower, ...] | None = None
    route_topics: tuple[TopicInfo, ...] | None = None
    unable: tuple[str, ...] | None = None
    flows: tuple[Flow, ...] = ()
    copied: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    gone_ms: Mapping[str, int] = field(default_factory=dict)
    create: DryRun | None = None
    lengthen: DryRun | None = None
    migrations: tuple[OtherMigration, ...] = ()
    journalled: bool = True
    moved: tuple[MovedBefore, ...] = ()
    own_target_id: str | None = None
    policy: Installation | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.unread) - set(PARTS)
        if unknown:
            raise ValueError(f"no such part of a snapshot: {', '.join(sorted(unknown))}")
