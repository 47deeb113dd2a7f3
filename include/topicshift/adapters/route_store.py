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
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.route_log import WRITER, RouteLog, client_log, stamp_of
from topicshift.adapters.route_topics import RouteTopics
from topicshift.boot_clock import read_now
from topicshift.core.errors import AmbiguousState, Refused, TopicshiftError, Transient, Unreadable
from topicshift.core.route.clocks import BrokerTime, Now, elapsed
from topicshift.core.route.records import (
    ACKS_TOPIC,
    CLOCK_KEY,
    MAX_AHEAD_S,
    ROUTES_TOPIC,
    Ack,
    BadAck,
    Route,
    ack_key,
    serialise_route,
)

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 10_000
"""A transaction left open by an orchestrator that died hides newer routes for so long at most."""

TRANSACTIONAL_ID_PREFIX = "topicshift-route-"
"""Prefix of the transactional ids; the orchestrator needs WRITE and DESCRIBE on it."""

CLOCK_GOOD_S = 5.0
"""The brokers' time is asked for again after so many seconds."""


class RouteStore:
    """Routes and acknowledgements of one cluster. Thread-safe; every call is bounded by ``timeout_s`` per request.

    ``config`` is a librdkafka client config (see :func:`topicshift.adapters.kafka.connection.client_config`).
    Rights needed: READ, WRITE and DESCRIBE_CONFIGS on both topics (CREATE too, unless they exist, and ALTER_CONFIGS to
    mend them), WRITE and DESCRIBE on transactional ids with the prefix :data:`TRANSACTIONAL_ID_PREFIX`. Reading alone
    needs READ only.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_s: float = 10.0) -> None:
        self._connection = Connection(config, timeout_s)
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._writers: dict[str, Producer] = {}
        self._topics = RouteTopics(self._connection)
        self._log = RouteLog(self._connection, self._topics)
        self._sayer: Producer | None = None
        self._brokers = BrokerTime()
        self._asked: Now | None = None

    # -------------------------------------------------------------------------------------------- reading

    def read(self, logical: str) -> Route | None:
        """The route of a logical topic as of now, or None if there is none.

        Raises ``Unreadable`` when the topic cannot be read to its end, or when the record is not understood.
        """
        routes, bad = self.read_all()
        if logical in bad:
            raise Unreadable(
                f"The route of {logical} in {ROUTES_TOPIC} is not understood: {bad[logical]}. Whether its producers "
                f"may write is unknown. Write it anew with `topicshift route set --topic {logical}`, or upgrade."
            )
        return routes.get(logical)

    def read_all(self) -> tuple[dict[str, Route], dict[str, str]]:
        """Every route by logical topic, and what is wrong with those that are not understood. Raises ``Unreadable``."""
        with self._lock:
            self._log.catch_up(ROUTES_TOPIC)
            return dict(self._log.routes.routes), dict(self._log.routes.bad)

    def all_acks(self) -> tuple[list[Ack], list[BadAck]]:
        """The latest acknowledgement of every instance of every logical topic, and those that are not understood.

        Raises ``Unreadable`` when the topic cannot be read to its end; no topic at all gives empty lists.
        """
        with self._lock:
            self._log.catch_up(ACKS_TOPIC)
            acks = self._log.acks.acks.values()
            return [a for a in acks if isinstance(a, Ack)], [a for a in acks if isinstance(a, BadAck)]

    def exists(self, topic: str) -> bool:
        """Whether the brokers know this topic; never creates one. Raises ``Unreadable``."""
        return self._topics.exists(topic)

    def broker_now(self) -> tuple[int, int]:
        """The bounds of the time of the broker that stamps acknowledgements, ms since the epoch.

        Learnt by writing a record, and again every :data:`CLOCK_GOOD_S`. Raises ``Unreadable`` where that cannot be
        done (``AccessDenied`` without WRITE): a time that is not known is never guessed.
        """
        with self._lock:
            now = read_now()
            if self._asked is None or now.boot - self._asked.boot > CLOCK_GOOD_S:
                self._ask_clock()
            now = read_now()
            least, most = self._brokers.least(now), self._brokers.most(now)
            assert least is not None and most is not None
            return least, most

    def _ask_clock(self) -> None:
        for _ in range(1 if self._asked else 2):  # the first record pays for the connection
            sent = read_now()
            stamp = self._stamp(ACKS_TOPIC)
            self._brokers.stamped(sent, read_now(), stamp)
            self._asked = sent

    def _compare_clocks(self) -> None:
        """Raises ``Refused`` where the leaders of the two topics stamp by clocks that differ."""
        least, most = self.broker_now()
        at = read_now()
        stamp = self._stamp(ROUTES_TOPIC)
        took = (read_now().boot - at.boot) * 1000
        ahead_s = max(stamp - most - took, least - stamp - 1, 0) / 1000
        if ahead_s > MAX_AHEAD_S:
            raise Refused(
                f"The brokers that lead {ROUTES_TOPIC} and {ACKS_TOPIC} have clocks that differ by {ahead_s:.1f} s at "
                "least, so clients would end a pause too early or too late. Set the brokers' clocks, then try again."
            )

    def _stamp(self, topic: str) -> int:
        stamp = stamp_of(self._say(topic, CLOCK_KEY, json.dumps({"v": 1}).encode()))
        if stamp is None:
            raise Unreadable(
                f"{topic} is not stamped by the brokers (message.timestamp.type is not LogAppendTime), so their time "
                "and the age of what lies in it are unknown. Mend it: topicshift route init."
            )
        return stamp

    def _say(self, topic: str, key: str, value: bytes | None) -> Message:
        """Write a record and wait until it is taken. Raises typed errors."""
        if self._log.end(topic) is None:
            raise Unreadable(
                f"There is no topic {topic}, so nobody can report or follow. Make it: topicshift route init."
            )
        if self._sayer is None:
            self._sayer = self._new_producer({"delivery.timeout.ms": int(self._timeout_s * 1000)})
        came: list[tuple[KafkaError | None, Message]] = []
        try:
            self._sayer.produce(topic, partition=0, key=key, value=value, on_delivery=lambda e, m: came.append((e, m)))
            deadline = time.monotonic() + self._timeout_s + 1.0
            while not came and time.monotonic() < deadline:
                self._sayer.poll(0.05)
        except (KafkaException, BufferError) as exc:
            raise self._connection.error(exc, operation="WRITE", resource=f"topic {topic}") from None
        if not came:
            self._sayer = None
            raise Transient(f"A record for {topic} was not taken within {self._timeout_s:g} s. Try again.")
        error, message = came[0]
        if error is not None:
            raise self._connection.error(KafkaException(error), operation="WRITE", resource=f"topic {topic}")
        return message

    def dismiss(self, logical: str, instance: str) -> None:
        """Take an instance's last word out of the acks topic. One that is alive says it again. Raises typed errors."""
        with self._lock:
            self._say(ACKS_TOPIC, ack_key(logical, instance), None)

    # -------------------------------------------------------------------------------------------- writing

    def check(self) -> list[str]:
        """What is wrong with the configs of the two topics, in words; a missing topic is not. Raises ``Unreadable``."""
        return [p.text for p in self._topics.check()]

    def missing(self) -> list[str]:
        """Those of the two topics that are not there. Raises ``Unreadable``."""
        return self._topics.missing()

    def ensure_topics(self) -> list[str]:
        """Create both topics where they are missing and mend their configs; what was done, in words.

        Raises ``Refused`` for what cannot be mended, and typed errors. Idempotent.
        """
        with self._lock:
            done = self._topics.ensure()
            deadline = time.monotonic() + self._timeout_s
            while done and any(self._log.end(t) is None for t in (ROUTES_TOPIC, ACKS_TOPIC)):
                if time.monotonic() > deadline:
                    raise Transient(f"{ROUTES_TOPIC} and {ACKS_TOPIC} have no leader yet. Try again.")
                time.sleep(0.05)
            return done

    def prepare(self, logical: str) -> list[str]:
        """Make and mend the topics, and open what a write needs (connections, the transactional id).

        What was done, in words. Raises ``Refused`` for what cannot be mended, the clocks of the brokers included.
        """
        with self._lock:
            done = self.ensure_topics()
            self._compare_clocks()
            self._writer(logical)
            self._log.catch_up(ROUTES_TOPIC)
            return done

    def write(
        self, route: Route, expect_epoch: int | None, *, within_s: float | None = None, over_bad: bool = False
    ) -> Route:
        """Write the route if the one in Kafka has the epoch ``expect_epoch`` (None or 0: there is none).

        Returns the record as it can be read, with the broker's stamp. ``within_s``: give up when it could not be sent
        so many seconds from now. ``over_bad``: replace a record that is not understood.

        The transactional id of the logical topic is initialised anew by each writer, which fences every earlier one;
        then the topic is read until nothing in it is undecided, compared, and the record committed. A fenced writer
        reads again and compares. Raises ``Refused`` when another epoch is there or the time is over, and
        ``AmbiguousState`` when the commit cannot be confirmed.
        """
        expected = expect_epoch or 0
        if route.epoch < max(expected, 1):
            raise Refused(f"A route never goes back: epoch {route.epoch} is lower than the {expected} it replaces.")
        with self._lock:
            if any(self._log.end(t) is None for t in (ROUTES_TOPIC, ACKS_TOPIC)):
                self.ensure_topics()
            began = read_now()
            deadline = time.monotonic() + 3 * self._timeout_s
            tried: BaseException | None = None
            mark = secrets.token_bytes(8)
            while True:
                try:
                    return self._put(route, expected, mark, began, within_s, over_bad)
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

    def _put(
        self, route: Route, expected: int, mark: bytes, began: Now, within_s: float | None, over_bad: bool
    ) -> Route:
        writer = self._writer(route.logical)
        self._log.catch_up(ROUTES_TOPIC, decided=True)
        known = self._log.routes
        have = known.routes.get(route.logical)
        if have is not None and known.writers.get(route.logical) == mark:
            return have  # an earlier try was committed after all
        if not over_bad:
            have = self.read(route.logical)
        if (have.epoch if have else 0) != expected:
            raise Refused(
                f"The route of {route.logical} is at epoch {have.epoch if have else 0}, not {expected}: somebody "
                "changed it meanwhile. Nothing was written. Read it again and decide anew."
            )
        if within_s is not None and elapsed(began, read_now()) >= within_s:
            raise Refused(
                f"Epoch {route.epoch} of the route of {route.logical} could not be written within {within_s:.1f} s, "
                "after which it would come too late. Nothing was written."
            )
        return self._commit(writer, route, mark)

    def _commit(self, writer: Producer, route: Route, mark: bytes) -> Route:
        failed: list[KafkaError] = []
        writer.begin_transaction()
        writer.produce(
            ROUTES_TOPIC,
            partition=0,
            key=route.logical.encode(),
            value=serialise_route(route),
            headers=[(WRITER, mark)],
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        writer.commit_transaction(self._timeout_s)
        if failed:
            raise KafkaException(failed[0])
        return self._wait_visible(route)

    def _wait_visible(self, route: Route) -> Route:
        """Wait until the committed record can be read: the coordinator answers before its marker is in the topic.

        Without this the next read of this process could miss its own write, and decide on the route before it.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._log.catch_up(ROUTES_TOPIC)
            seen = self._log.routes.routes.get(route.logical)
            if seen is not None and seen.epoch >= route.epoch:
                return seen
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
            logger=client_log,
        )

    def close(self) -> None:
        """Let all connections go. Idempotent."""
        with self._lock:
            self._log.close()
            self._writers.clear()
            self._sayer = None
            self._connection.close()

    def __enter__(self) -> RouteStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _worth_another_try(exc: KafkaException) -> bool:
    error: KafkaError = exc.args[0]
    return error.name() not in {
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
    }
