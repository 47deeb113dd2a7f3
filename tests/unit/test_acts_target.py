"""The plan decided, the target made, recognised after a kill, refused in another shape, deleted only while ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, Killed, World, at_call

from topicshift.acts.close import close
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import NotFound, PreflightFailed, Refused, Transient, Unreadable
from topicshift.core.kafka.cluster import Acl

ASKED = {"approvals": {"plan": "required", "freeze": "auto", "retire": "auto"}}


def approved() -> World:
    """A world whose plan is accepted."""
    w = World(**ASKED)
    w.answer(w.asks())
    return w


def changes(w: World) -> list[str]:
    return [c for c in w.cluster.calls if c.startswith(("create", "delete", "alter"))]


def made(w: World) -> str:
    w.advanced(until=Step.CREATE_TARGET)
    seen = w.cluster.topic(TARGET)
    assert seen is not None and w.state(Row.CREATE_TARGET) == "done"
    return seen.topic_id


# ------------------------------------------------------------------------------------------------------- the plan


def test_what_blocks_the_plan_stops_the_run_before_spark_is_started_and_changes_nothing() -> None:
    w = World()
    w.cluster.create_topic(TARGET, 5, 1, {})
    with pytest.raises(PreflightFailed, match="block this plan; nothing was changed"):
        w.advance()
    assert "impact.json" not in w.evidence.names(w.claim.migration_id)
    assert not w.journal.current(w.claim.migration_id).active
    assert w.state(Row.CHECK) is None


def test_what_could_not_be_read_is_told_apart_from_what_is_wrong() -> None:
    w = World()
    w.cluster.fail("acls", Transient("no answer"))
    with pytest.raises(Unreadable):
        w.advance()
    w.cluster.fail("acls", None)
    w.advanced(until=Step.PLAN)


def test_the_row_names_the_counts_for_which_keys_are_measured() -> None:
    w = World()
    w.advanced(until=Step.PLAN)
    assert w.data(Row.CHECK) == {"partitions": 6, "candidates": [6, 9, 12, 15]}
    assert w.journal.current(w.claim.migration_id).plan_hash == w.events("planned")[0]["plan_hash"]


def test_nothing_is_changed_for_a_plan_that_nobody_accepted() -> None:
    w = World(**ASKED)
    asking = w.asks()
    assert (asking.ask, asking.about) == (Ask.PLAN, {"plan_hash": w.journal.current(w.claim.migration_id).plan_hash})
    assert w.cluster.topic(TARGET) is None
    w.answer(asking, "no")
    with pytest.raises(Refused, match="user:ada said no"):
        w.advance()
    assert changes(w) == []


def test_a_plan_that_has_changed_since_it_was_accepted_is_asked_about_again() -> None:
    w = approved()
    first = w.journal.current(w.claim.migration_id).plan_hash
    w.cluster.alter_topic_configs(SOURCE, set_={"max.message.bytes": "2000000"})
    w.cluster.calls.clear()
    asking = w.asks()
    assert asking.about["plan_hash"] != first
    assert changes(w) == []
    w.answer(asking)
    made(w)


def test_what_has_come_up_since_the_plan_was_accepted_blocks() -> None:
    w = approved()
    w.cluster.create_topic(TARGET, 5, 1, {})
    w.cluster.calls.clear()
    with pytest.raises(PreflightFailed, match="something has come up that blocks"):
        w.advance()
    assert changes(w) == []


# ------------------------------------------------------------------------------------------------------ the target


def test_the_target_is_what_was_planned() -> None:
    w = World()
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "3600000"})
    w.cluster.calls.clear()
    topic_id = made(w)
    seen = w.cluster.topic(TARGET)
    assert seen is not None
    assert (seen.partitions, seen.replication_factor) == (6, 1)
    assert {e.name: e.value for e in seen.configs.values() if e.set_here} == {"retention.ms": "3600000"}
    assert {a.principal for a in w.acls(TARGET)} == {"User:checkout", "User:billing", "User:batch"}
    assert w.data(Row.CREATE_TARGET)["topic_id"] == topic_id
    assert made(w) == topic_id and changes(w).count("create_topic") == 1


def test_a_target_that_another_advancer_makes_during_the_look_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = World()
    w.advanced(until=Step.APPROVE)
    ask, asked = w.cluster.validate_create, 0

    def late(*args: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:  # the target was not there a moment ago; now the other one makes it
            made(w)
        ask(*args)

    monkeypatch.setattr(w.cluster, "validate_create", late)
    w.advance(until=Step.CREATE_TARGET)
    assert asked > 1 and w.state(Row.CREATE_TARGET) == "done"


def test_a_new_target_that_has_no_leaders_yet_is_waited_for_and_one_that_may_not_be_read_is_not() -> None:
    """A broker that has much to do leads hundreds of new partitions only after seconds."""
    w = World()
    w.cluster.unreadable(TARGET, 5, "NOT_LEADER_FOR_PARTITION", passing=True)
    assert "is empty cannot be told: [5] NOT_LEADER" in w.waits(until=Step.CREATE_TARGET, patience_s=1)
    w.cluster.unreadable(TARGET, 5, "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(Unreadable, match=r"is empty cannot be told: \[5\] TOPIC_AUTH") as failed:
        w.advance(until=Step.CREATE_TARGET)
    assert not failed.value.retryable
    w.cluster.unreadable(TARGET, 5, None)
    made(w)
    assert changes(w).count("create_topic") == 1


@pytest.mark.parametrize("at", ["create_topic", "create_acls", "topic-after"])
def test_killed_anywhere_it_is_finished_by_the_next(at: str) -> None:
    w = World()

    def die(method: str) -> None:
        there = TARGET in w.cluster._topics
        if method == at or (at == "topic-after" and method == "topic" and there):
            raise Killed

    w.cluster.on_call = die
    with pytest.raises(Killed):
        w.advance()
    w.cluster.on_call = None
    assert w.state(Row.CREATE_TARGET) == "intended"
    w.clock.advance(31)
    made(w)
    assert len(w.acls(TARGET)) == 3
    w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is None and w.acls(TARGET) == set()


def test_an_empty_target_of_the_same_shape_is_used_and_never_deleted() -> None:
    w = World()
    there = w.cluster.create_topic(TARGET, 6, 1, {})
    kept = Acl("TOPIC", TARGET, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
    w.cluster.create_acls([kept])
    assert made(w) == there
    w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is not None
    assert w.acls(TARGET) == {kept}


def test_a_target_that_somebody_filled_or_made_again_is_not_deleted() -> None:
    w = World()
    made(w)
    w.cluster.delete_topic(TARGET)
    w.cluster.create_topic(TARGET, 6, 1, {})
    with pytest.raises(Refused, match="deleted and made again"):
        w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is not None

    w = World()
    made(w)
    w.write(TARGET)
    with pytest.raises(Refused, match="no way back"):
        w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is not None


def test_a_target_that_is_swapped_between_the_last_look_and_the_request_is_not_deleted() -> None:
    w = World()
    made(w)

    def made_again() -> None:
        w.cluster.delete_topic(TARGET)
        w.cluster.create_topic(TARGET, 6, 1, {})

    at_call(w, "delete_topic", made_again)
    with pytest.raises(NotFound, match="with id"):
        w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is not None


@pytest.mark.parametrize("at", ["delete_topic", "delete_acls"])
def test_the_way_back_killed_anywhere_is_finished_by_the_next(at: str) -> None:
    w = World()
    made(w)

    def die(method: str) -> None:
        if method == at:
            raise Killed

    w.cluster.on_call = die
    with pytest.raises(Killed):
        w.advanced(wanted="rollback")
    w.cluster.on_call = None
    w.clock.advance(31)
    w.advanced(wanted="rollback")
    assert w.cluster.topic(TARGET) is None and w.acls(TARGET) == set()


# --------------------------------------------------------------------------------------------------- the retention


def behind(w: World) -> None:
    """A group that would take longer than the records live."""
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.bytes": "1000000"})
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "60000"})
    w.cluster.commit("fraud-g", SOURCE, {0: 9})


def set_here(w: World) -> dict[str, str | None]:
    info = w.cluster.topic(SOURCE)
    assert info is not None
    return {e.name: e.value for e in info.configs.values() if e.set_here}


def test_records_that_could_expire_unread_live_longer_and_the_way_back_restores_exactly() -> None:
    w = World()
    behind(w)
    before = set_here(w)
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    assert int(set_here(w)["retention.ms"] or 0) > 12 * 3_600_000
    lengthened = set_here(w)
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "60000"})
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    if w.state(Row.FREEZE) is None:
        assert set_here(w) == lengthened, "what somebody took back is set again"
    w.advanced(wanted="rollback")
    assert set_here(w) == before or w.events("retention_restored")


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_the_end_of_a_migration_puts_a_longer_retention_back_and_closing_it_names_what_was_there(cutover: str) -> None:
    w = World(cutover=cutover)
    behind(w)
    before = set_here(w)
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    assert set_here(w) != before
    left = close(w.context(), "not tonight", even_frozen=True)["left"]
    assert any("retention of payments was lengthened" in line and "60000" in line for line in left)
    w = World(cutover=cutover)
    behind(w)
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    w.drain("fraud-g")
    w.advanced(until=Step.SWITCH_CONSUMERS)
    assert set_here(w) != before, "the proof still has to read the source"
    w.advanced()
    assert set_here(w) == before and len(w.events("retention_restored")) == 1


def test_where_nothing_is_at_risk_nothing_is_changed_and_the_row_says_so() -> None:
    w = World()
    before = set_here(w)
    w.advanced()
    assert set_here(w) == before
    assert (w.state(Row.LENGTHEN_RETENTION), w.data(Row.LENGTHEN_RETENTION)["set"]) == ("undone", {})


def test_the_order_proof_closes_the_migration_or_leaves_it_open() -> None:
    from topicshift.core.errors import GuardViolated

    w = World()
    w.proof = "violated"
    with pytest.raises(GuardViolated, match="violated"):
        w.advance()
    assert w.journal.current(w.claim.migration_id).state == "open"
    w.evidence.write(w.claim.migration_id, "order_proof.json", json.dumps({"verdict": "partly_proven", "checks": []}))
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    (proof,) = w.events("proof")
    assert (proof["verdict"], proof["checks"]) == ("partly_proven", [])
