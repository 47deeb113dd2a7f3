"""What a client that follows a route does: a state machine without a thread, a clock or a network. Pure.

:class:`ProducerClient` and :class:`ConsumerClient` hold the whole behaviour; a shell (``topicshift.client``: threads
and librdkafka) or a simulator only feeds them, and does what they say. ``docs/route-protocol.md`` has the tables.

Fed by whoever reads the routes topic, with a :class:`Now` of this machine's clocks:

* ``record(now, key, value, broker_ms)``: each committed record, in the order of the log;
* ``read_ok(asked, settled=...)``: everything up to the end that was asked for at ``asked`` has been fed. ``settled``
  says that this end was the uncommitted one (high watermark), so that nothing below it is undecided;
* ``read_failed(why)``.

Fed by whoever writes acknowledgements: ``acked(out, now, broker_ms)``, ``ack_failed(out, now, why)``,
``acks_absent(asked)`` (the brokers said that there is no such topic).

Asked, as often as one likes, at least every second (:data:`CONFIRM_S`):

* ``ack(now, offsets)``: the acknowledgement to write now, or None; ``good_bye(now, offsets)`` is the last one;
* ``wants_settled(now)``: whether the next ``read_ok`` should be a settled one (a pause is about to end);
* producer: ``advance(now, flushed=...)`` after each batch of records, and ``admit(now)`` in the sender's own thread for
  each record: the topic to write it to, or None;
* consumer: ``start()`` and ``begin(topic)`` once, then ``advance(now, clean=..., at_end=..., out=...)``, whose
  :class:`Turn` says what to do with the group; ``from_start(topic)`` for :class:`topicshift.core.route.seeding.Seeds`.

Calls of one client must not overlap. The same call twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topicshift.core.route.clocks import BrokerTime, Now, elapsed
from topicshift.core.route.records import (
    CONSUMER_GONE_S,
    DELIVERY_TIMEOUT_S,
    GONE_MARGIN_S,
    HEARTBEAT_S,
    STALE_S,
    UNARMED_S,
    Ack,
    GroupRoute,
    Role,
    Route,
    RouteFormatError,
    State,
    Status,
    newer,
    parse_route,
)

CONFIRM_S = 1.0
"""A quiet view of the route is confirmed this often, seconds."""

RETRY_S = 1.0
"""An acknowledgement that could not be written is written again after so many seconds."""

_GOES_ON = (Status.RUNNING, Status.LEASE_EXPIRED)


@dataclass(frozen=True)
class Identity:
    """Who an instance is, as its acknowledgements say. ``role`` is producer or consumer; a consumer has a group."""

    logical: str
    role: Role
    participant: str
    instance: str
    group: str | None = None
    principal: str | None = None


@dataclass(frozen=True)
class Timing:
    """The numbers of one client, seconds.

    ``stale_s`` and ``unarmed_s`` bound its contact, armed and not. ``delivery_s``: a record that a producer took is
    delivered or has failed by then. ``session_s``: after so long without a word a consumer's group gives its partitions
    to others. ``start_s``: a consumer that could not read the route for so long at its start says so.
    """

    heartbeat_s: float = HEARTBEAT_S
    stale_s: float = STALE_S
    unarmed_s: float = UNARMED_S
    delivery_s: float = DELIVERY_TIMEOUT_S
    session_s: float = 45.0
    start_s: float = 60.0


@dataclass(frozen=True)
class Outgoing:
    """An acknowledgement to write. Hand it back with what became of it."""

    serial: int
    ack: Ack
    sent: Now


@dataclass(frozen=True)
class Turn:
    """What a member does with its group now. Nothing where all are empty."""

    commit: bool = False
    """Commit what was processed, at once."""
    leave: bool = False
    """Leave the group. It is out once no partition is assigned and the group does not count it any more."""
    subscribe: str | None = None
    """Join the group on this topic."""


class RouteClient:
    """What producers and consumers share: the newest route, the clocks, the contact, the acknowledgements."""

    def __init__(self, who: Identity, timing: Timing | None = None) -> None:
        self.who = who
        self.timing = timing or Timing()
        self.brokers = BrokerTime()
        self.parse = parse_route
        """Reads a record; many instances in one process may share what they parsed."""
        self.route: Route | None = None
        self.status = Status.BLIND
        self.topic = who.logical
        self._unobeyed = False
        self._complete_ms: int | None = None
        self._read_at: Now | None = None
        self._heard_at: Now | None = None
        self._not_understood = self._read_problem = self._ack_problem = ""
        self._serial = self._confirmed = self._last_armed = 0
        self._said: tuple[object, ...] | None = None
        self._said_at: Now | None = None

    # -------------------------------------------------------------------------------------------- what is known

    @property
    def epoch(self) -> int:
        """The epoch to acknowledge; 0 without a route."""
        return self.route.epoch if self.route else 0

    @property
    def armed(self) -> bool:
        """Whether the newest route is armed."""
        return self.route is not None and self.route.is_armed

    @property
    def is_read(self) -> bool:
        """Whether the route was read to its end once."""
        return self._read_at is not None

    @property
    def problem(self) -> str:
        """What keeps it from reading, understanding or acknowledging the route, for a person; empty if nothing."""
        return "; ".join(filter(None, (self._not_understood, self._read_problem, self._ack_problem)))

    def contact_age(self, now: Now) -> float | None:
        """Seconds since the route was last known to be complete and an acknowledgement to have been taken.

        The older of the two counts, from when it was asked or sent. None if one of them never happened.
        """
        if self._read_at is None or self._heard_at is None:
            return None
        return max(elapsed(self._read_at, now), elapsed(self._heard_at, now))

    @property
    def bound_s(self) -> float:
        """How old the contact may be, seconds.

        The bound of an armed route, while the route is armed or the acknowledgement that was last confirmed (or one
        after it) says so: others count on what it says.
        """
        short = self.armed or self._last_armed >= max(self._confirmed, 1)
        return self.timing.stale_s if short else self.timing.unarmed_s

    def is_heard(self, now: Now) -> bool:
        """Whether an acknowledgement was confirmed within two heartbeats."""
        return self._heard_at is not None and elapsed(self._heard_at, now) <= 2 * self.timing.heartbeat_s

    def in_contact(self, now: Now) -> bool:
        """Whether the contact is young enough."""
        age = self.contact_age(now)
        return age is not None and age <= self.bound_s

    def _over(self, until_ms: int | None) -> bool:
        """Whether a pause is over: everything that was in the log after its end is known."""
        return until_ms is None or (self._complete_ms is not None and self._complete_ms >= until_ms)

    def _until(self) -> int | None:
        """The end of the pause that holds this client, or None."""
        raise NotImplementedError

    def wants_settled(self, now: Now) -> bool:
        """Whether a pause is past its end and only a settled read is missing."""
        until, least = self._until(), self.brokers.least(now)
        return until is not None and not self._over(until) and least is not None and least >= until

    # -------------------------------------------------------------------------------------------- reading

    def record(self, now: Now, key: bytes | None, value: bytes | None, broker_ms: int | None) -> None:
        """A record of the routes topic. One of another logical topic, or a tombstone, is passed over."""
        if key != self.who.logical.encode() or value is None:
            return
        if broker_ms is not None:
            self.brokers.seen(now, broker_ms)
        try:
            route = self.parse(value, key, broker_ms)
        except RouteFormatError as exc:
            # It is not acknowledged, so whoever wrote it sees this instance by name and does not go on.
            self._not_understood = f"a record of its route is not understood: {exc}"
            return
        if newer(self.route, route):
            self.route, self._unobeyed, self._not_understood = route, True, ""

    def read_ok(self, asked: Now, *, settled: bool = False) -> None:
        """The log is known up to the end that it had at ``asked``."""
        self._read_at = asked
        self._read_problem = ""
        least = self.brokers.least(asked)
        if settled and least is not None:
            self._complete_ms = max(self._complete_ms or 0, least)

    def read_failed(self, why: str) -> None:
        """The route cannot be read just now."""
        self._read_problem = why

    # -------------------------------------------------------------------------------------------- acknowledging

    def ack(self, now: Now, offsets: Mapping[int, int] | None = None) -> Outgoing | None:
        """The acknowledgement to write now: something changed, or a heartbeat is due. None if neither."""
        what = (self.status, self.epoch, self.topic, self.armed, self.brokers.is_known)
        pause = RETRY_S if self._said is None else self.timing.heartbeat_s
        if (what == self._said or self._said is None) and self._said_at and elapsed(self._said_at, now) < pause:
            return None
        self._said = what
        return self._outgoing(now, self.status, offsets)

    def good_bye(self, now: Now, offsets: Mapping[int, int] | None = None) -> Outgoing:
        """The last acknowledgement, once nothing is undelivered or uncommitted and everything is closed."""
        return self._outgoing(now, Status.GONE, offsets)

    def _outgoing(self, now: Now, status: Status, offsets: Mapping[int, int] | None) -> Outgoing:
        self._serial += 1
        self._said_at = now
        if self.armed:
            self._last_armed = self._serial
        who = self.who
        ack = Ack(
            who.logical,
            who.role,
            who.participant,
            who.instance,
            status,
            self.epoch,
            self.topic,
            who.group,
            who.principal,
            self.armed,
            dict(offsets or {}),
            self.brokers.least(now),
            int(self.timing.heartbeat_s * 1000),
            int(self._gone_s(self.armed) * 1000),
            int(self._gone_s(True) * 1000),
            self.problem,
        )
        return Outgoing(self._serial, ack, now)

    def _gone_s(self, armed: bool) -> float:
        """After how much silence it writes, or owns, nothing any more."""
        raise NotImplementedError

    def acked(self, out: Outgoing, now: Now, broker_ms: int | None) -> None:
        """The brokers took it, and stamped it with ``broker_ms`` (None: the topic is not stamped by the brokers)."""
        if out.serial >= self._confirmed:
            self._confirmed, self._heard_at = out.serial, out.sent
        self._ack_problem = ""
        if broker_ms is None:
            self._ack_problem = "acknowledgements are not stamped by the brokers, so their time is not known here"
        else:
            self.brokers.stamped(out.sent, now, broker_ms)

    def ack_failed(self, out: Outgoing, now: Now, why: str) -> None:
        """It was not taken, as far as can be told: it is written again, with the state of then."""
        self._said, self._said_at = None, now
        self._ack_problem = why

    def acks_absent(self, asked: Now) -> None:
        """There is no topic for acknowledgements. While nothing is armed nobody waits for any."""
        if not self.armed:
            self._heard_at = asked


class ProducerClient(RouteClient):
    """An instance that writes to the active topic, and stops when it is told to."""

    @property
    def admits(self) -> bool:
        """Whether the application's records are taken while the contact lasts."""
        return self.status in _GOES_ON

    def admit(self, now: Now) -> str | None:
        """The topic to write a record to, or None: it must not be taken now.

        Looks at the age of the contact itself, so that a process that slept refuses before anything else has run.
        """
        return self.topic if self.admits and not self._unobeyed and self.in_contact(now) else None

    def advance(self, now: Now, *, flushed: bool) -> bool:
        """Obey what was read. ``flushed``: nothing that was admitted is undelivered. Whether it stands elsewhere now.

        Leaving a topic always goes through FLUSHING: nothing is acknowledged as paused, and nothing is written to
        another topic, before the last record is delivered or has failed.
        """
        before = self.status, self.topic
        self._unobeyed = False
        status, topic = self._wanted(now)
        if self.admits and not (status in _GOES_ON and topic == self.topic):
            self.status = Status.FLUSHING
        if self.status is not Status.FLUSHING or flushed or (status in _GOES_ON and topic == self.topic):
            self.status, self.topic = status, topic
        return (self.status, self.topic) != before

    def _wanted(self, now: Now) -> tuple[Status, str]:
        route = self.route
        if self._read_at is None:
            return Status.BLIND, self.topic  # what was read so far may be history
        blind = not self.in_contact(now)
        if route is None:
            return Status.BLIND if blind else Status.RUNNING, self.topic
        if self._until() is not None:
            return Status.PAUSED, route.active
        if blind:
            return Status.BLIND, self.topic
        return Status.LEASE_EXPIRED if route.state is State.PAUSED else Status.RUNNING, route.active

    def _until(self) -> int | None:
        route = self.route
        if route is None or route.state is not State.PAUSED or self._over(route.until_ms):
            return None
        return route.until_ms

    def _gone_s(self, armed: bool) -> float:
        bound = self.timing.stale_s if armed else self.timing.unarmed_s
        return bound + self.timing.delivery_s + GONE_MARGIN_S


class ConsumerClient(RouteClient):
    """A member of a consumer group: on its topic until the group is released by name, then on the next.

    A consumer that cannot read the route goes on where it is: it never moves without a release.
    """

    def __init__(self, who: Identity, timing: Timing | None = None) -> None:
        super().__init__(who, timing)
        self.begun = False
        self.reading = False
        self._unread = False

    def _entry(self) -> GroupRoute | None:
        return self.route.groups.get(self.who.group or "") if self.route else None

    def _until(self) -> int | None:
        entry = self._entry()
        if entry is None or entry.state is not State.PAUSED or self._over(entry.until_ms):
            return None
        return entry.until_ms

    def _gone_s(self, armed: bool) -> float:
        return self.timing.session_s + CONSUMER_GONE_S

    def start(self) -> str | tuple[str, str] | None:
        """Where to begin: a topic, or None while the route was not read.

        Or two, source and active topic, where it depends on what the group has committed. Then it is the source if
        the group has offsets there and none on the active topic: it was never released. Otherwise the active topic.
        """
        if self._read_at is None:
            return None
        route, entry = self.route, self._entry()
        if route is None or entry is not None:
            return entry.topic if entry else self.who.logical
        if route.active != route.target or not route.source or route.source == route.target:
            return route.active
        return route.source, route.active

    def begin(self, topic: str) -> None:
        """It begins on this topic, as soon as its group is not paused."""
        self.topic, self.begun = topic, True

    def from_start(self, topic: str) -> bool:
        """Whether partitions of this topic without a committed offset begin at the log start."""
        entry = self._entry()
        return entry is not None and entry.came_from is not None and entry.topic == topic

    @property
    def moving(self) -> bool:
        """Whether it reads and must leave its topic: only then ``advance`` needs to know ``at_end``."""
        entry = self._entry()
        return self.reading and entry is not None and (self._until() is not None or entry.topic != self.topic)

    def advance(self, now: Now, *, clean: bool, at_end: bool, out: bool) -> Turn:
        """What to do with the group now.

        ``clean``: everything processed is committed. ``at_end``: every assigned partition of its topic has been read to
        the end it has now, processed and committed. ``out``: it is no member of the group (before it joined, too).
        """
        self._unobeyed = False
        if not self.begun:
            return Turn()
        entry = self._entry() or GroupRoute(self.topic)
        held = self._until() is not None
        goes_on = Status.LEASE_EXPIRED if entry.state is State.PAUSED else Status.RUNNING
        if self.reading:
            if not held and entry.topic == self.topic:
                self.status = goes_on
                return Turn()
            self.status = Status.DRAINING
            if not held and not at_end:
                return Turn()
            if not clean:
                return Turn(commit=True)
            # Paused in the middle, it finishes its own partitions first should the group be released meanwhile.
            self.reading, self._unread = False, not at_end
            return Turn(leave=True)
        if not out:
            self.status = Status.DRAINING
            return Turn()
        if held:
            self.status = Status.PAUSED
            return Turn()
        if not self._unread:
            self.topic = entry.topic
        self.reading, self._unread = True, False
        self.status = goes_on if self.topic == entry.topic else Status.DRAINING
        return Turn(subscribe=self.topic)
