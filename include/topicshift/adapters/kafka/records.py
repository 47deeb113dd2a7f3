"""Read records by their place, with their keys, for a person to look at: no group is joined, nothing is committed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.tail import NO_GROUP, consumer_of
from topicshift.core.drain.decision import TailRange
from topicshift.core.drain.strays import NamedRecord
from topicshift.core.errors import Unreadable


def walk(
    conn: Connection,
    topic: str,
    ranges: Iterable[TailRange],
    take: Callable[[TailRange, Any], bool],
    *,
    timeout_s: float,
    stop: threading.Event | None = None,
) -> str | None:
    """Give ``take`` every record that a read_committed reader finds in these ranges (one a partition).

    It ends where ``take`` returns False. Ranges must lie below the last stable offset. Returns None where every range
    was read to its end, else a sentence that says which was not, and why.
    """
    from confluent_kafka import KafkaException, TopicPartition

    open_ = {r.partition: r for r in ranges if r.end > r.start}
    said: list[str] = []
    if not open_:
        return None
    deadline, ended = time.monotonic() + timeout_s, False
    consumer = consumer_of(conn, said)
    try:
        consumer.assign([TopicPartition(topic, r.partition, r.start) for r in open_.values()])
        while open_ and not ended and time.monotonic() < deadline and not (stop and stop.is_set()):
            for message in consumer.consume(num_messages=2000, timeout=0.05):
                wanted = open_.get(-1 if message.topic() is None else message.partition())
                if wanted is None:
                    _note(message, said)  # an error of the topic or the client as a whole has no such partition
                if wanted is None or ended:
                    continue
                if message.error() is None and message.offset() < wanted.end:
                    ended = not take(wanted, message)
                if _at_end(wanted, message, said):
                    del open_[wanted.partition]
                    consumer.pause([TopicPartition(topic, wanted.partition)])
    except KafkaException as exc:
        said.append(str(exc.args[0]))
    finally:
        consumer.close()
    if not open_:
        return None
    first = min(open_)
    why = said[-1] if said else f"the end was not reached in {timeout_s:g} s"
    return f"{topic}[{first}] could not be read up to {open_[first].end}: {why}."


def _at_end(wanted: TailRange, message: Any, said: list[str]) -> bool:
    """Whether the range is read to its end, by a record or by the end of the partition; errors go to ``said``."""
    error = message.error()
    if error is None:
        return bool(message.offset() >= wanted.end - 1)
    _note(message, said)
    return bool(error.name() == "_PARTITION_EOF" and message.offset() >= wanted.end)


def _note(message: Any, said: list[str]) -> None:
    error = message.error()
    if error is not None and error.name() not in ("_PARTITION_EOF", NO_GROUP):
        said.append(f"{error.name()}: {error.str()}")


def read_records(
    conn: Connection,
    topic: str,
    ranges: Iterable[TailRange],
    *,
    timeout_s: float,
    most: int,
    stop: threading.Event | None = None,
) -> list[NamedRecord]:
    """What :func:`walk` finds, at most ``most`` records.

    Raises ``Unreadable`` where an end was not reached in ``timeout_s`` seconds.
    """
    found: list[NamedRecord] = []

    def take(wanted: TailRange, message: Any) -> bool:
        kind, at = message.timestamp()
        found.append(NamedRecord(wanted.partition, message.offset(), message.key(), at if kind else None))
        return len(found) < most

    why = walk(conn, topic, ranges, take, timeout_s=timeout_s, stop=stop)
    if why is not None and len(found) < most:
        raise Unreadable(why)
    return found


async def observe_records(
    conn: Connection, topic: str, ranges: Iterable[TailRange], *, timeout_s: float, most: int
) -> list[NamedRecord]:
    """:func:`read_records` in a thread; when this task is cancelled, the reading ends within a tenth of a second."""
    stop, wanted = threading.Event(), list(ranges)
    try:
        return await asyncio.to_thread(read_records, conn, topic, wanted, timeout_s=timeout_s, most=most, stop=stop)
    finally:
        stop.set()
