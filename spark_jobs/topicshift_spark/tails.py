"""Count what a read_committed reader finds in the ranges in doubt, each offset read once for all groups."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark code goes by

from topicshift.core.proof.verification import ReadPlan, Segment
from topicshift_spark.session import cores
from topicshift_spark.source import Range, read, total

_OPTIONS = {
    # A reader that has come to the end of its range still waits for the fetch it sent ahead: half a second by default,
    # for each task. Where records remain the broker answers at once, whatever this says.
    "kafka.fetch.max.wait.ms": "20",
    "kafka.enable.metrics.push": "false",
}

RECORDS_A_TASK = 500_000
"""A partition is split over more tasks only where each still has this many offsets to read."""


def segment_of(plans: Mapping[int, ReadPlan], partition: Column, offset: Column) -> Column:
    """The index of the last start at or below ``offset``: a binary search over a literal table, one row a partition.

    A tree of ``when`` costs log2(starts) comparisons a record and stays inside generated code; there is no built-in
    search in an array, and a join on a range would be a loop over all starts.
    """
    most = max(len(plan.starts) for plan in plans.values())
    if most == 1:
        return F.lit(0)
    width = max(plans) + 1
    never = 2**63 - 1
    table = [[never] * most for _ in range(width)]
    for p, plan in plans.items():
        table[p][: len(plan.starts)] = plan.starts
    # Parsed once, when the plan is optimised: building P x k literals from Python would cost a call for each.
    starts = F.from_json(F.lit(json.dumps(table)), "array<array<bigint>>")[partition]

    def search(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high + 1) // 2
        return F.when(offset >= starts[middle], search(middle, high)).otherwise(search(low, middle - 1))

    return search(0, most - 1)


def by_segment(records: DataFrame, plans: Mapping[int, ReadPlan]) -> DataFrame:
    """(partition, segment, records, first): the number of records of each segment and the offset of its first."""
    segment = segment_of(plans, F.col("partition"), F.col("offset"))
    return (
        records.select("partition", "offset", segment.alias("segment"))
        .groupBy("partition", "segment")
        .agg(F.count(F.lit(1)).alias("records"), F.min("offset").alias("first"))
    )


def count_segments(
    spark: SparkSession, properties: Mapping[str, str], topic: str, plans: Mapping[int, ReadPlan]
) -> dict[tuple[int, int], Segment]:
    """Read the plans with read_committed and count, by partition and index into ``starts``.

    Raises what Spark raises when a range cannot be read to its end.
    """
    ranges = {p: Range(plan.starts[0], plan.stop) for p, plan in plans.items()}
    if not total(ranges.values()):
        return {}
    tasks = min(2 * cores(spark), total(ranges.values()) // RECORDS_A_TASK)
    records = read(
        spark, properties, topic, ranges, read_committed=True, min_partitions=tasks or None, options=_OPTIONS
    )
    rows = by_segment(records, plans).collect()
    return {(row["partition"], row["segment"]): Segment(row["records"], row["first"]) for row in rows}
