"""From the records of both topics to one row a key, with what the proof needs to know of it.

One shuffle, by key. Inside it the records of a key are sorted by sequence number, so that repeats, gaps and
inversions are all seen between neighbours; Spark's sort and its aggregation spill to disk, so memory stays bounded
however many keys there are. Everything is a built-in: executors run no Python.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark code goes by

from topicshift_spark.murmur2 import java_partition

SOURCE, TARGET = 0, 1
_LONG_KEY = 64
_SALTS = 1024


def sequence_column(header: str) -> Column:
    """The header's value (the last one, if it stands there twice) as bytes; null where there is no such header."""
    headers = F.col("headers")
    first = F.get(headers, F.lit(0))
    only = (F.size(headers) == 1) & (first["key"] == header)
    last = F.try_element_at(F.filter(headers, lambda h: h["key"] == header), F.lit(-1))["value"]
    # The usual record has this one header: looked at in generated code, without a loop over an array.
    return F.when(only, first["value"]).otherwise(last)


def records_of(spark: SparkSession, read: DataFrame, side: int, partitions: int, header: str | None) -> DataFrame:
    """The records of one topic, cut to what is compared.

    Columns: ``side``, ``p`` partition, ``o`` offset, ``ms`` timestamp in milliseconds, ``k`` the key (of a key longer
    than 64 bytes its SHA-256), ``salt`` (spreads records without key), ``q`` sequence number or null, ``absent`` and
    ``bad`` (1 where the header is missing, or not a whole number), ``misplaced`` (1 where murmur2 says another
    partition).
    """
    key = F.col("key")
    value = sequence_column(header) if header is not None else F.lit(None).cast("binary")
    number = F.col("raw").cast("string").try_cast("bigint")
    keyed = key.isNotNull()
    return read.select("key", "partition", "offset", "timestamp", value.alias("raw")).select(
        F.lit(side).cast("tinyint").alias("side"),
        F.col("partition").alias("p"),
        F.col("offset").alias("o"),
        F.unix_millis("timestamp").alias("ms"),
        F.when(F.length(key) <= _LONG_KEY, key).otherwise(F.unhex(F.sha2(key, 256))).alias("k"),
        F.when(keyed, F.lit(0)).otherwise((F.col("offset") % _SALTS).cast("int")).alias("salt"),
        F.when(keyed, number).alias("q"),
        (keyed & F.col("raw").isNull()).cast("int").alias("absent"),
        (keyed & F.col("raw").isNotNull() & number.isNull()).cast("int").alias("bad"),
        F.coalesce(java_partition(spark, key, partitions) != F.col("partition"), F.lit(False))
        .cast("int")
        .alias("misplaced"),
    )


def with_neighbours(records: DataFrame) -> DataFrame:
    """Add, per record, ``repeat`` (same key and number came before), ``across`` (it came in the source, and this is the
    target), and ``before``: the first record of the next lower number of this key, null for the lowest.
    """
    order = Window.partitionBy("k", "salt").orderBy("q", "side", "p", "o")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    repeat = F.coalesce(F.lag("q").over(order) == F.col("q"), F.lit(False))
    marked = records.select(
        "*",
        repeat.alias("repeat"),
        (repeat & (F.lag("side").over(order) != F.col("side"))).alias("across"),
    )
    first = F.when(F.col("q").isNotNull() & ~F.col("repeat"), F.struct("q", "side", "p", "o"))
    return marked.select("*", F.last(first, ignorenulls=True).over(earlier).alias("before"))


def _sides(name: str, value: Column, how: str) -> list[Column]:
    """The same aggregate over the records of each side, as ``name_s`` and ``name_t``."""
    function = {"min": F.min, "max": F.max, "sum": F.sum, "count": F.count}[how]
    return [
        function(F.when(F.col("side") == side, value)).alias(f"{name}_{tag}")
        for side, tag in ((SOURCE, "s"), (TARGET, "t"))
    ]


def per_key(records: DataFrame, *, ordered: bool) -> DataFrame:
    """One row a key (and salt): counts, partitions, lowest and highest number and time of each side.

    ``ordered`` adds what needs the numbers: repeats, gaps (``missing``), inversions, each with its worst place.
    """
    keyed = with_neighbours(records) if ordered else records
    columns = [
        *_sides("n", F.lit(1), "count"),
        *_sides("first_p", F.col("p"), "min"),
        *_sides("last_p", F.col("p"), "max"),
        *_sides("misplaced", F.col("misplaced"), "sum"),
        *_sides("absent", F.col("absent"), "sum"),
        *_sides("bad", F.col("bad"), "sum"),
        *_sides("first_ms", F.col("ms"), "min"),
        *_sides("last_ms", F.col("ms"), "max"),
    ]
    if ordered:
        before = F.col("before")
        counted = F.col("q").isNotNull() & ~F.col("repeat") & before.isNotNull()
        gap = F.when(counted & (F.col("q") > before["q"] + 1), F.col("q") - before["q"] - 1)
        inverted = (
            counted & (before["side"] == F.col("side")) & (before["p"] == F.col("p")) & (F.col("o") < before["o"])
        )
        place = [F.col("side"), F.col("p"), F.col("o"), F.col("q")]
        place += [before[name].alias(f"b{name}") for name in ("side", "p", "o", "q")]
        columns += [
            *_sides("first_q", F.col("q"), "min"),
            *_sides("last_q", F.col("q"), "max"),
            *_sides("repeats", F.when(F.col("repeat") & ~F.col("across"), 1), "sum"),
            *_sides("inverted", F.when(inverted, 1), "sum"),
            F.sum(F.when(F.col("across"), 1)).alias("across"),
            F.count(F.when(counted & (before["side"] == TARGET) & (F.col("side") == SOURCE), 1)).alias("overtaken"),
            F.sum(gap).alias("missing"),
            F.max(F.when(gap.isNotNull(), F.struct(gap.alias("gap"), *place))).alias("gap_at"),
            F.min(F.when(inverted, F.struct(*place))).alias("inverted_at"),
            F.min(F.when(F.col("repeat"), F.struct("side", "p", "o", "q"))).alias("repeat_at"),
        ]
    return keyed.groupBy("k", "salt").agg(*columns)


def _spread(tag: str) -> Column:
    """Whether a key's records lie in several partitions of the topic."""
    return F.coalesce(F.col(f"first_p_{tag}") != F.col(f"last_p_{tag}"), F.lit(False))


EXAMPLES = 3
"""How many keys each check names, the worst first."""


def totals(keys: DataFrame, *, ordered: bool) -> DataFrame:
    """One row over all keys: every figure of the proof, and the worst keys of each check as arrays ``x_...``.

    The empty key is none where the producers spread it (librdkafka's default does): in several partitions of the
    source, or of the target while the source has none. Its records have no order, as those without a key.
    """
    empty = F.col("k").isNotNull() & (F.length("k") == 0)
    loose = empty & (_spread("s") | ((F.col("n_s") == 0) & _spread("t")))
    real = F.col("k").isNotNull() & ~loose

    def total(value: Column, name: str) -> Column:
        return F.coalesce(F.sum(F.when(real, value)), F.lit(0)).alias(name)

    def number(condition: Column, name: str) -> Column:
        return F.count(F.when(real & condition, 1)).alias(name)

    def worst(name: str, score: Column, *shown: str) -> Column:
        row = F.struct("k", score.alias("score"), *shown)
        return F.max_by(row, F.when(real & (score > 0), score), EXAMPLES).alias(f"x_{name}")

    both = (F.col("n_s") > 0) & (F.col("n_t") > 0)
    columns = [
        number(empty & _spread("t"), "empty_key_split"),
        number(F.lit(True), "keys"),
        number(both, "keys_in_both"),
        number(both & (F.col("first_ms_t") < F.col("last_ms_s")), "time_reversed"),
    ]
    for tag in ("s", "t"):
        spread = _spread(tag)
        columns += [
            F.coalesce(F.sum(f"n_{tag}"), F.lit(0)).alias(f"records_{tag}"),
            F.coalesce(F.sum(F.when(F.col("k").isNull(), F.col(f"n_{tag}"))), F.lit(0)).alias(f"null_keys_{tag}"),
            F.coalesce(F.sum(F.when(loose, F.col(f"n_{tag}"))), F.lit(0)).alias(f"loose_keys_{tag}"),
            number(F.col(f"n_{tag}") > 0, f"keys_{tag}"),
            number(spread, f"spread_{tag}"),
            total(F.col(f"misplaced_{tag}"), f"misplaced_{tag}"),
            number(F.col(f"misplaced_{tag}") > 0, f"misplaced_keys_{tag}"),
            total(F.col(f"absent_{tag}"), f"absent_{tag}"),
            total(F.col(f"bad_{tag}"), f"bad_{tag}"),
            worst(f"spread_{tag}", F.when(spread, F.col(f"n_{tag}")), f"first_p_{tag}", f"last_p_{tag}"),
            worst(f"misplaced_{tag}", F.col(f"misplaced_{tag}"), f"first_p_{tag}", f"last_p_{tag}"),
        ]
        if ordered:
            columns += [
                total(F.col(f"repeats_{tag}"), f"repeats_{tag}"),
                total(F.col(f"inverted_{tag}"), f"inverted_{tag}"),
                worst(f"inverted_{tag}", F.col(f"inverted_{tag}"), "inverted_at"),
            ]
    if ordered:
        crossing = both & (F.col("first_q_t") < F.col("last_q_s"))
        # Below the source's last number there are exactly the numbers that the source has too, and gaps: then only
        # repeats crossed. Every other crossing record shows as a target number followed by one of the source.
        columns += [
            total(F.col("across"), "across"),
            total(F.col("missing"), "missing"),
            number(F.col("missing") > 0, "gap_keys"),
            number(crossing, "crossing"),
            number(crossing & (F.col("overtaken") == 0), "crossing_repeats"),
            worst("loss", F.col("missing"), "gap_at"),
            worst("crossing", F.when(crossing, F.col("last_q_s") - F.col("first_q_t")), "first_q_t", "last_q_s"),
            worst("duplicates", _repeats(), "repeat_at"),
        ]
    return keys.agg(*columns)


def _repeats() -> Column:
    return sum((F.coalesce(F.col(c), F.lit(0)) for c in ("repeats_s", "repeats_t", "across")), start=F.lit(0))
