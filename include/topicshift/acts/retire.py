"""Retire the source of a finished migration: look, deny everybody for a while (scream test), look again, delete."""

from __future__ import annotations

from datetime import datetime

from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import lift, scream_acls
from topicshift.acts.last_look import keep_last_look
from topicshift.acts.questions import about_of, approve_by_spec
from topicshift.core.drain.discovery import moved, reads
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, SourceFact, View
from topicshift.core.engine.words import Ask, MigrationState, Row, StepState
from topicshift.core.errors import OwnershipLost, Refused, Transient, Unreadable
from topicshift.core.proof.retirement import due_at, only_time, retention_of, retirement_findings
from topicshift.core.proof.verification import same_topic_id
from topicshift.ports import Acl, Clock, ClusterAdmin

SAMPLE_S = 5.0
"""Seconds between two looks at the commits of groups without members on the source."""


def readers(admin: ClusterAdmin, source: str, clock: Clock) -> tuple[list[str], list[str]]:
    """Groups that read the source now, and what could not be read.

    A group reads it if a member is assigned to it or subscribes to it (by name or by a pattern), if a commit on it is
    pending, or if its commits on it move between two looks five seconds apart. Old commits alone are no
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
    clock.sleep(SAMPLE_S)
    second = admin.commits(idle, source, partitions)
    for name in idle:
        before, after = first.get(name), second.get(name)
        if before is None or after is None or before.error or after.error or before.errors or after.errors:
            unreadable.append(f"the commits of group {name}")
        elif moved(before, after) or before.unstable or after.unstable:
            reading.add(name)
    return sorted(reading), unreadable


def look_at_source(ctx: MigrationContext, record: Record) -> SourceFact:
    """Whether the source exists, and everything that speaks against deleting it now.

    Raises ``Refused`` for a migration whose producers were never switched, ``Unreadable`` where nothing but reading
    failed.
    """
    switch, fence = record.step(Row.SWITCH_PRODUCERS), record.step(Row.FENCE)
    if switch is None or switch.state is not StepState.DONE or fence is None:
        raise Refused(f"Migration {record.migration_id} never switched its producers; there is nothing to retire.")
    info = ctx.admin.topic(record.source)
    if info is None:
        return SourceFact(exists=False)
    who, unreadable = readers(ctx.admin, record.source, ctx.clock)
    against = retirement_findings(
        source=record.source,
        info=info,
        expected_topic_id=str(fence.data["topic_id"]),
        fence_offsets={int(p): int(o) for p, o in fence.data["record"]["fence_offsets"].items()},
        offsets=ctx.admin.offsets(record.source),
        readers=who,
        unreadable=unreadable,
        due=due_at(
            datetime.fromisoformat(str(switch.data["finished_at"])),
            ctx.effective_spec().retire.after,
            retention_of(info),
        ),
        now=ctx.clock.now(),
    )
    found = list(against)
    blocking = [f for f in found if f.blocks]
    if blocking and all(f.unknown for f in blocking):
        raise Unreadable("; ".join(f.line() for f in blocking))
    same = same_topic_id(info.topic_id, str(fence.data["topic_id"]))
    return SourceFact(True, tuple(f.line() for f in blocking), only_time(found), same)


def begin_scream(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Deny everybody, and write down until when. A repeated act keeps the end of the first time.

    On a cluster without an authorizer nobody can be denied: the time is waited for all the same, watching only.
    """
    approve_by_spec(ctx, Ask.RETIRE, about_of(Ask.RETIRE, "", view.record, view))
    row, source = view.record.step(Row.SCREAM_TEST), ctx.row.source
    if row is None or not row.state.in_effect:
        here = ctx.admin.acls() if ctx.admin.cluster().authorizer else None
        ours = [] if here is None else [a for a in scream_acls(source) if a not in here]
        data = ctx.intend(Row.SCREAM_TEST, {"denied": here is not None, "acls": [a.operation for a in ours]})
    else:
        data = row.data
    added = scream_acls(source, data["acls"])
    if added:
        ctx.check_seat()
        ctx.admin.create_acls(added)
    if "until" in data:
        return
    now = ctx.clock.now()
    until = (now + ctx.effective_spec().retire.scream_test).isoformat()
    try:
        ctx.event("scream_test_begun", {**data, "until": until})
        ctx.finish(Row.SCREAM_TEST, {"until": until, "began_at": now.isoformat()}, state=StepState.INTENDED)
    except OwnershipLost:
        _take_back(ctx, added)
        raise


def _take_back(ctx: MigrationContext, added: list[Acl]) -> None:
    """A process that slept while it denied everybody, and woke up after the test was over, leaves nobody denied."""
    now = ctx.journal.step(ctx.row.migration_id, Row.SCREAM_TEST)
    if added and (now is None or now.state == StepState.UNDONE.value):
        ctx.admin.delete_acls(added)
        ctx.log(f"the scream test of {ctx.row.source} was over before everybody was denied: that is taken back")


def end_scream(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Let everybody in again: the migration is what it was before, finished, and holds no topic."""
    ctx.outrun(view.record, "the scream test is over")
    _let_in(ctx, view.record)
    ctx.journal.set_state(ctx.claim, MigrationState.DONE.value, active=False)


def delete_source(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Delete the source by its id, forward only.

    Raises ``Refused`` where another topic has its name by now, ``NotFound`` where that was made since the look,
    ``Transient`` where it was written to since it was decided.
    """
    fence, source = view.record.step(Row.FENCE), ctx.row.source
    topic_id = str(fence.data["topic_id"]) if fence is not None else ""
    ctx.intend(Row.DELETE_SOURCE, {"source": source, "topic_id": topic_id, "at": ctx.clock.now().isoformat()})
    info = ctx.admin.topic(source)
    if info is None:
        return
    if not same_topic_id(info.topic_id, topic_id):
        raise Refused(f"{source} is another topic by now ({info.topic_id}, not {topic_id}); it is not deleted.")
    ends = keep_last_look(ctx, info)
    fenced = fence.data["record"]["fence_offsets"] if fence is not None else {}
    grown = [f"{source}[{p}] +{n}" for p, end in sorted(ends.items()) if (n := end - int(fenced.get(str(p), 0))) > 0]
    if grown:
        raise Transient(f"{source} was written to since the last look: {', '.join(grown)}. It is looked at anew.")
    ctx.check_seat()
    ctx.admin.delete_topic(source, info.topic_id)


def finish_retirement(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """The source is deleted: nothing of this migration is left on its name."""
    _clear(ctx, view.record)
    row = view.record.step(Row.DELETE_SOURCE)
    topic_id = row.data.get("topic_id") if row is not None else None
    data = {"source": ctx.row.source, "topic_id": topic_id, "deleted_at": ctx.clock.now().isoformat()}
    ctx.finish(Row.DELETE_SOURCE, data)
    ctx.event("source_deleted", data)
    ctx.journal.set_state(ctx.claim, MigrationState.RETIRED.value, active=False)


def close_gone(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Close a migration whose source somebody else has deleted; its DENY is taken from the topic's name."""
    _clear(ctx, view.record)
    ctx.event("source_gone", {"source": ctx.row.source, "deleted_by": "somebody else"})
    ctx.journal.set_state(ctx.claim, MigrationState.RETIRED.value, active=False)


def _clear(ctx: MigrationContext, record: Record) -> None:
    ctx.outrun(record, "the source is gone")
    _let_in(ctx, record)
    if not lift(ctx, record):
        raise Transient(f"DENY bindings on {record.source} are still shown after their deletion.")


def _let_in(ctx: MigrationContext, record: Record) -> None:
    """The exact inverse of :func:`begin_scream`."""
    row = record.step(Row.SCREAM_TEST)
    if row is None or not row.state.in_effect:
        return
    added = scream_acls(record.source, row.data["acls"])
    if added:
        ctx.check_seat()
        ctx.admin.delete_acls(added)
    ctx.finish(Row.SCREAM_TEST, {}, state=StepState.UNDONE)
