"""The one plugin of Topicshift: what Airflow shows beside the DAGs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from topicshift_airflow.links import LINKS, MOUNT, SparkLink, mounted_path

PATH = mounted_path()


async def evidence_app(scope: Any, receive: Any, send: Any) -> None:
    """The pages; imported at the first request, since every task loads this file."""
    from topicshift_airflow.web import app

    await app(scope, receive, send)


class TopicshiftPlugin(AirflowPlugin):
    """Registers the links of tasks, and the pages: migrations, one migration, evidence."""

    name = "topicshift"
    operator_extra_links = [*LINKS, SparkLink()]  # noqa: RUF012
    fastapi_apps = [{"app": evidence_app, "url_prefix": MOUNT, "name": "Topicshift"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Migrations",  # Airflow cuts a longer one
            "href": f"{PATH}/",
            "destination": "nav",
            "url_route": "topic-migrations",
            "nav_top_level": True,
            "icon": f"{PATH}/icon.svg",
            "icon_dark_mode": f"{PATH}/icon-dark.svg",
        },
        {
            "name": "Topic migration",
            "href": f"{PATH}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "topic-migration",
        },
    ]
