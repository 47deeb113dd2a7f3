"""Simulated applications: producers and consumers, several instances each, on the real decisions of the route client.

An instance acts in ticks. It may crash and be started again, stall with its clock jumping when it wakes, and its clock
may be ahead or behind. What it sent and what it was told goes into the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from topicshift.core.errors import TopicshiftError

from .cluster import Record, place
from .groups import Coordinator
from .routes import consumer, producer
from .world import World

TICK_S = 2.4
"""Seconds between two rounds of an instance while nothing happens on its route."""
BUSY_S = 0.6
"""The same while it is stopped, moves, or is about to."""
BATCH = 20


class Instance:
    """What all instances have in common: a name, a clock, life and death."""

    def __init__(self, world: World, name: str, skew: float) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.alive = True
        self.stalled_until = -1.0
        self.stalls = 0
        self._due = -1.0

    @property
    def stalled(self) -> bool:
        """Whether it is stopped (SIGSTOP) at this moment."""
        return self.world.kernel.now < self.stalled_until

    def stall(self, seconds: float) -> None:
        """Stop it for so long."""
        self.stalled_until = max(self.stalled_until, self.world.kernel.now + seconds)
        self.stalls += 1

    def begin(self) -> None:
        """Let it tick for as long as it lives."""
        kernel = self.world.kernel

        def again() -> float:
            if not self.alive:
                return -1.0
            if self.stalled:
                return min(self.stalled_until - kernel.now + 0.001, 2.0)
            self.tick()
            return (BUSY_S if self.busy else TICK_S) * self.world.rng.uniform(0.7, 1.3)

        kernel.every(self.world.rng.uniform(0.1, TICK_S), again)
        self.world.routes.listeners.append(self)
        kernel.after(0.0, self.wake)

    def heard(self) -> None:
        """A new route record lies in the log: look soon."""
        if self.alive:
            self.world.kernel.after(self.world.rng.uniform(0.01, 0.2), self.wake)

    def wake(self) -> None:
        """Tick once more than its rhythm wants, if it can."""
        if self.alive and not self.stalled:
            self.tick()

    @property
    def busy(self) -> bool:
        """Whether something happens on its route."""
        return False

    def tick(self) -> None:
        """One round."""
        raise NotImplementedError

    def crash(self) -> None:
        """kill -9."""
        self.alive = False
        if self in self.world.routes.listeners:
            self.world.routes.listeners.remove(self)


Member = TypeVar("Member", bound=Instance)


@dataclass
class App(Generic[Member]):
    """An application: its instances, one after the other and side by side."""

    role: ClassVar[str]
    world: World
    name: str
    instances: list[Member] = field(default_factory=list, kw_only=True)
    started: int = field(default=0, kw_only=True)

    def next_name(self) -> str:
        """The name of the next instance."""
        self.started += 1
        return f"{self.name}-{self.started}"

    def begin(self, made: Member) -> Member:
        """Let a new instance live."""
        self.instances.append(made)
        made.begin()
        return made

    def replace(self, instance: Member, after: float, start: Callable[[], Member]) -> None:
        """Crash an instance, and start its successor after a while."""
        instance.crash()
        self.world.history.add(instance.name, "crashed", role=self.role)

        def succeed() -> None:
            self.instances.remove(instance)
            start()

        self.world.later(after, succeed)


class ProducerInstance(Instance):
    """One process of a producer on the route, with keys of its own."""

    def __init__(self, world: World, app: ProducerApp, name: str, keys: list[str], skew: float) -> None:
        super().__init__(world, name, skew)
        self.app, self.keys = app, keys
        self.follower = producer(world, app.name, name, app.principal)
        self.client: Any = self.follower.client
        self.queue: list[tuple[float, str, str, int]] = []
        self.pinned: dict[str, int] = {}
        self.offsets: dict[int, int] = {}

    @property
    def busy(self) -> bool:
        """Whether it is stopped, moves, or is about to."""
        client = self.client
        route = client.route
        return client.status != "running" or (route is not None and route.state == "paused")

    def tick(self) -> None:
        """Follow the route, send a record if it admits one, deliver what is queued."""
        if self.world.rng.random() < 0.5:
            self._offer()  # the sender's thread may run before the one that follows the route
            self._follow()
        else:
            self._follow()
            self._offer()

    def _follow(self) -> None:
        self._deliver()
        now = self.follower.now(self.skew)
        self.follower.read(now)
        self.client.advance(now, flushed=not self.queue)
        self.follower.say(now, self.offsets)

    def _offer(self) -> None:
        """The application hands a record over, if it is admitted."""
        idle = self.world.quiet or self.world.kernel.now < self.world.idle_until
        topic = None if idle else self.client.admit(self.follower.now(self.skew))
        if topic is None:
            return
        key = self.world.rng.choice(self.keys)
        seq = self.app.next_seq(key)
        self.world.history.add(self.name, "admitted", topic=topic, key=key, seq=seq, app=self.app.name)
        slow = self.world.rng.random() < 0.15
        due = self.world.kernel.now + (self.world.rng.uniform(0.05, 3.0) if slow else 0.0)
        self.queue.append((due, topic, key, seq))
        self._deliver()
        if slow:
            self.world.kernel.at(due + 0.001, self._later)

    def _later(self) -> None:
        if self.alive and not self.stalled:
            self._follow()

    def _deliver(self) -> None:
        """What is on its way arrives, in the order in which it was sent."""
        while self.queue and self.queue[0][0] <= self.world.kernel.now:
            _, topic, key, seq = self.queue.pop(0)
            self._send(topic, key, seq)

    def _send(self, topic: str, key: str, seq: int) -> None:
        world = self.world
        said: dict[str, Any] = {"key": key, "seq": seq, "topic": topic, "app": self.app.name}
        count = self.pinned.setdefault(topic, world.cluster.partitions(topic) or 1)
        partition = place(key, count)
        try:
            offset = world.cluster.append(topic, partition, key, seq, self.name, self.app.principal)
        except TopicshiftError as error:
            world.history.add(self.name, "produce", outcome="fail", why=type(error).__name__, **said)
            return
        self.offsets[partition] = offset
        world.history.add(self.name, "produce", outcome="ok", partition=partition, offset=offset, **said)

    def crash(self) -> None:
        """kill -9: what it had queued may or may not arrive."""
        super().crash()
        for _, topic, key, seq in self.queue:
            self.world.history.add(
                self.name, "produce", outcome="info", key=key, seq=seq, topic=topic, app=self.app.name
            )
            if self.world.rng.random() < 0.5:
                count = self.pinned.get(topic) or self.world.cluster.partitions(topic) or 1
                try:
                    self.world.cluster.append(topic, place(key, count), key, seq, self.name, self.app.principal)
                except TopicshiftError:
                    continue
        self.queue.clear()


@dataclass
class ProducerApp(App[ProducerInstance]):
    """A producer application: its principal, and the next number of each of its keys."""

    role = "producer"
    principal: str
    seqs: dict[str, int] = field(default_factory=dict)

    def next_seq(self, key: str) -> int:
        """The next number of a key."""
        self.seqs[key] = self.seqs.get(key, -1) + 1
        return self.seqs[key]

    def make(self, name: str, keys: list[str], skew: float) -> ProducerInstance:
        """One process of it."""
        return ProducerInstance(self.world, self, name, keys, skew)

    def start(self, keys: list[str], skew: float = 0.0) -> ProducerInstance:
        """Start one more instance, which owns these keys."""
        return self.begin(self.make(self.next_name(), keys, skew))

    def restart(self, instance: ProducerInstance, after: float) -> None:
        """Crash one, and start its successor after a while."""
        self.replace(instance, after, lambda: self.start(instance.keys, instance.skew))


class ConsumerInstance(Instance):
    """One member of a consumer group on the route."""

    def __init__(self, world: World, app: ConsumerApp, name: str, skew: float) -> None:
        super().__init__(world, name, skew)
        self.app = app
        self.follower = consumer(world, app.name, name, app.group)
        self.client: Any = self.follower.client
        self.positions: dict[int, int] = {}
        self.topic: str | None = None
        self.wanted: str | None = None
        self.generation = -1
        self.joined = False
        self.clean = True
        self.hand: list[tuple[str, str | None, int, Record]] = []
        """Records that it fetched before it stalled: the topic, its id then, the partition, the record."""
        self.fetched = 0.0

    def stall(self, seconds: float) -> None:
        """It may stall with a batch in hand, which it works on when it wakes."""
        super().stall(seconds)
        if self.joined and self.topic is not None:
            topic_id = self.world.cluster.topic_id(self.topic)  # when it wakes, the name may be another topic's
            self.fetched = self.world.kernel.now
            self.hand = [(self.topic, topic_id, p, r) for p in self.positions for r in self._poll(p)]

    @property
    def busy(self) -> bool:
        """Whether it is stopped, moves, or is about to."""
        client = self.client
        route = client.route
        return client.status != "running" or (route is not None and route.state == "paused")

    def tick(self) -> None:
        """Follow the route; join, leave, read and commit as it says."""
        self._work_off()
        now = self.follower.now(self.skew)
        self.follower.read(now)
        if not self.client.begun:
            self._start()
        for _ in range(4):  # a member leaves, is out, and joins again
            at_end = self._at_end()
            turn = self.client.advance(now, clean=self.clean, at_end=at_end, out=not self.joined)
            if turn.commit:
                self._commit()
            if turn.leave:
                self._leave()
            if turn.subscribe is not None:
                self.wanted = turn.subscribe
            if not (turn.commit or turn.leave):
                break
        self.follower.say(now, {})
        if self.wanted is not None and not self.joined and self.world.cluster.partitions(self.wanted) is not None:
            self.topic, self.joined, self.generation = self.wanted, True, -1
            self.app.coordinator.join(self.name, self.wanted, self.world.kernel.now)
        if self.joined:
            self._round()

    def _start(self) -> None:
        where = self.client.start()
        if isinstance(where, tuple):
            source, active = where
            cluster, group = self.world.cluster, self.app.group
            on = [
                any(cluster.committed(group, t, p) is not None for p in range(cluster.partitions(t) or 0))
                for t in where
            ]
            where = source if on[0] and not on[1] else active
        if where is not None:
            self.client.begin(where)

    def _round(self) -> None:
        c = self.app.coordinator
        if not c.heartbeat(self.name, self.world.kernel.now):
            self.world.history.add(self.name, "rebalanced", why="the group had given it up")
            self.joined, self.positions, self.clean = False, {}, True
            return
        if c.rebalancing:
            if not c.members[self.name].rejoined:
                self._commit()
                self.positions = {}
                c.rejoin(self.name)
            return
        if c.generation != self.generation:
            self.generation, self.positions = c.generation, {}
        for p in c.members[self.name].assigned:
            if p not in self.positions:
                self._begin(p)
            self._read(p)
        if self.world.rng.random() < 0.9:
            self._commit()

    def _begin(self, partition: int, *, out_of_range: bool = False) -> None:
        assert self.topic is not None
        bounds = self.world.cluster.bounds(self.topic, partition)
        if bounds is None:
            return
        start, end = bounds
        committed = self.world.cluster.committed(self.app.group, self.topic, partition)
        if committed is not None and start <= committed <= end:
            self.positions[partition] = committed
        elif committed is None and not out_of_range and self.client.from_start(self.topic):
            self.app.coordinator.commit(self.name, self.topic, {partition: start})
            self.positions[partition] = start
        else:
            reset = start if self.app.reset == "earliest" else end
            self.world.history.add(
                self.name,
                "reset",
                group=self.app.group,
                topic=self.topic,
                partition=partition,
                to=reset,
                start=start,
                committed=committed,
            )
            self.positions[partition] = reset
            self.clean = False

    def _poll(self, partition: int) -> list[Record]:
        try:
            return self.world.cluster.fetch(self.topic or "", partition, self.positions[partition], BATCH)
        except TopicshiftError:
            return []

    def _read(self, partition: int) -> None:
        at = self.positions.get(partition)
        if at is None:
            return
        bounds = self.world.cluster.bounds(self.topic or "", partition)
        if bounds is not None and bounds[0] <= at == bounds[1]:
            return  # nothing new lies there
        if bounds is not None and not bounds[0] <= self.positions[partition] <= bounds[1]:
            self._begin(partition, out_of_range=True)
        found = self._poll(partition)
        topic_id = self.world.cluster.topic_id(self.topic or "")
        for record in found:
            self._hand_over(self.topic or "", topic_id, partition, record)
            self.positions[partition] = record.offset + 1
            self.clean = False
        if bounds is not None and len(found) < BATCH and self.positions[partition] < bounds[1]:
            self.positions[partition], self.clean = bounds[1], False  # markers, and records of an aborted transaction

    def _hand_over(self, topic: str, topic_id: str | None, partition: int, record: Record, **more: float) -> None:
        self.world.history.add(
            self.name,
            "deliver",
            group=self.app.group,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            offset=record.offset,
            key=record.key,
            seq=record.seq,
            **more,
        )

    def _work_off(self) -> None:
        hand, self.hand = self.hand, []
        for topic, topic_id, partition, record in hand:
            if self.positions.get(partition, -1) <= record.offset or topic != self.topic:
                self._hand_over(topic, topic_id, partition, record, fetched=self.fetched)
                if partition in self.positions and topic == self.topic:
                    self.positions[partition] = record.offset + 1

    def _commit(self) -> None:
        if self.topic is not None and self.positions:
            self.app.coordinator.commit(self.name, self.topic, dict(self.positions))
        self.clean = True

    def _at_end(self) -> bool:
        """Every partition it owns is read to its end and committed."""
        if not self.joined or self.topic is None:
            return True
        c = self.app.coordinator
        mine = c.members.get(self.name)
        if mine is None or c.rebalancing or c.generation != self.generation:
            return False
        for p in mine.assigned:
            bounds = self.world.cluster.bounds(self.topic, p)
            if bounds is None or p not in self.positions or self.positions[p] < bounds[1]:
                return False
        return True

    def _unread(self) -> int:
        """Records of its own partitions that it has not read."""
        mine = self.app.coordinator.members.get(self.name)
        ends = {p: self.world.cluster.bounds(self.topic or "", p) for p in (mine.assigned if mine is not None else ())}
        return sum(max(0, b[1] - self.positions.get(p, b[0])) for p, b in ends.items() if b is not None)

    def _leave(self) -> None:
        route = self.client.route
        entry = route.groups.get(self.app.group) if route is not None else None
        released = entry is not None and entry.state.value != "paused" and entry.topic != self.topic
        self.world.history.add(self.name, "left", topic=self.topic, released=released, unread=self._unread())
        self.app.coordinator.leave(self.name)
        self.joined, self.positions, self.topic, self.wanted = False, {}, None, None


@dataclass
class ConsumerApp(App[ConsumerInstance]):
    """A consumer application: one group. ``reset`` is its ``auto.offset.reset``."""

    role = "consumer"
    group: str
    reset: str
    coordinator: Coordinator

    def make(self, name: str, skew: float) -> ConsumerInstance:
        """One member of it."""
        return ConsumerInstance(self.world, self, name, skew)

    def start(self, skew: float = 0.0) -> ConsumerInstance:
        """Start one more member."""
        return self.begin(self.make(self.next_name(), skew))

    def restart(self, instance: ConsumerInstance, after: float) -> None:
        """Crash one, and start its successor after a while."""
        self.replace(instance, after, lambda: self.start(instance.skew))


__all__ = ["ConsumerApp", "ConsumerInstance", "ProducerApp", "ProducerInstance"]
