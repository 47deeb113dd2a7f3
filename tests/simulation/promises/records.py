"""Promises about records: none is lost, each key comes in its order, and a repeat is the group's own doing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.history import Event
from tests.simulation.promises.excuses import beyond_help, excused
from tests.simulation.promises.facts import Facts, Violation, fences_of, forward, record_of


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


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """No acknowledged record is lost to any group, unless an outsider's hand did it and the product named it."""
    end = facts.end
    if end is None:
        return
    fences, acked = fences_of(facts), [(e, record_of(facts, e)) for e in facts.acked]
    for group, events in facts.delivered.items():
        got = {(e["topic_id"], e["partition"], e["offset"]) for e in events}
        place = end["places"].get(group)
        for e, record in acked:
            if record is None or (record["topic_id"], record["partition"], record["offset"]) in got:
                continue
            why = _still_to_come(facts, end, group, place, record) or excused(facts, group, record, fences)
            if why:
                continue
            yield Violation(
                "loss",
                f"group {group} never got {e['key']}#{e['seq']}, acknowledged at "
                f"{record['topic']}[{record['partition']}]@{record['offset']}; it reads {place} now",
                e.at,
            )


def _still_to_come(facts: Facts, end: Event, group: str, place: str | None, record: Event) -> bool:
    """Whether the group will get it yet: its member lives there, or waits for its release, and has not passed it."""
    if end["ids"].get(record["topic"]) != record["topic_id"]:
        return False
    committed = end["commits"].get((group, record["topic"], record["partition"]))
    passed = committed is not None and committed > record["offset"]
    # On a way back that was given up half-way it is the other way round.
    back = any(e.what == "row" and e["step"].startswith("back") for e in facts.deeds)
    ways = {(facts.target, facts.source), (facts.target, None)}
    ways |= {(facts.source, facts.target), (facts.source, None)} if back else set()
    if (record["topic"], place) in ways:
        if place is not None and end["state"] in ("done", "retired") and not end.get("closed") and not back:
            return False  # nobody will lead it there any more
        return not passed and (end.get("closed") or end["state"] not in ("rolled_back", "failed"))
    return False


def own_duplicates(facts: Facts) -> Iterator[Violation]:
    """A record comes twice only to a group whose own members were restarted, stalled or reset."""
    for group, events in facts.delivered.items():
        disturbed = _disturbances(facts, group)
        seen: dict[Any, Event] = {}
        for e in events:
            record = (e["topic_id"], e["partition"], e["offset"])
            if record in seen and not any(at <= e.at and seen[record].at <= over for at, over in disturbed):
                yield Violation(
                    "duplicate",
                    f"group {group} got {e['key']}#{e['seq']} again, though none of its members restarted",
                    e.at,
                )
            seen[record] = e


def _disturbances(facts: Facts, group: str) -> list[tuple[float, float]]:
    """From when to when the group's own members were restarted or held up, or its commits set back."""
    found = []
    for e in facts.deeds:
        if e.what in ("crashed", "rebalanced") and str(e.who).startswith(f"{group}-"):
            found.append((e.at, e.at))
        elif e.what == "hand" and e["hand"] == "consumer_stall" and str(e["did"]).startswith(f"{group}-"):
            found.append((e.at, e.at + e["amount"]))
        elif e.what == "hand" and e["hand"] in RESETS and group in _whom(e):
            found.append((e.at, e.at))
    return found


RESETS = ("group_reset", "commits_expired", "seeds_expired")
"""Hands that take a group's own offsets away."""


def _whom(hand: Event) -> tuple[Any, ...]:
    """The group whose offsets a hand took, nobody where that was refused."""
    did = hand["did"]
    return (did[0],) if isinstance(did, tuple) and did[1] else () if isinstance(did, tuple) else (did,)


def nobody_is_rewound(facts: Facts) -> Iterator[Violation]:
    """A group that goes back gets no record of the source again, unless somebody reset its commits after that.

    A member that sleeps with a batch in hand works on it when it wakes, however long it slept: nobody was rewound.
    """
    for group, events in facts.delivered.items():
        back = [
            e.at
            for e in facts.deeds
            if e.what == "row" and e["step"].startswith("back") and e["step"].endswith(f".switch_consumer:{group}")
        ]
        resets = [e.at for e in facts.deeds if e.what == "hand" and e["hand"] in RESETS[:2] and group in _whom(e)]
        if not back or any(at >= back[0] for at in resets):
            continue
        before = {(e["topic_id"], e["partition"], e["offset"]) for e in events if e.at < back[0]}
        for e in events:
            again = (e["topic_id"], e["partition"], e["offset"]) in before
            if again and e.get("fetched", e.at) >= back[0] and e["topic"] == facts.source:
                yield Violation("rewound", f"group {group} went back, and got {e['key']}#{e['seq']} again", e.at)


def nothing_unread_at_release(facts: Facts) -> Iterator[Violation]:
    """A group is released, and (drain_first) producers are pointed, only when all up to the fence was read in truth."""
    for fence in fences_of(facts):
        due = [
            a
            for a in facts.appended.values()
            if a["topic_id"] == fence.topic_id and a["offset"] < fence.offsets.get(a["partition"], 0)
        ]
        for e in facts.deeds:
            what = forward(facts, e)
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
                unread = (a for a in due if (a["partition"], a["offset"]) not in got)
                missing = [a for a in unread if not beyond_help(facts, group, a, e.at)]
                if missing:
                    first = missing[0]
                    yield Violation(
                        "undrained",
                        f"{e.who} {what} while {group} had not read {len(missing)} record(s) up to the fence, first "
                        f"{facts.source}[{first['partition']}]@{first['offset']}",
                        e.at,
                    )


def released_have_read(facts: Facts) -> Iterator[Violation]:
    """A member that is released leaves its topic only when it has read what lies there."""
    for e in facts.deeds:
        if e.what == "left" and e["released"] and e["unread"]:
            yield Violation("unread", f"{e.who} left {e['topic']} with {e['unread']} record(s) unread", e.at)


RULES = (
    order_of_keys,
    nothing_lost,
    own_duplicates,
    nobody_is_rewound,
    nothing_unread_at_release,
    released_have_read,
)
"""Every rule of this module."""
