"""What the watch over a source finds: who still uses it, and once it is deleted, who has made it again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from topicshift.core.findings import Code, Finding, Level
from topicshift.core.kafka.by_hand import lift_deny
from topicshift.core.kafka.cluster import (
    Acl,
    ActiveProducer,
    GroupCommits,
    GroupInfo,
    PartitionOffsets,
    TopicInfo,
    Transaction,
)
from topicshift.core.proof.retirement import TS605, retirement_findings
from topicshift.core.proof.verification import same_topic_id

AFTER: Final = timedelta(days=30)
"""How long a deleted source is looked for. Clients that are started once a month come within that."""

LATE: Final = timedelta(days=1)
"""How long requests are looked for that take effect after the end. Brokers answer, or forget, within minutes."""

TS611 = Code(
    "TS611",
    (Level.INFO,),
    "The brokers have forgotten commits of a group on the source; the drain certificate keeps them, and counts now.",
    "Nothing. To go back, the group resumes at the offsets of its certificate.",
)
TS612 = Code(
    "TS612",
    (Level.WARNING,),
    "A commit of a group on the source is lower than the one that its certificate has: somebody has set it back.",
    "Ask the group's owner. It reads the target; what it would read again on the source, it has read already.",
)
TS613 = Code(
    "TS613",
    (Level.WARNING,),
    "Somebody else has deleted the source before its retirement.",
    "Find out who. There is no way back to it; the next run of topic_retirement closes the migration.",
)
TS614 = Code(
    "TS614",
    (Level.ERROR,),
    "The source was deleted, and a topic of its name is there again.",
    "Find the client, named as well as Kafka allows; point it to the target, move its records, delete the topic.",
)
TS615 = Code(
    "TS615",
    (Level.ERROR,),
    "A DENY that the migration had lifted is in force again: its own request took effect late, or somebody set it.",
    "Ask whether somebody wants it; else lift it with the command that the finding has.",
)
CODES: Final = (TS611, TS612, TS613, TS614, TS615)
"""The codes, for ``docs/findings.md``."""

KINDS: Final[Mapping[str, str]] = {
    "TS602": "source_replaced",
    "TS603": "source_written",
    "TS605": "source_read",
    "TS611": "commits_expired",
    "TS612": "commits_set_back",
    "TS613": "source_missing",
    "TS614": "source_back",
    "TS615": "deny_late",
}
"""Kind of the event in the audit trail with which a finding of each code is told."""

OVER: Final = "watch_over"
"""Kind of the event with which a finding ends."""


@dataclass(frozen=True)
class Sighting:
    """A finding of the watch. ``key`` is the same for as long as it is the same matter."""

    key: str
    finding: Finding

    @classmethod
    def of(cls, finding: Finding, detail: str = "") -> Sighting:
        """The sighting of a finding; ``detail`` tells matters of one code and subject apart."""
        return cls(" ".join(filter(None, (finding.code, finding.subject, detail))), finding)


@dataclass(frozen=True)
class SourceNow:
    """A source before its deletion, as it was seen. ``certified``: commits by group, as the certificates keep them."""

    info: TopicInfo
    topic_id: str
    fence_offsets: Mapping[int, int]
    offsets: Mapping[int, PartitionOffsets]
    readers: Sequence[str]
    unreadable: Sequence[str]
    certified: Mapping[str, Mapping[int, int]]
    commits: Mapping[str, GroupCommits]
    released: frozenset[str]


def watched(seen: SourceNow, now: datetime) -> Iterator[Sighting]:
    """Everything about a source that is still there. Findings that are ``unknown`` say what could not be read."""
    source = seen.info.name
    for finding in retirement_findings(
        source=source,
        info=seen.info,
        expected_topic_id=seen.topic_id,
        fence_offsets=seen.fence_offsets,
        offsets=seen.offsets,
        readers=(),
        unreadable=seen.unreadable,
        due=now,
        now=now,
    ):
        yield Sighting.of(finding, seen.info.topic_id if finding.code == "TS602" else "")
    for group in sorted(seen.readers):
        back = "It was released to the target, and is back" if group in seen.released else "It reads"
        why = "What it does on the source, the target does not see; it would lose its topic at the retirement."
        yield Sighting.of(TS605.error(group, f"{back} on {source}.", why))
    if same_topic_id(seen.info.topic_id, seen.topic_id):
        for group in sorted(seen.certified):
            yield from _commits(source, group, seen.certified[group], seen.commits.get(group))


def _commits(source: str, group: str, certified: Mapping[int, int], now: GroupCommits | None) -> Iterator[Sighting]:
    if now is None or now.error:
        return  # it is among what could not be read
    known = {p: now.offsets.get(p) for p in certified if p not in now.errors}
    gone = sorted(p for p, offset in known.items() if offset is None)
    lower = sorted(p for p, offset in known.items() if offset is not None and offset < certified[p])
    if gone:
        seen = f"Its commits on {source}, partitions {gone}, have expired."
        why = "The drain certificate keeps them, and is what counts from now on."
        yield Sighting.of(TS611.info(group, seen, why))
    if lower:
        where = ", ".join(f"{source}[{p}] {known[p]} instead of {certified[p]}" for p in lower)
        why = "Somebody has set it back since it was proven drained."
        yield Sighting.of(TS612.warning(group, f"Its commits are lower than certified: {where}.", why))


def missing(source: str) -> Sighting:
    """The source is not there, and the retirement has not deleted it."""
    return Sighting.of(TS613.warning(source, f"{source} does not exist any more.", "The way back is gone with it."))


def shut_again(acls: Iterable[Acl]) -> Iterator[Sighting]:
    """DENY bindings that are in force although they had been lifted, each with the command that lifts it."""
    for acl in acls:
        seen = f"DENY {acl.operation} for {acl.principal} is in force, although this migration had lifted it."
        why = "A request of it may have taken effect late. Whoever it names is refused, and no run is left to lift it."
        do = f"Ask whether somebody wants it; else: {lift_deny(acl.name, acl.principal, [acl.operation])}"
        yield Sighting.of(TS615.error(acl.name, seen, why, do), f"{acl.operation} {acl.principal}")


@dataclass(frozen=True)
class Risen:
    """A topic of a deleted source's name, and everything that Kafka tells of who may have made it."""

    info: TopicInfo
    was_id: str
    offsets: Mapping[int, PartitionOffsets]
    producers: Sequence[ActiveProducer]
    transactions: Sequence[Transaction]
    groups: Sequence[GroupInfo]
    acls: Iterable[Acl] | None
    auto_create: bool | None


def risen(seen: Risen) -> Sighting:
    """The finding about a topic that came back, naming whom Kafka can name."""
    name = seen.info.name
    own = sorted(key for key, entry in seen.info.configs.items() if entry.set_here)
    records = sum((o.end or 0) - (o.log_start or 0) for o in seen.offsets.values())
    unread = sorted(set(seen.info.replicas) - {p for p, o in seen.offsets.items() if o.end is not None})
    parts = [
        f"It is there again, as topic id {seen.info.topic_id} (it was {seen.was_id}), with {seen.info.partitions} "
        f"partition{'' if seen.info.partitions == 1 else 's'}, "
        f"{'configs ' + ', '.join(own) if own else 'no config of its own'} and {records} offsets"
        f"{f' (partitions {unread} could not be read)' if unread else ''}."
    ]
    parts += _writers(seen)
    parts += [
        f"Group {group.group} is on it: " + ", ".join(f"{m.client_id} at {m.host}" for m in group.members) + "."
        for group in seen.groups
    ]
    parts.append(
        {
            True: "The brokers make topics on first use (auto.create.topics.enable), so any client may have made it.",
            False: "The brokers make no topics by themselves, so somebody has created it.",
            None: "Whether the brokers make topics by themselves could not be read.",
        }[seen.auto_create]
    )
    why = "What is written to it reaches nobody who reads the target. Kafka keeps no record of who made a topic."
    return Sighting.of(TS614.error(name, " ".join(parts), why), seen.info.topic_id)


def _writers(seen: Risen) -> Iterator[str]:
    if seen.producers:
        latest = datetime.fromtimestamp(max(p.last_timestamp_ms for p in seen.producers) / 1000, UTC)
        ids = sorted({p.producer_id for p in seen.producers})
        yield f"Producer ids {ids} have written to it, last at {latest:%Y-%m-%d %H:%M:%S} UTC."
    if seen.transactions:
        yield f"Transactional ids: {', '.join(sorted({t.transactional_id for t in seen.transactions}))}."
    if seen.acls is None:
        yield "Without ACLs everybody may write to it."
        return
    allowed = {
        a.principal
        for a in seen.acls
        if a.resource_type == "TOPIC" and a.permission == "ALLOW" and a.operation in ("WRITE", "CREATE", "ALL")
        if a.name in ("*", seen.info.name) or (a.pattern == "PREFIXED" and seen.info.name.startswith(a.name))
    }
    yield f"ACLs let write or create it: {', '.join(sorted(allowed)) or 'nobody but super users'}."


# ------------------------------------------------------------------------------------------------- what is news


@dataclass(frozen=True)
class Change:
    """What the watch has to write down: its row's new data, and the events, as (kind, data)."""

    found: list[dict[str, Any]]
    events: list[tuple[str, dict[str, Any]]]


def change(before: Sequence[Mapping[str, Any]], now: Sequence[Sighting], at: datetime) -> Change | None:
    """What is new against what the journal has, None where nothing is. Each matter is told once, and its end once.

    Where something could not be read, nothing ends: what was found before stays.
    """
    told = {str(row["key"]): dict(row) for row in before}
    blind = any(s.finding.unknown for s in now)
    seen = {s.key: s.finding for s in now if not s.finding.unknown}
    events = [
        (KINDS[f.code], {"code": f.code, "subject": f.subject, "seen": f.seen})
        for k, f in seen.items()
        if k not in told
    ]
    ended = [] if blind else [row for key, row in told.items() if key not in seen]
    events += [(OVER, {"code": row["code"], "subject": row["subject"], "since": row["since"]}) for row in ended]
    if not events:
        return None
    stays = [row for key, row in told.items() if key in seen or blind]
    new = [
        {
            "key": key,
            "code": f.code,
            "level": f.level.value,
            "subject": f.subject,
            "seen": f.seen,
            "do": f.do,
            "since": at.isoformat(),
        }
        for key, f in seen.items()
        if key not in told
    ]
    return Change(stays + new, events)
