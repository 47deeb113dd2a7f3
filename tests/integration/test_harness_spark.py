"""The local Spark session reads from the embedded broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.broker import EmbeddedBroker
from lab.java import find_java
from lab.spark import quick_start_options

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


def test_a_driver_takes_its_classes_from_the_archive_of_set_up(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    options = f"{quick_start_options()} -Xlog:class+load:file={loaded}"
    env = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    command = [str(Path(sys.executable).parent / "spark-submit"), "--driver-java-options", options, "--version"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in loaded.read_text()
    assert "warning" not in done.stdout, "a JVM that finds the archive wanting must not talk into a job's answer"
