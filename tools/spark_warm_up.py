"""What most Spark jobs here do first, without Kafka: set-up runs it once to learn which classes they load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Hand every batch on."""
    yield from batches


def main() -> None:
    """A read, Python on Arrow batches, a shuffle, a join, a sort, an answer."""
    spark = SparkSession.builder.appName("topicshift warm-up").getOrCreate()
    numbers = spark.range(0, 1000, 1, 2).mapInArrow(same, "id long")
    keyed = numbers.select("id", (f.col("id") % 7).alias("key"), f.struct(f.col("id"), f.lit("x")).alias("row"))
    sums = keyed.groupBy("key").agg(f.count("*").alias("n"), f.max("row").alias("top"), f.sum("id").alias("total"))
    small = spark.createDataFrame([(n, str(n).encode()) for n in range(7)], "key long, name binary")
    sums.join(small, "key").orderBy(f.desc("n"), "key").collect()
    keyed.groupBy("key").applyInArrow(lambda table: table.select(["key"]), "key long").distinct().count()
    spark.stop()


if __name__ == "__main__":
    main()
