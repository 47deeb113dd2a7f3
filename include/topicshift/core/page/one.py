"""All that the page of one migration shows, from the journal's rows and from its evidence. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from topicshift.core.drain.names import GATE, STRAYS, is_progress
from topicshift.core.drain.strays import Strays
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.left import left_of
from topicshift.core.engine.progress import open_questions
from topicshift.core.engine.snapshot import freezes_seen, record_to_show, watch_found
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Ask, Row, Step, row_of
from topicshift.core.page import lag
from topicshift.core.page.listing import Shown, budget_of, entry
from topicshift.core.page.seen import participants, seen, way_back
from topicshift.core.page.timeline import timeline
from topicshift.core.page.waits import freeze_began, gate_began, signals
from topicshift.core.rows import EventRow

READ = ("plan.json", GATE, STRAYS)
"""Files of evidence that the page reads, besides the progress of the drain."""

NAMED = 20
"""Late records that are named one by one."""

PEOPLE = frozenset({"asked", "approved", "refused", "unanswered", "first_yes"})
"""Events of questions to people and of their answers."""


@dataclass(frozen=True)
class Sources:
    """What a page of one migration is made from.

    ``acts``: the latest events of this kind, newest first; ``people``: questions and answers likewise. ``files``: names
    of all evidence, ``data``: the content of what the page reads. ``usual``: how long each step took in earlier
    migrations, in seconds, and ``usual_of`` how many those were. ``unread``: what could not be read, in words.
    """

    found: Shown
    acts: Sequence[EventRow] = ()
    people: Sequence[EventRow] = ()
    files: Sequence[str] = ()
    data: Mapping[str, bytes] = field(default_factory=dict)
    usual: Mapping[Step, float] = field(default_factory=dict)
    usual_of: int = 0
    unread: Sequence[str] = ()


def one(sources: Sources, now: datetime) -> dict[str, Any]:
    """The page as plain values; times are ISO 8601 in UTC, durations in seconds."""
    found = sources.found
    row, record = found.row, found.record
    looked = seen(sources.acts)
    people = participants(record, looked)
    plan = _object(sources.data.get("plan.json"))
    over = datetime.fromisoformat(row.updated_at) if record.over else None
    gate_from, drain_from = (None, None) if over else (gate_began(found), freeze_began(record))
    gate = lag.since(lag.series_of(sources.data.get(GATE)), gate_from)
    names = [n for n in sorted(sources.data) if is_progress(n)] if over or drain_from else []
    drains = [g for n in names for g in lag.groups(lag.since(lag.series_of(sources.data[n]), drain_from), over)]
    before = [] if drains else lag.groups(gate, over)
    made = entry(found, now)
    return {
        **made,
        "as_of": now.isoformat(timespec="seconds"),
        "engine_looked_at": looked.at.isoformat(timespec="seconds") if looked.at else None,
        "engine_did": looked.why,
        "cutover": record.policy.cutover.value,
        "plan_hash": row.plan_hash,
        "epoch": row.epoch,
        "timeline": timeline(record, found.steps, row.created_at, sources.usual, over or now),
        "usual_of": sources.usual_of,
        "signals": [_aged(asdict(s), "at", now) for s in signals(record, looked, people, drains, gate)],
        "freeze": _freeze(found, made["freeze"]),
        "freezes": freezes_seen(found.steps, now),
        "left": left_of(record_to_show(row, found.steps), found.events),
        "questions": _questions(record),
        "participants": [_plain(asdict(p)) for p in people],
        "partitions": _partitions(plan, found),
        "findings": _findings(plan),
        "watch": watch_found(found.steps),
        "late": _late(record, sources.data.get(STRAYS)),
        "lag": [_aged(g, "seen_at", now) for g in drains or before],
        "lag_of": "drain" if drains else "gate" if before else None,
        "rollback": _plain(asdict(way_back(record, looked))),
        "files": sorted(sources.files),
        "answers": [_answer(e) for e in sources.people],
        "unread": list(sources.unread),
    }


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.isoformat(timespec="seconds") if isinstance(v, datetime) else v for k, v in value.items()}


def _aged(value: Mapping[str, Any], key: str, now: datetime) -> dict[str, Any]:
    """With how many seconds ago it was seen, None where it holds at this moment."""
    at = value[key]
    return {**_plain(value), "age_s": (now - at).total_seconds() if at is not None else None}


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _freeze(found: Shown, freeze: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The freeze with its budget, and with the bound that was shown to whoever said go."""
    go = found.record.steps.get(row_of(Row.QUESTION, Ask.FREEZE.value))
    about = go.data.get("about") if go is not None else None
    most = about.get("freeze_at_most_s") if isinstance(about, Mapping) else None
    if freeze is not None:
        row = found.record.step(Row.FREEZE)
        assert row is not None
        clock = Freeze.from_data(row.data)
        return {**freeze, "budget_s": (clock.lease_until - clock.started_at).total_seconds(), "at_most_s": most}
    try:
        budget = budget_of(found.row).total_seconds()
    except ValueError:
        return None
    return {"running": False, "seconds": None, "budget_s": budget, "at_most_s": most}


def _questions(record: Record) -> list[dict[str, Any]]:
    prefix = f"{Row.QUESTION.value}:"
    return [
        {
            "ask": name.removeprefix(prefix),
            **{k: row.data.get(k) for k in ("subject", "asked_at", "until")},
            "first": first.get("name") if isinstance(first := row.data.get("first"), Mapping) else None,
        }
        for row in open_questions(record)
        for name in [next(n for n, r in record.steps.items() if r is row)]
    ]


def _partitions(plan: Mapping[str, Any], found: Shown) -> dict[str, Any]:
    """Partitions before and after, as the plan has them; those of the spec before there is a plan."""

    def of(side: str) -> Any:
        topic = plan.get(side)
        count = topic.get("partitions") if isinstance(topic, Mapping) else None
        return count if isinstance(count, int) else None

    wanted = found.row.spec.get("partitions")
    return {"before": of("source"), "after": of("target") or (wanted if isinstance(wanted, int) else None)}


_ORDER = {"error": 0, "warning": 1, "info": 2}


def _findings(plan: Mapping[str, Any]) -> list[dict[str, str]]:
    given = plan.get("findings")
    rows = [f for f in given if isinstance(f, Mapping)] if isinstance(given, list) else []
    keys = ("code", "level", "subject", "seen", "why", "do")
    return sorted(
        ({k: str(f.get(k) or "") for k in keys} for f in rows), key=lambda f: (_ORDER.get(f["level"], 3), f["code"])
    )


def _answer(event: EventRow) -> dict[str, Any]:
    data = event.data
    said = {"asked": "asked", "approved": "yes", "refused": "no", "unanswered": "nobody answered"}
    about = data.get("about")
    return {
        "at": event.at[:19],
        "by": event.actor,
        "said": "first yes of two" if event.kind == "first_yes" else said[event.kind],
        "ask": str(data.get("act") or ""),
        "of": str(data.get("for") or ""),
        "about": _about(about) if isinstance(about, Mapping) else {},
    }


def _about(about: Mapping[str, Any]) -> dict[str, str]:
    """What an answer is for, in words; what is not given says nothing."""
    shown = {k: v for k, v in about.items() if v is not None and v not in ([], {}, "")}
    return {
        str(k).replace("_", " "): (", ".join(map(str, v)) if isinstance(v, list | tuple) else str(v))[:40]
        for k, v in shown.items()
    }


def _late(record: Record, data: bytes | None) -> dict[str, Any] | None:
    """Records that came to the source after its fence, and that released groups cannot see; None where none came.

    ``unseen``: how many, None where they were not counted; ``records``: the first ones by name, as the evidence has
    them; ``complete``: whether each is named there.
    """
    row = record.step(Row.FENCE_AGAIN)
    if row is None or not row.state.in_effect:
        return None
    unseen, groups = row.data.get("unseen"), row.data.get("unseen_by") or ()
    try:
        named = Strays.model_validate_json(data or b"{}")
    except ValueError:
        named = None
    records = named.unseen[:NAMED] if named is not None else []
    return {
        "unseen": unseen if isinstance(unseen, int) else None,
        "groups": [str(g) for g in groups],
        "records": [{"place": f"{r.partition}:{r.offset}", "line": r.line(record.source)} for r in records],
        "complete": named.complete if named is not None else True,
    }
