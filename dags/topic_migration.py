"""Move a keyed topic to a new topic with another number of partitions.

``topic_migration`` is started by hand from its form; every spec in ``include/migrations`` that has a window gets a
scheduled DAG of its own, ``topic_migration__<name>``. The task groups are the steps of the runbook, left to right.
"""

from __future__ import annotations

from topicshift_airflow.dag_factory import migration_dag, scheduled_migrations

topic_migration = migration_dag("topic_migration")

for _dag in scheduled_migrations():
    globals()[_dag.dag_id] = _dag
