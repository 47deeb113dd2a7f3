"""When the source of a finished migration may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from topicshift.core.cluster import PartitionOffsets, TopicInfo
from topicshift.core.findings import Finding, Level


def retention_of(info: TopicInfo) -> timedelta | None:
    """The topic's ``retention.ms``, None for for ever (-1) or when it cannot be told."""
    entry = info.configs.get("retention.ms")
    if entry is None or entry.value is None or not entry.value.lstrip("-").isdigit() or int(entry.value) < 0:
        return None
    return timedelta(milliseconds=int(entry.value))


def due_at(finished_at: datetime, after: timedelta, retention: timedelta | None) -> datetime:
    """The earliest moment: both the spec's ``retire.after`` and the source's own retention have passed since the end.

    A source that keeps its records for ever has no retention to wait for; ``after`` alone counts then, and the
    approval says so.
    """
    return finished_at + max(after, retention or timedelta(0))


def retirement_findings(
    *,
    source: str,
    info: TopicInfo | None,
    expected_topic_id: str,
    fence_offsets: Mapping[int, int],
    offsets: Mapping[int, PartitionOffsets],
    readers: Sequence[str],
    unreadable: Sequence[str],
    due: datetime,
    now: datetime,
) -> list[Finding]:
    """Everything that speaks against deleting the source now; an empty list means that nothing does.

    ``readers``: groups seen reading it (members, or commits that moved); ``unreadable``: what could not be read.
    """
    out = [
        Finding(
            code="TS609",
            level=Level.ERROR,
            subject=source,
            seen=f"This could not be read: {what}.",
            why="What cannot be read may be somebody who still uses the topic.",
            do="Make it readable, or wait; the next daily run looks again.",
            unknown=True,
        )
        for what in unreadable
    ]
    if info is None:
        return [
            *out,
            Finding(
                code="TS601",
                level=Level.ERROR,
                subject=source,
                seen="The topic does not exist any more.",
                why="Somebody else has deleted it; there is nothing to retire.",
                do="Close the migration with topic_retirement's `close` answer, after finding out who did it.",
            ),
        ]
    if info.topic_id != expected_topic_id:
        out.append(
            Finding(
                code="TS602",
                level=Level.ERROR,
                subject=source,
                seen=f"Its topic id is {info.topic_id}, but {expected_topic_id} was migrated.",
                why="It was deleted and made again: this is another topic with other records.",
                do="Find out who uses it; this migration does not delete it.",
            )
        )
    grown = {
        p: o.end - fence_offsets[p]
        for p, o in offsets.items()
        if o.end is not None and p in fence_offsets and o.end > fence_offsets[p]
    }
    if grown:
        where = ", ".join(f"{source}[{p}] +{n}" for p, n in sorted(grown.items()))
        out.append(
            Finding(
                code="TS603",
                level=Level.ERROR,
                subject=source,
                seen=f"It was written to after the fence: {where}.",
                why="A producer still uses it; its records reach nobody who reads the target.",
                do="Find the producer and move its records, then start again.",
            )
        )
    missing = sorted(set(info.replicas) - {p for p, o in offsets.items() if o.end is not None})
    if missing:
        out.append(
            Finding(
                code="TS604",
                level=Level.ERROR,
                subject=source,
                seen=f"The end of partitions {missing} could not be read.",
                why="They may have been written to.",
                do="Make the cluster reachable; the next daily run looks again.",
                unknown=True,
            )
        )
    if readers:
        out.append(
            Finding(
                code="TS605",
                level=Level.ERROR,
                subject=source,
                seen=f"These groups still read it: {', '.join(sorted(readers))}.",
                why="They would lose their topic.",
                do="Point them to the target, or stop them.",
            )
        )
    if now < due:
        out.append(
            Finding(
                code="TS606",
                level=Level.ERROR,
                subject=source,
                seen=f"It is kept until {due:%Y-%m-%d %H:%M} UTC.",
                why="Until then somebody may need its records (`retire.after`, and the topic's own retention).",
                do="Wait; the daily run takes it up by itself.",
            )
        )
    return out
