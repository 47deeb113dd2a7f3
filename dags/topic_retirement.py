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
    Finished,
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
    find_due = FindDue(task_id="find_due", doc_md=TASKS["retire.find_due"])
    due: Any = find_due.output

    finished = Finished(task_id="finished", trigger_rule="none_failed", doc_md=TASKS["retire.finished"])

    @task_group(group_id="retire")
    def retire(migration: str) -> None:
        """One migration; what befalls it does not touch the others."""
        check = CheckRetirement(task_id="check", migration=migration, doc_md=TASKS["retire.check"])
        approve = ApproveRetirement(task_id="approve", migration=migration, doc_md=TASKS["retire.approve"])
        scream = ScreamTest(task_id="scream_test", migration=migration, doc_md=TASKS["retire.scream_test"])
        delete = DeleteSource(task_id="delete", migration=migration, doc_md=TASKS["retire.delete"])
        let_in_again = StopScream(
            task_id="let_in_again",
            migration=migration,
            trigger_rule="one_failed",
            doc_md=TASKS["retire.let_in_again"],
        )
        check >> approve >> scream >> delete
        [scream, delete] >> let_in_again
        # Letting everybody in again after a failure must not make the run green: the deletion counts.
        [delete, let_in_again] >> finished

    retire.expand(migration=due)
