"""The Spark tasks of the DAGs: whether the engine wants them, what each job is told, where its answer goes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from topicshift.core.engine.words import Act, Row, StepState
from topicshift.core.errors import Refused, Unreadable
from topicshift_airflow.links import LINKS, EvidenceLink, SparkLink
from topicshift_airflow.notices import news_told
from topicshift_airflow.operators.advance import RETRIES, ended_otherwise
from topicshift_airflow.operators.spark import NotNeeded, SparkJobOperator
from topicshift_airflow.runtime import open_context, typed_failures

if TYPE_CHECKING:
    from topicshift.acts.context import MigrationContext
    from topicshift.acts.jobs import Job
    from topicshift.core.engine.decision import Decision
    from topicshift.core.engine.view import Record
    from topicshift.ports import Verifier

QUIET = {"spark.log.level": "WARN", "spark.ui.enabled": "false"}
"""A task's log is for what the job says; a web page of a short driver is nobody's."""

JAVA_OPTIONS = os.environ.get("TOPICSHIFT_SPARK_JAVA_OPTIONS", "")
"""Options of the driver's JVM, for instance a quick compiler where topics are small and cores are few."""

CONF = {**QUIET, **({"spark.driver.extraJavaOptions": JAVA_OPTIONS} if JAVA_OPTIONS else {})}

SHOW_KEYS = os.environ.get("TOPICSHIFT_SHOW_KEYS", "") == "1"
"""Whether impact reports of this installation name keys themselves. Each use is an event of the audit trail."""


class _MigrationJob(SparkJobOperator):
    """A job of the migration that this DAG run owns, run only while the engine wants its act."""

    act: Act
    operator_extra_links = (*LINKS, SparkLink())
    evidence_url = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, "retries": 1, "conf": CONF, **kwargs})
        self._arguments: list[str] = []
        self._folder: Path | None = None

    def job_of(self, ctx: MigrationContext, record: Record) -> Job:
        """What the job is told."""
        raise NotImplementedError

    def needed(self, ctx: MigrationContext, record: Record) -> bool:
        """Whether the job has to run. Raises ``Refused`` where something has to be done before it."""
        decision = _decided(ctx, record)
        if decision.act is self.act:
            return True
        if self.left_to_another(record, decision) or self.result_there(ctx, record):
            return False
        raise Refused(f"{self.act.value} is not what comes next: {decision.why}. Clear the tasks before this one.")

    def left_to_another(self, record: Record, decision: Decision) -> bool:
        """Whether what is decided is for a later task, which runs the job itself where it is wanted then."""
        return False

    def result_there(self, ctx: MigrationContext, record: Record) -> bool:
        """Whether its result is evidence already."""
        return ctx.ports.evidence.read(record.migration_id, f"{self.result}.json") is not None

    result = ""

    def before(self, context: Mapping[str, Any]) -> None:
        """Look at the engine first: arguments and connection come from the migration."""
        from topicshift.acts.jobs import give
        from topicshift.adapters.work import work_folder

        with typed_failures(), open_context(context) as ctx, news_told(ctx), ctx.recorded(self.task_id):
            record = ctx.refresh()
            if called_off := ended_otherwise(ctx):
                raise AirflowFailException(called_off)
            if record.over:
                raise AirflowSkipException(f"{ctx.row.migration_id} is {record.state.value}: nothing is left to do.")
            if not self.needed(ctx, record):
                raise NotNeeded(f"{ctx.row.migration_id}: what this job is for is there, or another task sees to it.")
            folder = work_folder() / record.migration_id / f"{self.job}-{ctx.holder.rpartition('/')[2]}"
            self._arguments = give(self.job_of(ctx, record), folder)
            self.kafka_conn_id = ctx.spec.kafka_conn_id

    def facts(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What the audit trail says of the job."""
        return {"job": self.job, "verdict": result.get("verdict"), "seconds": result.get("seconds")}

    def arguments(self, context: Mapping[str, Any]) -> list[str]:
        """What :meth:`before` found."""
        return self._arguments

    def output_folder(self, context: Mapping[str, Any]) -> Path:
        """One folder for each try, unless the job answers into one that others watch."""
        return self._folder or super().output_folder(context)

    def _judge(self, context: Mapping[str, Any], path: Path, failure: Exception | None) -> Any:
        try:
            return super()._judge(context, path, failure)
        except AirflowSkipException:
            raise
        except AirflowException as error:
            with typed_failures(), open_context(context) as ctx, news_told(ctx):
                excuse = self.excuse(ctx) if isinstance(error, AirflowFailException) else ""
                if not excuse:
                    ctx.failed(self.task_id, error)
            if excuse:
                raise NotNeeded(f"{error} {excuse}") from None
            raise

    def excuse(self, ctx: MigrationContext) -> str:
        """Why a verdict that would be final is none, and who goes on; nothing where it is."""
        return ""

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """The result (and what lies beside it) becomes evidence."""
        from topicshift.acts.jobs import keep

        with typed_failures(), open_context(context) as ctx:
            self.evidence_url = _shown(keep(ctx.write, path.parent, path.name))
            ctx.event("spark_job", self.facts(result))
        return {"verdict": result.get("verdict"), "seconds": result.get("seconds")}


def _shown(urls: Mapping[str, str]) -> str:
    """The evidence that a task's link opens: its page, else its first file."""
    pages = [url for name, url in urls.items() if name.endswith(".html")]
    return pages[-1] if pages else next(iter(urls.values()), "")


class KeyRehashImpact(_MigrationJob):
    """Which keys move, what will be hot, which rule placed them.

    :param show_keys: name keys themselves, which may be personal data. Written to the audit trail before the job runs.
    """

    act, result = Act.MEASURE_IMPACT, "impact"

    def __init__(self, *, show_keys: bool = SHOW_KEYS, **kwargs: Any) -> None:
        super().__init__(job="key_rehash_impact", **kwargs)
        self.show_keys = show_keys

    def job_of(self, ctx: MigrationContext, record: Record) -> Job:
        """The job of every advancer; naming keys is a matter of this installation."""
        from topicshift.acts.jobs import impact_job

        if self.show_keys:
            ctx.event("keys_shown", {"job": self.job, "topic": record.source, "report": "impact.html"})
        job = impact_job(ctx, record)
        return replace(job, arguments=[*job.arguments, "--show-keys"]) if self.show_keys else job

    def facts(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """With what the report itself says of its keys."""
        return {**super().facts(result), "keys_shown": result.get("measured", {}).get("keys_shown")}


class ArmedVerification(_MigrationJob):
    """Started before the fence, so that no JVM has to start while producers stand still.

    A driver that gives no sign of life is ended, and the task's next try starts another.
    """

    act = Act.START_VERIFIER
    silent_looks, look_every_s = 3, 10.0
    """So many looks, one after the other, at which it is silent for longer than it may be; seconds between two."""
    lead = timedelta(minutes=1)
    """Time before the window opens at which it is started."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="drain_verification_armed", **{"retries": RETRIES["retries"], **kwargs})
        self._verifier: Verifier | None = None

    def execute(self, context: Any) -> Any:
        """Wait for the window, then run; again where the window was missed."""
        self._await_window(context)
        return super().execute(context)

    def woken(self, context: Any, event: Any = None) -> Any:
        """The window opens, or another look at it is due."""
        return self.execute(context)

    def _judge(self, context: Mapping[str, Any], path: Path, failure: Exception | None) -> Any:
        try:
            return super()._judge(context, path, failure)
        except AirflowSkipException:
            self._await_window(context, missed=True)
            raise

    def _await_window(self, context: Mapping[str, Any], *, missed: bool = False) -> None:
        """Defer where the window is closed and no freeze has begun: an idle driver would wait for days.

        ``missed``: only where it was called off because the window was missed, not because the run has failed.
        """
        from topicshift.core.engine.where import before_freeze
        from topicshift_airflow.triggers.journal import ClockTrigger
        from topicshift_airflow.waits import LONG

        with typed_failures(), open_context(context) as ctx:
            record, now = ctx.refresh(), ctx.clock.now()
            waits = before_freeze(record) and not record.over
            if missed:
                waits = waits and record.at(Row.ARM) is StepState.UNDONE
            window = record.policy.opening(now) if waits else None
            migration_id = ctx.row.migration_id
        if window is not None and now < window.opens - self.lead:
            self.log.info("the window opens at %s; the armed verifier is started then", window.opens)
            moment = min(window.opens - self.lead, now + LONG)
            self.defer(trigger=ClockTrigger(moment=moment.timestamp(), migration_id=migration_id), method_name="woken")

    def _submit(self, context: Any, folder: Path) -> None:
        ended = threading.Event()
        threading.Thread(target=self._end_silent, args=(ended,), daemon=True).start()
        try:
            super()._submit(context, folder)
        finally:
            ended.set()

    def _end_silent(self, ended: threading.Event) -> None:
        looks = 0
        while looks < self.silent_looks:
            if ended.wait(self.look_every_s):
                return
            with contextlib.suppress(Unreadable):
                assert self._verifier is not None
                looks = looks + 1 if self._verifier.state()[0] == "gone" else 0
        self.log.warning("the armed drain verifier gives no sign of life, so its driver is ended")
        self.on_kill()

    def needed(self, ctx: MigrationContext, record: Record) -> bool:
        """Whether a certificate is still to come. It runs beside other steps, so what comes next does not matter."""
        if record.policy.drain_first:
            return not record.in_effect(Row.SWITCH_PRODUCERS)
        return any(not record.begun(Row.SWITCH_GROUP, group) for group in record.policy.groups)

    def job_of(self, ctx: MigrationContext, record: Record) -> Job:
        """Certificates come into a folder, answers go into another."""
        from topicshift.acts.jobs import armed_job
        from topicshift.adapters.verifier import FileVerifier

        verifier = self._verifier = FileVerifier(record.migration_id, ctx.clock)
        verifier.arm()
        self._folder = verifier.answers
        return armed_job(record, verifier.requests)

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """Its answers were made evidence by the tasks that asked."""
        return {"verdict": result.get("verdict"), "seconds": result.get("seconds")}


class OrderProof(_MigrationJob):
    """Both topics: nothing lost, nothing crossed, one partition a key."""

    act, result = Act.PROVE_ORDER, "order_proof"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="order_proof", **kwargs)

    def left_to_another(self, record: Record, decision: Decision) -> bool:
        """The last task fences the source anew, where it was written to, or may have been, since its last fence."""
        from topicshift.core.engine.where import all_moved

        return all_moved(record) and decision.rule in ("source_stood_still", "fenced_again")

    def excuse(self, ctx: MigrationContext) -> str:
        """Records that came to the source after its fence are contained."""
        record = ctx.refresh()
        if not self.left_to_another(record, _decided(ctx, record)):
            return ""
        return (
            "Records came to the source after its fence: the last task fences it anew, names them, and has the order "
            "proven once more."
        )

    def job_of(self, ctx: MigrationContext, record: Record) -> Job:
        """The job of every advancer."""
        from topicshift.acts.jobs import order_proof_job

        return order_proof_job(ctx, record)


class AssessImpact(SparkJobOperator):
    """The impact for ``topic_assessment``: no migration, its evidence under the run's own name."""

    operator_extra_links = (EvidenceLink(), SparkLink())
    evidence_url = ""

    def __init__(self, *, look: str, **kwargs: Any) -> None:
        super().__init__(job="key_rehash_impact", **{**RETRIES, "retries": 1, "conf": CONF, **kwargs})
        self.look = look

    def arguments(self, context: Mapping[str, Any]) -> list[str]:
        """What the look found."""
        found = context["ti"].xcom_pull(task_ids=self.look)
        with typed_failures():
            if found is None:
                raise Refused(f"The task {self.look} left no answer, so there is nothing to go by. Clear it.")
        self.kafka_conn_id = found["kafka_conn_id"]
        return ["--topic", found["source"], "--candidates", found["candidates"]]

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """Evidence of the assessment."""
        from topicshift.acts.jobs import keep
        from topicshift.adapters.evidence import evidence_from_env
        from topicshift_airflow.operators.assess import assessment_id

        write = partial(evidence_from_env().write, assessment_id(context))
        self.evidence_url = _shown(keep(write, path.parent, path.name))
        return {"result": str(path)}


def _decided(ctx: MigrationContext, record: Record) -> Decision:
    from topicshift.acts.observe import observe
    from topicshift.core.engine.engine import next_act

    return next_act(observe(ctx, record))
