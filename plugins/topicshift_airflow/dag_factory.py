"""The DAGs of a migration: one line from left to right, in the order of its cut-over.

Only ``airflow.sdk`` and light modules are imported here: every task of a DAG pays for the imports of its file.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TaskGroup, get_parsing_context

from topicshift.core.engine.words import ORDER, Step
from topicshift.core.errors import SpecError, TopicshiftError
from topicshift.core.spec.cutover import Cutover
from topicshift.core.spec.form import form_fields
from topicshift.core.spec.io import load_spec, spec_paths
from topicshift_airflow.docs import migration_doc, task_doc, tooltip
from topicshift_airflow.operators import tasks
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.open import DAGS, BrokenSpec
from topicshift_airflow.runtime import SPEC_FOLDER

DEFAULT_ARGS = {**RETRIES, "owner": "topicshift"}
SCHEDULED = "topic_migration__"
_PLAIN_NAME = re.compile(r"[\w.-]{1,200}")
_ODD = re.compile(r"[^\w.-]")


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
    for dag_id, group in itertools.groupby(sorted(paths, key=_dag_id), key=_dag_id):
        if wanted in (None, dag_id):
            files = list(group)
            try:
                dag = _scheduled(dag_id, files)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file must not hide the others
                dag = _broken(dag_id, " and ".join(map(_shown, files)), error)
            if dag is not None:
                yield dag


def _dag_id(path: Path) -> str:
    """The DAG of a spec file. A name that Airflow does not take as a part of one gets an id that no good name has."""
    if _PLAIN_NAME.fullmatch(path.stem):
        return f"{SCHEDULED}{path.stem}"
    mark = hashlib.sha256(os.fsencode(path.stem)).hexdigest()[:12]
    return f"{SCHEDULED}{re.sub(_ODD, '_', path.stem)[:100]}__{mark}"


def _shown(path: Path) -> str:
    """The name of a file, also one that is not UTF-8, in quotation marks."""
    return f"'{os.fsencode(path.name).decode('utf-8', 'backslashreplace')}'"


def _scheduled(dag_id: str, files: list[Path]) -> DAG | None:
    for path in files:
        if not path.is_file():
            raise SpecError(f"{_shown(path)} is no file that can be read (a folder, or a link to nothing). Remove it.")
    specs = [load_spec(path) for path in files]
    if all(spec.window is None for spec in specs):
        return None
    if len(files) > 1:
        raise SpecError(
            f"{' and '.join(map(_shown, files))} would both be the DAG {dag_id}, and neither is preferred. "
            "Rename one of them."
        )
    path, spec = files[0], specs[0]
    if not _PLAIN_NAME.fullmatch(path.stem):
        raise SpecError(
            f"{_shown(path)} has a window, and its name would be a part of its DAG's. Rename it: letters, digits, '.', "
            "'_' and '-', at most 200 of them."
        )
    assert spec.window is not None
    return migration_dag(
        dag_id,
        spec.cutover,
        spec_file=path.name,
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
