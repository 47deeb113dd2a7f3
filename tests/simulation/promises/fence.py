"""Promises about the fence: nothing goes further after a write, and a DENY holds."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Event
from tests.simulation.promises.facts import FRESH_S, LOOK_S, Facts, Fence, Violation, faulty, fences_of, forward


def stops_after_a_write(facts: Facts) -> Iterator[Violation]:
    """No act towards the target once a look at the source could have shown a write past the fence."""
    fences = fences_of(facts)
    for e in facts.deeds:
        what = forward(facts, e)
        if what is not None and not any(f.at <= e["began"] < f.until for f in fences):
            yield Violation("fence", f"{e.who} {what} while no fence is in force", e.at)
    for fence in fences:
        late = sorted(a.at for a in facts.appended.values() if fence.past(a))
        for e in facts.deeds:
            what = forward(facts, e)
            if what is None or not fence.at <= e["began"] < fence.until:
                continue
            looks = [
                s
                for s in facts.events
                if s.what == "saw"
                and s.who == e.who
                and s["topic"] == facts.source
                and s["complete"]
                and s.at <= e["began"]
            ]
            if not looks or e["began"] - looks[-1].at > FRESH_S:
                yield Violation(
                    "fence", f"{e.who} {what} without a look at the source within {FRESH_S:g} s before", e.at
                )
            elif late and late[0] < looks[-1]["began"]:
                yield Violation(
                    "fence", f"{e.who} {what} after a record was written past the fence at {late[0]:.1f} s", e.at
                )


def _being_lifted(facts: Facts, fence: Fence, at: float) -> bool:
    """Whether producers of this very migration were on their way back then, and its DENY had been deleted: it goes
    first, and its deletion may have been lost to the one who asked for it."""
    before = [e for e in facts.deeds if e.at <= at]
    rows = [e for e in before if e.what == "row" and e["migration"] == fence.migration]
    last = {e["step"]: e["state"] for e in rows if e["step"] in ("freeze", "rollback")}
    back = last.get("freeze") == "undoing" or last.get("rollback") == "intended"
    return back and any(e.what == "call" and e["method"] == "delete_acls" and e.at > fence.at for e in before)


def denied_is_denied(facts: Facts) -> Iterator[Violation]:
    """No application with a principal of its own writes past a fence in force, unless somebody removed the DENY."""
    gone = facts.hand("deny_removed")
    set_ = [e.at for e in facts.deeds if e.what == "call" and (e["method"], e["outcome"]) == ("create_acls", "ok")]
    for fence in fences_of(facts):
        for a in facts.appended.values():
            if a.who != "rogue" or not fence.past(a) or a.at <= fence.at or _being_lifted(facts, fence, a.at):
                continue
            if not any(h.at <= a.at and not any(h.at < at <= a.at for at in set_) for h in gone):
                yield Violation("deny", f"{a.who} wrote past the fence, which the DENY should keep it from", a.at)


FAULTY_LOOK_S = 100.0
"""An act rests on a look at most this old where faults are in the way: its seat, an old answer, a clock that is off."""


def mends_before_it_acts(facts: Facts) -> Iterator[Violation]:
    """A longer retention or a DENY that somebody took back is set again before the next act that rests on it."""
    switch = ("switch_producers",) if facts.order == "drain_first" else ("switch_consumer",)
    for name, method, acts in (
        ("retention_put_back", "alter_topic_configs", switch),
        ("deny_removed", "create_acls", ("switch_producers", "switch_consumer")),
    ):
        for hand in facts.hand(name):
            e = _next(facts, hand, method, acts) if hand["did"] and _held(facts, hand, method) else None
            if e is None:
                continue
            most = FAULTY_LOOK_S if faulty(facts, hand.at - FRESH_S, e.at) else LOOK_S
            if e.at > hand.at + most:
                yield Violation("unmended", f"{e['step']} while {name} was not mended for {e.at - hand.at:.0f} s", e.at)


def _sets(facts: Facts, e: Event, method: str) -> bool:
    """Whether a call sets a DENY, or a retention, on the source."""
    if e.what != "call" or (e["method"], e["outcome"]) != (method, "ok"):
        return False
    return e.get("topic", facts.source) == facts.source


def _held(facts: Facts, hand: Event, method: str) -> bool:
    """Whether the product had set by then what the hand took back, and had not put a longer retention back itself."""
    held = False
    for e in facts.deeds:
        if e.at >= hand.at:
            break
        if _sets(facts, e, method):
            held = True
        elif e.what == "row" and (e["step"], e["state"]) == ("lengthen_retention", "undone"):
            held = held and method != "alter_topic_configs"
    return held


def _next(facts: Facts, hand: Event, method: str, acts: tuple[str, ...]) -> Event | None:
    """The first of these acts after a hand; None where all that it took was set again before, or is wanted no more."""
    gone = {str(acl) for acl in hand["did"]} if isinstance(hand["did"], list | tuple | set | frozenset) else {""}
    lifted = ("lengthen_retention",) if method == "alter_topic_configs" else ("freeze", "fence")
    for e in facts.deeds:
        if e.at <= hand.at:
            continue
        if _sets(facts, e, method):
            gone -= set(e.get("acls") or gone)
        if not gone or (e.what == "row" and e["state"] in ("undoing", "undone") and e["step"] in lifted):
            return None
        if e.what == "row" and e["state"] == "intended" and e["step"].split(":")[0] in acts:
            return e
    return None


def nothing_open_at_the_fence(facts: Facts) -> Iterator[Violation]:
    """No fence is on record while a transaction is open on the source: its records would come behind it."""
    fences, since = {f.at: f for f in fences_of(facts)}, dict[str, Event]()
    for e in facts.deeds:
        if e.what == "transaction":
            since.pop(e.who, None)
            if e["state"] == "open":
                since[e.who] = e
        elif e.what == "row" and e["step"] == "fence" and e.at in fences and e["state"] == "done":
            for who, began in since.items():
                if began["topic_id"] == fences[e.at].topic_id and began.at < e.at - 1.0:
                    yield Violation("open", f"the fence is on record while {who} has a transaction open", e.at)


RULES = (
    stops_after_a_write,
    nothing_open_at_the_fence,
    denied_is_denied,
    mends_before_it_acts,
)
"""Every rule of this module."""
