"""What would a migration do? Plan and key-rehash impact, read-only, any time."""

from __future__ import annotations

from airflow.sdk import DAG

from topicshift_airflow.dag_factory import DEFAULT_ARGS, form_params
from topicshift_airflow.docs import ASSESSMENT_DOC, TASKS
from topicshift_airflow.operators.assess import AssessInput, AssessReport, NothingBlocks
from topicshift_airflow.operators.jobs import AssessImpact

with DAG(
    "topic_assessment",
    description="Which keys would move, what would be hot, how many partitions to take. Changes nothing.",
    doc_md=ASSESSMENT_DOC,
    schedule=None,
    catchup=False,
    default_args=DEFAULT_ARGS,
    params=form_params(),
    tags=["topicshift", "kafka", "read-only"],
) as dag:
    look = AssessInput(task_id="check", doc_md=TASKS["assess.check"])
    impact = AssessImpact(task_id="key_rehash_impact", look="check", doc_md=TASKS["plan.key_rehash_impact"])
    report = AssessReport(task_id="report", doc_md=TASKS["assess.report"])
    verdict = NothingBlocks(task_id="nothing_blocks", report="report", doc_md=TASKS["assess.nothing_blocks"])
    look >> impact >> report >> verdict
