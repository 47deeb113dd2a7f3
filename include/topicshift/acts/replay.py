"""Late records are written to the target again, on a person's order."""

from __future__ import annotations

from topicshift.acts.context import MigrationContext
from topicshift.core.drain.names import STRAYS
from topicshift.core.drain.replay import ReplayOrder, Wanted
from topicshift.core.drain.strays import Strays
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Ask, Row, StepState, row_of

WRITE_S = 20.0
"""Bound, in seconds, of the act: it has to end within the time of a seat."""


def replay(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write the records, and keep where they are; a try that died in between finds them there."""
    record = view.record
    row = record.step(Row.REPLAY)
    if row is None:
        return
    wanted = tuple(Wanted(int(p), int(o), int(to)) for p, o, to in row.data["records"])
    since = {int(p): int(end) for p, end in row.data["since"].items()}
    ctx.check_seat()
    order = ReplayOrder(record.migration_id, record.source, record.target, wanted, since)
    made = ctx.ports.replayer.replay(order, timeout_s=WRITE_S)
    ctx.check_seat()
    strays = strays_of(ctx).with_replayed(made)
    ctx.write(STRAYS, strays.model_dump_json(indent=2))
    left = {"unseen": len(strays.unseen), "unseen_by": strays.groups, "sha256": strays.mark}
    ctx.finish(Row.FENCE_AGAIN, {**left, "replayed": len(strays.replayed)})
    asked = row_of(Row.QUESTION, Ask.STRAYS)
    if asked in record.steps and record.steps[asked].state is StepState.INTENDED:
        # It was about more than is left now: the task that waits for its answer wakes up, and looks again.
        ctx.journal.finish(ctx.claim, asked, {}, state=StepState.UNDONE.value)
    ctx.event("replayed", {"records": [r.model_dump(mode="json") for r in made], "left": len(strays.unseen)})
    ctx.finish(Row.REPLAY, {})


def replayed_in_all(record: Record) -> int:
    """How many records were replayed, by the journal."""
    row = record.step(Row.FENCE_AGAIN)
    return int(row.data.get("replayed", 0)) if row is not None and row.state.in_effect else 0


def strays_of(ctx: MigrationContext) -> Strays:
    """The late records, as the evidence names them."""
    return Strays.model_validate_json(ctx.read(STRAYS))
