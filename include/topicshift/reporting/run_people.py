"""Who took part in a run: its participants, and the people who were asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from topicshift.core.engine.words import Ask, Row, StepState, mark_of, row_of
from topicshift.reporting.values import clock, inside, seconds_text, when

GOOD, WARN, BAD, OPEN = "good", "warn", "bad", "open"

QUESTIONS = {
    Ask.PLAN: "accept the plan",
    Ask.ABORT_TRANSACTIONS: "abort hanging transactions",
    Ask.FREEZE: "stop the producers, and move (the go)",
    Ask.STOP_BY_HAND: "producers are stopped by hand",
    Ask.CERTIFICATE: "switch the producers, on this certificate",
    Ask.START_BY_HAND: "producers are started by hand on the target",
    Ask.STOP_GROUP: "a group is stopped by hand",
    Ask.STRAYS: "nobody needs the records that came too late",
    Ask.ROLLBACK: "go back to the source",
    Ask.RETIRE: "delete the source",
}
"""What a yes to each question says."""

_ANSWERS = {
    "approved": ("yes", GOOD),
    "first_yes": ("the first of two yes", OPEN),
    "refused": ("no", BAD),
    "unanswered": ("no answer in time", WARN),
    "answer_not_counted": ("an answer that does not count", WARN),
    "answer_ignored": ("an answer to what is asked no longer", WARN),
}

Rows = Sequence[Mapping[str, Any]]


def approvals(events: Rows) -> list[dict[str, Any]]:
    """Each answer: who, when, after how long, to which question, and what exactly it was for, with its mark.

    A question that was asked and has no answer yet is the last of them.
    """
    found: list[dict[str, Any]] = []
    open_: dict[tuple[str, str], Mapping[str, Any]] = {}
    for event in events:
        kind = str(event.get("kind"))
        if kind != "asked" and kind not in _ANSWERS:
            continue
        data = event.get("data") if isinstance(event.get("data"), dict) else {}
        key = (str(inside(data, "act")), str(inside(data, "for") or ""))
        if kind == "asked":
            open_[key] = event
            continue
        asked = open_.get(key) if kind in ("first_yes", "answer_not_counted") else open_.pop(key, None)
        found.append(_answer(event, data or {}, asked, *_ANSWERS[kind]))
    found += [_answer(e, e.get("data") or {}, None, "asked, without an answer", OPEN) for e in open_.values()]
    return found


def _answer(
    event: Mapping[str, Any], data: Mapping[str, Any], asked: Mapping[str, Any] | None, said: str, tone: str
) -> dict[str, Any]:
    about = data.get("about") if isinstance(data.get("about"), dict) else inside(asked, "data", "about")
    began, at = when(inside(asked, "at")), when(event.get("at"))
    act = str(data.get("act", ""))
    auto = data.get("how") == "auto"
    return {
        "at": clock(at),
        "who": str(event.get("actor")),
        "said": "nobody is asked" if auto else said,
        "tone": OPEN if auto else tone,
        "question": QUESTIONS.get(act, act.replace("_", " ")),  # type: ignore[call-overload]
        "of": str(data.get("for") or ""),
        "after": seconds_text((at - began).total_seconds()) if began and at and not auto else "",
        "mark": mark_of(about) if about else "",
        "about": [_said(str(name), value) for name, value in (about or {}).items()],
        "why": str(data.get("why") or ""),
    }


def _said(name: str, value: Any) -> tuple[str, str]:
    """One thing that a question was about, in words; a name that ends in ``_s`` is of seconds."""
    if name.endswith("_s") and isinstance(value, int | float):
        return name[:-2].replace("_", " "), f"{value:g} s"
    return name.replace("_", " "), _value(value)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return ", ".join(value) or "nobody"
    return json.dumps(value, ensure_ascii=False, default=str)


def participants(migration: Mapping[str, Any], spec: Any, steps: Rows) -> list[dict[str, Any]]:
    """Each declared application, how it is moved, and where the journal says that it is."""
    rows = {str(s.get("step")): s for s in steps}
    found = []
    for role in ("producer", "consumer"):
        declared = inside(spec, f"{role}s")
        for one in declared if isinstance(declared, list) else ():
            if not isinstance(one, Mapping):
                continue
            group = str(one.get("group") or "") if role == "consumer" else ""
            row = rows.get(row_of(Row.SWITCH_GROUP, group) if group else Row.SWITCH_PRODUCERS.value)
            told = rows.get(Row.STOP_PRODUCERS.value) if role == "producer" else None
            found.append(
                {
                    "name": str(one.get("name")),
                    "role": role,
                    "kind": str(one.get("kind") or "route"),
                    "known_as": f"group {group}" if group else str(one.get("principal") or ""),
                    "stopped": clock(when(inside(told, "data", "stopped_at"))),
                    **_where(migration, row, _going_back(rows)),
                }
            )
    return found


def _going_back(rows: Mapping[str, Mapping[str, Any]]) -> bool:
    return bool(inside(rows.get(Row.ROLLBACK.value), "state") == StepState.INTENDED.value)


def _where(migration: Mapping[str, Any], row: Mapping[str, Any] | None, going_back: bool) -> dict[str, str]:
    source, target = str(migration.get("source") or "the source"), str(migration.get("target") or "the target")
    state = inside(row, "state")
    if state is not None and going_back:
        return {"where": f"{source} or {target}: a rollback was under way", "since": "", "tone": WARN}
    if state == StepState.DONE:
        return {"where": target, "since": clock(when(inside(row, "data", "finished_at"))), "tone": GOOD}
    if state in (StepState.INTENDED, StepState.UNDOING):
        return {"where": f"{source}, or {target} by now", "since": "", "tone": WARN}
    back = clock(when(inside(row, "finished_at"))) if state == StepState.UNDONE else ""
    return {"where": source, "since": back, "tone": GOOD if migration.get("state") == "rolled_back" else OPEN}
