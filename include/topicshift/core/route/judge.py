"""What acknowledgements add up to: whether an application is stopped, runs, or is not known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from topicshift.core.route.acts import EPOCH_JUMP, group_entry
from topicshift.core.route.records import (
    MAX_AHEAD_S,
    MAX_BEHIND_S,
    MISSED_HEARTBEATS,
    Ack,
    BadAck,
    Route,
    Status,
)

_GOES_ON = (Status.RUNNING, Status.LEASE_EXPIRED)


@dataclass(frozen=True)
class Scene:
    """All that is known of a logical topic. ``now_ms`` are the bounds of the brokers' time."""

    logical: str
    route: Route | None
    acks: Sequence[Ack]
    bad: Sequence[BadAck]
    now_ms: tuple[int, int]


@dataclass(frozen=True)
class Judgement:
    """``status`` of one application, the ``topic`` it is on (None if mixed or not known), and why.

    ``live`` are the acknowledgements of its instances that may still write or read. ``clears_ms`` is when, by the
    brokers' clock, the last silent one of them counts as gone; None if none is silent, or one never will.
    """

    status: Literal["running", "stopped", "unknown"]
    topic: str | None
    armed: bool
    live: tuple[Ack, ...] = ()
    reason: str = ""
    clears_ms: int | None = None


def is_gone(ack: Ack, now_ms: tuple[int, int]) -> bool:
    """Whether the instance has said good-bye, or was silent for longer than it may still write, whatever the clock."""
    return ack.status is Status.GONE or now_ms[0] - (ack.broker_ms or 0) > ack.gone_ms


def is_silent(ack: Ack, now_ms: tuple[int, int]) -> bool:
    """Whether it may have missed three heartbeats."""
    return now_ms[1] - (ack.broker_ms or 0) > MISSED_HEARTBEATS * ack.heartbeat_ms


def judge(scene: Scene, role: str, participant: str, group: str | None) -> Judgement:
    """The state of one application.

    An instance that is silent, blind, not understood, or whose picture of the brokers' clock is wrong, makes it
    unknown, by name. A silent one that had acknowledged the pause is left out: it writes nothing more before it has
    seen the whole route anew. Stopped: the pause is in force and every live instance has acknowledged it, or all are
    gone. Otherwise it runs, or may at any moment; ``topic`` is given when every live instance has acknowledged the
    present epoch there. Of one whose instances are all gone it is where one that starts now would go on at once.
    """
    route, now_ms = scene.route, scene.now_ms
    armed_at = route.armed if route else 0
    bad = [b for b in scene.bad if b.may_be(role, participant, group)]
    mine = [a for a in scene.acks if (a.role, a.participant) == (role, participant)]
    mine = [a for a in mine if role == "producer" or a.group == group]
    if not mine and not bad:
        return Judgement("unknown", None, False, reason=_never(scene.logical, participant))
    if role == "producer":
        held = route is not None and route.holds(now_ms[1])
        paused_at, topic = (route.pause, route.active) if route else (0, scene.logical)
    else:
        entry = group_entry(route, group or "", scene.logical)
        held, paused_at, topic = entry.holds(now_ms[1]), entry.pause, entry.topic

    def quiet(ack: Ack) -> bool:
        return ack.status is Status.PAUSED and 0 < paused_at <= ack.epoch

    here = sorted((a for a in mine if not is_gone(a, now_ms)), key=lambda a: a.instance)
    left_out = [a for a in here if is_silent(a, now_ms) and quiet(a)]
    live = tuple(a for a in here if a not in left_out)
    armed = armed_at > 0 and not bad and all(a.armed and a.epoch >= armed_at for a in live)
    epoch = route.epoch if route else 0
    doubts = [_not_understood(b, scene.logical) for b in bad]
    doubts += [doubt for a in live if (doubt := _doubt(a, now_ms, epoch))]
    if doubts:
        return Judgement("unknown", None, armed, live, "; ".join(doubts), _clears(live, bad, now_ms))
    if not live:
        return Judgement("stopped", None if held else topic, armed, reason=_why_nobody(mine, left_out, now_ms))
    notes = [_left_out(a, now_ms) for a in left_out] + [_void(route)] * bool(route and route.voided)
    late = [a for a in live if a.epoch < epoch]
    notes += [f"{a.instance} has not acknowledged epoch {epoch} yet (last: {a.epoch}, {_where(a)})" for a in late]
    good: Callable[[Ack], bool] = quiet if held else lambda a: a.status in _GOES_ON
    notes += [f"{a.instance} is {_where(a)}" for a in live if a not in late and not (good(a) and a.topic == topic)]
    topics = {a.topic for a in live}
    agreed = topics.pop() if len(topics) == 1 and not late else None
    reason = "; ".join(notes)
    if held and all(quiet(a) for a in live):
        return Judgement("stopped", agreed, armed, live, reason)
    return Judgement("running", agreed if all(a.status in _GOES_ON for a in live) else None, armed, live, reason)


def _never(logical: str, participant: str) -> str:
    return (
        f"no instance of {participant} has ever reported on the route of {logical}: is it running with the route "
        f"client, under the name {participant!r} and for the topic {logical!r}?"
    )


def _not_understood(bad: BadAck, logical: str) -> str:
    return (
        f"the last acknowledgement of {bad.instance} is not understood ({bad.why}), so whether it writes is unknown; "
        f"mend that application, or, if it is dead, say so: topicshift route dismiss {logical} {bad.instance}"
    )


def _doubt(ack: Ack, now_ms: tuple[int, int], epoch: int) -> str:
    age_s = (now_ms[1] - (ack.broker_ms or 0)) / 1000
    if is_silent(ack, now_ms):
        return (
            f"{ack.instance} is silent for {age_s:.0f} s (last: {_where(ack)}); if it is dead, it counts as gone after "
            f"{ack.gone_ms / 1000:.0f} s, or by a person's word: topicshift route dismiss {ack.logical} {ack.instance}"
        )
    if age_s < -MAX_AHEAD_S:
        return (
            f"the last word of {ack.instance} is stamped {-age_s:.1f} s in the future: the clocks of the brokers "
            "differ, so the end of a pause is not known; set their clocks"
        )
    if ack.status is Status.BLIND:
        return f"{ack.instance} is blind{_said(ack)}"
    if ack.clock_ms is None:
        return f"{ack.instance} does not know the brokers' time yet, nor when a pause ends{_said(ack)}"
    behind_s = ((ack.broker_ms or 0) - ack.clock_ms) / 1000
    if behind_s < -MAX_AHEAD_S or behind_s > MAX_BEHIND_S:
        way = f"{-behind_s:.1f} s ahead" if behind_s < 0 else f"{behind_s:.1f} s behind"
        return (
            f"{ack.instance} takes the brokers' clock to be {way}, so it would end a pause "
            f"{'early' if behind_s < 0 else 'late'}; look at the clock of its machine, or at slow acknowledgements"
        )
    if ack.epoch > epoch + EPOCH_JUMP:
        return (
            f"{ack.instance} says that it has obeyed epoch {ack.epoch}, and the route is at {epoch}; mend that "
            f"application, or dismiss the instance: topicshift route dismiss {ack.logical} {ack.instance}"
        )
    return ""


def _clears(live: Iterable[Ack], bad: Sequence[BadAck], now_ms: tuple[int, int]) -> int | None:
    silent = [a for a in live if is_silent(a, now_ms)]
    return max((a.broker_ms or 0) + a.gone_ms for a in silent) if silent and not bad else None


def _where(ack: Ack) -> str:
    return f"{ack.status} on {ack.topic}{_said(ack)}"


def _said(ack: Ack) -> str:
    return f" ({ack.reason})" if ack.reason else ""


def _void(route: Route | None) -> str:
    if route is None:
        return ""
    return (
        f"the record that points producers to {route.voided} (epoch {route.epoch}) came too late for its pause and is "
        f"void, so they go on with {route.active}; stop them again"
    )


def _left_out(ack: Ack, now_ms: tuple[int, int]) -> str:
    age_s = (now_ms[1] - (ack.broker_ms or 0)) / 1000
    return f"{ack.instance} is silent for {age_s:.0f} s since it paused, and is not waited for"


def _why_nobody(mine: Sequence[Ack], left_out: Sequence[Ack], now_ms: tuple[int, int]) -> str:
    if left_out:
        return "; ".join(_left_out(a, now_ms) for a in left_out)
    silent = sorted((a for a in mine if a.status is not Status.GONE), key=lambda a: a.instance)
    if not silent:
        return f"all {len(mine)} known instances have said good-bye"
    who = ", ".join(f"{a.instance} ({(now_ms[0] - (a.broker_ms or 0)) / 1000:.0f} s)" for a in silent[:5])
    return f"no live instance: {who} went silent without a good-bye, for longer than they may still write"


@dataclass(frozen=True)
class Follower:
    """An application that follows a route, by principal: its instances that are not gone."""

    logical: str
    role: str
    participant: str
    group: str | None
    principal: str | None
    instances: tuple[str, ...]


def following(
    logical: str, source: str, acks: Iterable[Ack], bad: Iterable[BadAck], now_ms: tuple[int, int]
) -> list[Follower]:
    """Every application that follows the route of ``logical``, and every one that is on ``source`` by another route.

    An instance that is not understood stands under the participant that can be made out, or ``?``. Sorted.
    """
    rows: dict[tuple[str, str, str, str | None, str | None], list[str]] = {}
    for a in acks:
        if not is_gone(a, now_ms) and (a.logical == logical or a.topic == source):
            rows.setdefault((a.logical, a.role, a.participant, a.group, a.principal), []).append(a.instance)
    for b in bad:
        if b.logical == logical:
            who = (b.logical, b.role or "producer", b.participant or "?", b.group, None)
            rows.setdefault(who, []).append(b.instance)
    found = [Follower(*key, tuple(sorted(names))) for key, names in rows.items()]
    return sorted(found, key=lambda f: (f.logical, f.role, f.participant, f.group or "", f.principal or ""))
