"""Shared by the tests of the route on a real broker: topics, a controller, clients that keep what they saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

import topicshift
from topicshift.adapters.controllers.route import RouteController
from topicshift.adapters.route_store import RouteStore
from topicshift.client import RoutedConsumer, RoutedProducer, RoutePaused
from topicshift.core.route.client import Timing
from topicshift.ports import ControlContext, Participant, ParticipantState

CHECKOUT = Participant("checkout", "producer", "route")
QUICK = Timing(heartbeat_s=2.0)


def eventually(what: str, true: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Wait for a condition; its value. Fails with ``what`` when time is up."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.02)
    return value


class RouteWorld:
    """One source, one target, one store and its controller."""

    def __init__(self, config: Mapping[str, str], source: str, partitions: tuple[int, int] = (3, 7)) -> None:
        self.config = dict(config)
        self.source, self.target, self.group = source, f"{source}-v2", f"{source}-g"
        self.ledger = Participant("ledger", "consumer", "route", group=self.group)
        self.admin = AdminClient(self.config)
        wanted = [NewTopic(self.source, partitions[0], 1), NewTopic(self.target, partitions[1], 1)]
        for future in self.admin.create_topics(wanted).values():
            future.result(30)
        self.store = RouteStore(self.config)
        self.store.ensure_topics()
        self.controller = RouteController(self.store)

    def ctx(self, lease_s: float = 60.0, **changes: Any) -> ControlContext:
        until = datetime.now(UTC) + timedelta(seconds=lease_s)
        given = {"migration": f"m-{self.source}", "source": self.source, "target": self.target, "epoch": 1}
        return ControlContext(**{**given, "lease_until": until, **changes})

    def state(self, who: Participant) -> ParticipantState:
        return self.controller.observe(self.ctx(), [who])[0]

    def wait(self, who: Participant, status: str, topic: str | None, timeout_s: float = 60.0) -> ParticipantState:
        eventually(
            f"{who.name} {status} on {topic}",
            lambda: (s := self.state(who)).status == status and (topic is None or s.topic == topic),
            timeout_s,
        )
        return self.state(who)

    def producer(self, config: Mapping[str, Any] | None = None, **more: Any) -> RoutedProducer:
        merged = {**self.config, "linger.ms": 5, **(config or {})}
        return RoutedProducer(merged, self.source, "checkout", **{"timing": QUICK, "max_block_s": 0.2, **more})

    def arm(self, *who: Participant) -> None:
        """Arm the route, and wait until all of these have acknowledged it."""
        self.controller.arm(self.ctx(), who)
        eventually("all are armed", lambda: all(s.armed for s in self.controller.observe(self.ctx(), who)))

    def ends(self, topic: str) -> dict[int, int]:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        count = len(self.admin.list_topics(topic, timeout=10).topics[topic].partitions)
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(count)}

        def read() -> dict[int, int] | None:
            try:
                return {tp.partition: f.result(10).offset for tp, f in self.admin.list_offsets(asked).items()}
            except KafkaException as exc:
                if exc.args[0].code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE):
                    return None  # a topic that was just made: this client's picture of it is older
                raise

        return dict(eventually(f"the ends of {topic} can be read", read))

    def close(self) -> None:
        self.store.close()


class Traffic:
    """A thread that produces numbered records of many keys until it is stopped."""

    def __init__(self, producer: RoutedProducer, keys: range, pause_s: float = 0.002) -> None:
        self.producer = producer
        self.keys = keys
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.failed: list[str] = []
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._stop.is_set():
            key, seq = f"k{self.keys[n % len(self.keys)]}", n // len(self.keys)
            try:
                self.producer.produce(key, b"x", {"seq": str(seq)}, self._done(key, seq))
            except RoutePaused:
                continue
            n += 1
            time.sleep(self._pause_s)

    def _done(self, key: str, seq: int) -> Callable[[Any, Message], None]:
        def done(error: Any, _: Message) -> None:
            if error is None:
                self.sent[key].append(seq)
            else:
                self.failed.append(error.str())

        return done

    @property
    def count(self) -> int:
        return sum(map(len, list(self.sent.values())))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self.producer.flush(30)


class Member:
    """A thread with one member of a group; keeps (topic, seq) of each key in the order in which it processed them."""

    def __init__(self, world: RouteWorld, got: dict[str, list[tuple[str, int]]], **config: Any) -> None:
        self.got = got
        self.errors: list[BaseException] = []
        self.ready = threading.Event()
        self.stopping = threading.Event()
        self.consumer: RoutedConsumer | None = None
        self._world = world
        self._config = {
            "auto.offset.reset": "latest",
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 6000,
            **config,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        world = self._world
        try:
            with RoutedConsumer(
                {**world.config, **self._config}, world.source, world.group, participant="ledger", timing=QUICK
            ) as self.consumer:
                self.ready.set()
                self.consumer.run(self._handle, self.stopping)
        except BaseException as exc:  # the test shows it
            self.errors.append(exc)

    def _handle(self, message: Message) -> None:
        headers: Any = dict(message.headers() or [])
        self.got[(message.key() or b"").decode()].append((message.topic() or "", int(headers["seq"])))

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the member did not stop"
        assert not self.errors


_CHILD = """
import json, sys
from topicshift.client import RoutedProducer, RoutePaused
from topicshift.core.route.client import Timing
order = json.loads(sys.stdin.readline())
timing = Timing(**order["timing"])
p = RoutedProducer(order["config"], order["topic"], "checkout", instance="victim", max_block_s=0.05, timing=timing)
p.wait_ready()
print("ready", flush=True)
n = 0
while True:
    word = "go" if order["busy"] else sys.stdin.readline().strip()
    if word == "stop":
        break
    try:
        done = None if order["busy"] else lambda error, _: print("done", error and error.name(), flush=True)
        topic = p.produce("k", str(n), {"seq": str(n)}, done)
        n += 1
        if order["busy"]:
            p.flush(5)
        print("took", topic, flush=True)
    except RoutePaused as exc:
        if not order["busy"]:
            print("refused", exc, flush=True)
"""


class Victim:
    """A producer in a process of its own, named ``victim``, to be stopped, woken and killed.

    ``busy``: it writes and flushes as fast as it can; else one record for each :meth:`tell`.
    """

    def __init__(self, world: RouteWorld, *, busy: bool, timing: Mapping[str, float], **config: Any) -> None:
        self.lines: list[str] = []
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(topicshift.__file__).parents[1])},
        )
        order = {"config": {**world.config, **config}, "topic": world.source, "busy": busy, "timing": dict(timing)}
        self.tell(json.dumps(order))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually("the victim is ready", lambda: "ready" in self.lines)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line.strip())

    def tell(self, line: str = "go") -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def said(self, word: str) -> list[str]:
        return [line for line in list(self.lines) if line.startswith(word)]

    def freeze(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._child.kill()
        self._child.wait(10)
        self._reader.join(10)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def life(*parts: Any) -> Iterator[None]:
    """Close or stop everything at the end, whatever happened."""
    try:
        yield
    finally:
        for part in parts:
            with contextlib.suppress(Exception):
                (getattr(part, "stop", None) or part.close)()
