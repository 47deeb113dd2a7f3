"""The facade over one cluster that implements :class:`topicshift.ports.ClusterAdmin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from topicshift.adapters.kafka.acls import AclsAdmin
from topicshift.adapters.kafka.connection import DEFAULT_TIMEOUT_S, Connection, typed_error
from topicshift.adapters.kafka.groups import GroupsReader
from topicshift.adapters.kafka.offsets import OffsetsReader
from topicshift.adapters.kafka.topics import TopicsAdmin
from topicshift.adapters.kafka.transactions import TransactionsAdmin
from topicshift.core.errors import AccessDenied
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


class KafkaAdmin:
    """One cluster, every request bounded by ``timeout_s`` seconds. Thread-safe; connects at the first question.

    ``config`` is a librdkafka config as :func:`~topicshift.adapters.kafka.connection.client_config` makes it.
    Each method is documented by the port and by the part that it goes to.
    """

    def __init__(self, config: Mapping[str, Any], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.connection = Connection(config, timeout_s)
        self._topics = TopicsAdmin(self.connection)
        self._acls = AclsAdmin(self.connection)
        self._transactions = TransactionsAdmin(self.connection)
        self._offsets = OffsetsReader(self.connection)
        self._groups = GroupsReader(self.connection)

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cluster(self) -> ClusterInfo:
        """See :meth:`TopicsAdmin.cluster`."""
        return self._topics.cluster()

    def topic_names(self) -> frozenset[str]:
        """See :meth:`TopicsAdmin.topic_names`."""
        return self._topics.topic_names()

    def topic(self, name: str) -> TopicInfo | None:
        """See :meth:`TopicsAdmin.topic`."""
        return self._topics.topic(name)

    def create_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> str:
        """See :meth:`TopicsAdmin.create_topic`."""
        return self._topics.create_topic(name, partitions, replication_factor, configs)

    def validate_create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """See :meth:`TopicsAdmin.validate_create`."""
        self._topics.validate_create(name, partitions, replication_factor, configs)

    def validate_configs(self, name: str, set_: Mapping[str, str]) -> None:
        """See :meth:`TopicsAdmin.validate_configs`."""
        self._topics.validate_configs(name, set_)

    def delete_topic(self, name: str) -> None:
        """See :meth:`TopicsAdmin.delete_topic`."""
        self._topics.delete_topic(name)

    def alter_topic_configs(
        self, name: str, *, set_: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """See :meth:`TopicsAdmin.alter_topic_configs`."""
        self._topics.alter_topic_configs(name, set_=set_, unset=unset)

    def acls(self) -> frozenset[Acl]:
        """See :meth:`AclsAdmin.acls`."""
        return self._acls.acls()

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """See :meth:`AclsAdmin.create_acls`."""
        self._acls.create_acls(acls)

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """See :meth:`AclsAdmin.delete_acls`."""
        self._acls.delete_acls(acls)

    def offsets(self, topic: str, partitions: Iterable[int] | None = None) -> dict[int, PartitionOffsets]:
        """See :meth:`OffsetsReader.offsets`."""
        return self._offsets.offsets(topic, partitions)

    def groups(self) -> list[GroupInfo]:
        """See :meth:`GroupsReader.groups`."""
        return self._groups.groups()

    def describe_groups(self, groups: Sequence[str]) -> dict[str, GroupInfo]:
        """See :meth:`GroupsReader.describe_groups`."""
        return self._groups.describe_groups(groups)

    def commits(self, groups: Sequence[str], topic: str, partitions: Sequence[int]) -> dict[str, GroupCommits]:
        """See :meth:`GroupsReader.commits`."""
        return self._groups.commits(groups, topic, partitions)

    def alter_commits(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """See :meth:`GroupsReader.alter_commits`."""
        try:
            self._groups.alter_commits(group, topic, offsets)
        except AccessDenied as exc:
            if "TOPIC_AUTHORIZATION_FAILED" not in str(exc):
                raise
            # Setting offsets takes READ on the group and on the topic; here it is the topic's that is missing.
            c = self.connection
            raise typed_error(
                "TOPIC_AUTHORIZATION_FAILED",
                "",
                operation="READ",
                resource=f"topic {topic}",
                bootstrap=c.bootstrap,
                principal=c.principal,
            ) from None

    def producers(self, topic: str, partitions: Sequence[int]) -> list[ActiveProducer]:
        """See :meth:`TransactionsAdmin.producers`."""
        return self._transactions.producers(topic, partitions)

    def transactions(self, topic: str) -> list[Transaction]:
        """See :meth:`TransactionsAdmin.transactions`."""
        return self._transactions.transactions(topic)

    def abort_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
        """See :meth:`TransactionsAdmin.abort_transaction`."""
        self._transactions.abort_transaction(topic, partition, producer_id, producer_epoch)

    def close(self) -> None:
        """Let go of every connection; idempotent."""
        self.connection.close()
