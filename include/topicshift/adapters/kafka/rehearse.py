"""Fill the shadow of a rehearsal: a sample of the source in one transaction, and one record more of each key."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.offsets import known_offsets
from topicshift.adapters.kafka.records import walk
from topicshift.adapters.kafka.transaction import left, shut_out_earlier, transactional_producer
from topicshift.core.drain.decision import TailRange
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.spec.shadows import real_name
from topicshift.ports import Sample

WINDOW = 5
"""So many times the records that are copied are read at most, so that whole keys can be chosen among them."""

MOST_BYTES = 32 * 1024 * 1024
"""Bound of what is held in memory and copied, in bytes of keys and values."""

GO_ON_S = 15.0
"""Bound, in seconds, of writing one record of each key."""


class KafkaRehearser:
    """Implements :class:`topicshift.ports.Rehearser` on one :class:`Connection`."""

    def __init__(self, connection: Connection) -> None:
        self._conn = connection

    @classmethod
    def from_config(cls, config: Mapping[str, Any], timeout_s: float = 10.0) -> KafkaRehearser:
        """A rehearser with a connection of its own; ``config`` is a librdkafka config."""
        return cls(Connection(config, timeout_s))

    def copy(self, source: str, shadow: str, *, most: int, timeout_s: float, keyed: bool = False) -> Sample:
        """See :class:`topicshift.ports.Rehearser`."""
        _shadows(shadow)
        deadline = time.monotonic() + timeout_s
        producer = self._producer(shadow, deadline)
        held = self._read(shadow, None, deadline)
        if not held:
            found = self._read(source, WINDOW * most, deadline)
            held = _whole_keys([m for m in found if m.key() is not None] if keyed else found, most)
            self._write(producer, shadow, held, deadline)
        return Sample(len(held), len({m.key() for m in held if m.key() is not None}))

    def go_on(self, shadow: str, target: str) -> None:
        """See :class:`topicshift.ports.Rehearser`."""
        _shadows(shadow, target)
        deadline = time.monotonic() + GO_ON_S
        producer = self._producer(target, deadline)
        if self._read(target, None, deadline):
            return
        last = {m.key(): m for m in self._read(shadow, None, deadline) if m.key() is not None}
        # The partition is the client's choice, as it is for the applications whose records these are.
        self._write(producer, target, list(last.values()), deadline, keep_partition=False)

    def forget(self, groups: Sequence[str]) -> None:
        """See :class:`topicshift.ports.Rehearser`."""
        from confluent_kafka import KafkaException

        _shadows(*groups)
        for group, future in self._conn.native.delete_consumer_groups(list(groups)).items():
            try:
                future.result(self._conn.timeout_s)
            except KafkaException as exc:
                if exc.args[0].name() != "GROUP_ID_NOT_FOUND":
                    raise self._conn.error(exc, operation="DELETE", resource=f"group {group}") from exc

    def close(self) -> None:
        """Let go of the connection."""
        self._conn.close()

    # -------------------------------------------------------------------------------------------------- parts

    def _producer(self, topic: str, deadline: float) -> Any:
        """A producer whose transactional id is the topic's name: it ends what a killed try left open there."""
        own = {"client.id": "topicshift-rehearsal", "linger.ms": 5, "partitioner": "murmur2_random"}
        producer = transactional_producer(self._conn, topic, own)
        shut_out_earlier(self._conn, producer, topic, deadline)
        return producer

    def _write(
        self, producer: Any, topic: str, records: Iterable[Any], deadline: float, *, keep_partition: bool = True
    ) -> None:
        """All of them, or none."""
        from confluent_kafka import KafkaException

        failed: list[Any] = []
        try:
            producer.begin_transaction()
            for m in records:
                # No timestamp of the source: by an old one the shadow could refuse a record, or delete it at once.
                where = {"partition": m.partition()} if keep_partition else {}
                while True:
                    try:
                        producer.produce(
                            topic,
                            m.value(),
                            m.key(),
                            headers=m.headers(),
                            on_delivery=lambda error, _: failed.append(error) if error else None,
                            **where,
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.flush(left(deadline))
            if failed:
                raise KafkaException(failed[0])
            producer.commit_transaction(left(deadline))
        except KafkaException as exc:
            raise self._conn.error(exc, operation="WRITE", resource=f"topic {topic}") from exc

    def _read(self, topic: str, most: int | None, deadline: float) -> list[Any]:
        """The latest records that a read_committed reader finds, ``most`` of them (None: all), oldest first."""
        offsets = known_offsets(self._conn, topic)
        each = None if most is None else max(1, most // max(1, len(offsets)))
        ranges = []
        for p, o in offsets.items():
            start, end = o.log_start or 0, o.end_committed or 0
            ranges.append(TailRange(p, start if each is None else max(start, end - each), end))
        found: list[Any] = []
        room = [MOST_BYTES]

        def take(_: TailRange, message: Any) -> bool:
            found.append(message)
            room[0] -= len(message.key() or b"") + len(message.value() or b"")
            return room[0] > 0

        why = walk(self._conn, topic, ranges, take, timeout_s=left(deadline))
        if why is not None and room[0] > 0:
            raise Unreadable(f"{why} Nothing was written.")
        return sorted(found, key=lambda m: (m.partition(), m.offset()))


def _whole_keys(records: list[Any], most: int) -> list[Any]:
    """The records of some keys, all that there are of each, ``most`` of them; each without a key is one of its own.

    Where every key has more, the latest of one.
    """

    def key(m: Any) -> Any:
        return m.key() if m.key() is not None else (m.partition(), m.offset())

    counts = Counter(key(m) for m in records)
    chosen: set[Any] = set()
    room = most
    for one in sorted(counts, key=lambda k: zlib.crc32(repr(k).encode())):
        if counts[one] <= room:
            chosen.add(one)
            room -= counts[one]
    if records and not chosen:
        chosen.add(min(counts, key=lambda k: (counts[k], repr(k))))
    return [m for m in records if key(m) in chosen][-most:]


def _shadows(*names: str) -> None:
    for name in names:
        if real_name(name) is None:
            raise Refused(f"{name} is no topic or group of a rehearsal. Nothing was done.")
