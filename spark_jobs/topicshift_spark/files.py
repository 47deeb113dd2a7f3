"""Folders by which a job and its run speak: local paths, ``file:`` URLs, or what Hadoop's FileSystem reads.

A job on a shared store (``hdfs:``, ``s3a:``) needs that store's jars and settings in its Spark session.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from topicshift.core.errors import SpecError, Unreadable
from topicshift.core.files import write_whole
from topicshift_spark.result import local_path


class Folder:
    """A folder of small files; each write shows to a reader whole or not at all."""

    def __init__(self, where: str, spark: SparkSession | None = None) -> None:
        self.where = where.rstrip("/")
        self._local: Path | None = None
        if urlparse(where).scheme in ("", "file"):
            self._local = local_path(where)
            return
        if spark is None:
            raise SpecError(f"{where}: only a local folder can be used here.")
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        try:
            self._path = self._jvm.org.apache.hadoop.fs.Path(self.where)
            self._system = self._path.getFileSystem(context._jsc.hadoopConfiguration())
        except Exception as error:
            raise SpecError(f"{where}: no file system of this Spark session reads it ({error}).") from error

    @property
    def local(self) -> bool:
        """Whether it lies on this machine, so that looking at it costs next to nothing."""
        return self._local is not None

    def marks(self) -> dict[str, object]:
        """The name of every file, with a mark that changes when the file does. Empty while the folder is not there.

        Raises ``Unreadable`` if it cannot be listed.
        """
        try:
            if self._local is not None:
                found: dict[str, object] = {}
                for path in self._local.iterdir() if self._local.is_dir() else ():
                    stat = path.stat()
                    found[path.name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                return found
            if not self._system.exists(self._path):
                return {}
            return {
                str(s.getPath().getName()): (int(s.getModificationTime()), int(s.getLen()))
                for s in self._system.listStatus(self._path)
            }
        except FileNotFoundError:
            return self.marks()  # a file went between listing and looking
        except Exception as error:
            raise Unreadable(f"The folder {self.where} could not be listed: {error}") from error

    def read(self, name: str) -> bytes:
        """One file. Raises ``Unreadable`` with the reason."""
        try:
            if self._local is not None:
                return (self._local / name).read_bytes()
            stream = self._system.open(self._jvm.org.apache.hadoop.fs.Path(self._path, name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Exception as error:
            raise Unreadable(f"{self.where}/{name} could not be read: {error}") from error

    def write(self, name: str, text: str) -> None:
        """Write one file in one step, making the folder if need be. Raises ``Unreadable`` with the reason."""
        try:
            if self._local is not None:
                self._local.mkdir(parents=True, exist_ok=True)
                write_whole(self._local / name, text)
                return
            path = self._jvm.org.apache.hadoop.fs.Path
            beside = path(self._path, f".{name}.{uuid.uuid4().hex}")
            stream = self._system.create(beside, True)
            try:
                stream.write(bytearray(text.encode("utf-8")))
            finally:
                stream.close()
            self._system.delete(path(self._path, name), False)
            if not self._system.rename(beside, path(self._path, name)):
                raise OSError("the finished file could not be renamed")
        except Exception as error:
            raise Unreadable(f"{self.where}/{name} could not be written: {error}") from error
