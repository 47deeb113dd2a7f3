"""A Kafka topic as Spark reads it: client properties, frozen offsets, and the DataFrame over exactly these.

The offsets are asked of the broker by the Java admin client that comes with Spark's Kafka connector, so one set of
client properties serves asking and reading. Both ends of every partition are frozen before the first record is read:
a read that follows a live end never means the same twice, and an end past the log hangs the source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from topicshift.core.errors import AccessDenied, NotFound, SpecError, Transient, Unreadable
from topicshift.core.kafka.java_client import TRANSLATED, java_properties
from topicshift.core.kafka.properties import parse_properties

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
"""Columns of the Kafka source; with ``headers=True`` also ``headers array<struct<key string, value binary>>``."""

# Set by Spark itself (it refuses them), or of no meaning to a reader that names its offsets.
_NOT_OURS = {
    "auto.offset.reset", "enable.auto.commit", "interceptor.classes", "group.id", "group.instance.id",
    "transactional.id", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer",
}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Offsets [start, end) of one partition."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; records are at most as many (markers and compacted records leave holes)."""
        return max(0, self.end - self.start)


_LEADER = re.compile(r"\(partition=(\d+), leader=(?:null|[^,(]*\(id: (-?\d+) )")
"""A partition and its leader's id in what ``TopicPartitionInfo`` says of itself."""


@dataclass(frozen=True)
class Topic:
    """A topic as the broker describes it. ``without_leader`` are partitions that cannot be read now."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    without_leader: tuple[int, ...]


def read_properties(path: str) -> dict[str, str]:
    """A client properties file. Raises ``SpecError`` when it is none; values never go into a message."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"--kafka-config {path}: {reason}. Give a client properties file.") from error
    return {p.key: p.value for p in parse_properties(text, name=f"--kafka-config {path}")}


def client_properties(config_file: str | None, bootstrap: str | None) -> dict[str, str]:
    """Java client properties from a file and/or a bootstrap address (which wins).

    librdkafka's names for credentials and certificates (``sasl.username``, ``ssl.ca.location``, ...) are translated,
    so that one file serves the command line and the Spark jobs. Raises ``SpecError`` without an address.
    """
    given = read_properties(config_file) if config_file else {}
    if bootstrap:
        given["bootstrap.servers"] = bootstrap
    if not given.get("bootstrap.servers"):
        raise SpecError(
            "No broker address was given. Give --bootstrap-server HOST:PORT, or --kafka-config FILE that sets "
            "bootstrap.servers."
        )
    java = {k: v for k, v in given.items() if k not in TRANSLATED}
    if TRANSLATED & given.keys():
        java = java_properties(given) | java
    if {"ssl.key.location", "ssl.key.pem"} & given.keys():
        java.pop("ssl.key.password", None)  # such a key is handed over unlocked
    return {k: v for k, v in java.items() if k not in _NOT_OURS}


class Cluster:
    """Questions to the broker, each bounded by ``timeout_s``; a context manager.

    Raises ``NotFound`` for a topic that does not exist (it is never created), ``AccessDenied`` for a missing right,
    ``Transient`` for passing faults and ``Unreadable`` for everything else, each with the address or topic.
    """

    def __init__(self, spark: SparkSession, properties: Mapping[str, str], timeout_s: float = 30.0) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._timeout_ms = int(timeout_s * 1000)
        self._where = properties["bootstrap.servers"]
        admin = self._jvm.org.apache.kafka.clients.admin.Admin
        if not hasattr(admin, "create"):
            raise SpecError(
                "The Kafka client is not on Spark's class path. Pass the connector's jars with --jars (make setup "
                "puts them into build/jars/spark)."
            )
        java = self._jvm.java.util.Properties()
        for key, value in {
            **properties,
            "request.timeout.ms": str(min(10_000, self._timeout_ms)),
            "default.api.timeout.ms": str(self._timeout_ms),
        }.items():
            java.put(key, value)
        try:
            self._admin = admin.create(java)
        except Py4JJavaError as error:
            raise _translate(error, f"the broker at {self._where}") from error

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the admin client; waits at most a second for it."""
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    def _get(self, future: Any, what: str) -> Any:
        try:
            return future.get(self._timeout_ms + 2_000, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
        except Py4JJavaError as error:
            raise _translate(error, f"{what} at {self._where}") from error

    def topic(self, name: str) -> Topic:
        """The topic's id and partitions."""
        names = self._jvm.java.util.ArrayList()
        names.add(name)
        found = self._get(self._admin.describeTopics(names).allTopicNames(), f"topic {name}").get(name)
        leaders = self._leaders(found.partitions())
        return Topic(
            name,
            str(found.topicId().toString()),
            tuple(sorted(leaders)),
            tuple(sorted(p for p, ok in leaders.items() if not ok)),
        )

    @staticmethod
    def _leaders(partitions: Any) -> dict[int, bool]:
        """Whether each partition has a leader. Read from one text: six calls a partition would cost a freeze half a
        second for every 200."""
        found = {int(p): int(leader or -1) >= 0 for p, leader in _LEADER.findall(str(partitions.toString()))}
        if len(found) == int(partitions.size()):
            return found
        return {int(p.partition()): p.leader() is not None and p.leader().id() >= 0 for p in partitions}

    def ranges(self, topic: Topic, *, read_committed: bool = True) -> dict[int, Range]:
        """[log start, end) of every partition; the end is END_C (the LSO) or, read uncommitted, END_U."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        starts = self._list(topic, spec.earliest(), read_committed=False)
        ends = self._list(topic, spec.latest(), read_committed=read_committed)
        return {p: Range(starts[p][0], max(starts[p][0], ends[p][0])) for p in topic.partitions}

    def first_at(self, topic: Topic, timestamp_ms: int) -> dict[int, tuple[int, int] | None]:
        """Per partition the offset and timestamp (ms) of the first record not older than this, or None."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(timestamp_ms)
        found = self._list(topic, spec, read_committed=False)
        return {p: (o if o[0] >= 0 else None) for p, o in found.items()}

    def latest_timestamps(self, topic: Topic) -> dict[int, int | None]:
        """Per partition the largest timestamp (ms) of its records, or None when it is empty."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.maxTimestamp()
        found = self._list(topic, spec, read_committed=False)
        return {p: (o[1] if o[1] >= 0 else None) for p, o in found.items()}

    def _list(self, topic: Topic, spec: Any, *, read_committed: bool) -> dict[int, tuple[int, int]]:
        common = self._jvm.org.apache.kafka.common
        asked, where = self._jvm.java.util.HashMap(), {}
        for p in topic.partitions:
            where[p] = common.TopicPartition(topic.name, p)
            asked.put(where[p], spec)
        level = common.IsolationLevel.READ_COMMITTED if read_committed else common.IsolationLevel.READ_UNCOMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        found = self._get(self._admin.listOffsets(asked, options).all(), f"offsets of topic {topic.name}")
        out: dict[int, tuple[int, int]] = {}
        for p, tp in where.items():
            info = found.get(tp)
            out[p] = (int(info.offset()), int(info.timestamp()))
        return out


def _translate(error: Py4JJavaError, what: str) -> Exception:
    cause = error.java_exception
    while cause.getCause() is not None and cause.getClass().getSimpleName() in (
        "ExecutionException",
        "CompletionException",
        "KafkaException",
    ):
        cause = cause.getCause()
    name, text = str(cause.getClass().getSimpleName()), str(cause.getMessage())
    if name == "UnknownTopicOrPartitionException":
        return NotFound(f"{what}: the broker has no such topic (or this user may not see it). Check the name.")
    if name == "InvalidTopicException":
        return SpecError(f"{what}: not a legal topic name ({text}).")
    if name.endswith("AuthorizationException"):
        return AccessDenied(f"{what}: not authorised ({text}). Grant DESCRIBE and READ on the topic.")
    if name in ("SaslAuthenticationException", "SslAuthenticationException"):
        return AccessDenied(f"{what}: the broker refused the credentials ({name}).")
    if name in ("ConfigException", "InvalidConfigurationException"):
        return SpecError(f"The Kafka client refuses its settings: {text}")
    if name in ("LeaderNotAvailableException", "NotLeaderOrFollowerException"):
        return Transient(f"{what}: no leader just now ({name}). Try again.")
    return Unreadable(f"{what} could not be read within the time-out ({name}: {text}). Is the broker reachable?")


def read(  # noqa: PLR0913 - the options of one read, by keyword
    spark: SparkSession,
    properties: Mapping[str, str],
    topic: str,
    ranges: Mapping[int, Range],
    *,
    read_committed: bool = True,
    min_partitions: int | None = None,
    headers: bool = False,
    poll_timeout_s: float = 45.0,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of exactly these ranges, with the columns of :data:`SCHEMA`.

    Partitions whose range is empty are not asked for. ``min_partitions`` splits large partitions over more tasks. A
    range that is no longer all there fails the query (``failOnDataLoss``), and so does a broker that is silent for
    ``poll_timeout_s``.
    """
    wanted = {p: r for p, r in sorted(ranges.items()) if r.size}
    schema = SCHEMA + (", headers array<struct<key: string, value: binary>>" if headers else "")
    if not wanted:
        return spark.createDataFrame([], schema)
    given = {
        "assign": json.dumps({topic: list(wanted)}),
        "startingOffsets": json.dumps({topic: {str(p): r.start for p, r in wanted.items()}}),
        "endingOffsets": json.dumps({topic: {str(p): r.end for p, r in wanted.items()}}),
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
        "kafkaConsumer.pollTimeoutMs": str(int(poll_timeout_s * 1000)),
        "kafka.isolation.level": "read_committed" if read_committed else "read_uncommitted",
        # A topic that is deleted meanwhile must not come back to life, empty.
        "kafka.allow.auto.create.topics": "false",
        # The client's defaults are for low latency; a scan wants few, large answers (half the CPU time of a count).
        "kafka.max.poll.records": "20000",
        "kafka.max.partition.fetch.bytes": str(4 << 20),
        "kafka.receive.buffer.bytes": str(1 << 20),
        # After each poll Spark asks for the log's ends on the connection on which the client has already sent the next
        # fetch, and the broker answers in order. At the log's end that fetch waits its full time: half a second a task.
        "kafka.fetch.max.wait.ms": "10",
        # A broker that has gone is an error within the time-out, not after several of them.
        "kafka.default.api.timeout.ms": str(int(poll_timeout_s * 1000)),
        "kafka.request.timeout.ms": str(int(min(poll_timeout_s, 30.0) * 1000)),
        "fetchOffset.numRetries": "1",
        **{f"kafka.{k}": v for k, v in properties.items()},
        **(options or {}),
    }
    if min_partitions is not None and min_partitions > len(wanted):
        given["minPartitions"] = str(min_partitions)
    return _load(spark, given)


def _load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Load through the source's DataSource V2 reader: Spark sends batch reads of Kafka through V1 by default, which
    turns every record into an external Row and back.
    """
    name = "spark.sql.sources.useV1SourceList"
    before = str(spark.conf.get(name, ""))
    spark.conf.set(name, ",".join(source for source in before.split(",") if source.strip() != "kafka"))
    try:
        return spark.read.format("kafka").options(**options).load()
    finally:
        spark.conf.set(name, before)


def total(ranges: Iterable[Range]) -> int:
    """The number of offsets in all of these."""
    return sum(r.size for r in ranges)
