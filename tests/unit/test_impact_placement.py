"""After the switch: the target's partitions beside the prediction, and what is said of those that stay empty."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.impact_sample import impact
from tests.unit.test_run_report import evidence, order_proof, side

from topicshift.core.impact.placement import Placement, placement
from topicshift.core.impact.report import Impact
from topicshift.reporting.run_report import render
from topicshift.reporting.run_view import build

M = 12


def sent(records: int, count: int = M, partitions: int = M, seed: int = 1) -> dict[int, int]:
    """Records of the sample's keys as a client of murmur2 places them over ``count`` of the target's partitions."""
    rng = random.Random(seed)
    rows = impact(counts=(count,)).candidates[0].partition_records
    placed = Counter(rng.choices(range(count), rows, k=records))
    return {p: placed[p] for p in range(partitions)}


def told(report: Impact, **part: Any) -> dict[str, Any]:
    return report.model_copy(update={"partitioner": report.partitioner.model_copy(update=part)}).to_json()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20_000), st.integers(0, 99))
def test_a_target_that_fills_as_predicted_is_never_called_off(records: int, seed: int) -> None:
    found = placement(impact().to_json(), sent(records, seed=seed))
    assert (found.off, found.unread) == ([], [])
    assert found.missed == []
    assert found.empty == [s.partition for s in found.shares if not s.records]
    assert found.holds is (True if records else None)
    assert sum(s.predicted or 0 for s in found.shares) == pytest.approx(1)


@pytest.mark.parametrize("old", [4, 6])
def test_partitions_that_an_old_count_leaves_empty_are_named(old: int) -> None:
    found = placement(impact().to_json(), sent(5000, old))
    assert found.missed == found.empty == list(range(old, M))
    assert found.holds is False
    assert f"a partition count of {old} in its configuration" in found.sentence()
    assert f"Nothing is in partitions {old}-11, for" in found.sentence()


def test_a_partition_that_nobody_writes_to_and_one_that_everybody_does() -> None:
    ends = sent(5000)
    ends[3] = 0
    found = placement(impact().to_json(), ends)
    assert (found.missed, found.off) == ([3], [])
    assert "no key that belongs there" in found.sentence()
    ends[3], ends[5] = 400, 60_000
    found = placement(impact().to_json(), ends)
    assert 5 in found.off and found.holds is False
    assert "Partition 5 has" in found.sentence()


def test_few_records_are_too_few_to_say_more_than_that_a_partition_is_empty() -> None:
    ends = dict.fromkeys(range(M), 0) | {2: 15}
    found = placement(impact().to_json(), ends)
    assert (len(found.empty), found.missed, found.off, found.holds) == (M - 1, [], [], True)
    assert "yet" in found.sentence()


@pytest.mark.parametrize(
    ("report", "ends", "says"),
    [
        (impact().to_json(), dict.fromkeys(range(M), 0), "Nothing was written"),
        (impact().to_json(), dict.fromkeys(range(13), 9), "not measured for 13"),
        (told(impact(), name="consistent"), sent(900), "placed by consistent"),
        (told(impact(), name="murmur2", verdict="fixed_count"), sent(900), "murmur2 over the target's count"),
        (told(impact(mixture=True)), sent(900), "no one rule"),
        ({}, sent(900), "not measured for 12"),
    ],
)
def test_what_cannot_be_compared_is_no_yes(report: dict[str, Any], ends: dict[int, int], says: str) -> None:
    found = placement(report, ends)
    assert found.holds is None and says in found.sentence()
    assert (found.missed, found.off) == ([], [])
    assert found.empty == [p for p, n in ends.items() if not n]


def test_offsets_that_could_not_be_read_are_not_zero() -> None:
    found = placement(impact().to_json(), {**sent(900), 4: None})
    assert (found.unread, found.empty, found.holds) == ([4], [], None)
    assert "partitions 4 are not known" in found.sentence()


def test_records_that_no_key_places_are_expected_everywhere() -> None:
    base = impact()
    total = base.keyed_records
    report = base.model_copy(
        update={
            "null_keys": total,
            "empty_keys": total,
            "partitioner": base.partitioner.model_copy(update={"null_keys": "spread", "empty_keys": "spread"}),
        }
    )
    found = placement(report.to_json(), dict.fromkeys(range(M), 100))
    keyed = base.candidates[0].partition_records
    assert [s.predicted for s in found.shares] == pytest.approx([(n / total + 2 / M) / 3 for n in keyed])


def shown(ends: dict[int, int], report: Impact) -> tuple[Placement, str]:
    ranges = {p: (0, n) for p, n in ends.items()}
    files = evidence() | {
        "impact.json": json.dumps(report.to_json()).encode(),
        "order_proof.json": order_proof(target=side("payments-v2", M, sum(ends.values()), ranges=ranges)),
    }
    view = build(files)
    assert view.placement is not None and not view.unreadable
    return view.placement, render(files)


def test_the_runs_report_names_empty_partitions() -> None:
    view, page = shown(sent(5000, 4), impact())
    assert view["odd"] >= set(range(4, M))
    assert "not as predicted" in page and "a partition count of 4 in its configuration" in page
    assert page.count(">empty<") == M - 4
    view, page = shown(sent(5000), impact())
    assert "as predicted" in page and "not as predicted" not in page


@pytest.mark.parametrize("broken", [{"candidates": 5}, {"candidates": [{"partitions": M}]}, {"partitioner": [1]}])
def test_an_impact_that_makes_no_sense_hides_nothing_else(broken: dict[str, Any]) -> None:
    files = evidence() | {
        "impact.json": json.dumps(impact().to_json() | broken).encode(),
        "order_proof.json": order_proof(target=side("payments-v2", M, 120)),
    }
    view = build(files)
    assert view.placement is None and view.checks
    assert any("impact.json" in text for text in view.unreadable)
