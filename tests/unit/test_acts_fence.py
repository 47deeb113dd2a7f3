"""The fence, the DENY and its repair: set, proven, widened, put back where somebody removed it, lifted exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from order_proof import load_fence
from topicshift.acts.advance import Done
from topicshift.core.engine.words import Act, Row, Step
from topicshift.core.errors import DrainTimedOut, FenceBroken, Refused, Transient
from topicshift.core.fence.decision import UNDER_DENY_S
from topicshift.core.fence.point import FencePoint
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl
from topicshift.core.plan.model import AclBinding, Plan

BATCH = Acl("TOPIC", SOURCE, "LITERAL", "User:batch", "*", "WRITE", "DENY")
EVERYBODY = Acl("TOPIC", SOURCE, "LITERAL", "User:*", "*", "WRITE", "DENY")


def fenced(w: World) -> FenceRecord:
    """Go as far as the fence; what one group has not read keeps the run there."""
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    assert isinstance(w.advance(until=Step.STOP_PRODUCERS), Done)
    return FenceRecord.model_validate(w.data(Row.FENCE)["record"])


def while_fencing(w: World, act: Callable[[float], None], asked: str = "transactions") -> None:
    """Do something as each look asks for ``asked``, once the DENY is set; it is told the seconds since then."""
    began: list[Any] = []

    def look(method: str) -> None:
        if method == asked and w.state(Row.FENCE) == "intended":
            began.append(w.clock.now())
            act((w.clock.now() - began[0]).total_seconds())

    w.cluster.on_call = look


def fails_with(w: World, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        w.advance(patience_s=200)
    assert w.where() == {(SOURCE, True)}
    assert w.acls() == w.before


def test_a_quiet_source_is_fenced_when_the_settle_time_is_over() -> None:
    w = World()
    record = fenced(w)
    assert record.fence_offsets == {0: 10, 1: 10, 2: 10}
    assert record.acls_added == [BATCH] and BATCH not in record.acls_before
    assert sorted(record.stopped) == ["billing", "checkout"]
    assert record.exempt_principals == ["User:billing", "User:checkout"]
    first, last = record.samples[0], record.samples[-1]
    assert len(record.samples) >= 2 and last.began_s - first.ended_s == pytest.approx(UNDER_DENY_S, abs=0.001)
    assert record.settings.settle_s == UNDER_DENY_S
    assert w.evidence.read(w.claim.migration_id, "fence.json") == record.model_dump_json(indent=2).encode()
    assert any("acks=0" in note and "error 31" in note for note in record.notes), "what a DENY does unseen is on record"
    assert any("acks=0" in line for line in w.said)
    assert not w.cluster.may("User:batch", "WRITE", SOURCE) and w.cluster.may("User:checkout", "WRITE", SOURCE)


def test_the_intent_is_written_before_the_first_deny_and_after_everybody_says_stopped() -> None:
    w = World()
    seen: list[Any] = []
    w.cluster.on_call = lambda method: (
        seen.append((w.state(Row.FENCE), w.state(Row.STOP_PRODUCERS), w.where()))
        if method == "create_acls" and w.state(Row.FREEZE)
        else None
    )
    fenced(w)
    assert seen == [("intended", "done", {(SOURCE, False)})]


def test_a_writer_that_goes_round_the_route_is_named_and_ends_the_freeze() -> None:
    w = World()
    rogue = w.cluster.new_producer_id()
    while_fencing(w, lambda _: w.cluster.produce(SOURCE, 2, 3, producer_id=rogue))
    fails_with(w, DrainTimedOut, "budget")
    assert any(f"{SOURCE}[2] grew by" in line and f"producer id {rogue}" in line for line in w.said)


def test_one_late_record_only_delays_the_fence() -> None:
    w = World()
    once = iter([True])
    while_fencing(w, lambda s: w.write(partition=1) if s > 0 and next(once, False) else None, "topic")
    assert fenced(w).fence_offsets == {0: 10, 1: 11, 2: 10}


def test_an_open_transaction_is_waited_for_and_its_marker_counts() -> None:
    w = World()
    held: list[Any] = []

    def transact(seconds: float) -> None:
        if not held:
            held.append(w.cluster.begin("tx-1"))
            held[0].produce(SOURCE, 0, 2)
        elif seconds > 0.3 and held[0].places:
            held[0].commit()

    while_fencing(w, transact)
    assert fenced(w).fence_offsets[0] == 10 + 2 + 1
    assert "abort_transaction" not in w.cluster.calls
    assert any("transactional id tx-1" in line for line in w.said)


@pytest.mark.parametrize("method", ["topic", "offsets", "producers", "transactions", "acls"])
def test_what_cannot_be_read_never_counts_as_fenced(method: str) -> None:
    w = World()
    while_fencing(w, lambda _: w.cluster.fail(method, Transient("no answer in 15 s")))
    w.waits(patience_s=5)
    assert w.state(Row.FENCE) == "intended"
    assert any("no answer in 15 s" in line for line in w.said)
    w.cluster.on_call = None
    w.cluster.fail(method, None)
    fenced(w)


def test_one_unreadable_partition_is_enough() -> None:
    w = World()
    while_fencing(w, lambda _: w.cluster.unreadable(SOURCE, 1, "leader election"))
    assert "partition 1: cannot be read: leader election" in w.waits(patience_s=1)


@pytest.mark.parametrize("how", ["made again", "partitions"])
def test_a_source_that_changes_under_the_fence_breaks_it(how: str) -> None:
    w = World()

    once = iter([True])

    def change(seconds: float) -> None:
        if seconds == 0 or not next(once, False):
            return
        if how == "partitions":
            w.cluster.add_partitions(SOURCE, 4)
        else:
            w.cluster.delete_topic(SOURCE)
            w.cluster.create_topic(SOURCE, 3, 1, {})

    while_fencing(w, change)
    fails_with(w, FenceBroken, "made again" if how == "made again" else "4 partitions now")


def change_source(w: World, how: str) -> None:
    if how in ("made again", "gone"):
        w.cluster.delete_topic(SOURCE)
    if how == "made again":
        w.cluster.create_topic(SOURCE, 3, 1, {})
    if how == "partitions":
        w.cluster.add_partitions(SOURCE, 4)
    if how == "configs":
        w.cluster.alter_topic_configs(SOURCE, set_={"max.message.bytes": "9000000"})
    if how == "throttled":
        w.cluster.alter_topic_configs(SOURCE, set_={"leader.replication.throttled.replicas": "0:1"})
    if how == "retention":
        w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "700000000"})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("made again", "was deleted and made again since the plan was made"),
        ("gone", "does not exist any more"),
        ("partitions", "has 4 partitions now, and had 3 when the plan was made"),
        ("configs", r"max.message.bytes 9000000 \(was not set\)"),
    ],
)
@pytest.mark.parametrize("when", [Step.CREATE_TARGET, Step.STOP_PRODUCERS])
def test_nobody_is_stopped_for_a_source_that_is_not_as_it_was_planned(how: str, said: str, when: Step) -> None:
    """Neither before the freeze, nor in the moment of the fence."""
    w = World()
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    if when is Step.CREATE_TARGET:
        w.advanced(until=when)
        change_source(w, how)
        with pytest.raises(Refused, match=said):
            w.advanced()
        assert w.state(Row.FREEZE) is None, "nobody was stopped"
        assert w.acls() == w.before
    else:
        w.advanced(until=when, leave=frozenset({Act.DENY.value}))
        change_source(w, how)
        fails_with(w, FenceBroken, said)


@pytest.mark.parametrize("how", ["throttled", "retention"])
def test_a_reassignment_and_a_longer_retention_disturb_nobody(how: str) -> None:
    """Tools that move replicas set throttles on a topic; the retention is looked after by rules of its own."""
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    change_source(w, how)
    if how == "throttled":
        w.cluster.alter_topic_configs(TARGET, set_={"follower.replication.throttled.replicas": "0:1"})
    fenced(w)
    w.drain("fraud-g")
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


@pytest.mark.parametrize("how", ["made again", "gone", "partitions", "truncated"])
def test_every_change_of_the_source_after_the_fence_is_seen(how: str) -> None:
    w = World()
    fenced(w)
    if how in ("made again", "gone"):
        w.cluster.delete_topic(SOURCE)
    if how == "made again":
        w.cluster.create_topic(SOURCE, 3, 1, {})
    if how == "partitions":
        w.cluster.add_partitions(SOURCE, 4)
    if how == "truncated":
        w.cluster.truncate(SOURCE, 0, 3)
    fails_with(w, FenceBroken, "is broken")


def test_another_process_goes_on_with_the_same_fence() -> None:
    w = World()
    first = fenced(w)
    w.clock.advance(10)
    assert fenced(w) == first
    w.drain("fraud-g")
    w.advanced()
    assert FenceRecord.model_validate(w.data(Row.FENCE)["record"]) == first


# ------------------------------------------------------------------------------------------- outsiders' hands


def test_a_deny_that_somebody_removed_is_put_back_and_said() -> None:
    w = World()
    fenced(w)
    w.cluster.delete_acls([BATCH])
    w.waits(patience_s=1)
    assert BATCH in w.acls()
    assert "User:batch" in str(w.events("deny_repaired"))


def test_the_wider_deny_is_put_back_before_a_group_is_released() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.cluster.delete_acls([EVERYBODY, BATCH])
    w.advanced()
    assert w.denied() == {"User:*", "User:batch"}
    assert w.kinds().index("deny_repaired") < w.kinds().index("group_switched")


def test_acls_of_the_target_that_somebody_removed_are_put_back_and_said() -> None:
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    before = w.acls(TARGET)
    w.cluster.delete_acls(before)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    assert w.acls(TARGET) == before
    assert len(w.events("target_acls_repaired")[0]["removed_by_somebody"]) == len(before)


def test_a_deny_that_a_late_request_sets_after_the_resume_is_lifted_with_the_next_fence() -> None:
    w = World()
    fenced(w)
    w.advanced(wanted="resume")
    w.cluster.create_acls([BATCH])
    w.clock.advance(1)
    record = fenced(w)
    assert record.acls_added == [BATCH] and any("late request" in note for note in record.notes)
    w.advanced(wanted="resume")
    assert w.acls() == w.before


def shut_late(w: World, row: str = Row.TARGET_DENY) -> Acl:
    """The target was shut in a way back and opened again, and a late request shuts it once more."""
    claim = w.context().claim
    shut = Acl("TOPIC", TARGET, "LITERAL", "User:*", "*", "WRITE", "DENY")
    w.journal.intend(claim, row, {"topic": TARGET, "acls_added": [asdict(shut)]})
    w.journal.finish(claim, row, {}, state="undone")
    w.cluster.create_acls([shut])
    return shut


@pytest.mark.parametrize("row", [Row.TARGET_DENY, "back1.fence", "back1.wide_deny"])
@pytest.mark.parametrize("until", [Step.CREATE_TARGET, Step.STOP_PRODUCERS, Step.SWITCH_PRODUCERS])
def test_a_deny_that_a_late_request_sets_on_the_target_is_lifted_and_said(until: Step, row: str) -> None:
    w = World()
    w.advanced(until=until)
    before, shut = w.acls(TARGET), shut_late(w, row)
    assert shut not in before
    w.advanced()
    assert w.acls(TARGET) == before
    assert [e["set_by_a_late_request"] for e in w.events("late_denies_lifted")] == [[str(shut)]]


def test_a_deny_of_somebody_else_on_the_target_is_left_alone_and_stops_the_run() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    theirs = Acl("TOPIC", TARGET, "LITERAL", "User:*", "*", "WRITE", "DENY")
    w.cluster.create_acls([theirs])
    with pytest.raises(Refused, match="may not write to it any more"):
        w.advance(patience_s=20)
    assert theirs in w.acls(TARGET)


def test_producers_that_write_to_the_target_get_its_acls_back_whatever_else_is_wrong_with_it() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    before = w.acls(TARGET)
    w.cluster.delete_acls(before)
    w.cluster.add_partitions(TARGET, 7)
    with pytest.raises(Refused, match="7 partitions"):
        w.advance(patience_s=20)
    assert w.acls(TARGET) == before


def test_a_deny_of_somebody_else_survives_the_fence_and_its_end() -> None:
    w = World()
    w.cluster.create_acls([BATCH])
    before = w.acls()
    assert fenced(w).acls_added == []
    w.advanced(wanted="resume")
    assert w.acls() == before


def test_a_deny_that_still_shows_is_not_called_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    fenced(w)
    monkeypatch.setattr(w.cluster, "delete_acls", lambda _: None)
    assert "DENY to be gone" in w.waits(wanted="resume", patience_s=1)
    assert (w.where(), w.state(Row.FENCE)) == ({(SOURCE, True)}, "done")
    monkeypatch.undo()
    w.advanced(wanted="resume")
    assert w.acls() == w.before


@pytest.mark.parametrize("acls", ["none on the topic", "no authorizer"])
def test_where_no_acl_is_in_force_the_end_offsets_are_the_judge(acls: str) -> None:
    w = World(authorizer=acls != "no authorizer")
    if acls != "no authorizer":
        w.cluster.delete_acls(w.before)
    record = fenced(w)
    assert record.acls_added == [] and "No ACL covers topic payments" in record.notes[0]
    first, last = record.samples[0], record.samples[-1]
    assert last.began_s - first.ended_s == pytest.approx(0.5, abs=0.001), "only the ends guard it"
    w.drain("fraud-g")
    w.advanced()
    assert w.acls() == set()
    assert w.data(Row.WIDE_DENY)["notes"]


# ------------------------------------------------------------------------------------------- the file


def test_the_order_proof_and_the_drain_take_the_runs_own_files_as_they_are(tmp_path: Path) -> None:
    """docs/proofs.md and docs/drain.md promise it of fence.json, and of a certificate up to a fence."""
    w = World()
    fence = fenced(w)
    w.drain("fraud-g")
    w.advanced(until=Step.DRAIN)
    for name in ("fence.json", "drain_certificate.json"):
        file, data = tmp_path / name, w.evidence.read(w.claim.migration_id, name)
        assert data is not None
        file.write_bytes(data)
        proof, drain = load_fence(str(file), SOURCE), FencePoint.read(data, where="--fence", topic=SOURCE)
        assert proof == drain
        assert (proof.topic_id, proof.fence_offsets) == (fence.topic_id, fence.fence_offsets)


def test_a_plan_file_that_somebody_changed_denies_nobody_and_makes_nothing() -> None:
    """Nobody has accepted what stands in it now, though it still names the accepted hash."""
    w = World()
    w.advanced(until=Step.APPROVE)
    good = w.evidence.read(w.claim.migration_id, "plan.json")
    assert good is not None
    plan = Plan.model_validate_json(good)
    more = [*plan.deny, AclBinding.of(EVERYBODY)]
    w.evidence.write(w.claim.migration_id, "plan.json", plan.model_copy(update={"deny": more}).model_dump_json())
    with pytest.raises(Refused, match="is not the plan that was accepted"):
        w.advance()
    assert w.cluster.topic(TARGET) is None
    w.evidence.write(w.claim.migration_id, "plan.json", good)
    w.advanced(until=Step.CREATE_TARGET)
    w.evidence.write(w.claim.migration_id, "plan.json", plan.model_copy(update={"deny": more}).model_dump_json())
    with pytest.raises(Refused, match="is not the plan that was accepted"):
        w.advance(until=Step.STOP_PRODUCERS)
    assert w.denied() == set()
