"""When the source of a finished migration may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.cluster import PartitionOffsets, TopicInfo


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


_ERROR = (Level.ERROR,)
TS602 = Code(
    "TS602",
    _ERROR,
    "Another topic has the name by now (another topic id): the one that was migrated was deleted and made again.",
    "Find out who uses it; this migration does not delete it.",
)
TS603 = Code(
    "TS603",
    _ERROR,
    "It was written to after the fence; these records reach nobody who reads the target.",
    "Find the producer and move its records, then start again.",
)
TS604 = Code(
    "TS604",
    _ERROR,
    "The end of a partition could not be read, so it may have been written to.",
    "Make the cluster reachable; the next daily run looks again.",
)
TS605 = Code(
    "TS605",
    _ERROR,
    "Groups still read it: they have members on it (or a pattern that covers it), or their commits move.",
    "Point them to the target, or stop them.",
)
NOT_DUE = Code(
    "TS606",
    _ERROR,
    "It is kept for now: `retire.after` or the topic's own retention has not passed since the switch.",
    "Wait; the daily run takes it up by itself.",
)
TS609 = Code(
    "TS609",
    _ERROR,
    "Something that may be a reader could not be read. Unknown blocks.",
    "Make it readable, or wait; the next daily run looks again.",
)
CODES: tuple[Code, ...] = (TS602, TS603, TS604, TS605, NOT_DUE, TS609)
"""The codes, for ``docs/findings.md``."""


def retirement_findings(  # noqa: PLR0913 - the facts of one decision, by keyword
    *,
    source: str,
    info: TopicInfo,
    expected_topic_id: str,
    fence_offsets: Mapping[int, int],
    offsets: Mapping[int, PartitionOffsets],
    readers: Sequence[str],
    unreadable: Sequence[str],
    due: datetime,
    now: datetime,
) -> Iterator[Finding]:
    """Everything that speaks against deleting the source now.

    ``readers``: groups seen reading it (members, or commits that moved); ``unreadable``: what could not be read.
    """
    for what in unreadable:
        why = "What cannot be read may be somebody who still uses the topic."
        yield TS609.error(source, f"This could not be read: {what}.", why, unknown=True)
    if info.topic_id != expected_topic_id:
        seen = f"Its topic id is {info.topic_id}, but {expected_topic_id} was migrated."
        yield TS602.error(source, seen, "It was deleted and made again: this is another topic with other records.")
    ends = {p: o.end for p, o in offsets.items() if o.end is not None}
    grown = {p: end - fence_offsets.get(p, 0) for p, end in sorted(ends.items()) if end > fence_offsets.get(p, 0)}
    if grown:
        where = ", ".join(f"{source}[{p}] +{n}" for p, n in grown.items())
        why = "A producer still uses it; its records reach nobody who reads the target."
        yield TS603.error(source, f"It was written to after the fence: {where}.", why)
    if missing := sorted(set(info.replicas) - ends.keys()):
        seen = f"The end of partitions {missing} could not be read."
        yield TS604.error(source, seen, "They may have been written to.", unknown=True)
    if readers:
        seen = f"These groups still read it: {', '.join(sorted(readers))}."
        yield TS605.error(source, seen, "They would lose their topic.")
    if now < due:
        why = "Until then somebody may need its records (`retire.after`, and the topic's own retention)."
        yield NOT_DUE.error(source, f"It is kept until {due:%Y-%m-%d %H:%M} UTC.", why)


def only_time(findings: Sequence[Finding]) -> bool:
    """Whether nothing but time speaks against it: not a failure, and nothing for a person to do."""
    return bool(findings) and {f.code for f in findings} == {NOT_DUE.code}
