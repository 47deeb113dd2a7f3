"""What Spark's side asks of a broker about a topic."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

from topicshift_spark.source import Cluster

pytestmark = pytest.mark.spark


def test_leaders_are_read_from_what_partitions_say_of_themselves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have no leader, none that is known, or one in a rack of any name."""
    jvm: Any = spark._jvm
    kafka, partitions, none = jvm.org.apache.kafka.common, jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
    nodes = [
        kafka.Node(3, "kafka-3.example", 9092),
        kafka.Node(0, "2001:db8::1", 9092, "rack (id: -1 ), leader=null"),
        kafka.Node.noNode(),
        None,
    ]
    for n, node in enumerate(nodes):
        partitions.add(kafka.TopicPartitionInfo(n, node, none, none))
    assert Cluster._leaders(partitions) == {0: True, 1: True, 2: False, 3: False}
    monkeypatch.setattr("topicshift_spark.source._LEADER", re.compile("another version's words"))
    assert Cluster._leaders(partitions) == {0: True, 1: True, 2: False, 3: False}, "they are asked one by one"
