"""Producers and transactions, through kafka-python: what librdkafka's admin client cannot ask (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from topicshift.adapters.kafka.connection import OfConnection
from topicshift.adapters.kafka.python_client import ask_nodes
from topicshift.core.errors import NotFound, Refused, Unreadable
from topicshift.core.kafka.cluster import ActiveProducer, Transaction

_UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_GONE = 105  # TRANSACTIONAL_ID_NOT_FOUND: it ended and expired between the two questions


class TransactionsAdmin(OfConnection):
    """Producer and transaction state of one cluster. Raises the errors of :mod:`topicshift.core.errors`."""

    def _describe_producers(self, topic: str, partitions: Sequence[int]) -> dict[Any, Any]:
        from kafka import TopicPartition

        c = self.connection
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
        c = self.connection
        found = c.bounded(lambda: _unfinished(c.kafka_python), operation="DESCRIBE", resource="the transactional ids")
        return [
            Transaction(
                transactional_id=d.transactional_id,
                producer_id=d.producer_id,
                producer_epoch=d.producer_epoch,
                state=d.transaction_state,
                started_ms=d.transaction_start_time_ms if d.transaction_start_time_ms >= 0 else None,
                timeout_ms=d.transaction_timeout_ms,
                partitions=tuple(sorted(p for t in d.topics if t.topic == topic for p in t.partitions)),
                beside=tuple(sorted({t.topic for t in d.topics} - {topic})),
            )
            for d in sorted(found, key=lambda d: str(d.transactional_id))
            if any(t.topic == topic for t in d.topics)
        ]

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional id of each of these producers that its coordinator remembers, open transaction or not.

        Those whose id this client may not DESCRIBE do not show, without an error.
        """
        if not producer_ids:
            return {}
        c = self.connection
        listed = c.bounded(
            lambda: c.kafka_python.list_transactions(producer_id_filters=sorted(producer_ids)),
            operation="DESCRIBE",
            resource="the transactional ids",
        )
        return {t.producer_id: t.transactional_id for found in listed.values() for t in found}

    def abort_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> None:
        """Write an abort marker for one open transaction on one partition. Only ever on a person's word.

        Raises ``Refused`` when this producer has no open transaction there (it may have ended meanwhile), and
        ``AccessDenied`` without ALTER on the cluster.
        """
        from kafka import TopicPartition
        from kafka.admin import AbortTransactionSpec

        c = self.connection
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


def _unfinished(client: Any) -> list[Any]:
    """Every unfinished transaction as its coordinator describes it: two requests a broker, however many there are.

    Which topics one touches is told by the description alone, and one that has written nothing yet is known to no
    partition leader; so all are described, at the broker that lists them, which is their coordinator.
    """
    from kafka.errors import for_code
    from kafka.protocol.admin import DescribeTransactionsRequest

    listed = client.list_transactions(state_filters=_UNFINISHED)

    requests = {
        broker: DescribeTransactionsRequest(transactional_ids=[t.transactional_id for t in found])
        for broker, found in listed.items()
        if found
    }
    rows = []
    for row in (row for answer in ask_nodes(client, requests) for row in answer.transaction_states):
        if row.error_code not in (0, _GONE):
            raise for_code(row.error_code)(f"describing transactional id {row.transactional_id}")
        if row.error_code == 0 and row.transaction_state in _UNFINISHED:
            rows.append(row)
    return rows
