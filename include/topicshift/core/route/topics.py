"""How the two topics of the route must be configured, and what is wrong with them as they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topicshift.core.kafka.cluster import TopicInfo
from topicshift.core.route.records import ACKS_TOPIC, ROUTES_TOPIC

_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_FOR_EVER = {"cleanup.policy": "compact", **_STAMPED}
READER: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "earliest",
}
"""librdkafka properties of a reader of the route. It wants a ``group.id`` too: never joined, never committed to."""

_LEAST_BYTES, _USUAL_BYTES = 1_000_000, 1_048_588
"""The least of ``max.message.bytes`` (an acknowledgement names every partition), and Kafka's default."""

_WEEK_MS = 7 * 86_400_000
_DAY_MS = 86_400_000

CONFIGS: Mapping[str, Mapping[str, str]] = {
    ROUTES_TOPIC: _FOR_EVER,
    ACKS_TOPIC: {
        # Heartbeats pile up: small segments, compacted often, and instances that are long gone leave at last.
        "cleanup.policy": "compact,delete",
        "retention.ms": str(_WEEK_MS),
        "segment.ms": "600000",
        "max.compaction.lag.ms": "600000",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "600000",
        **_STAMPED,
    },
}
"""What the topics are made with."""

_WHY = {
    "partitions": "records of one logical topic must lie in one order",
    "replication factor": "with fewer replicas than brokers allow, a lost broker loses the route",
    "cleanup.policy": "a record that expires lets a restarted producer write to the old topic",
    "message.timestamp.type": "the end of a pause and the age of an acknowledgement count from the brokers' stamps",
    "min.insync.replicas": "with fewer an acknowledged record may be on one broker only, with more none is written",
    "max.message.bytes": "a route with many groups, or an acknowledgement with many partitions, would be refused",
    "retention.ms": "the last word of an instance would be gone before it counts as gone",
    "retention.bytes": "the last word of an instance would be gone before it counts as gone",
}


@dataclass(frozen=True)
class TopicProblem:
    """One thing that is wrong with a topic of the route. ``mend``: the config that mends it, None if none does."""

    topic: str
    setting: str
    found: str
    wanted: str
    mend: tuple[str, str] | None = None

    @property
    def why(self) -> str:
        """Why it matters, as the second half of a sentence."""
        return _WHY[self.setting]

    @property
    def text(self) -> str:
        """In words: what was seen, why it matters, what to do."""
        do = (
            f"Mend it: topicshift route init (it sets {self.mend[0]}={self.mend[1]})."
            if self.mend
            else "No config mends that; docs/route-protocol.md says how to make the topic anew without losing a route."
        )
        return f"{self.topic} has {self.setting} {self.found}, not {self.wanted}: {self.why}. {do}"


def replicas_for(brokers: int) -> int:
    """The replication factor of both topics."""
    return min(3, max(1, brokers))


def topic_problems(topic: TopicInfo, brokers: int) -> list[TopicProblem]:
    """What is wrong with a topic of the route. A config that the broker did not tell is wrong, too."""
    name, found = topic.name, []

    def value(setting: str) -> str:
        entry = topic.configs.get(setting)
        return "unknown" if entry is None or entry.value is None else entry.value

    def wrong(setting: str, seen: str, wanted: str, mend: str | None = None) -> None:
        found.append(TopicProblem(name, setting, seen, wanted, None if mend is None else (setting, mend)))

    if topic.partitions != 1:
        wrong("partitions", str(topic.partitions), "1")
    replicas = replicas_for(brokers)
    if topic.replication_factor < replicas:
        wrong("replication factor", str(topic.replication_factor), f"at least {replicas}")
    policy = {p.strip() for p in value("cleanup.policy").split(",")}
    right = CONFIGS[name]["cleanup.policy"]
    if policy != {"compact"} and not (name == ACKS_TOPIC and policy == {"compact", "delete"}):
        wrong("cleanup.policy", value("cleanup.policy"), right, right)
    if value("message.timestamp.type") != "LogAppendTime":
        wrong("message.timestamp.type", value("message.timestamp.type"), "LogAppendTime", "LogAppendTime")
    insync = max(1, min(topic.replication_factor, replicas) - 1)
    asked = value("min.insync.replicas")
    if not asked.isdigit() or not insync <= int(asked) <= topic.replication_factor:
        wanted = f"at least {insync} and at most {topic.replication_factor}"
        wrong("min.insync.replicas", asked, wanted, str(insync))
    largest = value("max.message.bytes")
    if not largest.isdigit() or int(largest) < _LEAST_BYTES:
        wrong("max.message.bytes", largest, f"at least {_LEAST_BYTES}", str(_USUAL_BYTES))
    if name == ACKS_TOPIC and "delete" in policy:
        for setting, least, good in (("retention.ms", _DAY_MS, str(_WEEK_MS)), ("retention.bytes", None, "-1")):
            if not _keeps(value(setting), least):
                wrong(setting, value(setting), "-1" if least is None else f"at least {least}, or -1", good)
    return found


def _keeps(value: str, least: int | None) -> bool:
    return value == "-1" or (least is not None and value.isdigit() and int(value) >= least)
