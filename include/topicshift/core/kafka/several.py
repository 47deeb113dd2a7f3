"""What a consumer group reads beside one topic, and whether it can join the two by partition. Pure."""

from __future__ import annotations

from topicshift.core.kafka.cluster import GroupInfo


def topics_of(info: GroupInfo) -> frozenset[str]:
    """The topics that members of the group have partitions of, or subscribe to by name.

    A pattern (``^...``) stands for what is assigned by it.
    """
    assigned = {t for m in info.members for t, partitions in m.assignment.items() if partitions}
    return frozenset(assigned | {t for m in info.members for t in m.topics if not t.startswith("^")})


def assigned_count(info: GroupInfo, topic: str) -> int | None:
    """How many partitions a topic has by what is assigned in a settled group; None where that does not tell.

    A settled group has every partition assigned of what it subscribes to.
    """
    held = {p for m in info.members for p in m.assignment.get(topic, ())}
    return len(held) if info.state == "STABLE" and held == set(range(len(held))) and held else None


def held_apart(info: GroupInfo, one: str, other: str) -> bool:
    """Whether some partition of one topic is held by another member than that of the same number of the other topic.

    Nobody can join the two by partition then. Only a settled group tells.
    """
    if info.state != "STABLE":
        return False
    holder = {p: m.member_id for m in info.members for p in m.assignment.get(one, ())}
    return any(holder.get(p, m.member_id) != m.member_id for m in info.members for p in m.assignment.get(other, ()))
