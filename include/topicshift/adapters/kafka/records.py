"""Read records by their place, with their keys, for a person to look at: no group is joined, nothing is committed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.tail import NO_GROUP, consumer_of
from topicshift.core.drain.decision import TailRange
from topicshift.core.drain.strays import NamedRecord
from topicshift.core.errors import Unreadable


def read_records(
    conn: Connection,
    topic: str,
    ranges: Iterable[TailRange],
    *,
    timeout_s: float,
    most: int,
    stop: threading.Event | None = None,
) -> list[NamedRecord]:
    """What a read_committed reader finds in these ranges (one a partition), at most ``most`` records.

    Ranges must lie below the last stable offset. Raises ``Unreadable`` where an end was not reached in ``timeout_s``
    seconds.
    """
    from confluent_kafka import KafkaException, TopicPartition

    open_ = {r.partition: r for r in ranges if r.end > r.start}
    found: list[NamedRecord] = []
    said: list[str] = []
    if not open_:
        return found
    deadline = time.monotonic() + timeout_s
    consumer = consumer_of(conn, said)
    try:
        consumer.assign([TopicPartition(topic, r.partition, r.start) for r in open_.values()])
        while open_ and len(found) < most and time.monotonic() < deadline and not (stop and stop.is_set()):
            for message in consumer.consume(num_messages=2000, timeout=0.05):
                wanted = open_.get(-1 if message.topic() is None else message.partition())
                if wanted is None:
                    continue
                if _took(wanted, message, found, said):
                    del open_[wanted.partition]
                    consumer.pause([TopicPartition(topic, wanted.partition)])
    except KafkaException as exc:
        said.append(str(exc.args[0]))
    finally:
        consumer.close()
    if open_ and len(found) < most:
        first = min(open_)
        why = said[-1] if said else f"the end was not reached in {timeout_s:g} s"
        raise Unreadable(f"{topic}[{first}] could not be read up to {open_[first].end}: {why}.")
    return found[:most]


def _took(wanted: TailRange, message: Any, found: list[NamedRecord], said: list[str]) -> bool:
    """Take a record, the end of the partition or an error; whether the range is read to its end."""
    error = message.error()
    if error is not None:
        if error.name() == "_PARTITION_EOF":
            return bool(message.offset() >= wanted.end)
        if error.name() != NO_GROUP:
            said.append(f"{error.name()}: {error.str()}")
        return False
    if message.offset() < wanted.end:
        kind, at = message.timestamp()
        found.append(NamedRecord(wanted.partition, message.offset(), message.key(), at if kind else None))
    return bool(message.offset() >= wanted.end - 1)


async def observe_records(
    conn: Connection, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
) -> list[NamedRecord]:
    """:func:`read_records` in a thread; when this task is cancelled, the reading ends within a tenth of a second."""
    stop, wanted = threading.Event(), list(ranges)
    try:
        return await asyncio.to_thread(read_records, conn, topic, wanted, timeout_s=timeout_s, most=most, stop=stop)
    finally:
        stop.set()
