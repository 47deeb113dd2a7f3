"""The plan of reading tails: every answer is true, and no record is read twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.adapters.kafka.tail import _Job


def drive(job: _Job, visible: list[int], log_end: int) -> list[int]:
    """Read as a consumer does: seek to each piece, give the records in order, then say that the end is met."""
    given_out: list[int] = []
    while (piece := job.piece) is not None:
        finished = False
        for offset in [v for v in visible if v >= piece[0]]:
            if offset < piece[1]:
                given_out.append(offset)
            finished = job.record(offset)
            if finished:
                break
        if not finished:
            assert job.reached(log_end)
    return given_out


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 60).flatmap(
        lambda end: st.tuples(
            st.just(end),
            st.sets(st.integers(0, end - 1), min_size=1, max_size=6),
            st.sets(st.integers(0, end + 3)),
            st.integers(1, 60),
        )
    )
)
def test_answers_are_true_and_nothing_is_read_twice(plan: tuple[int, set[int], set[int], int]) -> None:
    end, starts, records, limit = plan
    visible = sorted(records)
    job = _Job(0, end, sorted(starts), limit)
    read = drive(job, visible, log_end=end + 4)
    assert len(read) == len(set(read))
    for start in starts:
        truth = [v for v in visible if start <= v < end]
        answer = job.answer(start)
        assert answer.found == bool(truth)
        assert answer.error is None
        if end - start <= limit:
            assert answer.complete and answer.records == len(truth)
        elif not truth:
            assert answer.complete and answer.records == 0


def test_what_was_not_reached_is_said_to_be_so() -> None:
    job = _Job(0, 10, [2, 8], 3)
    assert job.piece == (8, 10, True)
    assert job.reached(10)
    assert job.piece == (2, 8, False)
    job.error = "no leader"
    assert job.answer(8).complete
    unread = job.answer(2)
    assert (unread.found, unread.complete, unread.records, unread.error) == (False, False, None, "no leader")


def test_an_end_met_too_early_finishes_nothing() -> None:
    job = _Job(0, 10, [2], 100)
    assert not job.reached(9)
    assert not job.answer(2).complete
