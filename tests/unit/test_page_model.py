"""What the pages show is what the journal says: the list, one migration, its steps, its way back, its trail."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markupsafe import escape
from rich.console import Console
from sqlalchemy import event as sql_event
from tests.unit.page_world import REQUIRED, drain_progress, keep, publish, renamed
from tests.unit.test_acts_drain_back import moved as written
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts.finish import fail_unbegun
from topicshift.acts.orders import pause
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.journal.snapshots import Snapshots
from topicshift.commands.status import _understood
from topicshift.commands.status_view import page as status_page
from topicshift.core.drain.gate import Gate
from topicshift.core.engine.left import left_by_hand
from topicshift.core.engine.need import COUNTED, need
from topicshift.core.engine.snapshot import record_to_show
from topicshift.core.engine.words import Step
from topicshift.core.page import lag
from topicshift.core.page.chain import AGAIN_S, Chain, read_on
from topicshift.core.page.listing import Shown, Wanted, listed, shown
from topicshift.core.page.one import PEOPLE, Sources, one
from topicshift.core.page.timeline import spans, usual
from topicshift.core.proof import audit
from topicshift.core.proof.audit import ChainHead
from topicshift.core.rows import EventRow
from topicshift.reporting.run_trail import event_shown
from topicshift.reporting.run_view import build
from topicshift_airflow.page.view import rendered

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def moved() -> World:
    """A migration that is done, with two answers of a person."""
    world = World(approvals=REQUIRED)
    world.answer(world.asks())
    world.answer(world.asks())
    world.advanced()
    return world


def found(world: World) -> Shown:
    name = world.claim.migration_id
    trail = world.journal.events(name)
    return shown(world.journal.current(name), world.journal.steps(name), trail, [trail[0].actor])


def page(world: World, **more: Any) -> dict[str, Any]:
    trail = list(reversed(world.journal.events(world.claim.migration_id)))
    name = world.claim.migration_id
    data = {n: world.evidence.read(name, n) or b"" for n in world.evidence.names(name)}
    acts, people = [e for e in trail if e.kind == "act"], [e for e in trail if e.kind in PEOPLE]
    sources = Sources(found(world), acts, people, list(data), data | more.pop("data", {}), **more)
    return one(sources, world.clock.now())


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    opened = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")
    yield opened
    opened.close()


# ------------------------------------------------------------------------------------------------------ the list


def test_a_list_needs_the_last_event_of_each_kind_alone(moved: World) -> None:
    """Whatever the trail has been up to any row: the last of each kind tells the same as all of it."""
    name = moved.claim.migration_id
    row, steps, trail = moved.journal.current(name), moved.journal.steps(name), moved.journal.events(name)
    for state in ("open", row.state):
        record = record_to_show(replace(row, state=state, active=state == "open"), steps)
        for end in range(1, len(trail) + 1):
            last = {e.kind: e for e in trail[:end] if e.kind in COUNTED}
            few = sorted(last.values(), key=lambda e: e.seq)
            assert need(record, row.owner, few, NOW) == need(record, row.owner, trail[:end], NOW)


@given(kinds=st.lists(st.sampled_from([*sorted(COUNTED), "act", "paused"]), max_size=12))
def test_whatever_the_order_of_events_the_last_of_each_kind_counts(kinds: list[str]) -> None:
    world = WAITING
    row = world.journal.current(world.claim.migration_id)
    record = record_to_show(row, world.journal.steps(row.migration_id))
    at, data = NOW.isoformat(), {"state": "failed", "error": "Transient", "task": "t", "reason": "r"}
    trail = [EventRow(n, row.migration_id, 1, at, "a", kind, data, "", "") for n, kind in enumerate(kinds, 1)]
    last = sorted({e.kind: e for e in trail if e.kind in COUNTED}.values(), key=lambda e: e.seq)
    assert need(record, row.owner, last, NOW) == need(record, row.owner, trail, NOW)


WAITING = World()
WAITING.advanced(until=Step.CREATE_TARGET)


def test_what_stands_still_and_who_is_asked_come_first() -> None:
    frozen, asking, going = World(), World(approvals=REQUIRED), World()
    frozen.advanced(until=Step.STOP_PRODUCERS)
    asking.show(asking.asks())
    going.advanced(until=Step.CREATE_TARGET)
    rows = listed([found(w) for w in (going, asking, frozen)], Wanted(), going.clock.now())
    assert [r["waits_on"] for r in rows] == ["itself", "person", "itself"]
    assert rows[0]["freeze"]["running"] and rows[1]["waits_for"].startswith("a person to answer: ")
    assert (rows[2]["step"], rows[2]["steps_done"], rows[2]["window"]) == ("stop_producers", 3, None)


def test_the_list_is_narrowed_by_what_a_person_looks_for(moved: World) -> None:
    window = {"cron": "0 2 * * SUN", "timezone": "Europe/Berlin", "duration": "2h"}
    scheduled = World(window=window)
    scheduled.advanced(until=Step.CREATE_TARGET)
    rows = [found(moved), found(scheduled)]
    done, waits = (r.row.migration_id for r in rows)

    def asked(**wanted: str) -> set[str]:
        return {e["migration"] for e in listed(rows, Wanted(**wanted), scheduled.clock.now())}

    assert asked() == {waits}, "what is over and waits for nobody is not asked for"
    assert asked(state="all") == asked(state="all", text="PAYMENTS") == {done, waits}
    assert asked(state="done") == asked(state="all", window="without") == {done}
    assert asked(state="all", window="with") == {waits}
    assert asked(text="orders") == asked(cluster="elsewhere") == asked(owner="topic_retirement") == set()
    assert asked(owner="topic_migration") == {waits}
    (entry,) = listed(rows, Wanted(), scheduled.clock.now())
    assert entry["window"]["text"] == "0 2 * * SUN, Europe/Berlin, for 2h"
    opens = datetime.fromisoformat(entry["window"]["opens"])
    assert opens > scheduled.clock.now() - timedelta(hours=2) and opens.weekday() == 6


def test_a_window_of_another_version_is_shown_in_its_own_words(moved: World) -> None:
    name = moved.claim.migration_id
    row = replace(moved.journal.current(name), state="open", spec={"window": {"cron": "every night"}, "producers": 3})
    (entry,) = listed([shown(row, [], [], ["topic_migration/1"])], Wanted(), NOW)
    assert (entry["window"]["text"], entry["window"]["opens"]) == ("every night, UTC, for ", None)


def test_each_row_of_the_trail_is_one_line_that_a_person_reads(moved: World) -> None:
    """What an act was decided on is in ``audit.jsonl``; the line says why it was done."""
    told = [event_shown(e) for e in moved.journal.events(moved.claim.migration_id)]
    acts = [e["what"] for e in told if e["kind"] == "act"]
    assert "check plan: topics, groups and rights are looked at first" in acts
    assert len(acts) > 5 and all(re.fullmatch(r"[a-z ]+( of [\w-]+)?: .{10,}", what) for what in acts), acts
    (claimed,) = (e["what"] for e in told if e["kind"] == "claimed")
    assert claimed == "cluster_id: fake-cluster, source: payments, target: payments-v2"
    kept = [e["what"] for e in told if e["kind"] == "evidence"]
    assert kept and all(re.fullmatch(r"(\S+ \(SHA-256 [0-9a-f]{12}\)(, )?)+", what) for what in kept)
    assert not any("{" in e["what"] for e in told if e["kind"] in ("act", "claimed", "evidence"))


# ------------------------------------------------------------------------------------------------- one migration


def test_a_freeze_shows_its_clock_its_budget_and_who_is_waited_for() -> None:
    world = World(approvals=REQUIRED)
    world.answer(world.asks())
    world.answer(world.asks())
    world.advanced(until=Step.STOP_PRODUCERS)
    world.clock.advance(7)
    seen = page(world, data={"drain_progress.json": drain_progress(world.clock.now().timestamp())})
    assert seen["freeze"]["running"] and 7 <= seen["freeze"]["seconds"] < 20
    assert seen["freeze"]["budget_s"] == 120 and seen["freeze"]["at_most_s"]
    assert {p["name"]: p["status"] for p in seen["participants"]}["checkout"] == "stopped"
    assert seen["rollback"]["kind"] == "free" and "no producer was sent" in seen["rollback"]["why"]
    lags = [s for s in seen["signals"] if s["signal"].startswith("lag of")]
    assert [(s["observed"].split()[0], s["wanted"], s["good"]) for s in lags] == [
        ("400", "0", False),
        ("900", "0", False),
    ]
    assert "has not come nearer" in lags[1]["observed"]
    assert [bool(g["chart"]["forecast"]) for g in seen["lag"]] == [True, False], "no forecast for one that stands still"


def test_a_question_says_what_is_asked_and_until_when() -> None:
    world = World(approvals=REQUIRED)
    world.show(world.asks())
    seen = page(world)
    assert [q["ask"] for q in seen["questions"]] == ["approve.plan"] and seen["questions"][0]["until"]
    assert seen["signals"][0]["observed"] == "nobody has answered" and "UTC" in seen["signals"][0]["wanted"]
    assert seen["partitions"] == {"before": 3, "after": 6}
    assert seen["findings"] and {"code", "level", "do"} <= set(seen["findings"][0])


def test_what_is_done_shows_where_everybody_is_and_the_way_back(moved: World) -> None:
    seen = page(moved)
    assert (seen["state"], seen["waits_on"], seen["freeze"]["running"]) == ("done", "itself", False)
    on = {p["name"]: p["topic"] for p in seen["participants"]}
    assert {on["checkout"], on["billing"], on["ledger-g"], on["fraud-g"]} == {TARGET}
    assert [a["said"] for a in seen["answers"]].count("yes") == 2 + 1, "two of a person, one of the spec"
    states = {s["step"]: s["state"] for s in seen["timeline"]}
    assert states.pop("retire") == "waiting" and set(states.values()) == {"done"}
    assert all(s["took_s"] is not None for s in seen["timeline"] if s["step"] != "retire")
    # As the engine saw it last: nothing was written to the target in this world, and whatever is said has its time.
    assert seen["rollback"]["kind"] in ("free", "drain_back") and seen["rollback"]["at"]


def test_a_way_back_shows_the_topics_by_their_names() -> None:
    world = World()
    world.advanced(until=Step.SWITCH_CONSUMERS)
    world.write(TARGET)
    for group in ("ledger-g", "fraud-g"):
        world.drain(group, TARGET)
    world.answer(world.asks(wanted="rollback"))
    world.advance(wanted="rollback")
    seen = page(world)
    if seen["going_back"]:
        assert f"Producers go back to {SOURCE}" in seen["rollback"]["does"] or SOURCE in seen["rollback"]["does"]
        assert {p["topic"] for p in seen["participants"]} <= {SOURCE, TARGET, None}
    assert (seen["source"], seen["target"]) == (SOURCE, TARGET)


def test_a_pause_is_all_that_is_waited_for() -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    pause(world.context(), "lunch")
    seen = page(world, data={"gate_progress.json": b'{"at": 1, "waits": ["x"]}'})
    assert seen["signals"] == [] and "lunch" in seen["waits_for"] and seen["waits_on"] == "person"


def test_before_the_freeze_the_gate_says_what_keeps_it_shut() -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    gate = {
        "at": world.clock.now().timestamp(),
        "wanted_s": 30.0,
        "waits": ["group fraud-g: cannot be told (x)", "the armed drain verifier is starting"],
        "groups": [
            {"group": "ledger-g", "lag": 1200, "seconds_left": 12.0, "series": [[1.0, 2], [2.0, 1]]},
            {"group": "fraud-g", "lag": None, "seconds_left": None, "series": []},
        ],
    }
    seen = page(world, data={"gate_progress.json": json.dumps(gate).encode()})
    told = [(s["signal"], s["observed"], s["good"]) for s in seen["signals"]]
    assert told == [
        ("lag of ledger-g", "1,200 offsets behind, about 12 s to drain", True),
        ("lag of fraud-g", "unknown", False),
        ("gate", "the armed drain verifier is starting", False),
    ]
    assert seen["lag_of"] == "gate" and seen["lag"][1]["chart"] is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(text=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["at", "groups", "group", "series", "lag", "seconds_left", "waits", "findings", "source", "partitions", "code"]
    ), inner, max_size=4),
    max_leaves=12,
).map(lambda v: json.dumps(v).encode()))  # fmt: skip
def test_evidence_that_is_not_what_it_should_be_breaks_no_page(text: bytes) -> None:
    page(WAITING, data={"plan.json": text, "gate_progress.json": text, "drain_progress.json": text})


def test_the_gate_keeps_a_series_that_does_not_grow_for_ever() -> None:
    gate = Gate(120.0)
    for n in range(1000):
        gate._note("ledger", type("L", (), {"lag": n})(), float(n))
    (series,) = gate._series.values()
    assert len(series) <= 240 and series[0] == (0.0, 0) and series[-1] == (999.0, 999)
    assert gate.progress(1.0, ["x"]) == {"at": 1.0, "wanted_s": 30.0, "waits": ["x"], "groups": []}


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**9)), max_size=20), st.none() | st.floats(0, 1e9))
def test_a_chart_stays_inside_its_box(points: list[tuple[float, int]], left: float | None) -> None:
    file = {"at": 1.0, "groups": [{"group": "g", "series": points, "seconds_left": left}]}
    (group,) = lag.groups(lag.series_of(json.dumps(file).encode()))
    if group["chart"] is None:
        assert len({at for at, _ in points}) < 2, "one look alone draws no line"
        return
    for place in f"{group['chart']['area']} {group['chart']['forecast']}".split():
        x, y = map(float, place.split(","))
        assert -0.1 <= x <= lag.WIDTH + 0.1 and -0.1 <= y <= lag.HEIGHT + 0.1


# -------------------------------------------------------------------------------------------------------- steps


def test_steps_follow_each_other_and_earlier_migrations_say_how_long_they_take(moved: World) -> None:
    rows = moved.journal.steps(moved.claim.migration_id)
    times = spans(rows)
    order = [Step.PLAN, Step.APPROVE, Step.CREATE_TARGET, Step.STOP_PRODUCERS, Step.DRAIN, Step.SWITCH_PRODUCERS]
    for step, after in itertools.pairwise(order):
        began, ended = times[step]
        assert began is not None and ended is not None and began <= ended <= (times[after][1] or ended)
    took = usual([rows, rows])
    assert took[Step.STOP_PRODUCERS] == (times[Step.STOP_PRODUCERS][1] - times[Step.STOP_PRODUCERS][0]).total_seconds()  # type: ignore[operator]
    assert Step.RETIRE not in took


# -------------------------------------------------------------------------------------------------------- trail


def parts(trail: list[EventRow], cuts: list[int]) -> list[list[EventRow]]:
    ends = sorted({min(c, len(trail)) for c in cuts} | {len(trail)})
    return [trail[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=5), data=st.data())
def test_a_trail_in_parts_is_verified_as_a_whole_one_is(cuts: list[int], data: st.DataObject) -> None:
    name = DONE.claim.migration_id
    trail, steps = DONE.journal.events(name), DONE.journal.steps(name)
    head = ChainHead(count=len(trail), hash=trail[-1].hash)
    how = data.draw(st.sampled_from(["whole", "changed", "missing", "cut off", "swapped"]))
    at = data.draw(st.integers(0, len(trail) - 2))
    if how == "changed":
        trail[at] = replace(trail[at], actor="somebody else")
    elif how == "missing":
        del trail[at]
    elif how == "cut off":
        trail = trail[: at + 1]
    elif how == "swapped":
        trail[at], trail[at + 1] = trail[at + 1], trail[at]
    chain, all_ = Chain(name), parts(trail, cuts)
    for n, part in enumerate(all_):
        chain = read_on(chain, head, part, steps, whole=n == len(all_) - 1)
        if chain.problems:
            break
    assert bool(chain.problems) == bool(audit.verify(trail, head, migration_id=name)) == (how != "whole")


DONE = World()
DONE.advanced()


def test_only_new_rows_are_verified_and_all_of_them_again_after_a_while(journal: SqlJournal, tmp_path: Path) -> None:
    name = publish(DONE, journal, tmp_path / "evidence")
    snapshots, asked = Snapshots(journal.overview()), list[int]()
    real = snapshots.overview.events_after
    snapshots.overview.events_after = lambda i, seq, most: (asked.append(seq), real(i, seq, most))[1]  # type: ignore[method-assign]
    first = snapshots.chain(name, 1000.0)
    assert not first.problems and first.count == len(DONE.journal.events(name))
    assert snapshots.chain(name, 1001.0).count == first.count
    assert asked == [0, first.count]
    row, steps, trail = journal.current(name), journal.steps(name), journal.events(name)
    keep(journal, row, steps, [replace(trail[0], actor="x"), *trail[1:]], instead=True)
    assert not snapshots.chain(name, 1002.0).problems, "it was verified, and is kept"
    found_ = snapshots.chain(name, 1000.0 + AGAIN_S)
    assert found_.problems and "row 1: changed" in found_.problems[0]
    keep(journal, row, steps, trail, instead=True)
    assert not snapshots.chain(name, 1001.0 + AGAIN_S).problems, "what was wrong is looked at anew each time"
    keep(journal, row, [replace(steps[0], state="undone"), *steps[1:]], trail, instead=True)
    assert "the trail says" in snapshots.chain(name, 1002.0 + AGAIN_S).problems[0]


def test_migrations_that_nobody_wrote_to_are_not_read_again(journal: SqlJournal, tmp_path: Path) -> None:
    name = publish(DONE, journal, tmp_path / "evidence")
    row, steps, trail = journal.current(name), journal.steps(name), journal.events(name)
    for n in range(3):
        keep(journal, *_and(steps, *renamed(row, trail, f"other-{n}")))
    snapshots, statements = Snapshots(journal.overview()), list[str]()
    sql_event.listen(journal._db().engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    assert {s.row.migration_id for s in snapshots.all()} == {name, "other-0", "other-1", "other-2"}
    first = len([s for s in statements if s.startswith("SELECT")])
    statements.clear()
    again = snapshots.all()
    assert len([s for s in statements if s.startswith("SELECT")]) == 1 < first
    assert again[0].record is snapshots.all()[0].record
    assert {s.owners for s in again} == {(row.owner,)}
    made = journal.claim(
        cluster_id="c", source="a", target="b", owner="topic_migration/9", spec={}, owner_alive=lambda _: True
    )
    assert {s.row.source for s in snapshots.all()} == {SOURCE, "a"}
    shown_ = snapshots.one(made.migration_id)
    assert shown_ is not None and shown_.dags == {"topic_migration"}
    assert snapshots.one("none") is None and snapshots.overview.owned_by("topic_migration/9") == [made.migration_id]
    journal.take_over(made.migration_id, "topic_rollback/1")
    assert "topic_rollback/1" in {s.row.owner for s in snapshots.all()}, "what was written to is read again"
    assert snapshots.overview.owned_by("topic_migration/9") == [made.migration_id], "it has owned it once"
    again_ = snapshots.one(made.migration_id)
    assert again_ is not None and again_.dags == {"topic_migration", "topic_rollback"}


def _and(steps: Any, row: Any, trail: Any) -> tuple[Any, Any, Any]:
    return row, steps, trail


# ------------------------------------------------------------------------------------------------- after the end


def aborted(until: Step) -> World:
    """A migration that came so far and was rolled back a while later, with the way back as the spec accepts it."""
    world = World(approvals=REQUIRED)
    world.answer(world.asks())
    world.advance(until=until)
    world.clock.advance(500)
    world.answer(world.asks(wanted="rollback"))
    world.advanced(wanted="rollback")
    return world


def test_no_step_goes_on_after_the_end_and_an_undone_one_shows_how_long_it_was_in_effect() -> None:
    world = aborted(Step.CREATE_TARGET)
    before = page(world)["timeline"]
    world.clock.advance(3600)
    after = page(world)["timeline"]
    assert after == before
    made = next(s for s in after if s["step"] == "create_target")
    assert (made["state"], made["took_s"]) == ("undone", None) and 500 <= made["held_s"] < 600


def test_a_plan_that_failed_takes_no_longer_than_its_migration() -> None:
    world = World()
    world.clock.advance(4)
    fail_unbegun(world.context(), world.context().record())
    world.clock.advance(3600)
    seen = page(world)
    plan = seen["timeline"][0]
    assert (plan["step"], plan["state"], round(plan["took_s"])) == ("plan", "not_finished", 4)
    assert seen["step"] is None and not [s for s in seen["timeline"] if s["state"] == "running"]
    assert (seen["rollback"]["why"], seen["rollback"]["does"]) == (
        "it has ended before anything was changed, so there is nothing to take back",
        "",
    )


def test_nothing_is_drawn_of_later_than_the_end_and_nothing_is_forecast() -> None:
    world = aborted(Step.CREATE_TARGET)
    end = world.clock.now().timestamp()
    row = {"group": "ledger-g", "lag": 7, "rate": 50.0, "seconds_left": 0.15, "alarm": "stuck", "alarm_text": "x"}
    late = {"group": "fraud-g", "lag": 7, "series": [[end + 3, 7]]}
    gate = {"at": end + 900, "groups": [row | {"series": [[end - 9, 400], [end - 3, 20], [end + 900, 7]]}, late]}
    for name in ("gate_progress.json", "drain_progress.json"):
        (shown,) = page(world, data={name: json.dumps(gate).encode()})["lag"]
        assert (shown["lag"], shown["seconds_left"], shown["alarm"], shown["alarm_text"]) == (20, None, "", "")
        assert shown["chart"]["seconds"] == 6 and not shown["chart"]["forecast"]
        assert datetime.fromisoformat(shown["seen_at"]).timestamp() <= end + 1


def back_again() -> World:
    """Everybody went to the target, and back from it with its records read."""
    world = written(World())
    world.answer(world.asks(wanted="rollback"))
    world.advanced(wanted="rollback")
    return world


def test_what_is_left_to_do_by_hand_stands_on_the_page_and_in_the_report_with_both_freezes() -> None:
    world = back_again()
    seen = page(world)
    assert seen["left"][0].startswith(f"topic {TARGET} keeps 4 record(s)")
    assert "a DENY keeps" in seen["left"][1] and "left to do by hand: 2 things" in seen["waits_for"]
    assert [(f["back"], f["running"], f["seconds"] is not None) for f in seen["freezes"]] == [
        (False, False, True),
        (True, False, True),
    ]
    world.context().report()
    row, name = world.journal.current(world.claim.migration_id), world.claim.migration_id
    files = {
        "steps.json": json.dumps([asdict(s) for s in world.journal.steps(name)]).encode(),
        "audit.jsonl": "\n".join(json.dumps(asdict(e)) for e in world.journal.events(name)).encode(),
        "migration.json": json.dumps(asdict(row)).encode(),
    }
    assert build(files).left == seen["left"]
    html = rendered("one.html.j2", root="", airflow="", m=on_page(seen))
    assert "The freeze of the way back lasted" in html and html.count("lasted") == 2
    for text in seen["left"]:
        assert escape(text) in html


def test_the_status_of_one_migration_names_what_is_left_and_both_freezes() -> None:
    world = back_again()
    one = {**_understood(world.journal, found(world), None, None, NOW), "last_event": None, "unclear": None}  # type: ignore[arg-type]
    out = Console(width=400, record=True, file=StringIO())
    out.print(status_page(one))
    said = out.export_text()
    assert said.count("left to do by hand: ") == 3 and f"left to do by hand: topic {TARGET} keeps 4 record(s)" in said
    assert said.count(" s at most, ended: ") == 2 and "freeze back" in said


def on_page(seen: dict[str, Any]) -> dict[str, Any]:
    """With what the plugin adds."""
    chain = {"holds": True, "rows": 1, "ends_in": "0", "problems": [], "from_its_first_row_at": NOW.isoformat()}
    return {**seen, "job": None, "run_page": "", "answer_page": "", "orders": [], "chain": chain, "trail": []}


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([("closed", {"left": ["a"]})], ["a"]),
        ([("closed", {"left": ["a"]}), ("reopened", {})], []),
        ([("producers_resumed", {"start_by_hand": ["old"]})], ["start by hand on the source: old"]),
        ([("producers_resumed", {"start_by_hand": ["old"]}), ("went_on", {}), ("proof", {})], []),
        ([("rehearsal_over", {"left": ["shadow: delete by hand"]})], ["shadow: delete by hand"]),
        ([("rolled_back", {"start_by_hand": ["old"]})], ["the commit is lower", "start by hand on the source: old"]),
    ],
)
def test_every_ending_says_what_it_left(events: list[tuple[str, dict[str, Any]]], left: list[str]) -> None:
    assert left_by_hand(events, {"not_restored": ["the commit is lower"], "left": ["of an earlier way"]}) == left
    assert {kind for kind, _ in events} <= COUNTED, "the list reads these events"
