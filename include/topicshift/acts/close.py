"""Close a migration that will not go on: its topics are free again, and what is left to do by hand is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.acts.before import tell_restored
from topicshift.acts.context import MigrationContext
from topicshift.acts.fence import scream_acls
from topicshift.acts.rehearse import remove_shadow
from topicshift.acts.retention import put_back
from topicshift.core.engine.mirror import named_on
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import MigrationState, Row, StepState
from topicshift.core.errors import Refused, TopicshiftError
from topicshift.core.fence.point import ends_elsewhere
from topicshift.core.kafka.by_hand import delete_topic, lift_all
from topicshift.core.proof.verification import same_topic_id


def leftovers(record: Record) -> list[str]:
    """What one way of this migration leaves in effect, one line for each thing that a person has to look at.

    Where applications are is not in it: on a way back that is told of both ways at once, see :func:`all_leftovers`.
    """
    source, target, left = record.source, record.target, []
    if record.freeze is not None:
        left.append(
            f"a freeze runs (lease until {record.freeze.lease_until:%Y-%m-%d %H:%M:%S} UTC): see that every producer "
            f"of {source} runs again, and where it writes"
        )
    denied = [
        dict(a)
        for row in (Row.FENCE, Row.WIDE_DENY, Row.TARGET_DENY)
        if record.in_effect(row)
        for found in [record.step(row)]
        if found is not None
        for a in found.data.get("acls_added", ())
    ]
    scream = record.step(Row.SCREAM_TEST)
    if scream is not None and scream.state.in_effect:
        denied += [vars(acl) for acl in scream_acls(source, scream.data.get("acls", ()))]
    if denied:
        named = ", ".join(f"{a['operation']} on {a['name']} for {a['principal']}" for a in denied)
        left.append(f"DENY bindings: {named}: delete them once nobody has to be kept out: {lift_all(denied)}")
    again = record.step(Row.FENCE_AGAIN)
    if again is not None and again.state.in_effect:
        unseen, groups = again.data.get("unseen"), ", ".join(again.data.get("unseen_by", ())) or "nobody"
        left.append(
            f"records came to {source} after its fence (strays.json); {'not counted' if unseen is None else unseen} of "
            f"them cannot be read any more by groups that had left: {groups}. Carry over what is missing"
        )
    made = record.step(Row.CREATE_TARGET)
    ours = made is not None and made.state.in_effect and bool(made.data.get("ours"))
    if ours and not record.in_effect(Row.SWITCH_PRODUCERS):
        made_line = f"topic {target} was made for this migration: delete it if nobody uses it"
        left.append(f"{made_line}: {delete_topic(target)}")
    return left


def lengthened(record: Record) -> Mapping[str, Any]:
    """What the retention of the source was lengthened to, and was before; empty where it was not."""
    row = record.step(Row.LENGTHEN_RETENTION)
    return row.data if row is not None and row.state.in_effect and row.data.get("set") else {}


def _whereabouts(held: Record, record: Record) -> list[str]:
    """Where applications are. On a way back its own rows tell, for whatever they have moved; else those before it."""
    if not record.mirrored and record.at(Row.ROLLBACK) is StepState.INTENDED:
        moved_once = [g for g in record.policy.groups if record.step(Row.SWITCH_GROUP, g) is not None]
        groups = "".join(f", group {g}" for g in moved_once)
        return [
            f"a rollback was under way: each of these may be on {record.source} or on {record.target}: producers"
            f"{groups}. Look where each is (topicshift route show)"
        ]
    left = []
    for group in record.policy.groups:
        moved = next((r for r in (record, held) if r.in_effect(Row.SWITCH_GROUP, group)), None)
        if moved is not None:
            left.append(f"group {group} was released to {moved.target}: it reads there, and no longer {moved.source}")
    led = next((r for r in (record, held) if r.in_effect(Row.SWITCH_PRODUCERS) or r.released), None)
    if led is not None:
        where = (
            led.target
            if led.done(Row.SWITCH_PRODUCERS) or led.released
            else f"{led.source}, or to {led.target} by now,"
        )
        left.append(f"the route points applications to {where} where they follow it (topicshift route show)")
    return left


def close_lines(held: Record, record: Record) -> tuple[str, ...]:
    """What closing does, one line each, with what it leaves to be done by hand. ``held``: before any way back."""
    failed = ends_as(held) is MigrationState.FAILED
    ends = "it ends as failed" if failed else "its retirement ends"
    left = (f"left to do by hand: {line}" for line in all_leftovers(held, record))
    return (f"{ends}, moves nobody, and both topics are free", *put_back_lines(held, record), *left)


def all_leftovers(held: Record, record: Record) -> list[str]:
    """What a close would leave in effect, on a way back of both ways. ``held``: before any way back."""
    if held.policy.rehearsal:  # all of its shadow is deleted
        return []
    both = ways(held, record)
    left = [*(line for way in both for line in leftovers(way)), *_whereabouts(held, record)]
    kept = [way for way in both if lengthened(way) and not puts_back(record)]
    return [*left, *(f"the retention of {way.source} was lengthened; {_before(way)}" for way in kept)]


def puts_back(record: Record) -> bool:
    """Whether a close puts back a retention that was lengthened: in a freeze, records may still have to be read."""
    return record.freeze is None


def _before(way: Record) -> str:
    return "before: " + ", ".join(
        f"{name} {'inherited' if was is None else was}" for name, was in lengthened(way).get("before", {}).items()
    )


def put_back_lines(held: Record, record: Record) -> list[str]:
    """What a close would put back by itself, one line each."""
    both = ways(held, record) if puts_back(record) else []
    return [f"the retention of {way.source} is put back; {_before(way)}" for way in both if lengthened(way)]


def ways(held: Record, record: Record) -> list[Record]:
    """The way that is under way now, and on a way back the one before it."""
    return [record, held] if record.mirrored else [record]


def end_waits(ctx: MigrationContext, record: Record) -> None:
    """A pause, a postponement and an open question end with the migration that they were for.

    It may be opened again; and a task that waits for the answer in Airflow wakes up, and ends.
    """
    for row in (Row.PAUSE, Row.POSTPONE):
        if record.in_effect(row):
            ctx.journal.finish(ctx.claim, row.value, {}, state=StepState.UNDONE.value)
    for name, asked in record.steps.items():
        if name.startswith(f"{Row.QUESTION.value}:") and asked.state is StepState.INTENDED:
            ctx.journal.finish(ctx.claim, name, {}, state=StepState.UNDONE.value)


def ends_as(held: Record) -> MigrationState:
    """The state in which a close leaves a migration: one whose rollback was under way is not done any more."""
    going_back = held.at(Row.ROLLBACK) is StepState.INTENDED
    return MigrationState.FAILED if going_back or held.state is MigrationState.OPEN else held.state


def not_closed(record: Record, *, even_frozen: bool = False) -> str:
    """Why the migration cannot be closed now, empty where it can."""
    if record.over:
        return f"{record.migration_id} has ended already ({record.state.value}); its topics are free."
    if record.freeze is not None and not even_frozen:
        return (
            f"Producers of {record.source} may stand still for {record.migration_id}. First: topicshift "
            f"resume-on-source {record.migration_id}. If that cannot tell where producers are, look at each, then "
            "close with --even-frozen."
        )
    return ""


def close(
    ctx: MigrationContext, reason: str, *, even_frozen: bool = False, leave_nothing: bool = False
) -> dict[str, Any]:
    """End the migration, whatever state it is in; returns what is left to do by hand.

    The shadow of a rehearsal is deleted, and what cannot be is named; where it is to ``leave_nothing``, the error is
    raised instead, and the rehearsal goes on to be open.

    It is ``failed`` then; one that was done, and whose retirement is under way, is done. Participants are disarmed if
    they can be reached; where no freeze runs, a retention that was lengthened is put back.

    Raises ``Refused`` for one that has ended, and while a freeze runs unless ``even_frozen``:
    producers would stand still until their lease ends.
    """
    record = ctx.refresh()
    why_not = not_closed(record, even_frozen=even_frozen)
    if why_not:
        raise Refused(why_not)
    ctx.claim = ctx.journal.renew(ctx.claim, f"closed by {ctx.actor}")
    held = ctx.record_as_held()
    if held.policy.rehearsal:
        left = remove_shadow(ctx, anyway=not leave_nothing)
        end_waits(ctx, held)
    else:
        left = _left(ctx, record)
    ctx.event("closed", {"reason": reason, "left": left, "from_state": record.state.value})
    if held.at(Row.ROLLBACK) is StepState.INTENDED:
        ctx.journal.finish(ctx.claim, Row.ROLLBACK.value, {"called_off": "closed"}, state=StepState.UNDONE.value)
    ended = ends_as(held)
    ctx.journal.set_state(ctx.claim, ended.value, active=False)
    ctx.report()
    return {"migration": record.migration_id, "state": ended.value, "left": left}


def _left(ctx: MigrationContext, record: Record) -> list[str]:
    """End what the migration waits for; what a person has to look at then."""
    unrestored = _restore_retention(ctx, record) if puts_back(record) else []
    record = ctx.refresh()
    late = [line for way in ways(ctx.record_as_held(), record) for line in _late_records(ctx, way)]
    left = [*all_leftovers(ctx.record_as_held(), record), *late, *unrestored]
    if record.in_effect(Row.ARM):
        left += _disarm(ctx)
    held = ctx.record_as_held()
    end_waits(ctx, held)
    # Compared with what was there before on the topic where producers belong by now.
    now = held if record.in_effect(Row.SWITCH_PRODUCERS) else record
    found = tell_restored(ctx, now, "closed", ends=True)
    named = tuple(f"{name} of {now.source} is " for name in lengthened(now).get("set", {}))  # told above
    return left + ([line for line in (*found.differs, *found.unknown) if not line.startswith(named)] if found else [])


def _late_records(ctx: MigrationContext, way: Record) -> list[str]:
    """What came to the source after its last fence, once producers were led away: nobody looks for it from now on."""
    if not way.in_effect(Row.SWITCH_PRODUCERS):
        return []
    try:
        fence, info = ctx.last_fence(way), ctx.admin.topic(way.source)
        if info is None or not same_topic_id(info.topic_id, fence.topic_id):
            return []  # said where the topics are compared with what was there before
        seen = ctx.admin.offsets(way.source)
    except TopicshiftError as error:
        return [_not_told(way, error)]
    unread, late = ends_elsewhere(way.source, fence.fence_offsets, seen)
    left = [_not_told(way, f"partitions {unread} cannot be read")] if unread else []
    if late:
        left.append(
            f"records came to {way.source} after its fence ({', '.join(late)}): groups that read {way.target} never "
            "see them. Carry over what is missing"
        )
    return left


def _not_told(way: Record, why: object) -> str:
    return f"whether records came to {way.source} after its fence cannot be told ({why}): compare its ends"


def _restore_retention(ctx: MigrationContext, record: Record) -> list[str]:
    """Put back the retention of either topic; what could not be is named, and stays in the journal as lengthened."""
    left = []
    for way in ways(ctx.record_as_held(), record):
        kept = lengthened(way)
        if not kept:
            continue
        try:
            lines = put_back(ctx, way.source, kept)
        except TopicshiftError as error:
            left.append(
                f"the retention of {way.source} was lengthened, and cannot be put back ({error}); {_before(way)}"
            )
            continue
        name = named_on(way.way, Row.LENGTHEN_RETENTION.value)
        ctx.journal.finish(ctx.claim, name, {"restored": lines}, state=StepState.UNDONE.value)
    return left


def _disarm(ctx: MigrationContext) -> list[str]:
    from topicshift.acts.freeze import disarm_all

    try:
        disarm_all(ctx)
    except TopicshiftError as error:
        return [f"participants could not be disarmed ({error}): they follow the route closely until they are"]
    return []
