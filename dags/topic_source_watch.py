"""Every hour: who still uses the source of a finished migration, and who has made it again after its deletion."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG, Param

from topicshift_airflow.docs import WATCH_DOC, task_doc
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.watch import FindWatched, WatchSource

with DAG(
    "topic_source_watch",
    description="Watch the sources of finished migrations until they are retired, and for 30 days after that.",
    doc_md=WATCH_DOC,
    schedule="@hourly",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
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
    find = FindWatched(task_id="find_watched", doc_md=task_doc("find_watched"))
    WatchSource.partial(
        task_id="look", doc_md=task_doc("look"), map_index_template="{{ task.migration }}", max_active_tis_per_dagrun=4
    ).expand(migration=find.output)
