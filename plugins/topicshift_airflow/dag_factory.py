"""The shape of ``topic_migration``: its task groups, their order and their docs.

Only ``airflow.sdk`` and light modules are imported here: every task of a DAG pays for the imports of its file.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TaskGroup, get_parsing_context

from topicshift.core.errors import SpecError, TopicshiftError
from topicshift.core.spec.form import form_fields
from topicshift.core.spec.io import load_spec, spec_paths
from topicshift.core.spec.model import Cutover
from topicshift_airflow.docs import MIGRATION_DOC, TASKS
from topicshift_airflow.operators.base import RETRIES
from topicshift_airflow.operators.cutover import (
    GiveBack,
    StartByHand,
    StopAndFence,
    SwitchGroup,
    SwitchProducers,
)
from topicshift_airflow.operators.drain import ConfirmDrain, Drain, ReadyToFence
from topicshift_airflow.operators.jobs import drain_verification, key_rehash_impact, order_proof
from topicshift_airflow.operators.plan import ApprovePlan, CreateTarget, DecidePlan, OpenMigration
from topicshift_airflow.operators.transactions import SettleTransactions
from topicshift_airflow.operators.verify import FinishMigration
from topicshift_airflow.runtime import SPEC_FOLDER

DEFAULT_ARGS = {**RETRIES, "owner": "topicshift"}
BY_HAND = "topic_migration"
_PLAIN_NAME = re.compile(r"[\w.-]{1,200}")
_ODD = re.compile(r"[^\w.-]")
FIRST = Cutover.PRODUCERS_FIRST.value


def form_params(names: set[str] | None = None) -> dict[str, Param]:
    """The trigger form, derived from the spec model."""
    return {
        name: Param(field["default"], **field["schema"])
        for name, field in form_fields(SPEC_FOLDER).items()
        if names is None or name in names
    }


def consumers_of_run(read_spec: BaseOperator) -> Any:
    """The names of the consumers, for mapped tasks."""
    return read_spec.output


def doc(task_id: str) -> str:
    """The docs of a task, whichever cut-over order it stands in."""
    return TASKS[task_id.removeprefix(FIRST + ".")]


def migration_dag(dag_id: str, spec_file: str | None = None, cutover: Cutover | None = None, **kwargs: Any) -> DAG:
    """The migration. Without ``cutover`` the run's spec decides the order, and tasks of the other one are skipped."""
    with DAG(
        dag_id,
        description="Move a keyed Kafka topic to a new topic with another number of partitions, with proof.",
        doc_md=MIGRATION_DOC,
        default_args=DEFAULT_ARGS,
        params={} if spec_file else form_params(),
        catchup=False,
        max_active_tasks=16,
        tags=["topicshift", "kafka"],
        **{"schedule": None, **kwargs},
    ) as dag:
        with TaskGroup("plan", tooltip="Read-only: inventory, checks, sizing, key-rehash impact"):
            read_spec = OpenMigration(task_id="read_spec", spec_file=spec_file)
            check = DecidePlan(task_id="check", final=False)
            impact = key_rehash_impact("key_rehash_impact")
            decide = DecidePlan(task_id="decide", final=True)
            read_spec >> check >> impact >> decide
        with TaskGroup("approve", tooltip="A person accepts exactly this plan"):
            approve = ApprovePlan(task_id="plan")
        with TaskGroup("create_target", tooltip="Topic, configs, ACLs"):
            create = CreateTarget(task_id="create")
        with TaskGroup("stop_producers", tooltip="Every producer stops; then nobody may write to the source"):
            transactions = SettleTransactions(task_id="transactions")
            ready = ReadyToFence(task_id="ready")
            fence = StopAndFence(task_id="fence")
            transactions >> ready >> fence
        decide >> approve >> create >> transactions
        frozen: list[Any] = [fence]
        ends: list[Any] = []
        if cutover in (None, Cutover.DRAIN_FIRST):
            _drain_first(create, fence, read_spec, frozen, ends)
        if cutover in (None, Cutover.PRODUCERS_FIRST):
            with TaskGroup(FIRST, tooltip="The other order: producers go on right after the fence"):
                _producers_first(create, fence, read_spec, frozen, ends)
        with TaskGroup("verify", tooltip="Spark over both topics: nothing lost, nothing crossed"):
            proof = order_proof("order_proof", trigger_rule="none_failed")
            report = FinishMigration(task_id="report")
            proof >> report
        for end in ends:
            end >> proof
        give_back = GiveBack(task_id="give_back", trigger_rule="one_failed")
        frozen >> give_back
        for task in dag.tasks:
            if isinstance(task, BaseOperator):
                task.doc_md = doc(task.task_id)
    return dag


def _drain_first(
    create: BaseOperator,
    fence: BaseOperator,
    read_spec: BaseOperator,
    frozen: list[Any],
    ends: list[Any],
) -> None:
    order = Cutover.DRAIN_FIRST
    with TaskGroup("drain", tooltip="Every group reads the source up to the fence"):
        drain = Drain(task_id="certificate", cutover=order)
    with TaskGroup("verify_drain", tooltip="Spark reads what every group has left"):
        armed = drain_verification("drain_verification", cutover=order)
        confirm = ConfirmDrain(task_id="confirm", cutover=order)
    with TaskGroup("switch_producers", tooltip="Producers go on with the target"):
        switch = SwitchProducers(task_id="switch", cutover=order)
        by_hand = StartByHand(task_id="by_hand", cutover=order)
        switch >> by_hand
    with TaskGroup("switch_consumers", tooltip="Each group goes on with the target"):
        groups = SwitchGroup.partial(
            task_id="switch",
            cutover=order,
            map_index_template="{{ task.consumer }}",
            doc_md=doc("switch_consumers.switch"),
        ).expand(consumer=consumers_of_run(read_spec))
    create >> armed
    # Tasks of the order that is not chosen are skipped without being run: they would cost time inside the freeze.
    fence >> drain >> confirm >> switch >> groups
    frozen += [drain, confirm, switch, by_hand]
    ends += [groups, by_hand, armed]


def _producers_first(
    create: BaseOperator,
    fence: BaseOperator,
    read_spec: BaseOperator,
    frozen: list[Any],
    ends: list[Any],
) -> None:
    order = Cutover.PRODUCERS_FIRST
    consumers = consumers_of_run(read_spec)
    label = "{{ task.consumer }}"
    with TaskGroup("switch_producers", tooltip="Producers go on with the target right after the fence"):
        switch = SwitchProducers(task_id="switch", cutover=order)
        by_hand = StartByHand(task_id="by_hand", cutover=order)
        switch >> by_hand
    with TaskGroup("drain", tooltip="Each group is held to the source until its own certificate"):
        drain = Drain.partial(
            task_id="certificate",
            cutover=order,
            map_index_template=label,
            doc_md=doc("drain.certificate"),
        ).expand(consumer=consumers)
    with TaskGroup("verify_drain", tooltip="Spark reads what the group has left"):
        armed = drain_verification("drain_verification", cutover=order)
        confirm = ConfirmDrain.partial(
            task_id="confirm", cutover=order, map_index_template=label, doc_md=doc("verify_drain.confirm")
        ).expand(consumer=consumers)
    with TaskGroup("switch_consumers", tooltip="Each group goes on with the target"):
        groups = SwitchGroup.partial(
            task_id="switch", cutover=order, map_index_template=label, doc_md=doc("switch_consumers.switch")
        ).expand(consumer=consumers)
    create >> armed
    fence >> switch
    switch >> drain >> confirm >> groups
    frozen += [switch, by_hand]
    ends += [groups, by_hand, armed]


def migrations(folder: Path = SPEC_FOLDER) -> Iterator[DAG]:
    """``topic_migration``, and one DAG for each spec with a window.

    A file that is wrong gets a DAG that says so; the others are as if it were not there. A task is parsed for its own
    DAG alone: it does not pay for the other specs.
    """
    wanted = get_parsing_context().dag_id
    if wanted in (None, BY_HAND):
        yield migration_dag(BY_HAND)
    try:
        paths = spec_paths(folder)
    except TopicshiftError as error:
        yield _broken(f"{BY_HAND}__", folder.name, error)
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
        return f"{BY_HAND}__{path.stem}"
    mark = hashlib.sha256(os.fsencode(path.stem)).hexdigest()[:12]
    return f"{BY_HAND}__{re.sub(_ODD, '_', path.stem)[:100]}__{mark}"


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
        spec_file=path.name,
        cutover=spec.cutover,
        schedule=CronTriggerTimetable(spec.window.cron, timezone=spec.window.timezone),
        start_date=datetime(2024, 1, 1),
        max_active_runs=1,
        dagrun_timeout=spec.window.duration + timedelta(days=7),
    )


def _broken(dag_id: str, name: str, error: Exception) -> DAG:
    from topicshift_airflow.operators.plan import BrokenSpec

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
