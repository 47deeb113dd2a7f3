"""Does the 95 % interval hold the truth? Counted over simulated topics and samples drawn with fixed seeds."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicshift.core.impact.partitioning import partition_of
from topicshift.core.impact.sampling import Interval, burst_of, distinct, draw, largest, ratio, student_t, total

RUNS = 100


def topic(seed: int, *, bursty: bool, partitions: int = 6, records: int = 8_000, keys: int = 600) -> list[list[bytes]]:
    """Keys in order of offset per partition; ``bursty``: a key's records come in runs, and keys come and go."""
    rng = random.Random(seed)
    log: list[list[bytes]] = [[] for _ in range(partitions)]
    written = 0
    while written < records:
        rank = int(keys * rng.random() ** 2.5)
        key = b"%d-%d" % (rank, written * 8 // records) if bursty else b"%d" % rank
        for _ in range(rng.randrange(1, 12) if bursty else 1):
            place = partition_of("murmur2", key, partitions)
            assert place is not None
            log[place].append(key)
            written += 1
    return log


def replicates(log: Sequence[Sequence[bytes]], fraction: float, seed: int) -> tuple[list[list[bytes]], float]:
    design = draw({p: (0, len(keys)) for p, keys in enumerate(log)}, fraction, seed)
    return [[k for p, (a, b) in block.items() for k in log[p][a:b]] for block in design.blocks], design.fraction


def holds(interval: Interval | None, truth: float) -> bool:
    assert interval is not None
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9


@pytest.mark.parametrize("bursty", [False, True])
@pytest.mark.parametrize("fraction", [0.06, 0.25])
def test_the_truth_lies_inside_95_times_in_100(fraction: float, bursty: bool) -> None:
    log = topic(1, bursty=bursty)
    everything = [k for keys in log for k in keys]
    counts = Counter(everything)
    moved = {k for k in counts if partition_of("murmur2", k, 6) != partition_of("murmur2", k, 25)}
    placed = Counter(partition_of("murmur2", k, 25) for k in everything)
    truth = {
        "moved_records": sum(counts[k] for k in moved),
        "moved_share": sum(counts[k] for k in moved) / len(everything),
        "partition_7": placed[7],
        "largest_share": max(placed.values()) / len(everything),
        "distinct_keys": len(counts),
        "moved_keys": len(moved),
        "top": 0,  # another key from sample to sample: its own count is the truth
    }
    inside: Counter[str] = Counter()
    for seed in range(RUNS):
        parts, share = replicates(log, fraction, seed)
        sizes = [len(p) for p in parts]
        per_moved = [sum(k in moved for k in p) for p in parts]
        per_place = [Counter(partition_cache(k) for k in p) for p in parts]
        shown: dict[bytes, set[int]] = defaultdict(set)
        for g, part in enumerate(parts):
            for k in part:
                shown[k].add(g)
        rare = [n for part in parts for k, n in Counter(part).items() if len(shown[k]) <= 2]
        burst = burst_of(sum(rare), sum(n * n for n in rare))
        inside["moved_records"] += holds(total(per_moved, share, burst=burst), truth["moved_records"])
        inside["moved_share"] += holds(ratio(per_moved, sizes, share, burst=burst), truth["moved_share"])
        inside["partition_7"] += holds(total([c[7] for c in per_place], share, burst=burst), truth["partition_7"])
        shares = [ratio([c[p] for c in per_place], sizes, share, comparisons=25, burst=burst) for p in range(25)]
        inside["largest_share"] += holds(largest([s for s in shares if s]), truth["largest_share"])
        for name, keep in (("distinct_keys", None), ("moved_keys", moved)):
            mine = {k: g for k, g in shown.items() if keep is None or k in keep}
            once = [sum(g == {r} for g in mine.values()) for r in range(len(parts))]
            twice = sum(len(g) == 2 for g in mine.values())
            inside[name] += holds(distinct(len(mine), once, twice, share, at_most=len(everything)), truth[name])
        best = Counter(k for p in parts for k in p).most_common(1)[0][0]
        interval = total([p.count(best) for p in parts], share, comparisons=len(shown), burst=burst)
        inside["top"] += holds(interval, counts[best])
    assert {name: inside[name] / RUNS for name in truth if inside[name] < 0.95 * RUNS} == {}


_places: dict[bytes, int | None] = {}


def partition_cache(key: bytes) -> int | None:
    if key not in _places:
        _places[key] = partition_of("murmur2", key, 25)
    return _places[key]


@settings(max_examples=30)
@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 500), st.integers(0, 2000)), min_size=1, max_size=8),
    st.floats(0.001, 1),
    st.integers(0, 99),
)
def test_a_sample_stays_in_the_ranges_and_never_reads_twice(
    raw: dict[int, tuple[int, int]], fraction: float, seed: int
) -> None:
    ranges = {p: (start, start + size) for p, (start, size) in raw.items()}
    design = draw(ranges, fraction, seed)
    read = Counter((p, o) for block in design.blocks for p, (a, b) in block.items() for o in range(a, b))
    assert not read or max(read.values()) == 1
    assert all(ranges[p][0] <= o < ranges[p][1] for p, o in read)
    if design.whole:
        assert len(read) == sum(b - a for a, b in ranges.values())
    assert design == draw(ranges, fraction, seed)


def test_every_offset_is_as_likely_as_the_others() -> None:
    hits: Counter[int] = Counter()
    for seed in range(1000):
        for block in draw({0: (100, 600)}, 0.2, seed).blocks:
            for a, b in block.values():
                hits.update(range(a, b))
    assert set(hits) == set(range(100, 600))
    assert min(hits.values()) > 140
    assert max(hits.values()) < 260


def test_a_small_topic_or_a_large_share_reads_everything() -> None:
    assert draw({0: (0, 30)}, 0.5, 1).whole
    assert draw({0: (5, 10_000)}, 1.0, 1).blocks == ({0: (5, 10_000)},)
    with pytest.raises(ValueError, match="above 0"):
        draw({0: (0, 10)}, 0.0, 1)


def test_nothing_is_uncertain_where_everything_was_read() -> None:
    assert total([5.0], 1.0) == Interval(5, 5, 5)
    assert distinct(7, [3], 1, 1.0) == Interval(7, 7, 7)
    assert ratio([1.0], [4.0], 1.0) == Interval(0.25, 0.25, 0.25)
    assert ratio([0.0], [0.0], 1.0) is None


@pytest.mark.parametrize(
    ("p", "df", "expected"), [(0.975, 19, 2.0930), (0.975, 9, 2.2622), (0.9975, 19, 3.1737), (0.999, 9, 4.2968)]
)
def test_student_t(p: float, df: int, expected: float) -> None:
    assert student_t(p, df) == pytest.approx(expected, rel=0.005)
