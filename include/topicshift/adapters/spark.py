"""What a Spark job of ``spark_jobs/`` needs to be submitted: its script, the connector's jars, properties in a file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topicshift.core.errors import NotFound
from topicshift.core.kafka.java_client import java_properties

PROJECT = Path(__file__).resolve().parents[3]


def job_file(job: str) -> Path:
    """The script of a job. ``TOPICSHIFT_SPARK_JOBS`` names their folder where it is not beside ``include/``.

    Raises ``NotFound`` where it is not there.
    """
    path = Path(os.environ.get("TOPICSHIFT_SPARK_JOBS") or PROJECT / "spark_jobs") / f"{job}.py"
    if not path.is_file():
        raise NotFound(f"The Spark job {path} is not there. Set TOPICSHIFT_SPARK_JOBS to the project's spark_jobs.")
    return path


def connector_jars() -> str:
    """The Kafka connector's jars, separated by commas.

    ``TOPICSHIFT_SPARK_JARS`` is a folder, or a list of jars; by default ``build/jars/spark``, filled by ``make setup``.
    Raises ``NotFound`` for a folder without jars.
    """
    given = os.environ.get("TOPICSHIFT_SPARK_JARS") or str(PROJECT / "build" / "jars" / "spark")
    if given.endswith(".jar"):
        return given
    jars = sorted(str(jar) for jar in Path(given).glob("*.jar"))
    if not jars:
        raise NotFound(f"The Spark connector's jars are not in {given}. Run make setup, or set TOPICSHIFT_SPARK_JARS.")
    return ",".join(jars)


def properties_text(properties: Mapping[str, str]) -> str:
    """A ``.properties`` file; line ends inside a value (PEM) become ``\\n``, which Java and the jobs read back."""
    lines = []
    for key, value in sorted(properties.items()):
        escaped = value.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n")
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)


def write_secrets(config: Mapping[str, Any]) -> Path:
    """Write the Java client properties of a librdkafka config into a new folder of mode 0700; returns the file (0600).

    The caller removes the folder; where writing fails, none is left.
    """
    text = properties_text(java_properties(config))
    path = Path(tempfile.mkdtemp(prefix="topicshift-spark-")) / "client.properties"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(text)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    return path


def python_path() -> dict[str, str]:
    """``PYTHONPATH`` with the folder that ``topicshift`` was imported from, for a project that is not installed."""
    folders = [str(Path(__file__).resolve().parents[2])]
    folders += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in folders]
    return {"PYTHONPATH": os.pathsep.join(folders)}
