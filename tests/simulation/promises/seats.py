"""Promises about who acts: one run, one seat, the newest epoch, and nobody after the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import Event
from tests.simulation.promises.facts import FRESH_S, Facts, Violation


def one_run_at_a_time(facts: Facts) -> Iterator[Violation]:
    """A run changes nothing of topics that the journal has given to another migration."""
    holder: dict[str, tuple[str, float]] = {}
    for e in facts.deeds:
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


ACT_SLACK_S = 1.5
"""How long after the end of its seat a call may be sent: the call before it, and the rounding of times."""


def old_epochs_write_nothing(facts: Facts) -> Iterator[Violation]:
    """A row is written under the newest epoch of its migration alone."""
    newest: dict[str, int] = {}
    for e in facts.deeds:
        if e.what == "epoch":
            newest[e["migration"]] = e["epoch"]
        elif e.what == "row" and e["epoch"] < newest.get(e["migration"], 0):
            yield Violation(
                "epoch", f"{e['step']} was written under epoch {e['epoch']}, in force is {newest[e['migration']]}", e.at
            )


def sends_while_seated(facts: Facts) -> Iterator[Violation]:
    """A process that was held up for longer than its seat lasts sends nothing more of that act.

    It may take back, once, the ACLs that it created before or while it was held up, unless they are another's by now.
    One whose clock is off, or steps, may be late by as much.
    """
    off = defaultdict[str, float](lambda: ACT_SLACK_S + abs(facts.start.get("skew") or 0.0))
    until: dict[str, float] = {}
    created, whose = dict[str, frozenset[str]](), dict[str, str]()
    for e in facts.deeds:
        if e.what == "fault" and e["fault"].kind == "clock_step":
            off[e.who] += abs(e["fault"].amount)
        elif e.what == "seat":
            until[e.who] = e["until"]
        elif e.what == "call" and e["port"] in ("admin", "routes") and e.who in until:
            late = e["began"] - until[e.who]
            acls, takes_back = frozenset[str](e.get("acls", ())), False
            if e["method"] == "delete_acls":
                theirs = {whose.pop(acl, e.who) for acl in acls} - {e.who}
                takes_back = bool(acls) and acls <= created.pop(e.who, frozenset()) and not theirs
            elif e["method"] == "create_acls" and late <= off[e.who]:
                created[e.who] = acls
                whose |= dict.fromkeys(acls, e.who)
            if late > off[e.who] and not takes_back:
                yield Violation("seat", f"{e.who} sent {e['method']} {late:.0f} s after the end of its seat", e.at)


def one_seat(facts: Facts) -> Iterator[Violation]:
    """Nobody takes the seat of another before its time is over, or it is given free."""
    held: dict[str, tuple[str, float]] = {}
    for e in facts.deeds:
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
    for e in facts.deeds:
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
    for e in facts.deeds:
        if _goes_forward(e) and ".resume" in e["by"]:
            yield Violation("resume", f"{e['by']} was to resume on the source, and begins {e['step']}", e.at)


RULES = (
    one_run_at_a_time,
    old_epochs_write_nothing,
    sends_while_seated,
    one_seat,
    over_is_over,
    resuming_goes_back,
)
"""Every rule of this module."""
