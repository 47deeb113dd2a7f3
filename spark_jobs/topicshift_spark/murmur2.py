"""Java's murmur2 of a key, computed by the Kafka client's own class inside Spark's generated code.

The connector brings ``org.apache.kafka.common.utils.Utils`` to every executor, so no Python runs there, the hash is
the producer's very own, and it costs what the loop over the key's bytes costs.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark code goes by
from pyspark.sql.classic.column import Column as ClassicColumn

from topicshift.core.errors import SpecError


def java_murmur2(spark: SparkSession, key: Column) -> Column:
    """``Utils.murmur2(key)`` as a signed 32-bit integer; null for a null key.

    Raises ``SpecError`` where the Kafka client is not on the class path.
    """
    jvm: Any = spark.sparkContext._jvm

    def sequence(*items: Any) -> Any:
        java = jvm.java.util.ArrayList()
        for item in items:
            java.add(item)
        return jvm.org.apache.spark.api.python.PythonUtils.toSeq(java)

    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        utils = loader.loadClass("org.apache.kafka.common.utils.Utils")
    except Exception as error:
        raise SpecError(
            "The Kafka client is not on Spark's class path. Pass the connector's jars with --jars."
        ) from error
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    native: Any = key
    call = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils,
        jvm.org.apache.spark.sql.types.DataType.fromJson('"integer"'),
        "murmur2",
        sequence(bridge.expression(native._jc)),
        sequence(),
        True,  # a null argument gives null
        True,  # the result may be null
        True,  # deterministic
        jvm.scala.Option.empty(),
    )
    return ClassicColumn(bridge.column(call))


def java_partition(spark: SparkSession, key: Column, partitions: int) -> Column:
    """Where Java's default partitioner puts a keyed record: ``(murmur2(key) & 0x7fffffff) mod partitions``."""
    return F.pmod(java_murmur2(spark, key).bitwiseAND(F.lit(0x7FFFFFFF)), F.lit(partitions))
