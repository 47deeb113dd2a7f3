"""Topics and the cluster itself: describe, create, delete, configure."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import confluent_kafka.admin

from topicshift.adapters.kafka.acls import has_authorizer
from topicshift.adapters.kafka.connection import OfConnection
from topicshift.adapters.kafka.propagation import (
    id_bytes,
    id_text,
    shows_configs,
    shows_no_topic,
    shows_topic,
    until_everywhere,
)
from topicshift.core.errors import AccessDenied, NotFound, Refused, SpecError, TopicshiftError, Transient
from topicshift.core.kafka.cluster import Broker, ClusterInfo, ConfigEntry, TopicInfo

api: Any = confluent_kafka.admin


def topic_id_text(uuid: Any) -> str:
    """librdkafka's topic id as :func:`~topicshift.adapters.kafka.propagation.id_text` writes it."""
    mask = (1 << 64) - 1
    high, low = uuid.get_most_significant_bits() & mask, uuid.get_least_significant_bits() & mask
    return id_text(high.to_bytes(8, "big") + low.to_bytes(8, "big"))


def _names(operations: Iterable[Any] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(op.name for op in operations)


class TopicsAdmin(OfConnection):
    """Topics of one cluster over a :class:`Connection`. Raises the errors of :mod:`topicshift.core.errors`."""

    def cluster(self) -> ClusterInfo:
        """Id, brokers, whether ACLs are enforced and topics made by themselves, and what this client may do."""
        c = self.connection
        described = c.native.describe_cluster(include_authorized_operations=True, request_timeout=c.timeout_s)
        cluster = c.result(described, operation="DESCRIBE", resource="the cluster")
        brokers = tuple(sorted((Broker(n.id, n.host, n.port, n.rack) for n in cluster.nodes), key=lambda b: b.id))
        configs = self._broker_configs(brokers[0].id) if brokers else {}
        auto_create, kept = configs.get("auto.create.topics.enable"), configs.get("offsets.retention.minutes")
        return ClusterInfo(
            cluster_id=str(cluster.cluster_id),
            brokers=brokers,
            authorizer=self._has_authorizer(),
            auto_create=None if auto_create is None else auto_create == "true",
            authorized=_names(cluster.authorized_operations or ()),  # asked for, so None says that there are none
            offsets_retention_minutes=None if kept is None else int(kept),
        )

    def _broker_configs(self, broker: int) -> dict[str, str | None]:
        """The configs of one broker; none without DESCRIBE_CONFIGS on the cluster."""
        c = self.connection
        asked = c.native.describe_configs(
            [api.ConfigResource(api.ResourceType.BROKER, str(broker))], request_timeout=c.timeout_s
        )
        try:
            entries = c.result(next(iter(asked.values())), operation="DESCRIBE_CONFIGS", resource="the cluster")
        except AccessDenied:
            return {}
        return {e.name: e.value for e in entries.values()}

    def _has_authorizer(self) -> bool:
        try:
            return has_authorizer(self.connection)
        except AccessDenied:
            return True  # somebody decides who may ask

    def topic_names(self) -> frozenset[str]:
        """The topics this client may DESCRIBE, internal ones included. Never creates one."""
        c = self.connection
        try:
            return frozenset(c.native.list_topics(timeout=c.timeout_s).topics)
        except confluent_kafka.KafkaException as exc:
            raise c.error(exc, operation="DESCRIBE", resource="the topics") from None

    def topic(self, name: str) -> TopicInfo | None:
        """The topic, or None when the broker says that it does not exist.

        Raises ``SpecError`` for a name that no topic can have, ``AccessDenied`` without DESCRIBE and
        DESCRIBE_CONFIGS on it.
        """

        c = self.connection
        if not name:
            raise _bad_name(name)
        described = c.native.describe_topics(
            confluent_kafka.TopicCollection([name]), include_authorized_operations=True, request_timeout=c.timeout_s
        )
        resource = api.ConfigResource(api.ResourceType.TOPIC, name)
        configured = c.native.describe_configs([resource], request_timeout=c.timeout_s)
        try:
            topic = c.result(described[name], operation="DESCRIBE", resource=f"topic {name}")
        except NotFound:
            return None
        except Refused:
            raise _bad_name(name) from None
        try:
            entries = c.result(next(iter(configured.values())), operation="DESCRIBE_CONFIGS", resource=f"topic {name}")
        except NotFound:
            return None  # deleted between the two answers
        configs = {
            e.name: ConfigEntry(
                e.name, e.value, e.source == api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value, e.is_sensitive
            )
            for e in entries.values()
        }
        return TopicInfo(
            name=name,
            topic_id=topic_id_text(topic.topic_id),
            replicas={p.id: tuple(n.id for n in p.replicas) for p in topic.partitions},
            isr={p.id: tuple(n.id for n in p.isr) for p in topic.partitions},
            leaders={p.id: _leader(p.leader) for p in topic.partitions},
            configs=configs,
            internal=bool(topic.is_internal),
            authorized=_names(topic.authorized_operations),
        )

    def partition_counts(self, names: Collection[str]) -> dict[str, int | None]:
        """How many partitions each topic has; None where there is no such topic, or no DESCRIBE on it."""
        if not names:
            return {}
        c = self.connection
        asked = c.native.describe_topics(confluent_kafka.TopicCollection(sorted(names)), request_timeout=c.timeout_s)
        out: dict[str, int | None] = {}
        for name, future in asked.items():
            try:
                out[name] = len(c.result(future, operation="DESCRIBE", resource=f"topic {name}").partitions)
            except (NotFound, AccessDenied):
                out[name] = None
        return out

    def create_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> str:
        """Create the topic and return its id once every live broker shows it. Raises ``Refused`` when it exists."""

        c, resource = self.connection, f"topic {name}"
        self._create(name, partitions, replication_factor, configs, validate_only=False)
        what = f"The creation of topic {name}"
        until_everywhere(c, shows_topic(name, partitions), what=what, operation="DESCRIBE", resource=resource)
        seen = self.topic(name)
        if seen is None:
            raise Transient(f"topic {name} was created and seen, and is gone again. Find out who deleted it.")
        return seen.topic_id

    def validate_create(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """Ask the brokers whether they would create it. Nothing is made. Raises ``Refused`` with their reason."""
        self._create(name, partitions, replication_factor, configs, validate_only=True)

    def _create(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str], *, validate_only: bool
    ) -> None:
        c = self.connection
        new = api.NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs))
        made = c.native.create_topics([new], request_timeout=c.timeout_s, validate_only=validate_only)
        c.result(made[name], operation="CREATE", resource=f"topic {name}")

    def delete_topic(self, name: str, topic_id: str | None = None) -> None:
        """Delete the topic and wait until no live broker shows it. Raises ``NotFound`` when there is none.

        With its id that very topic alone is deleted, by the broker's own comparison; librdkafka deletes by name alone.
        """
        c = self.connection
        resource = f"topic {name}"
        if not topic_id or not any(id_bytes(topic_id)):  # a broker before Kafka 2.8 has no ids
            before = self.topic(name)
            topic_id = before.topic_id if before else ""
            gone = c.native.delete_topics([name], request_timeout=c.timeout_s)
            c.result(gone[name], operation="DELETE", resource=resource)
        else:
            resource = f"topic {name} with id {topic_id}"
            wanted, ms = uuid.UUID(bytes=id_bytes(topic_id)), int(c.timeout_s * 1000)
            c.bounded(
                lambda: c.kafka_python.delete_topics([wanted], timeout_ms=ms), operation="DELETE", resource=resource
            )
        shows = shows_no_topic(name, topic_id)
        until_everywhere(c, shows, what=f"The deletion of topic {name}", operation="DESCRIBE", resource=resource)

    def alter_topic_configs(
        self, name: str, *, set_: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """Set and unset single configs of the topic and wait until every live broker shows that; others stay."""
        set_, unset = dict(set_ or {}), set(unset)
        if not set_ and not unset:
            return
        self._alter(name, set_, unset, validate_only=False)
        until_everywhere(
            self.connection,
            shows_configs(name, set_, unset),
            what=f"The change of {', '.join(sorted({*set_, *unset}))} of topic {name}",
            operation="DESCRIBE_CONFIGS",
            resource=f"topic {name}",
        )

    def validate_configs(self, name: str, set_: Mapping[str, str]) -> None:
        """Ask the brokers whether they would set these configs; none is set. Raises ``Refused`` with their reason."""
        if set_:
            self._alter(name, set_, (), validate_only=True)

    def _alter(self, name: str, set_: Mapping[str, str], unset: Iterable[str], *, validate_only: bool) -> None:
        c = self.connection
        changes = [api.ConfigEntry(k, v, incremental_operation=api.AlterConfigOpType.SET) for k, v in set_.items()]
        changes += [api.ConfigEntry(k, None, incremental_operation=api.AlterConfigOpType.DELETE) for k in unset]
        resource = api.ConfigResource(api.ResourceType.TOPIC, name, incremental_configs=changes)
        done = c.native.incremental_alter_configs([resource], request_timeout=c.timeout_s, validate_only=validate_only)
        c.result(next(iter(done.values())), operation="ALTER_CONFIGS", resource=f"topic {name}")


def _leader(node: Any) -> int | None:
    return None if node is None or node.id < 0 else int(node.id)


def _bad_name(name: str) -> TopicshiftError:
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    return SpecError(
        f"{shown!r} cannot be the name of a topic. Kafka takes 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and "
        "'-', and neither '.' nor '..'. Correct the name."
    )
