"""Promises about the retirement: the source goes when it is due, unused and approved, or nobody is shut out of it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Event
from tests.simulation.promises.facts import (
    FRESH_S,
    Answers,
    Facts,
    Violation,
    ended,
    faulty,
    fences_of,
    required,
)

USED_S = 12.0
"""A deletion rests on a look at who uses the source that is at most this old: two samples of commits, and the seat."""


def deletions(facts: Facts) -> list[Event]:
    """Each time when the product deleted the topic that is the source."""
    calls = (e for e in facts.deeds if e.what == "call" and e["method"] == "delete_topic" and e["outcome"] == "ok")
    return [e for e in calls if e.get("topic") == facts.source]


def _clocks_are_right(facts: Facts) -> bool:
    odd = any(e.what == "fault" and e["fault"].kind == "clock_step" for e in facts.deeds)
    return not odd and not facts.start.get("skew")


def deleted_when_done_and_due(facts: Facts) -> Iterator[Violation]:
    """The source alone is deleted, of a migration that is done, once its time and its retention have passed."""
    fences = [f for f in fences_of(facts) if f.until == float("inf")]
    switched = [
        e.at for e in facts.deeds if e.what == "row" and (e["step"], e["state"]) == ("switch_producers", "done")
    ]
    keep = max(facts.start.get("retire_after_s", 0.0), facts.start.get("retention_s", 0.0))
    for e in deletions(facts):
        if e["began"] < ended(facts):
            yield Violation("retired", f"{e.who} deleted the source of a migration that is not done", e.at)
        elif switched and e["began"] < switched[-1] + keep - 1.0 and _clocks_are_right(facts):
            yield Violation("retired", f"{e.who} deleted the source {e.at - switched[-1]:.0f} s after the switch", e.at)
        if fences and e["topic_id"] != fences[-1].topic_id:
            yield Violation("retired", f"{e.who} deleted {facts.source} {e['topic_id']}, another topic", e.at)


def deleted_as_approved(facts: Facts) -> Iterator[Violation]:
    """Where a person has to say yes to the deletion, one did, for this very topic."""
    if "retire.approve" not in required(facts):
        return
    answers, gone = Answers(), {id(e) for e in deletions(facts)}
    for e in facts.deeds:
        answers.hear(e)
        last = answers.last.get("retire.approve")
        approved = last is not None and last["said"] == "yes" and str(e.get("topic_id")) in last["shown"]
        if id(e) in gone and not approved:
            yield Violation("retired", f"{e.who} deleted the source without a yes to that", e.at)


def screamed_before(facts: Facts) -> Iterator[Violation]:
    """Everybody was kept out for the time of the scream test before the source is deleted."""
    since: float | None = None
    gone, least = {id(e) for e in deletions(facts)}, facts.start.get("scream_s", 0.0) - 1.0
    least = least if _clocks_are_right(facts) else 0.0
    for e in facts.deeds:
        if e.what == "row" and e["step"] == "scream_test":
            since = (e.at if since is None else since) if e["state"] == "intended" else None
        elif id(e) in gone and (since is None or e.at - since < least):
            lasted = "without a scream test" if since is None else f"after {e.at - since:.0f} s of its scream test"
            yield Violation("retired", f"{e.who} deleted the source {lasted}", e.at)


def nobody_used_it(facts: Facts) -> Iterator[Violation]:
    """No source is deleted while a group reads it, or after a record came behind its fence."""
    for e in deletions(facts):
        seen = e["began"] - USED_S
        if faulty(facts, seen, e.at):
            seen -= FRESH_S
        came = [h.at for h in facts.hand("reader_returns") if h.at < seen]
        left = [x.at for x in facts.deeds if x.what == "reader_left" and came and x.at > came[-1]]
        if came and not (left and left[0] < e["began"]):
            yield Violation(
                "retired", f"{e.who} deleted the source, which a group has read since {came[-1]:.0f} s", e.at
            )
        for fence in fences_of(facts):
            late = [a.at for a in facts.appended.values() if fence.past(a) and a.at < seen]
            if late and fence.until > e["began"]:
                yield Violation(
                    "retired", f"{e.who} deleted the source, to which a record came at {late[0]:.0f} s", e.at
                )


def cancelled_is_cancelled(facts: Facts) -> Iterator[Violation]:
    """Whoever is asked to let everybody in again deletes nothing and shuts nobody out."""
    for e in facts.deeds:
        asked = ".let_in_again." in e.who or ".retirement_cancelled." in e.who
        if asked and e.what == "call" and e["method"] in ("delete_topic", "create_acls"):
            yield Violation("retired", f"{e.who} was to let everybody in again, and sent {e['method']}", e.at)


def let_in_again(facts: Facts) -> Iterator[Violation]:
    """In the end nobody is kept from reading a source that is there; nothing is left on the name of one that is not."""
    end, screams = facts.end, [e for e in facts.deeds if e.what == "row" and e["step"] == "scream_test"]
    if end is None or not screams or end["state"] not in ("done", "retired") or end.get("closed"):
        return
    left = [op for op in end.get("denied", ()) if op == "READ" or end["state"] == "retired"]
    if left:
        yield Violation(
            "retired", f"the migration is {end['state']}, and everybody is denied {', '.join(left)}", end.at
        )


RULES = (
    deleted_when_done_and_due,
    deleted_as_approved,
    screamed_before,
    nobody_used_it,
    cancelled_is_cancelled,
    let_in_again,
)
"""Every rule of this module."""
