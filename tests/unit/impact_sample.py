"""An impact report over made-up keys, hashed for real: 6 partitions, one hot key, a client that changed half-way."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

from topicshift.core.findings import Finding, Level
from topicshift.core.impact.partitioning import expected_same_index, murmur2, parents_of
from topicshift.core.impact.report import (
    Candidate,
    GroupImpact,
    Impact,
    Kind,
    Limits,
    Measured,
    Overtaken,
    Partitioner,
    RuleShare,
    Sample,
    SchemaId,
    SchemaPrefixes,
    Slice,
    Source,
    TopKey,
    Writer,
    in_place,
    kind_of,
)
from topicshift.core.impact.skew import gini, hot_partitions, useful_partitions

N = 6


@functools.cache
def _hashes(keys: int) -> dict[bytes, int]:
    return {key: murmur2(key) & 0x7FFFFFFF for key in _weights(keys, 0.01)}


def _weights(keys: int, hot_share: float) -> dict[bytes, int]:
    rng = random.Random(7)
    weights = {f"customer-{i}".encode(): 1 + int(40 * rng.paretovariate(1.6)) for i in range(keys)}
    hottest = next(iter(weights))
    weights[hottest] = int(hot_share / (1 - hot_share) * (sum(weights.values()) - weights[hottest]))
    return weights


def impact(
    *,
    counts: tuple[int, ...] = (12, 18, 24, 30, 60),
    keys: int = 3000,
    hot_share: float = 0.06,
    sampled: bool = False,
    mixture: bool = False,
    findings: list[Finding] | None = None,
    **changes: Any,
) -> Impact:
    """The report; ``changes`` replace fields of the model."""
    weights = _weights(keys, hot_share)
    total = sum(weights.values())
    hashes = _hashes(keys)

    def ends(name: str, value: Any) -> dict[str, Any]:
        if not sampled:
            return {}
        if isinstance(value, list):
            return {f"{name}_low": [int(v * 0.9) for v in value], f"{name}_high": [int(v * 1.1) for v in value]}
        kind = type(value)
        return {f"{name}_low": kind(value * 0.95), f"{name}_high": kind(value * 1.05)}

    def spread(m: int) -> list[int]:
        c: Counter[int] = Counter()
        for key, weight in weights.items():
            c[hashes[key] % m] += weight
        return [c[p] for p in range(m)]

    now = spread(N)
    candidates = []
    for m in counts:
        then = spread(m)
        moved = [k for k in weights if hashes[k] % m != hashes[k] % N]
        moved_records = sum(weights[k] for k in moved)
        share = max(then) / total
        candidates.append(
            Candidate(
                partitions=m,
                moved_keys=len(moved),
                moved_records=moved_records,
                relocated_records=moved_records,
                partition_records=then,
                partition_bytes=[r * 120 for r in then],
                max_partition_share=share,
                hot_partitions=hot_partitions(then),
                imbalance=max(then) * m / sum(then),
                gini=gini(then),
                parents_max=parents_of(N, m),
                same_index_share=1 - len(moved) / len(weights),
                same_index_share_expected=expected_same_index(N, m),
                **ends("moved_keys", len(moved)),
                **ends("moved_records", moved_records),
                **ends("partition_records", then),
                **ends("max_partition_share", share),
            )
        )
    slices = [
        Slice(
            start=f"2026-01-0{d}T00:00:00+00:00",
            end=f"2026-01-0{d + 1}T00:00:00+00:00",
            records=total // 6,
            best="consistent" if mixture and d > 3 else "murmur2",
            best_share=1.0,
        )
        for d in range(1, 7)
    ]
    late = [0.17, 0.16, 0.17] if mixture else [1.0, 1.0, 1.0]
    murmur = 0.58 if mixture else 1.0
    rules = [
        RuleShare(
            name="murmur2",
            hash="murmur2",
            sign="mask",
            clients=["Java client", "librdkafka murmur2_random"],
            records_share=murmur,
            keys_share=murmur,
            by_slice=[1.0, 1.0, 1.0, *late],
        ),
        RuleShare(
            name="consistent",
            hash="crc32",
            sign="unsigned",
            clients=["librdkafka consistent_random"],
            records_share=0.58 if mixture else 0.166,
            keys_share=0.58 if mixture else 0.166,
            by_slice=[0.16, 0.17, 0.17, *([1.0, 1.0, 1.0] if mixture else [0.16, 0.17, 0.16])],
        ),
        RuleShare(
            name="fnv1a_abs",
            hash="fnv1a",
            sign="abs",
            clients=["Sarama default"],
            records_share=0.17,
            keys_share=0.165,
            by_slice=[0.17, 0.16, 0.18, 0.17, 0.17, 0.17],
        ),
    ]
    top = sorted(weights, key=lambda k: -weights[k])[:10]
    top_keys = [
        TopKey(
            key=f"{hashes[k]:016x}",
            records=weights[k],
            bytes=weights[k] * 120,
            share=weights[k] / total,
            bytes_share=weights[k] / total,
            partitions=[hashes[k] % N],
        )
        for k in top
    ]
    hottest = weights[top[0]] / total
    kind = kind_of(total, total)
    values: dict[str, Any] = {
        "topic": "payments",
        "topic_id": "vPeOCWypqUOSepEvx0cbog",
        "taken_at": "2026-01-08T09:30:00+00:00",
        "kind": kind,
        "in_place": in_place(kind),
        "records": total,
        "keyed_records": total,
        "null_keys": 0,
        "empty_keys": 12,
        "tombstones": 40,
        "bytes": total * 120,
        "distinct_keys": len(weights),
        "keys_in_several_partitions": 700 if mixture else 0,
        "partitioner": Partitioner(
            name=None if mixture else "murmur2",
            fit=murmur,
            by_name={r.name: r.records_share for r in rules},
            verdict="mixture" if mixture else "single",
            writers=[
                Writer(name="murmur2", partitions=N, share=0.5, first_slice=0, last_slice=2),
                Writer(name="consistent", partitions=N, share=0.5, first_slice=3, last_slice=5),
            ]
            if mixture
            else [Writer(name="murmur2", partitions=N, share=1.0, first_slice=0, last_slice=5)],
            rules=rules,
        ),
        "slices": slices,
        "source": Source(
            partitions=N,
            partition_records=now,
            partition_bytes=[r * 120 for r in now],
            keyed_partition_records=now,
            max_partition_share=max(now) / total,
            max_keyed_partition_share=max(now) / total,
            hot_partitions=hot_partitions(now),
            imbalance=max(now) * N / total,
            gini=gini(now),
        ),
        "top_keys": top_keys,
        "top_keys_by_bytes": top_keys,
        "schema_prefixes": SchemaPrefixes(keys=31, records=310, ids=[SchemaId(id=17, keys=31, records=310)]),
        "limits": Limits(hottest_key_share=hottest, useful_partitions=useful_partitions(hottest)),
        "candidates": candidates,
        "groups": [
            GroupImpact(
                group=g,
                unread=u,
                never_committed=[3] if g == "fraud" else [],
                overtaken=[Overtaken(partitions=m, records=int(u * 0.7)) for m in counts],
            )
            for g, u in (("ledger", 1200), ("fraud", 88000))
        ],
        "findings": findings or [],
        "measured": Measured(
            ranges={p: (0, r) for p, r in enumerate(now)},
            offsets_read=total,
            isolation="read_committed",
            seconds=7.4,
            keys_shown=False,
            hash_key="random",
            sample=Sample(
                fraction=0.05, replicates=20, ranges_read=120, records_read=total // 20, confidence=0.95, seed=1
            )
            if sampled
            else None,
        ),
    }
    return Impact(**(values | changes))


ERROR = Finding(
    code="TS499",
    level=Level.ERROR,
    subject="partitioner",
    seen="two rules put keys into partitions: murmur2 (50 %) and consistent (50 %).",
    why="Keys of both lie in two partitions, so their order is gone already.",
    do="Bring every producer to one partitioner first.",
)
WARNING = ERROR.model_copy(update={"code": "TS498", "level": Level.WARNING})


def unkeyed() -> Impact:
    """A topic without keys."""
    empty = [0] * N
    return impact(
        counts=(),
        kind=Kind.UNKEYED,
        in_place=in_place(Kind.UNKEYED),
        keyed_records=0,
        null_keys=500,
        records=500,
        distinct_keys=0,
        empty_keys=0,
        partitioner=Partitioner(name=None, fit=None, by_name={}, verdict="none"),
        slices=[],
        source=Source(
            partitions=N,
            partition_records=[84, 83, 83, 84, 83, 83],
            partition_bytes=[840] * N,
            keyed_partition_records=empty,
            max_partition_share=84 / 500,
            max_keyed_partition_share=None,
            hot_partitions=[],
            imbalance=1.0,
            gini=0.0,
        ),
        top_keys=[],
        top_keys_by_bytes=[],
        schema_prefixes=None,
        limits=Limits(hottest_key_share=None, useful_partitions=None),
        groups=[],
    )
