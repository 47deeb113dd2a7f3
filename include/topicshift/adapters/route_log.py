"""The two topics of the route, read to their end: what lies in them, as it was judged."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.route_topics import RouteTopics
from topicshift.core.errors import AccessDenied, TopicshiftError, Transient
from topicshift.core.route.records import (
    ACKS_TOPIC,
    CLOCK_KEY,
    ROUTES_TOPIC,
    Ack,
    BadAck,
    Route,
    RouteFormatError,
    parse_route,
    read_ack,
)
from topicshift.core.route.topics import READER

log = logging.getLogger(__name__)
client_log = logging.getLogger("topicshift.librdkafka")

_AT_ONCE = 1000
"""Records that are taken from the client at once, where so many have come."""

WRITER = "writer"
"""Header of a route record: random per write, so that a writer recognises its own record after an open outcome."""


def stamp_of(message: Message) -> int | None:
    """The broker's stamp on a record, ms; None where the topic is not stamped by the brokers."""
    kind, at = message.timestamp()
    return int(at) if kind == TIMESTAMP_LOG_APPEND_TIME else None


@dataclass
class TopicLog:
    """What was read of one topic so far; ``next`` is the offset to read next, None before it is assigned."""

    topic: str
    next: int | None = None
    routes: dict[str, Route] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    acks: dict[bytes, Ack | BadAck] = field(default_factory=dict)
    writers: dict[str, bytes] = field(default_factory=dict)
    _unread: dict[bytes, tuple[bytes, int | None]] = field(default_factory=dict)
    """Acknowledgements by key, as the last record of each has them: value and the broker's stamp in ms."""

    def forget(self, position: int | None) -> None:
        """Start over at this offset, or wait until the topic exists."""
        self.next = position
        for table in (self.routes, self.bad, self.acks, self.writers, self._unread):
            table.clear()

    def take(self, message: Message) -> None:
        """Take in a record, whatever its bytes are. What acknowledgements say is worked out by :meth:`judge`."""
        key, value = message.key() or b"", message.value()
        if key == CLOCK_KEY.encode():
            return
        if self.topic == ROUTES_TOPIC:
            self._route(key.decode("utf-8", "replace"), value, message)
            return
        if value is None:
            self.acks.pop(key, None)
            self._unread.pop(key, None)
            return
        self._unread[key] = value, stamp_of(message)

    def judge(self) -> None:
        """Work out what the newest acknowledgement of each instance says: of many heartbeats it alone counts."""
        for key, (value, stamp) in self._unread.items():
            ack = read_ack(key, value, stamp)
            if ack is None:
                self.acks.pop(key, None)
                continue
            if isinstance(ack, BadAck):
                log.warning("The acknowledgement of %s/%s is not understood: %s", ack.logical, ack.instance, ack.why)
            self.acks[key] = ack
        self._unread.clear()

    def _route(self, key: str, value: bytes | None, message: Message) -> None:
        have = self.routes.pop(key, None)
        self.bad.pop(key, None)
        if value is None:
            return
        try:
            seen = parse_route(value, key, stamp_of(message))
        except RouteFormatError as exc:
            self.bad[key] = str(exc)
            return
        # The highest epoch is the truth wherever it lies, as it is for clients.
        self.routes[key] = seen if have is None or seen.epoch >= have.epoch else have
        if self.routes[key] is seen:
            self.writers[key] = writer_of(message)


class RouteLog:
    """Both topics, as far as they were read; kept between calls, and read on from there. For one thread at a time.

    Nothing here joins a group or commits an offset.
    """

    def __init__(self, connection: Connection, topics: RouteTopics) -> None:
        self._connection = connection
        self._topics = topics
        self._timeout_s = connection.timeout_s
        self._consumer: Consumer | None = None
        self._logs = {t: TopicLog(t) for t in (ROUTES_TOPIC, ACKS_TOPIC)}

    @property
    def routes(self) -> TopicLog:
        """What was read of the routes topic."""
        return self._logs[ROUTES_TOPIC]

    @property
    def acks(self) -> TopicLog:
        """What was read of the acks topic."""
        return self._logs[ACKS_TOPIC]

    def close(self) -> None:
        """Let the connection go. Idempotent."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _reader(self) -> Consumer:
        if self._consumer is None:
            settings = {"client.id": "topicshift-route", **self._connection.config, **READER}
            settings |= {"group.id": "topicshift-route-reader", "fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 20}
            self._consumer = Consumer(settings, logger=client_log)
        return self._consumer

    def end(self, topic: str, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int | None:
        """The end of the topic's one partition, the last stable offset by default; None if there is no such topic."""
        partition = TopicPartition(topic, 0)
        deadline = time.monotonic() + self._timeout_s
        while True:
            future = self._connection.native.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=level,
                request_timeout=self._timeout_s,
            )[partition]
            try:
                return int(self._connection.result(future, operation="READ", resource=f"topic {topic}").offset)
            except AccessDenied:
                raise
            except TopicshiftError as exc:
                # "No leader" has two reasons: there is no such topic, or it has no leader just now.
                if not self._topics.exists(topic):
                    return None
                if time.monotonic() > deadline:
                    raise Transient(f"{topic} has no leader for its partition: {exc} Try again.") from None
                time.sleep(0.05)

    def catch_up(self, topic: str, *, decided: bool = False) -> None:
        """Read the topic to the end it has now. Raises ``Unreadable``.

        ``decided``: to the high watermark, so that no open transaction hides a record; the broker ends one within
        10 to 20 s.
        """
        state = self._logs[topic]
        end = self.end(topic, IsolationLevel.READ_UNCOMMITTED if decided else IsolationLevel.READ_COMMITTED)
        if end is None:
            state.forget(None)
            self._assign()
            return
        if state.next is None or end < state.next:  # not read yet, or the topic was deleted and made again
            state.forget(0)
            for other in self._logs.values():
                # Both in one assignment: a topic that is added later waits a second for its leader to be known.
                if other.next is None and self.end(other.topic) is not None:
                    other.forget(0)
            self._assign()
        deadline = time.monotonic() + self._timeout_s
        reader = self._reader()
        while (state.next or 0) < end:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Transient(
                    f"{topic} could not be read to its end within {self._timeout_s:g} s (at offset {state.next} of "
                    f"{end}). Unknown is never taken as a yes; it is asked again."
                )
            message = reader.poll(min(left, 0.05))
            for one in [] if message is None else [message, *reader.consume(_AT_ONCE, 0)]:
                self._take(one)
        state.judge()

    def _take(self, message: Message) -> None:
        error = message.error()
        state = self._logs.get(message.topic() or "")
        if error is None and state is not None:
            state.next = (message.offset() or 0) + 1
            state.take(message)
        elif error is not None and error.code() == KafkaError._PARTITION_EOF and state is not None:
            state.next = max(state.next or 0, message.offset() or 0)  # past transaction markers
        elif error is not None and error.code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError._AUTHENTICATION,
        ):
            raise self._connection.error(
                KafkaException(error), operation="READ", resource=f"topic {message.topic() or ROUTES_TOPIC}"
            )

    def _assign(self) -> None:
        parts = [TopicPartition(s.topic, 0, s.next) for s in self._logs.values() if s.next is not None]
        if parts or self._consumer is not None:
            self._reader().assign(parts)


def writer_of(message: Message) -> bytes:
    """The mark of whoever wrote a record, empty where there is none."""
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]
    return dict(headers).get(WRITER) or b""
