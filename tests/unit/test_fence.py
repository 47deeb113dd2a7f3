"""The fence decided from plain values: examples, and what must never happen for any series of samples."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from topicshift.core.fence.decision import (
    FenceDecision,
    FenceSample,
    FenceSettings,
    FenceVerdict,
    Stop,
    decide_fence,
)
from topicshift.core.fence.record import Broken, FenceRecord, compare
from topicshift.core.kafka.cluster import Acl, ActiveProducer, PartitionOffsets, Transaction

TOPIC, TOPIC_ID, PARTITIONS, NOW_MS = "payments", "AAAAAAAAAAAAAAAAAAAAAA", 2, 1_700_000_000_000
SETTINGS = FenceSettings(settle_s=0.5, samples=2)


def ends(*values: int | None) -> dict[int, PartitionOffsets]:
    return {p: PartitionOffsets(0, v, v) for p, v in enumerate(values)}


def sample(at: float, *values: int, **change: object) -> FenceSample:
    base = FenceSample(
        began=at,
        ended=at + 0.02,
        topic_id=TOPIC_ID,
        offsets=ends(*(values or (5, 7))),
        producers=(),
        transactions=(),
        stops=(Stop("checkout", "stopped"),),
    )
    return replace(base, **change)  # type: ignore[arg-type]


def decide(*series: FenceSample, settings: FenceSettings = SETTINGS) -> FenceDecision:
    return decide_fence(series, settings, topic=TOPIC, topic_id=TOPIC_ID, partitions=PARTITIONS, now_ms=NOW_MS)


def producer(partition: int = 0, **change: object) -> ActiveProducer:
    return replace(ActiveProducer(partition, 42, 3, 10, NOW_MS, None), **change)  # type: ignore[arg-type]


def test_two_still_samples_over_the_settle_time_are_a_fence() -> None:
    decision = decide(sample(0.0), sample(0.6))
    assert decision.verdict is FenceVerdict.FENCED
    assert decision.fence_offsets == {0: 5, 1: 7}
    assert not decision.reasons


def test_it_is_known_from_when_on_one_more_sample_is_enough() -> None:
    assert decide(sample(0.0)).settled_at == decide(sample(0.0), sample(0.2)).settled_at == 0.52
    assert decide(sample(0.0), sample(0.519)).verdict is FenceVerdict.NOT_YET
    assert decide(sample(0.0), sample(0.52)).verdict is FenceVerdict.FENCED
    assert decide(sample(0.0), sample(0.2, 5, 8)).settled_at == 0.72, "the ends moved"
    assert decide(sample(0.0, stops=(Stop("checkout", "running"),))).settled_at is None, "somebody is waited for"


@pytest.mark.parametrize(
    "series",
    [
        [],
        [sample(0.0)],
        [sample(0.0), sample(0.3)],
        [sample(0.0), sample(0.51)],  # the settle time begins when the first sample has been read: 0.02
    ],
)
def test_too_few_or_too_quick_is_none(series: list[FenceSample]) -> None:
    assert decide(*series).verdict is not FenceVerdict.FENCED


def test_growth_starts_the_settle_time_again_and_names_the_producer() -> None:
    before, after = producer(0), producer(0, last_sequence=14)
    decision = decide(
        sample(0.0, 5, 7, producers=(before,)),
        sample(0.4, 5, 7, producers=(before,)),
        sample(0.6, 9, 7, producers=(after,)),
    )
    assert decision.verdict is FenceVerdict.NOT_YET
    (straggler,) = decision.stragglers
    assert (straggler.partition, straggler.records, straggler.producer_id, straggler.producer_epoch) == (0, 4, 42, 3)
    assert straggler.rate_per_s == pytest.approx(4 / 0.6)
    assert "payments[0] grew by 4" in decision.reasons[0]
    assert "producer id 42, epoch 3" in decision.reasons[0]


def test_growth_without_a_trace_accuses_nobody() -> None:
    idle = producer(0)
    decision = decide(sample(0.0, 5, 7, producers=(idle,)), sample(0.6, 6, 7, producers=(idle,)))
    (straggler,) = decision.stragglers
    assert straggler.producer_id is None
    assert "no idempotence" in decision.reasons[0]


def test_an_idle_producer_that_leaders_remember_does_not_matter() -> None:
    idle = (producer(0), producer(1))
    assert decide(sample(0.0, producers=idle), sample(0.6, producers=idle)).verdict is FenceVerdict.FENCED


def test_a_producer_whose_sequence_moves_is_no_fence_although_the_end_stands() -> None:
    decision = decide(sample(0.0, producers=(producer(0),)), sample(0.6, producers=(producer(0, last_sequence=11),)))
    assert decision.verdict is FenceVerdict.NOT_YET


def test_a_commit_marker_after_the_stop_starts_the_settle_time_again() -> None:
    series = [sample(0.0, 5, 7), sample(0.3, 6, 7), sample(0.6, 6, 7), sample(0.9, 6, 7)]
    assert decide(*series[:3]).verdict is FenceVerdict.NOT_YET
    assert decide(*series).fence_offsets == {0: 6, 1: 7}


def test_an_open_transaction_is_waited_for_and_named() -> None:
    offsets = {0: PartitionOffsets(0, 3, 5), 1: PartitionOffsets(0, 7, 7)}
    known = Transaction("tx-1", 42, 3, "Ongoing", NOW_MS - 5_000, 60_000, (0,))
    late = sample(0.6, offsets=offsets, producers=(producer(0, txn_start_offset=3),), transactions=(known,))
    decision = decide(sample(0.0, 5, 7), late)
    assert decision.verdict is FenceVerdict.NOT_YET
    (found,) = decision.transactions
    assert (found.transactional_id, found.start_offset, found.hanging) == ("tx-1", 3, False)
    assert found.ends_by_ms == NOW_MS - 5_000 + 60_000 + 10_000
    assert "Kafka ends it by itself in at most 65 s" in decision.reasons[-1]


def test_a_transaction_past_its_time_out_is_offered_to_a_person() -> None:
    offsets = {0: PartitionOffsets(0, 3, 5), 1: PartitionOffsets(0, 7, 7)}
    stuck = producer(0, txn_start_offset=3, last_timestamp_ms=NOW_MS - 1_000_000)
    decision = decide(sample(0.0, offsets=offsets, producers=(stuck,)))
    (found,) = decision.transactions
    assert found.hanging
    assert "kafka-transactions.sh abort --topic payments --partition 0 --start-offset 3" in decision.reasons[0]


def test_a_held_back_end_without_any_trace_is_no_fence() -> None:
    offsets = {0: PartitionOffsets(0, 3, 5), 1: PartitionOffsets(0, 7, 7)}
    decision = decide(sample(0.0, offsets=offsets), sample(0.6, offsets=offsets))
    assert decision.verdict is FenceVerdict.NOT_YET
    assert any("END_C 3 below END_U 5" in r for r in decision.reasons)


def test_a_sample_with_a_held_back_end_does_not_count_towards_the_settle_time() -> None:
    held = sample(0.0, offsets={0: PartitionOffsets(0, 3, 5), 1: PartitionOffsets(0, 7, 7)})
    assert decide(held, sample(0.6)).verdict is FenceVerdict.NOT_YET
    assert decide(held, sample(0.6), sample(1.2)).verdict is FenceVerdict.FENCED


def test_a_transaction_of_the_coordinator_alone_is_no_fence() -> None:
    known = Transaction("tx-1", 42, 3, "PrepareCommit", NOW_MS, 60_000, (1,))
    both = [sample(0.0, transactions=(known,)), sample(0.6, transactions=(known,))]
    assert decide(*both).verdict is FenceVerdict.NOT_YET


@pytest.mark.parametrize("status", ["running", "unknown"])
def test_a_participant_that_is_not_stopped_is_no_fence(status: str) -> None:
    stops = (Stop("checkout", "stopped"), Stop("billing", status, "2 of 3 instances"))
    decision = decide(sample(0.0, stops=stops), sample(0.6, stops=stops))
    assert decision.verdict is (FenceVerdict.UNKNOWN if status == "unknown" else FenceVerdict.NOT_YET)
    assert any("billing" in r and "2 of 3 instances" in r for r in decision.reasons)


def test_the_settle_time_begins_after_the_last_stop() -> None:
    running = (Stop("checkout", "running"),)
    series = [sample(0.0, stops=running), sample(0.5), sample(0.9)]
    assert decide(*series).verdict is FenceVerdict.NOT_YET
    assert decide(*series, sample(1.1)).verdict is FenceVerdict.FENCED


def test_a_deny_that_is_not_in_force_is_no_fence() -> None:
    missing = (Acl("TOPIC", TOPIC, "LITERAL", "User:legacy", "*", "WRITE", "DENY"),)
    decision = decide(sample(0.0, deny_missing=missing), sample(0.6, deny_missing=missing))
    assert decision.verdict is FenceVerdict.NOT_YET
    assert any("User:legacy" in r for r in decision.reasons)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic_id": "BBBBBBBBBBBBBBBBBBBBBB"}, "deleted and made again"),
        ({"offsets": ends(5, 7, 0)}, "has 3 partitions now"),
        ({"offsets": ends(4, 7)}, "lost records"),
        ({"topic_id": None, "offsets": None, "gone": True}, "does not exist any more"),
    ],
)
def test_a_changed_topic_breaks_it_for_good(change: dict[str, object], said: str) -> None:
    series = [sample(0.0), replace(sample(0.3), **change), sample(0.6), sample(1.2), sample(1.8)]  # type: ignore[arg-type]
    decision = decide(*series)
    assert decision.verdict is FenceVerdict.BROKEN
    assert said in decision.reasons[0]


UNREADABLE = [
    {"topic_id": None, "errors": {"topic": "time-out"}},
    {"offsets": None, "errors": {"offsets": "time-out"}},
    {"offsets": {0: PartitionOffsets(0, 5, 5)}},
    {"offsets": {0: PartitionOffsets(0, 5, 5), 1: PartitionOffsets(None, None, None, "no leader")}},
    {"offsets": {0: PartitionOffsets(0, 5, 5), 1: PartitionOffsets(0, None, 7)}},
    {"offsets": {0: PartitionOffsets(0, 5, 5), 1: PartitionOffsets(0, 7, 7, "no leader")}},
    {"producers": None, "errors": {"producers": "time-out"}},
    {"transactions": None},
    {"stops": None},
    {"deny_missing": None},
]


@pytest.mark.parametrize("change", UNREADABLE)
def test_what_cannot_be_read_is_unknown_and_said(change: dict[str, object]) -> None:
    decision = decide(sample(0.0), sample(0.6, **change))
    assert decision.verdict is FenceVerdict.UNKNOWN
    assert "cannot be read" in decision.reasons[0]
    decision = decide(sample(0.0, **change), sample(0.6))
    assert decision.verdict is FenceVerdict.NOT_YET


# ------------------------------------------------------------------------------------------------ for any series

still = st.builds(dict)
disturbed = st.sampled_from(
    [
        *UNREADABLE,
        {"stops": (Stop("checkout", "running"),)},
        {"stops": (Stop("checkout", "unknown"),)},
        {"deny_missing": (Acl("TOPIC", TOPIC, "LITERAL", "User:legacy", "*", "WRITE", "DENY"),)},
        {"transactions": (Transaction("tx", 1, 0, "Ongoing", NOW_MS, 1000, (0,)),)},
        {"producers": (producer(0, txn_start_offset=1),)},
        {"offsets": {0: PartitionOffsets(0, 4, 5), 1: PartitionOffsets(0, 7, 7)}},
    ]
)
steps = st.lists(
    st.tuples(
        st.floats(0.01, 2.0),
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
        st.one_of(still, still, still, disturbed),
    ),
    min_size=1,
    max_size=12,
)
settings_ = st.builds(FenceSettings, settle_s=st.floats(0.05, 3.0), samples=st.integers(2, 5))


def build(moves: list[tuple[float, tuple[int, int], dict[str, object]]]) -> list[FenceSample]:
    at, a, b, out = 0.0, 5, 7, []
    for gap, (grow_a, grow_b), change in moves:
        at, a, b = at + gap, a + grow_a, b + grow_b
        out.append(sample(at, a, b, **_grown(change, {0: a - 5, 1: b - 7})))
    return out


def _grown(change: dict[str, object], by: dict[int, int]) -> dict[str, object]:
    """The disturbance beside the ends as they are by then: an end that goes back is another story, and stays broken."""
    offsets = change.get("offsets")
    if not isinstance(offsets, dict):
        return change

    def later(at: int | None, p: int) -> int | None:
        return None if at is None else at + by[p]

    moved = {p: replace(o, end=later(o.end, p), end_committed=later(o.end_committed, p)) for p, o in offsets.items()}
    return {**change, "offsets": moved}


@given(steps, settings_)
def test_fenced_is_only_ever_said_of_a_still_tail(
    moves: list[tuple[float, tuple[int, int], dict[str, object]]], settings: FenceSettings
) -> None:
    series = build(moves)
    decision = decide(*series, settings=settings)
    tail = []
    for (_, grow, change), s in zip(reversed(moves), reversed(series), strict=True):
        if change:
            break
        tail.append(s)
        if grow != (0, 0):
            break
    long_enough = (
        len(tail) >= settings.samples and tail[0].began - tail[-1].ended >= settings.settle_s if tail else False
    )
    assert (decision.verdict is FenceVerdict.FENCED) == long_enough
    assert (decision.fence_offsets is not None) == long_enough
    if long_enough:
        last = series[-1].offsets
        assert last is not None
        assert decision.fence_offsets == {p: o.end for p, o in last.items()}
    else:
        assert decision.reasons or not series


@given(steps, settings_, st.integers(0, 11), disturbed)
def test_no_series_with_a_disturbed_end_is_fenced(
    moves: list[tuple[float, tuple[int, int], dict[str, object]]],
    settings: FenceSettings,
    _where: int,
    change: dict[str, object],
) -> None:
    moves[-1] = (moves[-1][0], moves[-1][1], change)
    assert decide(*build(moves), settings=settings).verdict is not FenceVerdict.FENCED


@given(steps, st.integers(0, 11), st.sampled_from(["id", "partitions", "gone", "shrunk"]))
def test_a_break_anywhere_is_never_forgotten(
    moves: list[tuple[float, tuple[int, int], dict[str, object]]], where: int, how: str
) -> None:
    series = build(moves)
    i = min(where, len(series) - 1)
    if how == "id":
        series[i] = replace(series[i], topic_id="BBBBBBBBBBBBBBBBBBBBBB")
    elif how == "partitions":
        series[i] = replace(series[i], offsets=ends(5, 7, 0))
    elif how == "gone":
        series[i] = replace(series[i], topic_id=None, offsets=None, gone=True)
    else:
        assume(any(s.offsets is not None for s in series))  # an end that nobody ever read cannot be seen to shrink
        series.append(sample(series[-1].ended + 1, 0, 0))
    assert decide(*series).verdict is FenceVerdict.BROKEN


# ------------------------------------------------------------------------------------------------ the comparison

TAKEN = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = FenceRecord(
    topic=TOPIC,
    topic_id=TOPIC_ID,
    partitions=2,
    fence_offsets={0: 5, 1: 7},
    began_at=TAKEN.isoformat(),
    taken_at=TAKEN.isoformat(),
    settings=SETTINGS,
    samples=[],
    acls_before=[],
    acls_added=[Acl("TOPIC", TOPIC, "LITERAL", "User:legacy", "*", "WRITE", "DENY")],
    producers=[producer(0)],
)


def kinds(now: FenceSample) -> list[tuple[Broken, int | None]]:
    return [(v.kind, v.partition) for v in compare(RECORD, now, at=TAKEN + timedelta(seconds=10))]


def test_a_fence_that_holds_has_no_violation() -> None:
    assert kinds(sample(0.0)) == []


def test_growth_after_the_fence_names_partition_count_rate_and_producer() -> None:
    now = sample(0.0, 5, 12, producers=(producer(0), producer(1, producer_id=77)))
    (violation,) = compare(RECORD, now, at=TAKEN + timedelta(seconds=10))
    assert (violation.kind, violation.partition, violation.records) == (Broken.GROWN, 1, 5)
    assert violation.rate_per_s == pytest.approx(0.5)
    assert [p.producer_id for p in violation.producers] == [77]
    assert "payments[1] grew by 5, 0.5/s: producer id 77" in violation.text


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"offsets": ends(4, 7)}, Broken.SHRUNK),
        ({"offsets": ends(5, 7, 0)}, Broken.PARTITIONS),
        ({"topic_id": "BBBBBBBBBBBBBBBBBBBBBB"}, Broken.TOPIC_ID),
        ({"gone": True, "topic_id": None}, Broken.GONE),
        ({"topic_id": None}, Broken.UNREADABLE),
        ({"offsets": None}, Broken.UNREADABLE),
        ({"offsets": {0: PartitionOffsets(0, 5, 5)}}, Broken.UNREADABLE),
        ({"offsets": {0: PartitionOffsets(0, 5, 5), 1: PartitionOffsets(None, None, None, "x")}}, Broken.UNREADABLE),
    ],
)
def test_every_other_difference_is_a_violation(change: dict[str, object], kind: Broken) -> None:
    assert [k for k, _ in kinds(sample(0.0, **change))] == [kind]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=2, max_size=2),
    st.booleans(),
)
def test_no_difference_passes_and_nothing_else_is_said(values: list[int | None], same_id: bool) -> None:
    now = sample(0.0, offsets=ends(*values), topic_id=TOPIC_ID if same_id else "BBBBBBBBBBBBBBBBBBBBBB")
    assert (kinds(now) == []) == (values == [5, 7] and same_id)


def test_the_record_reads_back_from_its_json() -> None:
    assert FenceRecord.model_validate_json(RECORD.model_dump_json()) == RECORD
