"""How a Kafka Streams application shows in Kafka: by its group's protocol, its members, and its internal topics. Pure.

Its group has the name of its ``application.id``. One that is stopped and keeps no internal topics shows as an empty
group like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from topicshift.core.kafka.cluster import GroupInfo

ASSIGNOR = "stream"
"""The assignor of every Streams application that uses the classic protocol."""

_THREAD = re.compile(r"-StreamThread-\d+-consumer$")
"""How the client id of a Streams thread's consumer ends, whatever ``client.id`` was set to."""

_INTERNAL = ("-changelog", "-repartition")


def internal_topics(group: str, topics: Iterable[str], groups: Iterable[str] = ()) -> list[str]:
    """Topics that are named like internal ones of the application whose group this is, sorted.

    They are called ``<application.id>-<name>-changelog`` or ``-repartition``. One whose name begins with that of
    another, longer group (``groups``) is taken for that group's.
    """
    longer = [g for g in groups if len(g) > len(group) and g.startswith(f"{group}-")]

    def named(name: str, owner: str) -> bool:
        return any(
            name.startswith(f"{owner}-") and name.endswith(e) and len(name) > len(owner + e) + 1 for e in _INTERNAL
        )

    return sorted(t for t in topics if named(t, group) and not any(named(t, other) for other in longer))


def is_streams(info: GroupInfo | None, internal: Iterable[str]) -> str | None:
    """What says that a group is a Kafka Streams application, in words; None where nothing does.

    ``internal`` are the topics of :func:`internal_topics`. Their names alone are a habit that others may share: they
    count where the group does not tell by itself what it is.
    """
    if info is not None and info.error is None:
        if info.kind == "streams":
            return "its group has the streams protocol"
        if info.assignor == ASSIGNOR:
            return f"its members share partitions by the assignor {ASSIGNOR!r}"
        for member in info.members:
            if _THREAD.search(member.client_id):
                return f"its member {member.client_id} is a thread of Kafka Streams"
        if info.kind != "classic" or info.assignor is not None:
            return None  # Streams has none of these protocols and assignors
    found = list(internal)
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"there are topics with names of its internal ones: {found[0]}{more}"
