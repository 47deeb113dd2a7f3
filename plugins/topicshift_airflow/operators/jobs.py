"""The Spark tasks of the DAGs: what each job is told, and where its answer goes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException

from topicshift.core.errors import Refused
from topicshift.core.spec.model import Cutover
from topicshift_airflow.links import EvidenceLink
from topicshift_airflow.operators.base import RETRIES, skip_when_finished
from topicshift_airflow.operators.cutover import read_fence, skip_unless
from topicshift_airflow.operators.drain import arm, past_drain
from topicshift_airflow.operators.spark import SparkJobOperator, work_folder
from topicshift_airflow.runtime import Run, open_run, typed_failures

QUIET = {"spark.log.level": "WARN", "spark.ui.enabled": "false"}
"""A task's log is for what the job says; a web page of a short driver is nobody's."""

JAVA_OPTIONS = os.environ.get("TOPICSHIFT_SPARK_JAVA_OPTIONS", "")
"""Options of the driver's JVM, for instance a quick compiler where topics are small and cores are few."""

CONF = {**QUIET, **({"spark.driver.extraJavaOptions": JAVA_OPTIONS} if JAVA_OPTIONS else {})}

SHOW_KEYS = os.environ.get("TOPICSHIFT_SHOW_KEYS", "") == "1"
"""Whether impact reports of this installation name keys themselves. Each use is an event of the audit trail."""

ARMED_FOR_S = 13 * 3600
"""The armed verifier outlasts the gate's patience; a run that ends takes it along."""


def left_by(context: Mapping[str, Any], task_id: str) -> Mapping[str, Any]:
    """What an earlier task left for this one. Raises ``Refused`` where it left nothing (somebody marked it as done)."""
    found: Mapping[str, Any] | None = context["ti"].xcom_pull(task_ids=task_id)
    if found is None:
        raise Refused(f"The task {task_id} left no answer, so there is nothing to go by. Clear it; it changes nothing.")
    return found


class _MigrationJob(SparkJobOperator):
    """A job of the migration that this DAG run owns. ``after_the_end``: see ``StepOperator``."""

    after_the_end = False
    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, "retries": 1, "conf": CONF, **kwargs})
        self._arguments: list[str] = []
        self._folder: Path | None = None

    def prepare(self, run: Run, context: Mapping[str, Any]) -> list[str]:
        """The job's arguments, from the run."""
        raise NotImplementedError

    def before(self, context: Mapping[str, Any]) -> None:
        """Open the run once: arguments and connection come from it."""
        with typed_failures(context), open_run(context) as run:
            if not self.after_the_end:
                skip_when_finished(run)
            self._arguments = self.prepare(run, context)
            self.kafka_conn_id = run.spec.kafka_conn_id

    def facts(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What the audit trail says of the job."""
        return {"job": self.job, "verdict": result.get("verdict"), "seconds": result.get("seconds")}

    def arguments(self, context: Mapping[str, Any]) -> list[str]:
        """What :meth:`prepare` found."""
        return self._arguments

    def output_folder(self, context: Mapping[str, Any]) -> Path:
        """One folder for each try, unless the job answers into one that others watch."""
        return self._folder or super().output_folder(context)

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """The result (and what lies beside it) becomes evidence."""
        with typed_failures(context), open_run(context) as run:
            for file in sorted(path.parent.iterdir()):
                if file.suffix in (".json", ".html"):
                    url = run.write(file.name, file.read_bytes())
                    if file.suffix == ".html" or not self.evidence_url:
                        self.evidence_url = url
            run.event("spark_job", self.facts(result))
        return {"verdict": result.get("verdict"), "seconds": result.get("seconds")}


class KeyRehashImpact(_MigrationJob):
    """Which keys move, what will be hot, which rule placed them.

    :param show_keys: name keys themselves, which may be personal data. Written to the audit trail before the job runs.
    """

    def __init__(self, *, candidates_from: str, show_keys: bool = SHOW_KEYS, **kwargs: Any) -> None:
        super().__init__(job="key_rehash_impact", **kwargs)
        self.candidates_from = candidates_from
        self.show_keys = show_keys

    def prepare(self, run: Run, context: Mapping[str, Any]) -> list[str]:
        """The counts come from the plan; the groups' offsets say what an in-place increase would break."""
        found = left_by(context, self.candidates_from)
        groups = groups_file(run, context)
        shown = ["--show-keys"] if self.show_keys else []
        if shown:
            run.event("keys_shown", {"job": self.job, "topic": run.row.source, "report": "impact.html"})
        return ["--topic", run.row.source, "--candidates", found["candidates"], "--groups-file", str(groups), *shown]

    def facts(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """With what the report itself says of its keys."""
        return {**super().facts(result), "keys_shown": result.get("measured", {}).get("keys_shown")}


def groups_file(run: Run, context: Mapping[str, Any]) -> Path:
    """Where every declared group stands on the source, as a file for the job."""
    source = run.admin.topic(run.row.source)
    partitions = sorted(source.replicas) if source else []
    names = [c.group for c in run.spec.consumers]
    commits = run.admin.commits(names, run.row.source, partitions)
    data = {
        name: {str(p): answer.offsets.get(p) for p in partitions}
        for name, answer in commits.items()
        if not answer.error and not answer.errors
    }
    path = work_folder() / run.row.migration_id / f"groups-{context['ti'].try_number}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


class ArmedVerification(_MigrationJob):
    """Started before the fence, so that no JVM has to start while producers stand still."""

    def __init__(self, *, cutover: Cutover | None = None, **kwargs: Any) -> None:
        super().__init__(job="drain_verification_armed", **kwargs)
        self.cutover = cutover

    def prepare(self, run: Run, context: Mapping[str, Any]) -> list[str]:
        """Certificates come into a folder, answers go into another."""
        skip_unless(run, self.cutover)
        consumers = [""] if run.spec.cutover is Cutover.DRAIN_FIRST else [c.name for c in run.spec.consumers]
        if all(past_drain(run, consumer) for consumer in consumers):
            raise AirflowSkipException("Nothing is left to verify: what the drain was for has happened.")
        requests, self._folder = arm(run.row.migration_id)
        return [
            "--armed", "--topic", run.row.source, "--requests", str(requests), "--deadline", str(ARMED_FOR_S),
        ]  # fmt: skip

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """Its answers were made evidence by the tasks that asked."""
        return {"verdict": result.get("verdict"), "seconds": result.get("seconds")}


class OrderProof(_MigrationJob):
    """Both topics: nothing lost, nothing crossed, one partition a key."""

    after_the_end = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="order_proof", **kwargs)

    def prepare(self, run: Run, context: Mapping[str, Any]) -> list[str]:
        """The fence bounds the source; the spec names the sequence header if records carry one."""
        fence = work_folder() / run.row.migration_id / f"fence-{context['ti'].try_number}.json"
        fence.parent.mkdir(parents=True, exist_ok=True)
        fence.write_text(read_fence(run).point.model_dump_json())
        header = run.spec.ordering.sequence_header
        return [
            "--source", run.row.source, "--target", run.row.target, "--fence", str(fence),
            *(["--sequence-header", header] if header else []),
        ]  # fmt: skip


class AssessImpact(SparkJobOperator):
    """The impact for ``topic_assessment``: no migration, its evidence under the run's own name."""

    operator_extra_links = (EvidenceLink(),)
    evidence_url = ""

    def __init__(self, *, look: str, **kwargs: Any) -> None:
        super().__init__(job="key_rehash_impact", **{**RETRIES, "retries": 1, "conf": CONF, **kwargs})
        self.look = look

    def arguments(self, context: Mapping[str, Any]) -> list[str]:
        """What the look found."""
        with typed_failures(context):
            found = left_by(context, self.look)
        self.kafka_conn_id = found["kafka_conn_id"]
        return ["--topic", found["source"], "--candidates", found["candidates"]]

    def after(self, context: Mapping[str, Any], result: Mapping[str, Any], path: Path) -> Any:
        """Evidence of the assessment."""
        from topicshift.adapters.evidence import evidence_from_env
        from topicshift_airflow.operators.assess import assessment_id

        store = evidence_from_env()
        for file in sorted(path.parent.iterdir()):
            if file.suffix in (".json", ".html"):
                url = store.write(assessment_id(context), file.name, file.read_bytes())
                self.evidence_url = url if file.suffix == ".html" or not self.evidence_url else self.evidence_url
        return {"result": str(path)}


def key_rehash_impact(task_id: str, **kwargs: Any) -> KeyRehashImpact:
    """The impact job of ``topic_migration``."""
    return KeyRehashImpact(task_id=task_id, candidates_from="plan.check", **kwargs)


def drain_verification(task_id: str, *, cutover: Cutover | None = None, **kwargs: Any) -> ArmedVerification:
    """The armed drain verification."""
    return ArmedVerification(task_id=task_id, cutover=cutover, **kwargs)


def order_proof(task_id: str, **kwargs: Any) -> OrderProof:
    """The order proof."""
    return OrderProof(task_id=task_id, **kwargs)


def assess_impact(task_id: str, **kwargs: Any) -> AssessImpact:
    """The impact job of ``topic_assessment``."""
    return AssessImpact(task_id=task_id, look="check", **kwargs)
