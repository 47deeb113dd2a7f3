"""The simulated cluster: the fake that ships, with records in it, and what outsiders can do to it."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from topicshift.core.errors import AccessDenied, NotFound
from topicshift.ports import Acl
from topicshift.testing.fakes import FakeCluster

from .history import History


@dataclass(frozen=True)
class Record:
    """One record of the simulated log."""

    offset: int
    key: str
    seq: int
    writer: str


class SimCluster(FakeCluster):
    """A cluster whose records can be read, under ACLs that bind the simulated applications."""

    def __init__(self, now_ms: Any, history: History, rng: random.Random) -> None:
        super().__init__(brokers=3, authorizer=True, now_ms=now_ms)
        self.history = history
        self._rng = rng
        self._allowed: dict[tuple[str, str, str], bool] = {}

    # ------------------------------------------------------------------------------------------------ applications

    def partitions(self, topic: str) -> int | None:
        """The number of partitions, None where there is no such topic."""
        found = self._topics.get(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> str | None:
        """The id of the topic of this name."""
        found = self._topics.get(topic)
        return None if found is None else found.topic_id

    def append(self, topic: str, partition: int, key: str, seq: int, writer: str, principal: str | None) -> int:
        """Append one record and return its offset. Raises ``AccessDenied`` or ``NotFound``."""
        if principal is not None and not self.may(principal, "WRITE", topic):
            raise AccessDenied(f"{principal} may not WRITE to topic {topic}")
        p = self._partition(topic, partition)
        offset = p.end
        self._write(topic, partition, 1, None, None)
        _log(p).append(Record(offset, key, seq, writer))
        self.history.add(
            writer,
            "appended",
            topic=topic,
            topic_id=self.topic_id(topic),
            partition=partition,
            offset=offset,
            key=key,
            seq=seq,
        )
        return offset

    def fetch(self, topic: str, partition: int, position: int, limit: int) -> list[Record]:
        """Records from ``position`` on, up to the last stable offset."""
        p = self._partition(topic, partition)
        log, stable = _log(p), p.stable
        if position >= stable:
            return []
        start = bisect_left(log, position, key=lambda r: r.offset)  # transactions leave gaps
        return [r for r in log[start : start + limit] if r.offset < stable]

    def bounds(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Log start and stable end, None where the partition does not exist."""
        found = self._topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        return found.partitions[partition].log_start, found.partitions[partition].stable

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset of a group."""
        held = self._groups.get(group)
        return None if held is None else held.commits.get((topic, partition))

    def may(self, principal: str, operation: str, topic: str) -> bool:
        """Whether the ACLs let a principal do this on the topic; worked out anew once they change."""
        key = (principal, operation, topic)
        if key not in self._allowed:
            self._allowed[key] = super().may(principal, operation, topic)
        return self._allowed[key]

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._allowed.clear()
        super().create_acls(acls)

    def delete_acls(self, acls: Iterable[Acl]) -> None:
        """See :class:`topicshift.ports.ClusterAdmin`."""
        self._allowed.clear()
        super().delete_acls(acls)

    # ------------------------------------------------------------------------------------------------ outsiders

    def forget_commits(self, group: str, topic: str) -> None:
        """The group's commits on the topic expire."""
        held = self._groups.get(group)
        if held is not None:
            held.commits = {k: v for k, v in held.commits.items() if k[0] != topic}

    def reset_commits(self, group: str, topic: str, to: Mapping[int, int]) -> bool:
        """Somebody sets the group's commits; refused (False) while it has members."""
        held = self._groups.get(group)
        if held is None or held.members:
            return False
        held.commits |= {(topic, p): o for p, o in to.items()}
        return True

    def remake(self, topic: str) -> None:
        """Delete the topic and make it again under its name, empty; the brokers forget what was committed on it."""
        old = self._topics[topic]
        for group in list(self._groups):
            self.forget_commits(group, topic)
        FakeCluster.delete_topic(self, topic)
        FakeCluster.create_topic(self, topic, len(old.partitions), old.replication_factor, old.configs)

    def drop_acls(self, which: Any) -> list[Acl]:
        """Remove the bindings that ``which`` picks."""
        gone = sorted(a for a in self._acls if which(a))
        self._acls -= set(gone)
        self._allowed.clear()
        return gone


def _log(partition: Any) -> list[Record]:
    log = getattr(partition, "records", None)
    if log is None:
        log = partition.records = []
    return log


def place(key: str, partitions: int) -> int:
    """The partition of a key."""
    return crc32(key.encode()) % partitions


__all__ = ["NotFound", "Record", "SimCluster", "place"]
