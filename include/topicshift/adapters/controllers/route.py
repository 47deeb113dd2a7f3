"""The controller for applications that follow the route: it writes the route, and judges their acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from topicshift.adapters.clock import SystemClock
from topicshift.core.errors import Refused
from topicshift.core.route.acts import (
    Act,
    find_route,
    group_entry,
    last_moment,
    open_groups,
    open_producers,
    pause_groups,
    pause_producers,
    point_groups,
    point_producers,
)
from topicshift.core.route.judge import Follower
from topicshift.core.route.records import MAX_CLOCK_SKEW_S, MISSED_HEARTBEATS, Ack, Route, Status
from topicshift.ports import Clock, ControlContext, InstanceState, Participant, ParticipantState

_TRIES = 3


class RouteRecords(Protocol):
    """What the controller needs of :class:`topicshift.adapters.route_store.RouteStore`."""

    def read_all(self, only: str | None = None) -> dict[str, Route]:
        """Every route as of now, by logical topic."""

    def acks(self, logical: str) -> list[Ack]:
        """The latest acknowledgement of every instance."""

    def clock_ahead(self) -> float | None:
        """Seconds by which this machine's clock runs ahead of the broker's."""

    def write(self, route: Route, expect_epoch: int | None, *, not_after: datetime | None = None) -> None:
        """Compare-and-set; refused at ``not_after``."""

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
    leased = True

    def __init__(self, store: RouteRecords, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or SystemClock()

    def prepare(self, ctx: ControlContext) -> None:
        """Make the route's topics, without which no client can report, and open what an act needs."""
        warm = getattr(self._store, "warm", None)
        if warm is not None:
            logical, _ = self._route(ctx)
            warm(logical)

    # ------------------------------------------------------------------------------------------------ acts

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Pause producers until ``ctx.lease_until`` at most; consumer groups commit and leave.

        Pausing producers also holds every group that reads the source by the route to it, so that none follows the
        producers before it is released. Raises ``Refused`` without a lease that lies ahead.
        """
        producers, groups = _parts(participants)
        if producers:
            self._change(ctx, lambda route, act: pause_producers(route, act, self._known_groups(act.logical)))
        if groups:
            self._change(ctx, lambda route, act: pause_groups(route, act, groups))

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        """Point paused producers to ``topic``; release consumer groups to it (they must hold a drain certificate).

        Raises ``Refused`` for producers that are not paused, or whose lease is about to run out.
        """
        producers, groups = _parts(participants)
        if producers:
            self._change(ctx, lambda route, act: point_producers(route, act, topic))
        if groups:
            self._change(ctx, lambda route, act: point_groups(route, act, groups, topic))

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        """Let producers and consumer groups go on where the route points them."""
        producers, groups = _parts(participants)
        if producers:
            self._change(ctx, open_producers)
        if groups:
            self._change(ctx, lambda route, act: open_groups(route, act, groups))

    def _known_groups(self, logical: str) -> list[str]:
        return sorted(
            {a.group for a in self._store.acks(logical) if a.group is not None and a.status is not Status.GONE}
        )

    def _route(self, ctx: ControlContext) -> tuple[str, Route | None]:
        return find_route(self._store.read_all(), ctx.source, ctx.target, ctx.migration)

    def _change(self, ctx: ControlContext, decide: Callable[[Route | None, Act], Route | None]) -> None:
        for attempt in range(_TRIES):
            logical, route = self._route(ctx)
            acked = max((a.epoch for a in self._store.acks(logical)), default=0)
            now = self._clock.now()
            act = Act(logical, ctx.source, ctx.target, ctx.migration, ctx.epoch, now, ctx.lease_until, acked)
            wanted = decide(route, act)
            if wanted is None:
                return
            try:
                self._store.write(wanted, route.epoch if route else None, not_after=last_moment(route, wanted, now))
            except Refused:
                # Somebody wrote between reading and writing. Decide anew on what is there now; ownership is checked.
                if attempt == _TRIES - 1:
                    raise
                continue
            return

    # ------------------------------------------------------------------------------------------- observing

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        """One state for each participant, judged by :func:`judge`. Raises ``Unreadable`` if Kafka cannot be read."""
        logical, route = self._route(ctx)
        acks = self._store.acks(logical)
        now = self._clock.now()
        ahead = self._store.clock_ahead()
        return [judge(p, logical, route, acks, now, ahead) for p in participants]

    def followers(self, ctx: ControlContext) -> list[Follower]:
        """Every application that follows the route of this source, declared or not, by principal."""
        logical, _ = self._route(ctx)
        rows: dict[tuple[str, str, str | None, str | None], list[str]] = {}
        now_ms = self._clock.now().timestamp() * 1000
        for a in self._store.acks(logical):
            if a.status is not Status.GONE and now_ms - (a.broker_ms or 0) <= a.gone_ms + 1000 * MAX_CLOCK_SKEW_S:
                rows.setdefault((a.role, a.participant, a.group, a.principal), []).append(a.instance)
        found = [Follower(logical, *key, tuple(sorted(names))) for key, names in rows.items()]
        return sorted(found, key=lambda f: (f.role, f.participant, f.group or "", f.principal or ""))

    def close(self) -> None:
        """Let the store go."""
        self._store.close()


def _parts(participants: Sequence[Participant]) -> tuple[list[Participant], list[str]]:
    producers = [p for p in participants if p.role == "producer"]
    groups = [p.group for p in participants if p.role == "consumer" and p.group is not None]
    return producers, groups


def judge(
    participant: Participant,
    logical: str,
    route: Route | None,
    acks: Sequence[Ack],
    now: datetime,
    clock_ahead: float | None,
) -> ParticipantState:
    """What the acknowledgements of a participant's instances add up to. Pure.

    ``now`` is the orchestrator's clock, ``clock_ahead`` the seconds by which it runs ahead of the broker's (None:
    not known, taken as 0). An instance that is silent, or whose clock runs ahead, makes the participant unknown, by
    name. Stopped: the pause is in force and every live instance has acknowledged its epoch, or all are gone. Otherwise
    it runs, or may at any moment; ``topic`` is given when every live instance has acknowledged the present epoch there.
    """
    mine = [
        a
        for a in acks
        if a.role == participant.role
        and a.participant == participant.name
        and (participant.role == "producer" or a.group == participant.group)
    ]
    if not mine:
        return ParticipantState(
            participant,
            "unknown",
            None,
            reason=f"no instance of {participant.name} has ever reported on the route of {logical}: is it running with "
            f"the route client, under the name {participant.name!r} and for the topic {logical!r}?",
        )
    broker_now = now.timestamp() - (clock_ahead or 0.0)
    ages = {a.instance: broker_now - (a.broker_ms or 0) / 1000 for a in mine}
    live = [a for a in mine if a.status is not Status.GONE and ages[a.instance] * 1000 <= a.gone_ms]
    states = tuple(_instance(a) for a in sorted(live, key=lambda a: a.instance))
    if not live:
        return ParticipantState(participant, "stopped", None, reason=_why_gone(mine, ages))
    epoch = route.epoch if route else 0
    doubts = _doubts(live, ages, clock_ahead)
    if doubts:
        return ParticipantState(participant, "unknown", None, states, reason="; ".join(doubts))
    if participant.role == "producer":
        held = route is not None and route.holds(now)
        topic = route.active if route else logical
    else:
        entry = group_entry(route, participant.group or "", logical)
        held, topic = entry.holds(now), entry.topic
    late = [a for a in live if a.epoch < epoch]
    wanted = (Status.PAUSED,) if held else (Status.RUNNING, Status.LEASE_EXPIRED)
    other = [a for a in live if a.epoch >= epoch and (a.status not in wanted or a.topic != topic)]
    reason = "; ".join(
        [
            f"{a.instance} has not acknowledged epoch {epoch} yet (last: {a.epoch}, {a.status} on {a.topic})"
            for a in late
        ]
        + [f"{a.instance} is {a.status} on {a.topic}{_said(a)}" for a in other]
    )
    topics = {a.topic for a in live}
    agreed = topics.pop() if len(topics) == 1 and not late else None
    if held and not late and all(a.status is Status.PAUSED for a in live):
        return ParticipantState(participant, "stopped", agreed, states, reason)
    running = agreed if all(a.status in (Status.RUNNING, Status.LEASE_EXPIRED) for a in live) else None
    return ParticipantState(participant, "running", running, states, reason)


def _said(ack: Ack) -> str:
    return f" ({ack.reason})" if ack.reason else ""


def _doubts(live: Sequence[Ack], ages: dict[str, float], clock_ahead: float | None) -> list[str]:
    doubts = []
    for ack in sorted(live, key=lambda a: a.instance):
        age = ages[ack.instance]
        if age < -MAX_CLOCK_SKEW_S:
            doubts.append(
                f"the last word of {ack.instance} lies {-age:.1f} s ahead of this machine's clock, which runs behind "
                "the broker's: a lease would be over there before it is here; set this machine's clock"
            )
        elif age * 1000 > MISSED_HEARTBEATS * ack.heartbeat_ms:
            doubts.append(
                f"{ack.instance} is silent for {age:.0f} s (last: {ack.status} on {ack.topic}); if it is dead, it "
                f"counts as gone after {ack.gone_ms / 1000:.0f} s, else look at it"
            )
        elif ack.status is Status.BLIND:
            doubts.append(f"{ack.instance} cannot read the route{_said(ack)}")
        else:
            ahead = ack.at.timestamp() - (ack.broker_ms or 0) / 1000 - (clock_ahead or 0.0)
            if ahead > MAX_CLOCK_SKEW_S:
                doubts.append(
                    f"the clock of {ack.instance} runs {ahead:.1f} s ahead, so it would end a lease too early; "
                    "set its clock"
                )
    return doubts


def _why_gone(mine: Sequence[Ack], ages: dict[str, float]) -> str:
    silent = [a for a in mine if a.status is not Status.GONE]
    if not silent:
        return f"all {len(mine)} known instances have said good-bye"
    who = ", ".join(f"{a.instance} ({ages[a.instance]:.0f} s)" for a in sorted(silent, key=lambda a: a.instance)[:5])
    return f"no live instance: {who} went silent without a good-bye, for longer than they may still write"


def _instance(ack: Ack) -> InstanceState:
    seen = None if ack.broker_ms is None else datetime.fromtimestamp(ack.broker_ms / 1000, UTC)
    return InstanceState(
        ack.instance, ack.status.value, ack.topic, ack.epoch, dict(ack.offsets), seen, ack.principal, ack.gone_ms
    )
