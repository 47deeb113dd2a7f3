"""Findings about records without a key, and about keys that are shown as they are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.impact_sample import N, impact

from topicshift.core.findings import Finding
from topicshift.core.impact.findings import findings
from topicshift.core.impact.report import GroupImpact, Impact, Kind, Overtaken


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
