"""What a migration waits for, a line a signal: what is looked at, what was observed, and what is wanted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from topicshift.core.drain.gate import BUDGET_SHARE
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.hold import paused
from topicshift.core.engine.progress import open_questions, step_under_way
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.page.lag import followed
from topicshift.core.page.listing import Shown
from topicshift.core.page.seen import Participant, Seen


@dataclass(frozen=True)
class Signal:
    """One thing that is waited for. ``at``: when it was observed, None where it holds at this moment."""

    signal: str
    observed: str
    wanted: str
    good: bool
    at: datetime | None = None


def signals(
    record: Record,
    found: Seen,
    people: Sequence[Participant],
    lag: Sequence[Mapping[str, Any]],
    gate: Mapping[str, Any],
) -> list[Signal]:
    """The signals of the step that is under way. ``lag``: the groups of the drain; ``gate``: what the gate saw last.

    Both as :mod:`topicshift.core.page.lag` reads them, and of this step alone. While a question is open its answer is
    all that is waited for before the freeze: the gate has passed.
    """
    asked = [_question(q.data) for q in open_questions(record)]
    if paused(record) or record.over or (asked and record.freeze is None and not record.released):
        return asked
    step = step_under_way(record)
    if record.freeze is None and step in (Step.STOP_PRODUCERS, None):
        return asked + _gate(gate)
    if step is Step.STOP_PRODUCERS:
        return asked + _stopped(people) + _proof(found)
    if step in (Step.DRAIN, Step.VERIFY_DRAIN):
        return asked + _drain(lag)
    if step is Step.SWITCH_PRODUCERS:
        return asked + _on(record, (p for p in people if p.role == "producer"))
    if step is Step.SWITCH_CONSUMERS:
        open_ = {g for g in record.policy.groups if not record.done(Row.SWITCH_GROUP, g)}
        drains = [g for g in lag if g["group"] in open_ and g["lag"]]
        return asked + _drain(drains) + _on(record, (p for p in people if p.role == "consumer" and p.name in open_))
    return asked


def gate_began(found: Shown) -> datetime:
    """When the gate that leads to the next freeze began to look: with this way, or after the last answer or freeze."""
    record, way = found.record, next((s for s in found.steps if s.step == Row.ROLLBACK), None)
    began = way.started_at if record.mirrored and way is not None else found.row.created_at
    go, freeze = record.step(Row.QUESTION, Ask.FREEZE), record.step(Row.FREEZE)
    ends = [row.finished_at for row in (go, freeze) if row is not None and row.finished_at is not None]
    return max(datetime.fromisoformat(at) for at in (began, *ends))


def freeze_began(record: Record) -> datetime | None:
    """When the freeze whose drain is followed began; None before one, and after one that was taken back."""
    row = record.step(Row.FREEZE)
    return Freeze.from_data(row.data).started_at if row is not None and row.state.in_effect else None


def _question(data: Mapping[str, Any]) -> Signal:
    first = data.get("first")
    name = first.get("name") if isinstance(first, Mapping) else None
    observed = f"{name} has said yes, another person has to" if name else "nobody has answered"
    until = str(data.get("until") or "")[:16].replace("T", " ")
    return Signal(str(data.get("subject")), observed, f"an answer by {until} UTC" if until else "an answer", False)


def _gate(gate: Mapping[str, Any]) -> list[Signal]:
    at, most = gate["at"], gate["wanted_s"]
    if at is None:
        return []
    share = f"{BUDGET_SHARE:.0%} of the freeze budget"
    wanted = f"drained in {most:.0f} s at most, {share}" if most is not None else "a short drain"
    out = []
    for group in gate["groups"]:
        needs = group["seconds_left"]
        said = "unknown" if group["lag"] is None else f"{group['lag']:,.0f} offsets behind"
        if needs is not None:
            said += f", about {needs:.0f} s to drain"
        elif group["lag"] is not None and followed(group["series"]):
            said += ", and its commits did not move between the last two looks"
        elif group["lag"] is not None:
            said += ", seen once so far: how long it takes is not known yet"
        good = needs is not None and most is not None and needs <= most
        out.append(Signal(f"lag of {group['group']}", said, wanted, good, at))
    told = tuple(f"group {group['group']}:" for group in gate["groups"])
    return out + [Signal("gate", w, "ready for the freeze", False, at) for w in gate["waits"] if not w.startswith(told)]


def _stopped(people: Sequence[Participant]) -> list[Signal]:
    return [
        Signal(f"producer {p.name}", _where(p), "stopped", p.status in ("stopped", "not running"), p.at)
        for p in people
        if p.role == "producer" and p.at is not None
    ]


def _proof(found: Seen) -> list[Signal]:
    fact = found.facts.get("proof")
    if fact is None:
        return []
    proven = bool(fact.value.proven)
    said = "it stands still" if proven else str(fact.value.waits or "not proven yet")
    return [Signal("ends of the source", said, "no write over the settle time", proven, fact.at)]


def _drain(lag: Sequence[Mapping[str, Any]]) -> list[Signal]:
    out = []
    for group in lag:
        left, needs = group["lag"], group["seconds_left"]
        said = "unknown" if left is None else f"{left:,.0f} offsets left"
        said += f", about {needs:.0f} s" if needs is not None and left else ""
        said += f" ({group['alarm_text']})" if group["alarm_text"] else ""
        out.append(Signal(f"lag of {group['group']} up to the fence", said, "0", left == 0, group["seen_at"]))
    return out


def _on(record: Record, people: Iterable[Participant]) -> list[Signal]:
    out = []
    for p in people:
        good = p.topic == record.target and p.status == "running" and not p.unseeded
        more = f", {p.unseeded} partitions without a commit" if p.unseeded else ""
        out.append(Signal(f"{p.role} {p.name}", _where(p) + more, f"running on {record.target}", good, p.at))
    return out


def _where(p: Participant) -> str:
    on = f" on {p.topic}" if p.topic else ""
    return f"{p.status}{on}" + (f": {p.reason}" if p.reason else "")
