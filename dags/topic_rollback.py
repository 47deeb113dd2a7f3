"""Go back to the source: free while nothing was written to the target, else with the target drained first."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from topicshift_airflow.docs import ROLLBACK_DOC, TASKS, WHICH_MIGRATION
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.end import ObserveRollback, RollBack

with DAG(
    "topic_rollback",
    description="Put producers and groups back on the source, by the type of rollback that holds now.",
    doc_md=ROLLBACK_DOC,
    schedule=None,
    catchup=False,
    default_args={**RETRIES, "owner": "topicshift"},
    params={
        "migration": Param(
            "",
            type="string",
            minLength=1,
            title="Migration",
            description_md=WHICH_MIGRATION,
        ),
        "reason": Param("", type="string", title="Reason", description="Why, for the audit trail."),
        "only_say": Param(
            False, type="boolean", title="Only say", description="Say what it would do, and change nothing."
        ),
    },
    tags=["topicshift", "kafka"],
) as dag:
    observe = ObserveRollback(task_id="observe", doc_md=TASKS["rollback.observe"])
    roll_back = RollBack(task_id="roll_back", doc_md=TASKS["rollback.roll_back"])
    observe >> roll_back
