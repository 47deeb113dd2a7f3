"""What an executor computes, against a plain loop over the records; no Spark needed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import confluent_kafka
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.impact_scan_plain import Record, scan

from topicshift.core.impact.fingerprint import rules_at
from topicshift.core.impact.partitioning import RULES, partition_of
from topicshift_spark.impact_figures import without_empty_key
from topicshift_spark.impact_query import packing
from topicshift_spark.impact_scan import Packing, ScanPlan


def plan_for(
    partitions: int, candidates: tuple[int, ...], *, slices: int = 3, replicates: int = 1, top: int = 5
) -> ScanPlan:
    rules = tuple((r.name, r.partitions) for r in rules_at(partitions))
    return ScanPlan(partitions, candidates, rules, packing(3, 1000), replicates, top)


keys = st.one_of(st.none(), st.just(b""), st.binary(max_size=12), st.sampled_from([b"a", b"b", b"c", "ä".encode()]))
records_of = st.lists(
    st.tuples(keys, st.integers(0, 4), st.integers(0, 2), st.integers(0, 90), st.booleans(), st.integers(0, 2)),
    max_size=80,
)


@settings(max_examples=40)
@given(records_of, st.integers(1, 3))
def test_every_sum_equals_a_plain_loop(records: list[Record], tasks: int) -> None:
    plan = plan_for(5, (3, 7, 10), replicates=3)
    sums = scan(records, plan, tasks)
    keyed = [r for r in records if r[0] is not None]
    assert sums.records.sum() == len(records)
    assert sums.null_keys.sum() == len(records) - len(keyed)
    assert sums.empty_keys.sum() == sum(r[0] == b"" for r in records)
    assert sums.tombstones.tolist() == [sum(r[4] for r in records if r[2] == g) for g in range(3)]
    assert sums.value_bytes.sum() == sum(r[3] + len(r[0] or b"") for r in records)
    assert sums.keyed.tolist() == [[sum(r[1] == p and r[2] == g for r in keyed) for p in range(5)] for g in range(3)]
    assert sums.slices.sum(axis=0).tolist() == [sum(r[5] == s for r in keyed) for s in range(3)]
    keyless = [r for r in records if r[0] is None]
    assert sums.null_slices.tolist() == [
        [sum(r[2] == g and r[5] == s for r in keyless) for s in range(3)] for g in range(3)
    ]
    assert sums.null_bytes.tolist() == [sum(r[3] for r in keyless if r[2] == g) for g in range(3)]
    distinct = {r[0] for r in keyed}
    assert sums.keys.seen == len(distinct)
    lies_in = defaultdict(set)
    shows_in = defaultdict(set)
    for r in keyed:
        lies_in[r[0]].add(r[1])
        shows_in[r[0]].add(r[2])
    assert sums.several == sum(len(p) > 1 for p in lies_in.values())
    assert sums.keys.once.tolist() == [sum(s == {g} for s in shows_in.values()) for g in range(3)]
    assert sums.keys.twice == sum(len(s) == 2 for s in shows_in.values())
    for c, m in enumerate(plan.candidates):
        now = {k: confluent_kafka.murmur2(k, 5) for k in distinct}
        then = {k: confluent_kafka.murmur2(k, m) for k in distinct}
        assert sums.moved_keys[c].seen == sum(now[k] != then[k] for k in distinct)
        assert sums.moved_records[c].sum() == sum(now[r[0]] != then[r[0]] for r in keyed)
        assert sums.relocated[c].sum() == sum(then[r[0]] != r[1] for r in keyed)
        placed = Counter(then[r[0]] for r in keyed)
        assert sums.placed[c].sum(axis=0).tolist() == [placed[p] for p in range(m)]
        size = Counter()
        for r in keyed:
            size[then[r[0]]] += r[3] + len(r[0])
        assert sums.placed_bytes[c].sum(axis=0).tolist() == [size[p] for p in range(m)]
    for bit, rule in enumerate(RULES):
        explained = sum(int(n.sum()) for mask, (_, n) in sums.buckets.items() if mask >> bit & 1)
        # No rule is judged by empty keys: one client spreads them.
        assert explained == sum(partition_of(rule.name, r[0], 5) == r[1] for r in keyed if r[0]), rule.name
    empty = [r for r in records if r[0] == b""]
    assert sums.empty_bytes.sum() == sum(r[3] for r in empty)
    assert sums.empty_slices.sum(axis=0).tolist() == [sum(r[5] == s for r in empty) for s in range(3)]
    assert sums.strays.seen <= len({r[:2] for r in keyed if r[0]})


@settings(max_examples=40)
@given(records_of, st.integers(1, 3))
def test_empty_keys_that_are_spread_count_as_no_key_where_a_key_places(records: list[Record], tasks: int) -> None:
    plan = plan_for(5, (3, 7, 10), replicates=3)
    found = without_empty_key(scan(records, plan, tasks), plan)
    wanted = scan([(r[0] or None, *r[1:]) for r in records], plan, tasks)
    for name in ("keyed", "keyed_bytes", "moved_records", "relocated"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name
    for name in ("placed", "placed_bytes"):
        assert [x.tolist() for x in getattr(found, name)] == [x.tolist() for x in getattr(wanted, name)], name
    for mine, theirs in zip([found.keys, *found.moved_keys], [wanted.keys, *wanted.moved_keys], strict=True):
        assert (mine.seen, mine.once.tolist(), mine.twice) == (theirs.seen, theirs.once.tolist(), theirs.twice)
    assert found.several == wanted.several
    largest = [sorted((t[0] for t in sums.top), reverse=True)[: plan.top] for sums in (found, wanted)]
    assert largest[0] == largest[1]
    assert all(t[2] for t in found.top)


@settings(max_examples=40)
@given(records_of)
def test_the_largest_keys_are_exact(records: list[Record]) -> None:
    plan = plan_for(5, (7,), replicates=3, top=3)
    sums = scan(records, plan, 2)
    counts = Counter(r[0] for r in records if r[0] is not None)
    sizes: Counter[bytes] = Counter()
    for r in records:
        if r[0] is not None:
            sizes[r[0]] += r[3] + len(r[0])
    for records_, size, key, partitions, per_replicate in sums.top:
        assert counts[key] == records_ == sum(per_replicate[0])
        assert sizes[key] == size == sum(per_replicate[1])
        assert partitions == sorted({r[1] for r in records if r[0] == key})
    wanted = sorted(counts.values(), reverse=True)[:3]
    assert sorted((t[0] for t in sums.top), reverse=True)[: len(wanted)] == wanted
    largest = sorted(sizes.values(), reverse=True)[:3]
    assert sorted((t[1] for t in sums.top), reverse=True)[: len(largest)] == largest


def schema_id(key: bytes) -> int | None:
    """In the plainest way."""
    if len(key) <= 5 or len(key) == 8 or key[0] != 0:
        return None
    return int.from_bytes(key[1:5], "big") or None


def test_schema_ids_count_keys_once_and_records_all() -> None:
    rng = random.Random(4)
    made = [b"\x00" + (7 if i % 3 else 9).to_bytes(4, "big") + b"key-%d" % i for i in range(60)]
    assert all(schema_id(k) in (7, 9) for k in made)
    records: list[Record] = [(rng.choice(made), rng.randrange(5), 0, 1, False, 0) for _ in range(500)]
    sums = scan(records, plan_for(5, (7,)), 2)
    used = {r[0] for r in records}
    assert sums.schema_ids == {
        i: [sum(schema_id(k) == i for k in used), sum(schema_id(r[0]) == i for r in records)] for i in (7, 9)
    }


@pytest.mark.parametrize(("slices", "largest"), [(1, 1), (8, 1000), (8, 2**21 - 1), (8, 2**30), (3, 2**40)])
def test_packed_counters_hold_the_largest_count_in_every_field(slices: int, largest: int) -> None:
    pack = packing(slices, largest)
    assert pack.per_long >= 1
    longs = [0] * pack.longs
    for number in range(pack.fields):
        longs[number // pack.per_long] += largest << pack.bits * (number % pack.per_long)
    assert max(longs) < 2**63
    unpacked = pack.unpack([np.array([x], np.int64) for x in longs])
    assert unpacked.tolist() == [[largest] * pack.fields]


def test_packing_of_few_bits() -> None:
    assert Packing(9, 20).longs == 3


def test_a_topic_without_records_gives_zeroes() -> None:
    sums = scan([], plan_for(3, (6,)))
    assert sums.records.tolist() == [[0, 0, 0]]
    assert sums.keys.seen == 0
    assert sums.moved_keys[0].seen == 0


def test_null_keys_only() -> None:
    sums = scan([(None, p, 0, 5, False, 0) for p in (0, 1, 1, 2)], plan_for(3, (6,)))
    assert sums.null_keys.tolist() == [[1, 2, 1]]
    assert sums.keyed.sum() == 0
    assert sums.keys.seen == 0
    assert sums.top == []
