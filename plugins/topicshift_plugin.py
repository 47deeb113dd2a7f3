"""The one plugin of Topicshift: what Airflow shows beside the DAGs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from topicshift_airflow.links import MOUNT, EvidenceLink


async def evidence_app(scope: Any, receive: Any, send: Any) -> None:
    """The evidence pages; imported at the first request, since every task loads this file."""
    from topicshift_airflow.web import app

    await app(scope, receive, send)


class TopicshiftPlugin(AirflowPlugin):
    """Registers the links from tasks to their evidence, and the pages that show it."""

    name = "topicshift"
    operator_extra_links = [EvidenceLink()]  # noqa: RUF012
    fastapi_apps = [{"app": evidence_app, "url_prefix": MOUNT, "name": "Topicshift evidence"}]  # noqa: RUF012
