"""A journal, an evidence store and a clock in memory: quick, and held to the real ones by one contract test."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from topicshift.core.engine.words import StepState
from topicshift.core.errors import NotFound, OwnershipLost, Refused, SpecError
from topicshift.core.plan import ownership
from topicshift.core.proof import audit
from topicshift.ports import Claim, Clock, EventRow, MigrationRow, Seat, StepRow

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ManualClock:
    """A clock that stands still until it is moved. ``sleep`` moves it, and returns at once.

    ``slept`` lists the seconds of every sleep.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        """The time, in UTC, at which the clock was left."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock by so many seconds."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock by so many seconds, without counting it as a sleep."""
        self._now += timedelta(seconds=seconds)


class FakeJournal:
    """:class:`topicshift.ports.Journal` in memory; threads may share it. See the port for what each method promises."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._migrations: dict[str, MigrationRow] = {}
        self._topics: dict[tuple[str, str], str] = {}
        self._steps: dict[str, dict[str, StepRow]] = {}
        self._events: dict[str, list[EventRow]] = {}
        self._seats: dict[str, Seat] = {}

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
        """Lock source and target for this owner."""
        if source == target:
            raise SpecError(f"source and target are both {source!r}; a migration needs two topics.")
        if not owner:
            raise SpecError("A claim needs an owner, so that others can be told who holds the topics.")
        wanted = audit.plain(spec)
        ended: dict[str, int] = {}
        while True:
            with self._lock:
                found = self._try_claim(cluster_id, source, target, owner, wanted, ended)
            if isinstance(found, Claim):
                return found
            if isinstance(found, str):
                raise Refused(found)
            for holder in found:
                alive = owner_alive(holder.owner)
                if holder.active or alive is not False:
                    raise Refused(ownership.refusal(holder, alive=alive, source=source, target=target))
                ended[holder.migration_id] = holder.epoch

    def _try_claim(
        self,
        cluster_id: str,
        source: str,
        target: str,
        owner: str,
        spec: Mapping[str, Any],
        ended: Mapping[str, int],
    ) -> Claim | list[MigrationRow] | str:
        mine = [
            row
            for row in self._migrations.values()
            if (row.cluster_id, row.source, row.target, row.owner) == (cluster_id, source, target, owner)
        ]
        own = mine[-1] if mine else None
        todo = ownership.own_claim(own)
        if own is not None and todo is ownership.Own.RETURN:
            if own.state == "open" and not own.active:
                self._migrations[own.migration_id] = replace(own, spec=spec)
            return Claim(own.migration_id, own.epoch, owner)
        refused = ownership.reopen_refused(own, self._events[own.migration_id]) if own is not None else None
        if refused is not None:
            return refused
        ids = sorted({self._topics[k] for k in ((cluster_id, source), (cluster_id, target)) if k in self._topics})
        holders = [self._migrations[i] for i in ids if own is None or i != own.migration_id]
        blocked = ownership.in_the_way(holders, owner, ended)
        if blocked:
            return blocked
        for holder in holders:
            self._replace(holder, owner)
        at = self._at()
        if own is None:
            name = source[:80] if source[:1].isalnum() else f"m{source[:79]}"
            moment = re.sub(r"\D", "", at)[:14]
            own = MigrationRow(
                migration_id=f"{name}-{moment[:8]}T{moment[8:]}-{secrets.token_hex(3)}",
                cluster_id=cluster_id,
                source=source,
                target=target,
                owner=owner,
                epoch=1,
                state="open",
                active=False,
                step=None,
                plan_hash=None,
                spec=spec,
                created_at=at,
                updated_at=at,
            )
            self._steps[own.migration_id], self._events[own.migration_id] = {}, []
            kind = "claimed"
        else:
            own, kind = replace(own, state="open", spec=own.spec if own.active else spec), "reopened"
        if not own.active:
            self._take(own)
        self._migrations[own.migration_id] = own
        data = {"cluster_id": cluster_id, "source": source, "target": target, "spec": spec}
        self._append(own, kind, owner, data, at)
        return Claim(own.migration_id, own.epoch, owner)

    def take_over(self, migration_id: str, owner: str) -> Claim:
        """A new owner raises the epoch; the old owner's writes fail from then."""
        with self._lock:
            row = self.current(migration_id)
            if row.owner != owner:
                data = {"from_owner": row.owner, "from_epoch": row.epoch}
                row = replace(row, owner=owner, epoch=row.epoch + 1)
                self._migrations[migration_id] = row
                self._append(row, "taken_over", owner, data)
            return Claim(migration_id, row.epoch, owner)

    def renew(self, claim: Claim, why: str) -> Claim:
        """The same owner goes on with the next epoch; writes under the old one fail from then."""
        with self._lock:
            row = replace(self._owned(claim), epoch=claim.epoch + 1)
            self._migrations[row.migration_id] = row
            self._append(row, "renewed", claim.owner, {"from_epoch": claim.epoch, "why": why})
            return Claim(row.migration_id, row.epoch, claim.owner)

    def current(self, migration_id: str) -> MigrationRow:
        """The migration; ``NotFound`` if there is none of this id."""
        with self._lock:
            if migration_id not in self._migrations:
                raise NotFound(f"The journal has no migration {migration_id!r}.")
            return self._migrations[migration_id]

    def find(
        self, *, source: str | None = None, owner: str | None = None, active: bool | None = None
    ) -> list[MigrationRow]:
        """The migrations that match all that is given, oldest first."""
        with self._lock:
            return [
                row
                for row in self._migrations.values()
                if (source is None or row.source == source)
                and (owner is None or row.owner == owner)
                and (active is None or row.active == active)
            ]

    def set_state(self, claim: Claim, state: str, *, active: bool) -> None:
        """Set the migration's state; closing it gives both topics free."""
        ownership.migration_state(state)
        with self._lock:
            row = self._owned(claim)
            if (row.state, row.active) != (state, active):
                self._set(row, claim, state, active)

    def _set(self, row: MigrationRow, claim: Claim, state: str, active: bool) -> MigrationRow:
        data = {"state": state, "active": active, "from_state": row.state, "from_active": row.active}
        if ownership.is_closed(state, active):
            self._free(row.migration_id)
        elif ownership.is_closed(row.state, row.active):
            self._take(row)
        row = replace(row, state=state, active=active)
        self._migrations[row.migration_id] = row
        self._append(row, "state", claim.owner, data)
        return self._migrations[row.migration_id]

    def set_plan(self, claim: Claim, plan_hash: str) -> None:
        """Record the hash of the plan that this migration follows."""
        with self._lock:
            row = self._owned(claim)
            if row.plan_hash != plan_hash:
                self._migrations[row.migration_id] = replace(row, plan_hash=plan_hash)
                self._append(row, "plan", claim.owner, {"plan_hash": plan_hash, "from_plan_hash": row.plan_hash})

    def step(self, migration_id: str, step: str) -> StepRow | None:
        """The step, None if its intent was never written."""
        with self._lock:
            return self._steps.get(migration_id, {}).get(step)

    def steps(self, migration_id: str) -> list[StepRow]:
        """The steps in the order in which they were first intended."""
        with self._lock:
            return list(self._steps.get(migration_id, {}).values())

    def intend(self, claim: Claim, step: str, data: Mapping[str, Any]) -> StepRow:
        """Write the intent before the act; the first one of an acting step makes the migration active."""
        wanted = audit.plain(data)
        with self._lock:
            row = self._owned(claim)
            before = self._steps[row.migration_id].get(step)
            if before is not None and before.state == "done":
                return before
            refused = ownership.intent_refused(claim.migration_id, step, None if before is None else before.state)
            if refused is not None:
                raise Refused(refused)
            activate = ownership.is_acting(step) and not row.active
            if before is not None and before.state == "intended":
                if activate:
                    self._set(row, claim, row.state, True)
                return before
            if activate:
                if ownership.is_closed(row.state, row.active):
                    self._take(row)
                row = replace(row, active=True)
            at = self._at()
            after = StepRow(step, "intended", claim.epoch, wanted, at, None)
            self._steps[row.migration_id][step] = after
            self._migrations[row.migration_id] = replace(row, step=step)
            self._append(row, "step_intended", claim.owner, {"step": step, "data": wanted}, at)
            return after

    def finish(self, claim: Claim, step: str, data: Mapping[str, Any], state: str = "done") -> StepRow:
        """Write how a step ended; ``data`` is laid over what the intent wrote."""
        wanted, state_ = audit.plain(data), ownership.step_state(state)
        with self._lock:
            row = self._owned(claim)
            before = self._steps[row.migration_id].get(step)
            refused = ownership.finish_refused(
                claim.migration_id, step, None if before is None else before.state, state_
            )
            if refused is not None:
                raise Refused(refused)
            merged = {**({} if before is None else before.data), **wanted}
            if before is not None and before.state == state and merged == before.data:
                return before
            at = self._at()
            ended = at if state_ in (StepState.DONE, StepState.UNDONE) else None
            after = StepRow(step, state_.value, claim.epoch, merged, at if before is None else before.started_at, ended)
            self._steps[row.migration_id][step] = after
            if before is None:
                self._migrations[row.migration_id] = replace(row, step=step)
            self._append(row, "step_finished", claim.owner, {"step": step, "state": state_.value, "data": wanted}, at)
            return after

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
        """Become the one who acts; None while another holder's act is under way."""
        with self._lock:
            row = self._owned(claim)
            before, at = self._seats.get(row.migration_id), self._at()
            now = datetime.fromisoformat(at)
            if before is not None and before.holder != holder:
                if now < datetime.fromisoformat(before.until):
                    return None
                row = replace(row, epoch=row.epoch + 1)
                self._migrations[row.migration_id] = row
                self._append(
                    row, "seat_taken_over", claim.owner, ownership.seat_taken_over(before, act, subject, holder), at
                )
            until = (now + timedelta(seconds=lasts_s)).isoformat(timespec="microseconds")
            seat = Seat(
                row.migration_id, act, subject, holder, ownership.next_try(before, act, subject), row.epoch, at, until
            )
            self._seats[row.migration_id] = seat
            if trace is not None:
                said = {"act": act, "subject": subject, "holder": holder, **trace()}
                self._append(row, "act", claim.owner, audit.plain(said), at)
            return replace(claim, epoch=row.epoch), seat

    def leave_seat(self, seat: Seat) -> None:
        """Give the seat free, unless somebody else has it by now."""
        with self._lock:
            if self._seats.get(seat.migration_id) == seat:
                del self._seats[seat.migration_id]

    def seat(self, migration_id: str) -> Seat | None:
        """The act that is under way, None when nobody acts."""
        with self._lock:
            return self._seats.get(migration_id)

    def event(self, claim: Claim, kind: str, actor: str, data: Mapping[str, Any]) -> EventRow:
        """Append one event to the audit trail."""
        with self._lock:
            self._append(self._owned(claim), kind, actor, audit.plain(data))
            return self._chain(claim.migration_id)[-1]

    def events(self, migration_id: str, kinds: Collection[str] = ()) -> list[EventRow]:
        """The audit trail in the order of its rows; of these kinds alone, where some are named."""
        return [e for e in self.trail(migration_id)[1] if not kinds or e.kind in kinds]

    def trail(self, migration_id: str) -> tuple[audit.ChainHead, list[EventRow]]:
        """The end of the trail, and its rows."""
        with self._lock:
            self.current(migration_id)
            rows = list(self._chain(migration_id))
            last = rows[-1].hash if rows else audit.genesis_hash(migration_id)
            return audit.ChainHead(count=len(rows), hash=last), rows

    def close(self) -> None:
        """Nothing to close."""

    def _at(self) -> str:
        now = datetime.now(UTC) if self._clock is None else self._clock.now()
        return now.astimezone(UTC).isoformat(timespec="microseconds")

    def _owned(self, claim: Claim) -> MigrationRow:
        row = self.current(claim.migration_id)
        message = ownership.lost(claim, row)
        if message is not None:
            raise OwnershipLost(message)
        return row

    def _take(self, row: MigrationRow) -> None:
        keys = [(row.cluster_id, row.source), (row.cluster_id, row.target)]
        for key in keys:
            holder = self._topics.get(key)
            if holder is not None and holder != row.migration_id:
                raise Refused(
                    ownership.refusal(self._migrations[holder], alive=None, source=row.source, target=row.target)
                )
        self._topics.update(dict.fromkeys(keys, row.migration_id))

    def _free(self, migration_id: str) -> None:
        self._topics = {k: v for k, v in self._topics.items() if v != migration_id}

    def _replace(self, row: MigrationRow, by: str) -> None:
        data = {"from_owner": row.owner, "from_epoch": row.epoch, "from_state": row.state}
        row = replace(row, epoch=row.epoch + 1, state="failed" if row.state == "open" else row.state)
        self._migrations[row.migration_id] = row
        self._free(row.migration_id)
        self._append(row, "replaced", by, data)

    def _append(self, row: MigrationRow, kind: str, actor: str, data: Mapping[str, Any], at: str | None = None) -> None:
        at = at or self._at()
        rows = self._events[row.migration_id]
        rows.append(EventRow(len(rows) + 1, row.migration_id, row.epoch, at, actor, kind, data, "", ""))
        self._migrations[row.migration_id] = replace(self._migrations[row.migration_id], updated_at=at)

    def _chain(self, migration_id: str) -> list[EventRow]:
        """The events, each with its hash: worked out when somebody reads them."""
        rows = self._events[migration_id]
        first = next((i for i, row in enumerate(rows) if not row.hash), len(rows))
        prev = rows[first - 1].hash if first else audit.genesis_hash(migration_id)
        for i in range(first, len(rows)):
            bare = replace(rows[i], prev_hash=prev)
            rows[i] = replace(bare, hash=audit.hash_of(bare))
            prev = rows[i].hash
        return rows


class FakeEvidence:
    """:class:`topicshift.ports.EvidenceStore` in memory."""

    def __init__(self, base_url: str = "fake://evidence") -> None:
        self.base_url = base_url.rstrip("/")
        self.files: dict[tuple[str, str], bytes] = {}

    def write(self, migration_id: str, name: str, data: bytes | str) -> str:
        """Keep the file and return its URL."""
        url = self.url(migration_id, name)
        self.files[migration_id, name] = data.encode() if isinstance(data, str) else bytes(data)
        return url

    def read(self, migration_id: str, name: str) -> bytes | None:
        """The file's content, None if there is no such file."""
        self.url(migration_id, name)
        return self.files.get((migration_id, name))

    def names(self, migration_id: str) -> list[str]:
        """The names of the migration's files, sorted."""
        _checked(migration_id)
        return sorted(name for migration, name in self.files if migration == migration_id)

    def url(self, migration_id: str, name: str) -> str:
        """The URL of a file, written or not."""
        return f"{self.base_url}/{_checked(migration_id)}/{_checked(name)}"


def _checked(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise SpecError(f"{text!r} is no name for evidence.")
    return text
