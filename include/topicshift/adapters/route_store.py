"""The route in Kafka, for the orchestrator's side: read both topics to their end, change a route by compare-and-set.

Nothing here joins a group or commits an offset; clients stay warm between calls: a pause lies inside the freeze.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic, OffsetSpec  # type: ignore[attr-defined]

from topicshift.adapters.kafka.connection import Connection
from topicshift.core.errors import (
    AccessDenied,
    AmbiguousState,
    NotFound,
    Refused,
    TopicshiftError,
    Transient,
    Unreadable,
)
from topicshift.core.route.records import (
    ACKS_TOPIC,
    CLOCK_KEY,
    ROUTES_TOPIC,
    Ack,
    Route,
    RouteFormatError,
    parse_ack,
    parse_route,
    serialise_route,
    utc_text,
)

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")

TRANSACTION_TIMEOUT_MS = 10_000
"""A transaction left open by an orchestrator that died hides newer routes for so long at most."""

TRANSACTIONAL_ID_PREFIX = "topicshift-route-"
"""Prefix of the transactional ids; the orchestrator needs WRITE and DESCRIBE on it."""

_WRITER = "writer"
"""Header of a route record: random per write, so that a writer recognises its own record after an open outcome."""

_TOPIC_CONFIGS: dict[str, dict[str, str]] = {
    ROUTES_TOPIC: {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"},
    ACKS_TOPIC: {
        # Heartbeats pile up: small segments, compacted often, and instances that are long gone leave at last.
        "cleanup.policy": "compact,delete",
        "retention.ms": str(7 * 86_400_000),
        "segment.ms": "600000",
        "max.compaction.lag.ms": "600000",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "600000",
        "message.timestamp.type": "LogAppendTime",
    },
}


@dataclass
class _Log:
    """What was read of one topic so far; ``next`` is the offset to read next, None before it is assigned."""

    topic: str
    next: int | None = None
    routes: dict[str, Route] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    acks: dict[str, Ack] = field(default_factory=dict)

    writers: dict[str, bytes] = field(default_factory=dict)

    def forget(self, position: int | None) -> None:
        """Start over at this offset, or wait until the topic exists."""
        self.next = position
        for table in (self.routes, self.bad, self.acks, self.writers):
            table.clear()

    def take(self, message: Message) -> None:
        key = (message.key() or b"").decode("utf-8", "replace")
        value = message.value()
        if self.topic == ROUTES_TOPIC:
            self.routes.pop(key, None)
            self.bad.pop(key, None)
            if value is not None:
                try:
                    self.routes[key] = parse_route(value, key)
                    self.writers[key] = _writer_of(message)
                except RouteFormatError as exc:
                    self.bad[key] = str(exc)
        elif key != CLOCK_KEY:
            if value is None:
                self.acks.pop(key, None)
                return
            try:
                self.acks[key] = parse_ack(value, message.timestamp()[1])
            except RouteFormatError as exc:
                log.warning("The record %r of %s is no acknowledgement and is passed over: %s", key, ACKS_TOPIC, exc)


class RouteStore:
    """Routes and acknowledgements of one cluster. Thread-safe; every call is bounded by ``timeout_s`` per request.

    ``config`` is a librdkafka client config (see :func:`topicshift.adapters.kafka.connection.client_config`).
    Rights needed: READ and WRITE on both topics (CREATE too, unless they exist), WRITE and DESCRIBE on transactional
    ids with the prefix :data:`TRANSACTIONAL_ID_PREFIX`. Reading alone needs READ only.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_s: float = 10.0) -> None:
        self._connection = Connection(config, timeout_s)
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._consumer: Consumer | None = None
        self._logs = {t: _Log(t) for t in (ROUTES_TOPIC, ACKS_TOPIC)}
        self._writers: dict[str, Producer] = {}
        self._clock_ahead: float | None = None
        self._clock_known = False

    # -------------------------------------------------------------------------------------------- reading

    def read(self, logical: str) -> Route | None:
        """The route of a logical topic as of now, or None if there is none.

        Raises ``Unreadable`` when the topic cannot be read to its end, or when the record is not understood.
        """
        return self.read_all(only=logical).get(logical)

    def read_all(self, only: str | None = None) -> dict[str, Route]:
        """Every route, by logical topic. Raises ``Unreadable``, also for a record that is not understood."""
        with self._lock:
            self._catch_up(ROUTES_TOPIC)
            routes = self._logs[ROUTES_TOPIC]
            bad = routes.bad if only is None else {k: v for k, v in routes.bad.items() if k == only}
            for logical, why in sorted(bad.items()):
                raise Unreadable(
                    f"The route of {logical} in {ROUTES_TOPIC} is not understood: {why}. Whether its producers may "
                    "write is unknown. Write it again with `topicshift route set`, or upgrade."
                )
            return dict(routes.routes)

    def acks(self, logical: str) -> list[Ack]:
        """The latest acknowledgement of every instance of a logical topic, with the broker's time of each.

        Raises ``Unreadable`` when the topic cannot be read to its end; no topic at all gives an empty list.
        """
        return [a for a in self.all_acks() if a.logical == logical]

    def all_acks(self) -> list[Ack]:
        """The latest acknowledgement of every instance of every logical topic. Raises ``Unreadable``."""
        with self._lock:
            self._catch_up(ACKS_TOPIC)
            return list(self._logs[ACKS_TOPIC].acks.values())

    def exists(self, topic: str) -> bool:
        """Whether the brokers know this topic; never creates one. Raises ``Unreadable``."""
        with self._lock:
            return self._exists(topic)

    def clock_ahead(self) -> float | None:
        """By how many seconds this machine's clock runs ahead of the broker that stamps acknowledgements.

        Learnt once, by writing one record. None where that cannot be done: there is no acks topic, or no right.
        """
        with self._lock:
            if not self._clock_known:
                self._clock_ahead = self._ask_clock()
                self._clock_known = self._clock_ahead is not None
            return self._clock_ahead

    def _ask_clock(self) -> float | None:
        if self._end(ACKS_TOPIC) is None:
            return None
        producer = self._new_producer({"acks": "1"})
        stamps: list[float] = []

        def stamped(error: KafkaError | None, message: Message) -> None:
            if error is None:
                stamps.append(message.timestamp()[1] / 1000)

        # The first record pays for the connection; the second one's round trip is short, and its middle is the time.
        for _ in range(2):
            stamps.clear()
            before = time.time()
            producer.produce(ACKS_TOPIC, key=CLOCK_KEY, value=json.dumps({"v": 1}), on_delivery=stamped)
            producer.flush(self._timeout_s)
            after = time.time()
        return (before + after) / 2 - stamps[0] if stamps else None

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "client.id": "topicshift-route",
                    **self._connection.config,
                    "group.id": "topicshift-route-reader",  # librdkafka wants one; it is never joined or committed to
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "allow.auto.create.topics": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 20,
                    "fetch.error.backoff.ms": 20,
                },
                logger=_client_log,
            )
        return self._consumer

    def _end(self, topic: str) -> int | None:
        """The last stable offset of the topic's one partition; None if the topic does not exist."""
        partition = TopicPartition(topic, 0)
        deadline = time.monotonic() + self._timeout_s
        while True:
            future = self._connection.native.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout_s,
            )[partition]
            try:
                return int(self._connection.result(future, operation="READ", resource=f"topic {topic}").offset)
            except AccessDenied:
                raise
            except TopicshiftError as exc:
                # "No leader" has two reasons: there is no such topic, or it has no leader just now.
                if not self._exists(topic):
                    return None
                if time.monotonic() > deadline:
                    raise Transient(f"{topic} has no leader for its partition: {exc} Try again.") from None
                time.sleep(0.05)

    def _exists(self, topic: str) -> bool:
        from confluent_kafka import TopicCollection

        native = self._connection.native
        future = native.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)[topic]
        try:
            self._connection.result(future, operation="DESCRIBE", resource=f"topic {topic}")
        except NotFound:
            return False
        return True

    def _catch_up(self, topic: str) -> None:
        """Read the topic to the end it has now. Raises ``Unreadable``."""
        state = self._logs[topic]
        end = self._end(topic)
        if end is None:
            state.forget(None)
            self._assign()
            return
        if state.next is None or end < state.next:  # not read yet, or the topic was deleted and made again
            state.forget(0)
            for other in self._logs.values():
                # Both in one assignment: a topic that is added later waits a second for its leader to be known.
                if other.next is None and self._end(other.topic) is not None:
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
            if message is not None:
                self._take(message)

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

    # -------------------------------------------------------------------------------------------- writing

    def ensure_topics(self) -> bool:
        """Create both topics where they are missing; whether one was made. Idempotent; raises typed errors.

        One partition, replication min(3, brokers), min.insync.replicas one less than that (at least 1).
        """
        with self._lock:
            missing = [t for t in (ROUTES_TOPIC, ACKS_TOPIC) if self._end(t) is None]
            if not missing:
                return False
            native = self._connection.native
            cluster = self._connection.result(
                native.describe_cluster(request_timeout=self._timeout_s), operation="DESCRIBE", resource="the cluster"
            )
            replicas = min(3, max(1, len(cluster.nodes)))
            insync = {"min.insync.replicas": str(max(1, replicas - 1))}
            wanted = [NewTopic(t, 1, replicas, config={**_TOPIC_CONFIGS[t], **insync}) for t in missing]
            for topic, future in native.create_topics(wanted, request_timeout=self._timeout_s).items():
                try:
                    self._connection.result(future, operation="CREATE", resource=f"topic {topic}")
                except Refused as exc:
                    if "ALREADY_EXISTS" not in str(exc):
                        raise
            deadline = time.monotonic() + self._timeout_s
            while any(self._end(t) is None for t in missing):
                if time.monotonic() > deadline:
                    raise Transient(f"{', '.join(missing)} were created but have no leader yet. Try again.")
                time.sleep(0.05)
            return True

    def warm(self, logical: str) -> None:
        """Open what a write needs (topics, connections, the transactional id), so that the write itself is quick."""
        with self._lock:
            self.ensure_topics()
            self._writer(logical)
            self._catch_up(ROUTES_TOPIC)

    def write(self, route: Route, expect_epoch: int | None, *, not_after: datetime | None = None) -> None:
        """Write the route if the one in Kafka has the epoch ``expect_epoch`` (None or 0: there is none).

        The transactional id of the logical topic is initialised anew by each writer, which fences every earlier one;
        then the topic is read to its end, compared, and the record committed. A fenced writer reads again and compares.
        Raises ``Refused`` when another epoch is there, or when it is ``not_after`` before it could be tried (a lease is
        about to end), and ``AmbiguousState`` when the commit cannot be confirmed.
        """
        expected = expect_epoch or 0
        if route.epoch < max(expected, 1):
            raise Refused(f"A route never goes back: epoch {route.epoch} is lower than the {expected} it replaces.")
        with self._lock:
            self.ensure_topics()
            deadline = time.monotonic() + 3 * self._timeout_s
            tried: BaseException | None = None
            mark = secrets.token_bytes(8)
            while True:
                try:
                    self._put(route, expected, mark, not_after)
                    return
                except KafkaException as exc:
                    # Fenced, or the outcome is open. A new writer settles any unfinished transaction of this id.
                    self._writers.pop(route.logical, None)
                    tried = tried or exc
                    if time.monotonic() < deadline and _worth_another_try(exc):
                        log.info("Writing the route of %s again after: %s", route.logical, exc)
                        continue
                    what = f"the route of {route.logical} in {ROUTES_TOPIC}"
                    error: TopicshiftError = self._connection.error(exc, operation="WRITE", resource=what)
                except Transient as exc:
                    if tried is None:
                        raise
                    error = exc
                if isinstance(error, Transient):
                    raise AmbiguousState(
                        f"Whether epoch {route.epoch} of the route of {route.logical} was written cannot be told: "
                        f"{error} Read the route before anything else is done."
                    ) from tried
                raise error

    def _put(self, route: Route, expected: int, mark: bytes, not_after: datetime | None = None) -> None:
        writer = self._writer(route.logical)
        have = self.read(route.logical)
        if self._logs[ROUTES_TOPIC].writers.get(route.logical) == mark:
            return  # an earlier try was committed after all
        if (have.epoch if have else 0) != expected:
            raise Refused(
                f"The route of {route.logical} is at epoch {have.epoch if have else 0}, not {expected}: somebody "
                "changed it meanwhile. Nothing was written. Read it again and decide anew."
            )
        if not_after is not None and datetime.now(UTC) >= not_after:
            raise Refused(
                f"Epoch {route.epoch} of the route of {route.logical} could not be written by {utc_text(not_after)}: "
                "the lease of its pause is about to end. Nothing was written."
            )
        self._commit(writer, route, mark)

    def _commit(self, writer: Producer, route: Route, mark: bytes) -> None:
        failed: list[KafkaError] = []
        writer.begin_transaction()
        writer.produce(
            ROUTES_TOPIC,
            partition=0,
            key=route.logical.encode(),
            value=serialise_route(route),
            headers=[(_WRITER, mark)],
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        writer.commit_transaction(self._timeout_s)
        if failed:
            raise KafkaException(failed[0])
        self._wait_visible(route)

    def _wait_visible(self, route: Route) -> None:
        """Wait until the committed record can be read: the coordinator answers before its marker is in the topic.

        Without this the next read of this process could miss its own write, and decide on the route before it.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._catch_up(ROUTES_TOPIC)
            seen = self._logs[ROUTES_TOPIC].routes.get(route.logical)
            if seen is not None and seen.epoch >= route.epoch:
                return
            if time.monotonic() > deadline:
                raise Transient(
                    f"Epoch {route.epoch} of the route of {route.logical} is written but cannot be read yet. Clients "
                    "do not see it either. Read it again."
                )
            time.sleep(0.002)

    def _writer(self, logical: str) -> Producer:
        writer = self._writers.get(logical)
        if writer is None:
            writer = self._new_producer(
                {
                    "transactional.id": f"{TRANSACTIONAL_ID_PREFIX}{logical}",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                }
            )
            try:
                writer.init_transactions(self._timeout_s)
            except KafkaException as exc:
                resource = f"transactional id {TRANSACTIONAL_ID_PREFIX}{logical}"
                raise self._connection.error(exc, operation="WRITE", resource=resource) from exc
            self._writers[logical] = writer
        return writer

    def _new_producer(self, settings: Mapping[str, Any]) -> Producer:
        return Producer(
            {
                "client.id": "topicshift-route",
                **self._connection.config,
                "acks": "all",
                "linger.ms": 0,
                **settings,
            },
            logger=_client_log,
        )

    def close(self) -> None:
        """Let all connections go. Idempotent."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
            self._writers.clear()
            self._connection.close()

    def __enter__(self) -> RouteStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _writer_of(message: Message) -> bytes:
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]
    return dict(headers).get(_WRITER) or b""


def _worth_another_try(exc: KafkaException) -> bool:
    error: KafkaError = exc.args[0]
    return error.name() not in {
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
    }
