"""Sizing: the worked figures of the field, bounds, multiples, skew, and rates out of offsets."""

from __future__ import annotations

import contextlib
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.acts.measure import sample_offsets
from topicshift.cli import run
from topicshift.core.errors import NotFound, Unreadable
from topicshift.core.impact.partitioning import expected_same_index, parents_of
from topicshift.core.sizing.sizing import (
    OffsetSample,
    SizingInput,
    SizingResult,
    rates_from_samples,
    recommend,
    record_bytes_from_impact,
    share_at,
    skew_from_impact,
)
from topicshift.testing.fakes import FakeCluster


def sized(**changes: Any) -> SizingResult:
    return recommend(SizingInput(**({"throughput": 100_000, "per_consumer": 5_000, "headroom": 0} | changes)))


def test_the_fields_worked_figures() -> None:
    """T = 100,000/s and Cp = 5,000/s give 20, rounded to 24 or 30; with factor 3, 60."""
    plain = sized()
    assert plain.raw == 20 and plain.minimum == 20
    assert (plain.recommended, plain.runner_up) == (24, 30)
    assert sized(headroom=2).recommended == 60
    assert sized(headroom=0.25).recommended == 30


def test_the_larger_bound_counts() -> None:
    assert sized(per_partition=2_000).raw == 50
    assert "one producer" in sized(per_partition=2_000).reasons[0]
    assert sized(per_partition=50_000).raw == 20
    assert "one consumer" in sized(per_partition=50_000).reasons[0]


@pytest.mark.parametrize(
    ("changes", "recommended", "says"),
    [
        ({"source_partitions": 12}, 24, "2 x the source's 12"),
        ({"source_partitions": 6, "headroom": 0.25, "brokers": 3}, 30, "evenly over 3 brokers"),
        ({"source_partitions": 7}, 21, "3 x the source's 7"),
        ({"flink_parallelism": 16}, 32, "multiple of Flink's parallelism 16"),
        ({"multiple_of": 10}, 20, "multiple of 10, as asked"),
        ({"multiple_of": 7}, 21, "multiple of 7, as asked"),
        ({"source_partitions": 30}, 30, "The source has 30 already"),
    ],
)
def test_sensible_multiples(changes: dict, recommended: int, says: str) -> None:
    result = sized(**changes)
    assert result.recommended == recommended
    assert any(says in r for r in result.reasons), result.reasons


def test_what_the_source_has_is_never_shrunk_by_a_formula() -> None:
    result = sized(source_partitions=60)
    assert result.recommended == 60
    assert any("no migration is needed" in w for w in result.warnings)


def test_a_source_whose_hottest_partition_is_too_much_is_not_enough() -> None:
    """20 are enough by the rates; of the source's 24 one gets 6,000 records/s, of 48 none gets more than 5,000."""
    result = sized(source_partitions=24, skew={24: 0.06, 48: 0.05, 72: 0.04})
    assert result.recommended == 48
    assert not any("no migration is needed" in w for w in result.warnings)
    assert any("were they evenly loaded" in w for w in result.warnings)
    none_helps = sized(source_partitions=24, skew={24: 0.06, 48: 0.055})
    assert none_helps.recommended == 24
    assert any("6,000 records/s" in w for w in none_helps.warnings)
    assert not any("are enough" in w for w in none_helps.warnings)
    fewer = sized(source_partitions=60, brokers=3, cores_per_broker=5, skew={24: 0.045, 60: 0.04})
    assert fewer.recommended == 60, "a smaller count is a person's decision"


def test_what_could_not_be_checked_is_said() -> None:
    everything = {"brokers": 3, "cores_per_broker": 8, "replication_factor": 3, "skew": {24: 0.045, 30: 0.04}}
    assert sized(**everything).unchecked == []
    missing = {
        "brokers": ["number of brokers"],
        "cores_per_broker": ["cores of a broker"],
        "replication_factor": ["replication factor"],
        "skew": ["keys were not measured"],
    }
    for name, says in missing.items():
        found = sized(**{k: v for k, v in everything.items() if k != name}).unchecked
        assert len(found) == 1 and says[0] in found[0], found
    assert len(sized().unchecked) == 2, "without brokers nothing is asked about their cores"


def test_nobody_is_warned_of_replicas_that_nobody_asked_for() -> None:
    alone = sized(brokers=1)
    assert not any("replicas" in w for w in alone.warnings)
    assert {c.replicas_per_broker for c in alone.counts} == {c.partitions for c in alone.counts}
    assert any("1 is taken" in u for u in alone.unchecked)


@given(st.floats(0.01, 1e5), st.floats(0.01, 1e5), st.floats(0, 3))
def test_spare_is_what_is_left_above_the_wanted_rate(t: float, cp: float, h: float) -> None:
    """A topic of n partitions takes n x Cp; the spare of it is said as a share of T."""
    with contextlib.suppress(ValueError):
        for c in recommend(SizingInput(throughput=t, per_consumer=cp, headroom=h)).counts:
            assert (1 + c.spare) * t == pytest.approx(c.partitions * cp)
            assert c.spare >= h - 1e-6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"brokers": 2, "cores_per_broker": 4}, "above 2 x 2 brokers x 4 cores = 16"),
        ({"throughput": 10_000_000, "brokers": 3}, "above 500"),
        ({"throughput": 10_000_000}, "Over 500 partitions"),
        ({"headroom": 2}, "12 to 50"),
        ({"hottest_key_share": 0.1}, "no count helps it"),
        ({"hottest_key_share": 0.045}, "beyond 23 partitions"),
        ({"brokers": 2, "replication_factor": 3}, "3 replicas need as many brokers"),
        ({"replication_factor": 4}, "More than 3 replicas"),
    ],
)
def test_bounds_are_said(changes: dict, says: str) -> None:
    assert any(says in w for w in sized(**changes).warnings), sized(**changes).warnings


def test_a_count_whose_hottest_partition_is_too_much_gives_way() -> None:
    result = sized(source_partitions=12, skew={24: 0.06, 36: 0.04})
    assert result.recommended == 36
    bad = next(c for c in result.counts if c.partitions == 24)
    assert "6,000 records/s" in bad.problems[0]


def test_a_count_that_was_not_measured_is_judged_by_those_beside_it() -> None:
    curve = {24: 0.11, 30: 0.10, 60: 0.08}
    assert share_at(24, curve) == 0.11
    assert share_at(12, curve) == pytest.approx(0.22)
    assert share_at(1, curve) == 1.0
    assert 0.08 < (share_at(40, curve) or 0) < 0.10
    assert share_at(90, curve) == 0.08 and share_at(90, curve, 0.085) == 0.085
    assert share_at(24, {}) is None
    result = sized(source_partitions=6, skew={24: 0.055, 30: 0.052, 60: 0.04})
    assert result.recommended == 36, "smaller ones would overload one consumer, measured or not"
    bad = {c.partitions: c.problems for c in result.counts}
    assert bad and all(problems for c, problems in bad.items() if c < 36)


@given(st.dictionaries(st.integers(1, 300), st.floats(0.001, 1), min_size=1, max_size=6), st.integers(1, 400))
def test_an_estimated_share_is_a_share(curve: dict[int, float], count: int) -> None:
    share = share_at(count, curve)
    assert share is not None and 0 < share <= 1


def test_more_than_any_cluster_holds_is_an_error() -> None:
    with pytest.raises(ValueError, match="Check the rates"):
        sized(throughput=1e12, per_consumer=1)


def test_parents_and_keys_that_stay() -> None:
    assert [expected_same_index(12, m) for m in (24, 30, 25, 3)] == [0.5, 0.2, 0.04, 0.25]
    assert [parents_of(12, m) for m in (24, 30, 25, 3)] == [1, 2, 12, 4]


@given(st.integers(1, 200), st.integers(1, 200))
def test_parents_and_stay_agree_with_counting(n: int, m: int) -> None:
    """Every hash value below lcm(n, m) stands for all hashes of its class."""
    span = math.lcm(n, m)
    parents: dict[int, set[int]] = {}
    same = 0
    for h in range(span):
        parents.setdefault(h % m, set()).add(h % n)
        same += h % n == h % m
    assert max(map(len, parents.values())) == parents_of(n, m)
    assert same / span == pytest.approx(expected_same_index(n, m))


_RATE = st.floats(0.1, 1e6, allow_nan=False)


@given(_RATE, _RATE, st.one_of(st.none(), _RATE), st.floats(0, 2), st.integers(1, 60), st.integers(1, 9))
def test_the_count_always_carries_the_load(t: float, cp: float, pp: float | None, h: float, n: int, b: int) -> None:
    asked = SizingInput(throughput=t, per_consumer=cp, per_partition=pp, headroom=h, source_partitions=n, brokers=b)
    try:
        result = recommend(asked)
    except ValueError:
        return
    assert result == recommend(asked)
    for count in (result.recommended, result.runner_up or result.recommended):
        assert count >= result.minimum
        assert count * cp >= t * 0.999999
        assert pp is None or count * pp >= t * 0.999999


def test_the_advice_follows_the_change() -> None:
    few = {a.setting for a in sized(source_partitions=20).advice}
    many = {a.setting for a in sized(source_partitions=6).advice}
    assert "partition.assignment.strategy" in few and "max.poll.interval.ms" not in few
    assert {"max.poll.interval.ms", "linger.ms", "group.instance.id"} <= many
    assert any(a.client == "flink" for a in sized(flink_parallelism=8).advice)


def test_polls_and_batches_follow_the_rates() -> None:
    slow = next(a for a in sized(throughput=100, per_consumer=2).advice if a.setting == "max.poll.records")
    assert slow.value == "300"  # half of the 300 s that a poll may take, at 2 records/s
    assert "250 s" in slow.why
    fast = next(a for a in sized(throughput=100_000, per_consumer=5_000).advice if a.setting == "max.poll.records")
    assert fast.value == "500"
    assert "batch.size" not in {a.setting for a in sized().advice}
    result = sized(throughput=100_000, per_consumer=5_000, record_bytes=100)
    batch = next(a for a in result.advice if a.setting == "batch.size")
    assert f"{1000 * 16384 * result.recommended / (100_000 * 100):,.3g} ms" in batch.value


def test_open_files_are_named_where_a_usual_limit_would_not_do() -> None:
    def said(**given: Any) -> bool:
        return any("ulimit -n" in w for w in sized(**given).warnings)

    assert said(throughput=400_000, per_consumer=1000, brokers=3)  # 500 replicas a broker, 3 files each
    assert not said(throughput=20_000, per_consumer=1000, brokers=3)


def test_the_size_of_a_record_comes_from_the_report() -> None:
    assert record_bytes_from_impact({"records": 4, "bytes": 400}) == 100
    assert record_bytes_from_impact({"records": 0, "bytes": 0}) is None


def test_rates_from_offsets_over_time() -> None:
    samples = [
        OffsetSample(at=0, ends={0: 0, 1: 0, 2: None}, commits={0: 0, 1: 0, 2: 0}),
        OffsetSample(at=5, ends={0: 500, 1: 100, 2: 9}, commits={0: 100, 1: 50, 2: 0}),
        OffsetSample(at=10, ends={0: 600, 1: 200, 2: 9}, commits={0: 250, 1: 100, 2: 0}),
    ]
    rates = rates_from_samples([samples[0].model_copy(update={"ends": {0: 1, 1: 1, 2: None}}), *samples[1:]])
    assert rates.unread == [2]
    assert rates.throughput == pytest.approx(79.8) and rates.peak_throughput == pytest.approx(119.6)
    assert rates.per_partition[0] == pytest.approx(59.9)
    assert (rates.group_rate, rates.per_consumer, rates.saturated) == (35.0, 25.0, True)
    for bad in ([], samples[:1], [samples[0], samples[0]]):
        with pytest.raises(ValueError):
            rates_from_samples(bad)
    with pytest.raises(ValueError, match="could be read"):
        rates_from_samples([OffsetSample(at=i, ends={0: None}) for i in range(2)])


class _Ticking:
    """Time that passes only when somebody sleeps, and then the producers write."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.cluster = cluster

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.cluster.produce("payments", 0, int(100 * seconds))


def test_measuring_a_topic() -> None:
    cluster = FakeCluster()
    cluster.create_topic("payments", 2, 1, {})
    cluster.commit("ledger", "payments", {0: 0, 1: 0})
    said: list[str] = []
    samples = sample_offsets(
        cluster,
        "payments",
        group="ledger",
        span=timedelta(seconds=10),
        every=timedelta(seconds=2),
        clock=_Ticking(cluster),
        progress=said.append,
    )
    assert rates_from_samples(samples).throughput == pytest.approx(100)
    assert len(samples) == 6 and said
    with pytest.raises(NotFound):
        sample_offsets(cluster, "nope", span=timedelta(1), every=timedelta(1), clock=_Ticking(cluster))
    cluster.fail("commits", Unreadable("denied"))
    with pytest.raises(Unreadable):
        sample_offsets(cluster, "payments", group="x", span=timedelta(1), every=timedelta(1), clock=_Ticking(cluster))


def test_skew_out_of_an_impact_report() -> None:
    impact = {
        "top_keys": [{"key": "a", "share": 0.2}, {"key": "b", "share": 0.3}],
        "candidates": [{"partitions": 30, "max_partition_share": 0.3}, {"partitions": 3, "max_partition_share": None}],
    }
    assert skew_from_impact(impact) == ({30: 0.3}, 0.3)
    today = {"source": {"partitions": 6, "max_keyed_partition_share": 0.4}}
    assert skew_from_impact(impact | today) == ({6: 0.4, 30: 0.3}, 0.3)
    assert skew_from_impact({}) == ({}, None)


# ------------------------------------------------------------------------------------------------ the command


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--throughput", "100000", "--per-consumer", "5000", "--factor", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["result"]["recommended"] == 60 and answer["input"]["headroom"] == 2


def test_the_command_shows_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--throughput", "100000", "--per-consumer", "5000", "--source-partitions", "6", "--brokers", "3"]
    assert run(["size", *args]) == 0
    text = capsys.readouterr().out
    assert "30 partitions (runner-up: 36)" in text and "5 x the source's 6" in text and "group.instance.id" in text
    words = " ".join(text.split())
    assert "not checked: 2 x brokers x cores: the cores of a broker are not known. Give --cores." in words
    assert "3 is taken for the other bounds. Give --replication-factor or --topic." in words
    assert "the keys were not measured. Give --impact." in words
    assert run(["size", "--throughput", "100000", "--per-consumer", "5000"]) == 0
    assert "the number of brokers is not known. Give --brokers or --topic." in " ".join(capsys.readouterr().out.split())
    assert run(["size", *args, "--cores", "8", "--replication-factor", "3"]) == 0
    assert capsys.readouterr().out.count("not checked") == 1


def test_the_command_says_no_where_the_brokers_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--throughput", "1e5", "--per-consumer", "5000", "--brokers", "1", "--cores", "2"]) == 3
    assert "above 2 x 1 brokers x 2 cores" in capsys.readouterr().out


@pytest.mark.parametrize(("unread", "wanted"), [(None, 4), (9000, 0)])
def test_rates_that_leave_a_partition_out_are_no_answer(
    unread: int | None, wanted: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.acts import measure
    from topicshift.adapters.kafka import admin
    from topicshift.testing.fakes import FakeCluster

    cluster = FakeCluster()
    cluster.create_topic("t", 2, 1, {})
    samples = [
        OffsetSample(at=0, ends={0: 0, 1: 0 if unread is not None else None}),
        OffsetSample(at=10, ends={0: 9000, 1: unread}),
    ]
    monkeypatch.setattr(admin, "KafkaAdmin", lambda _: contextlib.nullcontext(cluster))
    monkeypatch.setattr(measure, "sample_offsets", lambda *_, **__: samples)
    args = ["--topic", "t", "--measure", "10s", "--per-consumer", "100", "--bootstrap-server", "b:1"]
    assert run(["size", *args]) == wanted
    assert ("partitions [1] could not be read" in capsys.readouterr().out) is (wanted == 4)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "--throughput and --per-consumer are not known"),
        (["--throughput", "5"], "--per-consumer is not known"),
        (["--throughput", "0"], "0"),
        (["--throughput", "many"], "many"),
        (["--throughput", "5", "--per-consumer", "1", "--headroom", "1", "--factor", "2"], "two ways"),
        (["--throughput", "inf", "--per-consumer", "1"], "Give a finite one"),
        (["--throughput", "nan", "--per-consumer", "1"], "Give a finite one"),
        (["--throughput", "5", "--per-consumer", "inf"], "Give a finite one"),
        (["--throughput", "5", "--per-consumer", "1", "--headroom", "nan"], "Give a finite one"),
        (["--throughput", "5", "--per-consumer", "1e-320"], "more than 100,000 partitions"),
        (["--throughput", "5", "--per-consumer", "1", "--multiple-of", "1000000000"], "a multiple of 1000000000"),
        (["--measure", "30s"], "need --topic"),
        (["--topic", "t"], "No Kafka cluster was named"),
        (["--topic", "t", "--group", "g", "--bootstrap-server", "x:1"], "needs --measure"),
        (["--topic", "t", "--measure", "soon", "--bootstrap-server", "x:1"], "not a duration"),
        (["--topic", "t", "--measure", "1ms", "--bootstrap-server", "x:1"], "between 1s and 6h"),
        (["--throughput", "1", "--per-consumer", "1", "--impact", "no.json"], "cannot be read"),
    ],
)
def test_bad_words(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", *args]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_is_no_impact_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "impact.json"
    for text in (
        "{",
        "[]",
        "{}",
        '{"candidates": 3}',
        '{"candidates": [], "source": 1}',
        '{"candidates": [], "bytes": "x"}',
        '{"candidates": [{"partitions": "x", "max_partition_share": 1}]}',
        '{"candidates": [{"partitions": -1, "max_partition_share": 1}]}',
        '{"candidates": [{"partitions": 3, "max_partition_share": NaN}]}',
        '{"candidates": [], "source": []}',
        '{"candidates": [], "records": "a", "bytes": 2}',
        '{"candidates": [], "records": 1, "bytes": -2}',
        '{"candidates": [], "top_keys": [{"share": 7}]}',
    ):
        file.write_text(text)
        assert run(["size", "--throughput", "1", "--per-consumer", "1", "--impact", str(file)]) == 2
    file.write_text(json.dumps({"candidates": [{"partitions": 2, "max_partition_share": 0.5}], "top_keys": []}))
    assert run(["size", "--throughput", "2", "--per-consumer", "1", "--headroom", "0", "--impact", str(file)]) == 0


@pytest.mark.parametrize(("changes", "wanted"), [({}, 0), ({"topic": "other"}, 2), ({"topic_id": "old"}, 2)])
def test_a_report_of_another_topic_is_refused(
    changes: dict, wanted: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from topicshift.adapters.kafka import admin

    cluster = FakeCluster()
    cluster.create_topic("t", 2, 1, {})
    monkeypatch.setattr(admin, "KafkaAdmin", lambda _: contextlib.nullcontext(cluster))
    info = cluster.topic("t")
    assert info is not None
    file = tmp_path / "impact.json"
    file.write_text(json.dumps({"topic": "t", "topic_id": info.topic_id, "candidates": []} | changes))
    args = ["--topic", "t", "--throughput", "2", "--per-consumer", "1", "--impact", str(file)]
    assert run(["size", *args, "--bootstrap-server", "b:1"]) == wanted
    assert ("is of " in capsys.readouterr().err) is (wanted == 2)
