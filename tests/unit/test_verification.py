"""The decisions around the reading: what is read, what the counts mean, and that nothing unknown is verified."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.drain.certificate import DrainCertificate, Verdict
from topicshift.core.drain.decision import Doubt, GroupView, Snapshot, TailRange, certify, in_doubt
from topicshift.core.drain.reasons import Reason
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift.core.proof.verification import (
    Answer,
    DrainVerification,
    ReadPlan,
    Segment,
    decide,
    first_unread,
    no_answer,
    read_plans,
    same_topic_id,
    snapshot_of,
    tails_of,
    with_later_ends,
)

NOW = datetime(2026, 1, 4, 2, 0, tzinfo=UTC)
ID = "AAAAAAAAAAAAAAAAAAAAAg"


def snapshot(
    commits: dict[str, dict[int, int | None]], log: dict[int, tuple[int, int, int]], fence: dict[int, int] | None = None
) -> Snapshot:
    """``log`` maps a partition to (log start, END_C, END_U); the fence is END_U unless given."""
    return Snapshot(
        topic="payments",
        topic_id=ID,
        partitions=len(log),
        offsets={p: PartitionOffsets(*o) for p, o in log.items()},
        groups=[GroupView(g, committed=c) for g, c in commits.items()],
        taken_at=NOW,
        fence=fence if fence is not None else {p: o[2] for p, o in log.items()},
        fence_topic_id=ID,
    )


def verify(seen: Snapshot, records: dict[int, set[int]], later: Snapshot | None = None) -> DrainVerification:
    """Ask with the certificate of ``seen``, and read: ``records`` are the readable offsets of each partition."""
    certificate = certify(seen)
    asked = DrainCertificate.model_validate_json(certificate.model_dump_json())
    fresh = snapshot_of(asked, topic_id=seen.topic_id, partitions=seen.partitions, offsets=seen.offsets, now=NOW)
    doubts = in_doubt(fresh)
    plans = read_plans(doubts)
    found: dict[tuple[int, int], Segment] = {}
    for plan in plans.values():
        bounds = [*plan.starts, plan.stop]
        for index in range(len(plan.starts)):
            inside = sorted(o for o in records.get(plan.partition, set()) if bounds[index] <= o < bounds[index + 1])
            if inside:
                found[plan.partition, index] = Segment(len(inside), inside[0])
    after = later or seen
    return decide(with_later_ends(fresh, after.topic_id, after.offsets), doubts, plans, found)


def test_ranges_are_merged_and_each_offset_is_read_once() -> None:
    plans = read_plans([Doubt("a", 0, 5, 10), Doubt("b", 0, 7, 10), Doubt("c", 0, 5, 10), Doubt("a", 1, 0, 4)])
    assert plans == {0: ReadPlan(0, (5, 7), 10), 1: ReadPlan(1, (0,), 4)}


def test_ranges_of_a_partition_that_end_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="partition 0"):
        read_plans([Doubt("a", 0, 5, 10), Doubt("b", 0, 5, 11)])


def test_each_group_counts_from_its_own_start() -> None:
    plans = {0: ReadPlan(0, (5, 7), 10)}
    tails = tails_of(plans, {(0, 0): Segment(2, 5), (0, 1): Segment(1, 9)})
    assert tails[TailRange(0, 5, 10)].records == 3
    assert tails[TailRange(0, 7, 10)].records == 1
    assert first_unread(plans[0], {(0, 1): Segment(1, 9)}, 5) == 9
    assert first_unread(plans[0], {(0, 0): Segment(2, 5)}, 7) is None


def test_markers_alone_are_verified_and_records_are_not() -> None:
    seen = snapshot({"ledger": {0: 8}, "fraud": {0: 6}}, {0: (0, 10, 10)})
    answer = verify(seen, {0: set()})
    assert (answer.verdict, answer.exit_code) == (Answer.VERIFIED, 0)
    assert answer.offsets_read == 4
    answer = verify(seen, {0: {6, 7}})
    assert (answer.verdict, answer.exit_code) == (Answer.NOT_DRAINED, 3)
    by_group = {g.group: g.partitions[0] for g in answer.groups}
    assert (by_group["ledger"].verdict, by_group["ledger"].records_left) == (Verdict.DRAINED, 0)
    assert (by_group["fraud"].records_left, by_group["fraud"].first_unread_offset) == (2, 6)
    assert answer.reason == "group fraud: unread on partitions 0"


def test_the_json_is_the_contract() -> None:
    answer = verify(snapshot({"ledger": {0: 8, 1: 4}}, {0: (0, 10, 10), 1: (0, 4, 4)}), {0: {9}})
    value = json.loads(answer.model_dump_json())
    assert value["schema"] == "topicshift/drain-verification/v1"
    assert value["groups"][0]["partitions"] == [
        {"partition": 0, "from": 8, "to": 10, "committed": 8, "records_left": 1, "first_unread_offset": 9,
         "verdict": "not_drained", "reason": "unread"},
        {"partition": 1, "from": None, "to": None, "committed": 4, "records_left": 0, "first_unread_offset": None,
         "verdict": "drained", "reason": "at_end"},
    ]  # fmt: skip
    assert DrainVerification.model_validate(value) == answer


def test_an_open_transaction_bounds_the_reading_and_blocks() -> None:
    answer = verify(snapshot({"ledger": {0: 4}}, {0: (0, 6, 9)}), {0: set()})
    row = answer.groups[0].partitions[0]
    assert (row.start, row.stop, row.reason) == (4, 6, Reason.OPEN_TRANSACTION)
    assert answer.exit_code == 3


@pytest.mark.parametrize(
    ("later", "reason", "code"),
    [
        ({0: (0, 11, 11)}, Reason.SOURCE_GREW, 3),
        ({0: (0, 9, 9)}, Reason.END_BELOW_FENCE, 4),
        ({0: (0, 0, 0)}, Reason.END_BELOW_FENCE, 4),
        ({}, Reason.PARTITION_UNREADABLE, 4),
    ],
)
def test_what_happens_to_the_source_while_it_is_read_shows(later: Any, reason: Reason, code: int) -> None:
    seen = snapshot({"ledger": {0: 10}}, {0: (0, 10, 10)})
    answer = verify(seen, {}, snapshot({}, later))
    assert answer.groups[0].partitions[0].reason == reason
    assert answer.exit_code == code
    broken = reason is not Reason.PARTITION_UNREADABLE
    assert answer.verdict is (Answer.FENCE_BROKEN if broken else Answer.UNKNOWN)
    assert answer.reason


def test_another_topic_id_breaks_the_fence() -> None:
    seen = snapshot({"ledger": {0: 10}}, {0: (0, 10, 10)})
    later = Snapshot("payments", "other", 1, seen.offsets, [], NOW)
    answer = verify(seen, {}, later)
    assert (answer.verdict, answer.exit_code) == (Answer.FENCE_BROKEN, 4)
    assert verify(seen, {}, Snapshot("payments", None, 0, {}, [], NOW)).exit_code == 4


def test_the_spellings_of_a_topic_id_are_one() -> None:
    assert same_topic_id("RPf/6dgnSFC0daLbM3bFN+==", "RPf_6dgnSFC0daLbM3bFN-")
    assert not same_topic_id("a", "b")
    assert not same_topic_id(None, "a")


def test_a_read_that_failed_verifies_nothing_that_was_in_doubt() -> None:
    seen = snapshot({"ledger": {0: 8}, "fraud": {0: 10}}, {0: (0, 10, 10)})
    doubts = in_doubt(seen)
    answer = decide(seen, doubts, read_plans(doubts), {}, error="broker away")
    assert (answer.verdict, answer.exit_code) == (Answer.UNKNOWN, 4)
    assert "broker away" in (answer.reason or "")
    assert {g.group: g.partitions[0].reason for g in answer.groups} == {"fraud": "at_end", "ledger": "tail_unreadable"}


KNOWN = [
    GroupView("g", problem=Reason.GROUP_NOT_FOUND),
    GroupView("g", problem=Reason.EVIDENCE_OUTDATED),
    GroupView("g", error="no DESCRIBE"),
    GroupView("g", committed={0: 10}, errors={0: "no coordinator"}),
    GroupView("g", committed={0: 10}, unstable=frozenset({0})),
    GroupView("g", committed={0: None}, evidence=True),
    GroupView("g", attested=True, evidence=True),
    GroupView("g", committed={0: 12}),
    GroupView("g", committed={0: 3}),
    GroupView("g", committed={0: None}),
]

ELSEWHERE = frozenset(
    {Reason.AT_END, Reason.EMPTY, Reason.NOTHING_READABLE, Reason.UNREAD, Reason.LOST_ACCEPTED, Reason.LOST_AND_UNREAD}
    | {Reason.PARTITION_UNREADABLE, Reason.TAIL_UNREADABLE, Reason.TAIL_UNFINISHED, Reason.OPEN_TRANSACTION}
    | {Reason.SOURCE_GREW, Reason.END_BELOW_FENCE, Reason.FENCE_INCOMPLETE, Reason.TOPIC_REMADE, Reason.TOPIC_NOT_FOUND}
    | {Reason.UNDECLARED_GROUP, Reason.IGNORED_GROUP, Reason.LISTING_INCOMPLETE, Reason.NO_GROUPS}
    | {Reason.NEVER_COMMITTED, Reason.NEVER_COMMITTED_EXPIRED, Reason.LOST_UNREAD, Reason.BEHIND}
)
"""Codes that fresh offsets or the reading give anew, or that belong to the topic."""


@pytest.mark.parametrize("group", KNOWN)
def test_what_the_certificate_knows_is_kept(group: GroupView) -> None:
    seen = Snapshot("payments", ID, 1, {0: PartitionOffsets(5, 10, 10)}, [group], NOW, fence={0: 10}, fence_topic_id=ID)
    told = certify(seen)
    answer = verify(seen, {0: set(range(5, 10))})
    row, told_row = answer.groups[0].partitions[0], told.groups[0].partitions[0]
    same = told_row.reason if told_row.reason != Reason.BEHIND else Reason.UNREAD
    assert row.reason == same
    assert (row.verdict is Verdict.DRAINED) == (told_row.verdict is Verdict.DRAINED)


def test_no_code_is_forgotten_on_its_way_to_the_verification() -> None:
    """Whoever adds a code says here whether fresh offsets give it anew; else a group that has it belongs into KNOWN."""
    told = set()
    for group in KNOWN:
        seen = {0: PartitionOffsets(5, 10, 10)}
        told |= {
            Reason(row.reason)
            for row in certify(Snapshot("payments", ID, 1, seen, [group], NOW, fence={0: 10}, fence_topic_id=ID))
            .groups[0]
            .partitions
        }
    assert told | ELSEWHERE == set(Reason), set(Reason) - told - ELSEWHERE


def test_reasons_of_the_topic_are_kept() -> None:
    seen = snapshot({"ledger": {0: 10}}, {0: (0, 10, 10)})
    seen = Snapshot(**{**seen.__dict__, "undeclared": frozenset({"fraud"}), "ignored": {"old": "gone"}})
    answer = verify(seen, {})
    assert answer.verdict is Answer.NOT_DRAINED
    assert answer.reasons == ["undeclared_group:fraud", "ignored_group:old"]


def test_no_answer_is_never_a_yes() -> None:
    for verdict in (Answer.UNKNOWN, Answer.ABORTED):
        assert no_answer(verdict, "why", topic="t", now=NOW).exit_code == 4


# ------------------------------------------------------------------------------------------------------- properties

OFFSET = st.integers(0, 12)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Snapshot, dict[int, set[int]]]:
    partitions = draw(st.integers(1, 3))
    log, records = {}, {}
    for p in range(partitions):
        start, stable, end = sorted(draw(st.tuples(OFFSET, OFFSET, OFFSET)))
        log[p] = (start, stable, end)
        records[p] = (
            set(draw(st.sets(st.integers(start, max(start, stable - 1)), max_size=5))) if stable > start else set()
        )
    fence = {p: draw(st.sampled_from([log[p][2], log[p][2], log[p][2], draw(OFFSET)])) for p in log}
    commits = {
        f"g{n}": {p: draw(st.none() | OFFSET) for p in log if draw(st.integers(0, 9))}
        for n in range(draw(st.integers(1, 3)))
    }
    return snapshot(commits, log, fence), records


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_verified_only_when_an_independent_reader_finds_nothing(world: tuple[Snapshot, dict[int, set[int]]]) -> None:
    seen, records = world
    answer = verify(seen, records)
    fence = seen.fence or {}
    left = [
        (group.group, p, offset)
        for group in seen.groups
        for p in range(seen.partitions)
        for offset in records[p]
        if p in group.committed and (group.committed[p] or 0) <= offset < fence[p]
    ]
    if answer.verdict is Answer.VERIFIED:
        assert not left
        assert all(seen.offsets[p].end == fence[p] for p in fence)
        assert all(p in g.committed for g in seen.groups for p in range(seen.partitions))
    for group in answer.groups:
        assert [r.partition for r in group.partitions] == list(range(seen.partitions))
        for row in group.partitions:
            if row.records_left:
                mine = sorted(o for g, p, o in left if (g, p) == (group.group, row.partition))
                assert (row.records_left, row.first_unread_offset) == (len(mine), mine[0])


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_it_answers_as_the_certificate_that_has_read_the_tails(world: tuple[Snapshot, dict[int, set[int]]]) -> None:
    seen, records = world
    answer = verify(seen, records)
    plans = read_plans(in_doubt(seen))
    found = {}
    for plan in plans.values():
        bounds = [*plan.starts, plan.stop]
        for i in range(len(plan.starts)):
            inside = sorted(o for o in records[plan.partition] if bounds[i] <= o < bounds[i + 1])
            if inside:
                found[plan.partition, i] = Segment(len(inside), inside[0])
    told = certify(Snapshot(**{**seen.__dict__, "tails": tails_of(plans, found)}))
    assert {g.group: [(r.reason, r.records_left) for r in g.partitions] for g in answer.groups} == {
        g.group: [(r.reason, r.records_left) for r in g.partitions] for g in told.groups
    }
