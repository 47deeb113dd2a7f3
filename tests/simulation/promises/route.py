"""Promises about applications on the route: what they take, when they stop, and that none stands still for long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from tests.simulation.history import Event
from tests.simulation.promises.facts import SLACK_S, Facts, Violation, lets


def never_left_stopped(facts: Facts) -> Iterator[Violation]:
    """A producer that lives, reads the route and is not told otherwise writes again within the budget."""
    disturbed = [h for h in facts.hands if h["hand"] in ("producer_stall", "producers_idle", "route_unreadable")]
    last: dict[str, float] = {}
    begun: dict[str, float] = {}
    skewed = {h["did"] for h in facts.hand("app_clock_step")}
    ends = facts.end.at if facts.end is not None else 0.0
    for e in facts.events:
        if e.what == "admitted":
            begun.setdefault(e.who, e.at)
            yield from _gap(facts, e.who, last.get(e.who), e.at, disturbed, skewed)
            last[e.who] = e.at
        elif e.what in ("quiet", "crashed"):
            names = list(last) if e.what == "quiet" else [e.who]
            for name in names:
                yield from _gap(facts, name, last.get(name), e.at, disturbed, skewed)
                last.pop(name, None)
    del ends


def _gap(
    facts: Facts, who: str, before: float | None, now: float, disturbed: list[Event], skewed: set[Any]
) -> Iterator[Violation]:
    if before is None or now - before <= facts.budget_s + SLACK_S or who in skewed:
        return
    mine = (h for h in disturbed if h["hand"] != "producer_stall" or h["did"] == who)
    if any(before - 1 <= h.at + h["amount"] and h.at <= now for h in mine):
        return
    yield Violation("left_stopped", f"producer {who} wrote nothing for {now - before:.0f} s", now)


CONTACT_S = 13.0
"""What an application does rests on a picture of an armed route that is at most this old: 10 s, one round, slack."""


def admits_by_the_route(facts: Facts) -> Iterator[Violation]:
    """On an armed route no application takes a record for a topic that the route has not named for a while.

    However long it slept: what it takes then could be acknowledged behind the fence. Where the record is gone, that
    holds for whoever has obeyed it; who begins then knows of none, until it is written anew.
    """
    gone = [h.at for h in facts.hand("route_gone")]
    routes = [e for e in facts.deeds if e.what == "route"]
    at, obeyed = [e.at for e in routes], dict[str, int]()
    for e in facts.events:
        if e.what == "says":
            obeyed[e.who] = max(obeyed.get(e.who, 0), e.get("epoch", 0))
        if e.what != "admitted":
            continue
        known = bisect_right(at, e.at - CONTACT_S)
        if known == 0 or not routes[known - 1]["armed"]:
            continue
        lost = any(routes[known - 1].at <= g <= e.at for g in gone)
        if lost and obeyed.get(e.who, -1) < routes[known - 1].get("epoch", 0):
            continue
        pictures = routes[known - 1 : bisect_right(at, e.at)]
        if not any(lets(route, e["topic"], e.at) for route in pictures):
            last = pictures[-1]
            yield Violation(
                "woken",
                f"{e.who} took a record for {e['topic']}, although the route has said {last['state']} on "
                f"{last['active']} for {e.at - pictures[0].at:.0f} s",
                e.at,
            )


POINT_MARGIN_S = 2.0
"""A record that points paused producers elsewhere counts only if it is stamped so long before the end of the pause."""


def late_points_are_void(facts: Facts) -> Iterator[Violation]:
    """A point that came too late for its pause is obeyed by nobody, however long it was on its way."""
    before: Event | None = None
    void = ""
    for e in facts.events:
        if e.what == "route":
            paused = before is not None and before["state"] == "paused" and before["until"] is not None
            moved = before is not None and e["active"] != before["active"]
            if before is not None and paused and moved and e["state"] == "paused":
                void = e["active"] if e.at >= before["until"] - POINT_MARGIN_S + 0.1 else ""
            elif moved or e["state"] == "open":
                void = ""
            before = e
        elif e.what == "admitted" and e["topic"] == void:
            yield Violation("void", f"{e.who} took a record for {void} by a point that came too late", e.at)


DENIED_S = 30.0
"""A producer on the route that is denied for so long was not only late to obey."""


def denied_for_long(facts: Facts) -> Iterator[Violation]:
    """A DENY never holds a producer on the route beyond the end of its lease."""
    on_the_route = {e.who for e in facts.events if e.what == "admitted"}
    since: dict[str, float] = {}
    taken = [h.at for h in facts.hand("target_acl_removed") if h["did"]]
    for e in facts.events:
        if e.what != "produce" or e.who not in on_the_route:
            continue
        if e["topic"] == facts.target and any(at <= e.at for at in taken):
            continue
        if e["outcome"] != "fail" or e["why"] != "AccessDenied":
            since.pop(e.who, None)
        elif e.at - since.setdefault(e.who, e.at) > DENIED_S:
            yield Violation("denied", f"{e.who} is denied on {e['topic']} for {e.at - since.pop(e.who):.0f} s", e.at)


UNARMED_S = 12.0
"""An armed producer takes nothing after so long without a look at the route; one that is not armed goes on."""


def goes_on_unarmed(facts: Facts) -> Iterator[Violation]:
    """A route that cannot be read stops nobody while nothing is armed."""
    for hand in facts.hand("route_unreadable"):
        begins, ends = hand.at + UNARMED_S, min(hand.at + hand["amount"], hand.at + 60.0)
        armed = [e["armed"] for e in facts.deeds if e.what == "route" and e.at <= hand.at + 1.0]
        moved = [e for e in facts.deeds if e.what in ("crashed", "quiet", "healed") and hand.at - 30 < e.at < ends]
        others = [h for h in facts.hands if h is not hand and hand.at - 210 < h.at < ends]
        if ends - begins < 15.0 or (armed and armed[-1]) or moved or others:
            continue
        wrote = {e.who for e in facts.events if e.what == "admitted" and begins <= e.at <= ends}
        before = {e.who for e in facts.events if e.what == "admitted" and hand.at - 6.0 <= e.at <= hand.at}
        for who in sorted(before - wrote):
            yield Violation("unarmed", f"{who} took nothing while the route could not be read", ends)


def points_count_in_time(facts: Facts) -> Iterator[Violation]:
    """A point that is stamped after the end of the pause moves nobody."""
    before = facts.source
    for e in facts.deeds:
        if e.what != "route":
            continue
        points, before = e["active"] == facts.target != before, e["active"]
        if not points or e["state"] != "paused" or e["until"] is None:
            continue
        late = e.at - e["until"]
        if late >= 0.0:
            yield Violation("void", f"a point to {facts.target} counts, {late:.1f} s after its pause had ended", e.at)


def paused_is_flushed(facts: Facts) -> Iterator[Violation]:
    """A producer that says paused has nothing on its way, and takes nothing before the route lets it.

    One whose word does not come through goes on as the route says, and is heard later.
    """
    said: dict[str, Event] = {}
    taken: dict[tuple[str, str, int], float] = {}
    routes: list[Event] = []
    for e in facts.events:
        if e.what == "says":
            said[e.who] = e
        elif e.what == "route":
            routes.append(e)
        elif e.what == "admitted":
            taken[e.who, e["key"], e["seq"]] = e.at
        elif e.what == "produce" and e["outcome"] in ("ok", "fail"):
            last = said.get(e.who)
            if last is not None and last["status"] == "paused":
                at = taken.get((e.who, e["key"], e["seq"]), last.at)
                since = e.at - last.at
                if at > last.at and any(lets(r, e["topic"], at) for r in _between(routes, last.at, at)):
                    continue
                yield Violation(
                    "flush", f"{e.who} had {e['key']}#{e['seq']} on its way {since:.1f} s after paused", e.at
                )


def _between(routes: list[Event], since: float, until: float) -> list[Event]:
    """The picture of the route that was in force at first, and every later one."""
    first = next((i for i, r in enumerate(routes) if r.at > since), len(routes))
    return [r for r in routes[max(0, first - 1) :] if r.at <= until]


RULES = (
    never_left_stopped,
    admits_by_the_route,
    late_points_are_void,
    denied_for_long,
    goes_on_unarmed,
    points_count_in_time,
    paused_is_flushed,
)
"""Every rule of this module."""
