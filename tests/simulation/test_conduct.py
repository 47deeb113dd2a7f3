"""Planted violations for the rules on conduct; each plant beside the nearest history in which nothing is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation import checker
from tests.simulation.history import History
from tests.simulation.kernel import BASE
from tests.simulation.promises import ends, fence, freeze, records, retirement, route, seats
from tests.simulation.promises.facts import gather

Line = tuple[float, str, str, dict[str, Any]]
RULES = (
    *freeze.RULES,
    *seats.RULES,
    *(ends.calm_is_done, ends.calm_moves_everybody, ends.ends_tidily, ends.free_is_rolled_back, ends.calm_goes_back),
    ends.ends_by_itself,
    *(fence.denied_is_denied, fence.mends_before_it_acts, fence.nothing_open_at_the_fence),
    *retirement.RULES,
    *(route.points_count_in_time, route.paused_is_flushed),
    records.released_have_read,
)
END = {"state": "done", "why": ""}


def judge(*lines: Line, end: dict[str, Any] = END, **start: Any) -> set[str]:
    """The rules that a history breaks."""
    now = [0.0]
    history = History(lambda: now[0])
    world = {
        "source": "old",
        "target": "new",
        "order": "drain_first",
        "budget_s": 60.0,
        "groups": ["g0"],
        "required": [],
    }
    world |= start
    for at, who, what, data in [(0.0, "world", "world", world), *lines, (300.0, "world", "end", end)]:
        now[0] = at
        history.add(who, what, **data)
    facts = gather(history)
    return {rule.__name__ for rule in RULES if list(rule(facts))}


def row(at: float, step: str, state: str = "done", **more: Any) -> Line:
    data = {"migration": "m", "step": step, "state": state, "fence": None, "epoch": 1, "by": "p", "since": at - 1}
    return at, "journal", "row", data | more


def state(at: float, name: str) -> Line:
    return at, "journal", "state", {"migration": "m", "state": name, "active": False}


def hand(at: float, name: str, who: str = "person") -> Line:
    return at, who, "hand", {"hand": name, "did": True, "amount": 0.0}


def call(at: float, who: str = "p", **more: Any) -> Line:
    return at, who, "call", {"port": "routes", "method": "write", "outcome": "ok", "began": at, "args": ""} | more


def acls(at: float, does: str, which: str, who: str = "p", **more: Any) -> Line:
    """A call for the ACLs of these letters; what it notes of its arguments is too short to tell them apart."""
    return call(at, who, port="admin", method=f"{does}_acls", args="[Acl(", acls=list(which), **more)


LATE = acls(60.0, "create", "a", began=39.0)


def seat(at: float, who: str, until: float) -> Line:
    return at, who, "seat", {"migration": "m", "until": until}


def picture(at: float, active: str, until: float | None = None) -> Line:
    return at, "route", "route", {"active": active, "state": "paused" if until else "open", "until": until}


FENCE = row(10.0, "fence", fence={"topic_id": "A", "offsets": {0: 2}})
OPEN = {"state": "open", "why": "it waits"}
ENDED = row(30.0, "freeze")
BEGUN, RESUMED = row(12.0, "freeze", "intended"), row(50.0, "freeze", "undone")
PREPARED = [row(5.0, "arm"), row(6.0, "lengthen_retention")]
SWITCH = ("switch_producers", "intended")
MAKE = {"port": "admin", "method": "create_topic"}
PLAN: Line = (5.0, "journal", "plan", {})
LONGER, DENY = call(5.0, method="alter_topic_configs"), call(5.0, method="create_acls")
FAILED = acls(11.0, "create", "a", outcome="fail")
OTHER_TOPIC = {"method": "alter_topic_configs", "topic": "new"}
PAUSED: Line = (5.0, "p0-1", "says", {"status": "paused"})


def append(at: float, offset: int) -> Line:
    record = {"topic": "old", "topic_id": "A", "partition": 0, "offset": offset, "key": "k", "seq": 0}
    return at, "rogue", "appended", record


def taken(at: float) -> Line:
    return at, "p0-1", "admitted", {"key": "k", "seq": 1, "topic": "old"}


def sent(at: float) -> Line:
    return at, "p0-1", "produce", {"outcome": "ok", "key": "k", "seq": 1, "topic": "old", "partition": 0, "offset": 0}


GO: dict[str, Any] = {"required": ["stop_producers.go"]}
GO_PLAN: Line = (4.0, "journal", "plan", {"plan_hash": "H1"})


def go(said: str = "yes", until: float = 60.0, **more: Any) -> Line:
    """The answer to a go, before the freeze of the other lines begins."""
    about = {
        "plan_hash": "H1",
        "attempt": 1,
        "freeze_budget_s": 60.0,
        "deny": [],
        "until": datetime.fromtimestamp(BASE.timestamp() + until, UTC).isoformat(),
    }
    shown = json.dumps(about | more, sort_keys=True)
    return 11.0, "person", "answered", {"question": "stop_producers.go", "shown": shown, "said": said}


def left(unread: int, *, released: bool) -> Line:
    return 5.0, "g0-1", "left", {"topic": "old", "released": released, "unread": unread}


RETIRED = {"state": "retired", "why": ""}
DONE = [row(40.0, "switch_producers"), state(60.0, "done")]
SCREAM = row(100.0, "scream_test", "intended")
GONE = {"port": "admin", "method": "delete_topic", "topic": "old", "topic_id": "A"}
YES: Line = (90.0, "person", "answered", {"question": "retire.approve", "said": "yes", "shown": "old A"})
RETIRE: dict[str, Any] = {"retire_after_s": 50.0, "scream_s": 20.0, "required": []}
FENCED = row(30.0, "fence", fence={"topic_id": "A", "offsets": {0: 2}})


BACK: Line = (11.0, "person", "answered", {"question": "rollback.approve", "said": "yes", "shown": "{}"})


MISSED: dict[str, Any] = {"windows": [(0.0, 20.0), (180.0, 220.0)]}
WAITS: Line = (30.0, "run1", "note", {"kind": "waits", "text": "the window is closed"})


def transaction(at: float, state: str) -> Line:
    return at, "nightly", "transaction", {"topic_id": "A", "state": state}


def fault(at: float, kind: str = "slow", amount: float = 1.0) -> Line:
    return at, "p", "fault", {"fault": SimpleNamespace(kind=kind, amount=amount), "call": "admin.offsets"}


def removed(at: float, which: str) -> Line:
    """Somebody removes the DENY bindings of these letters."""
    return at, "outsider", "hand", {"hand": "deny_removed", "did": list(which), "amount": 0.0}


FAULT = fault(135.0)
PUT_BACK = hand(10.0, "retention_put_back")
BACK_BEGUN = row(12.0, "rollback", "intended")


PLANTED: list[tuple[str, list[Line], dict[str, Any]]] = [
    ("free_is_rolled_back", [hand(10.0, "rollback_asked")], {}),
    ("calm_goes_back", [row(9.0, "order_proof"), hand(10.0, "rollback_asked"), BACK], {}),
    ("old_epochs_write_nothing", [(5.0, "journal", "epoch", {"migration": "m", "epoch": 2}), row(6.0, "arm")], {}),
    ("sends_while_seated", [seat(10.0, "p", 40.0), call(42.0)], {}),
    ("sends_while_seated", [seat(10.0, "p", 40.0), LATE, acls(61.0, "delete", "b")], {}),
    ("sends_while_seated", [seat(10.0, "p", 40.0), LATE, acls(61.0, "delete", "ab")], {}),
    (
        "sends_while_seated",
        [
            *(seat(10.0, "p", 40.0), acls(12.0, "create", "a"), seat(45.0, "q", 75.0)),
            *(acls(50.0, "create", "a", who="q"), acls(90.0, "delete", "a")),
        ],
        {},
    ),
    ("sends_while_seated", [seat(10.0, "p", 40.0), fault(11.0, "clock_step", 5.0), call(60.0)], {}),
    ("sends_while_seated", [seat(10.0, "p", 40.0), call(60.0)], {"skew": 4.0}),
    ("one_seat", [seat(10.0, "p", 40.0), seat(20.0, "q", 50.0)], {}),
    ("ends_tidily", [row(5.0, "arm"), state(20.0, "done")], {}),
    ("ends_tidily", [row(5.0, "create_target"), state(20.0, "rolled_back")], {}),
    ("ends_tidily", [row(5.0, "rollback", "intended"), state(20.0, "done")], {}),
    ("freezes_begin_prepared", [row(5.0, "arm"), BEGUN], {}),
    ("freezes_begin_prepared", [*PREPARED, BEGUN], {"required": ["stop_producers.fence"]}),
    ("resumes_wholly", [row(9.0, "fence"), row(50.0, "freeze", "undone")], {}),
    ("resumes_wholly", [PAUSED, row(50.0, "freeze", "undone")], {}),
    ("resumes_end", [row(20.0, "freeze", "undoing")], {}),
    ("mends_before_it_acts", [LONGER, hand(10.0, "retention_put_back"), row(20.0, *SWITCH)], {}),
    (
        "mends_before_it_acts",
        [
            *(LONGER, row(6.0, "lengthen_retention", "undone"), call(8.0, method="alter_topic_configs")),
            *(hand(10.0, "retention_put_back"), row(20.0, *SWITCH)),
        ],
        {},
    ),
    ("mends_before_it_acts", [DENY, hand(10.0, "deny_removed"), row(20.0, *SWITCH)], {}),
    ("mends_before_it_acts", [DENY, removed(10.0, "ab"), acls(11.0, "create", "a"), row(20.0, *SWITCH)], {}),
    ("mends_before_it_acts", [DENY, removed(10.0, "a"), (11.0, *FAILED[1:]), row(20.0, *SWITCH)], {}),
    ("mends_before_it_acts", [LONGER, PUT_BACK, call(11.0, **OTHER_TOPIC), row(20.0, *SWITCH)], {}),
    ("mends_before_it_acts", [LONGER, PUT_BACK, fault(11.0), row(150.0, *SWITCH)], {}),
    ("mends_before_it_acts", [LONGER, PUT_BACK, row(15.0, "freeze", "undone"), row(20.0, *SWITCH)], {}),
    ("hanging_is_aborted_first", [*PREPARED, hand(7.0, "transaction_hangs"), BEGUN, ENDED], {}),
    ("carries_out_the_plan_of_now", [PLAN, hand(10.0, "partition_added_source"), call(20.0, **MAKE)], {}),
    (
        "stops_nobody_for_another_source",
        [PLAN, *PREPARED, hand(7.0, "partition_added_source"), (20.0, *BEGUN[1:]), ENDED],
        {},
    ),
    ("over_is_over", [state(20.0, "rolled_back"), row(21.0, "create_target", "intended")], {}),
    ("resuming_goes_back", [row(21.0, "arm", "intended", by="command.resume.1")], {}),
    ("freezes_end_in_time", [BEGUN, row(95.0, "freeze", "undone")], {}),
    ("freezes_end_in_time", [BEGUN, hand(15.0, "run_deleted"), row(60.0, "freeze", "undone")], {}),
    ("freezes_end_in_time", [BEGUN], {}),
    ("freezes_end_in_time", [BEGUN, fault(20.0), row(250.0, "freeze", "undone")], {}),
    ("freezes_end_in_time", [BEGUN, (20.0, "p", "killed", {}), row(250.0, "freeze", "undone")], {}),
    ("freezes_end_in_time", [BEGUN, row(105.0, "freeze", "undone")], {"skew": 4.0}),
    ("one_freeze_a_try", [BEGUN, RESUMED, row(60.0, "freeze", "intended", since=40.0)], {}),
    ("denied_is_denied", [FENCE, append(20.0, 2)], {}),
    ("denied_is_denied", [FENCE, BACK_BEGUN, append(20.0, 2)], {}),
    ("denied_is_denied", [FENCE, BACK_BEGUN, append(20.0, 2), acls(21.0, "delete", "a")], {}),
    (
        "denied_is_denied",
        [FENCE, row(12.0, "freeze", "undoing", migration="m2"), acls(13.0, "delete", "a"), append(20.0, 2)],
        {},
    ),
    ("paused_is_flushed", [PAUSED, sent(5.5)], {}),
    ("paused_is_flushed", [picture(1.0, "new"), taken(4.0), PAUSED, sent(5.5)], {}),
    ("paused_is_flushed", [picture(1.0, "old", 90.0), PAUSED, taken(5.2), picture(5.4, "new"), sent(5.5)], {}),
    ("points_count_in_time", [picture(5.0, "old", 60.0), picture(61.0, "new", 60.0)], {}),
    ("released_have_read", [left(1, released=True)], {}),
    ("begins_as_shown", [GO_PLAN, BEGUN], GO),
    ("begins_as_shown", [GO_PLAN, go(said="no"), BEGUN], GO),
    ("begins_as_shown", [GO_PLAN, go(plan_hash="H2"), BEGUN], GO),
    ("begins_as_shown", [GO_PLAN, go(freeze_budget_s=30.0), BEGUN], GO),
    ("begins_as_shown", [GO_PLAN, go(until=1.0), BEGUN], GO),
    ("begins_as_shown", [GO_PLAN, go(), BEGUN, RESUMED, row(60.0, "freeze", "intended")], GO),
    ("begins_as_shown", [GO_PLAN, go(), BEGUN, call(13.0, method="create_acls", denies=["User:x"])], GO),
    ("begins_in_its_window", [*PREPARED, BEGUN], {"windows": [(60.0, 100.0)]}),
    ("missed_windows_leave_nothing", [state(1.0, "open"), row(5.0, "arm"), WAITS], MISSED),
    ("missed_windows_leave_nothing", [state(1.0, "open"), row(5.0, "lengthen_retention"), WAITS], MISSED),
    ("missed_windows_leave_nothing", [state(1.0, "open"), row(5.0, "arm"), WAITS, fault(150.0)], MISSED),
    ("missed_windows_leave_nothing", [state(1.0, "open"), row(5.0, "arm"), WAITS, hand(150.0, "run_paused")], MISSED),
    ("nothing_open_at_the_fence", [transaction(20.0, "open"), FENCED], {}),
    ("deleted_when_done_and_due", [FENCED, SCREAM, call(140.0, **GONE)], RETIRE),
    ("deleted_when_done_and_due", [*DONE, SCREAM, call(140.0, **GONE)], RETIRE | {"retire_after_s": 150.0}),
    ("deleted_when_done_and_due", [FENCED, *DONE, SCREAM, call(140.0, **GONE | {"topic_id": "B"})], RETIRE),
    ("deleted_as_approved", [*DONE, SCREAM, call(140.0, **GONE)], RETIRE | {"required": ["retire.approve"]}),
    ("screamed_before", [*DONE, call(140.0, **GONE)], RETIRE),
    ("screamed_before", [*DONE, SCREAM, call(110.0, **GONE)], RETIRE),
    ("nobody_used_it", [*DONE, SCREAM, hand(110.0, "reader_returns"), call(140.0, **GONE)], RETIRE),
    ("nobody_used_it", [FENCED, *DONE, SCREAM, append(110.0, 3), call(140.0, **GONE)], RETIRE),
    (
        "denied_is_denied",
        [FENCE, hand(15.0, "deny_removed", "outsider"), acls(16.0, "create", "a"), append(20.0, 2)],
        {},
    ),
    ("denied_is_denied", [hand(5.0, "source_remade", "outsider"), FENCE, append(20.0, 2)], {}),
    ("nobody_used_it", [FENCED, *DONE, append(70.0, 3), SCREAM, FAULT, call(140.0, **GONE)], RETIRE),
    ("cancelled_is_cancelled", [*DONE, SCREAM, call(140.0, "topic_retirement/1.let_in_again.1", **GONE)], RETIRE),
]
"""A rule, what breaks it, and what the world is then."""


@pytest.mark.parametrize(("rule", "lines", "start"), PLANTED)
def test_a_planted_violation_is_caught(rule: str, lines: list[Line], start: dict[str, Any]) -> None:
    assert rule in judge(*lines, **start)


CLOSED = {"state": "failed", "why": "it does not go on", "closed": True}


def test_a_switched_freeze_whose_resume_is_called_off_begins_no_new_time() -> None:
    called_off = [row(20.0, "freeze", "undoing"), row(21.0, "freeze", "intended")]
    lines = [*PREPARED, BEGUN, row(15.0, *SWITCH), *called_off]
    assert "freezes_end_in_time" not in judge(*lines)
    assert "freezes_end_in_time" in judge(*lines[:-1], row(20.5, "switch_producers", "undone"), lines[-1])


def test_a_migration_that_has_to_be_closed_though_nothing_else_went_wrong_is_caught() -> None:
    asked, gone = hand(10.0, "rollback_asked"), hand(9.0, "commits_expired", "outsider")
    pointed, back = row(11.0, "switch_producers", "intended"), row(12.0, "rollback")
    lines = [asked, pointed, back]
    assert judge(*lines, end=CLOSED) == judge(gone, *lines, end=CLOSED) == {"ends_by_itself"}
    assert judge(*lines) == set(), "it came to its end"
    assert judge(*lines, end=CLOSED | {"state": "rolled_back"}) == set(), "only its run was ended"
    assert judge(pointed, back, end=CLOSED) == set(), "nobody asked to go back"
    assert judge(hand(9.0, "deny_removed", "outsider"), *lines, end=CLOSED) == set()
    assert judge((9.0, "p", "killed", {}), *lines, end=CLOSED) == set()
    proven, lost = row(8.0, "order_proof"), hand(9.0, "route_gone", "outsider")
    assert "ends_by_itself" in judge(proven, lost, hand(9.5, "producer_crash", "outsider"), *lines, end=CLOSED)
    assert judge(lost, *lines, end=CLOSED) == set(), "where producers are was still to be told"


def test_a_second_answer_to_a_question_that_was_asked_once_counts_for_nothing() -> None:
    gone, needed = call(140.0, **GONE), RETIRE | {"required": ["retire.approve"]}
    no, asked = (95.0, *YES[1:3], YES[3] | {"said": "no"}), (94.0, "person", "asked", {**YES[3]})
    late = (95.0, "person", "too_late", {**YES[3]})
    lines = [FENCED, *DONE, YES, no, SCREAM, gone]
    anew = [FENCED, *DONE, YES, asked, no, SCREAM, gone]
    assert judge(*lines, end=RETIRED, **needed) == set()
    assert judge(*anew, end=RETIRED, **needed) == {"deleted_as_approved"}
    assert judge(FENCED, *DONE, late, SCREAM, gone, end=RETIRED, **needed) == {"deleted_as_approved"}


def test_a_source_made_again_just_before_its_deletion_is_not_deleted_by_its_name() -> None:
    made, seen = hand(139.5, "source_remade", "outsider"), (139.0, "p", "looked", {"method": "topic", "began": 139.0})
    lines = [FENCED, *DONE, YES, SCREAM, seen, made, call(140.0, **GONE | {"topic_id": "B"})]
    found = judge(*lines, end=RETIRED, **RETIRE | {"required": ["retire.approve"]})
    assert found == {"deleted_when_done_and_due", "deleted_as_approved"}


def test_readers_that_are_not_let_in_again_are_caught() -> None:
    ended = RETIRED | {"denied": ["WRITE"]}
    assert "let_in_again" in judge(*DONE, SCREAM, end=ended)
    assert "let_in_again" in judge(*DONE, SCREAM, end=END | {"denied": ["READ"]})
    assert "let_in_again" in judge(*DONE, hand(99.0, "source_remade"), SCREAM, end=END | {"denied": ["READ"]})
    assert judge(*DONE, SCREAM, end=END | {"denied": ["WRITE"]}) == set()


def test_a_source_that_is_due_and_approved_may_go() -> None:
    gone = call(140.0, **GONE)
    lines = [
        FENCED,
        *DONE,
        YES,
        SCREAM,
        append(20.0, 1),
        hand(105.0, "reader_returns"),
        (120.0, "x", "reader_left", {}),
    ]
    assert judge(*lines, gone, end=RETIRED, **RETIRE | {"required": ["retire.approve"]}) == set()


def test_every_rule_has_a_planted_violation() -> None:
    planted = {rule for rule, *_ in PLANTED}
    planted |= {"calm_is_done", "calm_moves_everybody", "let_in_again", "ends_by_itself"}
    on_stories = {
        *(
            "order_of_keys",
            "nothing_lost",
            "own_duplicates",
            "nobody_is_rewound",
            "nothing_unread_at_release",
            "stops_after_a_write",
        ),
        *("never_left_stopped", "admits_by_the_route", "late_points_are_void", "denied_for_long", "goes_on_unarmed"),
        *("one_run_at_a_time", "approved_as_shown", "done_is_proven", "hands_are_named", "comes_to_an_end"),
        "producers_write",
    }
    assert {rule.__name__ for rule in checker.RULES} == planted | on_stories


def test_a_calm_day_that_is_not_done_is_caught() -> None:
    assert judge(calm=True) == set()
    assert judge(end=OPEN) == set()
    assert judge(end=OPEN, calm=True) == {"calm_is_done"}
    assert judge(sent(5.0), calm=True) == {"calm_moves_everybody"}


def test_a_freeze_that_begins_on_its_own_go_is_not_blamed() -> None:
    denied = call(13.0, method="create_acls", denies=["User:batch"])
    shown = [GO_PLAN, go(deny=["User:batch", "User:nightly"]), BEGUN, denied]
    again = [RESUMED, go(attempt=2), row(60.0, "freeze", "intended")]
    late = (11.5, *go(said="no", attempt=7)[1:])
    assert "begins_as_shown" not in judge(*shown, *again, **GO)
    assert "begins_as_shown" not in judge(GO_PLAN, go(), late, BEGUN, **GO), "a no to another question"
    assert "begins_as_shown" not in judge(BEGUN), "nobody has to be asked"


def test_a_freeze_in_its_window_and_a_missed_one_that_is_put_back_are_not_blamed() -> None:
    opened, armed, loose = state(1.0, "open"), row(5.0, "arm"), row(70.0, "arm", "undone")
    assert judge(*PREPARED, BEGUN, ENDED, windows=[(0.0, 20.0)]) == set()
    assert "begins_in_its_window" not in judge(*PREPARED, BEGUN), "there is no window"
    assert judge(opened, armed, WAITS, loose, **MISSED) == set()
    assert judge(opened, armed, WAITS, windows=[(0.0, 20.0), (60.0, 400.0)]) == set(), "the next one has opened"
    assert judge(opened, armed, **MISSED) == set(), "nobody was there to look"
    frozen, resumed = row(6.0, "freeze", "intended"), row(75.0, "freeze", "undone")
    assert "missed_windows_leave_nothing" not in judge(opened, armed, frozen, WAITS, resumed, **MISSED)
    assert judge(opened, armed, WAITS, hand(9.0, "run_paused"), **MISSED) == set(), "somebody took the run away"


@pytest.mark.parametrize(
    "lines",
    [
        [hand(10.0, "rollback_asked"), row(11.0, "rollback")],
        [hand(10.0, "rollback_asked"), row(11.0, "switch_producers", "intended")],
        [hand(10.0, "rollback_asked"), hand(11.0, "cleared")],
        [(5.0, "journal", "epoch", {"migration": "m", "epoch": 1}), row(6.0, "arm")],
        [seat(10.0, "p", 40.0), call(41.0), call(50.0, "watch")],
        [seat(10.0, "p", 40.0), LATE, acls(61.0, "delete", "a")],
        [seat(10.0, "p", 40.0), acls(12.0, "create", "a"), acls(90.0, "delete", "a")],
        [seat(10.0, "p", 40.0), fault(11.0, "clock_step", -25.0), call(60.0)],
        [seat(10.0, "p", 40.0), (15.0, "p", "seat_left", {"migration": "m"}), seat(20.0, "q", 50.0)],
        [seat(10.0, "p", 40.0), seat(40.0, "q", 70.0)],
        [row(5.0, "arm"), row(9.0, "arm", "undone"), row(9.0, "create_target"), state(20.0, "done")],
        [row(9.0, "fence", "undone"), (40.0, "p0-1", "says", {"status": "running"}), row(50.0, "freeze", "undone")],
        [row(20.0, "freeze", "undoing"), row(25.0, "freeze", "undone")],
        [hand(10.0, "retention_put_back"), row(20.0, *SWITCH)],
        [LONGER, hand(10.0, "retention_put_back"), call(11.0, method="alter_topic_configs"), row(20.0, *SWITCH)],
        [LONGER, row(6.0, "lengthen_retention", "undone"), hand(10.0, "retention_put_back"), row(20.0, *SWITCH)],
        [DENY, hand(10.0, "deny_removed"), call(11.0, method="create_acls"), row(20.0, *SWITCH)],
        [*PREPARED, hand(7.0, "transaction_hangs"), call(8.0, method="abort_transaction"), BEGUN, ENDED],
        [hand(10.0, "partition_added_source"), (11.0, "journal", "plan", {}), call(20.0, **MAKE)],
        [PLAN, *PREPARED, BEGUN, hand(BEGUN[0] + 0.5, "partition_added_source"), ENDED],
        [state(20.0, "rolled_back"), state(21.0, "open"), row(22.0, "create_target", "intended")],
        [
            row(21.0, "arm", "intended"),
            *PREPARED,
            row(22.0, "freeze", "intended", by="command.resume.1"),
            row(23.0, "freeze"),
        ],
        [*PREPARED, BEGUN, row(75.0, "freeze", "undoing"), row(76.0, "freeze", "undone")],
        [*PREPARED, BEGUN, row(30.0, "switch_producers", "intended"), row(200.0, "freeze")],
        [*PREPARED, BEGUN, (20.0, "p", "killed", {}), row(200.0, "freeze", "undone")],
        [*PREPARED, BEGUN, hand(15.0, "run_deleted"), row(30.0, "freeze", "undone")],
        [*PREPARED, BEGUN, RESUMED, row(60.0, "freeze", "intended", since=55.0), row(80.0, "freeze", "undone")],
        [FENCE, BACK_BEGUN, acls(13.0, "delete", "a"), append(20.0, 2)],
        [DENY, removed(10.0, "ab"), acls(11.0, "create", "b"), acls(12.0, "create", "a"), row(20.0, *SWITCH)],
        [LONGER, PUT_BACK, fault(11.0), row(40.0, *SWITCH)],
        [FENCE, append(9.0, 1), hand(15.0, "deny_removed", "outsider"), append(20.0, 2)],
        [sent(4.0), PAUSED],
        [picture(1.0, "new", 90.0), PAUSED, picture(5.2, "old"), taken(5.4), sent(5.5)],
        [picture(5.0, "old", 60.0), picture(50.0, "new", 60.0), picture(70.0, "new", 60.0)],
        [left(0, released=True)],
        [left(3, released=False)],
    ],
)
def test_what_is_right_is_not_blamed(lines: list[Line]) -> None:
    assert judge(*lines) == set()
