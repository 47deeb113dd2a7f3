"""What the engine saw when it last looked, from the views that the audit trail keeps of its acts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from topicshift.core.engine.back import ROLLBACK_TYPES, rollback_type
from topicshift.core.engine.trace import view_of
from topicshift.core.engine.view import GroupFact, Record, SourceFact, Unknown, View, Whereabouts
from topicshift.core.engine.words import MigrationState, Row
from topicshift.core.rows import EventRow

LOOKS: Final = 30
"""Acts of a trail that are looked at, the latest ones."""

_FACTS: Final = ("target", "source", "fence", "proof", "gate", "drain", "verifier", "deny", "retention_at_risk")


@dataclass(frozen=True)
class Fact:
    """Something that was seen, and when."""

    value: Any
    at: datetime


@dataclass(frozen=True)
class Participant:
    """A participant as it was seen last. ``topic``: the one that it is on, None where that is mixed or not known."""

    name: str
    role: str
    status: str
    topic: str | None
    armed: bool | None
    reason: str
    at: datetime | None
    members: int | None = None
    unseeded: int | None = None


@dataclass
class Seen:
    """The latest of each fact. ``at``: when the engine looked last, None where it never acted."""

    at: datetime | None = None
    producers: dict[str, Participant] = field(default_factory=dict)
    groups: dict[str, Participant] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)
    why: str = ""
    """Why the engine did what it did last."""


def seen(acts: Iterable[EventRow]) -> Seen:
    """What the events ``act`` of a trail have seen; ``acts`` is newest first. A view of another version is left out."""
    found = Seen()
    for event in acts:
        try:
            view = view_of(event.data)
        except (KeyError, TypeError, ValueError):
            continue
        if found.at is None:
            found.at, found.why = view.now, str(event.data.get("why") or "")
        _participants(found, view)
        for name in _FACTS:
            value = getattr(view, name)
            if not isinstance(value, Unknown) and value != {}:
                found.facts.setdefault(name, Fact(value, view.now))
    return found


def _participants(found: Seen, view: View) -> None:
    if not isinstance(view.producers, Unknown):
        for name, where in view.producers.items():
            found.producers.setdefault(name, _participant(name, "producer", where, view))
    for group, fact in view.groups.items():
        if isinstance(fact, GroupFact):
            one = _participant(group, "consumer", fact.where, view, fact)
            found.groups.setdefault(group, one)


def _participant(name: str, role: str, where: Whereabouts, view: View, group: GroupFact | None = None) -> Participant:
    topic = {"source": view.record.source, "target": view.record.target, None: None}[where.side]
    counted = (group.members, group.unseeded) if group is not None else (None, None)
    status = "not running" if where.absent else where.status
    return Participant(name, role, status, topic, where.armed, where.reason, view.now, *counted)


def participants(record: Record, found: Seen) -> list[Participant]:
    """Every declared participant as it was seen last; one that was never seen says so.

    An application that a person moves is not observed itself; its writes, and its group, are.
    """

    def known(all_: dict[str, Participant], name: str, role: str, manual: bool) -> Participant:
        status = "moved by hand" if manual else "not seen yet"
        return all_.get(name) or Participant(name, role, status, None, None, "", None)

    policy = record.policy
    return [
        *(known(found.producers, p.name, "producer", p.manual) for p in policy.producers),
        *(known(found.groups, c.group, "consumer", c.manual) for c in policy.consumers),
    ]


@dataclass(frozen=True)
class WayBack:
    """The type of rollback to expect, why, what it would do, and when the engine looked; a type of None: not known.

    It is worked out anew from the cluster before anything is done. ``past``: nothing will be, it was or there is none.
    """

    kind: str | None
    why: str
    does: str
    at: datetime | None = None
    past: bool = False


def way_back(record: Record, found: Seen) -> WayBack:
    """The way back that holds if the cluster still is as the engine saw it last."""
    done = record.step(Row.ROLLBACK)
    if record.state is MigrationState.ROLLED_BACK:
        was = str(done.data.get("type", "free")) if done is not None else "free"
        return WayBack(was, f"it was rolled back ({was.replace('_', ' ')}), and nothing more is done", "", past=True)
    if record.mirrored:
        return WayBack("drain_back", "it is under way", _does("drain_back", record))
    if record.policy.rehearsal and record.over:
        return WayBack("free", "it was a rehearsal, and has moved nothing", "", past=True)
    ended = nothing_goes_back(record)
    if ended:
        return WayBack("free", ended, "", past=True)
    if record.state is MigrationState.RETIRED:
        return WayBack("forward_only", "the source was deleted", "", past=True)
    if record.state is MigrationState.FAILED and record.over:
        return WayBack(None, "it has ended without one: what it left to do by hand is named above", "", past=True)
    if not record.in_effect(Row.SWITCH_PRODUCERS):
        return WayBack("free", "no producer was sent to the target", _does("free", record), found.at)
    target, fence = found.facts.get("target"), found.facts.get("fence")
    if target is None or found.at is None:
        return WayBack(None, "the engine has not looked at the target yet", "")
    view = View(
        record,
        target.at,
        target.at,
        source=SourceFact(True),
        target=target.value,
        fence=fence.value if fence is not None else Unknown("it was not looked at yet"),
    )
    kind, why = rollback_type(view)
    return WayBack(kind, why, _does(kind, record), target.at)


def nothing_goes_back(record: Record) -> str:
    """Why a migration has nothing to take back, yet or any more; empty where there is something, or may be."""
    if record.state is MigrationState.OPEN and _nothing_made(record):
        return "nothing was changed yet, so there is nothing to go back from: reject the plan, or abort"
    if record.state is not MigrationState.FAILED or not record.over or record.in_effect(Row.FREEZE):
        return ""
    if record.step(Row.CREATE_TARGET) is None:
        return "it has ended before anything was changed, so there is nothing to take back"
    if not record.in_effect(Row.CREATE_TARGET) and not record.in_effect(Row.SWITCH_PRODUCERS):
        return "it has ended, and everything that it did was put back"
    return ""


def _nothing_made(record: Record) -> bool:
    begun = record.freeze is not None or record.in_effect(Row.FREEZE) or record.in_effect(Row.SWITCH_PRODUCERS)
    return not record.mirrored and record.step(Row.CREATE_TARGET) is None and not begun


def _does(kind: str | None, record: Record) -> str:
    text = ROLLBACK_TYPES.get(str(kind), "")
    # On a way back the record has its topics exchanged.
    names = (record.target, record.source) if record.mirrored else (record.source, record.target)
    return text.format(source=names[0], target=names[1]).replace("`", "")
