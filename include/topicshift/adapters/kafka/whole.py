"""Requests of confluent-kafka's AdminClient with one future for the whole answer.

Its public ``list_offsets`` makes a future for every partition, which costs ten times what the request itself does:
a look at a topic of 400 partitions paid for 1,200 of them while producers stood still. What lies below takes one
future, and this is the one file that calls it: a new version of confluent-kafka is looked at here.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any

EARLIEST, LATEST = -2, -1
"""Which offset is asked for, as the ListOffsets request of Kafka's protocol counts them."""


def list_offsets(
    admin: Any, topic: str, partitions: Sequence[int], which: int, *, isolation: Any = None, timeout_s: float
) -> concurrent.futures.Future[Any]:
    """One offset of each of these partitions: a future of ``{TopicPartition: ListOffsetsResultInfo or KafkaError}``.

    ``which`` is :data:`EARLIEST` or :data:`LATEST`, ``isolation`` a ``confluent_kafka.IsolationLevel``.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    level = {} if isolation is None else {"isolation_level_value": isolation.value}
    asked = [TopicPartition(topic, p, which) for p in partitions]
    below: Any = super(AdminClient, admin)
    below.list_offsets(asked, future, request_timeout=timeout_s, **level)
    return future
