"""The steps of a migration in time: when each began, how long it took, and how long earlier ones took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from topicshift.core.engine.progress import Mark, marks
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import STEPS, Row, Step, plain_name
from topicshift.core.rows import StepRow

Span = tuple[datetime | None, datetime | None]

_STEP_OF_ROW: Mapping[str, Step] = {row.value: step for step, doc in STEPS.items() for row in doc.rows}

_ENDS: Mapping[Step, str] = {
    Step.STOP_PRODUCERS: Row.FENCE.value,
    Step.SWITCH_PRODUCERS: Row.SWITCH_PRODUCERS.value,
    Step.VERIFY: Row.ORDER_PROOF.value,
}
"""The row with which a step ends that has others as well: those are taken back later, or may come again."""

_FOLLOWS: Mapping[Step, Step] = {Step.DRAIN: Step.STOP_PRODUCERS, Step.VERIFY: Step.SWITCH_CONSUMERS}
"""Steps whose rows are written at their end: they begin with the end of the other one."""


def step_of(name: str) -> Step | None:
    """The step that a journal row belongs to: its own rows, and the questions of its tasks."""
    plain = plain_name(name)
    row, _, rest = plain.partition(":")
    if row == Row.QUESTION:
        step = rest.partition(".")[0]
        return Step(step) if step in Step.__members__.values() else None
    return _STEP_OF_ROW.get(row)


def spans(rows: Sequence[StepRow]) -> dict[Step, Span]:
    """When each step began and ended, by its rows. The plan ends where the next step begins."""
    found: dict[Step, list[StepRow]] = {}
    for row in rows:
        step = step_of(row.step)
        if step is not None:
            found.setdefault(step, []).append(row)
    out: dict[Step, Span] = {}
    for step, own in found.items():
        last = [row for row in own if plain_name(row.step) == _ENDS.get(step, plain_name(row.step))]
        ends = [_time(row.finished_at) for row in last]
        ended = max((e for e in ends if e is not None), default=None) if None not in ends else None
        out[step] = (min((_time(row.started_at) for row in own), default=None, key=_known), ended)
    for step, before in _FOLLOWS.items():
        began, ended = out.get(before, (None, None))[1], out.get(step, (None, None))[1]
        if began is not None and (ended is None or began <= ended):
            out[step] = (began, ended)
        elif step in out and began is not None:
            out[step] = (None, ended)  # the row that it follows was taken back later: when it began is not known
    first = [began for step, (began, _) in out.items() if step is not Step.PLAN and began is not None]
    if Step.PLAN in out and first:
        out[Step.PLAN] = (out[Step.PLAN][0], min(first))
    return out


_AT_THE_END = {Row.CHECK.value: Step.PLAN, Row.CERTIFICATE.value: Step.DRAIN, Row.ORDER_PROOF.value: Step.VERIFY}
"""Rows that are written when the work of their step is over: their own times say nothing of how long it took."""


def ends_of_steps(rows: Sequence[Mapping[str, Any]], claimed: datetime | None) -> dict[int, tuple[datetime, datetime]]:
    """When the steps of such rows began and ended, by the place of the row; only what is known.

    ``rows`` are those of the journal as plain values, ``claimed`` when the migration was.
    """
    ways = dict[str, list[tuple[int, StepRow]]]()
    for n, row in enumerate(rows):
        name = str(row.get("step"))
        began, ended = row.get("started_at"), row.get("finished_at")
        made = StepRow(name, str(row.get("state")), 0, {}, str(began), None if ended is None else str(ended))
        ways.setdefault(name.removesuffix(plain_name(name)), []).append((n, made))
    out = dict[int, tuple[datetime, datetime]]()
    for way, all_ in ways.items():
        try:
            found = spans([own for _, own in all_])
        except (TypeError, ValueError):
            continue  # times of another version, or none: they stand as they are
        for n, own in all_:
            step = _AT_THE_END.get(plain_name(own.step).partition(":")[0])
            began_at, ended_at = found.get(step, (None, None)) if step is not None else (None, None)
            if step is Step.PLAN and not way and claimed is not None:
                began_at = claimed
            if began_at is not None and ended_at is not None and began_at <= ended_at:
                out[n] = (began_at, ended_at)
    return out


def _known(at: datetime | None) -> float:
    return at.timestamp() if at is not None else float("inf")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def usual(finished: Iterable[Sequence[StepRow]]) -> dict[Step, float]:
    """How long each step took in earlier migrations, in seconds: the median."""
    took: dict[Step, list[float]] = {}
    for rows in finished:
        try:
            found = spans(rows)
        except ValueError:
            continue  # times of another version; its own page says so
        for step, (began, ended) in found.items():
            if began is not None and ended is not None and ended >= began:
                took.setdefault(step, []).append((ended - began).total_seconds())
    return {step: median(all_) for step, all_ in took.items()}


def _of_this_way(record: Record, name: str) -> bool:
    return name.startswith(record.way) if record.way else plain_name(name) == name


def timeline(
    record: Record, rows: Sequence[StepRow], began_at: str, expected: Mapping[Step, float], now: datetime
) -> list[dict[str, Any]]:
    """The steps in their order, as plain values; times in seconds. ``began_at``: when the migration was claimed.

    ``now``: this moment, or the end of a migration that has ended: no step of it goes on after that. ``took_s`` is how
    long a step took, or has been under way; ``held_s`` is how long one was in effect that was undone.
    """
    found, states = spans([row for row in rows if _of_this_way(record, row.step)]), marks(record)
    out = []
    for step, mark in states.items():
        began, ended = found.get(step, (None, None))
        if step is Step.PLAN:
            began = _time(began_at)
        own_end = mark in (Mark.DONE, Mark.UNDONE)
        until = (ended if own_end else now) if began is not None else None
        took = max(0.0, (until - began).total_seconds()) if began is not None and until is not None else None
        doc = STEPS[step]
        out.append(
            {
                "step": step.value,
                "state": mark.value,
                "began_at": began.isoformat() if began is not None and mark is not Mark.NOT_DONE else None,
                "took_s": took if mark not in (Mark.WAITING, Mark.UNDONE, Mark.NOT_DONE) else None,
                "held_s": took if mark is Mark.UNDONE else None,
                "usual_s": expected.get(step),
                "what": doc.what,
                "proof": doc.proof,
                "way_back": doc.way_back.replace("`", ""),
            }
        )
    return out
