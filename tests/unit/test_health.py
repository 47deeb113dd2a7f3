"""Before and after a migration: what is kept, what is compared, and what the report says where something got worse."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_acts_drain_back import moved
from tests.unit.test_acts_flink import Streaming
from tests.unit.test_run_report import read
from tests.unit.test_run_report_endings import Reported
from tests.unit.world import SOURCE, TARGET

from topicshift.acts.health import _rate_before, look_before, watch_after
from topicshift.core.engine.words import Step
from topicshift.core.errors import Unreadable
from topicshift.core.health import (
    FEW_MS,
    FILE,
    MOST,
    SHORT_S,
    CheckpointSample,
    GroupSample,
    Health,
    Rate,
    Sample,
    compare,
    lag_of,
    rate,
)
from topicshift.reporting.run_report import write_report

T0 = datetime(2026, 1, 4, 2, 0, tzinfo=UTC)


def at(minutes: float) -> str:
    return (T0 + timedelta(minutes=minutes)).isoformat()


def sample(minutes: float, **change: Any) -> Sample:
    values: dict[str, Any] = {
        "at": at(minutes), "topic": SOURCE, "partitions": 2, "end": 6000, "sizes": {0: 100, 1: 100},
        "under_replicated": [], "groups": {"ledger": GroupSample(lag=10, state="STABLE", members=2)},
    }  # fmt: skip
    return Sample(**{**values, **change})


def group(**change: Any) -> dict[str, GroupSample]:
    return {"ledger": GroupSample(**{"lag": 10, "state": "STABLE", "members": 2, **change})}


def health(*after: Sample, **change: Any) -> Health:
    before = {"before": sample(0), "rate_before": Rate(per_second=100, since=at(-60), until=at(0))}
    return Health(**{**before, "switched_at": at(0.5), "after": list(after), **change})


GOOD_AFTER = {"partitions": 4, "sizes": dict.fromkeys(range(4), 50)}


def verdicts(found: Health) -> dict[str, tuple[str, bool]]:
    return {c.name: (c.verdict, bool(c.look)) for c in compare(found)}


@pytest.mark.parametrize(
    ("change", "name", "verdict"),
    [
        ({}, "records a second", "same"),
        ({"end": 90_000}, "records a second", "better"),
        ({"end": 6_000}, "records a second", "worse"),
        ({"end": None}, "records a second", "unknown"),
        ({"groups": group(lag=90_000)}, "lag of ledger", "worse"),
        ({"groups": group(lag=900)}, "lag of ledger", "same"),
        ({"groups": group(lag=None)}, "lag of ledger", "unknown"),
        ({"groups": group(state="PREPARING_REBALANCING")}, "rebalances of ledger", "worse"),
        ({"groups": group(members=1)}, "members of ledger", "worse"),
        ({"under_replicated": [3]}, "under-replicated partitions", "worse"),
        ({"sizes": {0: 1000, 1: 1, 2: 1, 3: 1}}, "largest partition, in means", "worse"),
        ({"sizes": None}, "largest partition, in means", "unknown"),
    ],
)
def test_what_got_worse_says_what_to_look_at_and_nothing_else_does(
    change: dict[str, Any], name: str, verdict: str
) -> None:
    after = sample(10, **{"end": 57_000, **GOOD_AFTER, **change})
    found = verdicts(health(after))
    assert found[name] == (verdict, verdict == "worse")
    others = {n: v for n, v in found.items() if n != name}
    assert all(v in ("same", "unknown") and not look for v, look in others.values())


def checkpoints(**change: Any) -> dict[str, CheckpointSample | None]:
    return {"scorer": CheckpointSample(**{"completed": 900, "failed": 1, "ms": 1500, "failing": False, **change})}


@pytest.mark.parametrize(
    ("change", "duration", "failures"),
    [
        ({}, "same", "same"),
        ({"completed": 1, "failed": 0}, "same", "better"),
        ({"ms": 6000}, "worse", "same"),
        ({"ms": 300}, "better", "same"),
        ({"completed": 90, "failed": 9}, "same", "worse"),
        ({"completed": 9000, "failed": 1, "failing": True}, "same", "worse"),
        ({"completed": 0, "failed": 0, "ms": None}, "unknown", "better"),
        (None, "unknown", "unknown"),
    ],
)
def test_checkpoints_of_flink_jobs_are_compared(change: dict[str, Any] | None, duration: str, failures: str) -> None:
    now = {"scorer": None} if change is None else checkpoints(**change)
    found = health(sample(10, end=30_000, checkpoints=now, **GOOD_AFTER), before=sample(0, checkpoints=checkpoints()))
    said = verdicts(found)
    assert said["checkpoint duration of scorer"] == (duration, duration == "worse")
    assert said["failed checkpoints of scorer"] == (failures, failures == "worse")


def test_a_checkpoint_that_takes_no_time_to_speak_of_is_no_slower() -> None:
    before, now = checkpoints(ms=5), checkpoints(ms=FEW_MS)
    found = health(sample(10, end=30_000, checkpoints=now, **GOOD_AFTER), before=sample(0, checkpoints=before))
    assert verdicts(found)["checkpoint duration of scorer"] == ("same", False)
    assert "checkpoint" not in str(compare(health(sample(10, checkpoints=now)))), "nothing of it was known before"


def test_of_two_later_samples_the_rate_is_the_one_between_them() -> None:
    found = health(sample(10, end=30_000, **GOOD_AFTER), sample(70, end=30_000 + 3600 * 300, **GOOD_AFTER))
    (first, *_) = compare(found)
    assert (first.after, first.verdict) == ("300.0 over 60 min", "better")


def test_a_rate_over_seconds_is_shown_and_not_judged() -> None:
    short = Rate(per_second=100, since=at(-0.5), until=at(0))
    (first, *_) = compare(health(sample(10, end=1, **GOOD_AFTER), rate_before=short))
    assert first.verdict == "unknown" and first.before == "100.0 over 30 s"


def test_a_rate_that_holds_a_backlog_is_shown_and_not_judged_and_says_why() -> None:
    few = Rate(per_second=451.7, since=at(-1.2), until=at(0))
    (first, *_) = compare(health(sample(70, end=300 * 60 * 69, **GOOD_AFTER), rate_before=few))
    assert (first.verdict, first.look) == ("unknown", "") and "72 s is too short for a rate" in first.why
    late, now = {"switched_at": at(2)}, sample(10, end=30_000, **GOOD_AFTER)
    (first, *_) = compare(health(now, **late))
    assert first.verdict == "unknown" and "held back in the freeze, up to 2 min" in first.why
    (first, *_) = compare(health(now, sample(20, end=30_000 + 600 * 100, **GOOD_AFTER), **late))
    assert (first.verdict, first.why) == ("same", ""), "between two looks nothing is caught up with any more"


@pytest.mark.parametrize(
    ("measured", "per_second"),
    [
        ({"seconds": 36.0}, 300.0),
        ({"seconds": 36.0, "until": at(-2)}, None),
        ({}, None),
        ({"seconds": "long"}, None),
        ({"seconds": 1e300}, None),
    ],
)
def test_the_rate_before_counts_from_when_the_ends_were_asked_and_not_from_when_the_keys_were_measured(
    measured: dict[str, Any], per_second: float | None
) -> None:
    """Producers at 300 a second, whose keys took half a minute to measure, looked as if they wrote 450."""
    w = Reported()
    ctx = w.context()
    end = 108 * 300
    told = {"taken_at": at(-1.2), "measured": {"ranges": {"0": [0, 0]}, **measured}}
    ctx.write("impact.json", json.dumps(told))
    found = _rate_before(ctx, sample(0, end=end))
    assert (None if found is None else round(found.per_second, 3)) == per_second


def test_nothing_is_compared_before_there_is_an_after() -> None:
    assert compare(health()) == []


def test_samples_are_bounded() -> None:
    found = health()
    for minute in range(10 * MOST):
        found = found.with_after(sample(minute), None)
    assert len(found.after) <= MOST and found.after[-1].at == at(10 * MOST - 1)
    assert found.after[0].at == at(0) and found.switched_at == at(0.5)


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 99))
    )
)
def test_a_lag_is_never_negative_and_never_more_than_the_log(rows: dict[int, tuple[int, int, int | None]]) -> None:
    starts = {p: start for p, (start, _, _) in rows.items()}
    ends = {p: start + length for p, (start, length, _) in rows.items()}
    lag = lag_of(ends, starts, {p: commit for p, (_, _, commit) in rows.items()})
    assert lag is not None and 0 <= lag <= sum(length for _, length, _ in rows.values())
    if rows:
        assert lag_of({**ends, 0: None}, {**starts, 0: 0}, {}) is None, "unknown is not zero"


@pytest.mark.parametrize(("end", "earlier", "minutes"), [(None, 1, 1), (5, None, 1), (4, 5, 1), (5, 4, 0)])
def test_no_rate_is_made_up(end: int | None, earlier: int | None, minutes: int) -> None:
    assert rate(end, at(minutes), earlier, at(0)) is None


# ------------------------------------------------------------------------------------------------- a whole run


def kept(w: Reported) -> Health:
    data = w.evidence.read(w.claim.migration_id, FILE)
    assert data is not None
    return Health.model_validate_json(data)


def test_a_migration_keeps_the_source_before_and_the_target_after() -> None:
    w = Reported()
    w.advanced()
    found = kept(w)
    assert (found.before.topic, found.before.end, found.before.partitions) == (SOURCE, 30, 3)
    assert found.before.groups["ledger-g"] == GroupSample(lag=0, state="STABLE", members=1)
    (after,) = found.after
    assert (after.topic, after.partitions) == (TARGET, 6)
    freeze = w.data_of("freeze")
    assert found.switched_at == freeze["ended_at"] and found.before.at < freeze["started_at"]
    assert "Before and after" in w.page() and "lag of ledger-g 0 0 same" in w.page()
    assert SHORT_S == 300 and "A rate over less than 5 minutes" in w.page()


def test_for_a_day_the_watch_looks_again_and_the_report_says_what_got_worse() -> None:
    w = moved(Reported())
    assert isinstance(w, Reported)
    w.clock.advance(3600)
    w.write(TARGET, 0, 5000)
    ctx = w.context()
    ctx.refresh()
    watch_after(ctx)
    assert len(kept(w).after) == 2
    text = w.page()
    assert "lag of ledger-g 0 5,000 worse" in text and "max.poll.records" in text
    w.clock.advance(24 * 3600)
    ctx = w.context()
    ctx.refresh()
    watch_after(ctx)
    assert len(kept(w).after) == 2, "a day is over"


class Flinking(Streaming):
    """Flink jobs, and a report of their migration."""

    report = staticmethod(write_report)


def test_a_flink_job_is_told_by_its_checkpoints_before_and_after() -> None:
    w = Flinking()
    w.job("scorer").completed = 400
    submitted = w.manager.submit

    def slower(*args: Any) -> Any:
        one = submitted(*args)
        one.ms, one.failed = 9000, 3
        return one

    w.manager.submit = slower  # type: ignore[method-assign]
    w.advanced()
    data = w.evidence.read(w.claim.migration_id, FILE)
    found = Health.model_validate_json(data or b"")
    before = CheckpointSample(completed=400, failed=0, ms=5, failing=False)
    assert found.before.checkpoints["scorer"] == before, "before it was stopped"
    (after,) = found.after
    assert after.checkpoints["scorer"] == CheckpointSample(completed=1, failed=3, ms=9000, failing=False)
    assert set(after.checkpoints) == {"scorer", "intake"}, "others take none"
    text = read((w.evidence.read(w.claim.migration_id, "report.html") or b"").decode())
    assert "checkpoint duration of scorer 5 ms on average 9,000 ms on average worse" in text
    assert "failed checkpoints of scorer 0 of 400 3 of 4 worse" in text


def test_checkpoints_that_cannot_be_read_are_unknown_and_end_nothing() -> None:
    w = Flinking()
    w.advance(until=Step.APPROVE)
    ctx = w.context()
    ctx.refresh()

    def dark(call: str) -> None:
        if "/checkpoints" in call:
            raise Unreadable("no answer")

    w.manager.on_call = dark
    look_before(ctx)
    w.manager.on_call = lambda _: None
    found = Health.model_validate_json(w.evidence.read(w.claim.migration_id, FILE) or b"")
    assert found.before.checkpoints == {"intake": None, "scorer": None} and found.before.end is not None
    assert "the checkpoints of scorer were not read for the report's before and after: no answer" in w.said


@pytest.mark.parametrize("call", ["topic", "offsets", "describe_groups", "commits"])
def test_what_cannot_be_looked_at_ends_nothing(call: str) -> None:
    w = Reported()
    w.advance(until=Step.APPROVE)
    ctx, real = w.context(), getattr(w.cluster, call)

    def broken(*_: Any) -> Any:
        raise Unreadable("no answer")

    ctx.refresh()
    setattr(w.cluster, call, broken)
    look_before(ctx)
    setattr(w.cluster, call, real)
    assert w.evidence.read(w.claim.migration_id, FILE) is None
    assert f"{SOURCE} was not looked at for the report's before and after: no answer" in w.said
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def test_a_rehearsal_and_a_way_back_keep_nothing_of_it() -> None:
    w = moved(Reported())
    assert isinstance(w, Reported)
    before = w.evidence.read(w.claim.migration_id, FILE)
    w.advanced(wanted="rollback")
    assert w.evidence.read(w.claim.migration_id, FILE) == before
    assert json.loads(before or b"{}")["schema_version"] == 1


def test_a_file_that_somebody_changed_is_named_on_the_report() -> None:
    w = Reported()
    w.advanced()
    w.evidence.write(w.claim.migration_id, FILE, '{"before": 1}')
    ctx = w.context()
    ctx.refresh()
    watch_after(ctx)
    ctx.report()
    assert f"{FILE} does not hold what it should" in read(w.raw())
