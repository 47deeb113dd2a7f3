"""Retire the source of a finished migration: look, deny everybody for a while (scream test), look again, delete."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from topicshift.acts.participants import SWITCH_PRODUCERS
from topicshift.core.drain.discovery import moved, reads
from topicshift.core.errors import PreflightFailed, Refused, Unreadable
from topicshift.core.findings import Finding
from topicshift.core.proof.retirement import due_at, retention_of, retirement_findings
from topicshift.core.spec.model import Spec
from topicshift.ports import Acl, Claim, Clock, ClusterAdmin, Journal, MigrationRow

SCREAM = "scream_test"
DELETE = "delete_source"
SAMPLE_S = 5.0


def switched_at(journal: Journal, migration_id: str) -> datetime:
    """When the producers were switched. Raises ``Refused`` for a migration that never got there."""
    row = journal.step(migration_id, SWITCH_PRODUCERS)
    if row is None or row.state != "done":
        raise Refused(f"Migration {migration_id} never switched its producers; there is nothing to retire.")
    return datetime.fromisoformat(row.data["finished_at"])


def readers(
    admin: ClusterAdmin, source: str, clock: Clock, *, sample_s: float = SAMPLE_S
) -> tuple[list[str], list[str]]:
    """Groups that read the source now, and what could not be read.

    A group reads it if a member is assigned to it or subscribes to it (by name or by a pattern), if a commit on it is
    pending, or if its commits on it move between two looks ``sample_s`` seconds apart. Old commits alone are no
    reading: every group of the migration has them.
    """
    info = admin.topic(source)
    if info is None:
        return [], []
    partitions = sorted(info.replicas)
    names = [g.group for g in admin.groups() if g.state != "DEAD"]
    if not names:
        return [], []
    described = admin.describe_groups(names)
    unreadable = [f"group {n}: {g.error}" for n, g in described.items() if g.error]
    reading = {n for n, g in described.items() if g.error is None and reads(source, g, None)}
    idle = [n for n in names if n not in reading]
    if not idle:
        return sorted(reading), unreadable
    first = admin.commits(idle, source, partitions)
    clock.sleep(sample_s)
    second = admin.commits(idle, source, partitions)
    for name in idle:
        before, after = first.get(name), second.get(name)
        if before is None or after is None or before.error or after.error or before.errors or after.errors:
            unreadable.append(f"the commits of group {name}")
        elif moved(before, after) or before.unstable or after.unstable:
            reading.add(name)
    return sorted(reading), unreadable


def look(
    row: MigrationRow,
    spec: Spec,
    *,
    topic_id: str,
    fence_offsets: dict[int, int],
    admin: ClusterAdmin,
    journal: Journal,
    clock: Clock,
) -> list[Finding]:
    """Everything that speaks against deleting the source now."""
    info = admin.topic(row.source)
    who, unreadable = readers(admin, row.source, clock) if info else ([], [])
    return retirement_findings(
        source=row.source,
        info=info,
        expected_topic_id=topic_id,
        fence_offsets=fence_offsets,
        offsets=admin.offsets(row.source) if info else {},
        readers=who,
        unreadable=unreadable,
        due=due_at(switched_at(journal, row.migration_id), spec.retire.after, retention_of(info) if info else None),
        now=clock.now(),
    )


def require_nothing_against(findings: list[Finding]) -> None:
    """Raises ``PreflightFailed`` with all of them, or ``Unreadable`` where only reading failed."""
    blocking = [f for f in findings if f.blocks]
    if not blocking:
        return
    text = "The source is not deleted:\n" + "\n".join(f"- {f.line()}" for f in blocking)
    raise (Unreadable if all(f.unknown for f in blocking) else PreflightFailed)(text)


def scream_acls(source: str) -> list[Acl]:
    """DENY READ and WRITE on the source for everybody: who still needs it gets an error, and screams."""
    return [Acl("TOPIC", source, "LITERAL", "User:*", "*", op, "DENY") for op in ("READ", "WRITE")]


def begin_scream(
    source: str, lasts: timedelta, *, admin: ClusterAdmin, journal: Journal, claim: Claim, clock: Clock
) -> datetime:
    """Deny everybody; returns the end of the test. Repeating it keeps the end of the first time.

    On a cluster without an authorizer nobody can be denied: the time is still waited for, watching only.
    """
    known = journal.step(claim.migration_id, SCREAM)
    if known is None or known.state not in ("intended", "done"):
        here = admin.acls() if admin.cluster().authorizer else None
        ours = [] if here is None else [a for a in scream_acls(source) if a not in here]
        data = {"until": (clock.now() + lasts).isoformat(), "denied": here is not None}
        known = journal.intend(claim, SCREAM, {**data, "acls": [a.operation for a in ours]})
        journal.event(claim, "scream_test_begun", claim.owner, dict(known.data))
    if known.data.get("denied"):
        admin.create_acls([a for a in scream_acls(source) if a.operation in known.data["acls"]])
    return datetime.fromisoformat(known.data["until"])


def end_scream(source: str, *, admin: ClusterAdmin, journal: Journal, claim: Claim) -> bool:
    """The exact inverse of :func:`begin_scream`: removes what it added, nothing else; whether a test was running.

    Idempotent.
    """
    known = journal.step(claim.migration_id, SCREAM)
    if known is None or known.state != "intended":
        return False
    if known.data.get("denied"):
        admin.delete_acls([a for a in scream_acls(source) if a.operation in known.data["acls"]])
    journal.finish(claim, SCREAM, {}, state="undone")
    deleted = journal.step(claim.migration_id, DELETE)
    if deleted is None or deleted.state != "done":
        # Without a deletion the migration is what it was: finished, and it holds no topic.
        journal.set_state(claim, "done", active=False)
    return True


def close_gone(
    row: MigrationRow, *, admin: ClusterAdmin, journal: Journal, claim: Claim, unfence: Callable[[], object]
) -> bool:
    """Close a migration whose source somebody else has deleted; whether it was so. Safe to repeat.

    What this migration left on the topic's name (its DENY) is taken away, so that a new topic of that name is free.
    """
    deleting = journal.step(row.migration_id, DELETE)
    if admin.topic(row.source) is not None or (deleting is not None and deleting.state in ("intended", "done")):
        return False
    end_scream(row.source, admin=admin, journal=journal, claim=claim)
    unfence()
    journal.event(claim, "source_gone", claim.owner, {"source": row.source, "deleted_by": "somebody else"})
    journal.set_state(claim, "retired", active=False)
    return True


def delete_source(
    row: MigrationRow,
    *,
    topic_id: str,
    admin: ClusterAdmin,
    journal: Journal,
    claim: Claim,
    clock: Clock,
    look_again: Callable[[], list[Finding]],
    unfence: Callable[[], object],
) -> dict[str, Any]:
    """Delete the source, forward only. Looks once more just before; safe to repeat."""
    done = journal.step(row.migration_id, DELETE)
    if done is not None and done.state == "done":
        return dict(done.data)
    info = admin.topic(row.source)
    if not (info is None and done is not None):
        require_nothing_against(look_again())
        journal.intend(claim, DELETE, {"source": row.source, "topic_id": topic_id, "at": clock.now().isoformat()})
        info = admin.topic(row.source)
        if info is not None and info.topic_id != topic_id:
            raise Refused(f"{row.source} is another topic by now ({info.topic_id}, not {topic_id}); it is not deleted.")
        if info is not None:
            admin.delete_topic(row.source)
    end_scream(row.source, admin=admin, journal=journal, claim=claim)
    unfence()
    data = {"source": row.source, "topic_id": topic_id, "deleted_at": clock.now().isoformat()}
    journal.finish(claim, DELETE, data)
    journal.event(claim, "source_deleted", claim.owner, data)
    journal.set_state(claim, "retired", active=False)
    return data
