"""Move a keyed topic to a new topic with another number of partitions.

``topic_migration`` (``drain_first``) and ``topic_migration_producers_first`` are started by hand from their form; every
spec in ``include/migrations`` that has a window gets a scheduled DAG of its own, ``topic_migration__<name>``. The task
groups are the steps of the runbook, left to right.
"""

from __future__ import annotations

from topicshift_airflow.dag_factory import migrations

for _dag in migrations():
    globals()[_dag.dag_id] = _dag
