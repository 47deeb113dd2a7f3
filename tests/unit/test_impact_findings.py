"""Findings about records without a key, and about keys that are shown as they are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.impact_sample import N, impact

from topicshift.core.findings import Finding
from topicshift.core.impact.findings import findings
from topicshift.core.impact.partitioning import RULES
from topicshift.core.impact.report import GroupImpact, Impact, Kind, Overtaken, Writer


def one(report: Impact, code: str) -> Finding:
    found = [f for f in findings(report, 0.005) if f.code == code]
    assert len(found) == 1, [f.code for f in findings(report, 0.005)]
    return found[0]


def with_null_keys(sure: bool, per_partition: list[int], **changes: Any) -> Impact:
    """The sample report without its keys, all its records as ``per_partition`` says."""
    base = impact()
    records = sum(per_partition)
    return base.model_copy(
        update={
            "kind": Kind.UNKEYED,
            "records": records,
            "null_keys": records,
            "keyed_records": 0,
            "partitioner": base.partitioner.model_copy(
                update={
                    "null_keys": "one_partition" if per_partition.count(0) == N - 1 else "spread",
                    "null_keys_sure": sure,
                }
            ),
            "source": base.source.model_copy(
                update={
                    "partition_records": per_partition,
                    "keyed_partition_records": [0] * N,
                    "hot_partitions": [p for p, n in enumerate(per_partition) if n > records * 0.3],
                }
            ),
            **changes,
        }
    )


@pytest.mark.parametrize("sure", [True, False])
def test_keyless_records_in_one_partition_claim_no_more_than_is_known(sure: bool) -> None:
    report = with_null_keys(sure, [0, 500, 0, 0, 0, 0])
    finding = one(report, "TS716")
    assert finding.level == ("warning" if sure else "info")
    assert ("too few bursts" in finding.seen) is not sure
    hot = one(report, "TS704")
    assert "largest keys" not in hot.do
    assert ("a burst" in hot.do) is not sure
    assert "100% of them without a key" in hot.seen


def test_a_hot_partition_without_keys_is_not_blamed_on_one() -> None:
    report = with_null_keys(True, [900, 20, 20, 20, 20, 20])
    assert "No key is the cause" in one(report, "TS704").do
    assert "TS716" not in {f.code for f in findings(report, 0.005)}


def test_a_hot_partition_of_keys_points_to_the_largest_ones() -> None:
    report = impact(hot_share=0.5)
    assert report.source.hot_partitions
    assert "largest keys" in one(report, "TS704").do


def test_shown_keys_are_said_with_the_name_of_who_asked() -> None:
    report = impact()
    assert "TS715" not in {f.code for f in findings(report, 0.005)}
    shown = report.measured.model_copy(update={"keys_shown": True, "keys_shown_to": "ada"})
    assert "as ada asked" in one(report.model_copy(update={"measured": shown}), "TS715").seen


def told(**part: Any) -> Impact:
    """The sample report with these fields of its partitioner."""
    base = impact()
    return base.model_copy(update={"partitioner": base.partitioner.model_copy(update=part)})


@pytest.mark.parametrize(
    ("name", "where", "sure", "level", "says"),
    [
        ("consistent", "spread", True, "info", "spread over partitions"),
        ("murmur2", "spread", True, "warning", "spread over partitions"),
        (None, "spread", True, "info", "spread over partitions"),
        ("murmur2", "hashed", True, "info", "puts an empty key"),
        ("consistent", "hashed", False, "info", "too few bursts"),
        ("consistent", "one_partition", False, "info", "too few bursts"),
        ("murmur2", "one_partition", True, "warning", "not where the rule"),
    ],
)
def test_empty_keys_have_a_finding_of_their_own(
    name: str | None, where: str, sure: bool, level: str, says: str
) -> None:
    finding = one(told(name=name, empty_keys=where, empty_keys_sure=sure), "TS717")
    assert (finding.level, says in finding.seen) == (level, True)
    assert ("a client other than that of" in finding.why) is (level == "warning")


def test_an_empty_key_that_is_spread_is_no_key_in_several_partitions() -> None:
    base = impact(keys_in_several_partitions=1)
    for where, several in (("hashed", True), ("spread", False)):
        report = base.model_copy(update={"partitioner": base.partitioner.model_copy(update={"empty_keys": where})})
        assert ("TS707" in {f.code for f in findings(report, 0.005)}) is several
    two = base.model_copy(update={"keys_in_several_partitions": 2, "partitioner": report.partitioner})
    assert one(two, "TS707").seen.startswith("1 of ")


def test_a_hash_of_an_applications_own_is_sent_to_look_for_its_count() -> None:
    for name in (r.name for r in RULES if r.hash.startswith("java")):
        finding = one(told(name=name), "TS710")
        assert f"count {N} in the application" in finding.do
        assert "murmur2_random" not in finding.line()
    assert "murmur2_random" in one(told(name="fnv1a"), "TS710").do
    at_four = [Writer(name="murmur2", partitions=4, share=1.0, first_slice=0, last_slice=5)]
    finding = one(told(verdict="fixed_count", writers=at_four), "TS710")
    assert "count 4" in finding.do and "grown from 4 since" in finding.why
    assert "when the topic had" not in finding.line()
    mixed = told(name=None, verdict="mixture", writers=[*at_four, at_four[0].model_copy(update={"partitions": N})])
    assert "murmur2 at 4 partitions" in one(mixed, "TS701").seen


@pytest.mark.parametrize(("partition", "grown"), [(3, False), (0, True)])
def test_one_partition_for_all_keys_is_called_a_constant(partition: int, grown: bool) -> None:
    unexplained = {"name": None, "unexplained_share": 0.8, "constant_partition": partition}
    finding = one(told(verdict="constant", **unexplained), "TS702")
    assert f"All of them lie in partition {partition}" in finding.seen
    assert ("had one partition" in finding.seen) is grown
    assert f"These lie in partition {partition}" in one(told(verdict="mixture", **unexplained), "TS702").seen


def test_a_person_who_migrates_is_not_told_to_migrate() -> None:
    finding = one(impact(), "TS713")
    assert (finding.level, finding.do.startswith("Nothing for a migration.")) == ("info", True)


def test_one_finding_names_the_groups_that_are_furthest_behind() -> None:
    def group(name: str, unread: int, overtaken: int) -> GroupImpact:
        moved = [Overtaken(partitions=12, records=overtaken // 2), Overtaken(partitions=30, records=overtaken)]
        return GroupImpact(group=name, unread=unread, never_committed=[], overtaken=moved)

    groups = [group("done", 0, 0), *(group(f"g{i}", 1000 * i, 700 * i) for i in range(1, 9))]
    finding = one(impact(groups=groups), "TS713")
    assert "g8 5,600 of 8,000 unread, with 30 partitions; g7" in finding.seen
    assert "and 3 groups more" in finding.seen
    assert "done" not in finding.seen
    assert "TS713" not in {f.code for f in findings(impact(groups=groups[:1]), 0.005)}
