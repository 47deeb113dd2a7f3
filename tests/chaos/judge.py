"""Judges the history of one migration by the promises of the design. Shares no code with the product.

It reads what the applications, the journal's audit trail and the harness wrote down, and the records of both topics as
they lie there in the end; it asks nobody. One function a promise; ``RULES`` lists them, and ``test_judge.py`` plants a
violation for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Event

SLACK_S = 45.0
"""Added to the freeze budget before a producer counts as left stopped: reading the route, one heartbeat, one retry."""

WRITES_S = 60.0
"""Within this time after all was healed every producer has written."""

ANSWERS = (0, 3, 4, 75, 130)
"""Exit codes with which a command or an application may end by itself."""

TERMINATED = 143
"""Exit code of one that was asked to end (SIGTERM)."""

EVIDENCE = ("plan.json", "impact.json", "before.json", "fence.json", "order_proof.json")

SHUT_OUT = "began under epoch"
"""In what a process says that lost its migration to somebody else."""

SPOILS = ("source_made_again",)
"""Hands that destroy records, so that nobody can deliver them any more."""


@dataclass(frozen=True)
class Violation:
    """One broken promise: the rule's name and what was seen."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass
class Facts:
    """What a history says, sorted for the rules."""

    begin: Mapping[str, Any]
    end: Mapping[str, Any]
    events: list[Event]
    tries: dict[tuple[str, int], Event] = field(default_factory=dict)
    acks: list[Event] = field(default_factory=list)
    got: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    faults: list[Event] = field(default_factory=list)
    rows: list[Event] = field(default_factory=list)
    records: dict[tuple[str, int, int], Event] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return str(self.begin["source"])

    @property
    def target(self) -> str:
        return str(self.begin["target"])

    @property
    def groups(self) -> list[str]:
        return list(self.begin["groups"])

    def when(self, step: str, state: str) -> list[float]:
        """When a journal row came into a state."""
        return [e.t for e in self.rows if e["step"] == step and e["state"] == state]

    def last(self, step: str) -> str:
        """The last state of a journal row; empty where it never was."""
        states = [str(e["state"]) for e in self.rows if e["step"] == step]
        return states[-1] if states else ""

    def spoilt(self) -> float:
        """Until when records of the source were destroyed by an outsider; 0 where they were not."""
        return max((float(e["until"]) for e in self.faults if e["name"] in SPOILS), default=0.0)

    def named(self) -> set[tuple[str, int, int]]:
        """Records that came after the fence, and that the product named as out of the reach of released groups."""
        return {(self.source, int(p), int(o)) for p, o in self.end["named"]}

    def over(self) -> float:
        """When the migration had ended; endless where it has not."""
        states = [e for e in self.events if e.what == "state"]
        return states[-1].t if states and not states[-1]["active"] else float("inf")


def gather(events: Iterable[Event]) -> Facts:
    """Sort a history."""
    events = list(events)
    by_name = {e.what: e for e in events if e.what in ("begin", "end")}
    facts = Facts(by_name["begin"].data, by_name["end"].data, events)
    for e in events:
        if e.what == "try":
            facts.tries[e["key"], e["seq"]] = e
        elif e.what == "ack":
            facts.acks.append(e)
        elif e.what == "got":
            facts.got[e["group"]].append(e)
        elif e.what == "fault":
            facts.faults.append(e)
        elif e.what == "row":
            facts.rows.append(e)
        elif e.what == "record":
            facts.records[e["topic"], e["partition"], e["offset"]] = e
    return facts


def judge(events: Iterable[Event]) -> list[Violation]:
    """Every broken promise, in the order of the rules."""
    facts = gather(events)
    return [violation for rule in RULES for violation in rule(facts)]


def _place(e: Event) -> tuple[str, int, int]:
    return str(e["topic"]), int(e["partition"]), int(e["offset"])


def _word(e: Event) -> str:
    return f"{e['key']}#{e['seq']} at {e['topic']}[{e['partition']}]@{e['offset']}"


def _some(rule: str, what: str, found: list[Event]) -> Iterator[Violation]:
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield Violation(rule, f"{what}: {', '.join(_word(e) for e in found[:3])}{more}")


# ------------------------------------------------------------------------------------------------ records


def acknowledged_is_there(facts: Facts) -> Iterator[Violation]:
    """What was acknowledged lies where the acknowledgement said, once all is over."""
    gone = []
    for e in facts.acks:
        if e.t <= facts.spoilt() and e["topic"] == facts.source:
            continue
        found = facts.records.get(_place(e))
        if found is None or (found["key"], found["seq"]) != (e["key"], e["seq"]):
            gone.append(e)
    yield from _some("vanished", "acknowledged, and not there", gone)


def nothing_lost(facts: Facts) -> Iterator[Violation]:
    """Every acknowledged record was delivered to every group, unless it was named as left to a person."""
    for group in facts.groups:
        seen = {_place(e) for e in facts.got[group]}
        lost = [e for e in facts.acks if _place(e) not in seen and not _excused(facts, group, e)]
        yield from _some("lost", f"group {group} never got", lost)


def _excused(facts: Facts, group: str, e: Event) -> bool:
    if e["topic"] == facts.source and e.t <= facts.spoilt():
        return True
    if e["topic"] == facts.target and facts.end["left"] and not facts.when(f"switch_consumer:{group}", "intended"):
        return True  # the migration was closed before this group's release: it is for a person to move it
    # A stray that came after this group's release, or after the end: nobody can deliver it any more.
    return e.who == "stray" and bool(_place(e) in facts.named() or facts.end["left"] or e.t >= facts.over())


def _fence(facts: Facts) -> Mapping[str, int] | None:
    found = [e for e in facts.rows if e["step"] == "fence" and e["state"] == "done" and e.data.get("offsets")]
    return None if not found or facts.last("fence") in ("undone", "undoing") else dict(found[-1]["offsets"])


def order_of_keys(facts: Facts) -> Iterator[Violation]:
    """For every group and key records come in the order in which they were written, over both topics."""
    for group in facts.groups:
        seen: set[tuple[str, int, int]] = set()
        highest: dict[str, int] = {}
        late = []
        for e in facts.got[group]:
            if _place(e) in seen or (e["topic"] == facts.source and e.t <= facts.spoilt()):
                continue
            seen.add(_place(e))
            if e["seq"] < highest.get(e["key"], -1):
                late.append(e)
            highest[e["key"]] = max(e["seq"], highest.get(e["key"], -1))
        yield from _some("order", f"group {group} got after a later one of its key", late)


def repeats_have_a_reason(facts: Facts) -> Iterator[Violation]:
    """A record comes twice only to a group whose members, or whose broker, were disturbed before."""
    for group in facts.groups:
        odd = [e.t for e in facts.faults if group in e["hurts"] or "broker" in e["hurts"]]
        odd += [e.t for e in facts.events if e.what == "gave_up" and e.who.rsplit("-", 1)[0] == group]
        seen: set[tuple[str, int, int]] = set()
        twice = []
        for e in facts.got[group]:
            if _place(e) in seen and not any(t <= e.t for t in odd):
                twice.append(e)
            seen.add(_place(e))
        yield from _some("repeat", f"group {group} got again, and nothing had disturbed it", twice)


def nobody_writes_what_it_did_not_try(facts: Facts) -> Iterator[Violation]:
    """Nothing is in the topics, and nothing was delivered, that nobody tried to write."""
    strange = [e for e in facts.records.values() if (e["key"], e["seq"]) not in facts.tries]
    strange += [e for g in facts.groups for e in facts.got[g] if (e["key"], e["seq"]) not in facts.tries]
    yield from _some("invented", "nobody wrote", strange)


def one_append_a_record(facts: Facts) -> Iterator[Violation]:
    """A record lies in one place only: idempotent producers do not write twice, not even over both topics."""
    places: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for e in facts.records.values():
        places[e["key"], e["seq"]].append(e)
    yield from _some("twice", "written twice", [found[-1] for found in places.values() if len(found) > 1])


# ------------------------------------------------------------------------------------------------ the protocol


def released_first(facts: Facts) -> Iterator[Violation]:
    """A group reads the target only once its own switch is on record."""
    for group in facts.groups:
        since = facts.when(f"switch_consumer:{group}", "intended")
        early = [e for e in facts.got[group] if e["topic"] == facts.target and not any(t <= e.t for t in since)]
        yield from _some("early", f"group {group} read the target before its switch was on record", early)


def source_is_read_first(facts: Facts) -> Iterator[Violation]:
    """A group has read its source up to the fence before it reads the target."""
    fence = _fence(facts)
    if fence is None or facts.spoilt():
        return
    due = {p for p, e in facts.records.items() if e["topic"] == facts.source and p[2] < fence.get(str(p[1]), 0)}
    due -= facts.named()
    for group in facts.groups:
        first = next((e.t for e in facts.got[group] if e["topic"] == facts.target), None)
        if first is None:
            continue
        had = {_place(e) for e in facts.got[group] if e.t <= first}
        missing = [facts.records[p] for p in sorted(due - had)]
        yield from _some("early", f"group {group} read the target before it had read", missing)


def fence_holds(facts: Facts) -> Iterator[Violation]:
    """A migration that is done has no record past its last fence that came before the proof."""
    fence = _fence(facts)
    if facts.end["state"] != "done" or fence is None:
        return
    past = [e for p, e in facts.records.items() if p[0] == facts.source and p[2] >= fence.get(str(p[1]), 0)]
    # A record's own time is when it was tried.
    tried = {p: facts.tries.get((e["key"], e["seq"])) for p, e in facts.records.items()}
    proven = max(facts.when("order_proof", "done"), default=0.0)
    early = [e for e in past if (at := tried[_place(e)]) is not None and at.t < proven - 5.0]
    yield from _some("fence", "past the fence of a migration that is done", early)


def done_is_proven(facts: Facts) -> Iterator[Violation]:
    """A migration that is done went through every step."""
    if facts.end["state"] != "done":
        return
    wanted = ["create_target", "freeze", "fence", "switch_producers", "order_proof"]
    wanted += [f"switch_consumer:{group}" for group in facts.groups]
    missing = [step for step in wanted if not facts.when(step, "done")]
    if missing:
        yield Violation("unproven", f"done without {', '.join(missing)}")


def evidence_is_whole(facts: Facts) -> Iterator[Violation]:
    """A migration that is done has its evidence, each file whole, also where the disk was full for a while."""
    if facts.end["state"] != "done":
        return
    there = set(facts.end["evidence"])
    missing = [name for name in EVIDENCE if name not in there]
    if not any(name.startswith("drain_certificate") for name in there):
        missing.append("drain_certificate*.json")
    if missing:
        yield Violation("evidence", f"done, and missing or torn: {', '.join(missing)}")


def made_again_is_not_done(facts: Facts) -> Iterator[Violation]:
    """A source that was made again under a migration cannot have been migrated."""
    made = facts.when("create_target", "done")
    hands = [e.t for e in facts.faults if e["name"] in SPOILS]
    over = [e.t for e in facts.events if e.what == "state" and not e["active"]]
    if facts.end["state"] == "done" and made and any(made[0] < t < min(over, default=t) for t in hands):
        yield Violation("unnamed", "the source was made again under the migration, which is done all the same")


def one_owner(facts: Facts) -> Iterator[Violation]:
    """A second run on the same topics is refused with the owner's name."""
    for e in facts.events:
        owner = e.data.get("owner", facts.begin["owner"])
        if e.what == "claimed_again" and (not e["refused"] or str(owner) not in str(e["said"])):
            yield Violation("owner", f"a second run on the same source was answered: {e['said']}")


# ------------------------------------------------------------------------------------------------ the freeze, the end


def producers_are_not_left_stopped(facts: Facts) -> Iterator[Violation]:
    """No producer stands still beyond the budget; a time in which it, or the broker, was down does not count."""
    for who in facts.begin["producers"]:
        for since, until in stops([e for e in facts.events if e.who == who], facts.events[-1].t):
            most = facts.begin["budget_s"] + SLACK_S + _down(facts, who, since, until)
            if until - since > most:
                yield Violation("stopped", f"{who} stood still for {until - since:.0f} s, {most:.0f} s are the most")


def stops(events: Iterable[Event], over: float) -> Iterator[tuple[float, float]]:
    """When a producer said that it may not write: from, to."""
    since: float | None = None
    for e in events:
        if e.what == "says" and e["status"] in ("paused", "flushing", "blind"):
            since = e.t if since is None else since
        elif e.what in ("says", "started", "closed") and since is not None:
            yield since, e.t
            since = None
    if since is not None:
        yield since, over


def _down(facts: Facts, who: str, since: float, until: float) -> float:
    spans = [(e.t, e["until"]) for e in facts.faults if {who, "broker"} & set(e["hurts"])]
    return sum(max(0.0, min(until, b) - max(since, a)) for a, b in spans)


def producers_write(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every producer writes somewhere."""
    healed = next((e.t for e in facts.events if e.what == "healed"), None)
    if healed is None:
        yield Violation("liveness", "the run was not healed")
        return
    wrote = {e.who for e in facts.acks if e.t >= healed}
    for who in facts.begin["producers"]:
        if who not in wrote:
            yield Violation("left_stopped", f"producer {who} wrote nothing after all was healed")


def groups_read(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, every group reads, unless the migration was closed before its release."""
    healed = next((e.t for e in facts.events if e.what == "healed"), float("inf"))
    for group in facts.groups:
        waits = facts.end["left"] and not facts.when(f"switch_consumer:{group}", "intended")
        if not waits and not any(e.t >= healed for e in facts.got[group]):
            yield Violation("left_stopped", f"group {group} read nothing after all was healed")


def comes_to_an_end(facts: Facts) -> Iterator[Violation]:
    """Once all is healed, the migration ends; where it did not end well, it says why, or what is left to do."""
    end = facts.end
    if end["active"] or end["state"] == "open":
        yield Violation("liveness", f"the migration is {end['state']} still: {end['why']}")
    elif end["state"] not in ("done", "rolled_back") and not end["why"]:
        yield Violation("liveness", f"the migration is {end['state']}, and nobody says why")


def progress_was_made(facts: Facts) -> Iterator[Violation]:
    """Between two faults the applications and the migration went on."""
    for e in facts.events:
        if e.what == "stuck":
            yield Violation("liveness", f"no progress in {e['seconds']:.0f} s before {e['before']}: {e['missing']}")


def leaves_it_tidy(facts: Facts) -> Iterator[Violation]:
    """What held for the time of a migration alone is taken back at its end, or named as left to do."""
    end, begin = facts.end, facts.begin
    if end["left"]:
        return
    denies = [a for a in end["acls"] if a["permission"] == "DENY"]
    if end["state"] == "done":  # the source is shut until it is retired
        denies = [a for a in denies if a["name"] != facts.source]
    if denies:
        yield Violation("untidy", f"{end['state']}, and this DENY is left: {denies[0]}")
    gone = [a for a in begin["acls"] if a not in end["acls"]]
    if gone:
        yield Violation("untidy", f"{end['state']}, and this ACL is gone: {gone[0]}")
    if begin["configs"] != end["configs"] and not facts.spoilt():
        yield Violation("untidy", f"the source's configs were {begin['configs']} and are {end['configs']}")


def the_trail_is_whole(facts: Facts) -> Iterator[Violation]:
    """The audit trail verifies."""
    if facts.end["audit"] != 0:
        yield Violation("audit", f"topicshift audit verify answers {facts.end['audit']}")


def nothing_crashes(facts: Facts) -> Iterator[Violation]:
    """No process ends with an error that is none of the product's own."""
    for e in facts.events:
        asked = e.what == "ended" and e["code"] == TERMINATED and e.data.get("asked", False)
        if e.what == "ended" and e["code"] >= 0 and e["code"] not in ANSWERS and not asked:
            yield Violation("crash", f"{e.who} ended with code {e['code']}: {e['said']}")


def nobody_is_shut_out(facts: Facts) -> Iterator[Violation]:
    """An advancer goes on whoever else acts, as long as the owner of its migration is the same."""
    for e in facts.events:
        if e.what == "ended" and e.who.startswith("advance-") and SHUT_OUT in e["said"]:
            yield Violation("shut_out", f"{e.who} ended with code {e['code']}: {e['said']}")


RULES: tuple[Callable[[Facts], Iterator[Violation]], ...] = (
    acknowledged_is_there,
    nothing_lost,
    order_of_keys,
    repeats_have_a_reason,
    nobody_writes_what_it_did_not_try,
    one_append_a_record,
    released_first,
    source_is_read_first,
    fence_holds,
    done_is_proven,
    evidence_is_whole,
    made_again_is_not_done,
    one_owner,
    producers_are_not_left_stopped,
    producers_write,
    groups_read,
    comes_to_an_end,
    progress_was_made,
    leaves_it_tidy,
    the_trail_is_whole,
    nothing_crashes,
    nobody_is_shut_out,
)
"""Every promise."""
