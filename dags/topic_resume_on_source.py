"""Watch over one migration until its freeze is over; look for freezes and rehearsals that nobody ends any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from topicshift_airflow.abandoned import RESUME_DAG
from topicshift_airflow.docs import RESUME_DOC, task_doc
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.freeze import ResumeAbandoned

with DAG(
    RESUME_DAG,
    description="Producers resume on the source where a run was stopped in the middle of its freeze.",
    doc_md=RESUME_DOC,
    schedule=timedelta(minutes=15),
    start_date=datetime(2024, 1, 1),
    catchup=False,
    # Each migration that goes towards its freeze has a run here, which waits in the triggerer.
    max_active_runs=200,
    is_paused_upon_creation=False,
    default_args={**RETRIES, "owner": "topicshift"},
    params={
        "migration": Param(
            None,
            type=["null", "string"],
            title="Migration",
            description="Watch over this one, by its id, until its freeze is over. Empty: look at all of them once.",
        )
    },
    tags=["topicshift", "kafka"],
) as dag:
    ResumeAbandoned(task_id="watch", doc_md=task_doc("watch"))
