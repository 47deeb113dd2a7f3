"""The thread that reads the route and writes acknowledgements, over librdkafka. What they mean is decided in
:mod:`topicshift.core.route.client`.

One :class:`RouteFollower` serves one client; :class:`~topicshift.client.producer.RoutedProducer` and
:class:`~topicshift.client.consumer.RoutedConsumer` make their own.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from topicshift.boot_clock import read_now
from topicshift.client.offsets import OffsetLookup, connection_config
from topicshift.core.kafka.rules import topic_name_problem
from topicshift.core.route.client import CONFIRM_S, Identity, Outgoing, RouteClient
from topicshift.core.route.clocks import Now
from topicshift.core.route.fields import name_problem
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC, Role, Status, serialise_ack
from topicshift.core.route.topics import READER

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")
_client_log.addHandler(logging.NullHandler())

_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_REQUEST_S = 2.0
_LAST_S = 5.0
"""Seconds for the thread to end, and for the good-bye to be written."""


def unread(error: KafkaError) -> str:
    """Why the route could not be read. To a client without a right, brokers show a topic as if it were not there."""
    rights = "; if the topic is there, this client has no READ (and so no DESCRIBE) on it"
    return f"{ROUTES_TOPIC}: {error.str()}{rights if error.code() in _MISSING else ''}"


class RouteError(RuntimeError):
    """Base of the client's errors."""


class RoutePaused(RouteError):
    """The route is paused, or the client is not in contact, for longer than the caller wants to wait. Nothing was
    written."""


class RouteUnavailable(RouteError):
    """The route could not be read at start, so where to read or write is unknown. Nothing was done."""


def identity(
    topic: str, role: Role, participant: str, instance: str | None, group: str | None, principal: str | None
) -> Identity:
    """Who this client is. Raises :class:`RouteError` for a name of which an acknowledgement would not be understood."""
    instance = instance_name(participant) if instance is None else instance
    if problem := topic_name_problem(topic) if isinstance(topic, str) else "it is no text":
        raise RouteError(f"topic is {topic!r}, which is no name of a topic: {problem}. Give the logical topic's name.")
    names = {"participant": participant, "instance": instance, "group": group, "principal": principal}
    for what, name in names.items():
        if (problem := name_problem(name)) and (name is not None or what in ("participant", "instance")):
            raise RouteError(
                f"{what} is {str(name)[:80]!r}: {problem}. Nobody would understand what this client says, and every "
                f"migration of {topic} would be held up by it. Give another name."
            )
    return Identity(topic, role, participant, instance, group, principal)


def instance_name(participant: str) -> str:
    """A name for this process that no other has: ``checkout.host.4711.9f3a``."""
    return f"{str(participant)[:300]}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(2)}"


def own_principal(config: Mapping[str, Any]) -> str | None:
    """The Kafka principal of a SASL log-in by user name, as brokers write it by default; else None."""
    user = config.get("sasl.username")
    return f"User:{user}" if user else None


def milliseconds(config: Mapping[str, Any], name: str, default: int) -> int:
    """A time-out of a client config, ms. Raises :class:`RouteError` for what is no whole number above 0."""
    value = config.get(name, default)
    try:
        ms = 0 if isinstance(value, bool) else int(str(value))
    except ValueError:
        ms = 0
    if ms <= 0:
        raise RouteError(f"{name} is {value!r}, which is no time-out in ms. Give a whole number above 0.")
    return ms


def stamp_of(message: Message) -> int | None:
    """The broker's stamp on a record, ms; None where the topic is not stamped by the brokers."""
    kind, at = message.timestamp()
    return int(at) if kind == TIMESTAMP_LOG_APPEND_TIME else None


class Routed:
    """What both clients tell of themselves: where they are on the route, as they acknowledge it."""

    _client: RouteClient

    @property
    def topic(self) -> str:
        """The topic written or read now, or last while it is paused."""
        return self._client.topic

    @property
    def status(self) -> Status:
        """What this instance acknowledges now."""
        return self._client.status

    @property
    def epoch(self) -> int:
        """The epoch of the route it has read; 0 without a route."""
        return self._client.epoch

    @property
    def instance(self) -> str:
        """This instance's name."""
        return self._client.who.instance


class RouteFollower:
    """Feeds a client from a thread of its own: reads the route, calls ``turn`` at least every 0.2 s, writes what the
    client acknowledges.

    ``lock`` guards the client. ``turn`` is called without it, in the route's thread, and must not block.
    ``offsets`` gives what stands in acknowledgements. A thread that dies leaves the reason in ``dead``.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        client: RouteClient,
        lock: threading.Condition,
        turn: Callable[[], None],
        offsets: Callable[[], Mapping[int, int]],
    ) -> None:
        self._client = client
        self._lock = lock
        self._turn = turn
        self._offsets = offsets
        topic = client.who.logical
        self._base = {"client.id": "topicshift-route", **connection_config(config)}
        self._consumer = Consumer(
            {
                **self._base,
                "group.id": f"topicshift-route-{topic}",
                **READER,
                "fetch.wait.max.ms": 1_000,
                "fetch.error.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 10_000,
                "error_cb": self._heard,
            },
            logger=_client_log,
        )
        self._acks: Producer | None = None
        self._lookup = OffsetLookup(config, read_committed=False)
        self._next: int | None = None
        self._exists: bool | None = None
        self._asking: tuple[Now, int, Future[Any]] | None = None
        self._pending: tuple[Now, int] | None = None
        self._settling: tuple[Now, Future[Any]] | None = None
        self._settle_at: tuple[Now, int] | None = None
        self._asked: Now | None = None
        self._looked_for_acks: Now | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self.dead = ""
        self._thread = threading.Thread(target=self._run, name=f"topicshift-route-{topic}", daemon=True)

    # -------------------------------------------------------------------------------------------- public

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def alive(self) -> bool:
        """Whether the thread runs. It does not in a child that was forked."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Make the thread call ``turn`` soon, because something it looks at has changed."""
        self._wake.set()

    def stop(self, last: Outgoing | None = None) -> None:
        """End the thread, write a last acknowledgement (the good-bye), and let the connections go. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_S)
        if last is not None:
            self._write(last)
            if self._acks is not None:
                self._acks.flush(_LAST_S)
        if not self._thread.is_alive():
            self._consumer.close()

    # -------------------------------------------------------------------------------------------- thread

    def _heard(self, error: KafkaError) -> None:
        if error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self._failed(error.str())

    def _failed(self, why: str) -> None:
        with self._lock:
            self._client.read_failed(why)

    def _run(self) -> None:
        why = "it ended"
        try:
            while not self._stopping.is_set():
                try:
                    self._round()
                except Exception as exc:  # one bad round is no reason to stop following
                    log.exception("A round on the route of %s failed; it is tried again", self._client.who.logical)
                    self._failed(f"{type(exc).__name__}: {exc}")
                    self._stopping.wait(0.2)
        except BaseException as exc:
            why = f"{type(exc).__name__}: {exc}"
            raise
        finally:
            with self._lock:  # nothing is admitted any more, and whoever waits is told
                self.dead = "" if self._stopping.is_set() else why
                self._lock.notify_all()

    def _round(self) -> None:
        quiet_s = 0.02 if self._client.status is Status.BLIND else 0.05 if self._client.armed else 0.2
        self._read(0.0 if self._wake.is_set() else quiet_s)
        self._wake.clear()
        self._confirm()
        self._settle()
        self._turn()
        self._acknowledge()

    # -------------------------------------------------------------------------------------------- reading

    def _read(self, wait_s: float) -> None:
        if self._next is None:
            self._begin()
        message = self._consumer.poll(wait_s)
        while message is not None:
            self._take(message)
            message = self._consumer.poll(0)

    def _begin(self) -> None:
        self._next, self._asking, self._pending, self._settle_at, self._settling = 0, None, None, None, None
        self._consumer.assign([TopicPartition(ROUTES_TOPIC, 0, 0)])

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._next = (message.offset() or 0) + 1
            with self._lock:
                self._client.record(read_now(), message.key(), message.value(), stamp_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next or 0, message.offset() or 0)  # past transaction markers
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._begin()
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is used, so none is missed
            self._failed(f"{ROUTES_TOPIC}: {error.str()}")

    def _confirm(self) -> None:
        """Ask for the topic's end every second, and tell the client once everything up to it was read.

        Asked on a connection of its own: behind a fetch that waits, the answer would hold up this thread.
        """
        now = read_now()
        pause = CONFIRM_S if self._client.is_read else 0.05
        if (
            self._pending is None
            and self._asking is None
            and (self._asked is None or now.boot - self._asked.boot >= pause)
        ):
            self._asked = now
            if not self._exists and self._absent(ROUTES_TOPIC):
                self._is_absent(now)
                return
            future = self._lookup.end(ROUTES_TOPIC, 0, committed=True, timeout_s=_REQUEST_S)
            self._asking = now, self._next or 0, future
        if self._asking is not None and self._asking[2].done():
            (asked, read, future), self._asking = self._asking, None
            try:
                end = int(future.result().offset)
            except KafkaException as exc:
                if self._absent(ROUTES_TOPIC):
                    self._is_absent(asked)
                else:
                    self._failed(unread(exc.args[0]))
                return
            if self._exists is False or end < read:  # it exists since now, or was made again
                self._begin()
            self._exists, self._pending = True, (asked, end)
        if self._pending is not None and (self._next or 0) >= self._pending[1]:
            with self._lock:
                self._client.read_ok(self._pending[0])
            self._pending = None

    def _is_absent(self, asked: Now) -> None:
        """There is no such topic, so there is no route: everything that is in it was read."""
        self._exists = False
        with self._lock:
            self._client.read_ok(asked, settled=True)

    def _settle(self) -> None:
        """At the end of a pause: ask for the high watermark, and tell the client once nothing below it is undecided."""
        now = read_now()
        with self._lock:
            wanted = self._client.wants_settled(now)
        if not wanted:
            return
        self._wake.set()  # somebody waits for it
        if self._settle_at is None and self._settling is None:
            self._settling = now, self._lookup.end(ROUTES_TOPIC, 0)
        if self._settling is not None and self._settling[1].done():
            asked, future = self._settling
            self._settling = None
            try:
                self._settle_at = asked, int(future.result().offset)
            except KafkaException as exc:
                self._failed(unread(exc.args[0]))
        if self._settle_at is not None and (self._next or 0) >= self._settle_at[1]:
            with self._lock:
                self._client.read_ok(self._settle_at[0], settled=True)
            self._settle_at = None
        self._stopping.wait(0.01)

    def _absent(self, topic: str) -> bool:
        """Whether the brokers say that there is no such topic."""
        try:
            described = self._consumer.list_topics(topic, timeout=_REQUEST_S).topics.get(topic)
        except KafkaException:
            return False
        error = described.error if described is not None else None
        return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    # -------------------------------------------------------------------------------------------- acknowledging

    def _acknowledge(self) -> None:
        now = read_now()
        with self._lock:
            out = self._client.ack(now, self._offsets())
            unheard = not self._client.is_heard(now)
        if out is not None:
            self._write(out)
        if self._acks is not None:
            self._acks.poll(0)
        if unheard and (self._looked_for_acks is None or now.boot - self._looked_for_acks.boot >= CONFIRM_S):
            first, self._looked_for_acks = self._looked_for_acks is None, now
            if not first and self._absent(ACKS_TOPIC):
                with self._lock:
                    self._client.acks_absent(now)

    def _write(self, out: Outgoing) -> None:
        def done(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                if error is None:
                    self._client.acked(out, read_now(), stamp_of(message))
                else:
                    self._client.ack_failed(out, read_now(), f"{ACKS_TOPIC}: {error.str()}")
            if error is not None and error.fatal():
                self._acks = None

        if self._acks is None:
            # Idempotent, so that an older word never lands behind a newer one.
            settings = {"enable.idempotence": True, "linger.ms": 0, "delivery.timeout.ms": 10_000}
            self._acks = Producer({**self._base, **settings, "allow.auto.create.topics": False}, logger=_client_log)
        try:
            value = serialise_ack(out.ack)
            self._acks.produce(ACKS_TOPIC, partition=0, key=out.ack.key, value=value, on_delivery=done)
        except (BufferError, KafkaException) as exc:
            self._acks = None
            with self._lock:
                self._client.ack_failed(out, read_now(), f"{ACKS_TOPIC}: {exc}")
