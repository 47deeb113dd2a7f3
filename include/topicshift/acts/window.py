"""A window that closed before its freeze began: what was prepared for the freeze is put back until the next one."""

from __future__ import annotations

from topicshift.acts.context import MigrationContext
from topicshift.acts.freeze import disarm_all
from topicshift.acts.questions import attempt_of, name_of
from topicshift.acts.retention import restore_retention
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import View
from topicshift.core.engine.words import Ask, StepState
from topicshift.core.errors import DrainTimedOut


def miss_window(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Say that the window was missed, end the armed verifier, put the retention back, and let participants follow at
    leisure again. The target stays. Idempotent.

    Raises ``DrainTimedOut`` where a person has stopped producers for this window: somebody has to start them.
    """
    record = view.record
    said = record.steps.get(name_of(Ask.STOP_BY_HAND))
    stopped = said is not None and said.state is StepState.DONE and said.data.get("said") == "yes"
    people = [p.name for p in record.policy.producers if p.manual and stopped]
    stopped = bool(people) and said is not None and said.data["about"].get("attempt") == attempt_of(record)
    ctx.event("window_missed", {"why": decision.why, "start_by_hand": people if stopped else []})
    restore_retention(ctx, view, decision)
    disarm_all(ctx)
    ctx.ports.verifier.abort()  # last: its task tells by the row above that it is wanted again
    if stopped:
        ctx.journal.finish(ctx.claim, name_of(Ask.STOP_BY_HAND), {}, state=StepState.UNDONE.value)
        raise DrainTimedOut(
            f"{decision.why}. START BY HAND on {record.source}: {', '.join(people)}. Then clear the task to wait for "
            "that window."
        )
