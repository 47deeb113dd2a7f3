"""The rules of a hold: a pause begins nothing new, a postponement begins no freeze before its time.

A hold never reaches into a freeze: while producers stand still the migration goes on, or resumes on the source. What a
migration that has switched has to look after (its fence, its DENY, its route) is looked after in a pause too.
"""

from __future__ import annotations

from topicshift.core.engine.decision import Decision, Table, act, wait
from topicshift.core.engine.view import Record, View
from topicshift.core.engine.where import before_freeze
from topicshift.core.engine.words import Act, Row, Step, StepState

HOLD = Table()


def paused(record: Record) -> bool:
    """Whether nothing new is to be begun."""
    return record.at(Row.PAUSE) is StepState.INTENDED


def why_paused(record: Record) -> str:
    """Who paused it, when and why, with the way on."""
    row = record.step(Row.PAUSE)
    data = row.data if row is not None else {}
    return f"paused by {data.get('by')} at {data.get('at')} ({data.get('reason')}); topicshift advance goes on"


def _nothing_moved(record: Record) -> bool:
    """Producers are on the source, no freeze runs, and no topic is being made right now."""
    making = record.at(Row.CREATE_TARGET) is StepState.INTENDED
    return record.freeze is None and not record.in_effect(Row.SWITCH_PRODUCERS) and not making


def _at_leisure(view: View) -> Decision | None:
    """Armed producers stop within seconds where the route cannot be read: none is left so for a hold of days."""
    if not view.record.in_effect(Row.ARM):
        return None
    return act(Act.DISARM, "the migration is held")


@HOLD.rule(lambda r: paused(r) and _nothing_moved(r))
def pause_kept(view: View) -> Decision | None:
    """Before producers are switched a pause holds everything."""
    return _at_leisure(view) or wait(why_paused(view.record))


@HOLD.rule(lambda r: r.postponed_until is not None and before_freeze(r), step=Step.STOP_PRODUCERS)
def postponement_kept(view: View) -> Decision | None:
    """The freeze, and what only it needs, begins when its time has come."""
    until, row = view.record.postponed_until, view.record.step(Row.POSTPONE)
    if until is None or row is None or view.now >= until:
        return None
    why = f"the freeze was postponed until {until.isoformat()} by {row.data.get('by')} ({row.data.get('reason')})"
    return _at_leisure(view) or wait(why, until.isoformat())
