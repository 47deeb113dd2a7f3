"""A consumer that follows the route: the source until its group is released, then the target, losing nothing.

One file, though longer than others: assignment, commits and moves work on the same tables, in the one polling thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from topicshift.boot_clock import read_now
from topicshift.client.callbacks import Callbacks
from topicshift.client.follower import (
    Routed,
    RouteError,
    RouteFollower,
    RouteUnavailable,
    identity,
    milliseconds,
    own_principal,
)
from topicshift.client.given import Given
from topicshift.client.offsets import REQUEST_S, OffsetLookup
from topicshift.client.producer import OnChange
from topicshift.core.route.client import ConsumerClient, Timing
from topicshift.core.route.records import State, Status
from topicshift.core.route.seeding import Seeds

log = logging.getLogger(__name__)
_client_log = logging.getLogger("topicshift.librdkafka")

_COOPERATIVE = "cooperative-sticky"
_IDLE_COMMIT_S = 0.2
_BARRIER_S = 5.0
_FATAL = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    }
)


class RoutedConsumer(Routed):
    """``confluent_kafka.Consumer`` behind a route, with commits after processing only.

    Args:
        config: librdkafka consumer properties, as for ``confluent_kafka.Consumer``. Offsets are stored and committed by
            this class. ``partition.assignment.strategy`` is ``cooperative-sticky`` unless given.
        topic: the logical topic: its name for ever, whatever topic the route points to.
        group: the consumer group; ``group.id`` by default.
        participant: the application's name, as the spec declares it under ``consumers``; the group by default.
        instance: this process's name; a unique one by default.
        principal: the Kafka principal; ``User:<sasl.username>`` by default.
        commit_interval_s: how often processed records are committed while there are more; once there are none for now,
            they are committed within 0.2 s.
        on_change: called as ``on_change(status, topic, epoch)`` when this member moves, stops or goes on; in a thread
            of its own.
        timing: the protocol's numbers, for tests.

    A record counts as processed when the next one is asked for (:meth:`poll`, iteration), or with :meth:`commit`. Not
    thread-safe: one thread polls. Poll at least every ``max.poll.interval.ms``. A static member (``group.instance.id``)
    cannot say that it leaves its group, so each move takes it ``session.timeout.ms``.

    Example:
        >>> with RoutedConsumer(config, "payments", "ledger") as consumer:  # doctest: +SKIP
        ...     consumer.run(handle, stop)
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        group: str | None = None,
        *,
        participant: str | None = None,
        instance: str | None = None,
        principal: str | None = None,
        commit_interval_s: float = 1.0,
        on_change: OnChange | None = None,
        timing: Timing | None = None,
    ) -> None:
        name = group or config.get("group.id")
        if not name:
            raise RouteError("A consumer needs its group: give group, or group.id in the config.")
        self._group = str(name)
        name = participant or self._group
        who = identity(topic, "consumer", name, instance, self._group, principal or own_principal(config))
        session_s = milliseconds(config, "session.timeout.ms", 45_000) / 1000
        timing = replace(timing or Timing(), session_s=session_s)
        self._client: ConsumerClient = ConsumerClient(who, timing)
        self._commit_interval_s = commit_interval_s
        self._on_change = on_change
        merged: dict[str, Any] = {
            **({} if config.get("group.protocol") == "consumer" else {"partition.assignment.strategy": _COOPERATIVE}),
            **config,
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "on_commit": self._on_commit,
        }
        self._static = bool(config.get("group.instance.id"))
        self._users_on_commit: Callable[..., Any] | None = config.get("on_commit")
        self._incremental = merged.get("partition.assignment.strategy", _COOPERATIVE) == _COOPERATIVE
        self._consumer = Consumer(merged, logger=_client_log)
        self._look = threading.Event()
        self._lock = threading.Condition()
        self._seen_epoch = -1
        self._assigned_once = False
        self._assigned: set[tuple[str, int]] = set()
        self._current: Message | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._given = Given()
        self._at_eof: set[tuple[str, int]] = set()
        self._lookup = OffsetLookup(
            config, read_committed=merged.get("isolation.level", "read_committed") == "read_committed"
        )
        self._waiting_since: float | None = None
        self._committed: dict[tuple[str, int], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        self._commit_at = 0.0
        self._commit_not_before = 0.0
        self._in_flight = False
        self._seeds = Seeds()
        self._seed_at = 0.0
        self._buffer: deque[Message] = deque()
        self._leaving = False
        self._left_at: float | None = None
        self._closed = False
        self._callbacks = Callbacks(f"topicshift-callbacks-{topic}")
        self._follower = RouteFollower(config, self._client, self._lock, self._turn, self._offsets)
        self._follower.start()

    # -------------------------------------------------------------------------------------------- public

    def poll(self, timeout_s: float = 1.0) -> Message | None:
        """The next record, or None when there is none within ``timeout_s``. The one before counts as processed.

        Raises :class:`RouteUnavailable` if the route cannot be read at start, :class:`RouteError` for missing rights
        and fatal errors of the group.
        """
        self._finish()
        self._require_follower()
        deadline = time.monotonic() + timeout_s
        while True:
            if self._look.is_set() or self._client.status not in (Status.RUNNING, Status.LEASE_EXPIRED):
                self._reconcile(deadline)
            now = time.monotonic()
            self._commit_when_due(now, self._commit_interval_s)
            if self._seeds and now >= self._seed_at:
                self._seed(now)
            message = (
                self._buffer.popleft() if self._buffer else self._consumer.poll(max(0.0, min(deadline - now, 0.1)))
            )
            if message is None or (message.error() is None and not self._client.reading):
                self._commit_when_due(time.monotonic(), _IDLE_COMMIT_S)
            elif (error := message.error()) is None:
                if self._given.again(message):
                    log.info("%s was given %s a second time, and skips it", self.instance, _place(message))
                    continue
                self._current = message
                if self._at_eof:
                    self._at_eof.discard((message.topic() or "", message.partition() or 0))
                return message
            else:
                self._on_error(error, message)
                self._commit_when_due(time.monotonic(), _IDLE_COMMIT_S)
            if time.monotonic() >= deadline:
                return None

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            message = self.poll(1.0)
            if message is not None:
                yield message

    def run(self, handle: Callable[[Message], None], stop: threading.Event) -> None:
        """Poll, process and commit until ``stop`` is set. A record for which ``handle`` raises is not committed."""
        while not stop.is_set():
            message = self.poll(0.2)
            if message is not None:
                handle(message)
                self._finish()

    def commit(self, timeout_s: float = 10.0) -> None:
        """Everything polled so far is processed: commit it now and wait. Raises :class:`RouteError` when time is up."""
        self._finish()
        if not self._settle(timeout_s, keep=True):
            raise RouteError(
                f"Group {self._group} did not take the commit within {timeout_s:g} s, as in a long rebalance. It is "
                "tried again while polling; after a crash now the records since the last commit are read again."
            )

    def close(self) -> None:
        """Commit what was processed, leave the group, say good-bye. The record polled last is not processed yet."""
        if self._closed:
            return
        self._closed = True
        self._current = None
        if not self._settle(_BARRIER_S, keep=False):
            log.warning("%s closes without its last commit, so some records are read again", self.instance)
        self._leave()
        self._consumer.close()
        self._assigned.clear()
        with self._lock:
            last = self._client.good_bye(read_now(), self._offsets())
        self._follower.stop(last)
        self._callbacks.close(_BARRIER_S)

    def __enter__(self) -> RoutedConsumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- following

    def _turn(self) -> None:
        """In the follower's thread: the polling thread acts on what was read."""
        if self._client.epoch != self._seen_epoch:
            self._seen_epoch = self._client.epoch
            self._look.set()

    def _reconcile(self, deadline: float) -> None:
        self._look.clear()
        client = self._client
        if not client.begun and not self._begin(deadline):
            return
        before = client.status, client.topic, client.epoch
        at_end = client.moving and self._at_end(client.topic)
        clean, out = not self._dirty(), self._out()
        with self._lock:
            turn = client.advance(read_now(), clean=clean, at_end=at_end, out=out)
            after = client.status, client.topic, client.epoch
        if turn.commit:
            # Without waiting: a commit can hang behind a rebalance, which needs this thread to poll.
            self._commit_when_due(time.monotonic(), 0.0)
            self._look.set()
        if turn.leave:
            self._leave()
            self._look.set()
        if turn.subscribe is not None:
            self._assigned_once, self._left_at = False, None
            self._consumer.subscribe(
                [turn.subscribe], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        if after != before:
            self._follower.wake()
        if after[:2] != before[:2]:
            log.info("%s is %s on %s at epoch %d", self.instance, *after)
            if self._on_change is not None:
                self._callbacks.submit(self._on_change, *after)

    def _leave(self) -> None:
        """Leave the group, so that it forms anew on one topic.

        Members that change a subscription in place rebalance with different ones for a while, and lose partitions.
        """
        self._leaving = True
        self._left_at = time.monotonic()
        self._consumer.unsubscribe()
        give_up = time.monotonic() + _BARRIER_S
        # An idle member that closes without this never says LeaveGroup, and the others wait for its session to end.
        while (self._assigned or self._consumer.memberid()) and time.monotonic() < give_up:
            self._consumer.poll(0.02)  # serves the revoke; a record that comes now is not committed, so it is not lost
        self._buffer.clear()
        self._leaving = False

    def _out(self) -> bool:
        """Whether the group counts this member no more."""
        if self._client.reading or self._assigned or self._consumer.memberid():
            return False
        if self._static and self._left_at is not None:  # it cannot say that it leaves: its session has to run out
            return time.monotonic() >= self._left_at + self._client.timing.session_s
        return True

    def _begin(self, deadline: float) -> bool:
        """Find out where to begin; whether it is known. Raises :class:`RouteUnavailable` when it was not for long."""
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        client = self._client
        while True:
            why: KafkaException | None = None
            with self._lock:
                choice = client.start()
            try:
                if isinstance(choice, tuple):
                    source, active = choice
                    choice = source if self._has_offsets(source) and not self._has_offsets(active) else active
            except KafkaException as exc:
                why, choice = exc, None
                log.info("%s asks again where its group is: %s", self.instance, exc)
            if isinstance(choice, str):
                with self._lock:
                    client.begin(choice)
                return True
            self._require_patience(why)
            if time.monotonic() >= deadline:
                self._look.set()
                return False
            time.sleep(0.01 if why is None else 0.05)

    def _require_follower(self) -> None:
        if self._follower.dead:
            raise RouteError(
                f"Nobody follows the route of {self._client.who.logical} in this process any more "
                f"({self._follower.dead}), so a release would be missed. Make a new consumer."
            )

    def _require_patience(self, why: KafkaException | None) -> None:
        client, waited = self._client, time.monotonic() - (self._waiting_since or 0.0)
        self._require_follower()
        if waited < client.timing.start_s:
            return
        if why is None:
            raise RouteUnavailable(
                f"The route of {client.who.logical} could not be read for {waited:.0f} s "
                f"({client.problem or 'no answer'}), so which topic to read is unknown. Check the brokers' "
                "address and the right to READ __topicshift_routes."
            )
        raise RouteUnavailable(
            f"Whether group {self._group} has offsets could not be told for {waited:.0f} s ({why.args[0].str()}), so "
            f"which topic of {client.who.logical} to read is unknown. Check the group's coordinator, and the right to "
            "DESCRIBE both topics."
        )

    def _has_offsets(self, topic: str) -> bool:
        described = self._consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if described.error is not None and described.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(described.error)
        parts = [TopicPartition(topic, p) for p in described.partitions]
        found = self._consumer.committed(parts, timeout=REQUEST_S) if parts else []
        if any(tp.error is None and tp.offset >= 0 for tp in found):
            return True
        for tp in found:
            if tp.error is not None:
                raise KafkaException(tp.error)  # what could not be read is not an offset that is not there
        return False

    def _at_end(self, topic: str) -> bool:
        """Whether this member's partitions of ``topic`` are read to the end they have now, and committed."""
        mine = {k for k in self._assigned if k[0] == topic}
        if not self._assigned_once or not mine <= self._at_eof:
            return False
        if self._dirty():
            self._commit_when_due(time.monotonic(), 0.0)
            return False
        try:
            ends = self._lookup.ends(sorted(mine))
        except (KafkaException, TimeoutError) as exc:
            log.info("Whether %s has read %s to the end is asked again: %s", self.instance, topic, exc)
            return False
        return all(self._next.get(k, -1) >= end for k, end in ends.items())

    # -------------------------------------------------------------------------------------------- the group

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(tp.topic, tp.partition) for tp in partitions}
        self._assigned = self._assigned | keys if self._incremental else keys
        self._assigned_once = True
        with self._lock:
            moved = [tp for tp in partitions if self._client.from_start(tp.topic)]
        self._seeds.hold((tp.topic, tp.partition) for tp in moved)
        if self._incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if moved:
            consumer.pause(moved)
            self._seed(time.monotonic())
        self._look.set()

    def _seed(self, now: float) -> None:
        """See to the first offsets on the topic the group was released to; its partitions stay paused until then."""
        self._seed_at = now + 0.2
        waiting = self._seeds.ask()
        wanted: dict[tuple[str, int], int] = {}
        try:
            found = self._consumer.committed([TopicPartition(t, p) for t, p in waiting], timeout=REQUEST_S)
            # One whose offset could not be told is asked again: taken for one without, its group would start over.
            unread = [tp.error for tp in found if tp.error is not None]
            if unread:
                log.info("%s asks for its first offsets again: %s", self.instance, unread[0].str())
            told = {(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in found if tp.error is None}
            ready, missing = self._seeds.told(told)
            self._deliver(ready)
            wanted = self._seeds.starts(self._lookup.starts(missing))
            if wanted:
                log.info("%s starts %d partitions of %s at their log start", self.instance, len(wanted), missing[0][0])
                self._asked.update(wanted)
                self._consumer.commit(offsets=[TopicPartition(*k, o) for k, o in wanted.items()], asynchronous=True)
        except (KafkaException, TimeoutError) as exc:
            for key, offset in wanted.items():
                self._asked.pop(key, None)
                self._seeds.committed(key, offset, ok=False)
            log.warning("%s could not see its first offsets through yet: %s", self.instance, exc)

    def _deliver(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Let these partitions be read, each from an offset that is committed now.

        One that cannot be sought at this moment (a rebalance begins) stays held and is asked about again: it must be
        neither read from elsewhere nor left paused for good.
        """
        for (topic, partition), offset in starts.items():
            try:
                self._consumer.seek(TopicPartition(topic, partition, offset))
                self._consumer.resume([TopicPartition(topic, partition)])
            except KafkaException as exc:
                log.info("%s sets %s[%d] to %d again: %s", self.instance, topic, partition, offset, exc.args[0].str())
                self._seeds.hold({(topic, partition)} & self._assigned)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = {(tp.topic, tp.partition) for tp in partitions}
        offsets = {k: o for k, o in self._dirty().items() if k in keys}
        give_up = time.monotonic() + _BARRIER_S
        while offsets and time.monotonic() < give_up:
            offsets = self._give_back(offsets)
        if offsets:
            log.warning("%s gives back %d partitions whose last records are read again", self.instance, len(offsets))
        self._forget(keys)

    def _give_back(self, offsets: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Commit what the next owner must see; returns what was refused and may be tried again."""
        wanted = [TopicPartition(t, p, o) for (t, p), o in offsets.items()]
        try:
            if self._leaving:
                # A JoinGroup may be under way, and the coordinator answers in order, after minutes perhaps: no waiting.
                # The commit still goes out before LeaveGroup does.
                self._consumer.commit(offsets=wanted, asynchronous=True)
                return {}
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as exc:
            log.info("%s commits what it gives back again: %s", self.instance, exc)
            time.sleep(0.05)
            return offsets
        bad = {(tp.topic, tp.partition): tp.error for tp in done if tp.error is not None}
        if bad:
            log.info("%s commits what it gives back again: %s", self.instance, next(iter(bad.values())).str())
            time.sleep(0.05)
        return {k: o for k, o in offsets.items() if k in bad}

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("%s has lost %d partitions to other members", self.instance, len(partitions))
        self._forget({(tp.topic, tp.partition) for tp in partitions})

    def _forget(self, keys: set[tuple[str, int]]) -> None:
        self._assigned = self._assigned - keys
        self._seeds.forget(keys)
        self._buffer = deque(m for m in self._buffer if (m.topic(), m.partition()) not in keys)
        self._at_eof -= keys
        self._given.forget(keys)
        for key in keys:
            for table in (self._next, self._asked):
                table.pop(key, None)
        if self._current is not None and (self._current.topic(), self._current.partition()) in keys:
            self._current = None
        if not self._assigned:
            self._follower.wake()

    def _on_error(self, error: KafkaError, message: Message) -> None:
        key = (message.topic() or "", message.partition() or 0)
        if error.code() == KafkaError._PARTITION_EOF:
            # Past markers and aborted records too: there is nothing to read before this offset.
            if key in self._assigned:
                self._next[key] = max(self._next.get(key, 0), message.offset() or 0)
                self._at_eof.add(key)
                if self._client.status is Status.DRAINING:
                    self._look.set()
        elif error.fatal() or error.code() in _FATAL:
            raise RouteError(
                f"Group {self._group} cannot read {self._client.topic}: {error.str()} ({error.name()}). "
                "Check the rights of its principal and its group settings."
            )
        else:
            log.warning("%s on %s: %s", self.instance, self._client.topic, error.str())

    # -------------------------------------------------------------------------------------------- commits

    def _finish(self) -> None:
        message, self._current = self._current, None
        if message is not None:
            self._next[(message.topic() or "", message.partition() or 0)] = (message.offset() or 0) + 1

    def _dirty(self) -> dict[tuple[str, int], int]:
        return {k: o for k, o in self._next.items() if self._committed.get(k) != o and k in self._assigned}

    def _commit_when_due(self, now: float, interval_s: float) -> None:
        # While producers stand still the freeze waits for these commits, so they do not wait for anything.
        route = self._client.route
        if route is not None and route.state is State.PAUSED and interval_s == _IDLE_COMMIT_S:
            interval_s = 0.0
        if self._in_flight or now < self._commit_at + interval_s or now < self._commit_not_before:
            return
        wanted = {k: o for k, o in self._dirty().items() if self._asked.get(k) != o}
        if not wanted:
            return
        self._commit_at = now
        self._asked.update(wanted)
        self._in_flight = True
        try:
            self._consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in wanted.items()], asynchronous=True)
        except KafkaException as exc:
            self._asked.clear()
            self._in_flight = False
            self._commit_not_before = now + 0.1
            log.info("Committing for %s is tried again: %s", self.instance, exc)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._in_flight = False
        for tp in partitions:
            key, ok = (tp.topic, tp.partition), error is None and tp.error is None
            if ok:
                self._committed[key] = tp.offset
                self._given.committed(key, tp.offset)
            else:
                self._asked.pop(key, None)
                self._commit_not_before = time.monotonic() + 0.1
            self._deliver(self._seeds.committed(key, tp.offset, ok=ok))
        if self._client.status is Status.DRAINING:
            self._look.set()
        if error is not None:
            log.info("A commit of %s failed and is tried again: %s", self.instance, error.str())
        if self._users_on_commit is not None:
            self._users_on_commit(error, partitions)

    def _settle(self, timeout_s: float, *, keep: bool) -> bool:
        """Commit everything processed, without librdkafka's own waiting commit; whether it is confirmed in time.

        That one has no bound: a commit goes to the coordinator behind a JoinGroup, which is answered when the last
        member has joined. Records that come in meanwhile are kept for the next poll, or dropped unprocessed.
        """
        deadline = time.monotonic() + timeout_s
        while self._dirty():
            now = time.monotonic()
            if now >= deadline:
                return False
            self._commit_when_due(now, 0.0)
            message = self._consumer.poll(0.02)
            if message is not None and keep:
                self._buffer.append(message)
        return True

    # -------------------------------------------------------------------------------------------- acks

    def _offsets(self) -> Mapping[int, int]:
        topic, committed = self._client.topic, dict(self._committed)
        return {p: o for (t, p), o in committed.items() if t == topic and (t, p) in self._assigned}


def _place(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}] offset {message.offset()}"
