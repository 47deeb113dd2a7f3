"""Every minute: end the freezes that nobody ends any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from topicshift_airflow.docs import GIVE_BACK_DOC, TASKS
from topicshift_airflow.operators.abandoned import GiveBackAbandoned
from topicshift_airflow.operators.base import RETRIES

with DAG(
    "topic_give_back",
    description="Put producers back on the source where a run was stopped in the middle of its freeze.",
    doc_md=GIVE_BACK_DOC,
    schedule=timedelta(minutes=1),
    start_date=datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=10),
    default_args={**RETRIES, "retries": 0, "owner": "topicshift"},
    tags=["topicshift", "kafka"],
) as dag:
    GiveBackAbandoned(task_id="give_back", doc_md=TASKS["abandoned.give_back"])
