"""Producers that write all of their records or none, for replay and rehearsal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from topicshift.adapters.kafka.connection import Connection, _client_log


def transactional_producer(conn: Connection, transactional_id: str, own: Mapping[str, Any]) -> Any:
    """A ``confluent_kafka.Producer`` with this transactional id; ``own`` are librdkafka properties of its use."""
    from confluent_kafka import Producer

    ours: dict[str, Any] = {
        "acks": "all",
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 15_000,
        "delivery.timeout.ms": 15_000,
    }
    return Producer({**conn.config, **ours, **own}, logger=_client_log)


def shut_out_earlier(conn: Connection, producer: Any, transactional_id: str, deadline: float) -> None:
    """An earlier try that still sleeps is shut out, and what it had begun is aborted. Raises ``TopicshiftError``."""
    from confluent_kafka import KafkaException

    try:
        producer.init_transactions(left(deadline))
    except KafkaException as exc:
        raise conn.error(exc, operation="WRITE", resource=f"transactional id {transactional_id}") from exc


def left(deadline: float) -> float:
    """Seconds until a moment of the monotonic clock, never less than 0.1: librdkafka takes 0 for something else."""
    return max(0.1, deadline - time.monotonic())
