"""A local Spark session with the Kafka connector that set-up fetched."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lab.java import class_archive_options, find_java
from lab.runfolder import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def quick_start_options() -> str:
    """JVM options for a driver with little to do: no optimising compiler, one collector, archived classes."""
    return " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *class_archive_options()])


def spark_jars() -> list[Path]:
    """The connector's jars: TOPICSHIFT_SPARK_JARS (a folder), else ``build/jars/spark`` of the project.

    Raises:
        FileNotFoundError: they are not there.
    """
    folder = Path(os.environ.get("TOPICSHIFT_SPARK_JARS") or ROOT / "build" / "jars" / "spark")
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise FileNotFoundError(f"The Spark connector's jars are not in {folder}. Run make setup, which fetches them.")
    return jars


def local_spark(
    name: str = "topicshift-tests", *, cores: int = 2, memory: str = "2g", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A ``local[cores]`` session: no UI, UTC, few shuffle partitions, Kafka connector on the class path.

    Args:
        name: application name.
        cores: threads.
        memory: heap of the driver, which is the executor too.
        conf: settings that win over those made here.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(
            ["-XX:+UseParallelGC", "-Dlog4j2.level=WARN", *class_archive_options()]
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
