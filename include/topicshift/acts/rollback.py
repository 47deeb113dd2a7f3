"""The rollback: how it begins, and how it ends; of the type ``free`` everything is put back as it was."""

from __future__ import annotations

from datetime import datetime

from topicshift.acts.before import tell_restored
from topicshift.acts.close import end_waits
from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import FENCE_ROWS, open_target, restore
from topicshift.acts.resume import take_back
from topicshift.acts.retention import put_back
from topicshift.acts.switch import send
from topicshift.acts.telling import tell
from topicshift.core.engine.back import rollback_type
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Member, View
from topicshift.core.engine.words import MigrationState, Row, StepState, row_of
from topicshift.core.errors import Refused, Transient
from topicshift.core.kafka.by_hand import delete_topic, lift_all
from topicshift.ports import Journal

_OF_THE_WAY_FORWARD = (
    *(Row.FREEZE, Row.STOP_PRODUCERS, Row.SWITCH_PRODUCERS, Row.FENCE, Row.WIDE_DENY, Row.LENGTHEN_RETENTION, Row.ARM),
    *(Row.FENCE_AGAIN, Row.CREATE_TARGET),
)


def going_back(journal: Journal, migration_id: str) -> bool:
    """Whether a rollback of this migration is under way."""
    row = journal.step(migration_id, Row.ROLLBACK)
    return row is not None and row.state == StepState.INTENDED


def refuse_while_going_back(journal: Journal, migration_id: str) -> None:
    """Raises ``Refused`` while a rollback is under way: a retirement must not take the migration away from it."""
    if going_back(journal, migration_id):
        raise Refused(
            f"{migration_id} goes back to its source now, so that is not deleted. Nothing was changed. Let the run of "
            "topic_rollback end, or trigger topic_rollback again where that has failed."
        )


def begin_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down that the migration is rolled back; the migration's verifier is called off."""
    if view.record.in_effect(Row.ROLLBACK):
        ctx.finish(Row.ROLLBACK, {}, state=StepState.UNDONE)  # of a migration that was opened again after it
    before = view.record.step(Row.ROLLBACK)
    way = 1 + (int(before.data.get("way", 0)) if before is not None else 0)
    ctx.intend(Row.ROLLBACK, {"type": rollback_type(view)[0], "why": decision.why, "way": way})
    ctx.ports.verifier.abort()


def stop_on_target(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Stop producers that were pointed to the target, so that it can be looked at once more.

    They stand still for the freeze budget at most: a longer lease, or a second one, is for those alone that were left
    behind when others went back to the source.
    """
    row, now = view.record.step(Row.ROLLBACK), ctx.clock.now()
    told = row.data.get("lease_until") if row is not None else None
    until = datetime.fromisoformat(told) if told else now
    if until <= now:
        until = now + view.record.policy.freeze_budget
        ctx.finish(Row.ROLLBACK, {"lease_until": until.isoformat()}, state=StepState.INTENDED)
    tell(ctx, ctx.driven(ctx.producers), lambda controller, who: controller.stop(ctx.control(until), who))


def end_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Records have come to the target meanwhile: producers go on there, and nothing is rolled back."""
    restore(ctx, view.record)
    late: Transient | None = None
    try:
        open_target(ctx, view.record)
    except Transient as error:
        late = error  # nobody stands still for a broker that is late
    send(ctx, ctx.driven(ctx.producers), ctx.row.target)
    row = view.record.step(Row.ROLLBACK)
    why = str(row.data.get("calling_off") or decision.why) if row is not None else decision.why
    if late is not None:
        ctx.finish(Row.ROLLBACK, {"calling_off": why}, state=StepState.INTENDED)
        raise late
    ctx.event("rollback_called_off", {"why": why})
    ctx.finish(Row.ROLLBACK, {"called_off": why}, state=StepState.UNDONE)


def call_off_back(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """A way back ends where it began: everybody is on the target, the source is shut."""
    ctx.event("rollback_called_off", {"why": decision.why})
    data = {"called_off": decision.why}
    ctx.journal.finish(ctx.claim, Row.ROLLBACK.value, data, state=StepState.UNDONE.value)


def finish_back(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Everybody is back on the source. The target keeps its records and is left, shut for everybody."""
    ctx.outrun(view.record, "the migration is rolled back")
    held = ctx.record_as_held()
    target = held.target
    shut = [view.record.step(row) for row in FENCE_ROWS]
    ends = [o.end for o in ctx.admin.offsets(target).values()]
    holds = "an unknown number of" if any(e is None for e in ends) else sum(e or 0 for e in ends)
    kept_line = f"topic {target} keeps {holds} record(s): every group has read them"
    left = [f"{kept_line}; delete it once nobody needs them: {delete_topic(target)}"]
    denied = [a for row in shut if row is not None for a in row.data.get("acls_added", ())]
    if denied:
        who = ", ".join(sorted({a["principal"] for a in denied}))
        left.append(f"a DENY keeps {who} from writing to {target}: delete it with the topic: {lift_all(denied)}")
    kept = held.step(Row.LENGTHEN_RETENTION)
    if kept is not None and kept.state.in_effect:
        put_back(ctx, held.source, kept.data)
    rows = [*_OF_THE_WAY_FORWARD, *(row_of(Row.SWITCH_GROUP, g) for g in held.policy.groups)]
    for name in rows:
        step = held.steps.get(name)
        if step is not None and step.state.in_effect:
            ctx.journal.finish(ctx.claim, name, {"undone_by": "went back"}, state=StepState.UNDONE.value)
    end_waits(ctx, held)
    found = tell_restored(ctx, ctx.record_as_held(), "rolled back (drain_back)")
    differs = [*found.differs, *found.unknown] if found is not None else []
    ctx.event("rolled_back", {"type": "drain_back", "why": decision.why, "left": left, "not_restored": differs})
    # As in finish_rollback: a try that dies in between is finished by the next.
    ctx.end(MigrationState.ROLLED_BACK)
    data = {"finished_at": ctx.clock.now().isoformat(), "left": left, "not_restored": differs}
    ctx.journal.finish(ctx.claim, Row.ROLLBACK.value, data)


def finish_rollback(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Everything is as it was before; both topics are free."""
    record = view.record
    by_hand = [p.name for p in record.policy.producers if p.manual]
    by_hand += [_start(view, c) for c in record.policy.consumers if c.manual and _moved(view, c.group)]
    ctx.outrun(record, "the migration is rolled back")
    open_target(ctx, record)
    take_back(ctx, record, "rolled back")
    end_waits(ctx, record)
    if record.in_effect(Row.FREEZE):
        ended = {"ended_at": ctx.clock.now().isoformat(), "how": "rolled back"}
        ctx.finish(Row.FREEZE, ended, state=StepState.UNDONE)
    row = record.step(Row.ROLLBACK)
    ctx.event("rolled_back", {"why": row.data.get("why") if row is not None else None, "start_by_hand": by_hand})
    if by_hand:
        ctx.log(f"START BY HAND on {ctx.row.source}: {', '.join(by_hand)}")
    found = tell_restored(ctx, record, "rolled back")
    differs = [*found.differs, *found.unknown] if found is not None else []
    # The migration is closed before its rollback is done: a try that dies in between is finished by the next.
    ctx.end(MigrationState.ROLLED_BACK)
    finished = {"finished_at": ctx.clock.now().isoformat(), "start_by_hand": by_hand, "not_restored": differs}
    ctx.finish(Row.ROLLBACK, finished)


def _start(view: View, consumer: Member) -> str:
    """What a person has to start; where its offsets went and it had members, what is to be set before that."""
    row = view.record.step(Row.SWITCH_GROUP, consumer.group)
    unset = row.data.get("set_by_hand", {}) if row is not None else {}
    first = ", ".join(f"{p}={at}" for p, at in unset.items())
    more = f": stop it and set its offsets first, by partition: {first}" if first else ""
    return f"{consumer.name} (group {consumer.group}){more}"


def _moved(view: View, group: str) -> bool:
    """Whether a person has stopped this group for its switch, or started it on the target, whatever came of it."""
    return view.record.step(Row.SWITCH_GROUP, group) is not None
