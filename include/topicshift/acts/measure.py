"""Measure rates from the offsets of a topic over time, and of a group's commits beside them. Read-only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from topicshift.core.errors import NotFound
from topicshift.core.kafka.cluster import error_of_unread
from topicshift.core.sizing.sizing import OffsetSample
from topicshift.ports import Clock, ClusterAdmin


def sample_offsets(
    admin: ClusterAdmin,
    topic: str,
    *,
    group: str | None = None,
    span: timedelta,
    every: timedelta,
    clock: Clock,
    progress: Callable[[str], None] = lambda _: None,
) -> list[OffsetSample]:
    """Look at the end offsets (and the group's commits) every so often for ``span``; at least twice.

    Raises ``NotFound`` for a topic that does not exist, ``Unreadable`` when the group's commits cannot be read.
    A partition that cannot be read is None in that sample.
    """
    info = admin.topic(topic)
    if info is None:
        raise NotFound(f"Topic {topic} does not exist, so it has no rates. Correct --topic.")
    partitions = sorted(info.replicas)
    start = clock.now()
    samples: list[OffsetSample] = []
    while True:
        at = (clock.now() - start).total_seconds()
        offsets = admin.offsets(topic, partitions)
        commits: dict[int, int | None] = {}
        if group is not None:
            found = admin.commits([group], topic, partitions).get(group)
            if found is None or found.error:
                raise error_of_unread(found)(
                    f"The commits of group {group} on {topic} cannot be read: {found.error if found else 'no answer'}."
                )
            commits = {p: None if p in found.errors else found.offsets.get(p) for p in partitions}
        samples.append(OffsetSample(at=at, ends={p: offsets[p].end for p in partitions}, commits=commits))
        left = span.total_seconds() - at
        if left <= 0 and len(samples) > 1:
            return samples
        progress(f"measuring {topic}: {max(0.0, left):.0f} s left")
        clock.sleep(max(0.05, min(every.total_seconds(), left)))
