"""What MirrorMaker 2 copies, and how far it is, by the settings and the offsets of its connectors. Pure.

Its source connector joins no group and commits nothing to Kafka: how far it has copied lies in the offsets topic of its
Connect workers, by cluster alias, topic and partition. It takes topics by patterns, and keeps a record's partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from topicshift.core.kafka.connect import topics_of

SETS_OFFSETS_FROM = (3, 6)
"""First version of Connect whose interface changes the offsets of a connector."""

_KINDS: dict[str, Literal["source", "checkpoint"]] = {
    "MirrorSourceConnector": "source",
    "MirrorSource": "source",
    "MirrorCheckpointConnector": "checkpoint",
    "MirrorCheckpoint": "checkpoint",
}
_EXCLUDED = "mm2.*\\.internal,.*\\.replica,__.*"
_RESETS = ("source.cluster.auto.offset.reset", "consumer.auto.offset.reset", "source.consumer.auto.offset.reset")


def kind_of(config: Mapping[str, str]) -> Literal["source", "checkpoint", ""]:
    """Which connector of MirrorMaker 2 it is: the one that copies records, or the one that copies groups' offsets."""
    return _KINDS.get(config.get("connector.class", "").rpartition(".")[2], "")


@dataclass(frozen=True)
class Flow:
    """One connector of MirrorMaker 2, without what may be secret.

    ``connection`` names the worker; ``worker_cluster`` is the Kafka cluster that it works with, and writes to.
    ``topics`` and ``exclude`` are patterns. ``filter``: a class that chooses topics in place of these; empty: none.
    """

    connection: str
    connector: str
    kind: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    filter: str = ""
    alias: str = ""
    target_alias: str = ""
    separator: str = "."
    policy: str = "DefaultReplicationPolicy"
    bootstrap: tuple[str, ...] = ()
    copies_acls: bool = True
    enabled: bool = True
    worker_cluster: str = ""

    def copies(self, topic: str) -> bool | None:
        """Whether it copies the topic; None where that cannot be told from its settings."""
        if not self.enabled or _internal(topic) or self._cycle(topic):
            return False
        if self.filter:
            return None
        left_out = matches(self.exclude, topic)
        return False if left_out else _and_not(matches(self.topics, topic), left_out)

    def by_name(self, topic: str) -> bool:
        """Whether its ``topics`` name the topic itself."""
        return topic in self.topics

    def patterns(self, topic: str) -> list[str]:
        """Entries of its ``topics`` that are not the topic's name and match it, or may."""
        return [e for e in self.topics if e != topic and matches([e], topic) is not False]

    def remote(self, topic: str) -> str | None:
        """What it calls its copy of the topic; None where a policy of somebody's own names it."""
        if self.policy == "DefaultReplicationPolicy":
            return f"{self.alias}{self.separator}{topic}"
        return topic if self.policy == "IdentityReplicationPolicy" else None

    def writes(self, topic: str) -> bool:
        """Whether the topic is one of its copies, by its name, in the cluster of its worker."""
        if self.policy == "IdentityReplicationPolicy":
            return self.copies(topic) is True
        begin = f"{self.alias}{self.separator}"
        origin = topic.removeprefix(begin)
        return self.policy == "DefaultReplicationPolicy" and origin != topic and self.copies(origin) is True

    def reads_from(self, addresses: Iterable[str]) -> bool:
        """Whether it names one of these addresses (``host:port``) for the cluster that it copies from."""
        return not {a.lower() for a in self.bootstrap}.isdisjoint(a.lower() for a in addresses)

    def _cycle(self, topic: str) -> bool:
        """Whether the topic came from the cluster that it copies to."""
        if self.policy != "DefaultReplicationPolicy" or not self.separator:
            return False
        return self.target_alias in topic.split(self.separator)[:-1]


def read_flow(connection: str, worker_cluster: str, connector: str, config: Mapping[str, str]) -> Flow | None:
    """The flow of a connector with these settings; None for a connector of another kind."""
    kind = kind_of(config)
    if not kind:
        return None
    chosen = config.get("topic.filter.class", "").rpartition(".")[2]
    policy = config.get("replication.policy.class", "").rpartition(".")[2]
    return Flow(
        connection,
        connector,
        kind,
        tuple(topics_of(config.get("topics", ".*"))),
        tuple(topics_of(config.get("topics.exclude", _EXCLUDED))),
        "" if chosen in ("", "DefaultTopicFilter") else chosen,
        config.get("source.cluster.alias", ""),
        config.get("target.cluster.alias", ""),
        config.get("replication.policy.separator", "."),
        policy or "DefaultReplicationPolicy",
        tuple(topics_of(config.get("source.cluster.bootstrap.servers", ""))),
        config.get("sync.topic.acls.enabled", "true").strip().lower() != "false",
        config.get("enabled", "true").strip().lower() != "false",
        worker_cluster,
    )


def matches(patterns: Sequence[str], topic: str) -> bool | None:
    """Whether one of the patterns (Java's, whole) covers the topic; None where one is not understood and none does."""
    unknown = False
    for pattern in patterns:
        try:
            if "&&" in pattern:  # an intersection of classes in Java, and two characters here
                raise re.error("another meaning")
            if re.fullmatch(pattern, topic):
                return True
        except re.error:
            if pattern == topic:
                return True
            unknown = True
    return None if unknown else False


def _and_not(taken: bool | None, left_out: bool | None) -> bool | None:
    if taken is False:
        return False
    return None if taken is None or left_out is None else True


def _internal(topic: str) -> bool:
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal"))


def begins_elsewhere(config: Mapping[str, str]) -> str:
    """The setting by which it begins a partition without an offset anywhere but at the log start; empty: none."""
    found = [key for key in _RESETS if config.get(key, "earliest").strip().lower() != "earliest"]
    return f"{found[0]}={config[found[0]]}" if found else ""


# ------------------------------------------------------------------------------------------------------- offsets


def positions(answer: Any, alias: str, topic: str) -> dict[int, int]:
    """The next offset to be copied, by partition, from ``GET /connectors/NAME/offsets``.

    A partition of which nothing was copied is left out. Raises ``ValueError`` for another answer.
    """
    try:
        entries = [(e["partition"], e["offset"]) for e in answer["offsets"]]
        return {
            int(where["partition"]): int(at["offset"]) + 1
            for where, at in entries
            if at is not None and where.get("topic") == topic and where.get("cluster") == alias
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not the offsets of MirrorMaker 2 ({type(error).__name__}: {error})") from None


def change(alias: str, topic: str, offsets: Mapping[int, int]) -> list[dict[str, Any]]:
    """Entries of ``PATCH /connectors/NAME/offsets`` after which these are the next offsets to be copied.

    Its own offset is the last one copied. To begin at 0 it has to have none: it goes to the log start then.
    """
    return [
        {
            "partition": {"cluster": alias, "topic": topic, "partition": partition},
            "offset": {"offset": at - 1} if at > 0 else None,
        }
        for partition, at in sorted(offsets.items())
    ]


def to_set(own: Mapping[int, int], kept: Mapping[int, int | None], log_starts: Mapping[int, int]) -> dict[int, int]:
    """The offsets that have to be set, so that it begins where ``kept`` says, by partition.

    ``own`` is how far it has copied this topic. What it has of a topic that is begun at its log start is of an earlier
    topic of that name. Where it is to go on further up, its own word stands, and ``kept`` for one that is lost.
    """
    found = dict.fromkeys(own.keys() - kept.keys(), 0)
    for partition, at in kept.items():
        if at is None:
            continue
        begins = at <= log_starts.get(partition, 0)
        if (own.get(partition, 0) != at) if begins else (partition not in own):
            found[partition] = at
    return found


def skips(own: Mapping[int, int], log_starts: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Offsets [from, to) that are gone before they were copied, by partition: it would go on behind them, silently."""
    return {p: (at, log_starts[p]) for p, at in sorted(own.items()) if at < log_starts.get(p, 0)}
