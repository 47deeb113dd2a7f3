"""Whether a migration still stands as the task left it that waits for it in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from topicshift.core.errors import TopicshiftError
from topicshift.core.plan.ownership import called_off
from topicshift.core.rows import Claim, MigrationRow

if TYPE_CHECKING:
    from topicshift.ports import Journal

T = TypeVar("T")

CHANGED = {"status": "changed"}
"""Event: the journal says something else than when the task began to wait, so the task has to look."""

STANDING_EVERY_S = 5.0
"""Seconds from one look at the migration to the next."""


class Reader:
    """The journal for as long as a trigger waits; opened anew after a fault. All its calls come from one thread."""

    def __init__(self, log: Any) -> None:
        self.log = log
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
            self.log.warning("the journal could not be read: %s", error)
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


def stands(row: MigrationRow, claim: Claim) -> bool:
    """Whether whoever acts under this claim may still act: it has not ended, and nobody has gone on since."""
    return not called_off(row) and (row.owner, row.epoch) == (claim.owner, claim.epoch)


async def while_standing(
    wait: Coroutine[Any, Any, dict[str, Any]], reader: Reader, migration_id: str, claim: Claim | None = None
) -> dict[str, Any]:
    """What the wait returns; ``CHANGED``, and the wait is called off, once the migration has ended or changed hands.

    ``claim``: it is called off as soon as that is not the current one any more.
    """
    if not migration_id:
        return await wait
    tasks = asyncio.ensure_future(wait), asyncio.ensure_future(_moved(reader, migration_id, claim))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _moved(reader: Reader, migration_id: str, claim: Claim | None) -> dict[str, Any]:
    first = None
    while True:
        await asyncio.sleep(STANDING_EVERY_S)
        row = await reader.read(lambda journal: journal.current(migration_id))
        if row is None:  # a journal that does not answer says nothing of the migration
            continue
        first = first or row
        held = stands(row, claim) if claim is not None else not called_off(row)
        if not held or (row.owner, row.state) != (first.owner, first.state):
            reader.log.info("%s is %s, owned by %s: the wait ends", migration_id, row.state, row.owner)
            return dict(CHANGED)
