"""Who may see which migrations, and who may give an order: Airflow decides both, by the DAG."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow.api_fastapi import app
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models import DagModel

CONTROL, ROLLBACK = "topic_control", "topic_rollback"
"""DAGs by which a person gives an order: whoever may trigger one may give its orders."""

ASSESS = "topic_assessment"
"""The DAG that looks at a topic: whoever may read its XComs may read its drafts, whoever may trigger it may look."""


def readable(dag_ids: Collection[str], user: Any) -> frozenset[str]:
    """Those of these DAGs whose XComs this user may read: they may see the migrations and the evidence of its runs."""
    return _allowed("GET", DagAccessEntity.XCOM, dag_ids, user)


def triggerable(user: Any, dag_ids: Collection[str] = (CONTROL, ROLLBACK)) -> frozenset[str]:
    """Those of these DAGs (by default those for orders) that this user may trigger."""
    return _allowed("POST", DagAccessEntity.RUN, dag_ids, user)


def _allowed(method: Any, entity: DagAccessEntity, dag_ids: Collection[str], user: Any) -> frozenset[str]:
    wanted = sorted(set(dag_ids))
    if not wanted:
        return frozenset()
    teams, manager = DagModel.get_dag_id_to_team_name_mapping(wanted), app.get_auth_manager()
    return frozenset(
        dag_id
        for dag_id in wanted
        if manager.is_authorized_dag(
            method=method,
            access_entity=entity,
            details=DagDetails(id=dag_id, team_name=teams.get(dag_id)),
            user=user,
        )
    )
