"""The rules of the fence after the switch: a stray record on the source is contained, not final.

The source is fenced anew, groups that were not released drain to the new fence, and what released groups can no longer
see is named and put to a person. Before the switch nothing of this is in play: producers resume on the source.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from topicshift.core.engine.decision import Decision, Table, act, answered, retell, stop, wait
from topicshift.core.engine.frozen import deny_in_force
from topicshift.core.engine.view import Record, Unknown, View
from topicshift.core.engine.where import all_moved, driven, named, seen
from topicshift.core.engine.words import Act, Ask, Fact, Row, StepState

AGAIN = Table()

STANDS = timedelta(seconds=60)
"""Time for which one advancer waits for the ends of the source to stand still, before it calls a person."""


def kept_there(view: View) -> Decision | None:
    """A producer that starts now is not sent back to the source because the record that says so was lost."""
    back = [p for p in driven(view) if seen(view, p).side == "source"]
    if not back:
        return None
    text = f"sent to the source by a route that has forgotten the switch: {named(view, back)}"
    return retell(view, Act.POINT_PRODUCERS, text, text)


@AGAIN.rule(lambda r: r.at(Row.FENCE_AGAIN) is StepState.INTENDED, Fact.DENY, Fact.STILL, Fact.PRODUCERS)
def fenced_again(view: View) -> Decision | None:
    """The source is shut, and its ends stand still: a new fence, and every certificate before it is void."""
    shut = deny_in_force(view, Act.REPAIR_DENY) or kept_there(view)
    if shut is not None:
        return shut
    still = view.still
    if isinstance(still, Unknown):
        return wait(f"the source cannot be sampled: {still.why}")
    if still.broken:
        return stop("FenceBroken", still.waits)
    if still.proven:
        return act(Act.RECORD_FENCE_AGAIN, "nobody writes to the source any more")
    row = view.record.step(Row.FENCE_AGAIN)
    began = datetime.fromisoformat(str(row.data["began_at"])) if row is not None else view.now
    if view.now - max(began, view.began_at) < STANDS:
        return wait(f"the source does not stand still yet: {still.waits}")
    return stop(
        "FenceBroken",
        f"{view.record.source} goes on being written to after its fence: {still.waits}",
        "Nobody else is moved. Find that writer and stop it, or take its right to write away; then clear the task, or: "
        f"topicshift advance {view.record.migration_id}",
    )


def unseen(record: Record) -> int | None:
    """Records that released groups cannot see, by the journal; None where there are too many to be named."""
    row = record.step(Row.FENCE_AGAIN)
    if row is None or not row.state.in_effect:
        return 0
    return int(row.data.get("unseen", 0)) if row.data.get("complete", True) else None


def replay_begun(record: Record) -> bool:
    """Whether some late record is in the target by a replay, or may be."""
    again = record.step(Row.FENCE_AGAIN)
    counted = int(again.data.get("replayed", 0)) if again is not None and again.state.in_effect else 0
    return counted > 0 or record.in_effect(Row.REPLAY)


def replay_ordered(record: Record) -> bool:
    """A person has ordered that late records are written to the target, and they are not all there yet."""
    return all_moved(record) and record.at(Row.REPLAY) is StepState.INTENDED


def replayed(view: View) -> Decision | None:
    """Late records go to the target, each with a header, on a person's order alone."""
    row = view.record.step(Row.REPLAY)
    count, by = (row.data.get("count"), row.data.get("by")) if row is not None else (None, None)
    return act(Act.REPLAY, f"{by} has ordered the replay of {count} record(s)")


def asks_of_strays(record: Record) -> bool:
    """Every group is moved, and some record is left that a released one cannot see."""
    return all_moved(record) and record.done(Row.FENCE_AGAIN) and unseen(record) != 0


def strays_accepted(view: View) -> Decision | None:
    """A person says of exactly these records that nobody has to read them any more."""
    record = view.record
    count, row = unseen(record), record.step(Row.FENCE_AGAIN)
    groups = ", ".join(row.data.get("unseen_by", ())) if row is not None else ""
    if count is None:
        return stop(
            "FenceBroken",
            f"more records came to {record.source} after its fence than can be named, and {groups} cannot see them",
            f"strays.json has their offsets. Carry over what is missing, then: topicshift close {record.migration_id}",
        )
    why = f"{count} record(s) came to {record.source} after its fence; {groups} cannot see them any more (strays.json)"
    return answered(view, Ask.STRAYS, why)
