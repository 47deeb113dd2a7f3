"""A producer that follows the route: it writes to the active topic, and stops when it is told to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from topicshift.boot_clock import read_now
from topicshift.client.callbacks import Callbacks
from topicshift.client.follower import (
    Routed,
    RouteError,
    RouteFollower,
    RoutePaused,
    RouteUnavailable,
    identity,
    milliseconds,
    own_principal,
)
from topicshift.core.route.client import ProducerClient, Timing
from topicshift.core.route.records import DELIVERY_TIMEOUT_S, State, Status

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
OnDelivery = Callable[[KafkaError | None, Message], None]
OnChange = Callable[[Status, str, int], None]

MAX_DELIVERY_S = 600.0
"""The longest ``delivery.timeout.ms``: a dead instance could hold a migration for as long."""

_DELIVERY = ("delivery.timeout.ms", "message.timeout.ms")
_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb")


def delivery_seconds(config: Mapping[str, Any]) -> float:
    """How long a record may stay undelivered, seconds. Raises :class:`RouteError` for what is no bound."""
    given = {k: config[k] for k in _DELIVERY if k in config}
    if len({str(v) for v in given.values()}) > 1:
        raise RouteError(f"{given} are two names of one property with two values. Give one of them.")
    name = next(iter(given), _DELIVERY[0])
    ms = milliseconds(given, name, int(DELIVERY_TIMEOUT_S * 1000))
    if ms > MAX_DELIVERY_S * 1000:
        raise RouteError(
            f"{name} is {ms}. A record must be delivered or have failed within a known time, or nobody could tell when "
            f"a dead producer has written its last: give at most {MAX_DELIVERY_S * 1000:.0f} ms."
        )
    return ms / 1000


def _refuse(config: Mapping[str, Any]) -> None:
    if config.get("transactional.id"):
        raise RouteError(
            "RoutedProducer does not run transactions: a pause could fall into the middle of one. Write a client of "
            "your own over topicshift.core.route.client, and obey the route between two transactions."
        )
    if str(config.get("delivery.report.only.error", "false")).lower() != "false":
        raise RouteError("delivery.report.only.error hides what was delivered, so a pause would never be acknowledged.")
    if "default.topic.config" in config:
        raise RouteError("default.topic.config hides what a route must know. Give its properties beside the others.")


class RoutedProducer(Routed):
    """``confluent_kafka.Producer`` behind a route: idempotent, ``acks=all``, keys placed as Java's client places them.

    Args:
        config: librdkafka producer properties, as for ``confluent_kafka.Producer``. ``transactional.id`` is refused,
            and so is a ``delivery.timeout.ms`` without a bound.
        topic: the logical topic: its name for ever, whatever topic the route points to. Without a route record it is
            the topic that is written to.
        participant: the application's name, as the spec declares it under ``producers``.
        instance: this process's name; a unique one by default.
        principal: the Kafka principal; ``User:<sasl.username>`` by default. The write fence spares it.
        on_pause: what :meth:`produce` does while the route is paused: ``block`` or ``raise``.
        max_block_s: how long it blocks, seconds, before it raises :class:`RoutePaused`.
        on_change: called as ``on_change(status, topic, epoch)`` when this producer stops or goes on.
        timing: the protocol's numbers, for tests.

    Thread-safe. All callbacks of the application (``on_delivery``, ``on_change``, those in ``config``) run in one
    thread of their own; they may call :meth:`produce`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        participant: str,
        *,
        instance: str | None = None,
        principal: str | None = None,
        on_pause: Literal["block", "raise"] = "block",
        max_block_s: float = 300.0,
        on_change: OnChange | None = None,
        timing: Timing | None = None,
    ) -> None:
        _refuse(config)
        delivery_s = delivery_seconds(config)
        who = identity(topic, "producer", participant, instance, None, principal or own_principal(config))
        left_out = (*_DELIVERY, "acks", "request.required.acks", "on_delivery")
        self._callbacks = Callbacks(f"topicshift-callbacks-{topic}")
        merged: dict[str, Any] = {
            "partitioner": "murmur2_random",
            **{k: v for k, v in config.items() if k not in left_out},
            **{k: self._later(config[k]) for k in _CALLBACKS if callable(config.get(k))},
            "delivery.timeout.ms": int(delivery_s * 1000),
            "enable.idempotence": True,
            "acks": "all",
            "allow.auto.create.topics": False,  # a target made by a broker's defaults would have the wrong shape
        }
        self._producer = Producer(merged, logger=_client_log)
        self._on_delivery: OnDelivery | None = config.get("on_delivery")
        self._block = on_pause == "block"
        self._max_block_s = max_block_s
        self._on_change = on_change
        self._client: ProducerClient = ProducerClient(who, replace(timing or Timing(), delivery_s=delivery_s))
        self._gate = threading.Condition()
        self._inside = 0
        self._undelivered = 0
        self._last: dict[str, dict[int, int]] = {}
        self._fatal: KafkaError | None = None
        self._closed = False
        self._prepare_due = False
        self._follower = RouteFollower(config, self._client, self._gate, self._turn, self._offsets)
        self._follower.start()

    # -------------------------------------------------------------------------------------------- public

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the route has been read, and this instance has reported. Raises :class:`RouteUnavailable`."""

        def ready() -> bool:
            return self._client.status is not Status.BLIND or self._closed or bool(self._follower.dead)

        with self._gate:
            if self._gate.wait_for(ready, timeout_s) and not self._follower.dead:
                return
        raise RouteUnavailable(
            f"The route of {self._client.who.logical} could not be read and acknowledged within {timeout_s:g} s "
            f"({self._problem()}), so where to write is unknown. Check the brokers' address and the rights: READ on "
            "__topicshift_routes, WRITE on __topicshift_acks."
        )

    def produce(
        self,
        key: str | bytes | None,
        value: str | bytes | None,
        headers: Headers | None = None,
        on_delivery: OnDelivery | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> str:
        """Hand over a record for the active topic; returns that topic's name.

        Blocks while the route is paused or the local queue is full. Raises :class:`RoutePaused` (nothing was taken,
        try again) and :class:`RouteError` after a fatal error or :meth:`close`. ``on_delivery(error, message)`` says
        what became of the record.
        """
        deadline = time.monotonic() + self._max_block_s
        arguments: dict[str, Any] = {"on_delivery": self._delivery(on_delivery or self._on_delivery)}
        if headers is not None:
            arguments["headers"] = list(headers.items() if isinstance(headers, Mapping) else headers)
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms
        while True:
            topic, taken = self._enter(deadline), 0
            try:
                self._producer.produce(topic, value, key, **arguments)
                taken = 1
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise RoutePaused(
                        f"The producer's queue has been full for {self._max_block_s:g} s: the brokers do not take "
                        f"records for {topic} fast enough. Nothing was taken."
                    ) from None
            finally:
                self._leave(taken)
            # Full: let deliveries through, and ask for admission anew, for the route may change while this waits.
            self._producer.poll(0.05)
        self._producer.poll(0)
        return topic

    def poll(self, timeout_s: float = 0.0) -> int:
        """Learn what was delivered, for up to ``timeout_s`` seconds; how many records it was."""
        return int(self._producer.poll(timeout_s))

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything handed over is delivered or has failed, and its callbacks have run.

        Returns how many records are left undelivered.
        """
        began = time.monotonic()
        left = int(self._producer.flush() if timeout_s is None else self._producer.flush(timeout_s))
        self._callbacks.wait(None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began)))
        return left

    def close(self, timeout_s: float = 35.0) -> int:
        """Take no more records, flush, say good-bye. Returns how many records were left undelivered. Idempotent."""
        deadline = time.monotonic() + timeout_s
        with self._gate:
            if self._closed:
                return 0
            self._closed = True
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._inside == 0, timeout_s)
        left = self.flush(max(0.0, deadline - time.monotonic()))
        with self._gate:
            # With records still under way this instance may yet write: then it leaves without a good-bye.
            last = self._client.good_bye(read_now(), self._offsets()) if left == 0 else None
        self._follower.stop(last)
        self._callbacks.close(max(0.0, deadline - time.monotonic()))
        return left

    def __enter__(self) -> RoutedProducer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- the gate

    def _enter(self, deadline: float) -> str:
        """Wait until a record is admitted; the caller must decrement ``_inside`` when it has handed it over."""
        with self._gate:
            while True:
                self._require_open()
                topic = None if self._callbacks.full else self._client.admit(read_now())
                if topic is not None:
                    self._inside += 1
                    return topic
                left = deadline - time.monotonic()
                if not self._block or left <= 0:
                    raise RoutePaused(self._why_paused())
                self._gate.wait(min(left, 0.1))

    def _leave(self, taken: int) -> None:
        """The counterpart of :meth:`_enter`; ``taken`` is how many records the local queue has taken since."""
        with self._gate:
            self._undelivered += taken
            self._inside -= 1
            if self._inside == 0 and not self._client.admits:
                self._follower.wake()

    def _require_open(self) -> None:
        logical = self._client.who.logical
        if self._closed:
            raise RouteError(f"This producer for {logical} is closed.")
        if self._fatal is not None:
            raise RouteError(f"This producer can go on no more: {self._fatal.str()}. Make a new one.")
        if self._follower.dead or not self._follower.alive():
            raise RouteError(
                f"Nobody follows the route of {logical} in this process any more "
                f"({self._follower.dead or 'it was forked'}), so nothing is written. Make a new producer."
            )

    def _why_paused(self) -> str:
        client, logical = self._client, self._client.who.logical
        if self._callbacks.full:
            return f"The application's callbacks of {logical} are so late that too many wait. Nothing was written."
        if client.status is Status.PAUSED:
            return f"The route of {logical} is paused at epoch {client.epoch}: its topic moves. Nothing was written."
        return (
            f"The route of {logical} cannot be read and acknowledged ({self._problem()}), and a pause may be in "
            "force. Nothing was written."
        )

    def _problem(self) -> str:
        return self._follower.dead or self._client.problem or "no answer yet"

    def _delivery(self, on_delivery: OnDelivery | None) -> OnDelivery:
        def done(error: KafkaError | None, message: Message) -> None:
            with self._gate:
                self._undelivered -= 1
                if error is None:
                    offset = message.offset()
                    if offset is not None:
                        self._last.setdefault(message.topic() or "", {})[message.partition() or 0] = offset
                elif error.fatal():
                    self._fatal = error
            if on_delivery is not None:
                self._callbacks.submit(on_delivery, error, message)

        return done

    def _later(self, callback: Callable[..., object]) -> Callable[..., None]:
        return lambda *args: self._callbacks.submit(callback, *args)

    # -------------------------------------------------------------------------------------------- route thread

    def _turn(self) -> None:
        self._producer.poll(0)
        if self._prepare_due and self._client.status is Status.PAUSED:  # the pause is acknowledged by now
            self._prepare()
        self._advance()
        if self._client.status is Status.FLUSHING:
            self._hurry()
            self._advance()
            if self._client.status is Status.FLUSHING:
                self._follower.wake()

    def _advance(self) -> None:
        with self._gate:
            client = self._client
            changed = client.advance(read_now(), flushed=self._inside == 0 and self._undelivered <= 0)
            if not changed:
                return
            self._prepare_due = client.status is Status.PAUSED
            self._gate.notify_all()
        log.info("%s is %s on %s at epoch %d", self.instance, client.status, client.topic, client.epoch)
        if self._on_change is not None:
            self._callbacks.submit(self._on_change, client.status, client.topic, client.epoch)

    def _hurry(self) -> None:
        """Push out what is queued, without linger, or let a record that was admitted before the pause get in."""
        try:
            if self._inside == 0:
                self._producer.flush(0.05)
            else:
                self._producer.poll(0.005)
        except KafkaException as exc:
            log.warning("Flushing %s: %s", self.instance, exc)

    def _prepare(self) -> None:
        """Fetch the target's metadata while paused, so that the first record there does not wait for it."""
        self._prepare_due, route = False, self._client.route
        if route is None or route.state is not State.PAUSED or not route.target:
            return
        try:
            self._producer.list_topics(route.target, timeout=1.0)
        except KafkaException as exc:
            log.info("%s is not known yet: %s", route.target, exc.args[0].str())

    def _offsets(self) -> Mapping[int, int]:
        return self._last.get(self._client.topic, {})
