"""Where a run stands by its journal, and where its participants are: what the rules are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from topicshift.core.engine.decision import Decision, act, stop, wait
from topicshift.core.engine.view import Member, Record, Side, Unknown, View, Whereabouts
from topicshift.core.engine.words import Act, Row, StepState


def always(record: Record) -> bool:
    """In play at any time."""
    return True


def planning(record: Record) -> bool:
    """Nothing was changed yet."""
    return not record.in_effect(Row.CREATE_TARGET)


def before_freeze(record: Record) -> bool:
    """The target is there and no producer is stopped."""
    return record.done(Row.CREATE_TARGET) and record.freeze is None and not record.in_effect(Row.SWITCH_PRODUCERS)


def frozen(record: Record) -> bool:
    """Producers are stopped, or about to be, and nobody was pointed to the target."""
    return record.at(Row.FREEZE) is StepState.INTENDED and not record.in_effect(Row.SWITCH_PRODUCERS)


def fencing(record: Record) -> bool:
    """The freeze has begun and the fence is not proven yet."""
    return frozen(record) and not record.done(Row.FENCE)


def fenced(record: Record) -> bool:
    """The fence is proven, and producers are not pointed to the target yet."""
    return frozen(record) and record.done(Row.FENCE)


def switching(record: Record) -> bool:
    """The intent to point producers to the target is written, and not all of them run there yet."""
    return record.at(Row.SWITCH_PRODUCERS) is StepState.INTENDED


def switched(record: Record) -> bool:
    """Every producer runs on the target."""
    return record.done(Row.SWITCH_PRODUCERS)


def moving(record: Record) -> bool:
    """The fence is proven, and some group is not on the target yet."""
    return record.done(Row.FENCE) and not all_moved(record)


def all_moved(record: Record) -> bool:
    """Every producer and every group runs on the target."""
    return switched(record) and all(record.done(Row.SWITCH_GROUP, g) for g in record.policy.groups)


def certifying(record: Record) -> bool:
    """Certificates are wanted now, by the order of this migration."""
    if record.policy.drain_first and not record.in_effect(Row.FENCE_AGAIN):
        return fenced(record)
    return switched(record) and any(not record.begun(Row.SWITCH_GROUP, g) for g in record.policy.groups)


def releasing(record: Record) -> bool:
    """Producers are on the target under the wider DENY, and some group is not there yet."""
    return switched(record) and record.done(Row.WIDE_DENY) and not all_moved(record)


def resume(error: str, why: str) -> Decision:
    """End the freeze: producers resume on the source. ``error`` says how the run ends then."""
    return replace(act(Act.BEGIN_RESUME, why), error=error)


def end_or_stop(view: View, error: str, why: str) -> Decision:
    """Resume on the source where it is certain that nobody is on the target, else stop and call a person."""
    if frozen(view.record) or (switching(view.record) and nobody_on_target(view)):
        return resume(error, why)
    return stop(error, why, _way_out(view.record) if error == "FenceBroken" else "")


def _way_out(record: Record) -> str:
    """What a person can do once the fence is broken with producers on the target, and cannot be set anew."""
    left = ", ".join(g for g in record.policy.groups if not record.begun(Row.SWITCH_GROUP, g)) or "no group"
    return (
        f"Nobody else is moved, and both topics stay locked. Find out who did this; still on {record.source}: {left}. "
        f"Where this run is not to go on: topicshift close {record.migration_id} gives both topics free and names what "
        "is left to do by hand."
    )


def against_policy(view: View, refused: Callable[[str], Decision]) -> Decision | None:
    """None where the installation policy allows the migration; ``refused`` decides where it does not."""
    found = view.policy
    if isinstance(found, Unknown):
        return wait(f"what the installation policy allows cannot be told: {found.why}")
    text = "; ".join(found.against).rstrip(".")
    return refused(f"the installation policy does not allow it: {text}") if text else None


def contained(view: View) -> Decision | None:
    """What is done about records that came to the source after its fence, with somebody on the target.

    None where the way back to the source holds, or none of this helps. A switch that has begun is finished first:
    nobody is left stopped for it, and nobody is released before the source is fenced anew.
    """
    record, fence = view.record, view.fence
    if isinstance(fence, Unknown) or not fence.grown:
        return None
    if switched(record):
        if not record.done(Row.WIDE_DENY):
            return act(Act.WIDEN_DENY, f"nobody may write to {record.source} any more: {fence.broken}")
        return act(Act.BEGIN_FENCE_AGAIN, fence.broken)
    return None


def finishing(view: View) -> bool:
    """Whether the switch goes on although the source was written to: somebody is on the target, or may be."""
    if not switching(view.record) or isinstance(view.fence, Unknown) or not view.fence.grown:
        return False
    known = not isinstance(view.target, Unknown) and view.target.used is not None
    return known and not isinstance(view.producers, Unknown) and not nobody_on_target(view)


def driven(view: View) -> list[Member]:
    """Producers that a controller moves."""
    return [p for p in view.record.policy.producers if not p.manual]


def seen(view: View, member: Member) -> Whereabouts:
    """A producer as observed; unknown where nothing was said of it."""
    if isinstance(view.producers, Unknown):
        return Whereabouts("unknown", reason=view.producers.why)
    return view.producers.get(member.name) or Whereabouts("unknown", reason="its controller gave no answer")


def arrived(view: View, member: Member, side: Side) -> bool:
    """Whether a producer runs there, or would, if it has no live instance now."""
    where = seen(view, member)
    return where.side == side and (where.status == "running" or where.absent)


def named(view: View, members: list[Member]) -> str:
    """Members with what was seen of each, for a person."""
    return "; ".join(
        f"{m.name} is {w.status}" + (f" on the {w.side}" if w.side else "") + (f" ({w.reason})" if w.reason else "")
        for m in members
        for w in [seen(view, m)]
    )


def nobody_on_target(view: View) -> bool:
    """Whether it is certain that no producer and no group is on the target, and that nothing was written there."""
    if isinstance(view.target, Unknown) or view.target.used != 0 or isinstance(view.producers, Unknown):
        return False
    if view.record.released or switched(view.record):
        return False
    return all(w.side == "source" or (w.absent and w.side is None) for p in driven(view) for w in [seen(view, p)])


def start_over(view: View, why: str) -> Decision | None:
    """After the intent to point: resume on the source only where it is certain that nobody is on the target."""
    if nobody_on_target(view):
        return resume("DrainTimedOut", f"{why}; nobody is on the target and it is empty")
    used = None if isinstance(view.target, Unknown) else view.target.used
    return stop(
        "AmbiguousState",
        f"{why}, but it is not certain that nobody is on {view.record.target}: "
        f"{named(view, list(view.record.policy.producers))}; records in it: {'not known' if used is None else used}",
    )
