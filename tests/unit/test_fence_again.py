"""A record that comes to the source after the switch is contained: fenced anew, named, and put to a person."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts import again
from topicshift.acts.advance import Done
from topicshift.acts.close import close
from topicshift.acts.jobs import order_proof_job
from topicshift.core.drain.strays import NamedRecord, Stray, Strays
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import FenceBroken, Refused
from topicshift_airflow.questions import question_of

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
kills = st.lists(st.integers(0, 300), min_size=1, max_size=3)


def switched(cutover: str = "producers_first", **spec: Any) -> World:
    """Producers are on the target, and no group is released yet."""
    w = World(cutover=cutover, **spec)
    assert isinstance(w.advance(until=Step.SWITCH_PRODUCERS), Done)
    assert w.where() == {(TARGET, True)}
    return w


def half(cutover: str) -> World:
    """Producers and one group are on the target; the other group has still to be released."""
    w = switched(cutover)
    assert isinstance(w.advance(focus="ledger-g"), Done)
    assert (w.state(Row.SWITCH_GROUP, "ledger-g"), w.state(Row.SWITCH_GROUP, "fraud-g")) == ("done", None)
    return w


def strays(w: World) -> Strays:
    data = w.evidence.read(w.claim.migration_id, "strays.json")
    assert data is not None
    return Strays.model_validate_json(data)


def is_over(w: World) -> None:
    row = w.journal.current(w.claim.migration_id)
    assert (row.state, row.active) == ("done", False)
    assert w.where() == {(TARGET, True)}


# ----------------------------------------------------------------------------------------------- contained


@ORDERS
def test_nobody_has_left_yet_so_everybody_drains_to_the_new_fence(cutover: str) -> None:
    w = switched(cutover)
    first = dict(w.context().fence_of(w.record()).fence_offsets)
    w.write(partition=2, records=3)
    assert "has not drained" in w.waits(patience_s=30.0)
    assert w.context().fence_of(w.record()).fence_offsets == {**first, 2: first[2] + 3}
    assert w.state(Row.FENCE_AGAIN) == "done"
    assert not w.record().released
    for group in ("ledger-g", "fraud-g"):
        w.drain(group)
    w.advanced()
    is_over(w)
    assert strays(w).unseen == []
    assert [len(g.records) for g in strays(w).generations] == [3]
    assert w.state(Row.QUESTION, Ask.STRAYS) is None, "every group has read them"


@ORDERS
def test_what_a_released_group_cannot_see_is_named_and_accepted_by_name(cutover: str) -> None:
    w = half(cutover)
    w.write(partition=1, records=2)
    w.waits(patience_s=30.0)
    assert w.state(Row.SWITCH_GROUP, "fraud-g") is None, "it has to read them first"
    w.drain("fraud-g")
    asking = w.asks()
    assert asking.ask is Ask.STRAYS
    assert (asking.about["unseen"], asking.about["unseen_by"]) == (2, ["ledger-g"])
    assert asking.about["sha256"] == strays(w).mark
    assert [(r.partition, r.offset) for r in strays(w).unseen] == [(1, 10), (1, 11)]
    assert w.state(Row.SWITCH_GROUP, "fraud-g") == "done", "nobody is held up by the question"
    w.answer(asking)
    w.advanced()
    is_over(w)
    assert [e["generation"] for e in w.events("fenced_again")] == [1]


@ORDERS
def test_a_yes_is_for_exactly_these_records(cutover: str) -> None:
    w = half(cutover)
    w.write(partition=1)
    w.waits(patience_s=30.0)
    w.drain("fraud-g")
    asking = w.asks()
    w.show(asking)
    w.write(partition=0)
    again_ = w.asks(patience_s=30.0)
    assert again_.about != asking.about
    assert (again_.about["unseen"], again_.about["unseen_by"]) == (2, ["fraud-g", "ledger-g"])
    w.show(again_)
    with pytest.raises(Refused, match="counts for nothing"):
        w.answer_late(asking)
    assert [g.unseen_by for g in strays(w).generations] == [["ledger-g"], ["ledger-g", "fraud-g"]]
    w.answer_late(again_, "no")
    with pytest.raises(Refused, match="said no"):
        _same_process(w)
    w.answer(w.asks())
    w.advanced()
    is_over(w)


def _same_process(w: World) -> None:
    ctx = w.context()
    ctx.began_at = ctx.began_at.replace(year=2000)
    w.advance(ctx)


@ORDERS
def test_certificates_before_the_new_fence_are_void(cutover: str) -> None:
    w = half(cutover)
    before = {
        n for n, s in w.record().steps.items() if n.startswith(("certificate", "verification")) and s.state == "done"
    }
    w.write()
    w.waits(patience_s=30.0)
    after = {
        n for n, s in w.record().steps.items() if n.startswith(("certificate", "verification")) and s.state == "done"
    }
    kept = {"certificate:ledger-g", "verification:ledger-g"}
    assert after == before & kept
    w.drain("fraud-g")
    w.answer(w.asks())
    w.advanced()
    assert w.state(Row.VERIFICATION, "fraud-g") == "done"


def test_a_source_that_does_not_stand_still_leaves_the_run_standing_with_the_writer_named() -> None:
    w = switched()
    producer, look = w.cluster.new_producer_id(), again.STILL.settle_s

    def goes_on(_call: str) -> None:
        held, w.cluster.on_call = w.cluster.on_call, None
        w.cluster.produce(SOURCE, 0, 1, producer_id=producer)
        w.cluster.on_call = held

    w.write()
    w.cluster.on_call = goes_on
    assert "does not stand still" in w.waits(patience_s=look)
    with pytest.raises(FenceBroken, match=rf"goes on being written to.*producer id {producer}.*topicshift advance"):
        w.advance(patience_s=100.0)
    assert w.state(Row.FENCE_AGAIN) == "intended"
    assert not w.record().released
    w.cluster.on_call = None
    w.waits(patience_s=30.0)
    w.drain("ledger-g")
    w.drain("fraud-g")
    w.advanced()
    is_over(w)


def test_a_deny_that_is_missing_is_put_back_before_the_new_fence() -> None:
    w = switched()
    wide = {a for a in w.acls() if a.principal == "User:*" and a.permission == "DENY"}
    w.cluster.delete_acls(wide)
    w.write()
    w.waits(patience_s=30.0)
    assert wide <= w.acls()


def test_without_an_authorizer_the_ends_alone_are_the_guard() -> None:
    w = switched(authorizer=False)
    w.write()
    w.waits(patience_s=30.0)
    assert w.state(Row.FENCE_AGAIN) == "done"
    w.drain("ledger-g")
    w.drain("fraud-g")
    w.advanced()
    is_over(w)


def test_a_record_that_comes_while_producers_are_being_switched_ends_nothing() -> None:
    w = World(cutover="producers_first")
    w.apps.deaf.add("billing")
    w.advance(until=Step.SWITCH_PRODUCERS, patience_s=0.0)
    w.apps.deaf.clear()
    if w.state(Row.SWITCH_PRODUCERS) is None:
        w.advance(until=Step.SWITCH_PRODUCERS)
    w.write()
    assert isinstance(w.advance(until=Step.SWITCH_PRODUCERS, patience_s=60.0), Done)
    assert w.where() == {(TARGET, True)}
    w.waits(patience_s=30.0)
    assert w.state(Row.FENCE_AGAIN) == "done"


def test_more_than_can_be_named_is_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MOST_NAMED", 3)
    w = half("producers_first")
    w.write(records=4)
    w.waits(patience_s=30.0)
    w.drain("fraud-g")
    with pytest.raises(FenceBroken, match=r"more records.*than can be named.*topicshift close"):
        w.advance()
    assert close(w.context(), "too many")["state"] == "failed"


@ORDERS
@given(where=kills)
@settings(max_examples=12, deadline=None)
def test_killed_at_any_call_the_names_are_the_same(cutover: str, where: list[int]) -> None:
    w = half(cutover)
    w.write(partition=1, records=2)
    w.drain("fraud-g")
    w.until_done(where)
    is_over(w)
    assert [(r.partition, r.offset) for r in strays(w).unseen] == [(1, 10), (1, 11)]
    assert strays(w).groups == ["ledger-g"]


# -------------------------------------------------------------------------------- what a person and a proof see


def test_a_person_sees_the_records_by_key_partition_and_offset() -> None:
    w = half("producers_first")
    w.write(partition=1, records=30)
    w.waits(patience_s=30.0)
    w.drain("fraud-g")
    asking = w.asks()
    ctx = w.context()
    ctx.refresh()
    body = question_of(ctx, asking).body
    assert "`payments[1] offset 10, no key`" in body
    assert "and 10 more in `strays.json`" in body
    assert "**ledger-g**" in body


@pytest.mark.parametrize(
    ("key", "said"),
    [(b"order-7", "key 'order-7'"), (b"\xff\x00", "key 0xff00"), (b"", "key ''"), (None, "no key")],
)
def test_a_key_is_told_as_text_or_in_hex(key: bytes | None, said: str) -> None:
    assert Stray.of(NamedRecord(3, 14, key)).line("t") == f"t[3] offset 14, {said}"


def test_the_order_proof_is_told_where_strays_begin_and_how_many_were_named() -> None:
    w = half("producers_first")
    first = w.context().fence_of(w.record()).fence_offsets
    w.write(partition=1, records=2)
    w.waits(patience_s=30.0)
    job = order_proof_job(w.context(), w.record())
    assert job.given["strays.json"] == {"from": first, "named": {1: 2}, "complete": True}
    assert job.given["fence.json"]["fence_offsets"] == {str(p): o for p, o in first.items()} | {"1": first[1] + 2} or (
        job.given["fence.json"]["fence_offsets"] == {**first, 1: first[1] + 2}
    )
    assert "--strays" in job.arguments


@ORDERS
@pytest.mark.parametrize("read", [False, True], ids=["not read yet", "found by the proof"])
def test_a_record_between_the_last_group_and_the_proof_is_contained(cutover: str, read: bool) -> None:
    w = half(cutover)
    w.drain("fraud-g")
    w.advance(until=Step.SWITCH_CONSUMERS)
    fence = w.context().fence_of(w.record()).fence_offsets
    w.write(partition=1, records=2)
    if read:
        found = {"verdict": "violated", "reason": "2 records behind the fence", "checks": []}
        found["fence_offsets"] = {str(p): o for p, o in fence.items()}
        w.evidence.write(w.claim.migration_id, "order_proof.json", json.dumps(found))
    asking = w.asks(patience_s=30.0)
    assert (asking.ask, asking.about["unseen"], asking.about["unseen_by"]) == (Ask.STRAYS, 2, ["fraud-g", "ledger-g"])
    w.answer(asking)
    w.advanced()
    is_over(w)


def test_a_proof_from_before_the_last_fence_proves_nothing() -> None:
    w = half("producers_first")
    w.drain("fraud-g")
    w.advance(until=Step.SWITCH_CONSUMERS)
    fence = w.context().fence_of(w.record()).fence_offsets
    old = {"verdict": "proven", "checks": [], "fence_offsets": {str(p): o for p, o in fence.items()}}
    w.evidence.write(w.claim.migration_id, "order_proof.json", json.dumps(old))
    w.write()
    w.answer(w.asks(patience_s=30.0))
    w.advanced()
    proof = json.loads(w.evidence.read(w.claim.migration_id, "order_proof.json") or b"{}")
    assert "fence_offsets" not in proof, "it was made anew"
