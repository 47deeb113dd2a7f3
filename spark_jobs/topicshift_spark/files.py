"""Files by which a job and its run speak: local paths, ``file:`` URLs, or what Hadoop's FileSystem reads.

A job on a shared store (``hdfs:``, ``s3a:``) needs that store's jars and settings in its Spark session.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from topicshift.core.errors import SpecError, Unreadable
from topicshift_spark.result import local_path, write_text


class Place:
    """One file: does it exist, what does it say, write it so that a reader sees all of it or none."""

    def __init__(self, where: str, spark: SparkSession | None = None) -> None:
        self.where = where
        self._local: Path | None = None
        if urlparse(where).scheme in ("", "file"):
            self._local = local_path(where)
            return
        if spark is None:
            raise SpecError(f"{where}: only a local path can be used here.")
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        try:
            self._path = self._jvm.org.apache.hadoop.fs.Path(where)
            self._system = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        except Exception as error:
            raise SpecError(f"{where}: no file system of this Spark session reads it ({error}).") from error

    @property
    def local(self) -> bool:
        """Whether it lies on this machine, so that looking at it costs next to nothing."""
        return self._local is not None

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._local.exists() if self._local is not None else bool(self._system.exists(self._path))

    def read(self) -> bytes:
        """The whole file. Raises ``Unreadable`` with the reason."""
        try:
            if self._local is not None:
                return self._local.read_bytes()
            stream = self._system.open(self._path)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Exception as error:
            raise Unreadable(f"{self.where} could not be read: {error}") from error

    def write(self, text: str) -> None:
        """Write it in one step. Raises ``Unreadable`` with the reason."""
        try:
            if self._local is not None:
                self._local.parent.mkdir(parents=True, exist_ok=True)
                write_text(self._local, text)
                return
            beside = self._jvm.org.apache.hadoop.fs.Path(f"{self.where}.{uuid.uuid4().hex}")
            stream = self._system.create(beside, True)
            try:
                stream.write(bytearray(text.encode("utf-8")))
            finally:
                stream.close()
            self._system.delete(self._path, False)
            if not self._system.rename(beside, self._path):
                raise OSError("the finished file could not be renamed")
        except Exception as error:
            raise Unreadable(f"{self.where} could not be written: {error}") from error
