"""Shows a question of a migration whose text in its own task has become an old one. Started by that task."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from topicshift_airflow.docs import QUESTION_DAG_DOC, task_doc
from topicshift_airflow.operators.advance import QUESTION_DAG, RETRIES
from topicshift_airflow.operators.end import AnswerQuestion

with DAG(
    QUESTION_DAG,
    description="One question of a migration, asked anew because what it is about has changed.",
    doc_md=QUESTION_DAG_DOC,
    schedule=None,
    catchup=False,
    max_active_runs=200,
    is_paused_upon_creation=False,
    default_args={**RETRIES, "owner": "topicshift"},
    params={"migration": Param("", type="string", title="Migration", description="Filled in by the migration itself.")},
    tags=["topicshift", "kafka"],
) as dag:
    AnswerQuestion(task_id="answer", doc_md=task_doc("answer"))
