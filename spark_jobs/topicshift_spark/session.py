"""The Spark session of a job: settings every job needs, and the project's code on the executors."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

import topicshift
from topicshift.core.text import SPARK_APPLICATION
from topicshift_spark.progress import say

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Options of the Kafka source can hold credentials; Spark would print them in plans and in its UI.
    "spark.sql.redaction.options.regex": r"(?i)url|secret|password|token|jaas|keystore|truststore|ssl[.]key",
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
    "spark.ui.showConsoleProgress": "false",
}


def get_session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this job; master and jars come from ``spark-submit``.

    On a local master the Python workers run this very interpreter unless ``PYSPARK_PYTHON`` says otherwise: the
    first ``python3`` of the path often lacks pyarrow and numpy.
    """
    conf = SparkConf()
    if conf.get("spark.master", "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        if not conf.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    say(f"{SPARK_APPLICATION}{spark.sparkContext.applicationId}")
    spark.sparkContext.setLogLevel(os.environ.get("TOPICSHIFT_SPARK_LOG_LEVEL", "WARN"))
    return spark


def ship_code(spark: SparkSession) -> None:
    """Give the executors ``topicshift.core`` and ``topicshift_spark`` as one archive, so that a worker need not
    have the project. Modules that run there use the standard library, numpy and pyarrow only.
    """
    packages = {
        "topicshift": [Path(topicshift.__file__), *_modules(Path(topicshift.__file__).parent / "core")],
        "topicshift_spark": _modules(Path(__file__).parent),
    }
    # The executors fetch it when their first task starts, so it stays until the driver ends.
    folder = Path(tempfile.mkdtemp(prefix="topicshift-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "topicshift_code.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, files in packages.items():
            root = Path(topicshift.__file__).parent if name == "topicshift" else Path(__file__).parent
            for file in files:
                out.write(file, f"{name}/{file.relative_to(root).as_posix()}")
    spark.sparkContext.addPyFile(str(archive))


def _modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def cores(spark: SparkSession) -> int:
    """How many tasks run at once: the cores of the local master, or of the executors known by now."""
    return max(1, int(spark.sparkContext.defaultParallelism))
