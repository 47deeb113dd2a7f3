"""Rows of the journal: to and from the port's values, and the few statements that several methods share.

Every function here runs inside the caller's transaction. Those that change something expect that the caller holds the
lock of the migration's row.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from topicshift.adapters.journal.tables import acts, events, locks, migrations, steps
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.plan import ownership
from topicshift.core.proof import audit
from topicshift.ports import EventRow, MigrationRow, Seat, StepRow

_ROUNDS = 20


@dataclass
class Head:
    """What is needed of a migration to lock its topics and to append to its trail; kept up to date by both."""

    migration_id: str
    cluster_id: str
    source: str
    target: str
    epoch: int
    event_count: int
    event_head: str
    active: bool

    @classmethod
    def of(cls, row: Row[Any]) -> Head:
        """From a row of the table of migrations."""
        return cls(**{f.name: getattr(row, f.name) for f in fields(cls)})


def new_id(source: str, at: str) -> str:
    """An id that people can read and that is safe as the name of a folder: topic, time (UTC), six random digits."""
    moment = re.sub(r"\D", "", at)[:14]
    name = source[:80] if source[:1].isalnum() else f"m{source[:79]}"
    return f"{name}-{moment[:8]}T{moment[8:]}-{secrets.token_hex(3)}"


def migration(row: Row[Any]) -> MigrationRow:
    """The migration as the port has it. Raises ``Unreadable`` by its name where its spec is no JSON."""
    made, unread = migration_shown(row)
    if unread:
        raise Unreadable(f"Migration {made.migration_id} cannot be read from the journal: {unread}.")
    return made


def _with_spec(row: Row[Any], spec: Mapping[str, Any]) -> MigrationRow:
    return MigrationRow(**{f.name: getattr(row, f.name) for f in fields(MigrationRow)} | {"spec": spec})


def step(row: Row[Any]) -> StepRow:
    """The step as the port has it. Raises ``Unreadable`` by its name where its data is no JSON."""
    made, unread = step_shown(row)
    if unread:
        raise Unreadable(f"Migration {row.migration_id} cannot be read from the journal: {unread}.")
    return made


def migration_shown(row: Row[Any]) -> tuple[MigrationRow, str]:
    """The migration for a page, and what of it cannot be read, in words: then its spec is an empty one."""
    try:
        return _with_spec(row, json.loads(row.spec)), ""
    except ValueError as error:
        return _with_spec(row, {}), f"its spec is no JSON ({error})"


def step_shown(row: Row[Any]) -> tuple[StepRow, str]:
    """The step for a page, and what of it cannot be read; its data is then a marker that fails verification."""
    data, unread = {"unreadable": row.data}, ""
    try:
        data = json.loads(row.data)
    except ValueError as error:
        unread = f"the data of its step {row.step} is no JSON ({error})"
    return StepRow(row.step, row.state, row.epoch, data, row.started_at, row.finished_at), unread


def event(row: Row[Any]) -> EventRow:
    """The event as the port has it. Data that is no JSON any more comes back as a marker that fails verification."""
    try:
        data = json.loads(row.data)
    except ValueError:
        data = {"unreadable": row.data}
    return EventRow(row.seq, row.migration_id, row.epoch, row.at, row.actor, row.kind, data, row.prev_hash, row.hash)


def trail(connection: Connection, migration_id: str) -> list[EventRow]:
    """The events of a migration, oldest first."""
    query = sa.select(events).where(events.c.migration_id == migration_id).order_by(events.c.seq)
    return [event(row) for row in connection.execute(query)]


def step_row(connection: Connection, migration_id: str, name: str) -> Row[Any] | None:
    """The step's row, None if there is none."""
    return connection.execute(
        sa.select(steps).where(steps.c.migration_id == migration_id, steps.c.step == name)
    ).one_or_none()


def put_step(connection: Connection, migration_id: str, name: str, values: Mapping[str, Any], *, new: bool) -> None:
    """Insert or update the step's row; a new one comes after those that are there."""
    s = steps.c
    if new:
        position = sa.select(sa.func.count()).where(s.migration_id == migration_id).scalar_subquery()
        connection.execute(steps.insert().values(migration_id=migration_id, step=name, position=position, **values))
    else:
        connection.execute(steps.update().where(s.migration_id == migration_id, s.step == name).values(**values))


def seat(connection: Connection, migration_id: str) -> Seat | None:
    """The act of this migration that is under way."""
    row = connection.execute(sa.select(acts).where(acts.c.migration_id == migration_id)).one_or_none()
    return None if row is None else Seat(**row._asdict())


def put_seat(connection: Connection, seat: Seat, *, new: bool) -> None:
    """Insert or replace the act that is under way."""
    statement = acts.insert() if new else acts.update().where(acts.c.migration_id == seat.migration_id)
    connection.execute(statement.values(**asdict(seat)))


def drop_seat(connection: Connection, seat: Seat) -> None:
    """Take the row away, if it is this holder's still."""
    c = acts.c
    connection.execute(
        acts.delete().where(
            c.migration_id == seat.migration_id, c.holder == seat.holder, c.began_at == seat.began_at, c.act == seat.act
        )
    )


def append_event(
    connection: Connection,
    head: Head,
    kind: str,
    actor: str,
    data: Mapping[str, Any],
    at: str,
    values: Mapping[str, Any] | None = None,
) -> EventRow:
    """Append an event, and write its hash and ``values`` into the migration's row with one statement."""
    seq = head.event_count + 1
    bare = EventRow(seq, head.migration_id, head.epoch, at, actor, kind, data, head.event_head, "")
    event = dataclasses.replace(bare, hash=audit.hash_of(bare))
    connection.execute(events.insert().values({**asdict(event), "data": audit.canonical_json(data)}))
    connection.execute(
        migrations.update()
        .where(migrations.c.migration_id == head.migration_id)
        .values(event_count=seq, event_head=event.hash, updated_at=at, **(values or {}))
    )
    head.event_count, head.event_head = seq, event.hash
    return event


def holders(connection: Connection, cluster_id: str, topics: tuple[str, ...]) -> list[MigrationRow]:
    """The migrations that hold one of these topics, their rows locked against change."""
    query = (
        sa.select(locks.c.migration_id)
        .where(locks.c.cluster_id == cluster_id, locks.c.topic.in_(topics))
        .distinct()
        .order_by(locks.c.migration_id)
    )
    ids = list(connection.execute(query).scalars())
    for _ in range(_ROUNDS):
        found = connection.execute(
            sa.select(migrations)
            .where(migrations.c.migration_id.in_(ids))
            .order_by(migrations.c.migration_id)
            .with_for_update()
        ).all()
        again = list(connection.execute(query).scalars())
        if again == ids:  # nothing was given free while we waited for a row
            return [migration(row) for row in found]
        ids = again
    raise Refused(f"{' and '.join(topics)} keep changing hands. Try again later.")


def lock(connection: Connection, head: Head) -> None:
    """Take both topics, or raise ``Refused`` with the name of who holds one.

    In the order of their names, so that crosswise claims cannot wait for each other.
    """
    for topic in sorted((head.source, head.target)):
        try:
            with connection.begin_nested():
                connection.execute(
                    locks.insert().values(cluster_id=head.cluster_id, topic=topic, migration_id=head.migration_id)
                )
        except IntegrityError:
            holder = connection.execute(
                sa.select(migrations)
                .join(locks, locks.c.migration_id == migrations.c.migration_id)
                .where(locks.c.cluster_id == head.cluster_id, locks.c.topic == topic)
            ).one_or_none()
            if holder is None:
                raise Refused(f"{topic} was held by another run until just now. Try again.") from None
            if holder.migration_id != head.migration_id:
                raise Refused(
                    ownership.refusal(migration(holder), alive=None, source=head.source, target=head.target)
                ) from None


def unlock(connection: Connection, migration_id: str) -> None:
    """Give the topics of this migration free."""
    connection.execute(locks.delete().where(locks.c.migration_id == migration_id))


def replace(connection: Connection, holder: MigrationRow, *, by: str, at: str) -> None:
    """Close a migration that changed nothing and whose run has ended; its writes fail from now on."""
    row = connection.execute(sa.select(migrations).where(migrations.c.migration_id == holder.migration_id)).one()
    head = Head.of(row)
    head.epoch += 1
    unlock(connection, holder.migration_id)
    append_event(
        connection,
        head,
        "replaced",
        by,
        {"from_owner": holder.owner, "from_epoch": holder.epoch, "from_state": holder.state},
        at,
        {"epoch": head.epoch, "state": "failed" if holder.state == "open" else holder.state},
    )
