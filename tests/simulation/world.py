"""One simulated world: cluster, journal, evidence, route, applications; and the hands of outsiders upon it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from topicshift.ports import Acl, GroupMember
from topicshift.testing.fakes import FakeCluster

from .cluster import SimCluster, place
from .groups import Coordinator
from .history import History
from .kernel import Kernel

SOURCE, TARGET = "orders", "orders-v2"


@dataclass(frozen=True)
class Window:
    """A maintenance window as a spec has it. ``opens``: the seconds of the run at which it does, worked out by hand."""

    cron: str
    timezone: str
    open_s: int
    """A freeze may begin for so long after it opens; it stays open for the budget of a freeze longer."""
    opens: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """What a world is made of; drawn from the seed."""

    order: str = "drain_first"
    source_partitions: int = 2
    target_partitions: int = 3
    producers: int = 2
    instances: tuple[int, ...] = (1, 1)
    groups: int = 2
    members: tuple[int, ...] = (1, 1)
    resets: tuple[str, ...] = ("earliest", "latest")
    skews: tuple[float, ...] = (0.0,)
    budget_s: int = 60
    manual_producers: int = 0
    """So many of the producers, from the last on, are moved by a person."""
    manual_groups: int = 0
    retire_after_s: int = 0
    """The source is retired so long after the switch; 0: never."""
    scream_s: int = 0
    retention_ms: int = 86_400_000
    window: Window | None = None
    """Freezes begin in this window alone."""


class World:
    """Everything that is not the product."""

    def __init__(self, kernel: Kernel, rng: random.Random, shape: Shape) -> None:
        from .apps import ConsumerApp, ProducerApp
        from .manual import ManualConsumer, ManualProducer
        from .routes import RouteLog

        self.kernel, self.rng, self.shape = kernel, rng, shape
        self.source, self.target = SOURCE, TARGET
        self.history = History(lambda: kernel.now)
        self.cluster = SimCluster(lambda: kernel.ms, self.history, rng)
        self.routes = RouteLog(self)
        self.quiet = False
        """Producers send nothing more: the run is coming to its end."""
        self.idle_until = -1.0
        """Until then producers have nothing to send."""
        c = self.cluster
        c.create_topic(
            self.source, shape.source_partitions, 3, {"retention.ms": str(shape.retention_ms), "retention.bytes": "-1"}
        )
        for p in range(shape.producers):
            c.create_acls({Acl("TOPIC", self.source, "LITERAL", f"User:p{p}", "*", "WRITE", "ALLOW")})
        c.create_acls({Acl("TOPIC", self.source, "LITERAL", "User:rogue", "*", "WRITE", "ALLOW")})
        for g in range(shape.groups):
            c.create_acls({Acl("TOPIC", self.source, "LITERAL", f"User:g{g}", "*", "READ", "ALLOW")})
        self.producers: list[ProducerApp] = []
        for p in range(shape.producers):
            by_hand = p >= shape.producers - shape.manual_producers
            more = {"topic": self.source} if by_hand else {}
            kind = ManualProducer if by_hand else ProducerApp
            self.producers.append(kind(self, f"p{p}", f"User:p{p}", **more))
        self.consumers: list[ConsumerApp] = []
        for g in range(shape.groups):
            group = f"g{g}"
            c.commit(group, self.source, dict.fromkeys(range(shape.source_partitions), 0))
            reset = shape.resets[g % len(shape.resets)]
            by_hand = g >= shape.groups - shape.manual_groups
            coordinator = Coordinator(c, group)
            made = ManualConsumer(self, group, group, reset, coordinator) if by_hand else None
            if made is not None:
                made.topic = self.source
            self.consumers.append(made or ConsumerApp(self, group, group, reset, coordinator))
        self.rogues: list[Rogue] = []
        self.strangers: list[ProducerApp] = []
        self._starts: list[Callable[[], None]] = []
        self._skews = iter(shape.skews * 20)

    def begin(self) -> None:
        """Start every application."""
        for i, app in enumerate(self.producers):
            for n in range(self.shape.instances[i % len(self.shape.instances)]):
                app.start([f"{app.name}k{n}{k}" for k in "ab"], next(self._skews))
        for i, consumer in enumerate(self.consumers):
            for _ in range(self.shape.members[i % len(self.shape.members)]):
                consumer.start(next(self._skews))

    def heal(self) -> None:
        """Every fault of the world ends: nobody is stalled, clocks are right, the route can be read."""
        self.routes.unreadable_until = self.idle_until = -1.0
        for app in [*self.producers, *self.consumers]:
            for instance in app.instances:
                instance.skew = 0.0
                instance.stalled_until = min(instance.stalled_until, self.kernel.now)
        for rogue in self.rogues:
            rogue.over = True
        for start in list(self._starts):
            start()

    def later(self, seconds: float, start: Callable[[], None]) -> None:
        """Start something in so many seconds, or when all is healed."""

        def once() -> None:
            if once in self._starts:
                self._starts.remove(once)
                start()

        self._starts.append(once)
        self.kernel.after(seconds, once)


@dataclass
class Rogue:
    """A writer that nobody declared, on the topic's own name and under its own principal."""

    world: World
    principal: str | None
    topic: str
    left: int
    name: str = "rogue"
    over: bool = False
    seq: int = 0
    acked: list[Any] = field(default_factory=list)

    def begin(self) -> None:
        """Write a record every second."""
        self.world.rogues.append(self)
        self.world.kernel.every(1.0, self._tick)

    def _tick(self) -> float | None:
        if self.over or self.left <= 0:
            return -1.0
        self.left -= 1
        key, world = f"{self.name}{self.seq % 2}", self.world
        said: dict[str, Any] = {"key": key, "seq": self.seq, "topic": self.topic, "app": "rogue"}
        count = world.cluster.partitions(self.topic)
        self.seq += 1
        if count is None:
            return None
        partition = place(key, count)
        try:
            offset = world.cluster.append(self.topic, partition, key, said["seq"], self.name, self.principal)
        except Exception as error:
            world.history.add(self.name, "produce", outcome="fail", why=type(error).__name__, **said)
            return None
        world.history.add(self.name, "produce", outcome="ok", partition=partition, offset=offset, **said)
        return None


# ------------------------------------------------------------------------------------------------ outsiders


@dataclass(frozen=True)
class Hand:
    """Something that somebody does to the world at a moment: ``at`` in seconds, or at a milestone of the migration."""

    what: str
    at: float
    after: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        when = f"{self.at:.1f} s" + (f" after {self.after}" if self.after else "")
        return f"{self.what} at {when}"


def _deny(world: World) -> object:
    return world.cluster.drop_acls(lambda a: a.permission == "DENY" and a.name == world.source)


def _target_acl(world: World) -> object:
    return world.cluster.drop_acls(lambda a: a.permission == "ALLOW" and a.name == world.target)


def _retention(world: World) -> object:
    held = world.cluster._topics.get(world.source)
    if held is not None:
        held.configs["retention.ms"] = str(world.shape.retention_ms)
    return held is not None


def _stray(topic: str) -> Callable[[World], object]:
    def write(world: World) -> object:
        name = world.source if topic == "source" else world.target
        if world.cluster.partitions(name) is None:
            return False
        Rogue(world, None, name, 1, name=f"stray-{topic}").begin()
        return True

    return write


def _partition(topic: str) -> Callable[[World], object]:
    def add(world: World) -> object:
        name = world.source if topic == "source" else world.target
        have = world.cluster.partitions(name)
        if have is not None:
            world.cluster.add_partitions(name, have + 1)
        return have is not None

    return add


def _remade(world: World) -> object:
    if world.cluster.partitions(world.source) is None:
        return False
    world.cluster.remake(world.source)
    return True


def _group_reset(world: World) -> object:
    app = world.rng.choice(world.consumers)
    count = world.cluster.partitions(world.source) or 0
    return app.group, world.cluster.reset_commits(app.group, world.source, dict.fromkeys(range(count), 0))


def _expire(topic: str) -> Callable[[World], object]:
    def expire(world: World) -> object:
        app = world.rng.choice(world.consumers)
        held = world.cluster._groups.get(app.group)
        if held is None or (
            held.members and topic == "source" and any(world.source in m.topics for m in held.members.values())
        ):
            return False
        if topic == "target" and held.members:
            return False
        world.cluster.forget_commits(app.group, world.source if topic == "source" else world.target)
        return app.group

    return expire


def _rogue(world: World) -> object:
    Rogue(world, "User:rogue", world.source, 40).begin()
    return True


def _reader(world: World) -> object:
    count = world.cluster.partitions(world.source) or 0
    world.cluster.commit("undeclared", world.source, dict.fromkeys(range(count), 0))
    return True


def _stranger(world: World) -> object:
    """An application that nobody declared starts to follow the route."""
    from .apps import ProducerApp

    world.strangers.append(ProducerApp(world, "px", "User:rogue"))
    world.strangers[-1].start(["pxk"])
    return True


def _route_gone(world: World) -> object:
    world.routes.forget()
    return True


def _hangs(world: World) -> object:
    """A producer of long ago left a transaction open that no coordinator knows any more; nothing of it is committed."""
    cluster, true = world.cluster, world.cluster._now_ms
    if cluster.partitions(world.source) is None:
        return False
    transaction = cluster.begin("forgotten")
    cluster._now_ms = lambda: true() - 3_600_000
    transaction.produce(world.source, 0)
    cluster._now_ms = true
    cluster.forget_transaction(transaction)
    return True


def _reader_returns(world: World) -> object:
    """A forgotten reader starts again, and stays for a while."""
    if world.cluster.partitions(world.source) is None:
        return False
    late = GroupMember("late-1", "late", "h", assignment={world.source: (0,)}, topics=(world.source,))
    world.cluster.join("late", late)

    def leave() -> None:
        world.cluster.leave("late", "late-1")
        world.history.add("late-1", "reader_left")

    world.later(world.rng.uniform(15.0, 60.0), leave)
    return True


def _source_deleted(world: World) -> object:
    if world.cluster.partitions(world.source) is None:
        return False
    FakeCluster.delete_topic(world.cluster, world.source)
    return True


def _ends_by_itself(world: World) -> object:
    """A producer of a batch job has a transaction open, which it ends after a while."""
    if world.cluster.partitions(world.source) is None:
        return False
    transaction, where = world.cluster.begin("nightly"), world.cluster.topic_id(world.source)
    transaction.produce(world.source, 0)
    world.history.add("nightly", "transaction", topic_id=where, state="open")

    def end() -> None:
        if world.cluster.topic_id(world.source) == where:
            world.rng.choice((transaction.commit, transaction.abort))()
        world.history.add("nightly", "transaction", topic_id=where, state="ended")

    world.later(world.rng.choice((0.3, 2.0, 8.0, 25.0)) * world.rng.uniform(0.5, 1.5), end)
    return True


HANDS: dict[str, Callable[[World], object]] = {
    "deny_removed": _deny,
    "target_acl_removed": _target_acl,
    "retention_put_back": _retention,
    "stray_write_source": _stray("source"),
    "stray_write_target": _stray("target"),
    "partition_added_source": _partition("source"),
    "partition_added_target": _partition("target"),
    "source_remade": _remade,
    "group_reset": _group_reset,
    "commits_expired": _expire("source"),
    "seeds_expired": _expire("target"),
    "undeclared_writer": _rogue,
    "undeclared_group": _reader,
    "undeclared_follower": _stranger,
    "route_gone": _route_gone,
    "transaction_hangs": _hangs,
    "transaction_ends": _ends_by_itself,
    "reader_returns": _reader_returns,
    "source_deleted": _source_deleted,
}
"""What outsiders do to the cluster."""


def _some(world: World, role: str) -> Any:
    apps: Any = world.producers if role == "producer" else world.consumers
    return world.rng.choice([(app, i) for app in apps for i in app.instances if i.alive] or [(None, None)])


def _crash(role: str) -> Callable[[World, Hand], object]:
    def crash(world: World, hand: Hand) -> object:
        app, instance = _some(world, role)
        if app is None:
            return False
        app.restart(instance, hand.amount)
        return instance.name

    return crash


def _stall(role: str) -> Callable[[World, Hand], object]:
    def stall(world: World, hand: Hand) -> object:
        app, instance = _some(world, role)
        if app is None:
            return False
        instance.stall(hand.amount)
        return instance.name

    return stall


def _skew(world: World, hand: Hand) -> object:
    app, instance = _some(world, world.rng.choice(("producer", "consumer")))
    if app is None:
        return False
    instance.skew += hand.amount
    return instance.name


def _idle(world: World, hand: Hand) -> object:
    world.idle_until = world.kernel.now + hand.amount
    return True


def _blind(world: World, hand: Hand) -> object:
    world.routes.unreadable_until = world.kernel.now + hand.amount
    return True


APP_FAULTS: dict[str, Callable[[World, Hand], object]] = {
    "producer_crash": _crash("producer"),
    "producer_stall": _stall("producer"),
    "consumer_crash": _crash("consumer"),
    "consumer_stall": _stall("consumer"),
    "app_clock_step": _skew,
    "route_unreadable": _blind,
    "producers_idle": _idle,
}
"""What happens to applications and to their view of the route. ``amount`` is in seconds."""


def lay_on(world: World, hand: Hand) -> None:
    """Do it, and write it down."""
    did = HANDS[hand.what](world) if hand.what in HANDS else APP_FAULTS[hand.what](world, hand)
    world.history.add("outsider", "hand", hand=hand.what, did=did, amount=hand.amount)
