"""What a client that follows a route does next: pure, level-triggered state machines for producers and consumers.

The client calls ``advance`` again and again with what it knows now (the newest route, the time, whether it is blind,
whether its queue is empty); the same input twice changes nothing. ``docs/route-protocol.md`` has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from topicshift.core.route.records import GroupRoute, Route, State, Status, newer


@dataclass(frozen=True)
class ProducerView:
    """Where a producer stands.

    ``topic`` is where it writes, or wrote last while it does not. ``expired_epoch`` is the epoch of the latest pause
    whose lease ran out here: such a pause is over for this instance, only a higher epoch pauses it again.
    """

    topic: str
    status: Status = Status.BLIND
    route: Route | None = None
    expired_epoch: int = 0

    @property
    def admits(self) -> bool:
        """Whether the application's records are taken."""
        return self.status in (Status.RUNNING, Status.LEASE_EXPIRED)

    @property
    def epoch(self) -> int:
        """The epoch to acknowledge."""
        return self.route.epoch if self.route else 0


def start_producer(configured: str) -> ProducerView:
    """Before the route was read for the first time: blind, so that nothing is written on a guess."""
    return ProducerView(configured)


def _wanted(view: ProducerView, now: datetime, blind: bool) -> tuple[ProducerView, Status, str]:
    route = view.route
    if route is None:
        return view, Status.BLIND if blind else Status.RUNNING, view.topic
    held = route.holds(now) and view.expired_epoch != route.epoch
    if blind:
        # A pause with a higher epoch may be in force, so not even the end of a lease opens a blind producer.
        return view, Status.PAUSED if held else Status.BLIND, view.topic
    if held:
        return view, Status.PAUSED, route.active
    if route.state is State.PAUSED:
        return replace(view, expired_epoch=route.epoch), Status.LEASE_EXPIRED, route.active
    return view, Status.RUNNING, route.active


def advance_producer(
    view: ProducerView, seen: Route | None, now: datetime, *, blind: bool, flushed: bool
) -> ProducerView:
    """The next view of a producer.

    ``seen`` is a route record just read (or None), ``blind`` says that the view of the route could not be confirmed
    within :data:`topicshift.core.route.records.STALE_S`, ``flushed`` that nothing the application handed over is
    undelivered. Leaving a topic always goes through FLUSHING: nothing is acknowledged as paused, and nothing is
    written to another topic, before the last record is delivered or has failed.
    """
    if seen is not None and newer(view.route, seen):
        view = replace(view, route=seen)
    view, status, topic = _wanted(view, now, blind)
    goes_on = status in (Status.RUNNING, Status.LEASE_EXPIRED)
    if view.admits and not (goes_on and topic == view.topic):
        view = replace(view, status=Status.FLUSHING)
    if view.status is Status.FLUSHING:
        if goes_on and topic == view.topic:
            return replace(view, status=status)
        if not flushed:
            return view
    return replace(view, status=status, topic=topic)


@dataclass(frozen=True)
class ConsumerView:
    """Where a member of a consumer group stands.

    ``topic`` is what it reads, or read last while paused. ``unread`` says that it was paused before it had read its
    own partitions to their end: it finishes them first should it be pointed elsewhere.
    """

    topic: str
    status: Status = Status.BLIND
    route: Route | None = None
    expired_epoch: int = 0
    unread: bool = False

    @property
    def reads(self) -> bool:
        """Whether it is subscribed to ``topic``."""
        return self.status in (Status.RUNNING, Status.DRAINING, Status.LEASE_EXPIRED)

    @property
    def epoch(self) -> int:
        """The epoch to acknowledge."""
        return self.route.epoch if self.route else 0


def start_consumer(topic: str, group: str, route: Route | None) -> ConsumerView:
    """The first view: the topic of the group's entry, or ``topic`` where it has none."""
    entry = route.groups.get(group) if route else None
    return ConsumerView(entry.topic if entry else topic, route=route)


def advance_consumer(
    view: ConsumerView, group: str, seen: Route | None, now: datetime, *, at_end: bool
) -> ConsumerView:
    """The next view of one member of ``group``.

    ``at_end`` says that every partition of ``topic`` assigned to this member has been read to its end, processed and
    committed. A group without an entry stays where it is: only a release by name moves it.
    """
    if seen is not None and newer(view.route, seen):
        view = replace(view, route=seen)
    route = view.route
    entry = (route.groups.get(group) if route else None) or GroupRoute(view.topic)
    if route is not None and entry.holds(now) and view.expired_epoch != route.epoch:
        if view.reads:
            view = replace(view, unread=not at_end)
        return replace(view, status=Status.PAUSED)
    status = Status.RUNNING
    if route is not None and entry.state is State.PAUSED:
        view, status = replace(view, expired_epoch=route.epoch), Status.LEASE_EXPIRED
    if entry.topic == view.topic:
        return replace(view, status=status, unread=False)
    if view.status is Status.PAUSED and not view.unread:
        return replace(view, topic=entry.topic, status=status)
    if view.status is Status.BLIND:
        # Not started yet: nothing of this instance is unread anywhere.
        return replace(view, topic=entry.topic, status=status)
    if view.status is Status.DRAINING and at_end:
        return replace(view, topic=entry.topic, status=status, unread=False)
    return replace(view, status=Status.DRAINING)
