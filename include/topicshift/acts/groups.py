"""One consumer group at its switch: released to the target, seeded where a person moves it, finished; and returned."""

from __future__ import annotations

from topicshift.acts.context import MigrationContext
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.errors import Unreadable


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

    So that ``auto.offset.reset=latest`` loses nothing. Commits that exist are left alone. Raises ``Refused`` while the
    group has members (Kafka refuses it) and ``Unreadable`` where a partition cannot be read.
    """
    group, topic = decision.subject, ctx.row.target
    offsets = ctx.admin.offsets(topic)
    commits = ctx.admin.commits([group], topic, sorted(offsets)).get(group)
    if commits is None or commits.error or commits.errors:
        why = commits.error or str(dict(commits.errors)) if commits else "no answer"
        raise Unreadable(f"The commits of group {group} on {topic} cannot be read: {why}.")
    bad = {p: o.error or "no log start" for p, o in offsets.items() if o.log_start is None}
    if bad:
        raise Unreadable(f"The log start of {topic} cannot be read: {bad}. Group {group} was not seeded.")
    missing = {p: o.log_start for p, o in offsets.items() if commits.offsets.get(p) is None and o.log_start is not None}
    if missing:
        ctx.check_seat()
        ctx.admin.alter_commits(group, topic, missing)
        seeded = {str(p): o for p, o in missing.items()}
        ctx.finish(Row.SWITCH_GROUP, {"seeded": seeded}, group, StepState.INTENDED)
        ctx.log(f"group {group} is seeded on {topic}: point its consumers to {topic} and start them now")


def finish_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The group reads the target."""
    group = decision.subject
    row = view.record.step(Row.SWITCH_GROUP, group)
    seeded = row.data.get("seeded", {}) if row is not None else {}
    data = {"group": group, "target": ctx.row.target, "seeded": seeded, "finished_at": ctx.clock.now().isoformat()}
    ctx.event("group_switched", {**data, "why": decision.why})
    ctx.finish(Row.SWITCH_GROUP, data, group)


def return_group(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """A group that was released reads the source again."""
    group = decision.subject
    consumer = ctx.consumer(group)
    controller = ctx.controller(consumer.kind)
    ctx.check_seat()
    if controller.seeded:
        controller.stop(ctx.control(), [consumer])
        ctx.check_seat()
    controller.point(ctx.control(), [consumer], ctx.row.source)
    ctx.check_seat()
    controller.start(ctx.control(), [consumer])
    ctx.finish(Row.SWITCH_GROUP, {}, group, StepState.UNDONE)
