"""All three offsets of every partition in three requests, whatever the number of partitions.

Each call from Python into the JVM costs a fraction of a millisecond; a topic with thousands of partitions would pay
for tens of thousands of them. The questions are therefore built once, and each answer crosses as one string.
"""

from __future__ import annotations

import re
from typing import Any

from topicshift.core.errors import AccessDenied, NotFound, TopicshiftError
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift_spark.source import Cluster, Topic

# {payments-0=ListOffsetsResultInfo(offset=42, timestamp=-1, leaderEpoch=Optional[0]), ...}
_ENTRY = re.compile(r"-(\d+)=ListOffsetsResultInfo\(offset=(-?\d+), ")


class OffsetsProbe:
    """Asks one topic for its id and for (log start, END_C, END_U) of every partition, again and again.

    Made before the fence and asked after it, so that the answer costs four requests and no set-up.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._jvm: Any = cluster._jvm
        self._admin: Any = cluster._admin
        self._built_for: tuple[int, ...] | None = None

    def topic(self) -> Topic | None:
        """The topic, or None if the broker says that there is none. Raises as :class:`Cluster` does otherwise."""
        try:
            return self._cluster.topic(self._name)
        except NotFound:
            return None

    def offsets(self, topic: Topic) -> dict[int, PartitionOffsets]:
        """One entry for every partition; where one could not be read, its ``error`` says why."""
        if topic.partitions != self._built_for:
            self._build(topic)
        try:
            futures = [self._admin.listOffsets(asked, how).all() for asked, how in self._questions]
            start, stable, end = [self._answers(future) for future in futures]
        except TopicshiftError:
            return self._one_by_one(topic)
        return {
            p: PartitionOffsets(start[p], stable[p], end[p])
            if p in start and p in stable and p in end
            else PartitionOffsets(None, None, None, "the broker's answer left this partition out")
            for p in topic.partitions
        }

    def _build(self, topic: Topic) -> None:
        kafka = self._jvm.org.apache.kafka
        spec = kafka.clients.admin.OffsetSpec
        earliest, latest = self._jvm.java.util.HashMap(), self._jvm.java.util.HashMap()
        first, last = spec.earliest(), spec.latest()
        self._of = {p: kafka.common.TopicPartition(topic.name, p) for p in topic.partitions}
        for key in self._of.values():
            earliest.put(key, first)
            latest.put(key, last)
        options = kafka.clients.admin.ListOffsetsOptions
        level = kafka.common.IsolationLevel
        self._questions = (
            (earliest, options(level.READ_UNCOMMITTED)),
            (latest, options(level.READ_COMMITTED)),
            (latest, options(level.READ_UNCOMMITTED)),
        )
        self._built_for = topic.partitions

    def _answers(self, future: Any) -> dict[int, int]:
        text = str(self._cluster._get(future, f"offsets of topic {self._name}").toString())
        return {int(p): int(offset) for p, offset in _ENTRY.findall(text)}

    def _one_by_one(self, topic: Topic) -> dict[int, PartitionOffsets]:
        """Some partition could not be read: find out which, so that the others still count."""
        results = [self._admin.listOffsets(asked, how) for asked, how in self._questions]
        out: dict[int, PartitionOffsets] = {}
        for p in topic.partitions:
            try:
                start, stable, end = (
                    int(self._cluster._get(r.partitionResult(self._of[p]), f"{self._name}-{p}").offset())
                    for r in results
                )
                out[p] = PartitionOffsets(start, stable, end)
            except TopicshiftError as error:
                out[p] = PartitionOffsets(None, None, None, str(error))
        return out


def cleanup_policy(cluster: Cluster, name: str) -> str:
    """The topic's ``cleanup.policy`` (``delete``, ``compact`` or both); empty where DESCRIBE_CONFIGS is not granted."""
    jvm: Any = cluster._jvm
    admin: Any = cluster._admin
    config = jvm.org.apache.kafka.common.config.ConfigResource
    asked = jvm.java.util.ArrayList()
    resource = config(jvm.org.apache.kafka.common.config.ConfigResource.Type.TOPIC, name)
    asked.add(resource)
    try:
        found = cluster._get(admin.describeConfigs(asked).all(), f"configs of topic {name}").get(resource)
    except AccessDenied:
        return ""
    return str(found.get("cleanup.policy").value())
