"""Waits in the triggerer that look at the journal, or at the clock alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import TriggerEvent

from topicshift.core.errors import TopicshiftError
from topicshift_airflow.triggers import Trigger

if TYPE_CHECKING:
    from topicshift.ports import Journal

T = TypeVar("T")
LOOK_EVERY_S = 2.0
OPEN = "intended"
"""State of the journal row of a question that nobody has answered."""

ASK_AIRFLOW_EVERY = 15
"""Looks from one question for the state of the owner's run to the next, while no freeze is under way."""


@dataclass(kw_only=True, eq=False, repr=False)
class ClockTrigger(Trigger):
    """Waits until a moment, in seconds since the epoch."""

    moment: float

    def left(self) -> float:
        """Seconds until the moment."""
        return self.moment - datetime.now(UTC).timestamp()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; one event ends it."""
        # Airflow loses an event that is fired while the task is still being deferred.
        await asyncio.sleep(1.0)
        yield TriggerEvent({"status": await self.wait()})

    async def wait(self) -> str:
        """Wait, and say what has come."""
        await asyncio.sleep(max(0.0, self.left()))
        return "moment"


class _Reader:
    """The journal for as long as a trigger waits; opened anew after a fault. All its calls come from one thread."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._journal: Journal | None = None

    async def read(self, look: Callable[[Journal], T]) -> T | None:
        """What ``look`` returns; None where the journal could not be read."""
        from asgiref.sync import sync_to_async

        return await sync_to_async(self._read)(look)

    def _read(self, look: Callable[[Journal], T]) -> T | None:
        from topicshift_airflow.runtime import open_journal

        try:
            if self._journal is None:
                self._journal = open_journal()
            return look(self._journal)
        except TopicshiftError as error:
            self._log.warning("the journal could not be read: %s", error)
            self._close()
            return None

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def close(self) -> None:
        """Let it go."""
        from asgiref.sync import sync_to_async

        await sync_to_async(self._close)()


@dataclass(kw_only=True, eq=False, repr=False)
class AnswerTrigger(ClockTrigger):
    """Waits until the question in this journal row is answered, or has changed, or its time is over.

    ``stale`` is the task instance for which Airflow still shows an earlier question; ``option`` the answer by which
    that one is withdrawn first.
    """

    migration_id: str
    row: str
    stale: str
    option: str

    async def wait(self) -> str:
        """Look every two seconds."""
        from asgiref.sync import sync_to_async

        await sync_to_async(self._withdraw)()
        reader = _Reader(self.log)
        try:
            first = await reader.read(self._look)
            while self.left() > 0:
                now = await reader.read(self._look)
                # A quick person has answered before the first look: what is not open any more has changed.
                if now is not None and (now != first or now[0] != OPEN):
                    return "changed"
                await asyncio.sleep(LOOK_EVERY_S)
            return "moment"
        finally:
            await reader.close()

    def _withdraw(self) -> None:
        from uuid import UUID

        from airflow.sdk.exceptions import AirflowRuntimeError

        from topicshift_airflow.airflow_api import withdraw

        try:
            withdraw(UUID(self.stale), self.option)
        except AirflowRuntimeError as error:
            self.log.info("the earlier question is answered already, or gone: %s", error)

    def _look(self, journal: Journal) -> tuple[str, Any]:
        row = journal.step(self.migration_id, self.row)
        return (row.state, [row.data.get("about"), row.data.get("first")]) if row is not None else ("", None)


@dataclass(kw_only=True, eq=False, repr=False)
class FreezeTrigger(Trigger):
    """Watches one migration until nothing is left to watch, or its freeze is abandoned."""

    migration_id: str

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every two seconds; a look that fails says nothing of the freeze."""
        from topicshift_airflow.abandoned import look

        await asyncio.sleep(1.0)
        looks, found = 0, None
        reader = _Reader(self.log)
        try:
            while found is None:
                if looks:
                    await asyncio.sleep(LOOK_EVERY_S)
                ask = looks % ASK_AIRFLOW_EVERY == 0
                found = await reader.read(lambda journal, ask=ask: look(journal, self.migration_id, ask_airflow=ask))  # type: ignore[misc]
                looks += 1
        finally:
            await reader.close()
        yield TriggerEvent({"status": found})
