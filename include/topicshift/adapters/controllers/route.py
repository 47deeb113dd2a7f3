"""The controller for applications that follow the route: it writes the route, and judges their acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from topicshift.adapters.clock import SystemClock
from topicshift.core.errors import OwnershipLost, Refused, Unreadable
from topicshift.core.route.acts import (
    Act,
    anew,
    arm,
    disarm,
    find_route,
    logical_by_followers,
    obeyed_epoch,
    open_groups,
    open_producers,
    pause_groups,
    pause_producers,
    point_groups,
    point_producers,
    remembered,
    seconds_to_point,
)
from topicshift.core.route.judge import Follower, Judgement, Scene, following, is_gone, judge
from topicshift.core.route.records import MAX_BEHIND_S, Ack, BadAck, Route
from topicshift.ports import Clock, ControlContext, InstanceState, Participant, ParticipantState

_TRIES = 3


class RouteRecords(Protocol):
    """What the controller needs of :class:`topicshift.adapters.route_store.RouteStore`."""

    def read_all(self) -> tuple[dict[str, Route], dict[str, str]]:
        """Every route as of now by logical topic, and what is wrong with those that are not understood."""

    def all_acks(self) -> tuple[list[Ack], list[BadAck]]:
        """The latest acknowledgement of every instance, and those that are not understood."""

    def broker_now(self) -> tuple[int, int]:
        """The bounds of the brokers' time, ms since the epoch. Raises ``Unreadable`` where it is not known."""

    def write(
        self, route: Route, expect_epoch: int | None, *, within_s: float | None = None, over_bad: bool = False
    ) -> Route:
        """Compare-and-set; returns the record as it can be read. Raises ``Refused`` when ``within_s`` are over."""

    def check(self) -> list[str]:
        """What is wrong with the two topics, in words."""

    def prepare(self, logical: str) -> list[str]:
        """Make and mend both topics; what was done."""

    def dismiss(self, logical: str, instance: str) -> None:
        """Take an instance's last word out."""

    def close(self) -> None:
        """Let go."""


class RouteController:
    """Stops, points and starts producers and consumer groups through the route. See ``docs/route-protocol.md``.

    All producers of a logical topic share one record: stopping any of them pauses all of them, so stopping the next
    changes nothing. Consumer groups have an entry each. Every act is one compare-and-set of the record, raises its
    epoch, and returns at once.
    """

    kind = "route"
    needs_person = False
    seeded = False
    leased = True

    def __init__(self, store: RouteRecords, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._known: dict[str, Route] = {}

    # ------------------------------------------------------------------------------------------------ before

    def check(self, ctx: ControlContext) -> list[str]:
        """What is wrong with the route's topics, in words; a missing one is not. Raises ``Unreadable``."""
        return self._store.check()

    def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
        """Nothing: the plan looks at the route's topics, and at who follows it, by findings of its own."""
        return []

    def prepare(self, ctx: ControlContext) -> list[str]:
        """Make the route's topics, mend their configs, and open what an act needs; what was done, in words.

        Raises ``Refused`` for what cannot be mended.
        """
        routes, _ = self._store.read_all()
        return self._store.prepare(find_route(routes, ctx.source, ctx.target, ctx.migration, ctx.first_source)[0])

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Every application that follows the route of this source, declared or not, by principal.

        One whose ``logical`` topic is another is on the source by a route of its own, or by none: this migration does
        not move it.
        """
        logical, _, acks, bad = self._look(ctx)
        return following(logical, ctx.source, acks, bad, self._now_of(acks))

    # ------------------------------------------------------------------------------------------------ acts

    def arm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Arm the route: from then its producers go blind after 10 s without contact. Wait until all are ``armed``."""
        self._change(ctx, arm)

    def disarm(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Disarm it, unless another migration owns it by now. Nothing has to be waited for."""
        self._change(ctx, disarm)

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Pause producers until ``ctx.lease_until`` at most; consumer groups commit and leave.

        Pausing producers also holds every group that reads the source by the route to it, so that none follows the
        producers before it is released. Raises ``Refused`` without a lease that lies ahead, and where this machine's
        clock is more than 5 s off the brokers'.
        """
        producers, groups = _parts(participants)
        if producers:
            self._compare_clocks()
            self._change(ctx, lambda route, act: pause_producers(route, act, self._known_groups(act)))
        if groups:
            self._change(ctx, lambda route, act: pause_groups(route, act, groups))

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Point paused producers to ``topic``; release consumer groups to it (they must hold a drain certificate).

        Raises ``Refused`` for producers that are not paused, or whose pause is about to end; also when the record was
        stamped too late and is void: then they go on where they were, and have to be stopped again.
        """
        producers, groups = _parts(participants)
        if producers:
            written = self._change(ctx, lambda route, act: point_producers(route, act, topic))
            if written is not None and written.voided:
                raise Refused(
                    f"The record that points producers of {written.logical} to {topic} came too late for their pause "
                    f"and is void: they go on with {written.active}. Stop them again."
                )
        if groups:
            self._change(ctx, lambda route, act: point_groups(route, act, groups, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Let producers and consumer groups go on where the route points them."""
        producers, groups = _parts(participants)
        if producers:
            self._change(ctx, open_producers)
        if groups:
            self._change(ctx, lambda route, act: open_groups(route, act, groups))

    def _compare_clocks(self) -> None:
        """Raises ``Refused`` where this machine's clock, by which a lease is counted out, is not the brokers'."""
        least, most = self._store.broker_now()
        now_ms = self._clock.now().timestamp() * 1000
        off_s = max(now_ms - most, least - now_ms) / 1000
        if off_s > MAX_BEHIND_S:
            raise Refused(
                f"The clock of this machine is {off_s:.1f} s {'ahead of' if now_ms > most else 'behind'} the brokers', "
                f"and at most {MAX_BEHIND_S:g} s are allowed: a pause that it begins could outlast the freeze budget "
                "by as much. No producer was stopped by this. Set its clock, then try again."
            )

    def _look(self, ctx: ControlContext) -> tuple[str, Route | None, list[Ack], list[BadAck]]:
        """The logical topic, its record (None without one), and every acknowledgement. Raises as :func:`find_route`."""
        routes, unread = self._store.read_all()
        acks, bad = self._store.all_acks()
        logical, route = find_route(routes, ctx.source, ctx.target, ctx.migration, ctx.first_source)
        if route is not None:
            self._known[logical] = route
        else:
            logical = self._obeyed_name(ctx, logical, routes, acks)
        # Only what may concern this source: another topic's bad record is that topic's fault.
        near = {a.logical for a in acks if a.topic in (ctx.source, ctx.target)}
        for name in sorted(unread.keys() & {*near, logical, ctx.source}):
            raise Unreadable(
                f"The route of {name} is not understood: {unread[name]}. Whether its producers may write is unknown. "
                f"Write it anew with `topicshift route set --topic {name}`, or upgrade."
            )
        return logical, route, acks, bad

    def _obeyed_name(self, ctx: ControlContext, named: str, routes: dict[str, Route], acks: list[Ack]) -> str:
        """The logical topic of a route without a record, by those that obeyed one to either topic, and live."""
        ours = (ctx.source, ctx.target)
        here = [a for a in acks if a.epoch > 0 and a.topic in ours and a.logical not in {named, *routes}]
        if not here or any(a.logical == named for a in acks):
            return named
        now_ms = self._store.broker_now()
        return logical_by_followers(named, [a for a in here if not is_gone(a, now_ms)])

    def _known_groups(self, act: Act) -> list[str]:
        acks, _ = self._store.all_acks()
        return sorted({a.group for a in acks if a.logical == act.logical and a.group and not is_gone(a, act.now_ms)})

    def _live(self, logical: str) -> list[Ack]:
        acks, _ = self._store.all_acks()
        return [a for a in acks if a.logical == logical and not is_gone(a, self._store.broker_now())]

    def _lost(self, logical: str, acked: int) -> Route | None:
        """The newest record that this controller has read or written, where none is there any more: somebody may be
        about to obey it. None where others have obeyed a newer one."""
        known = self._known.get(logical)
        return known if known is not None and known.epoch >= acked else None

    def _change(self, ctx: ControlContext, decide: Callable[[Route | None, Act], Route | None]) -> Route | None:
        for attempt in range(_TRIES):
            logical, route, acks, _ = self._look(ctx)
            acks = [a for a in acks if a.logical == logical]
            acked = obeyed_epoch(route, acks)
            left = None if ctx.lease_until is None else ctx.lease_until - self._clock.now()
            act = Act(
                logical,
                ctx.source,
                ctx.target,
                ctx.migration,
                ctx.epoch,
                self._store.broker_now(),
                None if left is None else int(left.total_seconds() * 1000),
                acked,
            )
            base = (
                route
                or self._lost(logical, acked)
                or remembered(logical, ctx.source, self._live(logical), ctx.producers_on)
            )
            wanted = decide(base, act)
            if wanted is None and route is None and base is not None:
                wanted = anew(base, act)  # it holds by what clients obey alone; whoever starts now would not know it
            if wanted is None:
                return None
            ctx.still()
            try:
                within_s = seconds_to_point(route, wanted, act)
                self._known[logical] = self._store.write(wanted, route.epoch if route else None, within_s=within_s)
                return self._known[logical]
            except OwnershipLost:
                raise
            except Refused:
                # Somebody wrote between reading and writing, or it took too long: decide anew on what is there now.
                if attempt == _TRIES - 1:
                    raise
        return None

    # ------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant, judged by :func:`topicshift.core.route.judge.judge`.

        Raises ``Unreadable`` if Kafka cannot be read, or the brokers' time is not known.
        """
        logical, route, acks, bad = self._look(ctx)
        now_ms = self._now_of(acks)
        scene = Scene(
            logical, route, [a for a in acks if a.logical == logical], [b for b in bad if b.logical == logical], now_ms
        )
        return [self._state(p, judge(scene, p.role, p.name, p.group), now_ms) for p in participants]

    def _now_of(self, acks: list[Ack]) -> tuple[int, int]:
        """The brokers' time, which nobody needs to know where nobody has reported."""
        return self._store.broker_now() if acks else (0, 0)

    def _state(self, who: Participant, found: Judgement, now_ms: tuple[int, int]) -> ParticipantState:
        clears_at = None
        if found.clears_ms is not None:
            clears_at = self._clock.now() + timedelta(milliseconds=found.clears_ms - now_ms[0])
        return ParticipantState(
            who, found.status, found.topic, tuple(map(_instance, found.live)), found.reason, found.armed, clears_at
        )

    def close(self) -> None:
        """Let the store go."""
        self._store.close()


def _parts(participants: Sequence[Participant]) -> tuple[list[Participant], list[str]]:
    producers = [p for p in participants if p.role == "producer"]
    groups = [p.group for p in participants if p.role == "consumer" and p.group is not None]
    return producers, groups


def _instance(ack: Ack) -> InstanceState:
    seen = None if ack.broker_ms is None else datetime.fromtimestamp(ack.broker_ms / 1000, UTC)
    return InstanceState(
        ack.instance, ack.status.value, ack.topic, ack.epoch, dict(ack.offsets), seen, ack.principal, ack.armed_gone_ms
    )
