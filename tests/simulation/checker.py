"""Judges a history by the promises of the design. Shares no code with the product; reads nothing but the history.

Safety is judged over the whole run, liveness over its last phase, in which every fault is healed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .history import Event, History

FRESH_S = 35.0
"""An act may rest on a look at the source that is at most this old when the act begins."""

SLACK_S = 40.0
"""Added to the budget before producers count as left stopped: reading the route, one heartbeat, one retry."""


@dataclass(frozen=True)
class Violation:
    """One broken promise: the number of the sentence in the design, the rule's name, and what was seen."""

    rule: str
    text: str
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass
class Facts:
    """What the history says, sorted for the rules."""

    source: str
    target: str
    order: str
    budget_s: float
    groups: list[str]
    events: list[Event]
    appended: dict[tuple[str, int, int], Event] = field(default_factory=dict)
    acked: list[Event] = field(default_factory=list)
    delivered: dict[str, list[Event]] = field(default_factory=dict)
    hands: list[Event] = field(default_factory=list)
    end: Event | None = None
    start: Event = field(default_factory=lambda: Event(0.0, "world", "world"))

    def hand(self, *names: str) -> list[Event]:
        """What outsiders did of these kinds."""
        return [h for h in self.hands if h["hand"] in names and h["did"] is not False]


def gather(history: History) -> Facts:
    """Sort the history."""
    start = next(history.of("world"))
    d = start.data
    facts = Facts(d["source"], d["target"], d["order"], d["budget_s"], d["groups"], history.events)
    facts.delivered, facts.start = {g: [] for g in facts.groups}, start
    for e in history.events:
        if e.what == "appended":
            facts.appended[e["topic_id"], e["partition"], e["offset"]] = e
        elif e.what == "produce" and e["outcome"] == "ok":
            facts.acked.append(e)
        elif e.what == "deliver" and e["group"] in facts.delivered:
            facts.delivered[e["group"]].append(e)
        elif e.what == "hand":
            facts.hands.append(e)
        elif e.what == "end":
            facts.end = e
    return facts


def judge(history: History) -> list[Violation]:
    """Every broken promise, in the order of the rules."""
    from .conduct import RULES as CONDUCT

    facts = gather(history)
    found: list[Violation] = []
    for rule in (*RULES, *CONDUCT):
        found += rule(facts)
    return found


# ------------------------------------------------------------------------------------------------ 2: order


def order_of_keys(facts: Facts) -> Iterator[Violation]:
    """For every group and key: all of the source before any of the target, in order. Repeats do not count."""
    for group, events in facts.delivered.items():
        seen: set[tuple[str, int, int]] = set()
        highest: dict[str, tuple[int, str]] = {}
        for e in events:
            record = (e["topic_id"], e["partition"], e["offset"])
            if record in seen:
                continue
            seen.add(record)
            before = highest.get(e["key"])
            if before is not None and before[1] != e["topic"] and e["seq"] < before[0]:
                yield Violation(
                    "order",
                    f"group {group} got {e['key']}#{e['seq']} of {e['topic']} after #{before[0]} of {before[1]}",
                    e.at,
                )
            if before is None or e["seq"] > before[0]:
                highest[e["key"]] = (e["seq"], e["topic"])


# ------------------------------------------------------------------------------------------------ 1: loss


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """No acknowledged record is lost to any group, unless an outsider's hand did it and the product named it."""
    end = facts.end
    if end is None:
        return
    fences = fences_of(facts)
    for group, events in facts.delivered.items():
        got = {(e["topic_id"], e["partition"], e["offset"]) for e in events}
        place = end["places"].get(group)
        for e in facts.acked:
            record = _record(facts, e)
            if record is None or (record["topic_id"], record["partition"], record["offset"]) in got:
                continue
            why = _still_to_come(facts, end, group, place, record) or _excused(facts, group, record, fences)
            if why:
                continue
            yield Violation(
                "loss",
                f"group {group} never got {e['key']}#{e['seq']}, acknowledged at "
                f"{record['topic']}[{record['partition']}]@{record['offset']}; it reads {place} now",
                e.at,
            )


def _record(facts: Facts, e: Event) -> Event | None:
    """The append behind an acknowledgement."""
    for (_, partition, offset), a in _by_place(facts).get((e["topic"], e["partition"], e["offset"]), {}).items():
        if (partition, offset) == (e["partition"], e["offset"]) and a["key"] == e["key"] and a["seq"] == e["seq"]:
            return a
    return None


def _by_place(facts: Facts) -> dict[Any, dict[Any, Event]]:
    found: dict[Any, dict[Any, Event]] | None = getattr(facts, "_places", None)
    if found is None:
        found = defaultdict(dict)
        for key, a in facts.appended.items():
            found[a["topic"], a["partition"], a["offset"]][key] = a
        facts._places = found  # type: ignore[attr-defined]
    return found


def _still_to_come(facts: Facts, end: Event, group: str, place: str | None, record: Event) -> bool:
    """Whether the group will get it yet: its member lives there, or waits for its release, and has not passed it."""
    if end["ids"].get(record["topic"]) != record["topic_id"]:
        return False
    committed = end["commits"].get((group, record["topic"], record["partition"]))
    passed = committed is not None and committed > record["offset"]
    if record["topic"] == facts.target and place in (facts.source, None):
        return not passed and (end.get("closed") or end["state"] not in ("rolled_back", "failed"))
    return False


def _excused(facts: Facts, group: str, record: Event, fences: list[_Fence]) -> bool:
    """What no product can help: the topic was destroyed, or the group's own offsets were; and what it named."""
    remade = facts.hand("source_remade", "source_deleted")
    if remade and record["topic"] == facts.source and record.at <= max(h.at for h in remade):
        return True
    hands = facts.hand("commits_expired", "seeds_expired", "group_reset")
    resets = [
        e
        for e in facts.events
        if e.what == "reset" and e["group"] == group and e["topic"] == record["topic"] and e["to"] > record["offset"]
    ]
    spoilt = [h for h in hands if group in (h["did"] if isinstance(h["did"], tuple) else (h["did"],))] + remade
    if any(h.at <= r.at for h in spoilt for r in resets) and record["topic"] == facts.source:
        return True
    if any(e.what == "reset" and e["group"] == group for e in facts.events) and facts.hand("partition_added_target"):
        return record["topic"] == facts.target
    if record.at >= _ended(facts) and record.who.startswith(("stray", "rogue")):
        return True
    past = any(f.past(record) for f in fences)
    return past and _named(facts)


def _ended(facts: Facts) -> float:
    """When the journal gave the source free for the last time."""
    held = [e for e in facts.events if e.what == "holds" and e["topic"] == facts.source]
    return held[-1].at if held and held[-1]["migration"] is None else float("inf")


def _looked_after(facts: Facts, at: float) -> bool:
    """Whether a migration that has made its target held the topics at this time: otherwise nobody looks."""
    holder, made = None, set[str]()
    for e in facts.events:
        if e.at > at:
            break
        if e.what == "holds" and e["topic"] == facts.source:
            holder = e["migration"]
        elif e.what == "row" and e["step"] == "create_target":
            (made.add if e["state"] != "undone" else made.discard)(e["migration"])
    return holder in made


def _named(facts: Facts) -> bool:
    """The product did not end well: it stands, or failed, and says why."""
    end = facts.end
    return end is not None and end["state"] not in ("done", "retired", "rolled_back") and bool(end["why"])


# -------------------------------------------------------------------------------- what cannot be helped


def hands_are_named(facts: Facts) -> Iterator[Violation]:
    """A source that was made again under a migration cannot be migrated: it does not end as if all were well."""
    end = facts.end
    begun = [e.at for e in facts.events if e.what == "row" and e["step"] == "create_target" and e["state"] == "done"]
    if end is None or end["state"] != "done" or not begun:
        return
    for hand in facts.hand("source_remade"):
        if begun[0] < hand.at < _ended(facts):
            yield Violation(
                "unnamed", "the source was made again under the migration, which is done all the same", hand.at
            )


def done_is_proven(facts: Facts) -> Iterator[Violation]:
    """A migration that is done has gone through every step, and each left its proof behind."""
    end = facts.end
    if end is None or end["state"] != "done":
        return
    done = {e["step"] for e in facts.events if e.what == "row" and e["state"] == "done"}
    wanted = ["create_target", "freeze", "fence", "switch_producers", "wide_deny", "order_proof"]
    wanted += [f"switch_consumer:{g}" for g in facts.groups]
    wanted += [f"{row}{s}" for row in ("certificate", "verification") for s in _certificates(facts)]
    missing = [step for step in wanted if step not in done]
    if not any(e["fence"] for e in facts.events if e.what == "row"):
        missing.append("the fence's offsets")
    if missing:
        yield Violation("unproven", f"the migration is done without {', '.join(missing)}", end.at)


def _certificates(facts: Facts) -> list[str]:
    return [""] if facts.order == "drain_first" else [f":{g}" for g in facts.groups]


# ------------------------------------------------------------------------------------------------ 1: duplicates


def own_duplicates(facts: Facts) -> Iterator[Violation]:
    """A record comes twice only to a group whose own members were restarted, stalled or reset."""
    for group, events in facts.delivered.items():
        disturbed = [
            e.at
            for e in facts.events
            if (e.what in ("crashed", "rebalanced") and str(e.who).startswith(f"{group}-"))
            or (e.what == "hand" and e["hand"] in ("group_reset", "commits_expired", "seeds_expired", "source_remade"))
            or (e.what == "hand" and e["hand"] == "consumer_stall")
        ]
        seen: dict[Any, Event] = {}
        for e in events:
            record = (e["topic_id"], e["partition"], e["offset"])
            if record in seen and not any(at <= e.at for at in disturbed):
                yield Violation(
                    "duplicate",
                    f"group {group} got {e['key']}#{e['seq']} again, though none of its members restarted",
                    e.at,
                )
            seen[record] = e


# ------------------------------------------------------------------------------------------------ 4: the fence


@dataclass(frozen=True)
class _Fence:
    at: float
    migration: str
    topic_id: str
    offsets: dict[int, int]
    until: float

    def past(self, record: Event) -> bool:
        """Whether the record lies past the fence, on the fenced topic."""
        return (
            record["topic_id"] == self.topic_id
            and record["offset"] >= self.offsets.get(record["partition"], 0)
            and record.at < self.until
        )


def fences_of(facts: Facts) -> list[_Fence]:
    """Each fence that was recorded, with the time at which it was lifted."""
    out: list[_Fence] = []
    rows = [e for e in facts.events if e.what == "row" and e["step"] == "fence"]
    for i, e in enumerate(rows):
        if e["state"] != "done" or not e["fence"] or (out and out[-1].until == float("inf")):
            continue
        until = next((n.at for n in rows[i + 1 :] if n["state"] in ("undone", "undoing")), float("inf"))
        out.append(_Fence(e.at, e["migration"], e["fence"]["topic_id"], dict(e["fence"]["offsets"]), until))
    return out


def _forward(facts: Facts, e: Event) -> str | None:
    """What a change of the world does towards the target, None where it does nothing of the kind."""
    if e.what != "call" or e["outcome"] != "ok":
        return None
    if e["port"] == "routes" and e["method"] == "write":
        if e.get("void"):
            return None
        if e.get("points") == facts.target and e.get("pointed_before") != facts.target:
            return "points producers to the target"
        if e.get("released"):
            return f"releases {', '.join(e['released'])}"
    if e["method"] == "alter_commits" and e.get("topic") == facts.target:
        return f"seeds {e.get('group')}"
    return None


def stops_after_a_write(facts: Facts) -> Iterator[Violation]:
    """No act towards the target once a look at the source could have shown a write past the fence."""
    fences = fences_of(facts)
    for e in facts.events:
        what = _forward(facts, e)
        if what is not None and not any(f.at <= e["began"] < f.until for f in fences):
            yield Violation("fence", f"{e.who} {what} while no fence is in force", e.at)
    for fence in fences:
        late = sorted(a.at for a in facts.appended.values() if fence.past(a))
        for e in facts.events:
            what = _forward(facts, e)
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


def nothing_unread_at_release(facts: Facts) -> Iterator[Violation]:
    """A group is released, and (drain_first) producers are pointed, only when all up to the fence was read in truth."""
    for fence in fences_of(facts):
        due = [
            a
            for a in facts.appended.values()
            if a["topic_id"] == fence.topic_id and a["offset"] < fence.offsets.get(a["partition"], 0)
        ]
        for e in facts.events:
            what = _forward(facts, e)
            if what is None or not fence.at <= e["began"] < fence.until:
                continue
            groups = list(e.get("released") or ())
            if e["method"] == "alter_commits":
                groups = [e["group"]] if e["group"] in facts.groups else []
            elif not groups:
                groups = facts.groups if facts.order == "drain_first" else []
            for group in groups:
                got = {
                    (d["partition"], d["offset"])
                    for d in facts.delivered[group]
                    if d["topic_id"] == fence.topic_id and d.at <= e.at
                }
                missing = [
                    a for a in due if (a["partition"], a["offset"]) not in got and not _excused(facts, group, a, [])
                ]
                if missing:
                    first = missing[0]
                    yield Violation(
                        "undrained",
                        f"{e.who} {what} while {group} had not read {len(missing)} record(s) up to the fence, first "
                        f"{facts.source}[{first['partition']}]@{first['offset']}",
                        e.at,
                    )


# ------------------------------------------------------------------------------------------------ 3: two runs


def one_run_at_a_time(facts: Facts) -> Iterator[Violation]:
    """A run changes nothing of topics that the journal has given to another migration."""
    holder: dict[str, tuple[str, float]] = {}
    for e in facts.events:
        if e.what == "holds":
            holder[e["topic"]] = (e["migration"], e.at)
        elif e.what == "call" and e["outcome"] == "ok" and e["port"] in ("admin", "routes") and e.get("migration"):
            for topic in (facts.source, facts.target):
                have, since = holder.get(topic, (None, 0.0))
                if have is not None and have != e["migration"] and e["began"] > since + FRESH_S:
                    yield Violation(
                        "two_runs",
                        f"{e.who} of {e['migration']} changed {topic}, which {have} holds: {e['method']}",
                        e.at,
                    )
                    break


# ------------------------------------------------------------------------------------------------ 7: never left stopped


def never_left_stopped(facts: Facts) -> Iterator[Violation]:
    """A producer that lives, reads the route and is not told otherwise writes again within the budget."""
    disturbed = [
        h
        for h in facts.hands
        if h["hand"] in ("producer_stall", "producer_crash", "producers_idle", "route_unreadable", "app_clock_step")
    ]
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
    if any(before - 1 <= h.at + h["amount"] and h.at <= now for h in disturbed):
        return
    yield Violation("left_stopped", f"producer {who} wrote nothing for {now - before:.0f} s", now)


# ------------------------------------------------------------------------------------------------ 6: woken late

CONTACT_S = 13.0
"""What an application does rests on a picture of an armed route that is at most this old: 10 s, one round, slack."""


def admits_by_the_route(facts: Facts) -> Iterator[Violation]:
    """On an armed route no application takes a record for a topic that the route has not named for a while.

    However long it slept: what it takes then could be acknowledged behind the fence.
    """
    gone = [h.at for h in facts.hand("route_gone")]
    routes = [e for e in facts.events if e.what == "route"]
    at = [e.at for e in routes]
    for e in facts.events:
        if e.what != "admitted":
            continue
        known = bisect_right(at, e.at - CONTACT_S)
        if known == 0 or not routes[known - 1]["armed"] or any(g <= e.at for g in gone):
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


def lets(route: Event, topic: str, at: float) -> bool:
    """Whether this picture of the route lets somebody take a record for a topic at this time."""
    paused = route["state"] == "paused" and (route["until"] is None or at < route["until"] - PAUSE_SLACK_S)
    return bool(route["active"] == topic and not paused)


PAUSE_SLACK_S = 3.0
"""How far from its end by the brokers' clock a pause may end for an application whose clock is off."""


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


# ------------------------------------------------------------------------------------------------ 7: on the route


DENIED_S = 30.0
"""A producer on the route that is denied for so long was not only late to obey."""


def denied_for_long(facts: Facts) -> Iterator[Violation]:
    """A DENY never holds a producer on the route beyond the end of its lease."""
    on_the_route = {e.who for e in facts.events if e.what == "admitted"}
    since: dict[str, float] = {}
    if facts.hand("target_acl_removed"):
        return
    for e in facts.events:
        if e.what != "produce" or e.who not in on_the_route:
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
        armed = [e["armed"] for e in facts.events if e.what == "route" and e.at <= hand.at + 1.0]
        moved = [e for e in facts.events if e.what in ("crashed", "quiet", "healed") and hand.at - 30 < e.at < ends]
        others = [h for h in facts.hands if h is not hand and hand.at - 210 < h.at < ends]
        if ends - begins < 15.0 or (armed and armed[-1]) or moved or others:
            continue
        wrote = {e.who for e in facts.events if e.what == "admitted" and begins <= e.at <= ends}
        before = {e.who for e in facts.events if e.what == "admitted" and hand.at - 6.0 <= e.at <= hand.at}
        for who in sorted(before - wrote):
            yield Violation("unarmed", f"{who} took nothing while the route could not be read", ends)


# ------------------------------------------------------------------------------------------------ 8: approvals


def approved_as_shown(facts: Facts) -> Iterator[Violation]:
    """What needs a person's yes has one, for what that person was shown, and nobody's no is overruled."""
    said: dict[str, Event] = {}
    plan: str | None = None
    for e in facts.events:
        if e.what == "plan":
            plan = e["plan_hash"]
        elif e.what == "answered":
            said[e["question"]] = e
        elif e.what == "call" and e["outcome"] == "ok" and e["method"] == "create_topic":
            yes = said.get("approve.plan")
            if "approve.plan" not in _required(facts):
                continue
            if yes is None or yes["said"] != "yes":
                yield Violation("approval", f"{e.who} made the target without a yes to the plan", e.at)
            elif plan is not None and plan not in yes["shown"]:
                yield Violation(
                    "approval", f"{e.who} made the target of plan {plan}, the yes was for {yes['shown']}", e.at
                )
        elif _forward(facts, e) == "points producers to the target" and "switch_producers.switch" in _required(facts):
            yes = said.get("switch_producers.switch")
            if yes is None or yes["said"] != "yes":
                yield Violation("approval", f"{e.who} pointed producers without a yes to the cut-over", e.at)


def _required(facts: Facts) -> list[str]:
    return list(next(e for e in facts.events if e.what == "world")["required"])


# ------------------------------------------------------------------------------------------------ 11: liveness


def comes_to_an_end(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every migration has ended, or stands with a reason and a command that ends it."""
    end = facts.end
    if end is None:
        yield Violation("liveness", "the run did not come to its end")
        return
    for who, error in end["broken"].items():
        yield Violation("liveness", f"{who} ended with an error that is none of the product's: {error}", end.at)
    for m in end["migrations"]:
        if m["active"] or m["state"] == "open":
            if not m["why"]:
                yield Violation("liveness", f"{m['migration']} is {m['state']} and nobody says why", end.at)
            elif not m["ends_by"]:
                yield Violation("liveness", f"{m['migration']} stands ({m['why']}) and no command ends it", end.at)


def producers_write(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every producer writes somewhere within the budget."""
    healed = next((e for e in facts.events if e.what == "healed"), None)
    quiet = next((e for e in facts.events if e.what == "quiet"), None)
    if healed is None or quiet is None or facts.end is None:
        return
    if any(not _looked_after(facts, h.at) for h in facts.hand("target_acl_removed", "route_gone")):
        return
    writes = {e.who for e in facts.acked if healed.at <= e.at <= quiet.at}
    for name in facts.end["instances"]:
        if name not in writes:
            yield Violation("left_stopped", f"producer {name} wrote nothing after all was healed", quiet.at)


RULES = (
    order_of_keys,
    nothing_lost,
    hands_are_named,
    done_is_proven,
    own_duplicates,
    stops_after_a_write,
    nothing_unread_at_release,
    one_run_at_a_time,
    never_left_stopped,
    admits_by_the_route,
    late_points_are_void,
    denied_for_long,
    goes_on_unarmed,
    approved_as_shown,
    comes_to_an_end,
    producers_write,
)
"""Every rule of the checker."""
