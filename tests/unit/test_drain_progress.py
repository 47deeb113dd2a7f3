"""Lag, rate, time left, alarms, and the forecast of what may expire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.drain.certificate import DrainCertificate, GroupEvidence, PartitionEvidence, Verdict
from topicshift.core.drain.progress import SERIES_POINTS, Tracker, estimate
from topicshift.core.drain.reasons import REASONS, Alarm, Reason
from topicshift.core.drain.retention import RetentionRisk, Unread, retention_risk

END = 1000


def row(p: int, committed: int | None, reason: str = "unread", end: int = END) -> PartitionEvidence:
    drained = committed == end and reason == "unread"
    code = "at_end" if drained else reason
    return PartitionEvidence(
        partition=p,
        log_start=0,
        committed=committed,
        end_committed=end,
        end=end,
        records_left=None,
        verdict=REASONS[Reason(code)].verdict or Verdict.UNKNOWN,
        reason=code,
    )


def look(*rows: PartitionEvidence, state: str = "STABLE", group: str = "g") -> DrainCertificate:
    verdict = Verdict.worst([r.verdict for r in rows])
    return DrainCertificate(
        topic="t",
        topic_id="id",
        taken_at="2026-03-01T00:00:00+00:00",
        fence_offsets=None,
        verdict=verdict,
        groups=[GroupEvidence(group=group, kind="classic", state=state, verdict=verdict, partitions=list(rows))],
    )


def test_a_steady_group_is_told_its_time_left() -> None:
    tracker = Tracker()
    for second in range(11):
        progress = tracker.add(look(row(0, 50 * second), row(1, END)), float(second))
    group = progress.groups[0]
    assert group.lag == 500
    assert group.rate == pytest.approx(50)
    assert group.left.seconds == pytest.approx(10)
    assert group.left.sure == "high"
    assert group.slowest[0].partition == 0
    assert group.slowest[0].seconds == pytest.approx(10)
    assert len(group.series) == 11
    assert "500 to go, about 10 s left" in progress.line()


def test_a_drained_group_is_done() -> None:
    tracker = Tracker()
    progress = tracker.add(look(row(0, END)), 0.0)
    assert (progress.groups[0].lag, progress.groups[0].left.seconds) == (0, 0.0)
    assert progress.line() == "every group has drained the topic"


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=50))
def test_the_estimate_is_a_range_round_itself(lags: list[int]) -> None:
    told = estimate([(float(i), lag) for i, lag in enumerate(lags)])
    if told.seconds is not None:
        assert told.low is not None and told.low <= told.seconds + 1e-6
        assert told.high is None or told.high >= told.seconds - 1e-6
    if lags[-1] == 0:
        assert told.seconds == 0.0


def test_the_series_stays_short() -> None:
    tracker = Tracker()
    for second in range(3 * SERIES_POINTS):
        progress = tracker.add(look(row(0, second % 900)), float(second))
    series = progress.groups[0].series
    assert len(series) <= SERIES_POINTS
    assert series[0][0] == 0.0 and series[-1][0] == 3 * SERIES_POINTS - 1


def alarm(looks: list[DrainCertificate], members: int | None, step: float = 10.0) -> tuple[Alarm | None, str]:
    tracker = Tracker(stuck_after_s=60)
    for i, certificate in enumerate(looks):
        progress = tracker.add(certificate, i * step, {"g": members} if members is not None else None)
    return progress.groups[0].alarm, progress.groups[0].alarm_text


def test_no_alarm_while_the_group_gets_nearer() -> None:
    assert alarm([look(row(0, 10 * i)) for i in range(20)], 1) == (None, "")


def test_no_members() -> None:
    assert alarm([look(row(0, 10), state="EMPTY")] * 8, 0)[0] is Alarm.NO_MEMBERS


def test_poison_record() -> None:
    told = alarm([look(row(0, 500), row(1, END))] * 8, 2)
    assert told[0] is Alarm.POISON_RECORD
    assert "partition 0: the commit stands at offset 500, 500 to go" in told[1]


def test_rebalance_loop() -> None:
    looks = [look(row(0, 10), state="PREPARING_REBALANCE" if i % 3 else "STABLE") for i in range(9)]
    assert alarm(looks, 2)[0] is Alarm.REBALANCE_LOOP


def test_hot_partition() -> None:
    looks = [
        look(row(0, 100 + i, end=1000 + 2 * i), row(1, 500 + i, end=510 + i), row(2, 5 + i, end=10 + i), row(3, END))
        for i in range(9)
    ]
    told = alarm(looks, 3)
    assert told[0] is Alarm.HOT_PARTITION
    assert "partition 0" in told[1]


def test_too_slow() -> None:
    looks = [look(*[row(p, 100 + 10 * i, end=600 + 11 * i) for p in range(4)]) for i in range(9)]
    told = alarm(looks, 3)
    assert told[0] is Alarm.TOO_SLOW
    assert "it reads about" in told[1]


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("open_transaction", Alarm.TRANSACTION_PENDING),
        ("pending_commit", Alarm.TRANSACTION_PENDING),
        ("lost_unread", Alarm.DECISION_WAITED_FOR),
        ("committed_beyond_end", Alarm.DECISION_WAITED_FOR),
        ("commit_unreadable", Alarm.CANNOT_READ),
        ("tail_unreadable", Alarm.CANNOT_READ),
    ],
)
def test_what_reading_cannot_change(reason: str, wanted: Alarm) -> None:
    assert alarm([look(row(0, 10, reason))] * 8, 1)[0] is wanted


def test_advice_names_each_code_once() -> None:
    progress = Tracker().add(look(row(0, 1), row(1, 2), row(2, None, "never_committed"), row(3, END)), 0.0)
    told = {a.reason: a.partitions for a in progress.groups[0].advice}
    assert told == {"unread": (0, 1), "never_committed": (2,)}


# --------------------------------------------------------------------------------------------------------- retention

NOW = 10_000_000_000
HOUR = 3_600_000


def forecast(**changes: object) -> RetentionRisk:
    base = {
        "cleanup_policy": "delete",
        "retention_ms": 24 * HOUR,
        "retention_bytes": -1,
        "unread": [Unread("g", 0, NOW - HOUR, 100, 60.0, 1000)],
        "now_ms": NOW,
        "extra_s": 3600.0,
    }
    return retention_risk(**{**base, **changes})  # type: ignore[arg-type]


def test_nothing_at_risk() -> None:
    assert not forecast().at_risk
    assert not forecast(retention_ms=-1).at_risk
    assert not forecast(cleanup_policy="compact", retention_ms=1).at_risk
    assert not forecast(unread=[]).at_risk
    assert not forecast(unread=[Unread("g", 0, None, 0, None)], retention_ms=1).at_risk


def test_age_is_compared_with_the_time_left() -> None:
    old = [Unread("g", 3, NOW - 23 * HOUR, 100, 60.0, 1000)]
    risk = forecast(unread=old)
    assert int(risk.change["retention.ms"]) >= 48 * HOUR
    assert "partition 3" in risk.why[0]
    assert not forecast(unread=old, extra_s=0.0).at_risk


def test_what_is_not_known_counts_as_a_risk() -> None:
    assert "retention.ms" in forecast(unread=[Unread("g", 0, None, 5, 1.0)]).change
    assert "retention.ms" in forecast(unread=[Unread("g", 0, NOW, 5, None)]).change
    assert "retention.bytes" in forecast(retention_bytes=10**6, unread=[Unread("g", 0, NOW, 5, 1.0, None)]).change


def test_size_grows_with_what_is_written() -> None:
    assert not forecast(retention_bytes=10**6).at_risk
    risk = forecast(retention_bytes=10**6, write_bytes_per_s={0: 1000.0})
    assert int(risk.change["retention.bytes"]) >= 2 * 10**6
