"""A Kafka cluster in memory that keeps the port's promises; quick, and held to a real broker by one contract test.

:class:`FakeCluster` is what the steps see (:class:`topicshift.ports.ClusterAdmin`) and, in its other methods
(``produce``, ``begin``, ``join`` ...), what applications do to a cluster. ``fail`` makes a question unanswerable.
"""

from __future__ import annotations

import base64
import itertools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError
from topicshift.core.fence.acls import covers
from topicshift.core.kafka.cluster import (
    Acl,
    ActiveProducer,
    Broker,
    ClusterInfo,
    ConfigEntry,
    GroupCommits,
    GroupInfo,
    GroupMember,
    PartitionOffsets,
    TopicInfo,
    Transaction,
)
from topicshift.core.kafka.rules import topic_name_problem

_INHERITED = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
}
_ALL = frozenset({"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"})


@dataclass
class _Partition:
    log_start: int = 0
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """First offset of the open transaction, by producer id."""
    producers: dict[int, ActiveProducer] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return min(self.open.values()) if self.open else self.end


@dataclass
class _Topic:
    topic_id: str
    replication_factor: int
    configs: dict[str, str]
    partitions: list[_Partition]
    described: tuple[Any, TopicInfo] | None = None
    """What it was described from, and the description."""


@dataclass
class _Group:
    kind: str = "classic"
    assignor: str = "range"
    members: dict[str, GroupMember] = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    pending: set[tuple[str, int]] = field(default_factory=set)


class FakeTransaction:
    """One transaction of a transactional producer; made by :meth:`FakeCluster.begin`."""

    def __init__(self, cluster: FakeCluster, transactional_id: str, producer_id: int, timeout_ms: int) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.timeout_ms = timeout_ms
        self.started_ms: int | None = None
        self.state = "Ongoing"
        self.places: set[tuple[str, int]] = set()

    def produce(self, topic: str, partition: int, records: int = 1) -> None:
        """Write records inside the transaction."""
        self._cluster._write(topic, partition, records, self.producer_id, self)

    def commit(self) -> None:
        """Write a commit marker to every partition it touched: END_U grows by one on each."""
        self._end()

    def abort(self) -> None:
        """Write an abort marker to every partition it touched."""
        self._end()

    def _end(self) -> None:
        with self._cluster._lock:
            for topic, partition in sorted(self.places):
                self._cluster._marker(topic, partition, self.producer_id)
            self.places.clear()
            self._cluster._transactions.pop(self.producer_id, None)


class FakeCluster:
    """A cluster in memory. Thread-safe.

    ``now_ms`` is what producers stamp their records with. Without ``authorizer`` there are no ACLs. The client
    that asks through the port is a super user, as far as ``fail`` does not say otherwise.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        authorizer: bool = True,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._brokers = tuple(Broker(i, "127.0.0.1", 9000 + i) for i in range(1, brokers + 1))
        self._authorizer = authorizer
        ticks = itertools.count(1_700_000_000_000)
        self._now_ms = now_ms or (lambda: next(ticks))
        self._ids = itertools.count(1000)
        self._topics: dict[str, _Topic] = {}
        self._acls: set[Acl] = set()
        self._groups: dict[str, _Group] = {}
        self._transactions: dict[int, FakeTransaction] = {}
        self._transactional: dict[int, str] = {}
        self._sequences: dict[tuple[str, int, int], int] = {}
        self._failures: dict[str, BaseException] = {}
        self._unreadable: dict[tuple[str, int], PartitionOffsets] = {}
        self.calls: list[str] = []
        """The port's methods in the order in which they were called."""
        self.policy: Callable[[int | None, Mapping[str, str]], str | None] | None = None
        """Why the brokers' policy forbids these partitions (None for a change) and configs; None where it does not."""
        self.on_call: Callable[[str], None] | None = None
        """Called with the method's name before each call, outside the lock: what the world does meanwhile."""

    # ------------------------------------------------------------------------------------------------ faults

    def fail(self, method: str, error: BaseException | None) -> None:
        """Let a method of the port raise this error from now on; None lets it answer again."""
        if error is None:
            self._failures.pop(method, None)
        else:
            self._failures[method] = error

    def unreadable(self, topic: str, partition: int, why: str | None, *, passing: bool = False) -> None:
        """Let the offsets of one partition be unreadable, with this reason; None makes them readable again."""
        if why is None:
            self._unreadable.pop((topic, partition), None)
        else:
            self._unreadable[topic, partition] = PartitionOffsets(None, None, None, why, passing)

    def _enter(self, method: str) -> None:
        if self.on_call is not None:
            self.on_call(method)
        self.calls.append(method)
        if method in self._failures:
            raise self._failures[method]

    # ------------------------------------------------------------------------------------------------ applications

    def new_producer_id(self) -> int:
        """The id that Kafka would give to a new idempotent producer."""
        return next(self._ids)

    def produce(
        self,
        topic: str,
        partition: int,
        records: int = 1,
        *,
        principal: str | None = None,
        producer_id: int | None = None,
    ) -> None:
        """Append records. ``principal`` is checked against the ACLs; ``producer_id`` leaves a trace on the leader.

        Raises ``AccessDenied`` where the ACLs do not let the principal write.
        """
        if principal is not None and not self.may(principal, "WRITE", topic):
            raise AccessDenied(f"{principal} may not WRITE to topic {topic}")
        self._write(topic, partition, records, producer_id, None)

    def begin(self, transactional_id: str, *, timeout_ms: int = 60_000) -> FakeTransaction:
        """Begin a transaction of a new producer."""
        made = FakeTransaction(self, transactional_id, self.new_producer_id(), timeout_ms)
        self._transactional[made.producer_id] = transactional_id
        return made

    def may(self, principal: str, operation: str, topic: str) -> bool:
        """Whether the ACLs let a principal do this on the topic. A DENY beats every ALLOW; no ACL means no."""
        if not self._authorizer:
            return True
        with self._lock:
            mine = [a for a in self._acls if covers(a, "TOPIC", topic) and a.principal in (principal, "User:*")]
        fits = [a for a in mine if a.operation in (operation, "ALL")]
        return not any(a.permission == "DENY" for a in fits) and any(a.permission == "ALLOW" for a in fits)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start, as DeleteRecords or retention does."""
        with self._lock:
            self._partition(topic, partition).log_start = before

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Lose the records from ``end`` on, as an unclean leader election does."""
        with self._lock:
            self._partition(topic, partition).end = end

    def commit(self, group: str, topic: str, offsets: Mapping[int, int], *, kind: str = "classic") -> None:
        """Commit offsets as a consumer does."""
        with self._lock:
            held = self._groups.setdefault(group, _Group(kind))
            held.commits |= {(topic, p): o for p, o in offsets.items()}

    def pending_commit(self, group: str, topic: str, partition: int, pending: bool = True) -> None:
        """A commit inside an unfinished transaction."""
        with self._lock:
            held = self._groups.setdefault(group, _Group())
            (held.pending.add if pending else held.pending.discard)((topic, partition))

    def join(self, group: str, member: GroupMember, *, kind: str = "classic", assignor: str = "range") -> None:
        """A member joins (or changes its assignment)."""
        with self._lock:
            held = self._groups.setdefault(group, _Group(kind))
            held.assignor = assignor
            held.members[member.member_id] = member

    def leave(self, group: str, member_id: str) -> None:
        """A member leaves."""
        with self._lock:
            self._groups[group].members.pop(member_id, None)

    def _partition(self, topic: str, partition: int) -> _Partition:
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            raise NotFound(f"{topic}[{partition}] does not exist. Check its name.")
        return found.partitions[partition]

    def _write(
        self,
        topic: str,
        partition: int,
        records: int,
        producer_id: int | None,
        transaction: FakeTransaction | None,
    ) -> None:
        with self._lock:
            p = self._partition(topic, partition)
            now = self._now_ms()
            if transaction is not None:
                if transaction.started_ms is None:
                    transaction.started_ms = now
                transaction.places.add((topic, partition))
                self._transactions[transaction.producer_id] = transaction
                p.open.setdefault(transaction.producer_id, p.end)
            p.end += records
            if producer_id is not None:
                place = (topic, partition, producer_id)
                self._sequences[place] = self._sequences.get(place, -1) + records
                start = p.open.get(producer_id)
                p.producers[producer_id] = ActiveProducer(partition, producer_id, 0, self._sequences[place], now, start)

    def _marker(self, topic: str, partition: int, producer_id: int) -> None:
        p = self._partition(topic, partition)
        if p.open.pop(producer_id, None) is None:
            return
        p.end += 1
        was = p.producers[producer_id]
        p.producers[producer_id] = replace(was, txn_start_offset=None, last_timestamp_ms=self._now_ms())

    def forget_transaction(self, transaction: FakeTransaction) -> None:
        """The coordinator forgets the transaction while the partitions still hold it open: it hangs."""
        with self._lock:
            self._transactions.pop(transaction.producer_id, None)

    # ------------------------------------------------------------------------------------------------ the port

    def cluster(self) -> ClusterInfo:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("cluster")
        operations = (_ALL - {"READ", "WRITE", "DELETE"}) | {"CLUSTER_ACTION", "IDEMPOTENT_WRITE"}
        return ClusterInfo("fake-cluster", self._brokers, self._authorizer, False, frozenset(operations), 10_080)

    def topic_names(self) -> frozenset[str]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("topic_names")
        with self._lock:
            return frozenset(self._topics)

    def topic(self, name: str) -> TopicInfo | None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("topic")
        with self._lock:
            found = self._topics.get(name)
            if found is None:
                problem = topic_name_problem(name)
                if problem:
                    raise SpecError(f"{name!r} cannot be the name of a topic: {problem}.")
                return None
            made_from = (len(found.partitions), dict(found.configs))
            if found.described is not None and found.described[0] == made_from:
                return found.described[1]
            ids = [b.id for b in self._brokers]
            replicas = {
                p: tuple(ids[(p + i) % len(ids)] for i in range(found.replication_factor))
                for p in range(len(found.partitions))
            }
            configs = {k: ConfigEntry(k, v, False) for k, v in _INHERITED.items()}
            configs |= {k: ConfigEntry(k, v, True) for k, v in found.configs.items()}
            info = TopicInfo(
                name=name,
                topic_id=found.topic_id,
                replicas=replicas,
                isr=replicas,
                leaders={p: r[0] for p, r in replicas.items()},
                configs=configs,
                internal=False,
                authorized=_ALL,
            )
            found.described = made_from, info
            return info

    def partition_counts(self, names: Collection[str]) -> dict[str, int | None]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("partition_counts")
        with self._lock:
            return {n: len(self._topics[n].partitions) if n in self._topics else None for n in names}

    def create_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> str:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("create_topic")
        with self._lock:
            self._judge_create(name, partitions, replication_factor, configs)
            topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            self._topics[name] = _Topic(
                topic_id, replication_factor, dict(configs), [_Partition() for _ in range(partitions)]
            )
            return topic_id

    def validate_create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("validate_create")
        with self._lock:
            self._judge_create(name, partitions, replication_factor, configs)

    def validate_configs(self, name: str, set_: Mapping[str, str]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("validate_configs")
        with self._lock:
            self._judge_configs(name, set_)

    def _judge_create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        problem = topic_name_problem(name)
        if problem:
            raise Refused(f"topic {name!r} is refused: {problem}")
        if partitions < 1 or not 1 <= replication_factor <= len(self._brokers):
            raise Refused(f"topic {name} is refused: {partitions} partitions, replication factor {replication_factor}")
        if name in self._topics:
            raise Refused(f"topic {name} exists already (TOPIC_ALREADY_EXISTS)")
        self._judge_values(configs)
        self._judge_policy(partitions, configs)

    def _judge_configs(self, name: str, set_: Mapping[str, str]) -> None:
        if name not in self._topics:
            raise NotFound(f"topic {name} does not exist")
        self._judge_values(set_)
        self._judge_policy(None, self._topics[name].configs | dict(set_))

    def _judge_values(self, configs: Mapping[str, str]) -> None:
        for key, value in configs.items():
            if key.endswith((".ms", ".bytes")) and not value.removeprefix("-").isdigit():
                raise Refused(f"Invalid value {value} for configuration {key} (INVALID_CONFIG)")

    def _judge_policy(self, partitions: int | None, configs: Mapping[str, str]) -> None:
        why = self.policy(partitions, configs) if self.policy else None
        if why:
            raise Refused(f"{why} (POLICY_VIOLATION)")

    def delete_topic(self, name: str, topic_id: str | None = None) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("delete_topic")
        with self._lock:
            held = self._topics.get(name)
            if held is None or topic_id not in (None, held.topic_id):
                raise NotFound(f"topic {name}{f' with id {topic_id}' if topic_id else ''} does not exist")
            del self._topics[name]

    def add_partitions(self, name: str, count: int) -> None:
        """Raise the partition count, as somebody may do at the wrong moment. Not a part of the port."""
        with self._lock:
            topic = self._topics[name]
            topic.partitions += [_Partition() for _ in range(count - len(topic.partitions))]

    def alter_topic_configs(
        self, name: str, *, set_: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("alter_topic_configs")
        with self._lock:
            self._judge_configs(name, set_ or {})
            configs = self._topics[name].configs
            configs |= dict(set_ or {})
            for key in unset:
                configs.pop(key, None)

    def acls(self) -> frozenset[Acl]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("acls")
        with self._lock:
            return frozenset(self._acls)

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("create_acls")
        wanted = set(acls)
        if wanted and not self._authorizer:
            raise Refused("the brokers run without an authorizer, so there are no ACLs")
        with self._lock:
            self._acls |= wanted

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("delete_acls")
        wanted = set(acls)
        if wanted and not self._authorizer:
            raise Refused("the brokers run without an authorizer, so there are no ACLs")
        with self._lock:
            self._acls -= wanted

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, *, ends_alone: bool = False
    ) -> dict[int, PartitionOffsets]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("offsets")
        with self._lock:
            found = self._topics.get(topic)
            if partitions is None:
                if found is None:
                    raise NotFound(f"topic {topic} does not exist")
                partitions = range(len(found.partitions))
            out: dict[int, PartitionOffsets] = {}
            for p in partitions:
                if found is None or not 0 <= p < len(found.partitions):
                    out[p] = PartitionOffsets(None, None, None, f"{topic}[{p}] does not exist")
                elif (topic, p) in self._unreadable:
                    out[p] = self._unreadable[topic, p]
                else:
                    held = found.partitions[p]
                    out[p] = PartitionOffsets(
                        None if ends_alone else held.log_start, None if ends_alone else held.stable, held.end
                    )
            return out

    def groups(self) -> list[GroupInfo]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("groups")
        with self._lock:
            return [replace(self._group(g), members=()) for g in sorted(self._groups)]

    def _group(self, name: str) -> GroupInfo:
        held = self._groups.get(name)
        if held is None:
            return GroupInfo(name, "classic", "DEAD")
        members = tuple(held.members[m] for m in sorted(held.members))
        told = held.assignor if members and held.kind != "streams" else None
        return GroupInfo(name, held.kind, "STABLE" if members else "EMPTY", members, assignor=told)

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("describe_groups")
        with self._lock:
            return {g: self._group(g) for g in groups}

    def commits(self, groups: Sequence[str], topic: str, partitions: Sequence[int]) -> dict[str, GroupCommits]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("commits")
        with self._lock:
            out: dict[str, GroupCommits] = {}
            for g in groups:
                held = self._groups.get(g, _Group())
                offsets = {p: held.commits.get((topic, p)) for p in partitions}
                pending = frozenset(p for p in partitions if (topic, p) in held.pending)
                out[g] = GroupCommits(g, offsets, {}, pending)
            return out

    def committed_topics(self, groups: Sequence[str]) -> dict[str, frozenset[str]]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("committed_topics")
        with self._lock:
            held = {g: self._groups.get(g, _Group()) for g in groups}
            return {g: frozenset(t for t, _ in h.commits) for g, h in held.items()}

    def alter_commits(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("alter_commits")
        with self._lock:
            held = self._groups.setdefault(group, _Group())
            if held.members:
                raise Refused(f"group {group} has members, so its offsets are not set from outside")
            found = self._topics.get(topic)
            wrong = [p for p in offsets if found is None or not 0 <= p < len(found.partitions)]
            if wrong:
                raise Refused(f"the offsets of group {group} on {topic} were not all set: {wrong} do not exist")
            held.commits |= {(topic, p): o for p, o in offsets.items()}

    def producers(self, topic: str, partitions: Sequence[int]) -> list[ActiveProducer]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("producers")
        with self._lock:
            return [
                self._partition(topic, p).producers[i]
                for p in sorted(partitions)
                for i in sorted(self._partition(topic, p).producers)
            ]

    def transactions(self, topic: str) -> list[Transaction]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("transactions")
        with self._lock:
            out = []
            for t in sorted(self._transactions.values(), key=lambda t: t.transactional_id):
                places = tuple(sorted(p for name, p in t.places if name == topic))
                if places:
                    beside = tuple(sorted({name for name, _ in t.places} - {topic}))
                    known = (t.transactional_id, t.producer_id, 0, t.state, t.started_ms, t.timeout_ms)
                    out.append(Transaction(*known, places, beside))
            return out

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("transactional_ids")
        with self._lock:
            return {i: self._transactional[i] for i in producer_ids if i in self._transactional}

    def abort_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._enter("abort_transaction")
        with self._lock:
            if producer_id not in self._partition(topic, partition).open or producer_epoch != 0:
                raise Refused(f"producer {producer_id} has no open transaction on {topic}[{partition}]")
            self._marker(topic, partition, producer_id)

    def close(self) -> None:
        """Nothing to let go of."""
