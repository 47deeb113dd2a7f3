"""Empty keys are judged apart, whatever their share: spread by one client, hashed by all others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.impact_scan_plain import Record, scan

from topicshift.core.impact.fingerprint import rules_at
from topicshift.core.impact.report import Partitioner
from topicshift_spark.impact_figures import Figures, KeyNames
from topicshift_spark.impact_query import packing
from topicshift_spark.impact_ranges import SLICES
from topicshift_spark.impact_scan import ScanPlan

N = 6
COUNTS = (4, 12)
MINUTES = [60_000 * i for i in range(SLICES + 1)]
CLIENTS: dict[str, Callable[[bytes, int], int]] = {
    "consistent": confluent_kafka.consistent,
    "murmur2": confluent_kafka.murmur2,
    "fnv1a": confluent_kafka.fnv1a,
}


def figures(records: list[Record]) -> tuple[Figures, Partitioner]:
    rules = tuple((r.name, r.partitions) for r in rules_at(N))
    plan = ScanPlan(N, COUNTS, rules, packing(SLICES, 10_000), 1, 5)
    found = Figures(scan(records, plan, 2), plan, 1.0, KeyNames(None))
    return found, found.partitioner(0.005, MINUTES)


def customers(name: str, count: int = 600) -> list[Record]:
    rng = random.Random(4)
    keys = [b"customer-%d" % rng.randrange(100) for _ in range(count)]
    return [(k, CLIENTS[name](k, N), 0, 20, False, i * SLICES // count) for i, k in enumerate(keys)]


def predicted(found: Figures) -> list[dict[str, Any]]:
    return [found.candidate(c).model_dump() for c in range(len(COUNTS))]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(CLIENTS)), st.lists(st.integers(0, N - 1), min_size=1, max_size=400), st.booleans())
def test_no_share_of_empty_keys_hides_the_rule(name: str, places: list[int], spread: bool) -> None:
    plain = customers(name)
    home = CLIENTS[name](b"", N)
    empty = [(b"", p if spread else home, 0, 7, False, i % SLICES) for i, p in enumerate(places)]
    without, alone = figures(plain)
    found, part = figures([*plain, *empty])
    assert (part.name, part.fit, part.by_name, part.rules) == (name, 1.0, alone.by_name, alone.rules)
    assert found.totals()["keyed_records"] == len(plain) + len(empty)
    if len(set(places)) > 1 and spread:
        assert part.empty_keys == "spread"
        assert predicted(found) == predicted(without)
        assert found.limits() == without.limits()
        assert found.source().keyed_partition_records == without.source().keyed_partition_records
    if not spread:
        assert part.empty_keys == "hashed"
        for c, m in enumerate(COUNTS):
            then = list(without.candidate(c).partition_records)
            then[confluent_kafka.murmur2(b"", m)] += len(empty)
            assert found.candidate(c).partition_records == then


@pytest.mark.parametrize(
    ("name", "places", "where", "sure"),
    [
        # Every client of murmur2 and FNV-1a hashes an empty key, so few of them are enough.
        ("murmur2", [confluent_kafka.murmur2(b"", N)], "hashed", True),
        ("fnv1a", [confluent_kafka.fnv1a(b"", N)], "hashed", True),
        # Of CRC32 one client hashes it, and one spreads it in bursts: one burst may lie anywhere.
        ("consistent", [0], "hashed", False),
        ("consistent", [4] * 300, "one_partition", False),
        ("consistent", [0] * 8000, "hashed", True),
        ("consistent", [4] * 8000, "one_partition", True),
        ("murmur2", [(confluent_kafka.murmur2(b"", N) + 1) % N] * 300, "one_partition", False),
        ("murmur2", [], "none", True),
        # A stray one beside a thousand does not make them spread.
        (
            "murmur2",
            [confluent_kafka.murmur2(b"", N)] * 1000 + [(confluent_kafka.murmur2(b"", N) + 1) % N],
            "hashed",
            True,
        ),
    ],
)
def test_where_empty_keys_lie_and_whether_that_is_sure(name: str, places: list[int], where: str, sure: bool) -> None:
    empty = [(b"", p, 0, 10, False, i % SLICES) for i, p in enumerate(places)]
    _, part = figures([*customers(name), *empty])
    assert (part.name, part.empty_keys, part.empty_keys_sure) == (name, where, sure)


def test_empty_keys_alone_name_no_rule() -> None:
    found, part = figures([(b"", i % N, 0, 10, False, i % SLICES) for i in range(60)])
    assert (part.name, part.fit, part.verdict, part.empty_keys) == (None, None, "none", "spread")
    assert found.limits().hottest_key_share is None
    assert [c["max_partition_share"] for c in predicted(found)] == [None, None]
    assert [c["moved_records"] for c in predicted(found)] == [0, 0]
