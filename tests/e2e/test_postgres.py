"""Airflow's metadata and the journal on PostgreSQL, as in production: a run reaches its end there."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from tests.e2e.small import Run, Topic, trail_is_intact

from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.postgres, pytest.mark.timeout(1800), pytest.mark.long]


def test_a_plan_that_is_blocked_ends_its_run_on_postgresql(stack: Stack) -> None:
    topic = Topic(stack, "claims", "claims-ledger").make()
    consumers = [{"name": "ledger", "kind": "manual", "group": "nobody"}]
    run = Run.start(stack.airflow, "topic_migration", topic.values(consumers=consumers)).wait("failed")
    log = run.log("plan.check")
    assert "TS301" in log and "TS302" in log, "a group that does not exist, and one that nobody declared"
    journal = SqlJournal(stack.journal_url)
    try:
        (row,) = journal.find(source=topic.name)
        assert (row.state, row.active, row.owner) == ("failed", False, f"topic_migration/{run.run_id}")
        assert "step_failed" in {e.kind for e in journal.events(row.migration_id)}
        assert trail_is_intact(journal, row.migration_id)
    finally:
        journal.close()
    airflow = sa.create_engine(sa.make_url(stack.journal_url).set(database="airflow"))
    assert airflow.name == "postgresql"
    with airflow.connect() as connection:
        found = connection.execute(sa.text("select state from dag_run where run_id = :r"), {"r": run.run_id})
        assert found.scalar_one() == "failed"
    airflow.dispose()
    assert not list(stack.folder.path.rglob("*.db")), "nothing may be kept in SQLite beside it"
