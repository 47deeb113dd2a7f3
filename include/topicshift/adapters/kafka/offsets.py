"""Offsets of a topic's partitions: log start, END_C and END_U, one row for every partition asked, read or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from topicshift.adapters.kafka.connection import Connection, OfConnection
from topicshift.adapters.kafka.futures import outcome, run, settle
from topicshift.adapters.kafka.topics import topic_id_text
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.kafka.cluster import PartitionOffsets

_PASSING = frozenset(
    {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "REPLICA_NOT_AVAILABLE"}
    | {"FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE"}
    | {"KAFKA_STORAGE_ERROR", "NETWORK_EXCEPTION", "_TRANSPORT", "_LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT"}
    | {"_WAIT_CACHE", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"}
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


async def observe_offsets(conn: Connection, topic: str, partitions: Iterable[int]) -> dict[int, PartitionOffsets]:
    """Log start, END_U and, after these, END_C of each partition asked.

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
        codes: dict[int, str] = {}
        for start in range(0, len(left), _AT_ONCE):
            some, some_codes = await _ask(conn, topic, left[start : start + _AT_ONCE], share)
            rows |= some
            codes |= some_codes
        left = [p for p in left if codes.get(p) in _PASSING or codes.get(p) == "_TIMED_OUT"]
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
            raise Unreadable(f"{topic}[{p}] cannot be read: {o.error or 'its ends are not known'}.")
    return offsets


async def _ask(
    conn: Connection, topic: str, partitions: list[int], bound: float
) -> tuple[dict[int, PartitionOffsets], dict[int, str]]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka import admin as confluent_admin

    spec: Any = getattr(confluent_admin, "OffsetSpec")  # noqa: B009 - it is there, but not in the typed exports
    tps = [TopicPartition(topic, p) for p in partitions]
    admin = conn.native
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    until = time.monotonic() + bound
    found: dict[int, dict[str, int | None]] = {p: {} for p in partitions}
    errors: dict[int, str] = {}
    codes: dict[int, str] = {}

    async def take(**asked: Mapping[Any, Any]) -> None:
        await settle([f for futures in asked.values() for f in futures.values()], until + 1.0 - time.monotonic())
        for name, futures in asked.items():
            for tp, future in futures.items():
                p = int(tp.partition)
                resource = f"topic {topic}, partition {p}"
                result, error, code = outcome(conn, future, operation="DESCRIBE", resource=resource)
                found[p][name] = int(result.offset) if result is not None and result.offset >= 0 else None
                if error is not None:
                    errors[p], codes[p] = f"{code}: {error}", code
                elif found[p][name] is None:
                    errors.setdefault(
                        p, f"topic {topic}, partition {p}: its leader gave no {name} offset; it may be changing"
                    )
                    codes.setdefault(p, "OFFSET_NOT_AVAILABLE")

    await take(
        start=admin.list_offsets({tp: spec.earliest() for tp in tps}, request_timeout=bound),
        end=admin.list_offsets({tp: spec.latest() for tp in tps}, isolation_level=uncommitted, request_timeout=bound),
    )
    tps = [tp for tp in tps if found[tp.partition].get("end") is not None]
    if tps:
        left = max(1.0, until - time.monotonic())
        await take(
            stable=admin.list_offsets(
                {tp: spec.latest() for tp in tps}, isolation_level=committed, request_timeout=left
            )
        )
    for one in found.values():
        stable, end = one.get("stable"), one.get("end")
        if stable is not None and end is not None:
            one["stable"] = min(stable, end)
    rows = {p: PartitionOffsets(v.get("start"), v.get("stable"), v.get("end"), errors.get(p)) for p, v in found.items()}
    return rows, codes


class OffsetsReader(OfConnection):
    """The offsets method of :class:`topicshift.ports.ClusterAdmin`, from plain code."""

    def offsets(self, topic: str, partitions: Iterable[int] | None = None) -> dict[int, PartitionOffsets]:
        """One row for every partition asked, or of the topic as described. Raises ``NotFound`` for a missing topic."""
        return run(self._offsets(topic, partitions))

    async def _offsets(self, topic: str, partitions: Iterable[int] | None) -> dict[int, PartitionOffsets]:
        if partitions is None:
            identity = await observe_topic(self.connection, topic)
            if identity is None:
                raise NotFound(
                    f"Topic {topic} does not exist on {self.connection.bootstrap}, or this client may not see it. "
                    "Check its name, and DESCRIBE on the topic."
                )
            partitions = range(identity.partitions)
        return await observe_offsets(self.connection, topic, partitions)
