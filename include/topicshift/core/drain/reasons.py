"""The stable codes of a drain certificate: what each means, and what to do about it.

``docs/drain.md`` and the command line print these texts. A code is never renamed or given another meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from topicshift.core.drain.certificate import Verdict


class Reason(StrEnum):
    """Why a group, a partition, the topic or a whole certificate has its verdict."""

    # drained
    AT_END = "at_end"
    NOTHING_READABLE = "nothing_readable"
    EMPTY = "empty"
    LOST_ACCEPTED = "lost_accepted"
    ATTESTED = "attested"
    # not drained
    UNREAD = "unread"
    BEHIND = "behind"
    NEVER_COMMITTED = "never_committed"
    LOST_UNREAD = "lost_unread"
    LOST_AND_UNREAD = "lost_and_unread"
    NEVER_COMMITTED_EXPIRED = "never_committed_expired"
    OPEN_TRANSACTION = "open_transaction"
    PENDING_COMMIT = "pending_commit"
    SOURCE_GREW = "source_grew"
    UNDECLARED_GROUP = "undeclared_group"
    # unknown
    PARTITION_UNREADABLE = "partition_unreadable"
    COMMIT_UNREADABLE = "commit_unreadable"
    GROUP_UNREADABLE = "group_unreadable"
    GROUP_NOT_FOUND = "group_not_found"
    TAIL_UNREADABLE = "tail_unreadable"
    TAIL_UNFINISHED = "tail_unfinished"
    COMMITTED_BEYOND_END = "committed_beyond_end"
    FENCE_INCOMPLETE = "fence_incomplete"
    END_BELOW_FENCE = "end_below_fence"
    TOPIC_REMADE = "topic_remade"
    TOPIC_NOT_FOUND = "topic_not_found"
    LISTING_INCOMPLETE = "listing_incomplete"
    NO_GROUPS = "no_groups"
    EVIDENCE_MISSING = "evidence_missing"
    EVIDENCE_OUTDATED = "evidence_outdated"
    # said beside a verdict, without changing it
    IGNORED_GROUP = "ignored_group"


class Alarm(StrEnum):
    """Why a group that does not get nearer may be stuck."""

    NO_MEMBERS = "no_members"
    REBALANCE_LOOP = "rebalance_loop"
    POISON_RECORD = "poison_record"
    HOT_PARTITION = "hot_partition"
    TOO_SLOW = "too_slow"
    TRANSACTION_PENDING = "transaction_pending"
    CANNOT_READ = "cannot_read"
    DECISION_WAITED_FOR = "decision_waited_for"


@dataclass(frozen=True)
class Explained:
    """One code: the verdict that it gives (None where it gives none), its meaning and its remedy."""

    verdict: Verdict | None
    meaning: str
    remedy: str


_D, _N, _U = Verdict.DRAINED, Verdict.NOT_DRAINED, Verdict.UNKNOWN

REASONS: dict[Reason, Explained] = {
    Reason.AT_END: Explained(
        _D,
        "The group committed the fence offset (or, without a fence, the end offset) of the partition.",
        "Nothing to do.",
    ),
    Reason.NOTHING_READABLE: Explained(
        _D,
        "The committed offset lies below the end, and a read_committed read of what lies between found no record: "
        "only transaction markers, aborted records or holes left by compaction. Lag stays above zero for ever.",
        "Nothing to do.",
    ),
    Reason.EMPTY: Explained(
        _D,
        "The partition never held a record, and the group never committed there.",
        "Nothing to do.",
    ),
    Reason.LOST_ACCEPTED: Explained(
        _D,
        "Nothing is left to read. Records expired or were deleted before the group read them, and somebody "
        "accepted that loss for this group by name.",
        "Nothing to do; the acceptance belongs in the audit trail.",
    ),
    Reason.ATTESTED: Explained(
        _D,
        "A named person states that this reader, which commits nothing to Kafka, has read everything up to the fence.",
        "Nothing to do; the statement belongs in the audit trail.",
    ),
    Reason.UNREAD: Explained(
        _N,
        "At least one readable record lies between the committed offset and the fence.",
        "Let the group read on. If it does not move, look at its alarm: members, poison record, hot partition.",
    ),
    Reason.BEHIND: Explained(
        _N,
        "The committed offset lies below the end, and what lies between was not read yet, so it is counted as unread.",
        "Wait for the next certificate, which reads it.",
    ),
    Reason.NEVER_COMMITTED: Explained(
        _N,
        "The group never committed an offset on this partition, and there are records in it.",
        "Start the group so that it reads and commits; if it does not read this topic, ignore it with a reason.",
    ),
    Reason.LOST_UNREAD: Explained(
        _N,
        "Nothing is left to read, but retention or DeleteRecords moved the log start past the committed offset: "
        "the records between were deleted before the group read them.",
        "Find out whether the loss matters (restore from another copy if so), then accept it by name: "
        "--accept-lost GROUP.",
    ),
    Reason.LOST_AND_UNREAD: Explained(
        _N,
        "Records were deleted before the group read them (the log start is past the committed offset), "
        "and more are still unread.",
        "Lengthen retention.ms now, let the group read on, then decide about the loss: --accept-lost GROUP.",
    ),
    Reason.NEVER_COMMITTED_EXPIRED: Explained(
        _N,
        "The partition once held records, none is left, and the group never committed there: whether it read them "
        "before they expired cannot be told from Kafka.",
        "Check the group's own output for this partition, then accept by name: --accept-lost GROUP.",
    ),
    Reason.OPEN_TRANSACTION: Explained(
        _N,
        "A transaction is open on the partition (the last stable offset lies below the fence), so a read_committed "
        "reader cannot see what follows, and a marker is still to come.",
        "Wait until it commits, aborts or reaches its transaction time-out; for a hanging one, "
        "find it with kafka-transactions.sh find-hanging, and abort it only if its producer is gone for good.",
    ),
    Reason.PENDING_COMMIT: Explained(
        _N,
        "The group has an offset commit inside a transaction that has not ended; it may still be aborted.",
        "Wait until the transaction ends, or reaches its time-out.",
    ),
    Reason.SOURCE_GREW: Explained(
        _N,
        "Records (or markers) were written to the partition after the fence. Every certificate is void.",
        "Find the writer (the fence step names it as well as Kafka allows), stop it, and fence again.",
    ),
    Reason.UNDECLARED_GROUP: Explained(
        _N,
        "A group that nobody declared reads this topic. It would be left behind on the source.",
        "Declare it under consumers in the spec, or ignore it with a reason (ignore_groups, --ignore-group G=REASON).",
    ),
    Reason.PARTITION_UNREADABLE: Explained(
        _U,
        "The offsets of the partition could not be read: no leader, a time-out, or no DESCRIBE right on the topic.",
        "Look at the partition's leader and the brokers, and at the rights of this client; then ask again.",
    ),
    Reason.COMMIT_UNREADABLE: Explained(
        _U,
        "The committed offset of the group on this partition could not be read.",
        "Give this client DESCRIBE on the group and on the topic, and see that the group's coordinator is up.",
    ),
    Reason.GROUP_UNREADABLE: Explained(
        _U,
        "The group could not be described, or its offsets could not be read at all.",
        "Give this client DESCRIBE on the group, and see that the group's coordinator is up.",
    ),
    Reason.GROUP_NOT_FOUND: Explained(
        _U,
        "The broker knows no such group: no members and no commits (it may also have expired).",
        "Correct the name, or start the group once so that it commits.",
    ),
    Reason.TAIL_UNREADABLE: Explained(
        _U,
        "What lies between the committed offset and the end had to be read, and could not be.",
        "Give this client READ on the topic, see that the partition has a leader, and ask again.",
    ),
    Reason.TAIL_UNFINISHED: Explained(
        _U,
        "What lies between the committed offset and the end was read up to the bound in time or records "
        "without finding a record, and more remains.",
        "Let drain_verification read it at scale, or ask again with a longer time-out.",
    ),
    Reason.COMMITTED_BEYOND_END: Explained(
        _U,
        "The committed offset lies past the end of the partition: it belongs to another log (the topic was made "
        "again, or was truncated), so it says nothing about what was read here.",
        "Find out how it came about; reset the group to an offset that is known to be right, and let it read.",
    ),
    Reason.FENCE_INCOMPLETE: Explained(
        _U,
        "The fence names no offset for this partition.",
        "Fence again: the topic has partitions now that it did not have then, or the fence file is not this topic's.",
    ),
    Reason.END_BELOW_FENCE: Explained(
        _U,
        "The end of the partition lies below the fence: the log was truncated or the topic was made again.",
        "Look for an unclean leader election or a deleted topic. Do not go on; the fence is void.",
    ),
    Reason.TOPIC_REMADE: Explained(
        _U,
        "The topic has another id than the fence speaks of: it was deleted and made again under the same name.",
        "Do not go on. Nothing that was known about the old topic holds for this one.",
    ),
    Reason.TOPIC_NOT_FOUND: Explained(
        _U,
        "The broker knows no such topic, or this client may not see it.",
        "Correct the name, or give this client DESCRIBE on the topic.",
    ),
    Reason.LISTING_INCOMPLETE: Explained(
        _U,
        "The list of groups may have been filtered by ACLs, so a group that reads the topic may be missing.",
        "Give this client DESCRIBE on the cluster, or name the groups yourself with --group.",
    ),
    Reason.NO_GROUPS: Explained(
        _U,
        "No group reads this topic. Nobody's progress can be certified; emptiness is not a drain.",
        "Name the readers: --group, --spec, or --evidence for readers that commit nothing.",
    ),
    Reason.EVIDENCE_MISSING: Explained(
        _U,
        "A declared reader commits nothing to Kafka, and its own evidence is missing, unreadable or does not "
        "name this partition.",
        "Point to its checkpoint, its connector's offsets, or a person's statement.",
    ),
    Reason.EVIDENCE_OUTDATED: Explained(
        _U,
        "The evidence of a reader that commits nothing speaks of another topic id, or a statement is older "
        "than the fence.",
        "Take it again, after the fence.",
    ),
    Reason.IGNORED_GROUP: Explained(
        None,
        "This group reads the topic and is left out, with a reason given by a person.",
        "Nothing to do; the reason belongs in the audit trail.",
    ),
}

ALARMS: dict[Alarm, Explained] = {
    Alarm.NO_MEMBERS: Explained(
        None,
        "The group has no members and its commits do not move: nobody is reading.",
        "Start its consumers; if it is retired for good, ignore it with a reason.",
    ),
    Alarm.REBALANCE_LOOP: Explained(
        None,
        "The group was rebalancing in most of the samples: members come and go, or miss max.poll.interval.ms.",
        "Look at the consumers' logs; raise max.poll.interval.ms (600000) and session.timeout.ms (30000), "
        "use static membership (group.instance.id), stop the autoscaler for now.",
    ),
    Alarm.POISON_RECORD: Explained(
        None,
        "A partition has a member, records to read and a commit that stands still at one offset, while the group "
        "lives: the record at that offset may fail again and again.",
        "Look at the consumer's log for that partition and offset; fix or park the record.",
    ),
    Alarm.HOT_PARTITION: Explained(
        None,
        "Most of what is left lies in one partition, more than the group's one reader of it keeps up with.",
        "Give that member more room, or lengthen the freeze; more consumers do not help one partition.",
    ),
    Alarm.TOO_SLOW: Explained(
        None,
        "Commits move, but the lag does not shrink: producers still write as fast as the group reads.",
        "Add consumers up to the partition count, or fence the producers first.",
    ),
    Alarm.TRANSACTION_PENDING: Explained(
        None,
        "What is left waits for a transaction to end.",
        "See the remedy of open_transaction and pending_commit.",
    ),
    Alarm.CANNOT_READ: Explained(
        None,
        "Progress cannot be seen, because the group, the partitions or the reader's evidence cannot be read.",
        "See the remedy of the group's reason codes.",
    ),
    Alarm.DECISION_WAITED_FOR: Explained(
        None,
        "Nothing is left that reading can change: a person has to decide (accept a loss, correct a commit).",
        "See the remedy of the group's reason codes.",
    ),
}


def tagged(reason: Reason, subject: str = "") -> str:
    """A topic-level entry of a certificate: the code, and after a colon what it speaks of."""
    return f"{reason.value}:{subject}" if subject else reason.value


def explain(entry: str) -> tuple[Reason, str, Explained]:
    """Code, subject and texts of a reason as it stands in a certificate (``undeclared_group:fraud``).

    Raises ``ValueError`` for a code that does not exist.
    """
    code, _, subject = entry.partition(":")
    reason = Reason(code)
    return reason, subject, REASONS[reason]
