"""A producer that follows the route: it writes to the active topic, and stops when it is told to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from topicshift.client.follower import (
    Routed,
    RouteError,
    RouteFollower,
    RoutePaused,
    RouteUnavailable,
    instance_name,
    now_utc,
    own_principal,
)
from topicshift.core.route.client import ProducerView, advance_producer, start_producer
from topicshift.core.route.records import (
    DELIVERY_TIMEOUT_S,
    GONE_MARGIN_S,
    HEARTBEAT_S,
    STALE_S,
    Ack,
    Route,
    State,
    Status,
)

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
OnDelivery = Callable[[KafkaError | None, Message], None]
OnChange = Callable[[Status, str, int], None]


class RoutedProducer(Routed):
    """``confluent_kafka.Producer`` behind a route: idempotent, ``acks=all``, keys placed as Java's client places them.

    Args:
        config: librdkafka producer properties, as for ``confluent_kafka.Producer``. ``transactional.id`` is refused.
        topic: the logical topic: its name for ever, whatever topic the route points to. Without a route record it is
            the topic that is written to.
        participant: the application's name, as the spec declares it under ``producers``.
        instance: this process's name; a unique one by default.
        principal: the Kafka principal; ``User:<sasl.username>`` by default. The write fence spares it.
        on_pause: what :meth:`produce` does while the route is paused: ``block`` or ``raise``.
        max_block_s: how long it blocks, seconds, before it raises :class:`RoutePaused`.
        on_change: called as ``on_change(status, topic, epoch)`` when this producer stops or goes on, in the route's
            thread; for logs and metrics.

    Thread-safe. Delivery callbacks may run in the route's thread as well as in :meth:`poll` and :meth:`flush`.
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
        heartbeat_s: float = HEARTBEAT_S,
        stale_s: float = STALE_S,
    ) -> None:
        if config.get("transactional.id"):
            raise RouteError(
                "RoutedProducer does not run transactions: a pause could fall into the middle of one. "
                "Use confluent_kafka.Producer with RouteFollower, and acknowledge between two transactions."
            )
        merged: dict[str, Any] = {
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
            **{k: v for k, v in config.items() if k not in ("message.timeout.ms", "acks", "request.required.acks")},
            "enable.idempotence": True,
            "acks": "all",
            "allow.auto.create.topics": False,  # a target made by a broker's defaults would have the wrong shape
        }
        if "message.timeout.ms" in config:
            merged["delivery.timeout.ms"] = config["message.timeout.ms"]
        self._producer = Producer(merged, logger=_client_log)
        self._logical = topic
        self._participant = participant
        self._instance = instance or instance_name(participant)
        self._principal = principal or own_principal(config)
        self._block = on_pause == "block"
        self._max_block_s = max_block_s
        self._on_change = on_change
        self._heartbeat_s = heartbeat_s
        self._stale_s = stale_s
        delivery_s = float(merged["delivery.timeout.ms"]) / 1000
        self._gone_ms = int((stale_s + delivery_s + GONE_MARGIN_S) * 1000)
        self._view: ProducerView = start_producer(topic)
        self._gate = threading.Condition()
        self._inside = 0
        self._undelivered = 0
        self._last: dict[str, dict[int, int]] = {}
        self._fatal: KafkaError | None = None
        self._closed = False
        self._prepare_due = False
        self._follower = RouteFollower(config, topic, self._step, heartbeat_s=heartbeat_s)
        self._follower.start()

    # -------------------------------------------------------------------------------------------- public

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Wait until the route has been read. Raises :class:`RouteUnavailable` with the reason."""
        with self._gate:
            if self._gate.wait_for(lambda: self._view.status is not Status.BLIND or self._closed, timeout_s):
                return
        raise RouteUnavailable(
            f"The route of {self._logical} could not be read within {timeout_s:g} s "
            f"({self._follower.problem or 'no answer'}), so where to write is unknown. Check the brokers' address and "
            "the rights: READ on __topicshift_routes, WRITE on __topicshift_acks."
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
        topic = self._enter(deadline)
        try:
            arguments: dict[str, Any] = {"on_delivery": self._delivery(on_delivery)}
            if headers is not None:
                arguments["headers"] = list(headers.items() if isinstance(headers, Mapping) else headers)
            if timestamp_ms is not None:
                arguments["timestamp"] = timestamp_ms
            while True:
                try:
                    self._producer.produce(topic, value, key, **arguments)
                    break
                except BufferError:
                    # Full: let deliveries through. A pause waits for this record, which was admitted before it.
                    if time.monotonic() > deadline:
                        raise RoutePaused(
                            f"The producer's queue has been full for {self._max_block_s:g} s: the brokers do not take "
                            f"records for {topic} fast enough. Nothing was taken."
                        ) from None
                    self._producer.poll(0.05)
            self._undelivered_add(1)
        finally:
            with self._gate:
                self._inside -= 1
                if self._inside == 0 and not self._view.admits:
                    self._follower.wake()
        self._producer.poll(0)
        return topic

    def poll(self, timeout_s: float = 0.0) -> int:
        """Serve delivery callbacks for up to ``timeout_s`` seconds; how many were served."""
        return int(self._producer.poll(timeout_s))

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until everything handed over is delivered or has failed; how many are left."""
        return int(self._producer.flush() if timeout_s is None else self._producer.flush(timeout_s))

    def close(self, timeout_s: float = 35.0) -> int:
        """Take no more records, flush, say good-bye. Returns how many records were left undelivered. Idempotent."""
        with self._gate:
            if self._closed:
                return 0
            self._closed = True
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._inside == 0, timeout_s)
        left = self.flush(timeout_s)
        # With records still under way this instance may yet write: then it leaves without a good-bye.
        self._follower.stop(self._ack(Status.GONE) if left == 0 else None)
        return left

    def __enter__(self) -> RoutedProducer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- the gate

    def _enter(self, deadline: float) -> str:
        """Wait until records are admitted; the caller must decrement ``_inside`` when it has handed one over."""
        with self._gate:
            while True:
                if self._closed:
                    raise RouteError(f"This producer for {self._logical} is closed.")
                if self._fatal is not None:
                    raise RouteError(f"This producer can go on no more: {self._fatal.str()}. Make a new one.")
                if self._view.admits:
                    self._inside += 1
                    return self._view.topic
                left = deadline - time.monotonic()
                if not self._block or left <= 0 or not self._gate.wait(left):
                    if self._view.admits and left > 0:
                        continue
                    raise RoutePaused(self._why_paused())

    def _why_paused(self) -> str:
        view = self._view
        if view.status is Status.BLIND:
            return (
                f"The route of {self._logical} cannot be read ({self._follower.problem or 'no answer yet'}), and "
                "a pause may be in force. Nothing was written."
            )
        until = view.route.lease_until if view.route else None
        return (
            f"The route of {self._logical} is paused at epoch {view.epoch}, until {until} at the latest: its topic is "
            "being moved. Nothing was written."
        )

    def _delivery(self, on_delivery: OnDelivery | None) -> OnDelivery:
        def done(error: KafkaError | None, message: Message) -> None:
            self._undelivered_add(-1)
            if error is None:
                offset = message.offset()
                if offset is not None:
                    self._last.setdefault(message.topic() or "", {})[message.partition() or 0] = offset
            elif error.fatal():
                self._fatal = error
            if on_delivery is not None:
                on_delivery(error, message)

        return done

    def _undelivered_add(self, n: int) -> None:
        with self._gate:
            self._undelivered += n

    # -------------------------------------------------------------------------------------------- route thread

    def _step(self, seen: Route | None) -> Ack:
        before = self._view
        if self._prepare_due and before.status is Status.PAUSED:
            self._prepare_due = False
            self._prepare(before)
        view = self._advance(seen)
        if view.status is Status.FLUSHING:
            if before.admits:
                self._tell(view)
            self._hurry()
            view = self._advance(None)
            if view.status is Status.FLUSHING:
                self._follower.wake()
        if (view.status, view.topic) != (before.status, before.topic) and view.status is not Status.FLUSHING:
            self._tell(view)
            self._prepare_due = view.status is Status.PAUSED
        return self._ack(view.status)

    def _advance(self, seen: Route | None) -> ProducerView:
        age = self._follower.confirmed_age
        blind = age is None or age > self._stale_s
        with self._gate:
            flushed = self._inside == 0 and self._undelivered <= 0
            before = self._view
            self._view = advance_producer(before, seen, now_utc(), blind=blind, flushed=flushed)
            if self._view.status is not before.status:
                self._gate.notify_all()
            return self._view

    def _tell(self, view: ProducerView) -> None:
        log.info("%s is %s on %s at epoch %d", self._instance, view.status, view.topic, view.epoch)
        if self._on_change is not None:
            self._on_change(view.status, view.topic, view.epoch)

    def _hurry(self) -> None:
        """Push out what is queued, without linger, or let a record that was admitted before the pause get in."""
        try:
            if self._inside == 0:
                self._producer.flush(0.05)
            else:
                self._producer.poll(0.005)
        except KafkaException as exc:
            log.warning("Flushing %s: %s", self._instance, exc)

    def _prepare(self, view: ProducerView) -> None:
        """Fetch the target's metadata while paused, so that the first record there does not wait for it."""
        route = view.route
        if route is not None and route.state is State.PAUSED and route.target:
            try:
                self._producer.list_topics(route.target, timeout=1.0)
            except KafkaException as exc:
                log.info("%s is not known yet: %s", route.target, exc.args[0].str())

    def _ack(self, status: Status) -> Ack:
        view = self._view
        return Ack(
            self._logical,
            "producer",
            self._participant,
            self._instance,
            status,
            view.epoch,
            view.topic,
            principal=self._principal,
            offsets=dict(self._last.get(view.topic, {})),
            at=now_utc(),
            heartbeat_ms=int(self._heartbeat_s * 1000),
            gone_ms=self._gone_ms,
            reason=self._follower.problem,
        )
