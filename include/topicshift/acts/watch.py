"""Watch over the source of a finished migration, before its deletion and after it.

Nothing on the cluster is changed. What was found stands in the journal's row ``watch``; each new matter is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import lifted_denies
from topicshift.acts.last_look import unread
from topicshift.acts.retire import readers
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.discovery import reads
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import MigrationState, Row, StepState
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.findings import Finding
from topicshift.core.proof.watch import (
    AFTER,
    LATE,
    Risen,
    Sighting,
    SourceNow,
    change,
    missing,
    risen,
    shut_again,
    watched,
)
from topicshift.ports import Acl, MigrationRow, StepRow, TopicInfo

_UNDONE = (MigrationState.FAILED, MigrationState.ROLLED_BACK)


def over(row: MigrationRow, rows: Sequence[MigrationRow], gone_at: datetime | None, now: datetime) -> str | None:
    """Why the source of this migration is not watched (any more); None where it is.

    ``rows`` are all migrations of the journal, ``gone_at`` is when its source was deleted. One that was rolled back or
    has failed is watched for :data:`LATE`, for requests of its own that take effect late.
    """
    if row.state in _UNDONE:
        if now - datetime.fromisoformat(row.updated_at) > LATE:
            return f"it is {row.state} since {row.updated_at}; nothing of it can be late any more"
    elif row.state not in (MigrationState.DONE, MigrationState.RETIRED):
        return f"it is {row.state}; only the source of a finished migration is watched"
    for other in _later(row, rows):
        if row.source in (other.source, other.target):
            return f"{row.source} belongs to {other.migration_id} by now"
    if gone_at is not None and now - gone_at > AFTER:
        return f"{row.source} was deleted {(now - gone_at).days} days ago"
    return None


def _later(row: MigrationRow, rows: Sequence[MigrationRow]) -> list[MigrationRow]:
    """Migrations of the same cluster that came after this one, and have not failed."""
    came = (o for o in rows if o.cluster_id == row.cluster_id and o.created_at > row.created_at)
    return [o for o in came if o.state != MigrationState.FAILED]


def gone_at(deletion: StepRow | None) -> datetime | None:
    """When the retirement has deleted the source, None where it has not; ``deletion`` is the row of that step."""
    at = deletion.data.get("deleted_at") if deletion is not None and deletion.state == StepState.DONE else None
    return None if at is None else datetime.fromisoformat(str(at))


def watch(ctx: MigrationContext) -> list[Finding]:
    """Look once, write down what is new, and return everything that was found, with what could not be read.

    Raises ``Refused`` for a migration that never proved a fence, ``Unreadable`` where the topic cannot be looked at.
    """
    record = ctx.refresh()
    found = [] if record.state in _UNDONE else _of_source(ctx, record)
    found += shut_again(_shut(ctx))
    _write(ctx, record, found)
    return [s.finding for s in found]


def _of_source(ctx: MigrationContext, record: Record) -> list[Sighting]:
    fence = record.step(Row.FENCE)
    if fence is None or "record" not in fence.data:
        raise Refused(f"{record.migration_id} never proved a fence; there is no source to watch.")
    was_id = str(fence.data["topic_id"])
    info = ctx.admin.topic(record.source)
    if record.state is MigrationState.RETIRED:
        return [] if info is None else [risen(_risen(ctx, info, was_id))]
    if info is None:
        return [missing(record.source)]
    return list(watched(_source_now(ctx, record, info, was_id), ctx.clock.now()))


def _shut(ctx: MigrationContext) -> list[Acl]:
    """DENY bindings that a late request of this migration may have set, on topics that no later migration uses."""
    lifted = lifted_denies(ctx.record_as_held())
    if not lifted or not ctx.admin.cluster().authorizer:
        return []
    theirs = {topic for o in _later(ctx.row, ctx.journal.find()) for topic in (o.source, o.target)}
    return sorted(a for a in lifted & ctx.admin.acls() if a.name not in theirs)


def _write(ctx: MigrationContext, record: Record, found: Sequence[Sighting]) -> None:
    row = record.step(Row.WATCH)
    news = change(row.data.get("found", ()) if row is not None else (), found, ctx.clock.now())
    if news is None:
        return
    for kind, data in news.events:
        ctx.event(kind, data)
    ctx.finish(Row.WATCH, {"found": news.found, "at": ctx.clock.now().isoformat()})


def _source_now(ctx: MigrationContext, record: Record, info: TopicInfo, was_id: str) -> SourceNow:
    fence = record.step(Row.FENCE)
    offsets = {} if fence is None else fence.data["record"]["fence_offsets"]
    certified = certified_commits(ctx)
    reading, unreadable = readers(ctx.admin, record.source, ctx.clock)
    commits = ctx.admin.commits(sorted(certified), record.source, sorted(info.replicas)) if certified else {}
    blind = [f"the commits of group {g}" for g in certified if unread(commits.get(g))]
    return SourceNow(
        info=info,
        topic_id=was_id,
        fence_offsets={int(p): int(o) for p, o in offsets.items()},
        offsets=ctx.admin.offsets(record.source),
        readers=reading,
        unreadable=[*unreadable, *(b for b in blind if b not in unreadable)],
        certified=certified,
        commits=commits,
        released=frozenset(record.released),
    )


def certified_commits(ctx: MigrationContext) -> dict[str, dict[int, int]]:
    """The commits of each group on the source as its drain certificate keeps them, by group and partition.

    Raises ``Unreadable`` for a certificate that is none any more.
    """
    found: dict[str, dict[int, int]] = {}
    names = ctx.ports.evidence.names(ctx.row.migration_id)
    for name in names:
        if not (name.startswith("drain_certificate") and name.endswith(".json")):
            continue
        try:
            certificate = DrainCertificate.model_validate_json(ctx.read(name))
        except ValueError as error:
            raise Unreadable(
                f"{name} of {ctx.row.migration_id} is no drain certificate ({type(error).__name__}), so the commits "
                "that it kept are unknown. Compare it with a backup, or with an audit bundle."
            ) from None
        for group in certificate.groups:
            kept = {p.partition: p.committed for p in group.partitions if p.committed is not None}
            if kept:
                found[group.group] = kept
    return found


def _risen(ctx: MigrationContext, info: TopicInfo, was_id: str) -> Risen:
    admin, cluster = ctx.admin, ctx.admin.cluster()
    described = admin.describe_groups([g.group for g in admin.groups() if g.state != "DEAD"])
    return Risen(
        info=info,
        was_id=was_id,
        offsets=admin.offsets(info.name),
        producers=admin.producers(info.name, sorted(info.replicas)),
        transactions=admin.transactions(info.name),
        groups=[g for _, g in sorted(described.items()) if g.error is None and reads(info.name, g, None)],
        acls=admin.acls() if cluster.authorizer else None,
        auto_create=cluster.auto_create,
    )
