"""The DAGs of a migration: one line from left to right, in the order of its cut-over.

Only ``airflow.sdk`` and light modules are imported here: every task of a DAG pays for the imports of its file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TaskGroup, get_parsing_context

from topicshift.core.engine.words import ORDER, Step
from topicshift.core.errors import TopicshiftError
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.form import form_fields
from topicshift.core.spec.io import spec_paths
from topicshift.core.spec.scheduled import SCHEDULED, scheduled, shown
from topicshift.core.spec.scheduled import dag_id as dag_of
from topicshift_airflow.docs import migration_doc, task_doc, tooltip
from topicshift_airflow.operators import tasks
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.open import DAGS, BrokenSpec
from topicshift_airflow.runtime import SPEC_FOLDER

DEFAULT_ARGS = {**RETRIES, "owner": "topicshift"}


def form_params(*, without: frozenset[str] = frozenset()) -> dict[str, Param]:
    """The trigger form, derived from the spec model."""
    return {
        name: Param(field["default"], **field["schema"])
        for name, field in form_fields(SPEC_FOLDER).items()
        if name not in without
    }


def migration_dag(dag_id: str, cutover: Cutover, spec_file: str | None = None, **kwargs: Any) -> DAG:
    """The migration in one order of its cut-over, from the form or from a spec file."""
    with DAG(
        dag_id,
        description="Move a keyed Kafka topic to a new topic with another number of partitions, with proof.",
        doc_md=migration_doc(cutover),
        default_args=DEFAULT_ARGS,
        params={} if spec_file else form_params(without=frozenset({"cutover"})),
        catchup=False,
        max_active_tasks=16,
        tags=["topicshift", "kafka"],
        **{"schedule": None, **kwargs},
    ) as dag:
        last: Any = None
        consumers: Any = None
        frozen: list[Any] = []
        for step in ORDER[cutover]:
            with TaskGroup(step.value, tooltip=tooltip(step)):
                line = tasks.line_of(step, cutover, spec_file, consumers)
                if step is Step.PLAN:
                    consumers = line[0].output
                if step is Step.VERIFY_DRAIN:
                    armed = tasks.drain_verification()
            for task in line:
                if last is not None:
                    last >> task
                last = task
            if step is Step.VERIFY:
                armed >> line[0]
            frozen += tasks.inside_freeze(step, cutover, line)
        dag.get_task("create_target.create") >> armed
        frozen >> tasks.resume_on_source()
        for task in dag.tasks:
            if isinstance(task, BaseOperator):
                task.doc_md = task_doc(task.task_id)
    return dag


# ------------------------------------------------------------------------------------------------ one DAG a spec


def migrations(folder: Path = SPEC_FOLDER) -> Iterator[DAG]:
    """One DAG for each order of the cut-over, and one for each spec with a window.

    A file that is wrong gets a DAG that says so; the others are as if it were not there. A task is parsed for its own
    DAG alone: it does not pay for the other specs.
    """
    wanted = get_parsing_context().dag_id
    for cutover, dag_id in DAGS.items():
        if wanted in (None, dag_id):
            yield migration_dag(dag_id, cutover)
    try:
        paths = spec_paths(folder)
    except TopicshiftError as error:
        yield _broken(SCHEDULED, folder.name, error)
        return
    for dag_id, group in itertools.groupby(sorted(paths, key=dag_of), key=dag_of):
        if wanted in (None, dag_id):
            files = list(group)
            try:
                dag = _scheduled(dag_id, files)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file must not hide the others
                dag = _broken(dag_id, " and ".join(map(shown, files)), error)
            if dag is not None:
                yield dag


def _scheduled(dag_id: str, files: list[Path]) -> DAG | None:
    spec = scheduled(files)
    if spec is None:
        return None
    assert spec.window is not None
    return migration_dag(
        dag_id,
        spec.cutover,
        spec_file=files[0].name,
        schedule=CronTriggerTimetable(spec.window.cron, timezone=spec.window.timezone),
        start_date=datetime(2024, 1, 1),
        max_active_runs=1,  # a run that missed its window waits for the next one
    )


def _broken(dag_id: str, name: str, error: Exception) -> DAG:
    message = str(error) if isinstance(error, TopicshiftError) else f"{name}: {type(error).__name__}: {error}"
    with DAG(
        dag_id,
        description=f"{name} cannot be scheduled.",
        doc_md=f"### {name} cannot be scheduled\n\n```\n{message}\n```\nCorrect it; the DAG follows.",
        schedule=None,
        tags=["topicshift", "invalid-spec"],
    ) as dag:
        BrokenSpec(task_id="read_spec", message=message)
    return dag
