"""Delete the source of finished migrations: daily, and by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param, task_group

from topicshift_airflow.docs import RETIREMENT_DOC, TASKS
from topicshift_airflow.operators.base import RETRIES
from topicshift_airflow.operators.retire import (
    ApproveRetirement,
    CheckRetirement,
    DeleteSource,
    FindDue,
    ScreamTest,
    StopScream,
)

with DAG(
    "topic_retirement",
    description="Delete the source of a finished migration, once nobody needs it and a person said yes.",
    doc_md=RETIREMENT_DOC,
    schedule="@daily",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={**RETRIES, "owner": "topicshift"},
    params={
        "migration": Param(
            None,
            type=["null", "string"],
            title="Migration",
            description="Only this one: its id, or the name of its source or target. Empty: every finished one.",
        )
    },
    tags=["topicshift", "kafka"],
) as dag:
    find = FindDue(task_id="find_due", doc_md=TASKS["retire.find_due"])
    due: Any = find.output

    @task_group(group_id="retire")
    def retire(migration: str) -> None:
        """One migration."""
        check = CheckRetirement(task_id="check", migration=migration, doc_md=TASKS["retire.check"])
        approve = ApproveRetirement(task_id="approve", migration=migration, doc_md=TASKS["retire.approve"])
        scream = ScreamTest(task_id="scream_test", migration=migration, doc_md=TASKS["retire.scream_test"])
        delete = DeleteSource(task_id="delete", migration=migration, doc_md=TASKS["retire.delete"])
        check >> approve >> scream >> delete

    group = retire.expand(migration=due)
    stop = StopScream(
        task_id="let_in_again", migrations=due, trigger_rule="one_failed", doc_md=TASKS["retire.let_in_again"]
    )
    group >> stop
