"""The judge: a clean history is clean, and each rule catches a violation that is planted for it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import judge as rules
from tests.chaos.__main__ import next_part, parts_of, plan_of
from tests.chaos.draw import MOMENTS, Planned, draw
from tests.chaos.history import Event, Writer, read
from tests.chaos.judge import judge
from tests.chaos.looks import whole_files
from tests.chaos.part import Part
from tests.chaos.report import write_report
from tests.chaos.worlds import ALL_CLASSES, ORDERS, WORLDS, order_of, weighed, world_of

from topicshift.core.engine.words import Row

S, T = "orders", "orders-v2"
ALLOW = {"name": S, "principal": "User:ledger", "operation": "READ", "permission": "ALLOW"}
DENY = {"name": S, "principal": "User:legacy", "operation": "WRITE", "permission": "DENY"}
CONFIGS = {"retention.ms": "1000"}
ROWS = ("create_target", "freeze", "fence", "switch_producers", "switch_consumer:ledger", "order_proof")

Events = list[Event]


def history() -> Events:
    """A migration without a flaw: three records of one key in the source, three in the target."""
    begin = {"source": S, "target": T, "groups": ["ledger"], "producers": ["checkout-0"], "budget_s": 60.0}
    out = [Event(0.0, "world", "begin", {**begin, "owner": "chaos/1", "acls": [ALLOW], "configs": CONFIGS})]
    for n in range(6):
        topic, offset = (S, n) if n < 3 else (T, n - 3)
        t, place = (1.0 + n if n < 3 else 10.0 + n), {"topic": topic, "partition": 0, "offset": offset}
        record = {"key": "k", "seq": n, **place}
        out += [
            Event(t, "checkout-0", "try", {"key": "k", "seq": n}),
            Event(t + 0.1, "checkout-0", "ack", record),
            Event(t + 0.2, "ledger-0", "got", {"group": "ledger", **record}),
            Event(90.0, "world", "record", record),
        ]
    for n, step in enumerate(ROWS):
        offsets = {"offsets": {"0": 3}} if step == "fence" else {}
        out.append(Event(5.0 + n, "journal", "row", {"step": step, "state": "intended"}))
        out.append(Event(5.5 + n, "journal", "row", {"step": step, "state": "done", **offsets}))
    out.append(Event(6.0, "checkout-0", "says", {"status": "paused"}))
    out.append(Event(8.0, "checkout-0", "says", {"status": "running"}))
    out.append(Event(12.0, "world", "healed", {}))
    out.append(Event(19.0, "advance-0", "ended", {"code": -9, "said": ""}))
    out.append(Event(19.1, "advance-2", "ended", {"code": 143, "said": "stopped by SIGTERM", "asked": True}))
    end = {"state": "done", "active": False, "why": "", "left": [], "audit": 0, "named": []}
    end["evidence"] = [*rules.EVIDENCE, "drain_certificate-ledger.json"]
    wide = {**DENY, "principal": "User:*"}
    out.append(Event(91.0, "world", "end", {**end, "acls": [ALLOW, wide], "configs": CONFIGS}))
    return sorted(out, key=lambda e: e.t)


def test_a_clean_history_is_clean() -> None:
    assert judge(history()) == []


def changed(events: Events, what: str, which: Callable[[Event], bool] = lambda _: True, **data: Any) -> Events:
    """Those of a kind with other particulars."""
    return [replace(e, data={**e.data, **data}) if e.what == what and which(e) else e for e in events]


def without(events: Events, what: str, which: Callable[[Event], bool] = lambda _: True) -> Events:
    return [e for e in events if not (e.what == what and which(e))]


def more(events: Events, t: float, who: str, what: str, **data: Any) -> Events:
    return sorted([*events, Event(t, who, what, data)], key=lambda e: e.t)


def at(n: int) -> Callable[[Event], bool]:
    return lambda e: e.data.get("seq") == n


def fault(events: Events, t: float, name: str, *hurts: str) -> Events:
    return more(events, t, "world", "fault", name=name, hurts=list(hurts), said="", until=t + 1)


FIRST = {"topic": S, "partition": 0, "offset": 0, "key": "k", "seq": 0, "group": "ledger"}


def strayed(events: Events) -> Events:
    """Somebody writes to the source past the fence."""
    record = {**FIRST, "offset": 3, "key": "s"}
    out = more(more(events, 9.0, "stray", "try", key="s", seq=0), 9.1, "stray", "ack", **record)
    return more(out, 90.0, "world", "record", **record)


PLANTED: dict[str, tuple[Callable[[Events], Events], Callable[..., Any]]] = {
    "a record that was acknowledged is gone": (
        lambda e: without(e, "record", at(1)),
        rules.acknowledged_is_there,
    ),
    "another record lies there": (lambda e: changed(e, "record", at(1), seq=0), rules.acknowledged_is_there),
    "a record was never delivered": (lambda e: without(e, "got", at(4)), rules.nothing_lost),
    "a stray past the fence was not named": (strayed, rules.nothing_lost),
    "two records came in the wrong order": (
        lambda e: [replace(x, t={1: 4.9, 2: 3.5}.get(x.data.get("seq", -1), x.t)) if x.what == "got" else x for x in e],
        rules.order_of_keys,
    ),
    "a record came twice": (lambda e: more(e, 4.0, "ledger-0", "got", **FIRST), rules.repeats_have_a_reason),
    "a record is nobody's": (
        lambda e: without(e, "try", at(5)),
        rules.nobody_writes_what_it_did_not_try,
    ),
    "a record lies in both topics": (
        lambda e: more(e, 90.0, "world", "record", **{**FIRST, "topic": T, "offset": 3}),
        rules.one_append_a_record,
    ),
    "a group was early": (
        lambda e: without(e, "row", lambda x: x["step"] == "switch_consumer:ledger" and x["state"] == "intended"),
        rules.released_first,
    ),
    "a group read the target before the source": (
        lambda e: [replace(x, t=14.0) if x.what == "got" and x["seq"] == 2 else x for x in e],
        rules.source_is_read_first,
    ),
    "a record lies past the fence": (
        lambda e: changed(e, "row", lambda x: x["step"] == "fence" and x["state"] == "done", offsets={"0": 2}),
        rules.fence_holds,
    ),
    "nothing was proven": (
        lambda e: without(e, "row", lambda x: x["step"] == "order_proof"),
        rules.done_is_proven,
    ),
    "a file of the evidence was torn": (
        lambda e: changed(e, "end", evidence=["plan.json", "drain_certificate.json"]),
        rules.evidence_is_whole,
    ),
    "there is no drain certificate": (
        lambda e: changed(e, "end", evidence=list(rules.EVIDENCE)),
        rules.evidence_is_whole,
    ),
    "the source was made again": (
        lambda e: fault(more(e, 20.0, "journal", "state", state="done", active=False), 8.0, "source_made_again"),
        rules.made_again_is_not_done,
    ),
    "a second run was let in": (
        lambda e: more(e, 9.0, "world", "claimed_again", refused=False, said=""),
        rules.one_owner,
    ),
    "a second run was refused without a name": (
        lambda e: more(e, 9.0, "world", "claimed_again", refused=True, said="no"),
        rules.one_owner,
    ),
    "a producer was left stopped": (
        lambda e: [replace(x, t=200.0) if x.what == "says" and x["status"] == "running" else x for x in e],
        rules.producers_are_not_left_stopped,
    ),
    "a producer never went on": (
        lambda e: [*without(e, "says", lambda x: x["status"] == "running"), Event(300.0, "world", "over", {})],
        rules.producers_are_not_left_stopped,
    ),
    "a producer writes no more": (
        lambda e: without(e, "ack", lambda x: x.t > 12.0),
        rules.producers_write,
    ),
    "nothing was healed": (lambda e: without(e, "healed"), rules.producers_write),
    "a group reads no more": (lambda e: without(e, "got", lambda x: x.t > 12.0), rules.groups_read),
    "the migration is open still": (
        lambda e: changed(e, "end", state="open", active=True),
        rules.comes_to_an_end,
    ),
    "nobody says why it failed": (lambda e: changed(e, "end", state="failed"), rules.comes_to_an_end),
    "nothing went on": (
        lambda e: more(e, 9.0, "world", "stuck", seconds=90.0, before="x", missing="ledger-0"),
        rules.progress_was_made,
    ),
    "a DENY is left on the target": (
        lambda e: changed(e, "end", acls=[ALLOW, {**DENY, "name": T}]),
        rules.leaves_it_tidy,
    ),
    "a DENY is left after a way back": (
        lambda e: changed(e, "end", acls=[ALLOW, DENY], state="rolled_back"),
        rules.leaves_it_tidy,
    ),
    "a right is gone": (lambda e: changed(e, "end", acls=[]), rules.leaves_it_tidy),
    "a retention is left longer": (
        lambda e: changed(e, "end", configs={"retention.ms": "-1"}),
        rules.leaves_it_tidy,
    ),
    "the trail was changed": (lambda e: changed(e, "end", audit=3), rules.the_trail_is_whole),
    "an advancer was shut out by another one of the same owner": (
        lambda e: more(e, 9.0, "advance-1", "ended", code=3, said="by now, and this task began under epoch 1"),
        rules.nobody_is_shut_out,
    ),
    "a command crashed": (
        lambda e: more(e, 9.0, "advance-1", "ended", code=1, said="Traceback"),
        rules.nothing_crashes,
    ),
    "a command was ended by nobody knows whom": (
        lambda e: more(e, 9.0, "advance-1", "ended", code=143, said="stopped by SIGTERM", asked=False),
        rules.nothing_crashes,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_caught(name: str) -> None:
    plant, rule = PLANTED[name]
    events = sorted(plant(history()), key=lambda e: e.t)
    facts = rules.gather(events)
    assert list(rule(facts)), f"{rule.__name__} does not see it"


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for _, rule in PLANTED.values()} == set(rules.RULES)


EXCUSED: dict[str, Callable[[Events], Events]] = {
    "a repeat after a member was killed": lambda e: fault(
        more(e, 4.0, "ledger-0", "got", **FIRST), 3.9, "consumer_killed", "ledger-0", "ledger"
    ),
    "a pause while the broker was down": lambda e: [
        replace(x, t=200.0) if x.what == "says" and x["status"] == "running" else x
        for x in more(e, 10.0, "world", "fault", name="broker_killed", hurts=["broker"], said="", until=190.0)
    ],
    "a stray that was named": lambda e: changed(
        changed(strayed(e), "end", named=[[0, 3]]),
        "row",
        lambda x: x["step"] == "fence" and x["state"] == "done",
        offsets={"0": 4},
    ),
    "what is left, and named": lambda e: changed(e, "end", acls=[DENY], left=["DENY bindings"]),
}


@pytest.mark.parametrize("name", EXCUSED)
def test_what_has_a_reason_is_no_violation(name: str) -> None:
    assert judge(EXCUSED[name](history())) == []


def test_a_torn_last_line_is_left_out_and_any_other_is_an_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.jsonl", "a")
    writer.add("ready")
    writer.close()
    whole = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "a.jsonl").write_text(whole + whole[:20])
    assert [e.what for e in read([tmp_path / "a.jsonl"])] == ["ready"]
    (tmp_path / "a.jsonl").write_text(whole[:20] + "\n" + whole)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        read([tmp_path / "a.jsonl"])


def test_one_seed_draws_one_plan_and_spoils_at_most_at_its_end() -> None:
    plans = [draw(random.Random(n), 7, ALL_CLASSES) for n in range(200)]
    assert plans[5] == draw(random.Random(5), 7, ALL_CLASSES)
    for plan in plans:
        assert all(not ALL_CLASSES[p.name].last for p in plan[:-1])
        assert [MOMENTS.index(p.moment) for p in plan] == sorted(MOMENTS.index(p.moment) for p in plan)
    assert {p.name for plan in plans for p in plan} == set(ALL_CLASSES)


def test_what_has_struck_least_comes_first() -> None:
    counts: Counter[str] = Counter()
    for number in range(30):
        world = world_of(number)
        counts.update(p.name for p in draw(random.Random(number), 10, world.classes(), weighed(counts)))
    assert min(counts[name] for name in ALL_CLASSES) >= 5, counts


def test_every_world_has_both_orders_and_a_class_only_where_it_can_strike() -> None:
    assert {(world_of(n).name, order_of(n)) for n in range(10)} == {(w, o) for w in WORLDS for o in ORDERS}
    for name, one in ALL_CLASSES.items():
        assert set(one.worlds) <= set(WORLDS), name
        assert set(one.moments) <= set(MOMENTS), name
    assert {row.partition(":")[0] for row in MOMENTS if row} <= {str(row) for row in Row}


@pytest.mark.parametrize(("name", "hits"), [("producer_killed", True), ("deny_removed", False)])
def test_a_fault_whose_moment_does_not_come_strikes_where_it_can(
    name: str, hits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, hit = object.__new__(Part), list[str]()
    part.state, part.begun = "", {"check", "switch_consumer:ledger"}
    monkeypatch.setattr(part, "_demand_progress", lambda _: None, raising=False)
    monkeypatch.setattr(part, "_wait", lambda _: None, raising=False)
    monkeypatch.setattr(part, "_until", lambda ready, _seconds, _what: ready(), raising=False)
    monkeypatch.setattr(part, "_hit", lambda one, _: hit.append(one.name), raising=False)
    assert part._strike(Planned(name, "fence", 0.0, 0.0)) is True, "the next one may strike"
    assert hit == ([name] if hits else [])
    assert part._strike(Planned(name, "switch_consumer", 0.0, 0.0)) is True
    assert hit[-1:] == [name]


def test_a_torn_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "fence.json").write_text('{"a": 1}')
    (tmp_path / "plan.json").write_text('{"a": ')
    assert whole_files(tmp_path) == ["fence.json"]


def test_a_run_goes_on_with_parts_that_have_no_result(tmp_path: Path) -> None:
    assert next_part(tmp_path, 1) == 0
    lines = [json.dumps({"seed": seed, "part": n, "struck": {}}) for seed, n in ((1, 0), (1, 2), (2, 1))]
    (tmp_path / "parts.jsonl").write_text("\n".join(lines) + "\n")
    assert (next_part(tmp_path, 1), next_part(tmp_path, 2)) == (1, 0)


def test_a_part_that_is_repeated_has_the_same_faults_and_counts_once(tmp_path: Path) -> None:
    first = plan_of(tmp_path, 1, 3, (), 7)
    told = {"seed": 1, "part": 3, "world": "airflow", "cutover": "producers_first", "commit": "c", "state": "done"}
    told |= {"planned": [[p.name, p.moment, p.wait_s, p.lasts_s] for p in first], "why": "", "seconds": 1}
    results = [
        {**told, "struck": {first[0].name: 1}, "after_switch": 1, "violations": ["lost: group ledger never got k#1"]},
        {**told, "struck": {first[0].name: 2}, "after_switch": 2, "violations": []},
    ]
    (tmp_path / "parts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results))
    assert plan_of(tmp_path, 1, 3, (), 7) == first
    assert f"| `{first[0].name}` | 2 |" in write_report(parts_of(tmp_path), tmp_path / "report.md")
    text = write_report(results[:1], tmp_path / "report.md")
    assert "no full run yet**: 1 of 200 faults, 1 of 30 migrations, 1 of 20 faults after the switch, 0 of" in text
    assert "1 lost, 0 out of order, 0 producers left stopped beyond the budget" in text
