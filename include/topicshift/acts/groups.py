"""One consumer group at its switch: released to the target, seeded where a person moves it, finished; and returned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from topicshift.acts.context import MigrationContext
from topicshift.core.drain.certificate import DrainCertificate
from topicshift.core.drain.names import certificate_name
from topicshift.core.engine.back import returning
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import OwnershipLost, Refused, Transient
from topicshift.core.kafka.cluster import error_of_unread


def stop_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Stop a group that gets its offsets on the target while it has no members."""
    consumer = ctx.consumer(decision.subject)
    _intend(ctx, view, decision.subject)
    ctx.check_seat()
    ctx.controller(consumer.kind).stop(ctx.control(), [consumer])


def _intend(ctx: MigrationContext, view: View, group: str) -> None:
    row = view.record.step(Row.SWITCH_GROUP, group)
    begun = row.data if row is not None and row.state.in_effect else {}
    now = {"group": group, "target": ctx.row.target, "at": ctx.clock.now().isoformat()}
    ctx.intend(Row.SWITCH_GROUP, {**begun, **now}, group)


def release_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Release a group to the target. One that does not begin at the log start by itself is seeded there first."""
    group = decision.subject
    consumer = ctx.consumer(group)
    controller = ctx.controller(consumer.kind)
    _intend(ctx, view, group)
    if controller.seeded:
        seed_group(ctx, view, decision)
    ctx.check_seat()
    controller.point(ctx.control(), [consumer], ctx.row.target)
    ctx.check_seat()
    controller.start(ctx.control(), [consumer])


def seed_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Commit the log start for every partition of the target on which the group has no commit yet.

    So that ``auto.offset.reset=latest`` loses nothing. Commits that exist are left alone. On a way back it is the
    offset of the group's certificate, also where its commit is lower than that. Raises ``Refused`` while the
    group has members (Kafka refuses it) and ``Unreadable`` where a partition cannot be read.
    """
    group, topic = decision.subject, ctx.row.target
    offsets = ctx.admin.offsets(topic)
    commits = ctx.admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        why = commits.error or str(dict(commits.errors)) if commits else "no answer"
        raise error_of_unread(commits)(f"The commits of group {group} on {topic} cannot be read: {why}.")
    bad = {p: o.error or "no log start" for p, o in offsets.items() if o.log_start is None}
    if bad:
        raise error_of_unread(*(offsets[p] for p in bad))(
            f"The log start of {topic} cannot be read: {bad}. Group {group} was not seeded."
        )
    first = {p: o.log_start for p, o in offsets.items() if o.log_start is not None}
    starts = certified_offsets(ctx, group, first) if view.record.mirrored else first
    held = commits.offsets
    missing = {p: at for p, at in starts.items() if (now := held.get(p)) is None or (view.record.mirrored and now < at)}
    if missing:
        ctx.intend(Row.SWITCH_GROUP, {"group": group, "target": topic, "at": ctx.clock.now().isoformat()}, group)
        ctx.check_seat()
        ctx.admin.alter_commits(group, topic, missing)
        seeded = {str(p): o for p, o in missing.items()}
        ctx.finish(Row.SWITCH_GROUP, {"seeded": seeded}, group, StepState.INTENDED)
        ctx.log(f"group {group} is seeded on {topic}: point its consumers to {topic} and start them now")


def pause_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Let a group commit and leave for a moment, so that its offsets can be set."""
    consumer = ctx.consumer(decision.subject)
    ctx.check_seat()
    ctx.controller(consumer.kind).stop(ctx.control(), [consumer])


def certified_offsets(ctx: MigrationContext, group: str, log_starts: Mapping[int, int]) -> dict[int, int]:
    """Where the group stood on the migration's source when it had drained it, by partition; never below the log start.

    Where the certificate has no commit, or is not the file that was written, it is the fence: up to there nothing was
    unread, by the verified certificate.
    """
    held = ctx.record_as_held()
    row, again = held.step(Row.FENCE), held.step(Row.FENCE_AGAIN)
    found = row.data["record"]["fence_offsets"] if row is not None else {}
    fence = {int(p): int(o) for p, o in found.items()}
    known = _certified(ctx, held, group)
    if known is None:
        ctx.log(f"no certificate of group {group} is as it was written: it goes on from the fence")
        # The first one, where the source was fenced anew: a group that was released before has not read up to the next.
        fence |= {int(p): int(o) for p, o in (again.data.get("first", {}) if again is not None else {}).items()}
    at = {p: (known or {}).get(p) for p in fence}
    return {p: max(log_starts.get(p, 0), fence[p] if o is None else min(o, fence[p])) for p, o in at.items()}


def _certified(ctx: MigrationContext, held: Record, group: str) -> dict[int, int | None] | None:
    """The group's commits by its certificate; None where there is none, or its file is not what was written."""
    for subject in (group, ""):  # of its own, or of all groups together
        paper = held.step(Row.CERTIFICATE, subject)
        name = certificate_name(ctx.consumer(group).name if subject else "")
        data = ctx.ports.evidence.read(held.migration_id, name) if paper is not None else None
        if data is not None and paper is not None and hashlib.sha256(data).hexdigest() == paper.data["sha256"]:
            certificate = DrainCertificate.model_validate_json(data)
            return {r.partition: r.committed for g in certificate.groups if g.group == group for r in g.partitions}
    return None


def finish_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The group reads the target."""
    group = decision.subject
    row = view.record.step(Row.SWITCH_GROUP, group)
    seeded = row.data.get("seeded", {}) if row is not None else {}
    data = {"group": group, "target": ctx.row.target, "seeded": seeded, "finished_at": ctx.clock.now().isoformat()}
    ctx.event("group_switched", {**data, "why": decision.why})
    ctx.finish(Row.SWITCH_GROUP, data, group)


def return_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """A group that was released reads the source again, at the offsets of its certificate where its own have gone.

    They are set before it is let go. Brokers take them of a group without members alone, so it leaves for a moment:
    until it has, this act is told again.
    """
    group = decision.subject
    record, consumer = view.record, ctx.consumer(group)
    controller = ctx.controller(consumer.kind)
    released = record.at(Row.SWITCH_GROUP, group)
    _mark_returning(ctx, record, group)
    gone = _gone_on_source(ctx, group)
    if gone or (controller.seeded and released is not StepState.UNDONE):
        ctx.check_seat()
        controller.stop(ctx.control(), [consumer])
    by_hand = {str(p): at for p, at in gone.items()} if gone and not _set_again(ctx, group, gone) else {}
    if by_hand and not controller.needs_person:
        return  # it has members still
    ctx.check_seat()
    controller.point(ctx.control(), [consumer], ctx.row.source)
    ctx.check_seat()
    controller.start(ctx.control(), [consumer])
    if released is not StepState.UNDONE:
        ctx.finish(Row.SWITCH_GROUP, {"set_by_hand": by_hand} if by_hand else {}, group, StepState.UNDONE)


def _mark_returning(ctx: MigrationContext, record: Record, group: str) -> None:
    row, back = record.step(Row.SWITCH_GROUP, group), record.step(Row.ROLLBACK)
    if row is None or back is None or returning(record, group):
        return
    said = {"returning": back.data.get("way", 0), "returning_at": ctx.clock.now().isoformat()}
    ctx.finish(Row.SWITCH_GROUP, said, group, row.state)


def _gone_on_source(ctx: MigrationContext, group: str) -> dict[int, int]:
    """Partitions of the source on which the group has no commit, or a lower one than its certificate, with that."""
    topic = ctx.row.source
    offsets = ctx.admin.offsets(topic)
    held = ctx.admin.commits([group], topic, sorted(offsets)).get(group)
    if held is None or held.error or held.errors or any(o.log_start is None for o in offsets.values()):
        raise Transient(f"the commits of group {group} on {topic}, or its log start, cannot be read now")
    certified = certified_offsets(ctx, group, {p: o.log_start or 0 for p, o in offsets.items()})
    return {p: at for p, at in certified.items() if (now := held.offsets.get(p)) is None or now < at}


def _set_again(ctx: MigrationContext, group: str, offsets: Mapping[int, int]) -> bool:
    """Commit these offsets on the source for the group, once it has no members; whether that was done."""
    info = ctx.admin.describe_groups([group]).get(group)
    if info is None or info.error:
        raise Transient(f"the members of group {group} cannot be counted now")
    if info.members:
        ctx.log(f"group {group} has no offsets on {ctx.row.source}, and {len(info.members)} member(s): it has to leave")
        return False
    ctx.check_seat()
    try:
        ctx.admin.alter_commits(group, ctx.row.source, offsets)
    except OwnershipLost:
        raise
    except Refused as error:  # a member came back in between
        raise Transient(str(error)) from error
    said = {str(p): o for p, o in offsets.items()}
    ctx.event("offsets_set_again", {"group": group, "topic": ctx.row.source, "offsets": said})
    return True
