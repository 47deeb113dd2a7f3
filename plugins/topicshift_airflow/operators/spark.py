"""The Spark jobs as tasks: spark-submit in client mode, and the job's result file as the answer.

:class:`SparkJobOperator` is what a DAG file holds. It is light: the Spark provider is imported in ``execute``, because
a DAG file is parsed again for each of its tasks, and the provider brings the Kubernetes client with it where that is
installed (about a second). ``execute`` hands over to :class:`TopicshiftSparkOperator`, a ``SparkSubmitOperator``.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator

OWNER_ENV = "TOPICSHIFT_OWNER_PID"
PROGRESS = "progress"
"""XCom of the line by which a job has said last how far it is."""

SAYS_HOW_FAR = re.compile(r"[A-Z][a-z]+ .+( \.\.\.|: \d+ s, .+|: done in [\d.]+ s)$")
"""A line of ``topicshift_spark.progress``; those of Spark's own log begin with their time."""

log = logging.getLogger("topicshift")


@dataclass(frozen=True)
class Job:
    """A job of ``spark_jobs/``: its result file, which verdicts let a run go on, and which are final.

    ``accepted`` None: any readable result is an answer (a report has no verdict). A verdict that is neither accepted
    nor final may be tried again.
    """

    result: str
    accepted: frozenset[str] | None = None
    final: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()


JOBS = {
    "key_rehash_impact": Job("impact.json"),
    "drain_verification": Job(
        "drain_verification.json", frozenset({"verified"}), frozenset({"not_drained", "fence_broken"})
    ),
    "drain_verification_armed": Job("verifier.json", frozenset({"done"}), skipped=frozenset({"aborted"})),
    "order_proof": Job("order_proof.json", frozenset({"proven", "partly_proven"}), frozenset({"violated"})),
}


class NotNeeded(Exception):
    """What the job is for is there, or another task sees to it: this one is done. Skipped, it would skip the rest."""


def _tell_progress(ti: Any, line: str) -> None:
    """Keep the last line by which a job says how far it is, for the page of the migration. It proves nothing."""
    if SAYS_HOW_FAR.match(line):
        with suppress(Exception):  # what is only shown ends no job
            ti.xcom_push(key=PROGRESS, value=line[:300])


class SparkJobOperator(BaseOperator):
    """Run one job of ``spark_jobs/`` by ``spark-submit`` in client mode; the verdict is its result file.

    :param job: ``key_rehash_impact``, ``drain_verification``, ``drain_verification_armed`` or ``order_proof``
    :param job_args: its arguments, without ``--output`` and ``--kafka-config``, which are given here (templated)
    :param kafka_conn_id: Airflow connection of the Kafka cluster; its properties reach the job in a file of mode 0600
        that is deleted with the task (templated)
    :param conn_id: Airflow connection of the Spark master; ``local[*]`` where it does not exist (templated)
    :param conf: further Spark settings (templated)
    :param driver_memory: heap of the driver, which with ``local[*]`` is the executor too (templated)

    A subclass may override :meth:`before` (which may skip the task), :meth:`arguments`, :meth:`kafka_config`,
    :meth:`output_folder` and :meth:`after`. The task may be cleared and run again at any time.
    """

    template_fields: Sequence[str] = ("job_args", "kafka_conn_id", "conn_id", "conf", "driver_memory")
    custom_operator_name = "SparkSubmitOperator"
    ui_color = "#f7e8d8"

    def __init__(
        self,
        *,
        job: str,
        job_args: Sequence[str] = (),
        kafka_conn_id: str = "kafka_default",
        conn_id: str = "spark_default",
        conf: Mapping[str, str] | None = None,
        driver_memory: str | None = "2g",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if job not in JOBS:
            raise ValueError(f"no job {job!r}; there are {', '.join(JOBS)}")
        self.job = job
        self.job_args = list(job_args)
        self.kafka_conn_id = kafka_conn_id
        self.conn_id = conn_id
        self.conf = dict(conf or {})
        self.driver_memory = driver_memory
        self._running: TopicshiftSparkOperator | None = None
        self._secrets: Path | None = None
        self.spark_ui = ""
        """Spark's page of the application, once it is known; see :class:`topicshift_airflow.links.SparkLink`."""

    # -------------------------------------------------------------------------------------------- to be overridden

    def before(self, context: Mapping[str, Any]) -> None:
        """Called first; may raise ``NotNeeded``, and ``AirflowSkipException`` where nothing is left to do at all."""

    def arguments(self, context: Mapping[str, Any]) -> list[str]:
        """The job's arguments, without ``--output`` and ``--kafka-config``."""
        return [str(argument) for argument in self.job_args]

    def kafka_config(self, context: Mapping[str, Any]) -> Mapping[str, Any]:
        """librdkafka properties of the cluster."""
        from topicshift_airflow.runtime import kafka_config

        return kafka_config(self.kafka_conn_id)

    def output_folder(self, context: Mapping[str, Any]) -> Path:
        """The folder for the result: one of this run, task and try, so that no earlier result is taken for this one."""
        from topicshift.adapters.work import work_folder

        ti = context["ti"]
        parts = [ti.dag_id, ti.run_id, ti.task_id, f"map{ti.map_index}", f"try-{ti.try_number}"]
        return work_folder() / "spark" / Path(*(re.sub(r"[^\w.+-]", "_", str(part)) for part in parts))

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """Called with an accepted result; what it returns goes to XCom (small values only)."""
        return {"verdict": result.get("verdict"), "result": str(path), "seconds": result.get("seconds")}

    # -------------------------------------------------------------------------------------------- the task

    def execute(self, context: Any) -> Any:
        """Submit the job, wait for it, and judge its result file."""
        try:
            return self._run(context)
        except NotNeeded as done:
            self.log.info("%s", done)
            return None

    def _run(self, context: Any) -> Any:
        self.before(context)
        folder = self.output_folder(context)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / JOBS[self.job].result
        path.unlink(missing_ok=True)
        failure: Exception | None = None
        try:
            self._submit(context, folder)
        except (AirflowFailException, AirflowSkipException):
            raise
        except AirflowException as error:
            failure = error  # the exit code is not the answer; the file is
        finally:
            self._forget_secrets()
        return self._judge(context, path, failure)

    def _submit(self, context: Any, folder: Path) -> None:
        from airflow.sdk.bases.operator import ExecutorSafeguard

        from topicshift.adapters.spark import connector_jars, job_file, python_path, write_secrets
        from topicshift_airflow.operators.spark_submit import TopicshiftSparkOperator
        from topicshift_airflow.runtime import typed_failures

        with typed_failures():
            application, jars = str(job_file(self.job.removesuffix("_armed"))), connector_jars()
        properties = write_secrets(self.kafka_config(context))
        self._secrets = properties.parent
        operator = TopicshiftSparkOperator(
            task_id=self.task_id,
            application=application,
            application_args=[
                *self.arguments(context), "--output", str(folder), "--kafka-config", str(properties),
            ],
            name=f"topicshift {self.job}",
            conn_id=self.conn_id,
            conf=dict(self.conf),
            jars=jars,
            driver_memory=self.driver_memory,
            env_vars={OWNER_ENV: str(os.getpid()), **python_path()},
        )  # fmt: skip
        self._running = operator
        operator.listener = partial(_tell_progress, context["ti"])

        def run() -> None:
            ExecutorSafeguard.tracker.set(operator)  # it runs inside this task, and says so
            operator.execute(context)

        try:
            contextvars.copy_context().run(run)
        finally:
            self.spark_ui = operator.ui

    def _judge(self, context: Mapping[str, Any], path: Path, failure: Exception | None) -> Any:
        job = JOBS[self.job]
        try:
            result = json.loads(path.read_bytes())
            if not isinstance(result, dict) or not (result.get("schema") or result.get("version")):
                raise ValueError("neither schema nor version in it")
        except (OSError, ValueError) as error:
            code = self._running.exit_code if self._running is not None else None
            why = (
                f"{_cause(failure)}The job {self.job} ended with exit code {code} and left no result "
                f"({type(error).__name__} at {path}); its own words are in the log above."
            )
            # Wrong use and a missing topic (2) stay wrong however often it is tried. The provider's exception is not
            # shown: it holds the command line and the log's last 500 lines once more, and the cause after them.
            raise (AirflowFailException if code == 2 else AirflowException)(why) from None
        verdict = result.get("verdict")
        if job.accepted is None or verdict in job.accepted:
            return self.after(context, result, path)
        said = f"{self.job}: {verdict}. {result.get('reason') or ''} The whole answer is {path}."
        if verdict in job.skipped:
            raise AirflowSkipException(said)
        raise (AirflowFailException if verdict in job.final else AirflowException)(said)

    def on_kill(self) -> None:
        """End spark-submit and the driver's Python with it."""
        if self._running is not None:
            self._running.on_kill()
        self._forget_secrets()

    def _forget_secrets(self) -> None:
        if self._secrets is not None:
            shutil.rmtree(self._secrets, ignore_errors=True)
            self._secrets = None


def _cause(failure: Exception | None) -> str:
    """What the job said of its end, or the JVM if it came to no job, out of what the provider's exception repeats."""
    lines = [line.strip() for line in str(failure or "").splitlines()[1:]]
    for mark in ("error: ", "Caused by: ", "Exception in thread ", "Error: "):
        said = [line.removeprefix("error: ") for line in lines if line.startswith(mark)]
        if said:
            return f"{said[-1].rstrip('.')}. "
    return f"{lines[-1]} " if lines else ""
