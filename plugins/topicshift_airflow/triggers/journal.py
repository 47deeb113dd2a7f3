"""Waits in the triggerer that look at the journal, or at the clock alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from topicshift.core.errors import TopicshiftError
from topicshift_airflow.triggers import Trigger
from topicshift_airflow.triggers.standing import CHANGED, Reader, while_standing

if TYPE_CHECKING:
    from topicshift.ports import Journal, MigrationRow

LOOK_EVERY_S = 2.0
OPEN = "intended"
"""State of the journal row of a question that nobody has answered, and of an order that stands."""

QUIET_S = 20.0
"""Seconds without telling people after a time when there was nobody to tell."""

END_S = 5.0
"""Seconds for which the end of a watch waits for what is being told; the next task tells the rest."""

MOMENT = {"status": "moment"}
"""Event: the time is over. ``CHANGED``: the question was answered elsewhere, or is about something else by now."""

ASK_AIRFLOW_EVERY = 15
"""Looks from one question for the state of the owner's run to the next, while no freeze is under way."""


@dataclass(kw_only=True, eq=False, repr=False)
class ClockTrigger(Trigger):
    """Waits until a moment, in seconds since the epoch, or until the migration has ended or has another owner.

    Without ``migration_id`` the moment alone counts.
    """

    moment: float
    migration_id: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._journal = Reader(self.log)

    def left(self) -> float:
        """Seconds until the moment."""
        return self.moment - datetime.now(UTC).timestamp()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; one event ends it."""
        # Airflow loses an event that is fired while the task is still being deferred.
        await asyncio.sleep(1.0)
        try:
            yield TriggerEvent(await while_standing(self.wait(), self._journal, self.migration_id))
        finally:
            await self._journal.close()

    async def wait(self) -> dict[str, Any]:
        """Wait, and say what has come."""
        await asyncio.sleep(max(0.0, self.left()))
        return dict(MOMENT)


@dataclass(kw_only=True, eq=False, repr=False)
class RowTrigger(ClockTrigger):
    """Waits until this journal row is another one than at the first look, or as :class:`ClockTrigger`."""

    row: str

    async def wait(self) -> dict[str, Any]:
        """Look every two seconds."""
        first = await self._journal.read(self._look)
        while self.left() > 0:
            now = await self._journal.read(self._look)
            # A quick person was there before the first look: a row that is not open any more has changed.
            if now is not None and (now != first or now[0] != OPEN):
                return dict(CHANGED)
            await asyncio.sleep(LOOK_EVERY_S)
        return dict(MOMENT)

    def _look(self, journal: Journal) -> tuple[str, Any]:
        row = journal.step(self.migration_id, self.row)
        return (row.state, self.of(row.data)) if row is not None else ("", None)

    def of(self, data: Mapping[str, Any]) -> Any:
        """What of the row's data counts."""
        return dict(data)


@dataclass(kw_only=True, eq=False, repr=False)
class AnswerTrigger(RowTrigger):
    """Waits until the question in this journal row is answered elsewhere, or has changed, or its time is over.

    An answer that a person gives in Airflow wakes the task by itself, without this trigger. ``ti_id`` is the task
    instance. Where Airflow still shows an earlier question for it, ``option`` is the answer by which that one is
    withdrawn first; it is empty where Airflow shows this very question.
    """

    ti_id: str
    option: str = ""

    async def wait(self) -> dict[str, Any]:
        """Withdraw the earlier question, or see whether this one is answered already; then look."""
        from asgiref.sync import sync_to_async

        said = await sync_to_async(self._withdraw if self.option else self._answer)()
        return said if said is not None else await super().wait()

    def of(self, data: Mapping[str, Any]) -> Any:
        """What the question is about, and its first yes where two are wanted."""
        return [data.get("about"), data.get("first")]

    def _withdraw(self) -> None:
        from uuid import UUID

        from airflow.sdk.exceptions import AirflowRuntimeError

        from topicshift_airflow.airflow_api import withdraw

        try:
            withdraw(UUID(self.ti_id), self.option)
        except AirflowRuntimeError as error:
            self.log.info("the earlier question is answered already, or gone: %s", error)

    def _answer(self) -> dict[str, Any] | None:
        """The answer that came before the task was parked: Airflow keeps it, and wakes nobody with it."""
        from uuid import UUID

        from airflow.sdk.exceptions import AirflowRuntimeError

        from topicshift_airflow.airflow_api import answer_of

        try:
            return answer_of(UUID(self.ti_id))
        except AirflowRuntimeError as error:
            self.log.warning("whether the question is answered already cannot be looked up: %s", error)
            return None


class _Teller:
    """Tells people what happens in a freeze, beside the watch: it never holds up the next look."""

    def __init__(self, migration_id: str) -> None:
        self._migration_id = migration_id
        self._telling: asyncio.Task[None] | None = None
        self._quiet_until = 0.0
        self._row: MigrationRow | None = None
        self._freeze = ""

    async def look(self, reader: Reader, *, rarely: bool) -> None:
        """Begin to tell what nobody has told, if there is something, and nobody is at it.

        While no freeze is under way that is looked for where ``rarely`` says so.
        """
        from asgiref.sync import sync_to_async

        now = datetime.now(UTC)
        if (self._telling is not None and not self._telling.done()) or now.timestamp() < self._quiet_until:
            return
        if await reader.read(lambda journal: self._waiting(journal, now, rarely)):
            # A thread of its own: a notifier that hangs must not keep the reader's from looking.
            self._telling = asyncio.create_task(sync_to_async(self._tell, thread_sensitive=False)())

    def _waiting(self, journal: Journal, now: datetime, rarely: bool) -> bool:
        from topicshift.core.engine.words import Row, StepState
        from topicshift_airflow.abandoned import way_under_way
        from topicshift_airflow.notices import waiting

        row = journal.step(self._migration_id, way_under_way(journal, self._migration_id) + Row.FREEZE)
        before, self._freeze = self._freeze, row.state if row is not None else ""
        if not rarely and self._freeze == before and self._freeze not in (StepState.INTENDED, StepState.UNDOING):
            return False
        self._row = self._row or journal.current(self._migration_id)
        return bool(waiting(journal, self._row, now))

    def _tell(self) -> None:
        from topicshift_airflow.notices import log, tell_untold
        from topicshift_airflow.runtime import journal

        try:
            with journal() as opened:
                told = tell_untold(opened, self._migration_id, datetime.now(UTC))
        except TopicshiftError as error:
            log.warning("what has happened could not be told to people: %s", error)
        except Exception as error:  # noqa: BLE001 - telling people must not end the watch
            log.warning("what has happened could not be told to people: %s", type(error).__name__)
        else:
            if told:
                return
        # Nobody is configured, somebody else tells, or it has failed.
        self._quiet_until = datetime.now(UTC).timestamp() + QUIET_S

    async def end(self) -> None:
        """Let what is being told be told, for a while."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=END_S)


@dataclass(kw_only=True, eq=False, repr=False)
class FreezeTrigger(Trigger):
    """Watches one migration until nothing is left to watch, or its freeze is abandoned."""

    migration_id: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every two seconds; a look that fails says nothing of the freeze."""
        from topicshift_airflow.abandoned import look

        await asyncio.sleep(1.0)
        looks, found = 0, None
        reader, teller = Reader(self.log), _Teller(self.migration_id)
        try:
            while found is None:
                if looks:
                    await asyncio.sleep(LOOK_EVERY_S)
                ask = looks % ASK_AIRFLOW_EVERY == 0
                found = await reader.read(lambda journal, ask=ask: look(journal, self.migration_id, ask_airflow=ask))  # type: ignore[misc]
                looks += 1
                await teller.look(reader, rarely=ask)
            await teller.end()
        finally:
            await reader.close()
        yield TriggerEvent({"status": found})
