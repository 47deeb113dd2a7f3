"""What a history says, sorted for the rules; and what several of them ask."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.history import Event, History

FRESH_S = 35.0
"""An act may rest on a look at the source that is at most this old when the act begins."""

SLACK_S = 40.0
"""Added to the budget before producers count as left stopped: reading the route, one heartbeat, one retry."""

LOOK_S = 3.0
"""An act rests on a look at the world that is at most this old, where no fault is in the way."""


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
    deeds: list[Event] = field(default_factory=list)
    """The events without the traffic of applications, and without looks at the world."""
    appended: dict[tuple[str, int, int], Event] = field(default_factory=dict)
    acked: list[Event] = field(default_factory=list)
    delivered: dict[str, list[Event]] = field(default_factory=dict)
    hands: list[Event] = field(default_factory=list)
    end: Event | None = None
    start: Event = field(default_factory=lambda: Event(0.0, "world", "world"))

    def hand(self, *names: str) -> list[Event]:
        """What outsiders did of these kinds."""
        return [h for h in self.hands if h["hand"] in names and h["did"] is not False]


_TRAFFIC = frozenset(("appended", "produce", "admitted", "deliver", "says", "saw", "looked"))


def gather(history: History) -> Facts:
    """Sort the history."""
    start = next(history.of("world"))
    d = start.data
    facts = Facts(d["source"], d["target"], d["order"], d["budget_s"], d["groups"], history.events)
    facts.delivered, facts.start = {g: [] for g in facts.groups}, start
    facts.deeds = [e for e in history.events if e.what not in _TRAFFIC]
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


@dataclass(frozen=True)
class Fence:
    at: float
    migration: str
    topic_id: str
    offsets: dict[int, int]
    until: float
    topic: str = ""

    def past(self, record: Event) -> bool:
        """Whether the record lies past the fence, on the fenced topic."""
        return (
            record["topic_id"] == self.topic_id
            and record["offset"] >= self.offsets.get(record["partition"], 0)
            and record.at < self.until
        )

    def gone(self, record: Event) -> bool:
        """Whether the record lies on a topic of the same name that was made while the fence was in force."""
        other = record["topic_id"] != self.topic_id and record["topic"] == self.topic
        return bool(other and self.at < record.at < self.until)


def fences_of(facts: Facts) -> list[Fence]:
    """Each fence that was recorded, with the time at which it was lifted."""
    out: list[Fence] = []
    rows = [e for e in facts.deeds if e.what == "row" and e["step"] == "fence"]
    for i, e in enumerate(rows):
        if e["state"] != "done" or not e["fence"]:
            continue
        if out and out[-1].until > e.at:
            if out[-1].offsets == dict(e["fence"]["offsets"]):
                continue
            out[-1] = replace(out[-1], until=e.at)  # fenced anew
        until = next((n.at for n in rows[i + 1 :] if n["state"] in ("undone", "undoing")), float("inf"))
        ends = dict(e["fence"]["offsets"])
        out.append(Fence(e.at, e["migration"], e["fence"]["topic_id"], ends, until, facts.source))
    return out


def record_of(facts: Facts, e: Event) -> Event | None:
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


def ended(facts: Facts) -> float:
    """When the migration was done, or else when the journal gave the source free for the last time."""
    done = [e.at for e in facts.deeds if e.what == "state" and e["state"] == "done" and not e["active"]]
    if done:
        return done[0]
    held = [e for e in facts.deeds if e.what == "holds" and e["topic"] == facts.source]
    return held[-1].at if held and held[-1]["migration"] is None else float("inf")


def looked_after(facts: Facts, at: float) -> bool:
    """Whether a migration that has made its target, and is not done, held the topics then: else nobody looks."""
    if at >= ended(facts) and any(e.what == "state" and e["state"] == "done" for e in facts.deeds):
        return False
    holder, made = None, set[str]()
    for e in facts.deeds:
        if e.at > at:
            break
        if e.what == "holds" and e["topic"] == facts.source:
            holder = e["migration"]
        elif e.what == "row" and e["step"] == "create_target":
            (made.add if e["state"] != "undone" else made.discard)(e["migration"])
    return holder in made


def noticed(facts: Facts, hand: Event, look: str) -> bool:
    """Whether somebody looked after what a hand took away, and saw it by an answer to this call before the end.

    One that comes between the last look and the end is seen by nobody, as one after the end is.
    """
    if not looked_after(facts, hand.at):
        return False
    until = ended(facts)
    if until - hand.at > FRESH_S:
        return True
    looks = (e for e in facts.events if e.what == "looked" and e["method"] == look)
    return any(hand.at <= e["began"] and e.at <= until for e in looks)


class Answers:
    """What people have said, read in the order of time. A second answer to one question counts for nothing."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], Event] = {}
        self.last: dict[str, Event] = {}
        """The answer to each question that counts, whatever was shown with it."""

    def hear(self, e: Event) -> None:
        """Take the next event."""
        if e.what == "asked":
            self._first.pop((e["question"], e["shown"]), None)
        elif e.what == "answered":
            self.last[e["question"]] = self._first.setdefault((e["question"], e["shown"]), e)

    def yes_to(self, question: str) -> list[str]:
        """What was shown to those who have said yes to a question, and may carry it out still."""
        return [shown for (name, shown), e in self._first.items() if name == question and e["said"] == "yes"]


def required(facts: Facts) -> list[str]:
    return list(next(e for e in facts.deeds if e.what == "world")["required"])


def forward(facts: Facts, e: Event) -> str | None:
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


def faulty(facts: Facts, since: float, until: float) -> bool:
    return any(e.what in ("fault", "killed") and since <= e.at <= until for e in facts.deeds)


PAUSE_SLACK_S = 3.0
"""How far from its end by the brokers' clock a pause may end for an application whose clock is off."""


def lets(route: Event, topic: str, at: float) -> bool:
    """Whether this picture of the route lets somebody take a record for a topic at this time."""
    paused = route["state"] == "paused" and (route["until"] is None or at < route["until"] - PAUSE_SLACK_S)
    return bool(route["active"] == topic and not paused)
