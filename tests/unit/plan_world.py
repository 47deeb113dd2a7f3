"""A small, healthy world for tests of checks and plans: everything is there, nothing speaks against the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from topicshift.core.checks.snapshot import Snapshot
from topicshift.core.drain.discovery import GroupListing
from topicshift.core.kafka.cluster import (
    Acl,
    Broker,
    ClusterInfo,
    ConfigEntry,
    GroupCommits,
    GroupInfo,
    GroupMember,
    PartitionOffsets,
    TopicInfo,
)
from topicshift.core.kafka.mirror import Flow
from topicshift.core.route.judge import Follower
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.model import Spec

N = 6


def spec(**changes: Any) -> Spec:
    """The demo's migration: payments, 6 to 30 partitions, one producer, one group."""
    return spec_from_params(
        {
            "source": "payments",
            "target": "payments-v2",
            "partitions": 30,
            "producers": [{"name": "checkout", "principal": "User:checkout"}],
            "consumers": [{"name": "ledger", "group": "ledger", "stored_offsets": "none"}],
        }
        | changes
    )


def brokers(n: int) -> tuple[Broker, ...]:
    """So many brokers."""
    return tuple(Broker(i, f"b{i}", 9092) for i in range(1, n + 1))


def topic(
    name: str = "payments",
    partitions: int = N,
    replicas: int = 3,
    set_: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] | None = None,
    **changes: Any,
) -> TopicInfo:
    """A healthy topic."""
    nodes = tuple(range(1, replicas + 1))
    defaults = {"retention.ms": "604800000", "cleanup.policy": "delete", "min.insync.replicas": "2"}
    configs = {k: ConfigEntry(k, v, False) for k, v in (defaults | dict(inherited or {})).items()}
    configs |= {k: ConfigEntry(k, v, True) for k, v in (set_ or {}).items()}
    info = TopicInfo(
        name=name,
        topic_id=f"id-of-{name}",
        replicas=dict.fromkeys(range(partitions), nodes),
        isr=dict.fromkeys(range(partitions), nodes),
        leaders=dict.fromkeys(range(partitions), 1),
        configs=configs,
        authorized=frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}),
    )
    return replace(info, **changes)


def offsets(n: int = N, start: int = 0, committed: int = 100, end: int = 100) -> dict[int, PartitionOffsets]:
    """The same offsets on every partition."""
    return dict.fromkeys(range(n), PartitionOffsets(start, committed, end))


def group(name: str = "ledger", members: int = 2, kind: str = "classic", state: str = "STABLE", **kw: Any) -> GroupInfo:
    """A group with members that share the source."""
    made = tuple(GroupMember(f"m{i}", f"c{i}", "h", assignment={"payments": (i,)}) for i in range(members))
    return GroupInfo(name, kind, state, made, **kw)


def commits(name: str = "ledger", at: int | None = 90, n: int = N, **kw: Any) -> GroupCommits:
    """Commits on every partition."""
    return GroupCommits(name, dict.fromkeys(range(n), at), **kw)


def listing(*names: str, complete: bool = True, why: str = "") -> GroupListing:
    """The groups as listed."""
    return GroupListing(tuple(GroupInfo(n, "classic", "STABLE") for n in names), complete, why)


def follower(name: str = "checkout", role: str = "producer", **changes: Any) -> Follower:
    """An application on the route of payments, with one instance."""
    principal = changes.pop("principal", f"User:{name}")
    return replace(Follower("payments", role, name, None, principal, (f"{name}-1",)), **changes)


CLUSTER = ClusterInfo(
    "cluster-1", brokers(3), True, False, frozenset({"DESCRIBE", "ALTER", "CREATE", "DESCRIBE_CONFIGS"}), 20_160
)
ACLS = frozenset(
    {
        Acl("TOPIC", "payments", "LITERAL", "User:checkout", "*", "WRITE", "ALLOW"),
        Acl("TOPIC", "payments", "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
    }
)
IMPACT: dict[str, Any] = {
    "topic": "payments",
    "records": 1000,
    "keyed_records": 1000,
    "null_keys": 0,
    "top_keys": [{"key": "h:1", "share": 0.01}],
    "candidates": [{"partitions": 30, "max_partition_share": 0.04}],
    "findings": [],
}


def world(**changes: Any) -> Snapshot:
    """The healthy world with some parts changed."""
    base = Snapshot(
        taken_at="2026-01-01T00:00:00+00:00",
        cluster=CLUSTER,
        topics=frozenset({"payments", "orders"}),
        source=topic(),
        acls=ACLS,
        offsets=offsets(),
        groups=listing("ledger"),
        described={"ledger": group()},
        commits={"ledger": commits()},
        producers=(),
        beside={"ledger": {}},
        transactions=(),
        transactional=(),
        followers=(follower(),),
        impact=IMPACT,
    )
    return replace(base, **changes)


def flow(**changes: Any) -> Flow:
    """A connector of MirrorMaker 2 that copies the source by its name to another cluster."""
    made = Flow("connect_dr", "dr", "source", ("payments",), alias="here", target_alias="dr", bootstrap=("B1:9092",))
    return replace(made, worker_cluster="another", **changes)


WRITING_FLOW = replace(
    flow(), policy="IdentityReplicationPolicy", alias="us", bootstrap=("us:9092",), worker_cluster=CLUSTER.cluster_id
)
"""One that writes the source, in the cluster of its worker."""
