"""A simulated group coordinator: members, assignment, eager rebalances, over the simulated cluster's commits."""

from __future__ import annotations

from dataclasses import dataclass, field

from topicshift.ports import GroupMember

from .cluster import SimCluster

SESSION_S = 10.0


@dataclass
class _Member:
    topic: str
    seen: float
    rejoined: bool = False
    assigned: tuple[int, ...] = ()
    count: int = 0


@dataclass
class Coordinator:
    """One consumer group. ``generation`` rises with each assignment."""

    cluster: SimCluster
    group: str
    members: dict[str, _Member] = field(default_factory=dict)
    generation: int = 0
    rebalancing: bool = False

    def join(self, name: str, topic: str, now: float) -> None:
        """A member joins on a topic."""
        self.members[name] = _Member(topic, now)
        self._disturb()

    def leave(self, name: str) -> None:
        """A member leaves, or its session ends."""
        if self.members.pop(name, None) is not None:
            self.cluster.leave(self.group, name)
            self._disturb()

    def _disturb(self) -> None:
        self.rebalancing = True
        for member in self.members.values():
            member.rejoined = False
        self._assign()

    def heartbeat(self, name: str, now: float) -> bool:
        """A member says that it lives; False when the group has given it up."""
        for other in [n for n, m in self.members.items() if now - m.seen > SESSION_S and n != name]:
            self.leave(other)
        mine = self.members.get(name)
        if mine is None:
            return False
        mine.seen = now
        if not self.rebalancing and mine.count != (self.cluster.partitions(mine.topic) or 0):
            self._disturb()
        return True

    def rejoin(self, name: str) -> None:
        """A member has given its partitions up and waits for the new assignment."""
        self.members[name].rejoined = True
        self._assign()

    def _assign(self) -> None:
        if not all(m.rejoined for m in self.members.values()):
            return
        self.rebalancing = False
        self.generation += 1
        topics: dict[str, list[str]] = {}
        for name, member in sorted(self.members.items()):
            topics.setdefault(member.topic, []).append(name)
        for topic, names in topics.items():
            count = self.cluster.partitions(topic) or 0
            for i, name in enumerate(names):
                parts = tuple(p for p in range(count) if p % len(names) == i)
                self.members[name].assigned, self.members[name].count = parts, count
                held = GroupMember(name, name, "h", assignment={topic: parts} if parts else {}, topics=(topic,))
                self.cluster.join(self.group, held)

    def commit(self, name: str, topic: str, offsets: dict[int, int]) -> bool:
        """Commit for a member of the group; False for one that the group has given up."""
        if name not in self.members:
            return False
        if offsets:
            self.cluster.commit(self.group, topic, offsets)
        return True
