"""The one plugin of Topicshift: what Airflow shows beside the DAGs."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from topicshift_airflow.links import EvidenceLink


class TopicshiftPlugin(AirflowPlugin):
    """Registers the links from tasks to their evidence."""

    name = "topicshift"
    operator_extra_links = [EvidenceLink()]  # noqa: RUF012
