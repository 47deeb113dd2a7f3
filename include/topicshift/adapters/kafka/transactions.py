"""Producers and transactions, through kafka-python: what librdkafka's admin client cannot ask (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.core.errors import NotFound, Refused, Unreadable
from topicshift.core.kafka.cluster import ActiveProducer, Transaction

_FINISHED = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


class TransactionsAdmin:
    """Producer and transaction state of one cluster. Raises the errors of :mod:`topicshift.core.errors`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _describe_producers(self, topic: str, partitions: Sequence[int]) -> dict[Any, Any]:
        from kafka import TopicPartition

        c = self._connection
        wanted = [TopicPartition(topic, p) for p in partitions]
        try:
            answer: dict[Any, Any] = c.bounded(
                lambda: c.kafka_python.describe_producers(wanted), operation="READ", resource=f"topic {topic}"
            )
        except NotFound:
            # A topic that this client may not DESCRIBE looks the same here as one that is not there.
            raise Unreadable(
                f"The producers of topic {topic} cannot be read: the brokers do not show all its partitions "
                "to this client. Either the topic is gone or DESCRIBE and READ on it are missing. Check both."
            ) from None
        missing = [p.partition for p in wanted if p not in answer]
        if missing:
            raise Unreadable(
                f"The producers of topic {topic}, partitions {missing} cannot be read: no answer. Unknown is never "
                "taken as a yes. Run it again."
            )
        return answer

    def producers(self, topic: str, partitions: Sequence[int]) -> list[ActiveProducer]:
        """The producers that the leaders of these partitions remember (a day for idle ones).

        A producer without idempotence does not show at all. Raises ``AccessDenied`` without READ on the topic.
        """
        if not partitions:
            return []
        return [
            ActiveProducer(
                partition=place.partition,
                producer_id=p.producer_id,
                producer_epoch=p.producer_epoch,
                last_sequence=p.last_sequence,
                last_timestamp_ms=p.last_timestamp,
                txn_start_offset=None if p.current_transaction_start_offset < 0 else p.current_transaction_start_offset,
            )
            for place, state in sorted(self._describe_producers(topic, partitions).items())
            for p in state.active_producers
        ]

    def transactions(self, topic: str) -> list[Transaction]:
        """The unfinished transactions that touch the topic, as their coordinators tell.

        Those whose transactional id this client may not DESCRIBE do not show, without an error: an END_C below END_U
        stays the judge of whether one is open.
        """
        c = self._connection
        resource = "the transactional ids"

        def ask() -> list[Transaction]:
            from kafka.errors import TransactionalIdNotFoundError

            client = c.kafka_python
            listed = {
                t.transactional_id
                for listings in client.list_transactions().values()
                for t in listings
                if t.state.value not in _FINISHED
            }
            described: dict[str, Any] = {}
            for name in sorted(listed):
                try:
                    described |= client.describe_transactions([name])
                except TransactionalIdNotFoundError:
                    continue  # it ended and expired between the two questions
            return [
                Transaction(
                    transactional_id=name,
                    producer_id=d.producer_id,
                    producer_epoch=d.producer_epoch,
                    state=d.state.value,
                    started_ms=d.transaction_start_time_ms if d.transaction_start_time_ms >= 0 else None,
                    timeout_ms=d.transaction_timeout_ms,
                    partitions=tuple(sorted(p.partition for p in d.topic_partitions if p.topic == topic)),
                )
                for name, d in sorted(described.items())
                if d.state.value not in _FINISHED and any(p.topic == topic for p in d.topic_partitions)
            ]

        return c.bounded(ask, operation="DESCRIBE", resource=resource)

    def abort_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
        """Write an abort marker for one open transaction on one partition. Only ever on a person's word.

        Raises ``Refused`` when this producer has no open transaction there (it may have ended meanwhile), and
        ``AccessDenied`` without ALTER on the cluster.
        """
        from kafka import TopicPartition
        from kafka.admin import AbortTransactionSpec

        c = self._connection
        place = TopicPartition(topic, partition)
        states = self._describe_producers(topic, [partition])[place].active_producers
        found = [s for s in states if s.producer_id == producer_id and s.producer_epoch == producer_epoch]
        if not found or found[0].current_transaction_start_offset < 0:
            raise Refused(
                f"Producer {producer_id} (epoch {producer_epoch}) has no open transaction on {topic}[{partition}]. "
                "It may have ended meanwhile; look again before anything is aborted."
            )
        # The broker takes a marker only from a coordinator epoch that is not older than the one it knows; -1 stands
        # for a producer that no coordinator ever ended a transaction of.
        spec = AbortTransactionSpec(place, producer_id, producer_epoch, max(found[0].coordinator_epoch, 0))
        c.bounded(
            lambda: c.kafka_python.abort_transaction(spec),
            operation="ALTER",
            resource="the cluster (to abort a transaction)",
        )
