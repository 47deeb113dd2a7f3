"""Waits in the triggerer, on AdminClient futures: for the gate before the freeze, and for the drain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from topicshift.core.errors import TopicshiftError

if TYPE_CHECKING:
    from topicshift.core.drain_progress import DrainProgress
    from topicshift.steps.drain import DrainTaker

WRITE_PROGRESS_S = 3.0


class _DrainWait(BaseTrigger):
    """What both waits share. Arguments are small and hold no secret; the connection is looked up here.

    ``deadline`` is in seconds since the epoch. ``inputs`` are the plain values of ``DrainInputs``.
    """

    def __init__(self, *, kafka_conn_id: str, migration_id: str, inputs: Mapping[str, Any], deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kafka_conn_id = kafka_conn_id
        self.migration_id = migration_id
        self.inputs = dict(inputs)
        self.deadline = deadline

    def arguments(self) -> dict[str, Any]:
        """The arguments of :meth:`serialize`."""
        return {
            "kafka_conn_id": self.kafka_conn_id,
            "migration_id": self.migration_id,
            "inputs": self.inputs,
            "deadline": self.deadline,
        }

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; one event ends it. An error of the product is an event too, so that the step can name it."""
        try:
            yield TriggerEvent(await self.wait())
        except TopicshiftError as error:
            yield TriggerEvent({"status": "error", "message": str(error), "retryable": error.retryable})

    async def wait(self) -> dict[str, Any]:
        """The wait itself; returns the event's payload."""
        raise NotImplementedError

    async def taker(self, fence: Any = None) -> DrainTaker:
        """A reader on the cluster of the connection, and what to certify."""
        from topicshift.adapters.kafka.connect import from_airflow_extra
        from topicshift.adapters.kafka.reader import KafkaDrainReader
        from topicshift.steps.drain import DrainTaker

        connection = await BaseHook.aget_connection(self.kafka_conn_id)
        config = await asyncio.to_thread(from_airflow_extra, connection.extra_dejson)
        inputs = inputs_of(self.inputs, readers=fence is not None)
        return DrainTaker(KafkaDrainReader.from_config(config), inputs, fence=fence)


def inputs_of(values: Mapping[str, Any], *, readers: bool = False) -> Any:
    """``DrainInputs`` from its plain values. ``readers``: with those that commit nothing, who count after the fence."""
    from topicshift.adapters.readers import evidence_source
    from topicshift.steps.drain import DrainInputs

    return DrainInputs(
        topic=values["topic"],
        declared=tuple(values["declared"]),
        compare=values["compare"],
        ignored=dict(values["ignored"]),
        accepted_lost=frozenset(values["accepted_lost"]),
        evidence=evidence_source(values.get("readers", ()), values["topic"]) if readers else None,
    )


class GateTrigger(_DrainWait):
    """Waits until every group would drain well within the freeze budget, and the armed verifier says ready."""

    def __init__(
        self, *, budget_s: float, ready_file: str, ended_file: str, pause_s: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.budget_s = budget_s
        self.ready_file = ready_file
        self.ended_file = ended_file
        self.pause_s = pause_s

    def arguments(self) -> dict[str, Any]:
        """The arguments, with the budget and the verifier's files."""
        return {
            **super().arguments(),
            "budget_s": self.budget_s,
            "ready_file": self.ready_file,
            "ended_file": self.ended_file,
            "pause_s": self.pause_s,
        }

    async def wait(self) -> dict[str, Any]:
        """Look about twice a second; say what is waited for whenever that changes."""
        from topicshift.core.gate import Gate

        # A task that is woken at the very moment it went to sleep can meet its own past in the scheduler.
        await asyncio.sleep(self.pause_s)
        taker = await self.taker()
        gate, said = Gate(self.budget_s), ""
        try:
            while True:
                at = taker.now().timestamp()
                decision = gate.add(await taker.take(second_sample=False), at)
                waits = [*decision.waits, *await asyncio.to_thread(self._verifier)]
                if not waits and at < self.deadline:
                    return {"status": "ready", "seconds": dict(decision.seconds)}
                text = "; ".join(waits)
                if text != said:
                    self.log.info("not ready for the fence: %s", text)
                    said = text
                if at >= self.deadline:
                    return {"status": "deadline", "waits": waits[:20]}
                await asyncio.sleep(0.5)
        finally:
            await taker.reader.close()

    def _verifier(self) -> list[str]:
        """What the armed verifier keeps the gate waiting for. One that has ended left its file of readiness behind."""
        if Path(self.ended_file).exists():
            return ["the armed drain verifier: it has ended; clear verify_drain.drain_verification to start it again"]
        return [] if Path(self.ready_file).exists() else ["the armed drain verifier: it has not said ready yet"]


class DrainTrigger(_DrainWait):
    """Waits until every group has read every partition up to the fence. Writes the progress as evidence."""

    def __init__(self, *, progress_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.progress_name = progress_name

    def arguments(self) -> dict[str, Any]:
        """The arguments, with the name of the progress file."""
        return {**super().arguments(), "progress_name": self.progress_name}

    async def wait(self) -> dict[str, Any]:
        """Follow the drain; log each change, raise alarms in the log."""
        from topicshift.adapters.evidence import evidence_from_env
        from topicshift.core.certificate import Verdict
        from topicshift.core.fence_record import FenceRecord
        from topicshift.steps.drain import DrainWatch, FencePoint

        store = evidence_from_env()
        data = await asyncio.to_thread(store.read, self.migration_id, "fence.json")
        if data is None:
            return {
                "status": "error",
                "message": "fence.json is missing; clear stop_producers.fence.",
                "retryable": False,
            }
        taker = await self.taker(FencePoint.of(FenceRecord.model_validate_json(data)))
        watch = DrainWatch(taker, timeout_s=max(0.0, self.deadline - taker.now().timestamp()))
        said, written, alarms = "", 0.0, set[str]()
        progress: DrainProgress | None = None
        try:
            async for progress in watch:
                line = progress.line()
                if line != said:
                    self.log.info("%s", line)
                    said = line
                for group in progress.alarms:
                    if group.alarm_text not in alarms:
                        alarms.add(group.alarm_text)
                        self.log.warning("STUCK: group %s: %s", group.group, group.alarm_text)
                if progress.at - written >= WRITE_PROGRESS_S or progress.certificate.verdict is Verdict.DRAINED:
                    written = progress.at
                    await asyncio.to_thread(store.write, self.migration_id, self.progress_name, _series(progress))
        finally:
            await taker.reader.close()
        if watch.certificate is not None and watch.certificate.verdict is Verdict.DRAINED:
            return {"status": "drained"}
        return {"status": "deadline", "left": said[:2000], "why": _advice(progress)}


def _series(progress: DrainProgress) -> str:
    """The progress as a series for charts: per group (seconds, lag), oldest first."""
    return json.dumps(
        {
            "at": progress.at,
            "groups": [
                {
                    "group": g.group,
                    "lag": g.lag,
                    "rate": g.rate,
                    "seconds_left": g.left.seconds,
                    "sure": g.left.sure,
                    "alarm": g.alarm.value if g.alarm else None,
                    "slowest": [{"partition": s.partition, "lag": s.lag} for s in g.slowest],
                    "series": g.series,
                }
                for g in progress.groups
            ],
        }
    )


def _advice(progress: DrainProgress | None) -> str:
    if progress is None:
        return ""
    lines = [
        f"{g.group}: {a.reason} on {list(a.partitions)[:10]}: {a.remedy}"
        for g in progress.groups
        for a in g.advice
        if g.verdict.value != "drained"
    ]
    return "; ".join(lines)[:3000]
