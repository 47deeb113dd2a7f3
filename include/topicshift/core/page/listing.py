"""The list of migrations: one entry each, what waits for a person first, and what a person may look for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from topicshift.core.engine.mirror import live
from topicshift.core.engine.need import need, urgency
from topicshift.core.engine.progress import Mark, marks, open_questions, step_under_way
from topicshift.core.engine.snapshot import freeze_seen, record_to_show, rehearses
from topicshift.core.engine.view import Record
from topicshift.core.engine.words import MigrationState, Row, Step, StepState
from topicshift.core.errors import TopicshiftError
from topicshift.core.rows import EventRow, MigrationRow, StepRow
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.duration import parse_duration
from topicshift.core.spec.windows import Schedule

ANY: Final = "all"
"""Filter of the state that leaves nothing out."""

UNKNOWN: Final = "unknown"
"""State of a migration whose rows say what this version does not know."""


@dataclass(frozen=True)
class Shown:
    """What pages keep of a migration until its next event. ``record`` is the one that decides (on a way back the
    mirrored one); ``events``: the last of each kind that counts; ``owners``: everybody who has owned it."""

    row: MigrationRow
    record: Record
    steps: tuple[StepRow, ...]
    events: tuple[EventRow, ...]
    owners: tuple[str, ...]

    @property
    def dags(self) -> frozenset[str]:
        """The DAGs whose runs have owned it: whoever may read one of them may see it."""
        return frozenset(owner.partition("/")[0] for owner in self.owners)

    @cached_property
    def settled(self) -> dict[str, Any] | None:
        """Its line of the list where that is the same at any time: it has ended, and asks nobody. None otherwise."""
        record = self.record
        if record.state is MigrationState.OPEN or record.freeze is not None or open_questions(record):
            return None
        return _entry(self, datetime.fromisoformat(self.row.updated_at))


@dataclass(frozen=True)
class Unclear:
    """A migration of which this version understands no more than its name. ``why``: what it does not understand."""

    row: MigrationRow
    owners: tuple[str, ...]
    why: str

    @property
    def dags(self) -> frozenset[str]:
        """As of :class:`Shown`."""
        return frozenset(owner.partition("/")[0] for owner in self.owners)


def shown(
    row: MigrationRow, steps: Sequence[StepRow], events: Sequence[EventRow], owners: Sequence[str], unread: str = ""
) -> Shown | Unclear:
    """Prepare what the pages keep. ``unread``: what of its rows could not be read at all, in words.

    Whatever is wrong with one migration never hides another one.
    """
    if unread:
        return Unclear(row, tuple(owners), unread)
    try:
        return Shown(row, live(record_to_show(row, steps)), tuple(steps), tuple(events), tuple(owners))
    except Exception as error:  # noqa: BLE001 - a newer version may have written anything
        return Unclear(row, tuple(owners), _unknown_words(row, steps) or not_understood(error))


def not_understood(error: Exception) -> str:
    """Why a migration cannot be shown, in words."""
    return f"its journal rows hold what this version does not understand ({type(error).__name__}: {error})"


def _unknown_words(row: MigrationRow, steps: Sequence[StepRow]) -> str:
    first = Cutover.DRAIN_FIRST.value
    cutover = str(row.spec.get("cutover", first)) if isinstance(row.spec, Mapping) else first
    found = [f"its state {row.state!r}"] if row.state not in set(MigrationState) else []
    found += [f"its order of the cut-over {cutover!r}"] if cutover not in set(Cutover) else []
    found += [f"the state {s.state!r} of its step {s.step}" for s in steps if s.state not in set(StepState)]
    return f"this version does not know {', '.join(found)}" if found else ""


@dataclass(frozen=True)
class Wanted:
    """What is looked for: each empty text leaves nothing out. ``state``: one of the states, or ``all``; open, and
    whatever waits for a person, by default. ``window``: ``with`` or ``without`` one."""

    state: str = ""
    text: str = ""
    cluster: str = ""
    owner: str = ""
    window: str = ""

    def takes(self, entry: Mapping[str, Any]) -> bool:
        """Whether this entry of the list is looked for."""
        names = (entry["migration"], entry["source"], entry["target"], entry["rehearses"] or "")
        return (
            self._state(entry)
            and (not self.text or any(self.text.casefold() in n.casefold() for n in names))
            and self.cluster in ("", entry["cluster_id"])
            and self.owner in ("", str(entry["owner"]).partition("/")[0])
            and (not self.window or (entry["window"] is not None) == (self.window == "with"))
        )

    def _state(self, entry: Mapping[str, Any]) -> bool:
        if entry["state"] == UNKNOWN:
            return True  # it may be what is looked for
        if not self.state:
            return entry["state"] == MigrationState.OPEN or bool(entry["active"]) or entry["waits_on"] == "person"
        return self.state in (ANY, entry["state"])


def entry(found: Shown | Unclear, now: datetime) -> dict[str, Any]:
    """One line of the list, as plain values; of an unclear one its names, and a person to look at it."""
    if isinstance(found, Unclear):
        return _unclear(found)
    try:
        return found.settled or _entry(found, now)
    except Exception as error:  # noqa: BLE001 - one migration must not hide the others
        return _unclear(Unclear(found.row, found.owners, not_understood(error)))


def _unclear(found: Unclear) -> dict[str, Any]:
    row = found.row
    return {
        "migration": row.migration_id,
        "source": row.source,
        "target": row.target,
        "rehearses": None,
        "cluster_id": row.cluster_id,
        "state": UNKNOWN,
        "active": row.active,
        "going_back": False,
        "step": None,
        "steps_done": 0,
        "steps": len(Step) - 1,
        "owner": row.owner,
        "window": None,
        "waits_on": "person",
        "waits_for": f"a person to look: {found.why}. Was it written by a newer version?",
        "freeze": None,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _entry(found: Shown, now: datetime) -> dict[str, Any]:
    row, record = found.row, found.record
    waits, step, steps = need(record, row.owner, found.events, now), step_under_way(record), marks(record)
    protocol = [mark for name, mark in steps.items() if name is not Step.RETIRE]
    return {
        "migration": row.migration_id,
        "source": row.source,
        "target": row.target,
        "rehearses": rehearses(row),
        "cluster_id": row.cluster_id,
        "state": row.state,
        "active": row.active,
        "going_back": record.mirrored,
        "step": step.value if step else None,
        "steps_done": protocol.count(Mark.DONE),
        "steps": len(protocol),
        "owner": row.owner,
        "window": window(row, record, now),
        "waits_on": waits.on,
        "waits_for": waits.what,
        "freeze": freeze_seen(record, now),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def listed(all_: Iterable[Shown | Unclear], wanted: Wanted, now: datetime) -> list[dict[str, Any]]:
    """The entries that are looked for: a running freeze first, then what waits for a person, then the latest."""
    rows = [e for e in (entry(found, now) for found in all_) if wanted.takes(e)]
    rows.sort(key=lambda e: str(e["updated_at"]), reverse=True)
    return sorted(rows, key=urgency)


def window(row: MigrationRow, record: Record, now: datetime) -> dict[str, Any] | None:
    """The maintenance window as its spec has it, None without one.

    ``opens`` and ``closes`` are those of the opening that is open or comes next, while a freeze is still to come.
    """
    given = row.spec.get("window")
    if not isinstance(given, Mapping):
        return None
    cron, zone, lasts = (str(given.get(key) or "") for key in ("cron", "timezone", "duration"))
    found: dict[str, Any] = {"text": f"{cron}, {zone or 'UTC'}, for {lasts}", "opens": None, "closes": None}
    to_come = record.freeze is None and not record.in_effect(Row.SWITCH_PRODUCERS) and not record.mirrored
    if record.state is MigrationState.OPEN and to_come:
        try:
            schedule = Schedule(cron, zone or "UTC", parse_duration(lasts))
            opening = schedule.opening(budget_of(row), now)
        except (TopicshiftError, ValueError, KeyError, StopIteration):
            return found  # of another version: its words are shown as they are
        found |= {"opens": opening.opens.isoformat(), "closes": opening.closes.isoformat()}
    return found


def budget_of(row: MigrationRow) -> timedelta:
    """The freeze budget of its spec. Raises ``ValueError`` where that has none that can be read."""
    return parse_duration(row.spec.get("freeze_budget"))
