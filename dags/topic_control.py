"""A person's order to one migration: pause, go on, postpone, resume on the source, abort, replay, close."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from topicshift_airflow.docs import CONTROL_DOC, TASKS, WHICH_MIGRATION
from topicshift_airflow.operators.advance import RETRIES
from topicshift_airflow.operators.orders import ORDERS, GiveOrder

with DAG(
    "topic_control",
    description="Pause, postpone, resume on the source, abort, replay or close one migration.",
    doc_md=CONTROL_DOC,
    schedule=None,
    catchup=False,
    is_paused_upon_creation=False,
    default_args={**RETRIES, "owner": "topicshift"},
    params={
        "migration": Param(
            "",
            type="string",
            minLength=1,
            title="Migration",
            description_md=WHICH_MIGRATION,
        ),
        "order": Param("pause", type="string", enum=list(ORDERS), title="Order", description="What is to happen."),
        "reason": Param(
            "", type="string", title="Reason", description="Why, for the audit trail. An abort and a close need one."
        ),
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Postpone until",
            description_md="For *postpone*: before this moment no freeze begins. Empty: the next window of the spec.",
        ),
        "records": Param(
            "",
            type="string",
            title="Records",
            description_md="For *replay*: partition:offset of each, as **strays.json** has them. Empty: all of them.",
        ),
        "only_say": Param(
            False, type="boolean", title="Only say", description="Say what it would do, and change nothing."
        ),
    },
    tags=["topicshift", "kafka"],
) as dag:
    GiveOrder(task_id="give_order", doc_md=TASKS["control.give_order"])
