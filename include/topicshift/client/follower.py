"""Following the route topic: a thread without a consumer group that hands over records and knows how fresh its view is.

The thread also writes the instance's acknowledgements: hello, heartbeats, good-bye. One :class:`RouteFollower` serves
one client; :class:`~topicshift.client.producer.RoutedProducer` and :class:`~topicshift.client.consumer.RoutedConsumer`
make their own.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from topicshift.core.route.client import ConsumerView, ProducerView
from topicshift.core.route.records import (
    ACKS_TOPIC,
    HEARTBEAT_S,
    ROUTES_TOPIC,
    Ack,
    Route,
    RouteFormatError,
    Status,
    newer,
    parse_route,
    serialise_ack,
)

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")
_client_log.addHandler(logging.NullHandler())

CONFIRM_S = 1.0
"""A quiet view of the route is confirmed this often, by asking for the topic's end."""

_PREFIXES = ("sasl.", "ssl.", "security.", "socket.", "broker.address.", "enable.ssl.", "reconnect.", "client.dns.")
_NAMES = frozenset({"bootstrap.servers", "metadata.broker.list", "oauth_cb", "client.rack", "connections.max.idle.ms"})


class RouteError(RuntimeError):
    """Base of the client's errors."""


class RoutePaused(RouteError):
    """The route is paused, or cannot be read, for longer than the caller wants to wait. Nothing was written."""


class RouteUnavailable(RouteError):
    """The route could not be read at start, so where to read or write is unknown. Nothing was done."""


def connection_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a client's config that says how to reach the brokers."""
    return {k: v for k, v in config.items() if k in _NAMES or k.startswith(_PREFIXES)}


def instance_name(participant: str) -> str:
    """A name for this process that no other has: ``checkout.host.4711.9f3a``."""
    return f"{participant}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(2)}"


def own_principal(config: Mapping[str, Any]) -> str | None:
    """The Kafka principal of a SASL log-in by user name, as brokers write it by default; else None."""
    user = config.get("sasl.username")
    return f"User:{user}" if user else None


class Routed:
    """What both clients tell of themselves: where they are on the route, as they acknowledge it.

    The client keeps ``_view`` (its state as core.route_client decides it) and ``_instance``.
    """

    _view: ProducerView | ConsumerView
    _instance: str

    @property
    def topic(self) -> str:
        """The topic written or read now, or last while it is paused."""
        return self._view.topic

    @property
    def status(self) -> Status:
        """What this instance acknowledges now."""
        return self._view.status

    @property
    def epoch(self) -> int:
        """The epoch of the route it obeys; 0 without a route."""
        return self._view.epoch

    @property
    def instance(self) -> str:
        """This instance's name."""
        return self._instance


class RouteFollower:
    """Reads the route of one logical topic in a thread and calls ``step`` after each record and at least every 0.2 s.

    ``step(route)`` runs in that thread: ``route`` is a record just read, or None. It returns the acknowledgement that
    holds now; the follower writes it when it changed, and again every heartbeat. Start it with :meth:`start`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        step: Callable[[Route | None], Ack],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._topic = topic
        self._step = step
        self._heartbeat_s = heartbeat_s
        base = {"client.id": "topicshift-route", **connection_config(config)}
        self._consumer = Consumer(
            {
                **base,
                "group.id": f"topicshift-route-{topic}",  # librdkafka wants one; it is never joined or committed to
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 200,
                "fetch.error.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 10_000,
                "error_cb": self._heard,
            },
            logger=_client_log,
        )
        self._acks = Producer(
            {**base, "acks": "all", "linger.ms": 0, "delivery.timeout.ms": 10_000, "allow.auto.create.topics": False},
            logger=_client_log,
        )
        self._next: int | None = None
        self._confirmed_at: float | None = None
        self._asked_at = 0.0
        self._written: tuple[object, ...] | None = None
        self._written_at = 0.0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"topicshift-route-{topic}", daemon=True)
        self._problem = ""

    # -------------------------------------------------------------------------------------------- public

    @property
    def confirmed_age(self) -> float | None:
        """Seconds since the view of the route was last known to be complete; None if it never was."""
        return None if self._confirmed_at is None else time.monotonic() - self._confirmed_at

    @property
    def problem(self) -> str:
        """Why the route cannot be read or acknowledged just now; empty if it can."""
        return self._problem

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread call ``step`` soon, because something it looks at has changed."""
        self._wake.set()

    def stop(self, last: Ack | None = None, timeout_s: float = 5.0) -> None:
        """End the thread, write a last acknowledgement (the good-bye), and let the connections go. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if last is not None:
            self._write(last)
            self._acks.flush(timeout_s)
        if not self._thread.is_alive():
            self._consumer.close()

    # -------------------------------------------------------------------------------------------- thread

    def _heard(self, error: KafkaError) -> None:
        if error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self._problem = error.str()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                seen = self._poll(0.0 if self._wake.is_set() else 0.2)
            except KafkaException as exc:
                seen, self._problem = None, f"{ROUTES_TOPIC}: {exc.args[0].str()}"
                self._stopping.wait(0.2)
            self._wake.clear()
            try:
                self._acknowledge(self._step(seen))
            except Exception:  # the thread must not die silently: a producer without it would never pause
                log.exception("A step of the route of %s failed; it is tried again", self._topic)
                self._stopping.wait(0.2)
            self._acks.poll(0)

    def _poll(self, wait_s: float) -> Route | None:
        """The newest record that came in, if any; asks for the topic's end when the view was quiet for long.

        Only the newest of a batch is handed on: at start the batch is history, and an old pause in it, long over, must
        not open the gate for a moment before the record after it is looked at.
        """
        if self._next is None:
            self._begin()
        seen: Route | None = None
        message = self._consumer.poll(wait_s if self._confirmed_at is not None else min(wait_s, 0.02))
        while message is not None:
            route = self._take(message)
            if route is not None and newer(seen, route):
                seen = route
            message = self._consumer.poll(0)
        now = time.monotonic()
        if now - self._asked_at >= CONFIRM_S or (self._confirmed_at is None and now - self._asked_at >= 0.05):
            self._asked_at = now
            self._confirm(now)
        return seen

    def _begin(self) -> None:
        self._next = 0
        self._consumer.assign([TopicPartition(ROUTES_TOPIC, 0, 0)])

    def _take(self, message: Message) -> Route | None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next or 0, message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._begin()
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is used, so none is missed
                self._problem = f"{ROUTES_TOPIC}: {error.str()}"
            return None
        self._next = (message.offset() or 0) + 1
        value = message.value()
        if (message.key() or b"") != self._topic.encode() or value is None:
            return None
        try:
            return parse_route(value, message.key())
        except RouteFormatError as exc:
            # It is not acknowledged, so whoever wrote it sees this instance by name and does not go on.
            self._problem = f"the record at offset {message.offset()} of {ROUTES_TOPIC} is not understood: {exc}"
            log.error("The route of %s stays as it was: %s", self._topic, self._problem)
            return None

    def _confirm(self, now: float) -> None:
        """Compare what was read with the topic's end. Any failure leaves the view unconfirmed."""
        try:
            start, end = self._consumer.get_watermark_offsets(TopicPartition(ROUTES_TOPIC, 0), timeout=2.0)
        except KafkaException as exc:
            if not self._absent():
                self._problem = f"{ROUTES_TOPIC}: {exc.args[0].str()}"
                return
            self._next = None
            self._confirmed_at, self._problem = now, ""
            return
        if self._next is None or end < self._next:  # it exists since now, or was made again
            self._begin()
        elif self._next >= end or end == start:
            self._confirmed_at, self._problem = now, ""

    def _absent(self) -> bool:
        """Whether the brokers say that there is no route topic at all: then the configured topic is meant."""
        try:
            described = self._consumer.list_topics(ROUTES_TOPIC, timeout=2.0).topics.get(ROUTES_TOPIC)
        except KafkaException:
            return False
        error = described.error if described is not None else None
        return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    # -------------------------------------------------------------------------------------------- acks

    def _acknowledge(self, ack: Ack) -> None:
        what = (ack.epoch, ack.status, ack.topic)
        if what != self._written or time.monotonic() - self._written_at >= self._heartbeat_s:
            if self._write(ack):
                self._written = what
            self._written_at = time.monotonic()

    def _write(self, ack: Ack) -> bool:
        def done(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._written = None  # said again at once, with the state of then
                self._problem = f"{ACKS_TOPIC}: {error.str()}"

        try:
            self._acks.produce(ACKS_TOPIC, partition=0, key=ack.key, value=serialise_ack(ack), on_delivery=done)
        except (BufferError, KafkaException) as exc:
            self._problem = f"{ACKS_TOPIC}: {exc}"
            return False
        self._acks.poll(0)
        return True


def now_utc() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)
