"""What Kafka says about itself, as plain values: cluster, topics, ACLs, offsets, groups, transactions.

They live in ``core`` so that pure checks and the planner can read them; ``topicshift.ports`` re-exports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from topicshift.core.errors import Transient, Unreadable


@dataclass(frozen=True)
class Broker:
    """One broker: id, host:port, rack."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True)
class ClusterInfo:
    """The cluster: id and brokers. A None below means that it cannot be told.

    ``authorizer``: whether ACLs are enforced; ``auto_create`` and ``offsets_retention_minutes``: the brokers' configs
    ``auto.create.topics.enable`` and ``offsets.retention.minutes``; ``authorized``: the operations (``CREATE``,
    ``ALTER``, ...) this client may do on the cluster, as DescribeCluster answers with *include authorized operations*.
    """

    cluster_id: str
    brokers: tuple[Broker, ...]
    authorizer: bool | None = None
    auto_create: bool | None = None
    authorized: frozenset[str] | None = None
    offsets_retention_minutes: int | None = None


@dataclass(frozen=True)
class ConfigEntry:
    """One topic config. ``set_here`` is true for a dynamic topic config (source DYNAMIC_TOPIC_CONFIG)."""

    name: str
    value: str | None
    set_here: bool
    sensitive: bool = False


@dataclass(frozen=True)
class TopicInfo:
    """A topic as described: ``replicas[p]`` are the broker ids of partition p, leader first not implied.

    ``authorized``: the operations this client may do on it (DescribeTopics with *include authorized
    operations*), None where it cannot be told.
    """

    name: str
    topic_id: str
    replicas: Mapping[int, tuple[int, ...]]
    isr: Mapping[int, tuple[int, ...]]
    leaders: Mapping[int, int | None]
    configs: Mapping[str, ConfigEntry]
    internal: bool = False
    authorized: frozenset[str] | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.replicas)

    @property
    def replication_factor(self) -> int:
        """The smallest number of replicas of any partition."""
        return min((len(r) for r in self.replicas.values()), default=0)


@dataclass(frozen=True, order=True)
class Acl:
    """One ACL binding, fields in Kafka's upper-case names (``TOPIC``, ``LITERAL``, ``WRITE``, ``DENY``)."""

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True)
class PartitionOffsets:
    """Offsets of one partition. A field is None, with ``error`` set, where it could not be read.

    ``log_start``; ``end_committed`` = END_C (read committed, the LSO); ``end`` = END_U (high watermark); ``passing``:
    whether the error is one of a leader election, of metadata that still spreads, or of an answer that came too late.
    """

    log_start: int | None
    end_committed: int | None
    end: int | None
    error: str | None = None
    passing: bool = False


def total_end(partitions: Iterable[PartitionOffsets | None]) -> int | None:
    """The sum of END_U over these partitions; None where one of them could not be read, or is not there."""
    ends = [None if p is None else p.end for p in partitions]
    return None if None in ends else sum(e for e in ends if e is not None)


@dataclass(frozen=True)
class GroupMember:
    """One member; ``assignment`` maps topic to partitions, ``topics``: its subscription where known."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupInfo:
    """One group. ``kind``: classic, consumer, share, streams. ``state``: STABLE, EMPTY, DEAD, ...

    ``assignor``: by what its partitions are shared out (``range``, ``stream``), None where that is not told: without
    members, in a rebalance, or for a kind that has none. ``passing``: whether the error is one of a coordinator that
    moves, or of an answer that came too late.
    """

    group: str
    kind: str
    state: str
    members: tuple[GroupMember, ...] = ()
    error: str | None = None
    assignor: str | None = None
    passing: bool = False


@dataclass(frozen=True)
class GroupCommits:
    """Committed offsets of one group on one topic, asked by explicit partition.

    ``offsets[p]`` is None where nothing was ever committed; ``errors[p]`` where it could not be read;
    ``unstable`` are partitions with a commit pending inside an unfinished transaction; ``passing``: whether the error
    is one of a coordinator that moves, or of an answer that came too late.
    """

    group: str
    offsets: Mapping[int, int | None]
    errors: Mapping[int, str] = field(default_factory=dict)
    unstable: frozenset[int] = frozenset()
    error: str | None = None
    passing: bool = False


def error_of_unread(*unread: PartitionOffsets | GroupInfo | GroupCommits | None) -> type[Unreadable]:
    """The kind of error for what could not be read: ``Transient``, which is tried again, where all of it passes."""
    return Transient if all(one is not None and one.passing for one in unread) else Unreadable


@dataclass(frozen=True)
class ActiveProducer:
    """One entry of DescribeProducers. Times in ms since the epoch."""

    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    txn_start_offset: int | None


@dataclass(frozen=True)
class Transaction:
    """An unfinished transaction that touches the topic.

    ``beside``: the other topics that it has touched, sorted; ``__consumer_offsets`` where it commits a group's offsets.
    Of one that is being ended, those that have their marker already are left out.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    started_ms: int | None
    timeout_ms: int | None
    partitions: tuple[int, ...]
    beside: tuple[str, ...] = ()
