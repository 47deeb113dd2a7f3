"""Many migrations read at once, for pages: a fixed number of statements, however many migrations there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from topicshift.adapters.journal import rows
from topicshift.adapters.journal.engine import Database
from topicshift.adapters.journal.tables import events, migrations, steps
from topicshift.core.engine.need import COUNTED, OWNED
from topicshift.core.proof.audit import ChainHead
from topicshift.ports import EventRow, MigrationRow, StepRow

_CHUNK = 200
"""Migrations asked for in one statement."""

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """One migration as it was at ``head``: its row, its steps, the last event of each kind that tells what it waits
    for, and everybody who has owned it, oldest first. ``unread``: what of it is no JSON, in words."""

    head: ChainHead
    row: MigrationRow
    steps: tuple[StepRow, ...]
    events: tuple[EventRow, ...]
    owners: tuple[str, ...]
    unread: str = ""


@dataclass
class _Parts:
    steps: list[StepRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class Overview:
    """Reads of a journal that pages need. Threads may share one."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._database().read(work)

    def heads(self) -> dict[str, ChainHead]:
        """The end of each migration's trail: whatever is written to a migration moves it."""
        m = migrations.c
        query = sa.select(m.migration_id, m.event_count, m.event_head)
        return self._read(lambda c: {r[0]: ChainHead(count=r[1], hash=r[2]) for r in c.execute(query)})

    def found(self, wanted: Sequence[str]) -> dict[str, Found]:
        """The migrations of these ids, from one snapshot a chunk; those that are not there (any more) are left out."""
        out: dict[str, Found] = {}
        for chunk in _chunks(wanted):
            out |= self._read(partial(_found, ids=chunk))
        return out

    def events_after(self, migration_id: str, seq: int, most: int) -> tuple[ChainHead, list[EventRow], list[StepRow]]:
        """The end of the trail, at most ``most`` rows after ``seq``, and the steps, from one snapshot."""

        def work(connection: Connection) -> tuple[ChainHead, list[EventRow], list[StepRow]]:
            m, e = migrations.c, events.c
            row = connection.execute(
                sa.select(m.event_count, m.event_head).where(m.migration_id == migration_id)
            ).one_or_none()
            if row is None:
                return ChainHead(count=0, hash=""), [], []
            query = sa.select(events).where(e.migration_id == migration_id, e.seq > seq).order_by(e.seq).limit(most)
            found = [rows.event(r) for r in connection.execute(query)]
            return ChainHead(count=row[0], hash=row[1]), found, _steps(connection, [migration_id])[migration_id].steps

        return self._read(work)

    def latest(self, migration_id: str, most: int, kinds: Collection[str] = (), before: int = 0) -> list[EventRow]:
        """The last rows of a trail, newest first; of these kinds alone, and with a lower number than ``before``."""
        e = events.c
        query = sa.select(events).where(e.migration_id == migration_id).order_by(e.seq.desc()).limit(most)
        if kinds:
            query = query.where(e.kind.in_(list(kinds)))
        if before:
            query = query.where(e.seq < before)
        return self._read(lambda c: [rows.event(r) for r in c.execute(query)])

    def owned_by(self, owner: str) -> list[str]:
        """Ids of the migrations that this run owns, else of those that it has owned."""
        m, e = migrations.c, events.c
        now = sa.select(m.migration_id).where(m.owner == owner).order_by(m.created_at)
        once = sa.select(e.migration_id).distinct().where(e.kind.in_(sorted(OWNED)), e.actor == owner)
        return self._read(lambda c: list(c.execute(now).scalars()) or sorted(c.execute(once).scalars()))

    def durations(self, most: int) -> list[list[StepRow]]:
        """The steps of the latest ``most`` finished migrations, without their data."""
        m, s = migrations.c, steps.c
        ids = sa.select(m.migration_id).where(m.state.in_(["done", "retired"])).order_by(m.updated_at.desc())
        columns = (s.migration_id, s.step, s.state, s.epoch, s.started_at, s.finished_at)

        def work(connection: Connection) -> list[list[StepRow]]:
            wanted = list(connection.execute(ids.limit(most)).scalars())
            found: dict[str, list[StepRow]] = defaultdict(list)
            for r in connection.execute(sa.select(*columns).where(s.migration_id.in_(wanted))):
                found[r[0]].append(StepRow(r[1], r[2], r[3], {}, r[4], r[5]))
            return list(found.values())

        return self._read(work)


def _chunks(wanted: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(wanted), _CHUNK):
        yield list(wanted[at : at + _CHUNK])


def _found(connection: Connection, ids: list[str]) -> dict[str, Found]:
    parts = _steps(connection, ids)
    e, m = events.c, migrations.c
    mine = e.migration_id.in_(ids)
    last = (
        sa.select(e.migration_id, sa.func.max(e.seq).label("seq"))
        .where(mine, e.kind.in_(sorted(COUNTED)))
        .group_by(e.migration_id, e.kind)
        .subquery()
    )
    joined = sa.and_(e.migration_id == last.c.migration_id, e.seq == last.c.seq)
    for row in connection.execute(sa.select(events).join(last, joined).order_by(e.seq)):
        parts[row.migration_id].events.append(rows.event(row))
    owners = sa.select(e.migration_id, e.actor).where(mine, e.kind.in_(sorted(OWNED))).order_by(e.seq)
    for row in connection.execute(owners):
        parts[row.migration_id].owners.append(row.actor)
    out = {}
    for row in connection.execute(sa.select(migrations).where(m.migration_id.in_(ids))):
        part, head = parts[row.migration_id], ChainHead(count=row.event_count, hash=row.event_head)
        made, unread = rows.migration_shown(row)
        said = "; ".join(filter(None, [unread, *part.unread]))
        owners_ = tuple(dict.fromkeys(part.owners))
        out[row.migration_id] = Found(head, made, tuple(part.steps), tuple(part.events), owners_, said)
    return out


def _steps(connection: Connection, ids: list[str]) -> dict[str, _Parts]:
    s = steps.c
    parts: dict[str, _Parts] = defaultdict(_Parts)
    row: Any
    for row in connection.execute(sa.select(steps).where(s.migration_id.in_(ids)).order_by(s.position)):
        step, unread = rows.step_shown(row)
        parts[row.migration_id].steps.append(step)
        parts[row.migration_id].unread += [unread] if unread else []
    return parts
