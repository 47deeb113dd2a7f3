"""Which Java to use: JAVA_HOME first, then PATH. Standard library only: set-up runs it before any package is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WANTED = (17, 21)
"""Major versions that run both the broker and Spark 4.2."""

BROKER_ONLY_FROM = 25
"""From this version on Spark 4.2 does not start (no ``jdk.incubator.vector`` in the usual builds); Kafka 4.3 does."""


class NoJava(RuntimeError):
    """No usable Java. The message says what was seen and what to do."""


CLASS_ARCHIVE = Path(__file__).resolve().parents[1] / "build" / "cache" / "spark-classes.jsa"
"""Classes of Spark's start, archived by set-up."""


@dataclass(frozen=True)
class Java:
    """A Java found: ``major`` version, the ``home`` folder that JAVA_HOME wants, and where it was looked up."""

    major: int
    home: Path
    found_by: str

    @property
    def binary(self) -> Path:
        """The ``java`` executable."""
        return self.home / "bin" / "java"


def class_archive_options() -> list[str]:
    """JVM options for a Spark driver that take its classes from the archive, where it is there and fits."""
    return [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", "-Xshare:auto", "-Xlog:cds*=off", "-Xlog:class+path=off"]


def major_version(text: str) -> int | None:
    """The major version in the output of ``java -version``, None where there is none. ``1.8.0`` counts as 8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first = int(found.group(1))
    return int(found.group(2)) if first == 1 and found.group(2) else first


def _probe(binary: Path, found_by: str) -> Java | None:
    command = [str(binary), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stderr + answer.stdout
    major = major_version(text)
    if major is None:
        return None
    # The java of a version manager is a script that lies elsewhere: Java itself knows its home.
    said = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    home = Path(said.group(1)) if said else None
    if home is None or not (home / "bin" / "java").exists():
        home = binary.resolve().parent.parent
    return Java(major, home, found_by)


def candidates(environ: Mapping[str, str] | None = None) -> list[Java]:
    """Every Java that answers, in order of preference: JAVA_HOME, then the first on PATH."""
    env = os.environ if environ is None else environ
    found = []
    if env.get("JAVA_HOME"):
        java = _probe(Path(env["JAVA_HOME"]) / "bin" / "java", "JAVA_HOME")
        if java:
            found.append(java)
    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    if on_path:
        java = _probe(Path(on_path), "PATH")
        if java:
            found.append(java)
    return found


def find_java(environ: Mapping[str, str] | None = None, *, for_spark: bool = True) -> Java:
    """The Java to use.

    Args:
        environ: the environment to look in; the process's own by default.
        for_spark: Spark must run on it too; without, any Java from 17 on will do for the broker.

    Raises:
        NoJava: none was found, or none of a version that serves.
    """
    seen = candidates(environ)
    for java in seen:
        if java.major in WANTED or (not for_spark and java.major >= WANTED[0]):
            return java
    todo = "Install Java 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jdk-headless) or point JAVA_HOME at one"
    if not seen:
        env = os.environ if environ is None else environ
        where = f"in JAVA_HOME ({env['JAVA_HOME']}) or on PATH" if env.get("JAVA_HOME") else "in JAVA_HOME or on PATH"
        raise NoJava(f"no Java was found {where}. {todo}.")
    what = ", ".join(f"Java {java.major} at {java.home} ({java.found_by})" for java in seen)
    why = (
        "it would run the broker but not Spark 4.2"
        if all(java.major >= BROKER_ONLY_FROM for java in seen)
        else "Kafka 4.3 and Spark 4.2 run together on 17 and 21 only"
    )
    raise NoJava(f"found {what}: {why}. {todo}.")
