"""The journal in a SQL database: SQLite for one machine, PostgreSQL in production."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row, make_url

from topicshift.adapters.journal import rows
from topicshift.adapters.journal.engine import Database, make_engine
from topicshift.adapters.journal.overview import Overview
from topicshift.adapters.journal.schema import ensure_schema
from topicshift.adapters.journal.tables import events, migrations, steps
from topicshift.adapters.journal.urls import from_airflow_uri, shown
from topicshift.core.engine.words import StepState
from topicshift.core.errors import NotFound, OwnershipLost, Refused, SpecError, Unreadable
from topicshift.core.plan import ownership
from topicshift.core.proof import audit
from topicshift.ports import Claim, Clock, EventRow, MigrationRow, Seat, StepRow

_CLAIM_KEY = 0x746F70696373  # "topics": the advisory lock under which claims are decided one after another
_ROUNDS = 20


class SqlJournal:
    """:class:`topicshift.ports.Journal` over SQLAlchemy; see there for what each method promises.

    ``url`` is a SQLAlchemy URL or an Airflow connection URI (see :func:`.urls.from_airflow_uri`). The schema is made
    or upgraded at first use; with ``create=False`` a database that holds no journal raises ``NotFound`` instead, and a
    missing SQLite file is not made. Threads may share one instance. What is written is made plain JSON first, with
    values that look like secrets masked (:func:`topicshift.core.proof.audit.plain`). Besides the errors of the port,
    methods raise ``Unreadable``, or ``Transient`` for a passing fault, when the database does not answer.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        self._url = from_airflow_uri(url)
        self._clock = clock
        self._create = create
        self._database: Database | None = None
        self._opening = threading.Lock()

    # ------------------------------------------------------------------------------------------ claims

    def claim(
        self,
        *,
        cluster_id: str,
        source: str,
        target: str,
        owner: str,
        spec: Mapping[str, Any],
        owner_alive: Callable[[str], bool | None],
    ) -> Claim:
        """Lock source and target for this owner; see :meth:`topicshift.ports.Journal.claim`.

        ``owner_alive`` is called outside of any transaction, so it may take its time.
        """
        if source == target:
            raise SpecError(f"source and target are both {source!r}; a migration needs two topics.")
        if not owner:
            raise SpecError("A claim needs an owner, so that others can be told who holds the topics.")
        text = audit.canonical_json(audit.plain(spec))
        ended: dict[str, int] = {}
        for _ in range(_ROUNDS):
            try:
                found = self._db().write(
                    lambda c, _attempt: self._try_claim(c, cluster_id, source, target, owner, text, ended)
                )
            except Refused:
                continue  # a lock appeared between look and insert; look again
            if isinstance(found, Claim):
                return found
            if isinstance(found, str):
                raise Refused(found)
            for holder in found:
                alive = owner_alive(holder.owner)
                if holder.active or alive is not False:
                    raise Refused(ownership.refusal(holder, alive=alive, source=source, target=target))
                ended[holder.migration_id] = holder.epoch
        raise Refused(f"{source} and {target} kept changing hands while {owner} asked for them. Try again later.")

    def _try_claim(
        self,
        connection: Connection,
        cluster_id: str,
        source: str,
        target: str,
        owner: str,
        spec: str,
        ended: Mapping[str, int],
    ) -> Claim | list[MigrationRow] | str:
        self._serialise_claims(connection)
        m = migrations.c
        own_row = connection.execute(
            sa.select(migrations)
            .where(m.cluster_id == cluster_id, m.source == source, m.target == target, m.owner == owner)
            .order_by(m.created_at.desc(), m.migration_id.desc())
            .limit(1)
            .with_for_update()
        ).one_or_none()
        own = None if own_row is None else rows.migration(own_row)
        todo = ownership.own_claim(own)
        if own is not None and todo is ownership.Own.RETURN:
            if not own.active and own.state == "open":
                connection.execute(migrations.update().where(m.migration_id == own.migration_id).values(spec=spec))
            return Claim(own.migration_id, own.epoch, owner)
        if own is not None:
            refused = ownership.reopen_refused(own, rows.trail(connection, own.migration_id))
            if refused is not None:
                return refused
        mine = None if own is None else own.migration_id
        holders = [h for h in rows.holders(connection, cluster_id, (source, target)) if h.migration_id != mine]
        blocked = ownership.in_the_way(holders, owner, ended)
        if blocked:
            return blocked
        for holder in holders:
            rows.replace(connection, holder, by=owner, at=self._now())
        at = self._now()
        if own_row is None:
            migration_id = rows.new_id(source, at)
            genesis = audit.genesis_hash(migration_id)
            connection.execute(
                migrations.insert().values(
                    migration_id=migration_id,
                    cluster_id=cluster_id,
                    source=source,
                    target=target,
                    owner=owner,
                    epoch=1,
                    state="open",
                    active=False,
                    spec=spec,
                    created_at=at,
                    updated_at=at,
                    event_count=0,
                    event_head=genesis,
                )
            )
            row = rows.Head(migration_id, cluster_id, source, target, 1, 0, genesis, active=False)
        else:
            row = rows.Head.of(own_row)
        if not row.active:
            rows.lock(connection, row)
        told = {"cluster_id": cluster_id, "source": source, "target": target, "spec": json.loads(spec)}
        changed = {"state": "open"} if row.active else {"state": "open", "spec": spec}
        rows.append_event(connection, row, "claimed" if own is None else "reopened", owner, told, at, changed)
        return Claim(row.migration_id, row.epoch, owner)

    def take_over(self, migration_id: str, owner: str) -> Claim:
        """Make ``owner`` the owner, with the next epoch; see :meth:`topicshift.ports.Journal.take_over`.

        Repeated by the same owner it returns the same claim. ``NotFound`` for an unknown migration.
        """

        def work(connection: Connection, _attempt: int) -> Claim:
            row = self._row(connection, migration_id, lock=True)
            if row.owner == owner:
                return Claim(migration_id, row.epoch, owner)
            head = rows.Head.of(row)
            head.epoch += 1
            told = {"from_owner": row.owner, "from_epoch": row.epoch}
            changed = {"owner": owner, "epoch": head.epoch}
            rows.append_event(connection, head, "taken_over", owner, told, self._now(), changed)
            return Claim(migration_id, head.epoch, owner)

        return self._db().write(work)

    def renew(self, claim: Claim, why: str) -> Claim:
        """Raise the epoch for the same owner; see :meth:`topicshift.ports.Journal.renew`."""
        at = self._now()
        wanted = {"from_epoch": claim.epoch, "why": why}

        def work(connection: Connection, attempt: int) -> Claim:
            renewed = Claim(claim.migration_id, claim.epoch + 1, claim.owner)
            if attempt:
                row = self._row(connection, claim.migration_id, lock=True)
                if self._got_through(connection, row, at, "renewed", claim.owner, wanted) is not None:
                    return renewed
            head = rows.Head.of(self._owned(connection, claim))
            head.epoch += 1
            rows.append_event(connection, head, "renewed", claim.owner, wanted, at, {"epoch": head.epoch})
            return renewed

        return self._db().write(work)

    # ------------------------------------------------------------------------------------------ reading

    def current(self, migration_id: str) -> MigrationRow:
        """The migration; ``NotFound`` if there is none of this id."""
        return self._db().read(lambda c: rows.migration(self._row(c, migration_id)))

    def find(
        self, *, source: str | None = None, owner: str | None = None, active: bool | None = None
    ) -> list[MigrationRow]:
        """The migrations that match all that is given, oldest first."""
        query = sa.select(migrations).order_by(migrations.c.created_at, migrations.c.migration_id)
        for column, value in (
            (migrations.c.source, source),
            (migrations.c.owner, owner),
            (migrations.c.active, active),
        ):
            if value is not None:
                query = query.where(column == value)
        return self._db().read(lambda c: [rows.migration(row) for row in c.execute(query)])

    def step(self, migration_id: str, step: str) -> StepRow | None:
        """The step, None if its intent was never written."""

        def work(connection: Connection) -> StepRow | None:
            row = rows.step_row(connection, migration_id, step)
            return None if row is None else rows.step(row)

        return self._db().read(work)

    def steps(self, migration_id: str) -> list[StepRow]:
        """The steps in the order in which they were first intended."""
        query = sa.select(steps).where(steps.c.migration_id == migration_id).order_by(steps.c.position)
        return self._db().read(lambda c: [rows.step(row) for row in c.execute(query)])

    def events(self, migration_id: str, kinds: Collection[str] = ()) -> list[EventRow]:
        """The audit trail in the order of its rows; of these kinds alone, where some are named."""
        if not kinds:
            return self.trail(migration_id)[1]

        def work(connection: Connection) -> list[EventRow]:
            self._row(connection, migration_id)
            mine = events.c.migration_id == migration_id
            query = sa.select(events).where(mine, events.c.kind.in_(list(kinds))).order_by(events.c.seq)
            return [rows.event(e) for e in connection.execute(query)]

        return self._db().read(work)

    def trail(self, migration_id: str) -> tuple[audit.ChainHead, list[EventRow]]:
        """The end of the trail as the migration's row has it, and the rows, from one snapshot."""

        def work(connection: Connection) -> tuple[audit.ChainHead, list[EventRow]]:
            row = self._row(connection, migration_id)
            head = audit.ChainHead(count=row.event_count, hash=row.event_head)
            return head, rows.trail(connection, migration_id)

        return self._db().read(work)

    def overview(self) -> Overview:
        """Reads of many migrations at once."""
        return Overview(self._db)

    # ------------------------------------------------------------------------------------------ writing

    def set_state(self, claim: Claim, state: str, *, active: bool) -> None:
        """Set the migration's state. Closing it (not open, not active) gives both topics free."""
        ownership.migration_state(state)

        def work(connection: Connection, _attempt: int) -> None:
            row = self._owned(connection, claim)
            if (row.state, row.active) == (state, active):
                return
            head = rows.Head.of(row)
            if ownership.is_closed(state, active):
                rows.unlock(connection, claim.migration_id)
            elif ownership.is_closed(row.state, row.active):
                rows.lock(connection, head)
            told = {"state": state, "active": active, "from_state": row.state, "from_active": row.active}
            changed = {"state": state, "active": active}
            rows.append_event(connection, head, "state", claim.owner, told, self._now(), changed)

        self._db().write(work)

    def set_plan(self, claim: Claim, plan_hash: str) -> None:
        """Record the hash of the plan that this migration follows."""

        def work(connection: Connection, _attempt: int) -> None:
            row = self._owned(connection, claim)
            if row.plan_hash == plan_hash:
                return
            told = {"plan_hash": plan_hash, "from_plan_hash": row.plan_hash}
            changed = {"plan_hash": plan_hash}
            rows.append_event(connection, rows.Head.of(row), "plan", claim.owner, told, self._now(), changed)

        self._db().write(work)

    def intend(self, claim: Claim, step: str, data: Mapping[str, Any]) -> StepRow:
        """Write the intent of a step; see :meth:`topicshift.ports.Journal.intend`.

        The first intent of an acting step makes the migration active, and locks its topics again if it was closed; its
        state stays (a migration that is ``done`` is so while its source is being retired).
        """
        wanted = audit.plain(data)

        def work(connection: Connection, _attempt: int) -> StepRow:
            row = self._owned(connection, claim)
            before = rows.step_row(connection, claim.migration_id, step)
            if before is not None and before.state == "done":
                return rows.step(before)
            refused = ownership.intent_refused(claim.migration_id, step, None if before is None else before.state)
            if refused is not None:
                raise Refused(refused)
            head, at = rows.Head.of(row), self._now()
            activate = ownership.is_acting(step) and not row.active
            if activate and ownership.is_closed(row.state, row.active):
                rows.lock(connection, head)
            changes: dict[str, Any] = {"active": True} if activate else {}
            if before is not None and before.state == "intended":
                if changes:
                    told = {"state": row.state, "active": True, "from_state": row.state, "from_active": row.active}
                    rows.append_event(connection, head, "state", claim.owner, told, at, changes)
                return rows.step(before)
            values = {"state": "intended", "epoch": claim.epoch, "data": audit.canonical_json(wanted)}
            values |= {"started_at": at, "finished_at": None}
            rows.put_step(connection, claim.migration_id, step, values, new=before is None)
            told = {"step": step, "data": wanted}
            changed = {"step": step, **changes}
            rows.append_event(connection, head, "step_intended", claim.owner, told, at, changed)
            return StepRow(step, "intended", claim.epoch, wanted, at, None)

        return self._db().write(work)

    def finish(self, claim: Claim, step: str, data: Mapping[str, Any], state: str = "done") -> StepRow:
        """Write how far a step is; see :meth:`topicshift.ports.Journal.finish`.

        ``data`` is laid over what the intent wrote, so that its ids stay. Repeating it with nothing new
        changes nothing.
        """
        wanted, state_ = audit.plain(data), ownership.step_state(state)

        def work(connection: Connection, _attempt: int) -> StepRow:
            row = self._owned(connection, claim)
            before = rows.step_row(connection, claim.migration_id, step)
            refused = ownership.finish_refused(
                claim.migration_id, step, None if before is None else before.state, state_
            )
            if refused is not None:
                raise Refused(refused)
            old = {} if before is None else json.loads(before.data)
            merged = {**old, **wanted}
            if before is not None and before.state == state and merged == old:
                return rows.step(before)
            at = self._now()
            started = at if before is None else before.started_at
            values: dict[str, Any] = {"state": state_.value, "epoch": claim.epoch, "data": audit.canonical_json(merged)}
            ended = at if state_ in (StepState.DONE, StepState.UNDONE) else None
            values |= {"started_at": started, "finished_at": ended}
            rows.put_step(connection, claim.migration_id, step, values, new=before is None)
            told = {"step": step, "state": state_.value, "data": wanted}
            changed = {"step": step} if before is None else {}
            rows.append_event(connection, rows.Head.of(row), "step_finished", claim.owner, told, at, changed)
            return StepRow(step, state_.value, claim.epoch, merged, started, ended)

        return self._db().write(work)

    def take_seat(
        self,
        claim: Claim,
        act: str,
        subject: str,
        holder: str,
        *,
        lasts_s: float,
        trace: Callable[[], Mapping[str, Any]] | None = None,
    ) -> tuple[Claim, Seat] | None:
        """Become the one who acts; see :meth:`topicshift.ports.Journal.take_seat`."""
        decided = {} if trace is None else trace()
        at, said = self._now(), audit.plain({"act": act, "subject": subject, "holder": holder, **decided})
        now = datetime.fromisoformat(at)
        until = (now + timedelta(seconds=lasts_s)).isoformat(timespec="microseconds")

        def work(connection: Connection, attempt: int) -> tuple[Claim, Seat] | None:
            before = rows.seat(connection, claim.migration_id) if attempt else None
            if before is not None and (before.holder, before.began_at) == (holder, at):
                return replace(claim, epoch=before.epoch), before  # the commit before this try did get through
            row = self._owned(connection, claim)
            before, head = rows.seat(connection, claim.migration_id), rows.Head.of(row)
            if before is not None and before.holder != holder:
                if now < datetime.fromisoformat(before.until):
                    return None
                head.epoch += 1
                told = ownership.seat_taken_over(before, act, subject, holder)
                rows.append_event(connection, head, "seat_taken_over", claim.owner, told, at, {"epoch": head.epoch})
            number = ownership.next_try(before, act, subject)
            seat = Seat(claim.migration_id, act, subject, holder, number, head.epoch, at, until)
            rows.put_seat(connection, seat, new=before is None)
            if trace is not None:
                rows.append_event(connection, head, "act", claim.owner, said, at)
            return replace(claim, epoch=head.epoch), seat

        return self._db().write(work)

    def leave_seat(self, seat: Seat) -> None:
        """Give the seat free; see :meth:`topicshift.ports.Journal.leave_seat`."""
        self._db().write(lambda c, _attempt: rows.drop_seat(c, seat))

    def seat(self, migration_id: str) -> Seat | None:
        """The act that is under way, None when nobody acts."""
        return self._db().read(lambda c: rows.seat(c, migration_id))

    def event(self, claim: Claim, kind: str, actor: str, data: Mapping[str, Any]) -> EventRow:
        """Append one event to the audit trail."""
        wanted, at = audit.plain(data), self._now()

        def work(connection: Connection, attempt: int) -> EventRow:
            row = self._owned(connection, claim)
            if attempt and (last := self._got_through(connection, row, at, kind, actor, wanted)) is not None:
                return rows.event(last)
            return rows.append_event(connection, rows.Head.of(row), kind, actor, wanted, at)

        return self._db().write(work)

    def close(self) -> None:
        """Close the connections. The journal can be used again after it."""
        with self._opening:
            if self._database is not None:
                self._database.engine.dispose()
                self._database = None

    # ------------------------------------------------------------------------------------------ inside

    def _db(self) -> Database:
        if self._database is None:
            with self._opening:
                if self._database is None:
                    self._refuse_missing_file()
                    try:
                        database = Database(make_engine(self._url))
                    except OSError as exc:
                        raise Unreadable(
                            f"The folder of the journal {shown(self._url)} cannot be made: {exc.strerror}. "
                            "Name a file in a folder that this user may write, with TOPICSHIFT_JOURNAL."
                        ) from None
                    try:
                        ensure_schema(database, create=self._create)
                    except BaseException:
                        database.engine.dispose()
                        raise
                    self._database = database
        return self._database

    def _refuse_missing_file(self) -> None:
        url = make_url(self._url)
        if not self._create and url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
            raise NotFound(
                f"There is no journal at {shown(self._url)}: no migration was ever run with it. "
                "Name the right one with --journal or TOPICSHIFT_JOURNAL, or start a migration first. Is it lost? Then "
                "topicshift status and resume-on-source go by the route with --without-journal."
            )

    def _now(self) -> str:
        now = datetime.now(UTC) if self._clock is None else self._clock.now()
        return now.astimezone(UTC).isoformat(timespec="microseconds")

    def _serialise_claims(self, connection: Connection) -> None:
        if self._db().postgres:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _CLAIM_KEY})

    def _row(self, connection: Connection, migration_id: str, *, lock: bool = False) -> Row[Any]:
        query = sa.select(migrations).where(migrations.c.migration_id == migration_id)
        row = connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None:
            raise NotFound(
                f"The journal {self._db().name} has no migration {migration_id!r}. "
                "topicshift status lists the migrations that it has."
            )
        return row

    @staticmethod
    def _got_through(
        connection: Connection, row: Row[Any], at: str, kind: str, actor: str, data: Mapping[str, Any]
    ) -> Row[Any] | None:
        """The last event of the trail if it is this one: the connection was lost at a commit that did get through."""
        c = events.c
        last = connection.execute(
            sa.select(events).where(c.migration_id == row.migration_id, c.seq == row.event_count)
        ).one_or_none()
        if last is None or (last.at, last.kind, last.actor, json.loads(last.data)) != (at, kind, actor, dict(data)):
            return None
        return last

    def _owned(self, connection: Connection, claim: Claim) -> Row[Any]:
        row = self._row(connection, claim.migration_id, lock=True)
        message = ownership.lost(claim, rows.migration(row))
        if message is not None:
            raise OwnershipLost(message)
        return row
