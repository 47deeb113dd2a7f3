"""Write late records of one topic to another, in one transaction, and find those that are there already."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.offsets import known_offsets
from topicshift.adapters.kafka.records import walk
from topicshift.adapters.kafka.tail import consumer_of
from topicshift.adapters.kafka.transaction import left, shut_out_earlier, transactional_producer
from topicshift.core.drain.decision import TailRange
from topicshift.core.drain.replay import HEADER, KeySeen, ReplayOrder, mark_of_place, place_of_mark, replayed_of
from topicshift.core.drain.strays import Replayed
from topicshift.core.errors import Transient, Unreadable

TRANSACTIONAL_ID = "topicshift-replay-"
"""Prefix of the transactional id of a replay; the migration's id follows."""

Place = tuple[int, int]


class KafkaReplayer:
    """Implements :class:`topicshift.ports.Replayer` on one :class:`Connection`."""

    def __init__(self, connection: Connection) -> None:
        self._conn = connection

    @classmethod
    def from_config(cls, config: Mapping[str, Any], timeout_s: float = 10.0) -> KafkaReplayer:
        """A replayer with a connection of its own; ``config`` is a librdkafka config."""
        return cls(Connection(config, timeout_s))

    def keys(self, topic: str, since: Mapping[bytes, int | None], *, timeout_s: float) -> dict[bytes, KeySeen]:
        """See :class:`topicshift.ports.Replayer`."""
        if not since:
            return {}
        deadline = time.monotonic() + timeout_s
        times = list(since.values())
        first = None if None in times else min(t for t in times if t is not None)
        ranges = self._ranges(topic, first)
        seen: dict[bytes, list[int]] = {}

        def take(_: TailRange, message: Any) -> bool:
            key = message.key()
            if key in since:
                at, kind = since[key], message.timestamp()
                if at is None or not kind[0] or kind[1] >= at:
                    seen.setdefault(key, []).append(message.partition())
            return True

        self._walk(topic, ranges, take, deadline)
        return {key: KeySeen(frozenset(places), len(places)) for key, places in seen.items()}

    def replay(self, order: ReplayOrder, *, timeout_s: float) -> list[Replayed]:
        """See :class:`topicshift.ports.Replayer`."""
        deadline = time.monotonic() + timeout_s
        name = f"{TRANSACTIONAL_ID}{order.name}"
        producer = transactional_producer(self._conn, name, {"client.id": "topicshift-replay", "linger.ms": 0})
        try:
            shut_out_earlier(self._conn, producer, name, deadline)
            found = self._there(order, deadline)
            missing = [w for w in order.records if (w.partition, w.offset) not in found]
            if missing:
                records = self._read(order.source, [(w.partition, w.offset) for w in missing], deadline)
                to = {(w.partition, w.offset): w.to_partition for w in missing}
                found |= self._write(producer, order, records, to, deadline)
            return replayed_of({(w.partition, w.offset): found[w.partition, w.offset] for w in order.records})
        finally:
            del producer

    def close(self) -> None:
        """Let go of the connection."""
        self._conn.close()

    # -------------------------------------------------------------------------------------------------- parts

    def _there(self, order: ReplayOrder, deadline: float) -> dict[Place, Place]:
        """Which of the records are in the target since the order was given."""
        ends = {p: o.end or 0 for p, o in known_offsets(self._conn, order.target).items()}
        while True:
            now = known_offsets(self._conn, order.target)
            held = [p for p, end in ends.items() if (now[p].end_committed or 0) < end]
            if not held:
                break
            if time.monotonic() >= deadline:
                raise Unreadable(
                    f"{order.target}[{held[0]}] cannot be read to its end of {ends[held[0]]}: a transaction is open on "
                    "it. Nothing was written. Try again once it has ended."
                )
            time.sleep(0.1)
        found: dict[Place, Place] = {}

        def take(_: TailRange, message: Any) -> bool:
            for name, value in message.headers() or ():
                place = place_of_mark(value or b"", order.source) if name == HEADER else None
                if place is not None:
                    found.setdefault(place, (message.partition(), message.offset()))
            return True

        ranges = [TailRange(p, order.since.get(p, 0), end) for p, end in ends.items() if end > order.since.get(p, 0)]
        self._walk(order.target, ranges, take, deadline)
        return found

    def _read(self, topic: str, places: list[Place], deadline: float) -> list[Any]:
        """The records at these places, in their order."""
        known_offsets(self._conn, topic)  # says who may not see it, which a reader that waits for its metadata does not
        wanted, found = set(places), list[Any]()
        ranges = []
        for partition in sorted({p for p, _ in places}):
            offsets = [o for p, o in places if p == partition]
            ranges.append(TailRange(partition, min(offsets), max(offsets) + 1))

        def take(_: TailRange, message: Any) -> bool:
            if (message.partition(), message.offset()) in wanted:
                found.append(message)
            return True

        self._walk(topic, ranges, take, deadline)
        lost = sorted(wanted - {(m.partition(), m.offset()) for m in found})
        if lost:
            raise Unreadable(
                f"{topic}[{lost[0][0]}] has no record at offset {lost[0][1]} any more. Nothing was written."
            )
        return sorted(found, key=lambda m: (m.partition(), m.offset()))

    def _write(
        self, producer: Any, order: ReplayOrder, records: list[Any], to: Mapping[Place, int], deadline: float
    ) -> dict[Place, Place]:
        from confluent_kafka import KafkaException

        found: dict[Place, Place] = {}
        failed: list[Any] = []

        def told(place: Place) -> Any:
            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    found[place] = (message.partition(), message.offset())

            return delivered

        committing = False
        try:
            producer.begin_transaction()
            for m in records:
                place, (kind, at) = (m.partition(), m.offset()), m.timestamp()
                mark = (HEADER, mark_of_place(order.source, *place))
                headers = [*(h for h in m.headers() or () if h[0] != HEADER), mark]
                when = {"timestamp": at} if kind else {}
                producer.produce(
                    order.target, m.value(), m.key(), to[place], headers=headers, on_delivery=told(place), **when
                )
            producer.flush(left(deadline))
            if failed:
                raise KafkaException(failed[0])
            committing = True
            producer.commit_transaction(left(deadline))
        except KafkaException as exc:
            error = self._conn.error(exc, operation="WRITE", resource=f"topic {order.target}")
            if committing:
                raise Transient(
                    f"Whether the replay to {order.target} was committed cannot be told: {error} The next try looks."
                ) from exc
            self._abort(producer)
            raise error from exc
        return found

    @staticmethod
    def _abort(producer: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            producer.abort_transaction(5.0)
        except KafkaException:
            return  # the transaction times out by itself, and the next try's producer shuts it out

    def _ranges(self, topic: str, first_ms: int | None) -> list[TailRange]:
        """From this time on (None: from the log start) to the last stable offset of now."""
        from confluent_kafka import KafkaException, TopicPartition

        ends = known_offsets(self._conn, topic)
        starts = {p: o.log_start or 0 for p, o in ends.items()}
        if first_ms is not None:
            consumer = consumer_of(self._conn, [])
            try:
                asked = [TopicPartition(topic, p, first_ms) for p in ends]
                for tp in consumer.offsets_for_times(asked, timeout=self._conn.timeout_s):
                    if tp.error is not None:
                        raise Unreadable(f"{topic}[{tp.partition}] cannot be searched by time: {tp.error.str()}.")
                    # -1: it has no record that is as late.
                    starts[tp.partition] = tp.offset if tp.offset >= 0 else ends[tp.partition].end_committed or 0
            except KafkaException as exc:
                raise self._conn.error(exc, operation="READ", resource=f"topic {topic}") from exc
            finally:
                consumer.close()
        return [TailRange(p, starts[p], o.end_committed or 0) for p, o in ends.items()]

    def _walk(self, topic: str, ranges: list[TailRange], take: Any, deadline: float) -> None:
        why = walk(self._conn, topic, ranges, take, timeout_s=left(deadline))
        if why is not None:
            raise Unreadable(f"{why} Nothing was written.")
