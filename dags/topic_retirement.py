"""Delete the source of finished migrations: daily, and by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import DAG, Param, task_group

from topicshift_airflow.docs import RETIREMENT_DOC, TASKS
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.end import FindDue, Finished
from topicshift_airflow.operators.tasks import retirement

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
        check, approve, scream, delete, let_in_again = retirement(migration)
        check >> approve >> scream >> delete
        [scream, delete] >> let_in_again
        # Letting everybody in again after a failure must not make the run green: the deletion counts.
        [delete, let_in_again] >> finished

    retire.expand(migration=due)
