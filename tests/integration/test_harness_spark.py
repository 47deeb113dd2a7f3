"""The local Spark session reads from the embedded broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from topicshift.testing.broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_spark_counts_what_was_written(
    spark: SparkSession, broker: EmbeddedBroker, admin_client: AdminClient, topic_name: Callable[..., str]
) -> None:
    topic = topic_name()
    for future in admin_client.create_topics([NewTopic(topic, 3, 1)]).values():
        future.result(timeout=30)
    producer = Producer(broker.config())
    for number in range(250):
        producer.produce(topic, b"v", str(number).encode())
    assert producer.flush(30) == 0
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    assert read.load().count() == 250
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
