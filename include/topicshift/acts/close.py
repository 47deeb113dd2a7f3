"""Close a migration that will not go on: its topics are free again, and what is left to do by hand is named."""

from __future__ import annotations

from typing import Any

from topicshift.acts.before import tell_restored
from topicshift.acts.context import MigrationContext
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import MigrationState, Row, StepState
from topicshift.core.errors import Refused, TopicshiftError


def leftovers(ctx: MigrationContext, record: Record) -> list[str]:
    """What this migration leaves in effect, one line for each thing that a person has to look at."""
    source, target, left = record.source, record.target, []
    if record.freeze is not None:
        left.append(
            f"a freeze runs (lease until {record.freeze.lease_until:%Y-%m-%d %H:%M:%S} UTC): see that every producer "
            f"of {source} runs again, and where it writes"
        )
    denied = [
        f"{a['operation']} on {a['name']} for {a['principal']}"
        for row in (Row.FENCE, Row.WIDE_DENY, Row.TARGET_DENY)
        if record.in_effect(row)
        for found in [record.step(row)]
        if found is not None
        for a in found.data.get("acls_added", ())
    ]
    scream = record.step(Row.SCREAM_TEST)
    if scream is not None and scream.state.in_effect:
        denied += [f"{operation} on {source} for User:*" for operation in scream.data.get("acls", ())]
    if denied:
        left.append(f"DENY bindings: {', '.join(denied)}: delete them once nobody has to be kept out")
    again = record.step(Row.FENCE_AGAIN)
    if again is not None and again.state.in_effect:
        unseen, groups = again.data.get("unseen"), ", ".join(again.data.get("unseen_by", ())) or "nobody"
        left.append(
            f"records came to {source} after its fence (strays.json); {'not counted' if unseen is None else unseen} of "
            f"them cannot be read any more by groups that had left: {groups}. Carry over what is missing"
        )
    for group in record.released:
        left.append(f"group {group} was released to {target}: it reads there, and no longer {source}")
    if record.in_effect(Row.SWITCH_PRODUCERS) or record.released:
        left.append(f"the route points applications to {target} where they follow it (topicshift route show)")
    made = record.step(Row.CREATE_TARGET)
    if made is not None and made.state.in_effect and not record.in_effect(Row.SWITCH_PRODUCERS):
        left.append(f"topic {target} was made for this migration: delete it if nobody uses it")
    kept = record.step(Row.LENGTHEN_RETENTION)
    if kept is not None and kept.state.in_effect and kept.data.get("set"):
        before = kept.data.get("before", {})
        left.append(f"the retention of {source} was lengthened; before: {before}")
    return left


def all_leftovers(ctx: MigrationContext, record: Record) -> list[str]:
    """What is left in effect, on a way back of both ways."""
    return leftovers(ctx, record) + (leftovers(ctx, ctx.record_as_held()) if record.mirrored else [])


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


def close(ctx: MigrationContext, reason: str, *, even_frozen: bool = False) -> dict[str, Any]:
    """End the migration, whatever state it is in; returns what is left to do by hand.

    It is ``failed`` then; one that was done, and whose retirement is under way, is done. Participants are disarmed if
    they can be reached. Raises ``Refused`` for one that has ended, and while a freeze runs unless ``even_frozen``:
    producers would stand still until their lease ends.
    """
    record = ctx.refresh()
    why_not = not_closed(record, even_frozen=even_frozen)
    if why_not:
        raise Refused(why_not)
    left = all_leftovers(ctx, record)
    ctx.claim = ctx.journal.renew(ctx.claim, f"closed by {ctx.actor}")
    if record.in_effect(Row.ARM):
        left += _disarm(ctx)
    end_waits(ctx, ctx.record_as_held())
    found = tell_restored(ctx, record, "closed")
    left += [*found.differs, *found.unknown] if found is not None else []
    ctx.event("closed", {"reason": reason, "left": left, "from_state": record.state.value})
    if record.mirrored:
        ctx.journal.finish(ctx.claim, Row.ROLLBACK.value, {"called_off": "closed"}, state=StepState.UNDONE.value)
    ended = MigrationState.FAILED if record.state is MigrationState.OPEN else record.state
    ctx.journal.set_state(ctx.claim, ended.value, active=False)
    return {"migration": record.migration_id, "state": ended.value, "left": left}


def _disarm(ctx: MigrationContext) -> list[str]:
    from topicshift.acts.freeze import disarm_all

    try:
        disarm_all(ctx)
    except TopicshiftError as error:
        return [f"participants could not be disarmed ({error}): they follow the route closely until they are"]
    return []
