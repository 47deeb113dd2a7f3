"""Offsets of a topic's partitions: log start, END_C and END_U, one row for every partition asked, read or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from topicshift.adapters.kafka.connection import Connection, OfConnection
from topicshift.adapters.kafka.futures import outcome, run, settle
from topicshift.adapters.kafka.topics import topic_id_text
from topicshift.adapters.kafka.whole import EARLIEST, LATEST, list_offsets
from topicshift.core.errors import NotFound
from topicshift.core.kafka.cluster import PartitionOffsets, error_of_unread

_PASSING = frozenset(
    {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE"}
    | {"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE"}
    | {"KAFKA_STORAGE_ERROR", "NETWORK_EXCEPTION", "_TRANSPORT", "_LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"}
    | {"_WAIT_CACHE", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART", "_TIMED_OUT"}
)
"""Errors of a leader election or of metadata that is still spreading. Asked again within the bound, then reported."""

_PAUSE_S = 0.15
_AT_ONCE = 1000
"""Partitions per request: librdkafka splits by leader, this bounds the size of each."""


@dataclass(frozen=True)
class TopicIdentity:
    """A topic's id (base64url, as Kafka's own tools print it) and its partitions."""

    name: str
    topic_id: str
    partitions: int


async def observe_topic(conn: Connection, topic: str) -> TopicIdentity | None:
    """Id and partition count, None when the broker says that there is no such topic. Never creates one.

    Raises ``Unreadable`` (or a kind of it) when the broker does not say.
    """
    from confluent_kafka import TopicCollection

    bound = conn.timeout_s
    resource = f"topic {topic}"
    future = conn.native.describe_topics(TopicCollection([topic]), request_timeout=max(1.0, bound))[topic]
    await settle([future], bound + 1.0)
    described, error, code = outcome(conn, future, operation="DESCRIBE", resource=resource)
    if error is not None:
        if isinstance(error, NotFound) or code in ("TOPIC_EXCEPTION", "INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_ID"):
            return None
        raise error
    assert described is not None
    partitions = [p.id for p in described.partitions]
    return TopicIdentity(topic, topic_id_text(described.topic_id), max(partitions, default=-1) + 1)


async def observe_offsets(
    conn: Connection, topic: str, partitions: Iterable[int], *, ends_alone: bool = False
) -> dict[int, PartitionOffsets]:
    """Log start, END_U and, after these, END_C of each partition asked; with ``ends_alone`` END_U and nothing else.

    END_C below END_U is an open transaction, therefore, and not a log that grew between the two questions; where END_C
    has passed it, END_C is END_U.

    A partition in the middle of a leader election is asked again until the time-out has passed; then it carries the
    error. None is ever left out.
    """
    wanted = sorted(set(partitions))
    deadline = time.monotonic() + conn.timeout_s
    rows: dict[int, PartitionOffsets] = {}
    left = wanted
    while left:
        # The first try gets half the bound, so that a broker that has just gone leaves time for its successor.
        share = max(1.0, (deadline - time.monotonic()) / (2 if not rows else 1))
        for start in range(0, len(left), _AT_ONCE):
            rows |= await _ask(conn, topic, left[start : start + _AT_ONCE], share, ends_alone)
        left = [p for p in left if rows[p].passing]
        if not left or time.monotonic() + _PAUSE_S >= deadline:
            break
        await asyncio.sleep(_PAUSE_S)
    return {p: rows[p] for p in wanted}


def known_offsets(conn: Connection, topic: str) -> dict[int, PartitionOffsets]:
    """Offsets of every partition of a topic.

    Raises ``NotFound`` where the topic does not exist and ``Unreadable`` where one partition cannot be read.
    """

    async def ask() -> dict[int, PartitionOffsets]:
        found = await observe_topic(conn, topic)
        if found is None:
            raise NotFound(f"Topic {topic} does not exist (or this user may not see it).")
        return await observe_offsets(conn, topic, range(found.partitions))

    offsets = run(ask())
    for p, o in sorted(offsets.items()):
        if o.error is not None or o.end is None or o.end_committed is None:
            raise error_of_unread(o)(f"{topic}[{p}] cannot be read: {o.error or 'its ends are not known'}.")
    return offsets


class _Asked:
    """What the brokers have said so far of some partitions of a topic."""

    def __init__(self, conn: Connection, topic: str, partitions: list[int], bound: float) -> None:
        self.conn, self.topic = conn, topic
        self.until = time.monotonic() + bound
        self.found: dict[int, dict[str, int | None]] = {p: {} for p in partitions}
        self.errors: dict[int, str] = {}
        self.codes: dict[int, str] = {}

    def ask(self, partitions: list[int], which: int, isolation: Any = None) -> Future[Any]:
        """Ask for one offset of each of these partitions."""
        left = max(1.0, self.until - time.monotonic())
        return list_offsets(self.conn.native, self.topic, partitions, which, isolation=isolation, timeout_s=left)

    async def take(self, partitions: list[int], **asked: Future[Any]) -> None:
        """Wait for these answers and note what they say of each partition."""
        await settle(asked.values(), self.until + 1.0 - time.monotonic())
        for name, future in asked.items():
            if not future.done() or future.exception() is not None:
                for p in partitions:
                    self._failed(p, future)
                continue
            answers = {int(tp.partition): answer for tp, answer in future.result().items()}
            for p in partitions:
                self._note(p, name, answers.get(p))

    def _note(self, p: int, name: str, answer: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if isinstance(answer, KafkaError):
            refused: Future[Any] = Future()
            refused.set_exception(KafkaException(answer))
            self._failed(p, refused)
            return
        self.found[p][name] = offset = int(answer.offset) if answer is not None and answer.offset >= 0 else None
        if offset is None:
            why = f"topic {self.topic}, partition {p}: its leader gave no {name} offset; it may be changing"
            self.errors.setdefault(p, why)
            self.codes.setdefault(p, "OFFSET_NOT_AVAILABLE")

    def _failed(self, p: int, future: Future[Any]) -> None:
        resource = f"topic {self.topic}, partition {p}"
        _, error, code = outcome(self.conn, future, operation="DESCRIBE", resource=resource)
        self.errors[p], self.codes[p] = f"{code}: {error}", code

    def row(self, p: int) -> PartitionOffsets:
        """What was said of one partition."""
        seen = self.found[p]
        stable, end = seen.get("stable"), seen.get("end")
        if stable is not None and end is not None:
            stable = min(stable, end)
        return PartitionOffsets(seen.get("start"), stable, end, self.errors.get(p), self.codes.get(p) in _PASSING)


async def _ask(
    conn: Connection, topic: str, partitions: list[int], bound: float, ends_alone: bool
) -> dict[int, PartitionOffsets]:
    from confluent_kafka import IsolationLevel

    asked = _Asked(conn, topic, partitions, bound)
    first = {} if ends_alone else {"start": asked.ask(partitions, EARLIEST)}
    await asked.take(partitions, **first, end=asked.ask(partitions, LATEST, IsolationLevel.READ_UNCOMMITTED))
    ended = [] if ends_alone else [p for p in partitions if asked.found[p].get("end") is not None]
    if ended:
        await asked.take(ended, stable=asked.ask(ended, LATEST, IsolationLevel.READ_COMMITTED))
    return {p: asked.row(p) for p in partitions}


class OffsetsReader(OfConnection):
    """The offsets method of :class:`topicshift.ports.ClusterAdmin`, from plain code."""

    def offsets(
        self, topic: str, partitions: Iterable[int] | None = None, *, ends_alone: bool = False
    ) -> dict[int, PartitionOffsets]:
        """One row for every partition asked, or of the topic as described. Raises ``NotFound`` for a missing topic.

        With ``ends_alone`` log start and END_C are not asked.
        """
        return run(self._offsets(topic, partitions, ends_alone))

    async def _offsets(
        self, topic: str, partitions: Iterable[int] | None, ends_alone: bool
    ) -> dict[int, PartitionOffsets]:
        if partitions is None:
            identity = await observe_topic(self.connection, topic)
            if identity is None:
                raise NotFound(
                    f"Topic {topic} does not exist on {self.connection.bootstrap}, or this client may not see it. "
                    "Check its name, and DESCRIBE on the topic."
                )
            partitions = range(identity.partitions)
        return await observe_offsets(self.connection, topic, partitions, ends_alone=ends_alone)
