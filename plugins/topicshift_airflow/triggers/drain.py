"""Waits in the triggerer, on AdminClient futures: for the gate before the freeze, and for the drain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import TriggerEvent

from topicshift.core.errors import TopicshiftError, Transient
from topicshift.core.plan.ownership import called_off
from topicshift.core.rows import Claim
from topicshift_airflow.triggers import Trigger
from topicshift_airflow.triggers.standing import Reader, while_standing

if TYPE_CHECKING:
    from topicshift.acts.drain import DrainTaker
    from topicshift.adapters.rest import Endpoint, Endpoints
    from topicshift.core.drain.progress import DrainProgress

WRITE_PROGRESS_S = 3.0


@dataclass(kw_only=True, eq=False, repr=False)
class _DrainWait(Trigger):
    """What both waits share. The connection is looked up here.

    ``deadline`` is in seconds since the epoch. ``inputs`` are the plain values of ``DrainInputs``. ``owner`` and
    ``epoch`` are the run's claim, under which alarms go into the audit trail: once the migration has ended, or somebody
    has gone on under another claim, the wait is over.
    """

    kafka_conn_id: str
    migration_id: str
    inputs: Mapping[str, Any]
    deadline: float
    owner: str
    epoch: int

    @property
    def claim(self) -> Claim:
        """The run's claim."""
        return Claim(self.migration_id, self.epoch, self.owner)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._journal = Reader(self.log)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; one event ends it. An error of the product is an event too, so that the step can name it."""
        try:
            yield TriggerEvent(await while_standing(self.wait(), self._journal, self.migration_id, self.claim))
        except TopicshiftError as error:
            yield TriggerEvent({"status": "error", "message": str(error), "retryable": error.retryable})
        finally:
            await self._journal.close()

    async def wait(self) -> dict[str, Any]:
        """The wait itself; returns the event's payload."""
        raise NotImplementedError

    async def keep(self, name: str, text: str) -> None:
        """Write what was seen so far, for charts. It proves nothing, so a store that does not take it ends no wait.

        Nothing is written any more once the migration has ended: the audit trail names the file as it was then.
        """
        row = await self._journal.read(lambda journal: journal.current(self.migration_id))
        if row is not None and called_off(row):
            return
        try:
            await asyncio.to_thread(_write, self.migration_id, name, text)
        except TopicshiftError as error:
            self.log.warning("the progress could not be kept: %s", error)

    async def taker(self, fence: Any = None, stuck_after_s: float = 60.0) -> DrainTaker:
        """A reader on the cluster of the connection, and what to certify."""
        # Clients take long to import: in a thread, or every other trigger would wait, and Airflow warn of it.
        await asyncio.to_thread(import_module, "topicshift.adapters.kafka.reader")
        from topicshift.acts.drain import DrainTaker
        from topicshift.acts.drain_inputs import DrainConfig
        from topicshift.adapters.kafka.connection import from_airflow_extra
        from topicshift.adapters.kafka.reader import KafkaDrainReader

        connection = await BaseHook.aget_connection(self.kafka_conn_id)
        config = await asyncio.to_thread(from_airflow_extra, connection.extra_dejson)
        inputs = inputs_of(self.inputs, readers=fence is not None, endpoints=await endpoints_of(self.inputs))
        look = DrainConfig(stuck_after_s=stuck_after_s)
        return DrainTaker(KafkaDrainReader.from_config(config), inputs, fence=fence, config=look)


def _write(migration_id: str, name: str, text: str) -> None:
    from topicshift.adapters.evidence import evidence_from_env

    evidence_from_env().write(migration_id, name, text)


async def endpoints_of(values: Mapping[str, Any]) -> Endpoints:
    """Where the workers of connectors answer whose own offsets are evidence: a trigger looks connections up once.

    Raises ``Transient`` for one that is not found: Airflow says so of one that it could not look up, too.
    """
    from topicshift.core.spec.locations import connection_of
    from topicshift_airflow.runtime import endpoint_in, no_endpoint

    named = [found[0] for r in values.get("readers", ()) if (found := connection_of(r["location"])) is not None]
    known: dict[str, Endpoint | TopicshiftError] = {}
    for name in dict.fromkeys(named):
        try:
            known[name] = endpoint_in(name, await BaseHook.aget_connection(name))
        except AirflowNotFoundException as error:
            raise Transient(str(no_endpoint(name))) from error
        except TopicshiftError as error:
            known[name] = error

    def endpoint_of(name: str) -> Endpoint:
        found = known.get(name) or no_endpoint(name)
        if isinstance(found, TopicshiftError):
            raise found
        return found

    return endpoint_of


def inputs_of(values: Mapping[str, Any], *, readers: bool = False, endpoints: Endpoints | None = None) -> Any:
    """``DrainInputs`` from its plain values.

    ``readers``: with all readers that commit nothing, who count after the fence; before it, with those alone that are
    consumers of the spec. ``endpoints``: see :func:`endpoints_of`; by default from the environment.
    """
    from topicshift.acts.drain_inputs import DrainInputs
    from topicshift.adapters.connectors import asks_of
    from topicshift.adapters.readers import evidence_source, places_from_env
    from topicshift.adapters.rest import endpoint_from_env

    evidence = evidence_source(
        [r for r in values.get("readers", ()) if readers or r["name"] in values.get("own", ())],
        values["topic"],
        places=values["places"] if "places" in values else places_from_env(),
        ask_of=asks_of(endpoints or endpoint_from_env),
    )
    return DrainInputs.from_values(values, evidence=evidence)


@dataclass(kw_only=True, eq=False, repr=False)
class GateTrigger(_DrainWait):
    """Waits until every group would drain well within the freeze budget, and the armed verifier says ready.

    A gate that stays shut for ``alarm_after_s`` tells people. ``drain`` False: the groups are not waited for, only the
    verifier.
    """

    budget_s: float
    alarm_after_s: float
    pause_s: float = 1.0
    drain: bool = True

    async def wait(self) -> dict[str, Any]:
        """Look about twice a second; say what is waited for whenever that changes."""
        from topicshift.core.drain.gate import Gate
        from topicshift.core.drain.names import GATE
        from topicshift.core.metrics import of_gate
        from topicshift.core.news import News
        from topicshift_airflow.alarms import Alarms
        from topicshift_airflow.metrics import meter_of

        # Airflow loses an event that is fired while the task is still being deferred.
        await asyncio.sleep(self.pause_s)
        taker = await self.taker()
        gate, news, began = Gate(self.budget_s), News(), taker.now().timestamp()
        alarms = Alarms(self.claim, self.inputs["topic"])
        topic, meter = str(self.inputs["topic"]), meter_of(self.inputs["topic"], trigger=True)
        written = 0.0
        try:
            while True:
                at = taker.now().timestamp()
                waits = list[str]()
                try:
                    if self.drain:
                        seen = await taker.take(second_sample=False)
                        decision = gate.add(seen, at)
                        waits += decision.waits
                        if meter is not None:
                            meter.drain(partial(of_gate, topic, seen, decision))
                    waits += await asyncio.to_thread(self._verifier)
                except Transient as error:
                    # A broker that is restarted in these hours: unknown keeps the gate shut, and ends nothing.
                    waits = [str(error)]
                if not waits or at >= self.deadline:
                    await alarms.gate("")
                    return {"status": "deadline" if at >= self.deadline else "ready"}
                text = "; ".join(waits)
                if news(text, at):
                    self.log.info("not ready for the fence: %s", text)
                if self.drain and at - written >= WRITE_PROGRESS_S:
                    written = at
                    await self.keep(GATE, json.dumps(gate.progress(at, waits)))
                if at - began >= self.alarm_after_s:
                    await alarms.gate(text)
                await asyncio.sleep(0.5)
        finally:
            await taker.reader.close()

    def _verifier(self) -> list[str]:
        """What the armed verifier keeps the gate waiting for."""
        from topicshift.adapters.clock import SystemClock
        from topicshift.adapters.verifier import FileVerifier

        state, why = FileVerifier(self.migration_id, SystemClock()).state()
        return [] if state == "ready" else [f"the armed drain verifier is {state}" + (f" ({why})" if why else "")]


@dataclass(kw_only=True, eq=False, repr=False)
class DrainTrigger(_DrainWait):
    """Waits until every group has read every partition up to the fence. Writes the progress as evidence.

    ``fence`` holds offsets (by partition), topic id and time (ISO 8601) of the fence. ``alarm_after_s``: an alarm for a
    group that has not come nearer for so many seconds.
    """

    fence: Mapping[str, Any]
    progress_name: str
    alarm_after_s: float = 60.0

    async def wait(self) -> dict[str, Any]:
        """Follow the drain; log each change, raise alarms, keep the series."""
        from topicshift.acts.drain_watch import DrainWatch
        from topicshift.core.drain.certificate import Verdict
        from topicshift.core.fence.point import FencePoint
        from topicshift.core.metrics import of_progress
        from topicshift_airflow.alarms import Alarms
        from topicshift_airflow.metrics import meter_of

        taker = await self.taker(FencePoint.model_validate(self.fence), self.alarm_after_s)
        watch = DrainWatch(taker, timeout_s=max(0.0, self.deadline - taker.now().timestamp()))
        alarms = Alarms(self.claim, self.inputs["topic"])
        said, written = "", 0.0
        topic, meter = str(self.inputs["topic"]), meter_of(self.inputs["topic"], trigger=True)
        progress: DrainProgress | None = None
        try:
            async for progress in watch:
                line = progress.line()
                if line != said:
                    self.log.info("%s", line)
                    said = line
                await alarms.take(progress)
                if meter is not None:
                    meter.drain(partial(of_progress, topic, progress))
                if progress.at - written >= WRITE_PROGRESS_S:
                    written = progress.at
                    await self.keep(self.progress_name, series(progress))
        finally:
            await taker.reader.close()
            if progress is not None and progress.at != written:
                await self.keep(self.progress_name, series(progress))
        if watch.certificate is not None and watch.certificate.verdict is Verdict.DRAINED:
            return {"status": "drained"}
        texts = [g.alarm_text for g in progress.alarms][:5] if progress is not None else []
        return {"status": "deadline", "left": said[:2000], "why": _advice(progress), "alarms": texts}


def series(progress: DrainProgress) -> str:
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
                    "alarm_text": g.alarm_text,
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
