"""The fence after the switch: begun anew, and recorded with the names of what came in between."""

from __future__ import annotations

from datetime import UTC, datetime

from topicshift.acts.context import MigrationContext
from topicshift.core.drain.names import STRAYS
from topicshift.core.drain.strays import MOST_NAMED, Generation, Strays, named, ranges_between
from topicshift.core.engine.decision import Decision
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.words import Row, StepState
from topicshift.core.fence.decision import FenceSettings, settled_tail
from topicshift.core.fence.record import FenceRecord, evidence

STILL = FenceSettings(settle_s=5.0, samples=3)
"""How long the ends have to stand still for a fence anew: nobody stopped that writer, so it is looked at for longer."""

READ_S = 15.0
"""Bound, in seconds, of reading what came after the fence."""


def begin_fence_again(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down that the source was written to after its fence, and from where on records count as strays."""
    record = view.record
    row, fence = record.step(Row.FENCE_AGAIN), ctx.fence_of(record)
    before = dict(row.data) if row is not None else {}
    if row is not None and row.state is not StepState.UNDONE:
        ctx.finish(Row.FENCE_AGAIN, {}, state=StepState.UNDONE)
    data = {
        **before,
        "generation": int(before.get("generation", 0)) + 1,
        "began_at": ctx.clock.now().isoformat(),
        "why": decision.why,
        "from": {str(p): o for p, o in fence.fence_offsets.items()},
    }
    data["first"] = before.get("first") or data["from"]
    ctx.intend(Row.FENCE_AGAIN, data)
    ctx.memory.still.clear()
    ctx.event("fence_broken", {"why": decision.why, "generation": data["generation"]})


def record_fence_again(ctx: MigrationContext, view: View, decision: Decision) -> None:
    """Write down the new fence and the records before it; certificates of groups that are on the source are void."""
    record = view.record
    row, old = record.step(Row.FENCE_AGAIN), ctx.fence_of(record)
    tail = settled_tail(ctx.memory.still, old.partitions)
    if row is None or not tail:
        return
    fence = _fence(old, ctx, tail)
    strays = _strays(ctx, record, fence)
    ctx.check_seat()
    ctx.write(STRAYS, strays.model_dump_json(indent=2))
    ctx.write("fence.json", fence.model_dump_json(indent=2))
    for subject in ("", *(g for g in record.policy.groups if not record.begun(Row.SWITCH_GROUP, g))):
        for void in (Row.CERTIFICATE, Row.VERIFICATION):
            if record.in_effect(void, subject):
                ctx.finish(void, {"how": "fenced anew"}, subject, StepState.UNDONE)
    last = strays.generations[-1]
    said = {
        "generation": last.generation,
        "records": len(last.records),
        "unseen_by": strays.groups,
        "unseen": len(strays.unseen),
        "complete": strays.complete,
        "sha256": strays.mark,
    }
    ctx.finish(Row.FENCE, {"record": fence.model_dump(mode="json")})
    ctx.event("fenced_again", {**said, "fence_offsets": fence.fence_offsets, "topic_id": fence.topic_id})
    ctx.finish(Row.FENCE_AGAIN, said)
    for stray in last.records[:20]:
        ctx.log(f"after the fence: {stray.line(record.source)}")


def _fence(old: FenceRecord, ctx: MigrationContext, tail: list) -> FenceRecord:  # type: ignore[type-arg]
    last, began = tail[-1], ctx.memory.still[0].began
    return old.model_copy(
        update={
            "fence_offsets": {p: o.end for p, o in sorted((last.offsets or {}).items()) if o.end is not None},
            "began_at": datetime.fromtimestamp(began, UTC).isoformat(),
            "taken_at": datetime.fromtimestamp(last.ended, UTC).isoformat(),
            "settings": STILL,
            "samples": evidence(tail, began),
            "producers": list(last.producers or ()),
        }
    )


def _strays(ctx: MigrationContext, record: Record, fence: FenceRecord) -> Strays:
    """Everything that was named so far, and what came before this fence. Raises ``Unreadable`` where it cannot be read.

    A try that died after the fence was written finds the same records: the row says from where on they count.
    """
    row = record.step(Row.FENCE_AGAIN)
    assert row is not None
    known = ctx.ports.evidence.read(record.migration_id, ctx.file(STRAYS))
    strays = Strays.model_validate_json(known) if known else Strays(topic=fence.topic, topic_id=fence.topic_id)
    from_ = {int(p): int(o) for p, o in row.data["from"].items()}
    ranges = ranges_between(from_, fence.fence_offsets)
    found = ctx.ports.executor.run(
        lambda: ctx.ports.reader.records(fence.topic, ranges, timeout_s=READ_S, most=MOST_NAMED + 1)
    )
    return strays.with_generation(
        Generation(
            generation=int(row.data["generation"]),
            taken_at=fence.taken_at,
            why=str(row.data["why"]),
            from_offsets=from_,
            to_offsets=fence.fence_offsets,
            unseen_by=[g for g in record.policy.groups if record.begun(Row.SWITCH_GROUP, g)],
            records=named(found[:MOST_NAMED]),
            complete=len(found) <= MOST_NAMED,
        )
    )
