"""What a migration waits for, and on whom: told from its journal alone, for status, pages and scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from topicshift.core import errors
from topicshift.core.engine.hold import paused, why_paused
from topicshift.core.engine.left import COUNTED as LEFT
from topicshift.core.engine.left import left_of
from topicshift.core.engine.progress import Mark, marks, open_questions, step_under_way
from topicshift.core.engine.view import Record, StepRecord
from topicshift.core.engine.words import STEPS, Ask, MigrationState, Row, Step, StepState
from topicshift.core.rows import EventRow

RUN_ENDED: Final = "run_ended"
"""Event: the run that owns an open migration was seen to have ended, or Airflow does not know it any more."""

WENT_ON: Final = "went_on"
"""Event: somebody advances the migration again, after a failure or the end of its run."""

BROKEN_OFF: Final = frozenset({"step_failed", "producers_resumed", RUN_ENDED})
"""Events after which nobody is known to go on, until one of :data:`WENT_ON`."""

_MOVED: Final = frozenset({WENT_ON, "claimed", "reopened", "taken_over", "step_intended", "approved", "asked"})
OWNED: Final = frozenset({"claimed", "reopened", "taken_over"})
"""Events whose actor owns the migration from then on."""

ORDERED: Final = {"abort": "aborted", "rollback_ordered": "rolled back"}
"""Events of an order to go back, in words."""

COUNTED: Final = _MOVED | BROKEN_OFF | LEFT | {"step_finished", *ORDERED}
"""Kinds of events that :func:`need` looks at. The last event of each kind tells it as much as the whole trail."""

_LATE: Final = timedelta(minutes=2)
"""Time after the end of a question at which nobody waits for its answer any more."""

_SAID: Final = 400
"""Characters of an error's message that are said."""


@dataclass(frozen=True)
class Need:
    """What a migration waits for. ``on``: a person has to do something, it goes on by itself, or it is over."""

    on: Literal["person", "itself", "nobody"]
    what: str


def need(record: Record, owner: str, events: Sequence[EventRow], now: datetime) -> Need:
    """What the migration waits for at this moment. ``events`` are those of its trail, oldest first."""
    ended = _ended(record, events)
    if ended is not None and not (record.state is MigrationState.DONE and _open(record)):
        return ended
    lost = _run_ended(events)
    if paused(record) and record.freeze is None:
        return Need("person", f"a person: {why_paused(record)}")
    if _open(record):
        return _to_answer(record, lost, now)
    if record.at(Row.FREEZE) is StepState.UNDOING:
        return Need("itself", "producers to run on the source again")
    failed = _last_failure(events)
    if failed is not None and lost is None and _ends_itself(record, owner, failed, now):
        again = " once no retry is left" if _retried(failed) else ""
        said = f"its end: {_how_failed(failed)}; nothing was changed, so its run ends it{again} and frees both topics"
        return Need("itself", said)
    if failed is not None:
        return _failed(record, failed, lost)
    if Mark.UNDONE in marks(record).values() and not _tries_again(events):
        return Need("person", f"a person: producers were put back on the source; {_way_on(record, lost)}")
    if lost is not None:
        return Need("person", f"a person: its run {owner} {_how(lost)}, so nothing goes on; {_way_on(record, lost)}")
    return Need("itself", _step_waits(record))


def _ended(record: Record, events: Sequence[EventRow]) -> Need | None:
    left = len(left_of(record, events)) if record.over else 0
    more = f"; left to do by hand: {left} thing{'s' if left > 1 else ''}" if left else ""
    if record.state is MigrationState.RETIRED:
        return Need("nobody", "nothing: the source is retired")
    if record.state is MigrationState.ROLLED_BACK:
        return Need("nobody", f"nothing: {_rolled_back(events)}{more}")
    if record.state is MigrationState.REHEARSED:
        return Need("nobody", f"nothing: it is over{more or ', and its shadow is deleted'}")
    if record.state is MigrationState.DONE:
        return Need("itself", STEPS[Step.RETIRE].waits_for)
    if not record.over:
        return None
    closed = _last(events, "closed", frozenset({"reopened"}))
    if closed is not None:
        return Need("nobody", f"nothing: {closed.actor} closed it at {closed.at}: {closed.data.get('reason')}{more}")
    failed = _last_failure(events)
    why = f": {_how_failed(failed)}" if failed is not None else "; the log of its run says why"
    return Need(
        "nobody",
        f"nothing: it failed before anything was changed{why}. Mend that, then begin again: its topics are free",
    )


def _rolled_back(events: Sequence[EventRow]) -> str:
    """How it came to its end, with who ordered that and why, where an order is in the trail."""
    for event in reversed(events):
        if event.kind in ORDERED:
            by = str(event.data.get("by") or event.actor).removeprefix("user:")
            return f"{ORDERED[event.kind]} by {by}: {event.data.get('reason')}"
        if event.kind == "reopened":
            break
    return "it was rolled back"


def _open(record: Record) -> list[StepRecord]:
    """Questions that count: those about the source's retirement or the way back alone, once all is done."""
    if record.state is not MigrationState.DONE:
        return open_questions(record)
    wanted = {f"{Row.QUESTION.value}:{ask.value}" for ask in (Ask.RETIRE, Ask.ROLLBACK)}
    return [r for name, r in record.steps.items() if name in wanted and r.state is StepState.INTENDED]


def _to_answer(record: Record, lost: EventRow | None, now: datetime) -> Need:
    asked = _open(record)
    subjects = "; ".join(str(q.data.get("subject")) for q in asked)
    ends = [datetime.fromisoformat(str(q.data["until"])) for q in asked if q.data.get("until")]
    if lost is not None:
        return Need(
            "person", f"a person: {subjects}, but its run {_how(lost)}, so nobody asks; {_way_on(record, lost)}"
        )
    if len(ends) == len(asked) and now > max(ends) + _LATE:
        said = f"nobody answered by {max(ends):%Y-%m-%d %H:%M} UTC: {subjects}; {_way_on(record, lost)} (it asks anew)"
        return Need("person", f"a person: {said}")
    until = f", until {min(ends):%Y-%m-%d %H:%M} UTC" if ends else ""
    return Need("person", f"a person to answer: {subjects}{until}")


def _how_failed(failed: EventRow) -> str:
    """The step, the kind of error and its message, in one line that fits a page."""
    said = failed.data
    text = " ".join(str(said.get("message") or "").split())
    short = text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."
    return f"{said.get('task')} failed with {said.get('error')}" + (f" ({short})" if short else "")


def _retried(failed: EventRow) -> bool:
    """Whether a task that failed so is tried again by Airflow; not known of an error that is not ours: it may be."""
    kind = getattr(errors, str(failed.data.get("error")), None)
    return bool(getattr(kind, "retryable", kind is None))


def _ends_itself(record: Record, owner: str, failed: EventRow, now: datetime) -> bool:
    """Whether the run of a migration that has changed nothing is about to end it, as each run in Airflow does."""
    if record.state is not MigrationState.OPEN or record.active or not owner.startswith("topic_migration"):
        return False
    by_hand = str(failed.data.get("task", "")).startswith("topicshift ")
    return not by_hand and now - datetime.fromisoformat(failed.at) < _LATE


def _failed(record: Record, failed: EventRow, lost: EventRow | None) -> Need:
    said = failed.data
    what = f"{said.get('task')} failed with {said.get('error')} at {failed.at[:16].replace('T', ' ')} UTC"
    again = _retried(failed) and lost is None
    back = "; producers were put back on the source" if Mark.UNDONE in marks(record).values() else ""
    return Need("person", f"a person{' or a retry' if again else ''}: {what}{back}; {_way_on(record, lost)}")


def _way_on(record: Record, lost: EventRow | None) -> str:
    """How to go on, or to end it: with the tasks of its run, where Airflow still has that."""
    gone = lost is not None and lost.data.get("state") == "gone"
    on = "topicshift advance goes on" if gone else "clear the failed tasks of its run to go on"
    return f"{on}, or end it: topicshift abort --what {record.migration_id} says how"


def _how(lost: EventRow) -> str:
    gone = lost.data.get("state") == "gone"
    return "was deleted" if gone else f"has ended ({lost.data.get('state')})"


def _last(events: Sequence[EventRow], wanted: str, after: frozenset[str]) -> EventRow | None:
    """The last event of this kind, None where one of ``after`` came later."""
    for event in reversed(events):
        if event.kind == wanted:
            return event
        if event.kind in after:
            return None
    return None


def _run_ended(events: Sequence[EventRow]) -> EventRow | None:
    return _last(events, RUN_ENDED, _MOVED)


def _last_failure(events: Sequence[EventRow]) -> EventRow | None:
    return _last(events, "step_failed", _MOVED | {"step_finished"})


def _tries_again(events: Sequence[EventRow]) -> bool:
    """Whether somebody has gone on since producers were put back."""
    return _last(events, "producers_resumed", _MOVED) is None


def _step_waits(record: Record) -> str:
    step = step_under_way(record)
    if step is None and record.at(Row.FREEZE) is StepState.UNDONE:
        step = Step.STOP_PRODUCERS  # another freeze is to come
    if step is None:
        return "nothing that the journal knows of"
    if step is Step.SWITCH_CONSUMERS:
        open_ = [g for g in record.policy.groups if not record.done(Row.SWITCH_GROUP, g)]
        return f"groups to read the target: {', '.join(open_)}"
    before = step is Step.STOP_PRODUCERS and record.freeze is None
    if before and record.postponed_until is not None:
        return f"the gate before the freeze, which was postponed until {record.postponed_until.isoformat()}"
    if before:
        return "the window, the gate or the go before the freeze; nobody is stopped yet"
    return STEPS[step].waits_for


def urgency(found: Mapping[str, Any]) -> tuple[int, int]:
    """Sort key of a migration in a list: a running freeze, what waits for a person, what goes on, the rest."""
    freeze = found.get("freeze") or {}
    on = {"person": 0, "itself": 1, "nobody": 2}[found["waits_on"]]
    return (0 if freeze.get("running") else 1, on if found["state"] == MigrationState.OPEN or on == 0 else 2)
