"""Alarms of a drain reach people: the task's log, the audit trail, and whatever notifiers are configured."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from topicshift.core.errors import TopicshiftError
from topicshift.ports import Claim

if TYPE_CHECKING:
    from topicshift.core.drain.progress import DrainProgress, GroupProgress

log = logging.getLogger("topicshift")


GATE = "gate_shut"
"""Code of the alarm of a gate that stays shut."""


class Alarms:
    """Raises each alarm of a group once, and says when it is over. For use in the triggerer.

    Whatever cannot be told to somebody is logged and never ends the wait. Nobody is told of a migration that has ended,
    or that somebody goes on with under another claim.
    """

    def __init__(self, claim: Claim, topic: str) -> None:
        self._claim = claim
        self._topic = topic
        self._raised: dict[str, str] = {}

    async def take(self, progress: DrainProgress) -> None:
        """Look at one sample of the drain."""
        from asgiref.sync import sync_to_async

        stuck = {g.group: g for g in progress.alarms}
        for group, row in stuck.items():
            code = row.alarm.value if row.alarm else ""
            if self._raised.get(group) != code:
                self._raised[group] = code
                # Connections and variables are asked of Airflow by the triggerer's own loop.
                await sync_to_async(self._raise)(row, code)
        for group in sorted(set(self._raised) - set(stuck)):
            code = self._raised.pop(group)
            log.info("%s goes on: %s is over", group, code)
            await sync_to_async(self._record)("alarm_over", {"group": group, "alarm": code})

    async def gate(self, waits: str) -> None:
        """The gate before the freeze is shut for what ``waits`` says; empty: it waits for nothing any more."""
        from asgiref.sync import sync_to_async

        if waits and GATE not in self._raised.values():
            self._raised[""] = GATE
            text = f"The gate before the freeze of {self._topic} stays shut, and nobody is stopped yet: {waits}"
            await sync_to_async(self._tell)("", GATE, None, text)
        elif not waits and self._raised.pop("", ""):
            await sync_to_async(self._record)("alarm_over", {"group": "", "alarm": GATE})

    def _raise(self, row: GroupProgress, code: str) -> None:
        self._tell(row.group, code, row.lag, row.alarm_text)

    def _tell(self, group: str, code: str, lag: int | None, text: str) -> None:
        from topicshift_airflow.notifiers import tell

        if not self._stands():
            return
        log.warning("STUCK: %s", text)
        about = {"group": group, "lag": lag, "text": text}
        told, failed = tell(
            {
                "migration": self._claim.migration_id,
                "run": self._claim.owner,
                "topic": self._topic,
                "code": code,
                **about,
            }
        )
        data = {"alarm": code, "told": told, **about}
        self._record("alarm", {**data, "not_told": failed} if failed else data)

    def _stands(self) -> bool:
        """Whether there is still something to be stuck; a journal that does not answer keeps no alarm back."""
        from topicshift_airflow.runtime import open_journal
        from topicshift_airflow.triggers.standing import stands

        try:
            journal = open_journal()
            try:
                return stands(journal.current(self._claim.migration_id), self._claim)
            finally:
                journal.close()
        except Exception as error:  # noqa: BLE001 - a journal that is away must keep no alarm back
            log.warning("whether the migration goes on could not be read: %s", type(error).__name__)
            return True

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        from topicshift_airflow.runtime import open_journal
        from topicshift_airflow.triggers.standing import stands

        try:
            journal = open_journal()
            try:
                if stands(journal.current(self._claim.migration_id), self._claim):
                    journal.event(self._claim, kind, "topicshift", data)
            finally:
                journal.close()
        except TopicshiftError as error:
            log.warning("the alarm could not be written to the audit trail: %s", error)
        except Exception as error:  # noqa: BLE001 - an alarm that is not on record must not end the wait
            log.warning("the alarm could not be written to the audit trail: %s", type(error).__name__)
