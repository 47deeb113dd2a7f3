"""Read what arithmetic cannot tell: does a readable record lie between a committed offset and the end?

A read_committed consumer gets its partitions by ``assign``: no group is joined, nothing is committed, nobody else
rebalances.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.core.drain.decision import Tail, TailRange

COUNT_LIMIT = 10_000
"""Ranges up to this many offsets are counted exactly; wider ones are read until the first record."""
MAX_RECORDS = 200_000
"""Records that one call counts in all."""
NO_GROUP = "GROUP_AUTHORIZATION_FAILED"
"""librdkafka looks for a coordinator although no group is joined; that this is denied says nothing of the reading."""


@dataclass
class _Job:
    """The ranges of one partition with one end. They share their end, so a record found late is in all of them.

    First the narrow ranges are read from the lowest start on, and counted. Only if nothing is found there, the wide
    ones are read piece by piece, from the last piece back, up to the first record. So no record is read twice.
    """

    partition: int
    end: int
    starts: list[int]
    count_limit: int
    found: list[int] = field(default_factory=list)
    pieces: list[tuple[int, int, bool]] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    error: str | None = None

    def __post_init__(self) -> None:
        narrow = [s for s in self.starts if self.end - s <= self.count_limit]
        upper = self.end
        if narrow:
            self.pieces.append((narrow[0], self.end, True))
            upper = narrow[0]
        for s in reversed([s for s in self.starts if self.end - s > self.count_limit]):
            self.pieces.append((s, upper, False))
            upper = s

    @property
    def piece(self) -> tuple[int, int, bool] | None:
        return self.pieces[0] if self.pieces else None

    def record(self, offset: int) -> bool:
        """Take one record of the piece in work; returns whether the piece is finished."""
        start, stop, counting = self.pieces[0]
        if offset >= stop:
            self._finish(start)
            return True
        self.found.append(offset)
        if not counting:
            self.pieces.clear()  # every start still open lies before this record
            return True
        if offset == stop - 1:
            self._finish(start)
            return True
        return False

    def reached(self, offset: int) -> bool:
        """The reader is at ``offset`` with nothing more to read for now; returns whether the piece is finished."""
        start, stop, _ = self.pieces[0]
        if offset >= stop:
            self._finish(start)
            return True
        return False

    def _finish(self, start: int) -> None:
        self.whole.add(start)
        self.pieces.pop(0)
        if self.found:
            self.pieces.clear()

    def answer(self, start: int) -> Tail:
        """What is known about [start, end)."""
        narrow = self.end - start <= self.count_limit
        complete = (self._first_narrow() if narrow else start) in self.whole
        inside = len(self.found) - bisect_left(self.found, start)
        if inside:
            counted = narrow and complete
            return Tail(found=True, complete=counted, records=inside if counted else None)
        return Tail(
            found=False,
            complete=complete,
            records=0 if complete else None,
            error=None if complete else self.error,
        )

    def _first_narrow(self) -> int:
        return next((s for s in self.starts if self.end - s <= self.count_limit), -1)


def read_tails(
    conn: Connection,
    topic: str,
    ranges: Iterable[TailRange],
    *,
    timeout_s: float = 15.0,
    count_limit: int = COUNT_LIMIT,
    max_records: int = MAX_RECORDS,
    stop: threading.Event | None = None,
) -> dict[TailRange, Tail]:
    """What a read_committed reader finds in each range; one answer for each range asked.

    Ranges must lie between log start and last stable offset. Each record is read at most once, whatever the number of
    ranges over it. Reading ends after ``timeout_s`` seconds, or when ``stop`` is set: what was not reached by then is
    answered ``complete=False``. An error (no READ right, no leader, offsets that expired meanwhile) stands in the
    answer.
    """
    wanted = sorted(set(ranges))
    if not wanted:
        return {}
    grouped: dict[tuple[int, int], list[int]] = defaultdict(list)
    for r in wanted:
        grouped[(r.partition, r.end)].append(r.start)
    partitions = {p for p, _ in grouped}
    limit = min(count_limit, max(1, max_records // len(partitions)))
    jobs = {key: _Job(key[0], key[1], starts, limit) for key, starts in grouped.items()}
    queues: dict[int, list[_Job]] = defaultdict(list)
    for job in jobs.values():
        queues[job.partition].append(job)
    _read(conn, topic, queues, timeout_s, stop or threading.Event())
    return {r: jobs[(r.partition, r.end)].answer(r.start) for r in wanted}


def consumer_of(conn: Connection, said: list[str]) -> Any:
    """A read_committed consumer for ``assign`` alone; what its client says goes to ``said``."""
    from confluent_kafka import Consumer

    from topicshift.adapters.kafka.connection import _client_log

    bound = int(conn.timeout_s * 1000)
    ours: dict[str, Any] = {
        "client.id": "topicshift-tail",
        # librdkafka wants a name; with assign() and no commit, no group of that name comes into being.
        "group.id": "topicshift-tail",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "check.crcs": True,
        "fetch.wait.max.ms": 20,
        "fetch.error.backoff.ms": 50,
        "queued.max.messages.kbytes": 16_384,
        "socket.timeout.ms": max(bound, 1000),
        "socket.connection.setup.timeout.ms": max(bound, 1000),
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "log.connection.close": "false",
        "error_cb": lambda e: None if e.name() == NO_GROUP else said.append(f"{e.name()}: {e.str()}"),
    }
    return Consumer({**conn.config, **ours}, logger=_client_log)


def _read(  # noqa: C901 - one loop over one consumer, whose state its branches share
    conn: Connection, topic: str, queues: Mapping[int, list[_Job]], timeout_s: float, stop: threading.Event
) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    said: list[str] = []
    deadline = time.monotonic() + timeout_s
    consumer = consumer_of(conn, said)
    open_: dict[int, list[_Job]] = {p: q for p, q in queues.items() if q[0].piece is not None}

    def go_on(partition: int) -> None:
        """Seek to the next piece of the partition, or stop fetching it."""
        queue = open_[partition]
        while queue and queue[0].piece is None:
            queue.pop(0)
        if not queue:
            del open_[partition]
            consumer.pause([TopicPartition(topic, partition)])
        else:
            piece = queue[0].piece
            assert piece is not None
            consumer.seek(TopicPartition(topic, partition, piece[0]))

    try:
        consumer.assign([TopicPartition(topic, p, q[0].pieces[0][0]) for p, q in open_.items()])
        while open_ and time.monotonic() < deadline and not stop.is_set():
            moved: set[int] = set()
            for message in consumer.consume(num_messages=2000, timeout=0.05):
                # An error of the client as a whole bears no topic, and a partition that means nothing.
                p = -1 if message.topic() is None else message.partition()
                if p in moved:
                    continue  # fetched before the seek
                queue = open_.get(p)
                error = message.error()
                if queue is None:
                    if error is not None and error.name() not in ("_PARTITION_EOF", NO_GROUP):
                        said.append(f"{error.name()}: {error.str()}")
                    continue
                if _took(queue[0], message):
                    moved.add(p)
                    go_on(p)
    except KafkaException as exc:
        said.append(str(exc.args[0]))
    finally:
        consumer.close()
    for queue in open_.values():
        for job in queue:
            if job.error is None and said:
                job.error = said[-1]


def _took(job: _Job, message: Any) -> bool:
    """Give the job a record, the end of its partition or an error; whether its piece is finished."""
    error = message.error()
    if error is None:
        return job.record(message.offset())
    if error.name() == "_PARTITION_EOF":
        if job.reached(message.offset()):
            return True
        job.error = f"the reader met the end at {message.offset()}, before {job.end}"
    else:
        job.error = f"{error.name()}: {error.str()}"
        if error.retriable() or error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            return False
    job.pieces.clear()
    return True


async def observe_tails(
    conn: Connection, topic: str, ranges: Iterable[TailRange], *, timeout_s: float = 15.0
) -> dict[TailRange, Tail]:
    """:func:`read_tails` in a thread; when this task is cancelled, the reading ends within a tenth of a second."""
    stop = threading.Event()
    wanted = list(ranges)
    if not wanted:
        return {}
    try:
        return await asyncio.to_thread(read_tails, conn, topic, wanted, timeout_s=timeout_s, stop=stop)
    finally:
        stop.set()


def first_timestamps(
    conn: Connection, topic: str, starts: Mapping[int, int], *, timeout_s: float = 10.0
) -> dict[int, int | None]:
    """Timestamp (ms since the epoch) of the first readable record at or after each offset; None where there is none
    or it could not be read in time."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaException, TopicPartition

    out: dict[int, int | None] = dict.fromkeys(starts)
    left = set(starts)
    deadline = time.monotonic() + timeout_s
    consumer = consumer_of(conn, [])
    try:
        consumer.assign([TopicPartition(topic, p, o) for p, o in starts.items()])
        while left and time.monotonic() < deadline:
            for message in consumer.consume(num_messages=500, timeout=0.05):
                p = message.partition()
                if p not in left:
                    continue
                if message.error() is None:
                    kind, at = message.timestamp()
                    out[p] = at if kind != TIMESTAMP_NOT_AVAILABLE else None
                elif message.error().retriable():
                    continue
                left.discard(p)
                consumer.pause([TopicPartition(topic, p)])
    except KafkaException:
        return out
    finally:
        consumer.close()
    return out
