"""The native half of the impact scan: DataFrame in, groups of (key, partition) out; no Python touches a record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from topicshift_spark.impact_scan import Packing, ScanPlan, columns, summarise

RECORDS_PER_TASK = 1_000_000
"""Records that one shuffle partition should hold groups of, at most: bounds the memory of a task whatever the keys."""
MAX_TASKS = 20_000


def packing(slices: int, largest_range: int) -> Packing:
    """Counters for this many time slices and tombstones, none of which can exceed ``largest_range``."""
    return Packing(slices + 1, max(8, int(largest_range).bit_length()))


def shuffle_partitions(records: int, cores: int) -> int:
    """How many tasks the groups go to: a multiple of the cores, with at most :data:`RECORDS_PER_TASK` records each."""
    needed = -(-records // RECORDS_PER_TASK)
    rounds = -(-max(needed, 1) // cores)
    return min(MAX_TASKS, rounds * cores)


def slice_number(timestamp: Column, boundaries_ms: Sequence[int]) -> Column:
    """The time slice of a record: how many of the ascending boundaries are not after its timestamp."""
    out: Column = F.lit(len(boundaries_ms))
    for i in reversed(range(len(boundaries_ms))):
        # A boundary as a timestamp, once: no division a record.
        out = F.when(timestamp < F.timestamp_millis(F.lit(boundaries_ms[i])), F.lit(i)).otherwise(out)
    return out


def with_measures(records: DataFrame, boundaries_ms: Sequence[int]) -> DataFrame:
    """Key, partition, replicate and what is summed of each record, and nothing else: the value's bytes stop here.

    ``records`` has the columns of the Kafka source and ``replicate``.
    """
    return records.select(
        "key",
        "partition",
        "replicate",
        F.coalesce(F.octet_length("value"), F.lit(0)).cast("long").alias("size"),
        F.isnull("value").alias("tombstone"),
        slice_number(F.col("timestamp"), boundaries_ms).alias("slice"),
    )


def grouped(measures: DataFrame, pack: Packing, replicates: int) -> DataFrame:
    """One row per (key, partition), and replicate where there are several, with its sums."""
    keys = ["key", "partition", *(["replicate"] if replicates > 1 else [])]
    sums = [F.sum("size").alias("value_bytes")]
    last = pack.fields - 1
    for long in range(pack.longs):
        first = long * pack.per_long
        within = F.col("slice") - F.lit(first)
        one = F.call_function("shiftleft", F.lit(1).cast("long"), within * F.lit(pack.bits))
        here = F.col("slice").between(first, min(first + pack.per_long, last) - 1)
        value: Column = F.when(here, one).otherwise(F.lit(0).cast("long"))
        if long == last // pack.per_long:
            one = F.lit(1 << last % pack.per_long * pack.bits).cast("long")
            value = value + F.when(F.col("tombstone"), one).otherwise(F.lit(0).cast("long"))
        sums.append(F.sum(value).alias(f"counters_{long}"))
    out = measures.groupBy(*keys).agg(*sums)
    return out if replicates > 1 else out.withColumn("replicate", F.lit(0))


def summarised(groups: DataFrame, plan: ScanPlan, tasks: int) -> DataFrame:
    """All groups of a key to one task each, which hashes them and hands back its sums: one row a task."""
    rows = groups.withColumn("key_hash", F.xxhash64("key"))
    together = rows.repartition(tasks, "key_hash").select(*columns(plan))
    return together.mapInArrow(partial(summarise, plan), "sums binary")
