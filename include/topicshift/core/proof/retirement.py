"""When the source of a finished migration may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from topicshift.core.findings import CodeDoc, Finding, Level, find
from topicshift.core.kafka.cluster import PartitionOffsets, TopicInfo

NOT_DUE = "TS606"


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


CODES: tuple[CodeDoc, ...] = (
    CodeDoc(
        "TS601",
        (Level.ERROR,),
        "The topic does not exist any more: somebody else has deleted it.",
        "Find out who did. The next run of topic_retirement closes the migration.",
    ),
    CodeDoc(
        "TS602",
        (Level.ERROR,),
        "Another topic has the name by now (another topic id): the one that was migrated was deleted and made again.",
        "Find out who uses it; this migration does not delete it.",
    ),
    CodeDoc(
        "TS603",
        (Level.ERROR,),
        "It was written to after the fence; these records reach nobody who reads the target.",
        "Find the producer and move its records, then start again.",
    ),
    CodeDoc(
        "TS604",
        (Level.ERROR,),
        "The end of a partition could not be read, so it may have been written to.",
        "Make the cluster reachable; the next daily run looks again.",
    ),
    CodeDoc(
        "TS605",
        (Level.ERROR,),
        "Groups still read it: they have members on it (or a pattern that covers it), or their commits move.",
        "Point them to the target, or stop them.",
    ),
    CodeDoc(
        NOT_DUE,
        (Level.ERROR,),
        "It is kept for now: `retire.after` or the topic's own retention has not passed since the switch.",
        "Wait; the daily run takes it up by itself.",
    ),
    CodeDoc(
        "TS609",
        (Level.ERROR,),
        "Something that may be a reader could not be read. Unknown blocks.",
        "Make it readable, or wait; the next daily run looks again.",
    ),
)
"""The codes, for ``docs/findings.md``."""

_DO = {doc.code: doc.remedy for doc in CODES}


def retirement_findings(  # noqa: PLR0913 - the facts of one decision, by keyword
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

    def against(code: str, seen: str, why: str, *, unknown: bool = False) -> Finding:
        return find(code, Level.ERROR, source, seen, why, _DO[code], unknown=unknown)

    out = [
        against(
            "TS609",
            f"This could not be read: {what}.",
            "What cannot be read may be somebody who still uses the topic.",
            unknown=True,
        )
        for what in unreadable
    ]
    if info is None:
        seen = "The topic does not exist any more."
        return [*out, against("TS601", seen, "Somebody else has deleted it; there is nothing to retire.")]
    if info.topic_id != expected_topic_id:
        out.append(
            against(
                "TS602",
                f"Its topic id is {info.topic_id}, but {expected_topic_id} was migrated.",
                "It was deleted and made again: this is another topic with other records.",
            )
        )
    grown = {
        p: o.end - fence_offsets.get(p, 0)
        for p, o in offsets.items()
        if o.end is not None and o.end > fence_offsets.get(p, 0)
    }
    if grown:
        where = ", ".join(f"{source}[{p}] +{n}" for p, n in sorted(grown.items()))
        out.append(
            against(
                "TS603",
                f"It was written to after the fence: {where}.",
                "A producer still uses it; its records reach nobody who reads the target.",
            )
        )
    missing = sorted(set(info.replicas) - {p for p, o in offsets.items() if o.end is not None})
    if missing:
        out.append(
            against(
                "TS604",
                f"The end of partitions {missing} could not be read.",
                "They may have been written to.",
                unknown=True,
            )
        )
    if readers:
        seen = f"These groups still read it: {', '.join(sorted(readers))}."
        out.append(against("TS605", seen, "They would lose their topic."))
    if now < due:
        out.append(
            against(
                NOT_DUE,
                f"It is kept until {due:%Y-%m-%d %H:%M} UTC.",
                "Until then somebody may need its records (`retire.after`, and the topic's own retention).",
            )
        )
    return out


def only_time(findings: Sequence[Finding]) -> bool:
    """Whether nothing but time speaks against it: not a failure, and nothing for a person to do."""
    return bool(findings) and {f.code for f in findings} == {NOT_DUE}
