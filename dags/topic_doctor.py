"""Is this installation fit for a migration? The checks of ``topicshift doctor``, seen by a worker."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from topicshift.commands.installation import AREAS
from topicshift_airflow.docs import DOCTOR_DOC, task_doc
from topicshift_airflow.operators.doctor import LookAt

with DAG(
    "topic_doctor",
    description="Check this installation: DAGs, plugin, settings, connections, Kafka, journal, evidence, Spark.",
    doc_md=DOCTOR_DOC,
    schedule=None,
    catchup=False,
    is_paused_upon_creation=False,
    default_args={"owner": "topicshift"},
    params={
        "kafka_conn_id": Param(
            "kafka_default",
            type="string",
            minLength=1,
            title="Kafka connection",
            description="The Airflow connection that specs name as kafka_conn_id.",
        )
    },
    tags=["topicshift", "kafka", "read-only"],
) as dag:
    for area in AREAS:
        LookAt(task_id=area, area=area, doc_md=task_doc(f"doctor.{area}"))
