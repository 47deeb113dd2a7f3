"""Going back after the switch through a real scheduler, under live load."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.small import Run, pair, trail_is_intact, works

from lab.load_proof import prove
from lab.stack import Stack
from lab.traffic import start_traffic
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]


@pytest.mark.parametrize(
    ("dag_id", "source"), [("topic_migration", "fares"), ("topic_migration_producers_first", "seats")]
)
def test_after_the_switch_everybody_goes_back_and_nothing_is_lost(
    dag_id: str, source: str, stack: Stack, tmp_path: Path
) -> None:
    api, target, config = stack.airflow, f"{source}-v2", stack.broker.superuser_config()
    life = pair(stack, tmp_path / "life", source)
    admin, journal = KafkaAdmin(config), SqlJournal(stack.journal_url)

    try:
        start_traffic(config, life, lambda _: None, backlog=300)
        acls = {a for a in admin.acls() if a.name == source}
        values = {
            "source": source,
            "partitions": 12,
            "approvals_plan": "auto",
            "approvals_freeze": "auto",
            "producers": [{"name": "checkout", "principal": "User:checkout"}],
            "consumers": [{"name": "ledger", "group": "ledger", "stored_offsets": "none"}],
            "ordering_sequence_header": "seq",
        }
        Run.start(api, dag_id, values).wait("success")
        works(life)
        back = Run.start(api, "topic_rollback", {"migration": source, "reason": "a test"})
        shown = back.answer("roll_back")
        assert "(drain_back)" in shown["subject"] and f"`{target}` keeps its records" in shown["body"]
        back.wait("success")
        assert api.xcom("topic_rollback", back.run_id, "observe")["type"] == "drain_back"
        works(life)
        (row,) = journal.find(source=source)
        assert (row.state, row.active) == ("rolled_back", False)
        assert trail_is_intact(journal, row.migration_id)
        assert {a for a in admin.acls() if a.name == source} == acls
        assert admin.topic(target) is not None, "its records are kept"
        life.finish()
    finally:
        life.stop()
        journal.close()
        admin.close()
    proof = prove(tmp_path / "life")
    assert set(proof["sent_by_topic"]) == {source, target}
    ledger = proof["groups"]["ledger"]
    assert (ledger["lost"], ledger["out_of_order"], ledger["duplicated"]) == (0, 0, 0), ledger
    assert ledger["processed"] == proof["sent"]
