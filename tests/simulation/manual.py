"""Applications that do not follow the route: a person stops them, changes their topic, and starts them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .apps import ConsumerApp, ConsumerInstance, Instance, ProducerApp, ProducerInstance
from .world import World


class ManualProducerInstance(ProducerInstance):
    """Writes to the topic that stands in its configuration, for as long as it runs."""

    app: ManualProducer

    def tick(self) -> None:
        """Send a record."""
        self._deliver()
        if self.world.quiet or self.world.kernel.now < self.world.idle_until or not self.app.running:
            return
        key = self.world.rng.choice(self.keys)
        self.queue.append((0.0, self.app.topic, key, self.app.next_seq(key)))
        self._deliver()

    def heard(self) -> None:
        """It knows of no route."""


@dataclass
class ManualProducer(ProducerApp):
    """A producer that a person moves."""

    topic: str = ""
    running: bool = True
    touched: int = 0
    """How often people have set it to run, or not to run, on a topic."""

    def make(self, name: str, keys: list[str], skew: float) -> ProducerInstance:
        """One process of it."""
        return ManualProducerInstance(self.world, self, name, keys, skew)


class ManualConsumerInstance(ConsumerInstance):
    """A member that reads the topic in its configuration, for as long as it runs."""

    app: ManualConsumer

    def tick(self) -> None:
        """Join, read, commit; leave when it is stopped."""
        self._work_off()
        if self.joined and (not self.app.running or self.topic != self.app.topic):
            self._commit()
            self._leave()
        if self.app.running and not self.joined and self.world.cluster.partitions(self.app.topic) is not None:
            self.topic, self.joined, self.generation = self.app.topic, True, -1
            self.app.coordinator.join(self.name, self.app.topic, self.world.kernel.now)
        if self.joined:
            self._round()

    def heard(self) -> None:
        """It knows of no route."""


@dataclass
class ManualConsumer(ConsumerApp):
    """A consumer group that a person moves."""

    topic: str = ""
    running: bool = True
    touched: int = 0
    """How often people have set it to run, or not to run, on a topic."""

    def make(self, name: str, skew: float) -> ConsumerInstance:
        """One member of it."""
        return ManualConsumerInstance(self.world, self, name, skew)


def do_by_hand(world: World, about: dict[str, Any]) -> Callable[[], None]:
    """What a person does before saying yes to one of the questions about manual participants.

    Returns what they do when they are told that the yes counts for nothing: they put it back, as far as nobody has
    touched it since.
    """
    stop: list[ManualProducer | ManualConsumer] = [_producer(world, name) for name in about.get("stop", ())]
    start = [_producer(world, name) for name in about.get("start", ())]
    if "stop_group" in about:
        stop.append(_group(world, about["stop_group"]))
    before = [(app, app.topic, app.running) for app in (*stop, *start)]
    for app in stop:
        _set(app, app.topic, running=False)
    for producer in start:
        _set(producer, about["target"], running=True)
    touched = {app.name: app.touched for app, _, _ in before}

    def put_back() -> None:
        for app, topic, running in before:
            if app.touched == touched[app.name] and (app.topic, app.running) != (topic, running):
                _set(app, topic, running=running)
                world.history.add("person", "put_back", app=app.name, topic=topic, running=running)

    return put_back


def back_by_hand(world: World, topic: str) -> None:
    """What a person does with manual participants once a migration, or a way back, is given up: they run again."""
    for app in [*world.producers, *world.consumers]:
        if isinstance(app, ManualProducer | ManualConsumer):
            _set(app, topic, running=True)


def start_group(world: World, group: str, topic: str) -> None:
    """A person starts a manual group on the topic that they were told."""
    _set(_group(world, group), topic, running=True)


def _set(app: ManualProducer | ManualConsumer, topic: str, *, running: bool) -> None:
    app.topic, app.running, app.touched = topic, running, app.touched + 1


def _producer(world: World, name: str) -> ManualProducer:
    return next(p for p in world.producers if p.name == name and isinstance(p, ManualProducer))


def _group(world: World, group: str) -> ManualConsumer:
    return next(c for c in world.consumers if c.group == group and isinstance(c, ManualConsumer))


__all__ = ["Instance", "ManualConsumer", "ManualProducer", "back_by_hand", "do_by_hand", "start_group"]
