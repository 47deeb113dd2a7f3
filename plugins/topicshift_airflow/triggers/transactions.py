"""Waits in the triggerer until transactions that stand still have ended, or Kafka should have ended them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from topicshift.core.errors import TopicshiftError, Unreadable

LOOK_EVERY_S = 2.0


class TransactionsTrigger(BaseTrigger):
    """``wanted``: [partition, producer id, start offset] of each; ``deadline`` in seconds since the epoch."""

    def __init__(
        self, *, kafka_conn_id: str, topic: str, wanted: Sequence[Sequence[int | None]], deadline: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kafka_conn_id = kafka_conn_id
        self.topic = topic
        self.wanted = [list(w) for w in wanted]
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; none of them is a secret."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "kafka_conn_id": self.kafka_conn_id,
                "topic": self.topic,
                "wanted": self.wanted,
                "deadline": self.deadline,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; one event ends it. An error of the product is an event too."""
        # A task that is woken at the very moment it went to sleep can meet its own past in the scheduler.
        await asyncio.sleep(1.0)
        try:
            yield TriggerEvent(await self.wait())
        except TopicshiftError as error:
            yield TriggerEvent({"status": "error", "message": str(error), "retryable": error.retryable})

    async def wait(self) -> dict[str, Any]:
        """Look every other second; a look that fails is tried again until the deadline."""
        from topicshift.acts.transactions import open_transactions
        from topicshift.adapters.clock import SystemClock
        from topicshift.adapters.kafka.admin import KafkaAdmin
        from topicshift.adapters.kafka.connection import from_airflow_extra

        connection = await BaseHook.aget_connection(self.kafka_conn_id)
        admin = KafkaAdmin(await asyncio.to_thread(from_airflow_extra, connection.extra_dejson))
        wanted = {tuple(w) for w in self.wanted}
        try:
            while True:
                over = time.time() >= self.deadline
                try:
                    seen = await asyncio.to_thread(open_transactions, admin, self.topic, SystemClock())
                except Unreadable:
                    if over:
                        raise
                else:
                    left = wanted & {(t.partition, t.producer_id, t.start_offset) for t in seen}
                    if not left:
                        return {"status": "ended"}
                    if over:
                        return {"status": "open", "left": sorted(str(w) for w in left)}
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await asyncio.to_thread(admin.close)
