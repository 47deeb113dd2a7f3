"""A migration from its plan to its end: killed at any call, stalled, run twice, resumed: the outcome is the same."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.world import SOURCE, TARGET, Killed, World, at_call

from topicshift.acts.advance import Done
from topicshift.acts.close import close
from topicshift.acts.jobs import order_proof_job
from topicshift.core.engine.view import StepState
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import (
    AmbiguousState,
    DrainTimedOut,
    FenceBroken,
    GuardViolated,
    OwnershipLost,
    Refused,
    Transient,
    Unreadable,
)
from topicshift.core.kafka.cluster import Acl

BUDGET_S = 120
ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
kills = st.lists(st.integers(0, 260), min_size=1, max_size=3)
"""Each costs the 31 s of its seat: a freeze of 120 s has room for three."""
few = settings(max_examples=12, deadline=None)


def is_done(w: World) -> None:
    row = w.journal.current(w.claim.migration_id)
    assert (row.state, row.active) == ("done", False)
    assert w.where() == {(TARGET, True)}
    assert w.denied() == {"User:*", "User:batch"}
    open_ = {name: s.state for name, s in w.record().steps.items() if s.state is not StepState.DONE}
    open_.pop("target_deny", None)  # of a rollback that went before
    assert open_ == dict.fromkeys(("arm", "lengthen_retention"), StepState.UNDONE)
    assert not any(w.apps.armed.values())
    for group in ("ledger-g", "fraud-g"):
        assert set(w.cluster.commits([group], TARGET, range(6))[group].offsets.values()) == {0}


def frozen(**changes: Any) -> World:
    """Fenced, and no producer pointed anywhere yet; one group has not drained the source."""
    w = World(**changes)
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    assert isinstance(w.advance(until=Step.STOP_PRODUCERS), Done)
    assert w.where() == {(SOURCE, False)}
    return w


def is_back(w: World) -> None:
    """Everything is as before the freeze."""
    assert w.where() == {(SOURCE, True)}
    assert w.acls() == w.before
    assert w.state(Row.FREEZE) == "undone"
    assert w.state(Row.FENCE) in (None, "undone")
    assert w.state(Row.SWITCH_PRODUCERS) in (None, "undone")


# ---------------------------------------------------------------------------------------------------- all of it


@ORDERS
def test_a_migration_goes_from_its_plan_to_its_end(cutover: str) -> None:
    w = World(cutover=cutover)
    w.advanced()
    is_done(w)
    freeze = w.data(Row.FREEZE)
    assert (freeze["how"], freeze["attempt"]) == ("switched", 1)
    assert 0 < w.data(Row.SWITCH_PRODUCERS)["freeze_seconds"] < 5
    suffixes = [""] if cutover == "drain_first" else ["-fraud", "-ledger"]
    names = {f"drain_{kind}{s}.json" for kind in ("certificate", "verification") for s in suffixes}
    names |= {"plan.json", "impact.json", "before.json", "fence.json", "order_proof.json", "health.json"}
    assert names == set(w.evidence.names(w.claim.migration_id))
    kinds = [
        k for k in w.kinds() if k not in ("act", "step_intended", "step_finished", "approved", "asked", "evidence")
    ]
    groups = {
        "drain_first": ["drained", "verified", "producers_switched"],
        "producers_first": ["producers_switched", "drained", "verified", "drained", "verified"],
    }[cutover]
    assert kinds[:5] == ["claimed", "planned", "plan", "freeze_begun", "fenced"]
    assert [k for k in kinds[5:] if k != "group_switched"] == [*groups, "renewed", "proof", "state"]
    assert kinds.count("group_switched") == 2


@ORDERS
@few
@given(kills)
def test_killed_anywhere_it_ends_the_same(cutover: str, at: list[int]) -> None:
    w = World(cutover=cutover)
    w.until_done(at)
    is_done(w)


def test_what_has_ended_acts_no_more() -> None:
    w = World()
    w.advanced()
    calls, events = len(w.cluster.calls), len(w.kinds())
    for wanted in ("forward", "resume"):
        assert "done" in w.advanced(wanted=wanted).why
    assert w.advanced(until=Step.STOP_PRODUCERS)
    assert not [c for c in w.cluster.calls[calls:] if c.startswith(("create", "delete", "alter"))]
    assert len(w.kinds()) == events


def test_a_step_that_is_cleared_after_the_switch_stops_and_asks_nobody() -> None:
    w = World(approvals={"plan": "auto", "freeze": "auto", "certificate": "required", "retire": "auto"})
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.apps.acts.clear()
    for step in (Step.STOP_PRODUCERS, Step.DRAIN, Step.VERIFY_DRAIN, Step.SWITCH_PRODUCERS):
        assert isinstance(w.advance(until=step), Done)
    assert w.apps.acts == []


# ----------------------------------------------------------------------------------------- two and a stalled one


def test_a_second_advancer_waits_while_another_acts_and_takes_over_when_its_time_is_over() -> None:
    w = World()
    w.journal.take_seat(w.claim, "create_target", "", "elsewhere", lasts_s=30)
    assert w.waits(patience_s=5) == "elsewhere is at create_target"
    w.clock.advance(30)
    w.advanced()
    is_done(w)
    assert w.events("seat_taken_over")[0]["from_holder"] == "elsewhere"


def test_an_advancer_looks_again_where_a_dead_ones_seat_was_taken_over_during_its_look() -> None:
    w = World()
    w.journal.take_seat(w.claim, "create_target", "", "dead", lasts_s=30)

    take_seat = w.journal.take_seat

    def after_another(claim: Any, *words: Any, **named: Any) -> Any:
        w.journal.take_seat = take_seat
        w.clock.advance(31)
        assert take_seat(claim, "create_target", "", "elsewhere", lasts_s=30) is not None
        return take_seat(claim, *words, **named)

    w.journal.take_seat = after_another
    assert w.waits(patience_s=5) == "check_plan is decided on anew: somebody has gone on since the last look"
    assert w.waits(patience_s=5) == "elsewhere is at create_target"
    w.clock.advance(30)
    w.advanced()
    is_done(w)


def test_an_advancer_that_was_stalled_for_too_long_sends_nothing() -> None:
    w = World()
    fencing = lambda: w.state(Row.STOP_PRODUCERS) == "done"  # noqa: E731
    at_call(w, "acls", lambda: w.clock.advance(31), when=fencing)
    assert "held up for longer" in w.waits(patience_s=1)
    assert w.denied() == set()
    w.advanced()
    is_done(w)


def test_nobody_is_pointed_to_the_target_on_a_look_that_took_too_long() -> None:
    """What it saw first is old when it ends: records may have come to the source since."""
    w = World()
    at_call(w, "acls", lambda: w.clock.advance(31), when=lambda: w.state(Row.SWITCH_PRODUCERS) == "intended")
    assert "the look that this act rests on began 30 s ago" in w.waits(patience_s=1)
    assert w.where() == {(SOURCE, False)}
    w.advanced()
    is_done(w)


def test_one_that_wakes_up_after_another_has_gone_on_writes_nothing_and_looks_again() -> None:
    w = World()

    def meanwhile() -> None:
        w.clock.advance(31)
        w.advanced()

    at_call(w, "create_acls", meanwhile, when=lambda: w.state(Row.FENCE) == "intended")
    outcome = w.advance()
    assert isinstance(outcome, Done) and "done" in outcome.why
    is_done(w)
    assert w.kinds().count("producers_switched") == 1


# -------------------------------------------------------------------------------------------------- the freeze


def test_a_producer_that_does_not_stop_is_named_and_the_freeze_ends_at_its_budget() -> None:
    w = World()
    w.apps.deaf = {"billing"}
    with pytest.raises(DrainTimedOut, match="producers are back on the source: the freeze budget is used up"):
        w.advanced()
    is_back(w)
    assert any("billing is running on the source" in line for line in w.said)
    assert w.state(Row.FENCE) is None, "nobody is denied before everybody says stopped"
    w.apps.deaf.clear()
    w.advanced()
    is_done(w)
    assert w.data(Row.FREEZE)["attempt"] == 2


def test_nobody_is_pointed_to_the_target_after_the_budget() -> None:
    w = frozen()
    w.drain("fraud-g")
    w.clock.advance(BUDGET_S - 6)
    with pytest.raises(DrainTimedOut, match="budget"):
        w.advance()
    is_back(w)
    assert not [a for a in w.apps.acts if "point payments-v2" in a]


def test_a_write_after_the_fence_ends_the_freeze_and_names_the_partition() -> None:
    w = frozen()
    w.drain("fraud-g")
    w.write(partition=2, records=4)
    with pytest.raises(FenceBroken, match=r"payments\[2\] grew by 4"):
        w.advance()
    is_back(w)
    assert w.state(Row.CERTIFICATE) in (None, "undone")


def test_a_source_that_is_another_one_after_the_switch_stops_the_run_where_it_is() -> None:
    w = World(cutover="producers_first")
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.cluster.add_partitions(SOURCE, 4)
    named = r"4 partitions now.*still on payments: ledger-g, fraud-g.*topicshift close"
    with pytest.raises(FenceBroken, match=named):
        w.advance()
    assert w.where() == {(TARGET, True)}
    assert w.state(Row.SWITCH_GROUP, "fraud-g") is None
    left = close(w.context(), "somebody changed the source")["left"]
    assert (
        "DENY bindings: WRITE on payments for" in left[0] and "the route points applications to payments-v2" in left[1]
    )
    row = w.journal.current(w.claim.migration_id)
    assert (row.state, row.active, w.where()) == ("failed", False, {(TARGET, True)})
    with pytest.raises(Refused, match=r"closed it at .*: somebody changed the source.*Trigger a new run"):
        w.open()
    assert w.open("topic_migration/another").epoch == 1, "both topics are free"


def test_a_producer_that_runs_again_before_the_switch_ends_the_freeze() -> None:
    w = frozen()
    w.apps.running["billing"] = True
    with pytest.raises(FenceBroken, match="runs again before the switch: billing"):
        w.advance()
    is_back(w)


def spoil_target(w: World, how: str) -> None:
    if how in ("deleted", "made again"):
        w.cluster.delete_topic(TARGET)
    if how == "made again":
        w.cluster.create_topic(TARGET, 6, 1, {})
    if how == "partitions":
        w.cluster.add_partitions(TARGET, 8)
    if how == "configs":
        w.cluster.alter_topic_configs(TARGET, set_={"retention.ms": "1000"})
    if how == "denied":
        w.cluster.create_acls([Acl("TOPIC", TARGET, "LITERAL", "User:billing", "*", "WRITE", "DENY")])


@pytest.mark.parametrize("how", ["deleted", "made again", "partitions", "configs", "denied"])
def test_a_target_that_is_not_the_one_that_was_made_gets_no_producer(how: str) -> None:
    w = frozen()
    spoil_target(w, how)
    with pytest.raises(Refused, match="is not what was planned"):
        w.advance()
    is_back(w)


def test_a_right_to_write_to_the_target_that_is_not_ours_and_is_taken_away_stops_the_switch() -> None:
    """One ALLOW for all topics of this prefix, which was there before the target: nobody can put it back for them."""
    w = World()
    w.cluster.delete_acls(w.before)
    allow = {p: Acl("TOPIC", SOURCE, "PREFIXED", p, "*", "WRITE", "ALLOW") for p in ("User:checkout", "User:billing")}
    w.cluster.create_acls(allow.values())
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advanced(until=Step.CREATE_TARGET)
    assert w.data(Row.CREATE_TARGET)["acls_added"] == []
    w.advance(until=Step.STOP_PRODUCERS)
    w.cluster.delete_acls([allow["User:billing"]])
    with pytest.raises(Refused, match="User:billing may not write to it any more"):
        w.advance()
    assert w.where() == {(SOURCE, True)}


@pytest.mark.parametrize("how", ["deleted", "made again", "partitions", "denied"])
def test_a_target_that_is_another_by_now_gets_no_group(how: str) -> None:
    w = World(cutover="producers_first")
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advanced(until=Step.SWITCH_PRODUCERS)
    spoil_target(w, how)
    w.drain("fraud-g")
    with pytest.raises(Refused, match="is not what was planned"):
        w.advance()
    assert w.state(Row.SWITCH_GROUP, "fraud-g") is None


# -------------------------------------------------------------------------------------------- resume on source


@few
@given(kills)
def test_killed_anywhere_producers_resume_on_the_source(at: list[int]) -> None:
    w = frozen()
    w.until_done(at, wanted="resume")
    is_back(w)
    assert w.verifier.state()[0] == "absent", "the verifier is called off"
    w.drain("fraud-g")
    w.advanced()
    is_done(w)


@few
@given(st.integers(0, 40))
def test_a_switch_that_died_half_way_is_never_undone_blindly(kill: int) -> None:
    w = frozen()
    w.drain("fraud-g")
    w.advanced(until=Step.VERIFY_DRAIN)
    w.fuse.left = kill
    try:
        w.advanced(until=Step.SWITCH_PRODUCERS)
    except Killed:
        pass
    w.fuse.left = None
    w.clock.advance(31)
    before = w.where()
    try:
        w.advanced(wanted="resume")
    except AmbiguousState:
        assert w.where() == before, "nothing is changed where it cannot be told"
    else:
        assert w.where() in (before, {(SOURCE, True)})
        assert w.where() == before or TARGET not in {topic for topic, _ in before}


def test_a_broker_that_is_late_with_the_deny_keeps_no_producer_waiting() -> None:
    w = frozen()
    w.cluster.fail("delete_acls", Transient("broker 2 still shows the DENY"))
    w.waits(wanted="resume", patience_s=1)
    assert w.where() == {(SOURCE, True)}
    assert (w.state(Row.FREEZE), w.state(Row.FENCE)) == ("undoing", "done"), "it has not ended: it is tried again"
    w.cluster.fail("delete_acls", None)
    assert w.advanced(wanted="resume").why == "producers are back on the source"
    is_back(w)


def test_what_began_before_a_resume_cannot_write_any_more() -> None:
    w = frozen()
    late = w.context()
    late.refresh()
    w.cluster.fail("delete_acls", Transient("late"))
    w.waits(wanted="resume", patience_s=1)
    with pytest.raises(OwnershipLost, match="somebody else has gone on"):
        w.journal.intend(late.claim, Row.SWITCH_PRODUCERS, {})
    with pytest.raises(Refused, match="being taken back"):
        w.journal.intend(w.context().claim, Row.FREEZE, {})


def test_a_freeze_of_which_it_cannot_be_told_who_is_on_the_target_runs_on() -> None:
    w = frozen()
    w.journal.intend(w.context().claim, Row.SWITCH_PRODUCERS, {"target": TARGET, "at": w.clock.now().isoformat()})
    w.cluster.unreadable(TARGET, 1, "no leader")
    with pytest.raises(AmbiguousState, match="not certain that nobody is on payments-v2"):
        w.advance(wanted="resume")
    assert w.state(Row.FREEZE) == "intended"
    assert w.where() == {(SOURCE, False)}


def test_producers_do_not_resume_behind_a_group_that_has_left_the_source() -> None:
    w = frozen()
    claim = w.context().claim
    w.journal.intend(claim, Row.SWITCH_PRODUCERS, {"target": TARGET, "at": w.clock.now().isoformat()})
    w.journal.intend(claim, f"{Row.SWITCH_GROUP}:ledger-g", {})
    with pytest.raises(AmbiguousState):
        w.advance(wanted="resume")
    assert w.where() == {(SOURCE, False)}
    w.journal.finish(claim, f"{Row.SWITCH_GROUP}:ledger-g", {}, state="undone")
    w.advanced(wanted="resume")
    is_back(w)


def test_without_a_freeze_there_is_nothing_to_resume() -> None:
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    assert w.advanced(wanted="resume").why == "no freeze is running"
    assert w.journal.current(w.claim.migration_id).epoch == 1


# -------------------------------------------------------------------------------------- certified and verified


def test_a_verifier_that_finds_records_left_ends_the_freeze() -> None:
    w = World()
    w.verifier.verdict = lambda _: "not_drained"
    with pytest.raises(GuardViolated, match="reading found records left"):
        w.advanced()
    is_back(w)


def test_where_the_verifier_has_died_this_process_reads_what_is_left() -> None:
    w = World()
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.verifier.deaf = True
    w.advanced(until=Step.STOP_PRODUCERS)
    w.drain("fraud-g")
    w.verifier.dies()
    w.advanced()
    is_done(w)
    (verified,) = w.events("verified")
    assert (verified["verdict"], verified["reader"], verified["consumer"]) == ("verified", "task", "all")
    ctx, name = w.context(), "drain_verification.json"
    assert "tails.json" not in order_proof_job(ctx, ctx.refresh()).given, "nothing was in doubt"
    found = json.loads(ctx.read(name))
    for group, start in zip(found["groups"], (8, 7), strict=True):
        group["partitions"][1] |= {"from": start, "to": 10}
    ctx.write(name, json.dumps(found))
    with pytest.raises(Unreadable, match="not in the evidence store as the task wrote it"):
        order_proof_job(ctx, ctx.refresh())
    ctx.finish(Row.VERIFICATION, {"sha256": hashlib.sha256(ctx.read(name)).hexdigest()})
    job = order_proof_job(ctx, ctx.refresh())
    assert job.given["tails.json"] == {1: 7} and "--tails" in job.arguments, "Spark reads the same once more"
    w.evidence.files.clear()
    with pytest.raises(Unreadable, match=r"drain_verification\.json is not in the evidence store"):
        order_proof_job(ctx, ctx.refresh())


def test_a_certificate_whose_file_somebody_changed_is_void() -> None:
    w = World()
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.verifier.deaf = True
    w.advanced(until=Step.STOP_PRODUCERS)
    w.drain("fraud-g")
    w.waits(until=Step.VERIFY_DRAIN, patience_s=1)
    w.evidence.write(w.claim.migration_id, "drain_certificate.json", "{}")
    w.verifier.dies()
    w.advanced()
    is_done(w)
    assert w.kinds().count("drained") == 2


def test_with_producers_first_each_group_needs_a_certificate_of_its_own() -> None:
    w = World(cutover="producers_first")
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    assert "fraud-g" in w.waits(patience_s=2)
    assert w.state(Row.SWITCH_GROUP, "ledger-g") == "done"
    assert w.state(Row.SWITCH_GROUP, "fraud-g") is None
    assert isinstance(w.advance(focus="ledger-g", until=Step.SWITCH_CONSUMERS), Done)
    w.drain("fraud-g")
    w.advanced()
    is_done(w)


# ------------------------------------------------------------------------------------------------------- groups


AFTER = [{"name": "ledger", "group": "ledger-g", "after": ["fraud"]}, {"name": "fraud", "group": "fraud-g"}]


@ORDERS
def test_groups_are_switched_in_the_order_that_the_spec_states(cutover: str) -> None:
    w = World(cutover=cutover, consumers=AFTER)
    w.advanced()
    is_done(w)
    assert [e["group"] for e in w.events("group_switched")] == ["fraud-g", "ledger-g"]


def test_a_way_back_has_no_order() -> None:
    """A group that is in trouble on the target keeps no other from going back."""
    w = World(cutover="producers_first", consumers=AFTER)
    w.advanced()
    w.write(TARGET, 1, 4)
    w.drain("ledger-g", TARGET)
    w.answer(w.advance(wanted="rollback"))
    assert "fraud-g has not drained" in w.waits(wanted="rollback", patience_s=2)
    assert [e["group"] for e in w.events("group_switched") if e.get("way")] == ["ledger-g"]


def test_a_group_that_cannot_be_switched_holds_up_those_that_come_after_it_by_name() -> None:
    w = World(consumers=AFTER)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET, records=5)
    w.cluster.commit("fraud-g", TARGET, {**dict.fromkeys(range(6), 0), 0: 3})
    with pytest.raises(Refused, match="fraud-g has commits on the target"):
        w.advance()
    assert w.state(Row.SWITCH_GROUP, "ledger-g") is None
    assert "ledger-g is switched after fraud-g" in w.waits(focus="ledger-g", patience_s=1)
    w.cluster.commit("fraud-g", TARGET, {0: 0})
    w.advanced()
    is_done(w)


def test_a_group_that_would_skip_records_of_the_target_stays_on_the_source() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET, records=5)
    w.cluster.commit("ledger-g", TARGET, {**dict.fromkeys(range(6), 0), 0: 3})
    with pytest.raises(Refused, match=r"ledger-g has commits on the target .* partition 0 at 3, where the log starts"):
        w.advance()
    assert w.state(Row.SWITCH_GROUP, "ledger-g") is None
    assert w.state(Row.SWITCH_GROUP, "fraud-g") == "done", "it holds up no other"
    w.cluster.commit("ledger-g", TARGET, {0: 0})
    w.advanced()
    is_done(w)


def test_a_group_is_switched_only_once_it_has_an_offset_on_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    monkeypatch.setattr(w, "seed", lambda group: w.cluster.commit(group, TARGET, dict.fromkeys(range(5), 0)))
    assert "ledger-g" in w.waits(patience_s=2)
    assert w.state(Row.SWITCH_GROUP, "ledger-g") == "intended"
    monkeypatch.undo()
    w.seed("ledger-g")
    w.seed("fraud-g")
    w.advanced()
    is_done(w)


# ----------------------------------------------------------------------------------------------------- rollback


@few
@given(kills)
def test_killed_anywhere_a_free_rollback_puts_everything_back(at: list[int]) -> None:
    w = World()
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advance(until=Step.STOP_PRODUCERS)
    w.drain("fraud-g")
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.until_done([n % 90 for n in at], wanted="rollback")
    is_back(w)
    assert w.cluster.topic(TARGET) is None
    row = w.journal.current(w.claim.migration_id)
    assert (row.state, row.active) == ("rolled_back", False)
    assert "rolled_back" in w.kinds() and not any(w.apps.armed.values())


def test_a_rollback_returns_the_groups_that_were_released() -> None:
    w = World()
    w.apps.deaf.add("fraud")
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advance(patience_s=1)
    assert w.state(Row.SWITCH_GROUP, "ledger-g") == "done"
    w.apps.deaf.clear()
    w.advanced(wanted="rollback")
    assert w.apps.topic["ledger"] == SOURCE
    assert w.state(Row.SWITCH_GROUP, "ledger-g") == "undone"


def test_a_rollback_stops_producers_for_the_freeze_budget_at_most_and_is_called_off_then() -> None:
    w = World(freeze_budget="20s")
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.apps.deaf, leases, stop = {"billing"}, set(), w.apps.stop

    def leased(ctx: Any, participants: Any) -> None:
        leases.add(ctx.lease_until)
        stop(ctx, participants)

    w.apps.stop, began = leased, w.clock.now()  # type: ignore[method-assign]
    with pytest.raises(DrainTimedOut, match="called off: not stopped within the freeze budget: billing is running"):
        w.advanced(wanted="rollback")
    (until,) = leases
    assert timedelta(seconds=20) <= until - began < timedelta(seconds=21)
    assert until <= w.clock.now() < until + timedelta(seconds=2), "they stood still no longer than a freeze may last"
    assert w.where() == {(TARGET, True)} and w.state(Row.ROLLBACK) == "undone"
    w.apps.deaf.clear()
    w.advanced(wanted="rollback")
    is_back(w)


def test_records_in_the_target_are_never_left_behind() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET)
    with pytest.raises(Refused, match="no way back"):
        w.advance(wanted="rollback")
    w.cluster.unreadable(TARGET, 1, "no leader")
    assert "could not be read" in w.waits(wanted="rollback", patience_s=1)
    assert w.where() == {(TARGET, True)}
    assert w.state(Row.ROLLBACK) is None


@pytest.mark.parametrize("again", [False, True])
def test_a_target_that_went_with_its_records_is_no_reason_to_go_back_in_silence(again: bool) -> None:
    """Nobody can tell what was in it: that is not the same as nothing."""
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET)
    w.cluster.delete_topic(TARGET)
    if again:
        w.cluster.create_topic(TARGET, 6, 1, {})
    with pytest.raises(Refused, match=r"no way back \(forward_only\): .*what they wrote there is lost"):
        w.advance(wanted="rollback")
    assert w.where() == {(TARGET, True)} and w.state(Row.ROLLBACK) is None


def test_records_that_come_while_producers_are_stopped_call_the_rollback_off() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    stop = w.apps.stop

    def last_words(ctx: Any, participants: Any) -> None:
        w.write(TARGET)
        stop(ctx, participants)

    w.apps.stop = last_words  # type: ignore[method-assign]
    with pytest.raises(Refused, match="no way back"):
        w.advanced(wanted="rollback")
    assert w.where() == {(TARGET, True)}
    assert w.kinds().count("rollback_called_off") == 1
    w.apps.stop = stop  # type: ignore[method-assign]
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def test_a_run_that_was_rolled_back_may_be_opened_again() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advanced(wanted="rollback")
    w.open()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advanced(wanted="rollback")
    is_back(w)
    w.open()
    w.advanced()
    is_done(w)


def test_a_verifier_that_dies_before_the_freeze_is_started_anew() -> None:
    """Nobody is stopped for a verifier that is not there; the migration goes on with another one."""
    w = World()
    w.advanced(until=Step.STOP_PRODUCERS, leave=frozenset({"freeze_begun"}))
    w.verifier.dies()
    task = w.context(spark=False)
    assert "the armed drain verifier is gone, so another one is started" in w.waits(ctx=task, patience_s=1)
    assert w.where() == {(SOURCE, True)} and w.state(Row.FREEZE) is None
    task.begin_by = w.clock.now()
    with pytest.raises(DrainTimedOut, match="the armed drain verifier is gone"):
        w.advance(task)
    w.advanced()
    is_done(w)
