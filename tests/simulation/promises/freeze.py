"""Promises about the freeze: how it is prepared, how long it lasts, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.simulation.history import Event
from tests.simulation.kernel import BASE
from tests.simulation.promises.facts import FRESH_S, LOOK_S, Answers, Facts, Violation, faulty

END_SLACK_S = 20.0
"""Added to the budget before a freeze that nothing disturbs has to be at its end: one act, looked at and told again."""

CLOCKS_S = 10.0
"""How far the product's own clocks may be off in a scenario, and the age of a look."""

GONE_S = 40.0
"""Within this time after its run was deleted or has failed a freeze is resumed: the watch looks every 10 s."""

PAUSED_S = 200.0
"""The longest time for which somebody pauses a run."""

WATCH_S = 60.0 + 2 * END_SLACK_S
"""Added where people's hands took the run away: the watch looks at a freeze a minute after its lease."""


BEGIN_ANEW_S = 45.0
"""Within this time a process that was killed, or that a fault has struck, is at work again."""


def freezes_end_in_time(facts: Facts) -> Iterator[Violation]:
    """A freeze is switched, or resumed on the source, within its budget; each fault may add what it costs.

    One that is switched begins no new time where a resume is called off: from the switch on no timer resumes.
    """
    begun, switched = dict[str, float](), set[str]()
    for e in facts.deeds:
        if e.what == "end":
            rows = list(begun)
        elif e.what == "row" and e["step"] in ("freeze", "switch_producers"):
            if e["step"] == "switch_producers":
                (switched.discard if e["state"] == "undone" else switched.add)(e["migration"])
            elif e["state"] == "intended":
                begun |= {} if e["migration"] in switched else {e["migration"]: e.at}
                continue
            rows = [e["migration"]]
        else:
            continue
        for migration in rows:
            since = begun.pop(migration, None)
            if since is not None:
                yield from _too_long(facts, since, e)


def _too_long(facts: Facts, since: float, end: Event) -> Iterator[Violation]:
    inside = [e for e in facts.deeds if since <= e.at <= end.at]
    struck = [e for e in inside if e.what in ("fault", "killed")]
    hands = [e for e in facts.hands if e.who == "person" and since - PAUSED_S <= e.at <= end.at]
    most = facts.budget_s + (WATCH_S if hands else END_SLACK_S)
    gone = len(hands) == 1 and hands[0]["hand"] in ("run_deleted", "marked_failed") and hands[0].at >= since
    if gone and hands[0]["did"] and not struck:
        most = hands[0].at - since + GONE_S
    if struck:  # a process may have to begin anew, and where that was its last try the watch resumes
        costs = (abs(e["fault"].amount) if e.what == "fault" else 0.0 for e in struck)
        most = facts.budget_s + WATCH_S + sum(cost + BEGIN_ANEW_S for cost in costs)
    most += 2 * abs(facts.start.get("skew") or 0.0)
    if end.at - since > most:
        yield Violation("freeze", f"a freeze of {facts.budget_s:g} s ran for {end.at - since:.0f} s", since)


def freezes_begin_prepared(facts: Facts) -> Iterator[Violation]:
    """No freeze begins before participants follow closely, records live long enough, and people have stopped theirs."""
    rows: dict[str, str] = {}
    asked, answers = "stop_producers.fence" in facts.start.get("required", ()), Answers()
    for e in facts.deeds:
        answers.hear(e)
        if e.what != "row":
            continue
        if (e["step"], e["state"]) == ("freeze", "intended") and rows.get("freeze") != "undoing":
            last = answers.last.get("stop_producers.fence")
            if asked and (last is None or last["said"] != "yes"):
                yield Violation("unprepared", "a freeze begins before people have stopped their producers", e.at)
            missing = [step for step in ("arm", "lengthen_retention") if rows.get(step) != "done"]
            if missing:
                yield Violation("unprepared", f"a freeze begins without {', '.join(missing)}", e.at)
        rows[e["step"]] = e["state"]


def hanging_is_aborted_first(facts: Facts) -> Iterator[Violation]:
    """No producer is stopped while a transaction hangs on the source that nobody will ever end."""
    since: float | None = None
    for e in facts.deeds:
        if e.what == "hand" and e["hand"] == "transaction_hangs" and e["did"]:
            since = e.at
        elif e.what == "call" and e["method"] == "abort_transaction" and e["outcome"] == "ok":
            since = None
        begins = e.what == "row" and (e["step"], e["state"]) == ("freeze", "intended")
        if since is not None and begins and e.at > since + LOOK_S:
            age = e.at - since
            if not faulty(facts, since, e.at):
                yield Violation("unprepared", f"a freeze begins over a transaction that hangs for {age:.0f} s", e.at)


def carries_out_the_plan_of_now(facts: Facts) -> Iterator[Violation]:
    """The target is not made by a plan that was overtaken by what somebody did to the source."""
    planned = 0.0
    hands = [h.at for h in facts.hand("partition_added_source")]
    for e in facts.deeds:
        if e.what == "plan":
            planned = e.at
        elif e.what == "call" and e["method"] == "create_topic" and e["outcome"] == "ok":
            overtaken = any(planned < at < e["began"] - LOOK_S for at in hands)
            if overtaken and not faulty(facts, planned, e.at):
                yield Violation("plan", f"{e.who} made the target by a plan of {e.at - planned:.0f} s ago", e.at)


def stops_nobody_for_another_source(facts: Facts) -> Iterator[Violation]:
    """No freeze begins on a source that has other partitions than the plan was made for, or was made again since."""
    planned, row = 0.0, ""
    hands = [h.at for h in facts.hand("partition_added_source", "source_remade")]
    for e in facts.deeds:
        if e.what == "plan":
            planned = e.at
        elif e.what == "row" and e["step"] == "freeze":
            if e["state"] == "intended" and row in ("", "undone"):
                other = [at for at in hands if planned < at < e.at - LOOK_S]
                if other and not faulty(facts, other[0], e.at):
                    yield Violation("plan", f"a freeze begins {e.at - other[0]:.0f} s after the source changed", e.at)
            row = e["state"]


GO = "stop_producers.go"


def begins_as_shown(facts: Facts) -> Iterator[Violation]:
    """A freeze begins on a yes for this very freeze, as it was shown and in its time, and denies nobody who was not
    named then."""
    if GO not in facts.start.get("required", ()):
        return
    answers = Answers()
    plan, row, begun = None, "", dict[str, int]()
    shown: dict[str, Any] | None = None
    for e in facts.deeds:
        answers.hear(e)
        if e.what == "plan":
            plan = e["plan_hash"]
        elif e.what == "row" and e["step"] == "freeze":
            if e["state"] == "intended" and row in ("", "undone"):
                number = begun[e["migration"]] = begun.get(e["migration"], 0) + 1
                wanted = {"plan_hash": plan, "attempt": number, "freeze_budget_s": facts.budget_s}
                yes = [json.loads(text) for text in answers.yes_to(GO)]
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


MISSED_S = 60.0
"""Within this time after a window closed, what was prepared for the freeze is put back: a task looks every 24 s."""


def begins_in_its_window(facts: Facts) -> Iterator[Violation]:
    """A freeze begins only while a window is open in which it can end, by the clock of the product."""
    windows = facts.start.get("windows")
    if not windows or any(e.what == "fault" and e["fault"].kind == "clock_step" for e in facts.deeds):
        return
    off, row = LOOK_S + abs(facts.start.get("skew") or 0.0), ""
    for e in facts.deeds:
        if e.what != "row" or e["step"] != "freeze":
            continue
        open_ = any(opens - off <= e.at <= last + off for opens, last in windows)
        begins = e["state"] == "intended" and row in ("", "undone")
        if begins and not open_ and not faulty(facts, e.at - FRESH_S, e.at):
            yield Violation("window", f"a freeze begins at {e.at:.0f} s, and no window is open: {windows[:5]}", e.at)
        row = e["state"]


def missed_windows_leave_nothing(facts: Facts) -> Iterator[Violation]:
    """A window that closes before a freeze began leaves nobody armed, and the retention as it was, until the next.

    Where its run stands, and nobody looks at it, that waits for whoever goes on with it; so it does in a freeze that
    began in time, until that is resumed.
    """
    windows = facts.start.get("windows") or ()
    people = [h.at for h in facts.hands if h.who == "person"]
    for _, last in windows:
        at = last + MISSED_S
        if facts.end is None or at > facts.end.at or any(o <= at and last < c for o, c in windows):
            continue
        if faulty(facts, last - MISSED_S, at) or any(last - PAUSED_S <= p <= at for p in people):
            continue
        ends = [e.at for e in facts.deeds if e.what == "row" and e["step"] == "freeze" and e.at <= at]
        since = max(last, *ends[-1:], 0.0)
        looks = [e.at for e in facts.deeds if e.what == "note" and e["kind"] == "waits" and since < e.at < at - LOOK_S]
        rows = {e["step"]: e["state"] for e in facts.deeds if e.what == "row" and e.at <= at}
        state = [e["state"] for e in facts.deeds if e.what == "state" and e.at <= at]
        back = rows.get("rollback", "undone") != "undone"
        if state[-1:] != ["open"] or rows.get("freeze", "undone") != "undone" or back:
            continue
        left = [step for step in ("arm", "lengthen_retention") if rows.get(step, "undone") != "undone"]
        if left and looks:
            yield Violation("window", f"the window closed at {last:.0f} s, and of it is left: {', '.join(left)}", at)


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


def resumes_end(facts: Facts) -> Iterator[Violation]:
    """A freeze that is being resumed, and that nothing disturbs, is over soon."""
    since: dict[str, float] = {}
    for e in facts.deeds:
        if e.what == "end":
            for at in since.values():
                if e.at - at > GONE_S and not faulty(facts, at, e.at):
                    yield Violation("freeze", f"a freeze is being resumed since {e.at - at:.0f} s", at)
        elif e.what == "row" and e["step"] == "freeze":
            since.pop(e["migration"], None)
            if e["state"] == "undoing":
                since[e["migration"]] = e.at


def one_freeze_a_try(facts: Facts) -> Iterator[Violation]:
    """A process that was at work when the freeze was resumed begins no other one by itself."""
    ended: dict[str, float] = {}
    ahead = abs(facts.start.get("skew") or 0.0) + 1.0
    odd = {e.who for e in facts.deeds if e.what == "fault" and e["fault"].kind == "clock_step"}
    for e in facts.deeds:
        if e.what != "row" or e["step"] != "freeze":
            continue
        if e["state"] == "undone":
            ended[e["migration"]] = e.at
        elif e["state"] == "intended" and e["by"] and e["by"] not in odd:
            at = ended.get(e["migration"])
            if at is not None and e["since"] < at - ahead:
                yield Violation("freeze", f"{e['by']} begins a freeze anew, although it was there when one ended", e.at)


RULES = (
    freezes_end_in_time,
    freezes_begin_prepared,
    begins_as_shown,
    begins_in_its_window,
    missed_windows_leave_nothing,
    hanging_is_aborted_first,
    carries_out_the_plan_of_now,
    stops_nobody_for_another_source,
    resumes_wholly,
    resumes_end,
    one_freeze_a_try,
)
"""Every rule of this module."""
