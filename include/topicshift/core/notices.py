"""What people are told of a migration, from its journal alone; each notice has a key, by which it is told once.

A notice is told by whoever comes first: it writes into the audit trail that it is about to tell (``notice``, with state
``telling``), and the first such event of a key wins. One that was never followed by ``told`` is told again after a
minute: its teller died, perhaps after it had told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from topicshift.core import errors
from topicshift.core.engine.freeze import Freeze
from topicshift.core.engine.people import person_of
from topicshift.core.engine.view import StepRecord
from topicshift.core.engine.words import Ask, Row, StepState, plain_name
from topicshift.core.rows import EventRow


class Told(StrEnum):
    """Kinds of notices, as ``only`` of a notifier names them."""

    PERSON_WANTED = "person_wanted"
    RETIREMENT_DUE = "retirement_due"
    FREEZE_BEGUN = "freeze_begun"
    FREEZE_ENDED = "freeze_ended"
    FREEZE_OVERLONG = "freeze_overlong"
    PRODUCERS_RESUMED = "producers_resumed"
    RUN_STANDS = "run_stands"
    SOURCE_DELETED = "source_deleted"
    SOURCE_WATCHED = "source_watched"


NOTICE: Final = "notice"
"""Kind of the events by which tellers agree."""

FAILED: Final = "step_failed"
TELLING_S: Final = 60.0
"""Seconds after which a notice whose telling did not end is told again."""

STALE: Final = timedelta(hours=1)
"""A notice that is older is told to nobody: nobody was configured, or Airflow was down for long."""

AUTO: Final = "the spec wants no person"
"""Headline of a question that is answered by the spec itself."""


@dataclass(frozen=True)
class Notice:
    """One thing to tell. ``at``: when it happened."""

    kind: Told
    key: str
    title: str
    text: str
    at: datetime


@dataclass(frozen=True)
class Seen:
    """A migration as its journal has it: its rows, and its events of the kinds ``notice`` and ``step_failed``."""

    source: str
    target: str
    steps: Mapping[str, StepRecord]
    events: Iterable[EventRow] = ()
    overlong_after: timedelta = timedelta.max
    """How long a freeze may last before people are told."""


def notices(seen: Seen, now: datetime) -> list[Notice]:
    """Everything that people should have been told, in the order in which it happened; stale ones are left out."""
    found = [*_questions(seen), *_freezes(seen, now), *_retirement(seen), *_watch(seen), *_failures(seen)]
    return sorted((n for n in found if now - n.at < STALE), key=lambda n: n.at)


def untold(seen: Seen, now: datetime) -> list[Notice]:
    """Notices that nobody has told, and that nobody is telling now."""
    holders = _holders(seen.events)
    return [n for n in notices(seen, now) if _free(holders.get(n.key), now)]


def teller_of(events: Iterable[EventRow], key: str) -> str | None:
    """Who tells the notice of this key: the first one who wrote so, as long as its time is not over."""
    holder = _holders(events).get(key)
    return str(holder.data.get("by")) if holder is not None else None


def _holders(events: Iterable[EventRow]) -> dict[str, EventRow]:
    """By key: the event that settles who tells it, or that it was told."""
    holders: dict[str, EventRow] = {}
    for event in events:
        if event.kind != NOTICE:
            continue
        key = str(event.data.get("key"))
        before = holders.get(key)
        settled = before is not None and before.data.get("state") == "told"
        if not settled and (event.data.get("state") == "told" or _free(before, datetime.fromisoformat(event.at))):
            holders[key] = event
    return holders


def _free(holder: EventRow | None, now: datetime) -> bool:
    if holder is None:
        return True
    if holder.data.get("state") == "told":
        return False
    return (now - datetime.fromisoformat(holder.at)).total_seconds() > TELLING_S


def _questions(seen: Seen) -> Iterable[Notice]:
    for name, step in seen.steps.items():
        row, _, ask = name.partition(":")
        headline = str(step.data.get("subject", ""))
        if row != Row.QUESTION or step.state is not StepState.INTENDED or headline == AUTO:
            continue
        first = person_of(step.data.get("first"))
        at = datetime.fromisoformat(str(step.data["first_at" if first else "asked_at"]))
        kind = Told.RETIREMENT_DUE if ask == Ask.RETIRE else Told.PERSON_WANTED
        second = f" {first.name} has said yes; another person has to, too." if first else ""
        text = f"{headline} A person has to answer.{second} Airflow shows it under Required Actions."
        yield Notice(kind, f"{kind}:{ask}:{at.isoformat()}", f"{seen.source}: a person has to answer", text, at)


def _freezes(seen: Seen, now: datetime) -> Iterable[Notice]:
    """The freeze of the way forward, and that of each way back, where source and target are exchanged."""
    back = replace(seen, source=seen.target, target=seen.source)
    for name, step in seen.steps.items():
        if plain_name(name) == Row.FREEZE:
            attempt = step.data.get("attempt", 1)
            way = name.removesuffix(Row.FREEZE)
            yield from _freeze(back if way else seen, step, f"{way}{attempt}", now)


def _freeze(seen: Seen, step: StepRecord, attempt: str, now: datetime) -> Iterable[Notice]:
    freeze = Freeze.from_data(step.data)
    began = freeze.started_at
    yield Notice(
        Told.FREEZE_BEGUN,
        f"{Told.FREEZE_BEGUN}:{attempt}",
        f"{seen.source}: the freeze has begun",
        f"Producers of {seen.source} are stopped since {_time(began)}, until {_time(freeze.lease_until)}.",
        began,
    )
    ended = step.data.get("ended_at")
    over = step.state in (StepState.DONE, StepState.UNDONE) and ended is not None
    lasted = (datetime.fromisoformat(str(ended)) if over else now) - began
    if not over and lasted >= seen.overlong_after:
        yield Notice(
            Told.FREEZE_OVERLONG,
            f"{Told.FREEZE_OVERLONG}:{attempt}",
            f"{seen.source}: the freeze lasts too long",
            f"Producers of {seen.source} have not written for {lasted.total_seconds():.0f} s. Look at "
            f"topicshift status {seen.source}; topicshift resume-on-source ends it.",
            began + seen.overlong_after,
        )
    if over:
        yield _end_of_freeze(seen, step, attempt, lasted)


def _end_of_freeze(seen: Seen, step: StepRecord, attempt: str, lasted: timedelta) -> Notice:
    at = datetime.fromisoformat(str(step.data["ended_at"]))
    after = f"after {lasted.total_seconds():.1f} s, at {_time(at)}"
    if step.state is StepState.DONE or "undone_by" in step.data:  # undone long after it, by a way back
        return Notice(
            Told.FREEZE_ENDED,
            f"{Told.FREEZE_ENDED}:{attempt}",
            f"{seen.source}: the freeze is over",
            f"Producers write to {seen.target} {after}.",
            at,
        )
    by_hand = ", ".join(step.data.get("start_by_hand") or ())
    hand = f" START BY HAND on {seen.source}: {by_hand}." if by_hand else ""
    return Notice(
        Told.PRODUCERS_RESUMED,
        f"{Told.PRODUCERS_RESUMED}:{attempt}",
        f"{seen.source}: producers are back on the source",
        f"Producers resumed on {seen.source} {after}: {step.data.get('why') or 'no reason is on record'}.{hand}",
        at,
    )


def _retirement(seen: Seen) -> Iterable[Notice]:
    scream, gone = seen.steps.get(Row.SCREAM_TEST), seen.steps.get(Row.DELETE_SOURCE)
    if scream is not None and scream.state is StepState.INTENDED and scream.data.get("began_at"):
        at, until = datetime.fromisoformat(str(scream.data["began_at"])), str(scream.data.get("until", ""))
        yield Notice(
            Told.RETIREMENT_DUE,
            f"{Told.RETIREMENT_DUE}:{until}",
            f"{seen.source}: the scream test runs",
            f"Everybody is denied on {seen.source} until {until}; it is deleted after that if nobody needs it.",
            at,
        )
    if gone is not None and gone.state is StepState.DONE and gone.data.get("deleted_at"):
        at = datetime.fromisoformat(str(gone.data["deleted_at"]))
        text = f"{seen.source} was deleted at {_time(at)}. It was moved to {seen.target}."
        yield Notice(Told.SOURCE_DELETED, str(Told.SOURCE_DELETED), f"{seen.source}: the source is deleted", text, at)


def _watch(seen: Seen) -> Iterable[Notice]:
    """What the watch over the source has found, once for as long as it is the same matter."""
    row = seen.steps.get(Row.WATCH)
    for found in row.data.get("found", ()) if row is not None else ():
        kind, since = Told.SOURCE_WATCHED, str(found["since"])
        text = f"{found['seen']} {found['do']}"
        yield Notice(
            kind,
            f"{kind}:{found['key']}:{since}",
            f"{seen.source}: {found['code']}",
            text,
            datetime.fromisoformat(since),
        )


def _failures(seen: Seen) -> Iterable[Notice]:
    for event in seen.events:
        kind = getattr(errors, str(event.data.get("error")), None) if event.kind == FAILED else None
        if event.kind != FAILED or (kind is not None and kind.retryable):
            continue
        yield Notice(
            Told.RUN_STANDS,
            f"{Told.RUN_STANDS}:{event.seq}",
            f"{seen.source}: the run stands",
            f"{event.data.get('task')} failed ({event.data.get('error')}): {str(event.data.get('message'))[:800]}",
            datetime.fromisoformat(event.at),
        )


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
