"""The fingerprint over simulated topics: one writer, mixtures, a client that changed, earlier partition counts."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from topicshift.core.impact.fingerprint import (
    Bucket,
    Observed,
    RuleAt,
    chances,
    earlier_counts,
    fingerprint,
    names_to_try,
    rules_at,
    spread,
    sure_of_one,
)
from topicshift.core.impact.partitioning import RULE, RULES, hash_keys, partition_of
from topicshift.core.impact.report import Partitioner

Write = tuple[bytes, int, int]  # key, partition, slice


def observe(writes: Sequence[Write], n: int, earlier: Sequence[RuleAt] = (), slices: int = 4) -> Observed:
    rules = rules_at(n, earlier)
    pairs: dict[tuple[bytes, int], list[int]] = defaultdict(lambda: [0] * slices)
    for key, partition, at in writes:
        pairs[key, partition][at] += 1
    buckets: dict[int, tuple[int, list[int]]] = {}
    lies_in = defaultdict(set)
    for (key, partition), records in pairs.items():
        lies_in[key].add(partition)
        mask = sum((partition_of(r.name, key, r.partitions) == partition) << i for i, r in enumerate(rules))
        count, total = buckets.get(mask, (0, [0] * slices))
        buckets[mask] = (count + 1, [a + b for a, b in zip(total, records, strict=True)])
    return Observed(
        n,
        rules,
        {m: Bucket(c, [r]) for m, (c, r) in buckets.items()},
        several=sum(len(p) > 1 for p in lies_in.values()),
        distinct=len(lies_in),
    )


def written(place: Callable[[bytes, int], int], *, keys: int = 600, records: int = 4000, seed: int = 1) -> list[Write]:
    """Records in order of time; ``place(key, i)`` is the partition of record i."""
    rng = random.Random(seed)
    out = []
    for i in range(records):
        key = f"kunde-{rng.randrange(keys)}".encode()
        out.append((key, place(key, i), i * 4 // records))
    return out


def at(name: str, n: int) -> Callable[[bytes, int], int]:
    def place(key: bytes, _: int) -> int:
        found = partition_of(name, key, n)
        assert found is not None
        return found

    return place


def judge(writes: Sequence[Write], n: int, **options: float) -> Partitioner:
    return fingerprint(observe(writes, n), **options)


@pytest.mark.parametrize("n", [6, 7, 12, 25])
@pytest.mark.parametrize("name", [r.name for r in RULES])
def test_a_single_writer_is_named(name: str, n: int) -> None:
    part = judge(written(at(name, n)), n)
    assert part.name == name
    assert part.verdict == "single"
    assert part.fit == 1.0
    assert part.by_name[name] == 1.0
    assert part.unexplained_share == 0
    assert part.sure
    others = [share for other, share in part.by_name.items() if RULE[other].hash != RULE[name].hash]
    # java_string and java_bytes are both 31-polynomials of ASCII keys and share low bits at some counts
    assert sorted(others)[len(others) // 2] < 2.5 / n


def test_at_a_power_of_two_the_rules_that_agree_are_listed() -> None:
    part = judge(written(at("murmur2", 16)), 16)
    assert part.name == "murmur2"
    assert "murmur2_unsigned" in part.same_as


@pytest.mark.parametrize("share", [0.9, 0.7])
def test_mixtures_are_an_error_without_a_name(share: float) -> None:
    rng = random.Random(3)
    n = 12
    java, c = at("murmur2", n), at("consistent", n)
    part = judge(written(lambda k, i: (java if rng.random() < share else c)(k, i)), n)
    assert part.name is None
    assert part.verdict == "mixture"
    assert [w.name for w in part.writers] == ["murmur2", "consistent"]
    assert part.by_name["murmur2"] == pytest.approx(share + (1 - share) / n, abs=0.03)
    assert part.by_name["consistent"] == pytest.approx(1 - share + share / n, abs=0.03)
    assert part.unexplained_share == 0
    assert [(w.first_slice, w.last_slice) for w in part.writers] == [(0, 3), (0, 3)]


def test_three_writers() -> None:
    n = 12
    places = [at("murmur2", n), at("consistent", n), at("fnv1a_mask", n)]
    part = judge(written(lambda k, i: places[(i % 10 > 4) + (i % 10 > 7)](k, i)), n)
    assert {w.name for w in part.writers} == {"murmur2", "consistent", "fnv1a_mask"}
    assert part.verdict == "mixture"


def test_a_client_that_changed_half_way_shows_in_the_slices() -> None:
    n = 12
    old, new = at("consistent", n), at("murmur2", n)
    part = judge(written(lambda k, i: (old if i < 2000 else new)(k, i)), n)
    assert part.verdict == "mixture"
    by_slice = {r.name: r.by_slice for r in part.rules}
    assert by_slice["consistent"][0] == by_slice["consistent"][1] == 1.0
    assert by_slice["murmur2"][2] == by_slice["murmur2"][3] == 1.0
    assert max(by_slice["murmur2"][:2]) < 0.2
    seen = {w.name: (w.first_slice, w.last_slice) for w in part.writers}
    assert seen == {"consistent": (0, 1), "murmur2": (2, 3)}


def test_less_than_the_share_allowed_does_not_count_as_a_second_writer() -> None:
    n = 12
    java, c = at("murmur2", n), at("consistent", n)
    writes = written(lambda k, i: (c if i % 100 == 0 else java)(k, i))
    assert judge(writes, n, max_unexplained=0.02).name == "murmur2"
    assert judge(writes, n, max_unexplained=0.001).name is None


def test_a_rule_of_ones_own_is_custom_and_round_robin_is_scattered() -> None:
    assert judge(written(lambda k, _: sum(k) % 12), 12).verdict == "custom"
    scattered = judge(written(lambda _, i: i % 12), 12)
    assert scattered.verdict == "scattered"
    assert scattered.name is None
    assert scattered.unexplained_share > 0.5


def test_part_of_the_records_by_hand() -> None:
    java = at("murmur2", 12)
    part = judge(written(lambda k, i: java(k, i) if i % 5 else 3), 12)
    assert part.name is None
    assert part.unexplained_share == pytest.approx(0.2 * 11 / 12, abs=0.02)


def hashed(keys: Sequence[bytes]) -> object:
    return hash_keys(np.frombuffer(b"".join(keys), np.uint8), np.cumsum([0, *map(len, keys)]))


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [(6, 12, 0.5), (4, 10, 0.3), (12, 30, 0.8), (5, 6, 0.05), (1, 12, 0.5), (1, 2, 0.4), (1, 12, 0.95), (1, 6, 0.05)],
)
def test_records_from_before_an_in_place_increase_are_recognised(before: int, after: int, share: float) -> None:
    old, new = at("murmur2", before), at("murmur2", after)
    writes = written(lambda k, i: (old if i < 4000 * share else new)(k, i))
    first = judge(writes, after)
    assert first.name is None
    counts = Counter(w[:2] for w in writes)
    pairs, weights = list(counts), np.array(list(counts.values()))
    where = np.array([p for _, p in pairs])
    found = earlier_counts(hashed([k for k, _ in pairs]), where, weights, after, ["murmur2", "consistent"])
    assert found == [RuleAt("murmur2", before)]
    part = fingerprint(observe(writes, after, found))
    assert part.name == "murmur2"
    assert part.verdict == "earlier_increase"
    assert part.fit == 1.0
    assert part.earlier_counts == [before]
    assert part.unexplained_share == 0


def test_two_earlier_increases_the_first_from_one_partition() -> None:
    counts = [1] * 7 + [4] + [12] * 2
    writes = written(lambda k, i: at("murmur2", counts[i * 10 // 4000])(k, i))
    pairs = Counter(w[:2] for w in writes)
    found = earlier_counts(
        hashed([k for k, _ in pairs]), np.array([p for _, p in pairs]), np.array(list(pairs.values())), 12, ["murmur2"]
    )
    part = fingerprint(observe(writes, 12, found))
    assert (part.verdict, part.name, part.fit) == ("earlier_increase", "murmur2", 1.0)
    assert part.earlier_counts == [1, 4]


@pytest.mark.parametrize("n", [2, 12])
def test_a_client_that_names_partition_0_is_no_earlier_increase(n: int) -> None:
    """The same partitions as of a topic that once had one, but at the same time as all others."""
    writes = written(lambda k, i: 0 if i % 3 == 0 else at("murmur2", n)(k, i))
    part = fingerprint(observe(writes, n, [RuleAt("murmur2", 1)]))
    assert part.name is None and part.earlier_counts == []
    assert part == fingerprint(observe(writes, n))
    only = [(key, 0, slice_) for key, _, slice_ in writes]
    assert fingerprint(observe(only, 12, [RuleAt("murmur2", 1)])).earlier_counts == []
    at_once = [(key, partition, 0) for key, partition, _ in writes]
    assert fingerprint(observe(at_once, n, [RuleAt("murmur2", 1)])).earlier_counts == []


def refined(writes: list[Write], n: int) -> Partitioner:
    """As the job does it: look for other counts in what today's rules leave, then judge with these."""
    first = observe(writes, n)
    explained = [sum(b.total for mask, b in first.buckets.items() if mask >> i & 1) for i in range(len(RULES))]
    names = names_to_try(explained, len(writes), n)
    pairs = Counter(w[:2] for w in writes)
    where, weights = np.array([p for _, p in pairs]), np.array(list(pairs.values()))
    other = earlier_counts(hashed([k for k, _ in pairs]), where, weights, n, names)
    return fingerprint(observe(writes, n, other))


@pytest.mark.parametrize("n", [6, 12, 13])
@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("name", ["murmur2", "consistent", "java_hashcode_mask", "java_bytes_hashcode_abs"])
def test_a_count_that_no_larger_one_follows_is_somebodys_own(name: str, count: int, n: int) -> None:
    part = refined(written(at(name, count)), n)
    assert part.verdict == "fixed_count"
    assert (RULE[part.name or ""].hash, part.fit, part.earlier_counts) == (RULE[name].hash, 1.0, [])
    assert [w.partitions for w in part.writers] == [count]
    assert part.sure


def test_two_counts_at_the_same_time_are_two_applications() -> None:
    both = [at("murmur2", 4), at("murmur2", 12)]
    part = refined(written(lambda k, i: both[i % 2](k, i)), 12)
    assert (part.verdict, part.name, part.earlier_counts) == ("mixture", None, [])
    assert {(w.name, w.partitions) for w in part.writers} == {("murmur2", 4), ("murmur2", 12)}
    one_after_the_other = refined(written(lambda k, i: both[i > 1300](k, i)), 12)
    assert (one_after_the_other.verdict, one_after_the_other.earlier_counts) == ("earlier_increase", [4])


def test_the_first_records_after_an_increase_tell_that_it_was_one() -> None:
    counts = [at("murmur2", 4), at("murmur2", 12)]
    writes = written(lambda k, i: counts[i > 3950](k, i))
    part = fingerprint(observe(writes, 12, [RuleAt("murmur2", 4)]), max_unexplained=0.02)
    assert (part.verdict, part.name, part.earlier_counts) == ("earlier_increase", "murmur2", [4])


def test_few_keys_of_a_rule_of_ones_own_agree_with_no_rule_at_some_other_count() -> None:
    for seed in range(20):
        writes = written(lambda k, _: k[-1] * 7 % 11, keys=15, records=60, seed=seed)
        pairs = sorted({w[:2] for w in writes})
        where = np.array([p for _, p in pairs])
        names = names_to_try([0] * len(RULES), len(writes), 12)
        assert earlier_counts(hashed([k for k, _ in pairs]), where, np.ones(len(pairs)), 12, names) == []


def test_all_keys_in_one_partition_are_a_constant() -> None:
    seen = observe(written(lambda _k, _i: 3), 12)
    everything = dataclasses.replace(seen, in_partition=[0, 0, 0, 4000], strays_in={3: 3700})
    part = fingerprint(everything)
    assert (part.verdict, part.name, part.constant_partition) == ("constant", None, 3)
    java = at("murmur2", 12)
    half = observe(written(lambda k, i: java(k, i) if i % 2 else 3), 12)
    part = fingerprint(dataclasses.replace(half, in_partition=[170] * 3 + [2130] + [170] * 8, strays_in={3: 1830}))
    assert (part.verdict, part.name, part.constant_partition) == ("mixture", None, 3)


def test_another_rule_is_no_earlier_count() -> None:
    writes = written(lambda k, i: (at("murmur2", 12) if i % 2 else at("consistent", 12))(k, i))
    pairs = sorted({w[:2] for w in writes})
    where = np.array([p for _, p in pairs])
    assert earlier_counts(hashed([k for k, _ in pairs]), where, np.ones(len(pairs)), 12, ["murmur2"]) == []


def test_few_keys_are_a_guess_and_none_are_no_answer() -> None:
    one = judge([(b"only", partition_of("murmur2", b"only", 12) or 0, 0)] * 50, 12)
    assert one.name == "murmur2"
    assert not one.sure
    none = judge([], 12)
    assert (none.name, none.fit, none.verdict) == (None, None, "none")


def test_a_single_partition_tells_nothing() -> None:
    part = judge(written(lambda _k, _i: 0), 1)
    assert part.verdict == "one_partition"
    assert part.name is None


def test_where_keyless_records_lie() -> None:
    assert spread([0, 0, 0], 1) == "none"
    assert spread([0, 9, 0], 1) == "hashed"
    assert spread([9, 0, 0], 1) == "one_partition"
    assert spread([4, 5, 0], 1) == "spread"
    assert spread([1, 999, 0], 1, 0.005) == "hashed"
    assert spread([10, 990, 0], 1, 0.005) == "spread"


def test_one_burst_of_keyless_records_is_no_rule() -> None:
    # A sticky producer chooses anew for each 16 KiB and for each time slice, whichever is rarer.
    assert chances([500, 0, 0], 50_000, 60_000) == 1
    assert chances([5, 5, 5, 5, 5, 5, 5, 5], 4_000, 60_000) == 1
    assert chances([500] * 8, 500_000, 100) == 1
    assert chances([500] * 8, 500_000, 60_000) == 8
    assert chances([0] * 8, 0, 60_000) == 0
    assert not sure_of_one(12, 0)
    assert not sure_of_one(12, 1)
    assert not sure_of_one(12, 3)
    assert sure_of_one(12, 4)
    assert not sure_of_one(2, 8)
    assert not sure_of_one(1, 1000)
