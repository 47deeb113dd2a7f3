"""Rules on how the product goes about it, besides those on what came of it: seats, epochs, times, and what holds on a
calm day. They share no code with the product either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .checker import Facts, Violation, fences_of, lets
from .history import Event
from .kernel import BASE

ACT_SLACK_S = 1.5
"""How long after the end of its seat a call may be sent: the call before it, and the rounding of times."""

END_SLACK_S = 20.0
"""Added to the budget before a freeze that nothing disturbs has to be at its end: one act, looked at and told again."""

GONE_S = 40.0
"""Within this time after its run was deleted or has failed a freeze is resumed: the watch looks every 10 s."""

CLOCKS_S = 10.0
"""How far the product's own clocks may be off in a scenario, and the age of a look."""

LOOK_S = 3.0
"""An act rests on a look at the world that is at most this old, where no fault is in the way."""

PAUSED_S = 200.0
"""The longest time for which somebody pauses a run."""

ROLLBACK_S = 30.0
"""Within this time a rollback that was asked for has taken the seat, so that nobody else points producers."""

WATCH_S = 60.0 + 2 * END_SLACK_S
"""Added where people's hands took the run away: the watch looks at a freeze a minute after its lease."""


# ------------------------------------------------------------------------------------------------ on a calm day


def calm_is_done(facts: Facts) -> Iterator[Violation]:
    """Where nothing goes wrong at all, the migration is done."""
    if facts.start.get("calm") and facts.end is not None and facts.end["state"] != "done":
        yield Violation("calm", f"nothing went wrong, and the migration is {facts.end['state']}", facts.end.at)


def calm_moves_everybody(facts: Facts) -> Iterator[Violation]:
    """Where nothing goes wrong at all, whoever wrote to the source writes to the target in the end."""
    if not facts.start.get("calm"):
        return
    wrote = {topic: {e.who for e in facts.acked if e["topic"] == topic} for topic in (facts.source, facts.target)}
    for who in sorted(wrote[facts.source] - wrote[facts.target]):
        yield Violation("calm", f"nothing went wrong, and {who} never wrote to {facts.target}")


def ends_tidily(facts: Facts) -> Iterator[Violation]:
    """What held for the time of a migration alone is taken back at its end; after a rollback everything is."""
    rows: dict[tuple[str, str], str] = {}
    for e in facts.events:
        if e.what == "row":
            rows[e["migration"], e["step"]] = e["state"]
        if e.what != "state" or e["active"] or e["state"] not in ("done", "rolled_back"):
            continue
        wanted = ["arm", "lengthen_retention"]
        if e["state"] == "rolled_back":
            wanted += ["create_target", "freeze", "fence", "wide_deny"]
        left = [step for step in wanted if rows.get((e["migration"], step), "undone") != "undone"]
        if left:
            yield Violation("untidy", f"the migration is {e['state']}, and of it is left: {', '.join(left)}", e.at)


def free_is_rolled_back(facts: Facts) -> Iterator[Violation]:
    """Where nothing else goes wrong, a rollback that is asked for before producers are pointed takes place."""
    pointed = [e.at for e in facts.events if e.what == "row" and e["step"] == "switch_producers"]
    asked = facts.hand("rollback_asked")
    odd = [e for e in facts.events if e.what in ("fault", "killed") or (e.what == "hand" and e not in asked)]
    if facts.end is None or not asked or odd or (pointed and pointed[0] < asked[0].at + ROLLBACK_S):
        return
    if not any(e.what == "row" and (e["step"], e["state"]) == ("rollback", "done") for e in facts.events):
        yield Violation("calm", f"a rollback was asked for in time, and the migration is {facts.end['state']}")


# ------------------------------------------------------------------------------------------------ 6: who may write


def old_epochs_write_nothing(facts: Facts) -> Iterator[Violation]:
    """A row is written under the newest epoch of its migration alone."""
    newest: dict[str, int] = {}
    for e in facts.events:
        if e.what == "epoch":
            newest[e["migration"]] = e["epoch"]
        elif e.what == "row" and e["epoch"] < newest.get(e["migration"], 0):
            yield Violation(
                "epoch", f"{e['step']} was written under epoch {e['epoch']}, in force is {newest[e['migration']]}", e.at
            )


def sends_while_seated(facts: Facts) -> Iterator[Violation]:
    """A process that was held up for longer than its seat lasts sends nothing more of that act."""
    if facts.start.get("skew"):
        return
    until: dict[str, float] = {}
    odd = {e.who for e in facts.events if e.what == "fault" and e["fault"].kind == "clock_step"}
    for e in facts.events:
        if e.what == "seat":
            until[e.who] = e["until"]
        elif e.what == "call" and e["port"] in ("admin", "routes") and e.who in until and e.who not in odd:
            late = e["began"] - until[e.who]
            if late > ACT_SLACK_S:
                yield Violation("seat", f"{e.who} sent {e['method']} {late:.0f} s after the end of its seat", e.at)


def one_seat(facts: Facts) -> Iterator[Violation]:
    """Nobody takes the seat of another before its time is over, or it is given free."""
    held: dict[str, tuple[str, float]] = {}
    for e in facts.events:
        if e.what == "seat":
            who, until = held.get(e["migration"], ("", 0.0))
            if who not in ("", e.who) and e.at < until:
                yield Violation("seat", f"{e.who} acts although {who} has the seat for {until - e.at:.1f} s more", e.at)
            held[e["migration"]] = e.who, e["until"]
        elif e.what == "seat_left" and held.get(e["migration"], ("", 0.0))[0] == e.who:
            del held[e["migration"]]


_FORWARD = ("create_target", "arm", "lengthen_retention", "fence", "switch_producers", "switch_consumer")
"""Rows of acts that bring a migration nearer to the target."""


def _goes_forward(e: Event) -> bool:
    return e.what == "row" and e["state"] == "intended" and e["step"].split(":")[0] in _FORWARD


def over_is_over(facts: Facts) -> Iterator[Violation]:
    """A migration that has ended goes no further, unless its run takes its topics anew."""
    ended: dict[str, str] = {}
    for e in facts.events:
        if e.what == "state":
            ended.pop(e["migration"], None)
            if e["state"] != "open" and not e["active"]:
                ended[e["migration"]] = e["state"]
        elif _goes_forward(e) and e["migration"] in ended:
            yield Violation(
                "over", f"{e['by']} begins {e['step']} of a migration that is {ended[e['migration']]}", e.at
            )


def resuming_goes_back(facts: Facts) -> Iterator[Violation]:
    """Whoever is asked to resume on the source does nothing towards the target."""
    for e in facts.events:
        if _goes_forward(e) and ".resume" in e["by"]:
            yield Violation("resume", f"{e['by']} was to resume on the source, and begins {e['step']}", e.at)


# ------------------------------------------------------------------------------------------------ 7: the freeze


def freezes_end_in_time(facts: Facts) -> Iterator[Violation]:
    """A freeze that nothing disturbs is switched, or resumed on the source, within its budget."""
    begun: dict[str, float] = {}
    for e in facts.events:
        if e.what == "end":
            rows = list(begun)
        elif e.what == "row" and e["step"] in ("freeze", "switch_producers"):
            if (e["step"], e["state"]) == ("freeze", "intended"):
                begun[e["migration"]] = e.at
                continue
            rows = [e["migration"]]
        else:
            continue
        for migration in rows:
            since = begun.pop(migration, None)
            if since is not None:
                yield from _too_long(facts, since, e)


def _too_long(facts: Facts, since: float, end: Event) -> Iterator[Violation]:
    inside = [e for e in facts.events if since <= e.at <= end.at]
    if any(e.what in ("fault", "killed") for e in inside) or facts.start.get("skew"):
        return
    hands = [e for e in facts.hands if e.who == "person" and since - PAUSED_S <= e.at <= end.at]
    most = facts.budget_s + (WATCH_S if hands else END_SLACK_S)
    gone = len(hands) == 1 and hands[0]["hand"] in ("run_deleted", "marked_failed") and hands[0].at >= since
    if gone and hands[0]["did"]:
        most = hands[0].at - since + GONE_S
    if end.at - since > most:
        yield Violation("freeze", f"a freeze of {facts.budget_s:g} s ran for {end.at - since:.0f} s", since)


def freezes_begin_prepared(facts: Facts) -> Iterator[Violation]:
    """No freeze begins before participants follow closely, records live long enough, and people have stopped theirs."""
    rows: dict[str, str] = {}
    stopped = "stop_producers.fence" not in facts.start.get("required", ())
    for e in facts.events:
        if e.what == "answered" and e["question"] == "stop_producers.fence":
            stopped = e["said"] == "yes"
        if e.what != "row":
            continue
        if (e["step"], e["state"]) == ("freeze", "intended") and rows.get("freeze") != "undoing":
            if not stopped:
                yield Violation("unprepared", "a freeze begins before people have stopped their producers", e.at)
            missing = [step for step in ("arm", "lengthen_retention") if rows.get(step) != "done"]
            if missing:
                yield Violation("unprepared", f"a freeze begins without {', '.join(missing)}", e.at)
        rows[e["step"]] = e["state"]


GO = "stop_producers.go"


def begins_as_shown(facts: Facts) -> Iterator[Violation]:
    """A freeze begins on a yes for this very freeze, as it was shown and in its time, and denies nobody who was not
    named then."""
    if GO not in facts.start.get("required", ()):
        return
    said: dict[str, str] = {}
    plan, row, begun = None, "", dict[str, int]()
    shown: dict[str, Any] | None = None
    for e in facts.events:
        if e.what == "plan":
            plan = e["plan_hash"]
        elif e.what == "answered" and e["question"] == GO:
            said[e["shown"]] = e["said"]
        elif e.what == "row" and e["step"] == "freeze":
            if e["state"] == "intended" and row in ("", "undone"):
                number = begun[e["migration"]] = begun.get(e["migration"], 0) + 1
                wanted = {"plan_hash": plan, "attempt": number, "freeze_budget_s": facts.budget_s}
                yes = [json.loads(text) for text, answer in said.items() if answer == "yes"]
                fits = [y for y in yes if wanted.items() <= y.items() and _second_of(y["until"]) > e.at - CLOCKS_S]
                shown = fits[-1] if fits else None
                if shown is None:
                    yield Violation("go", f"freeze {number} of plan {plan} begins, and no yes is for it: {yes}", e.at)
            row = e["state"]
        elif e.what == "call" and e["method"] == "create_acls" and shown is not None and row == "intended":
            more = set(e["denies"]) - set(shown["deny"])
            if more:
                yield Violation("go", f"{', '.join(more)} is denied in the freeze, and was not named in the go", e.at)


def _second_of(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() - BASE.timestamp()


def resumes_wholly(facts: Facts) -> Iterator[Violation]:
    """A freeze counts as resumed when its fence is lifted and no producer that lives stands still any more."""
    fence, said = "undone", dict[str, Event]()
    odd = bool(facts.hand("producer_stall", "producer_crash", "route_unreadable", "route_gone", "app_clock_step"))
    for e in facts.events:
        if e.what == "says":
            said[e.who] = e
        elif e.what == "row" and e["step"] == "fence":
            fence = e["state"]
        elif e.what == "row" and e["step"] == "freeze" and e["state"] == "undone":
            if fence != "undone":
                yield Violation("resume", f"the freeze is resumed, and the fence is {fence}", e.at)
            still = [w for w, s in said.items() if s["status"] == "paused" and s.at < e.at - 1.0]
            if still and not odd:
                yield Violation("resume", f"the freeze is resumed, and {', '.join(still)} stand still", e.at)


def mends_before_it_acts(facts: Facts) -> Iterator[Violation]:
    """A longer retention or a DENY that somebody took back is set again before the next act that rests on it."""
    switch = ("switch_producers",) if facts.order == "drain_first" else ("switch_consumer",)
    for name, method, acts in (
        ("retention_put_back", "alter_topic_configs", switch),
        ("deny_removed", "create_acls", ("switch_producers", "switch_consumer")),
    ):
        for hand in facts.hand(name):
            held = any(c.what == "call" and c["method"] == method and c.at < hand.at for c in facts.events)
            e = _next(facts, hand, method, acts) if hand["did"] and held else None
            if e is not None and e.at > hand.at + LOOK_S:
                yield Violation("unmended", f"{e['step']} while {name} was not mended for {e.at - hand.at:.0f} s", e.at)


def _next(facts: Facts, hand: Event, method: str, acts: tuple[str, ...]) -> Event | None:
    """The first of these acts after a hand; None where it was mended before, or something else is in the way."""
    for e in facts.events:
        if e.at <= hand.at:
            continue
        if e.what in ("fault", "killed") or (e.what == "call" and e["method"] == method):
            return None
        if e.what == "row" and e["state"] in ("undoing", "undone") and e["step"] in ("freeze", "fence"):
            return None
        if e.what == "row" and e["state"] == "intended" and e["step"].split(":")[0] in acts:
            return e
    return None


def hanging_is_aborted_first(facts: Facts) -> Iterator[Violation]:
    """No producer is stopped while a transaction hangs on the source that nobody will ever end."""
    since: float | None = None
    for e in facts.events:
        if e.what == "hand" and e["hand"] == "transaction_hangs" and e["did"]:
            since = e.at
        elif e.what == "call" and e["method"] == "abort_transaction" and e["outcome"] == "ok":
            since = None
        begins = e.what == "row" and (e["step"], e["state"]) == ("freeze", "intended")
        if since is not None and begins and e.at > since + LOOK_S:
            age = e.at - since
            if not _faulty(facts, since, e.at):
                yield Violation("unprepared", f"a freeze begins over a transaction that hangs for {age:.0f} s", e.at)


def carries_out_the_plan_of_now(facts: Facts) -> Iterator[Violation]:
    """The target is not made by a plan that was overtaken by what somebody did to the source."""
    planned = 0.0
    hands = [h.at for h in facts.hand("partition_added_source")]
    for e in facts.events:
        if e.what == "plan":
            planned = e.at
        elif e.what == "call" and e["method"] == "create_topic" and e["outcome"] == "ok":
            overtaken = any(planned < at < e["began"] - LOOK_S for at in hands)
            if overtaken and not _faulty(facts, planned, e.at):
                yield Violation("plan", f"{e.who} made the target by a plan of {e.at - planned:.0f} s ago", e.at)


def _faulty(facts: Facts, since: float, until: float) -> bool:
    return any(e.what in ("fault", "killed") and since <= e.at <= until for e in facts.events)


def resumes_end(facts: Facts) -> Iterator[Violation]:
    """A freeze that is being resumed, and that nothing disturbs, is over soon."""
    since: dict[str, float] = {}
    for e in facts.events:
        if e.what == "end":
            for at in since.values():
                if e.at - at > GONE_S and not _faulty(facts, at, e.at):
                    yield Violation("freeze", f"a freeze is being resumed since {e.at - at:.0f} s", at)
        elif e.what == "row" and e["step"] == "freeze":
            since.pop(e["migration"], None)
            if e["state"] == "undoing":
                since[e["migration"]] = e.at


def one_freeze_a_try(facts: Facts) -> Iterator[Violation]:
    """A process that was at work when the freeze was resumed begins no other one by itself."""
    ended: dict[str, float] = {}
    ahead = abs(facts.start.get("skew") or 0.0) + 1.0
    odd = {e.who for e in facts.events if e.what == "fault" and e["fault"].kind == "clock_step"}
    for e in facts.events:
        if e.what != "row" or e["step"] != "freeze":
            continue
        if e["state"] == "undone":
            ended[e["migration"]] = e.at
        elif e["state"] == "intended" and e["by"] and e["by"] not in odd:
            at = ended.get(e["migration"])
            if at is not None and e["since"] < at - ahead:
                yield Violation("freeze", f"{e['by']} begins a freeze anew, although it was there when one ended", e.at)


# ------------------------------------------------------------------------------------------------ 4: the fence


def denied_is_denied(facts: Facts) -> Iterator[Violation]:
    """No application with a principal of its own writes past a fence in force, unless somebody removed the DENY."""
    gone = facts.hand("deny_removed", "source_remade")
    for fence in fences_of(facts):
        for a in facts.appended.values():
            if a.who == "rogue" and fence.past(a) and a.at > fence.at and not any(h.at <= a.at for h in gone):
                yield Violation("deny", f"{a.who} wrote past the fence, which the DENY should keep it from", a.at)


# ------------------------------------------------------------------------------------------------ the applications


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


def late_points_are_void(facts: Facts) -> Iterator[Violation]:
    """A point that is stamped after the end of the pause moves nobody."""
    before = facts.source
    for e in facts.events:
        if e.what != "route":
            continue
        points, before = e["active"] == facts.target != before, e["active"]
        if not points or e["state"] != "paused" or e["until"] is None:
            continue
        late = e.at - e["until"]
        if late >= 0.0:
            yield Violation("void", f"a point to {facts.target} counts, {late:.1f} s after its pause had ended", e.at)


def released_have_read(facts: Facts) -> Iterator[Violation]:
    """A member that is released leaves its topic only when it has read what lies there."""
    for e in facts.events:
        if e.what == "left" and e["released"] and e["unread"]:
            yield Violation("unread", f"{e.who} left {e['topic']} with {e['unread']} record(s) unread", e.at)


RULES = (
    calm_is_done,
    calm_moves_everybody,
    ends_tidily,
    free_is_rolled_back,
    old_epochs_write_nothing,
    sends_while_seated,
    one_seat,
    over_is_over,
    resuming_goes_back,
    freezes_end_in_time,
    freezes_begin_prepared,
    begins_as_shown,
    resumes_wholly,
    resumes_end,
    mends_before_it_acts,
    hanging_is_aborted_first,
    carries_out_the_plan_of_now,
    one_freeze_a_try,
    denied_is_denied,
    paused_is_flushed,
    late_points_are_void,
    released_have_read,
)
"""Every rule of this module."""
