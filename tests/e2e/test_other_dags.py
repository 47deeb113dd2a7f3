"""Going back, assessing, and a migration of the calendar, through a real scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml
from tests.e2e.small import Run, Topic, pair, trail_is_intact, until

from lab.airflow_api import AirflowApi
from lab.load_proof import prove
from lab.rights import allow, grant
from lab.stack import Stack
from lab.traffic import start_traffic
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.spec.io import load_spec

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]

GO, SWITCH = "stop_producers.go", "switch_producers.switch"
RESUMED_WITHIN_S = 10.0
"""2 s were seen where the cores are idle."""
SPECS = Path(__file__).parents[1] / "specs"


@pytest.fixture
def journal(stack: Stack) -> Iterator[SqlJournal]:
    opened = SqlJournal(stack.journal_url)
    yield opened
    opened.close()


def test_a_rollback_before_the_first_record_puts_everything_back(
    stack: Stack, journal: SqlJournal, tmp_path: Path
) -> None:
    api, source, target = stack.airflow, "bookings", "bookings-v2"
    life = pair(stack, tmp_path / "life", source)
    config = stack.broker.superuser_config()
    admin = KafkaAdmin(config)
    try:
        start_traffic(config, life, lambda _: None, backlog=300)
        grant(config, allow("legacy", "TOPIC", source, "WRITE", "DESCRIBE"))
        acls = admin.acls()
        values = {
            "source": source,
            "partitions": 12,
            "approvals_certificate": "required",
            "producers": [{"name": "checkout", "principal": "User:checkout"}],
            "consumers": [{"name": "ledger", "group": "ledger"}],
            "ordering_sequence_header": "seq",
        }
        run = Run.start(api, "topic_migration", values)
        shown = run.question("approve.plan")["subject"]
        second = Run.start(api, "topic_migration", values).wait("failed")
        assert f"held by topic_migration/{run.run_id}, which is running" in second.log("plan.read_spec")
        # The plan changes while the question waits: the answer to its first text counts for nothing.
        admin.alter_topic_configs(source, set_={"retention.ms": "86400000"})
        run.answer("approve.plan")
        assert run.answer_anew()["subject"] != shown
        assert "`User:legacy`" in run.answer(GO)["body"] and not life.frozen()[0]
        run.question(SWITCH)
        assert life.frozen()[0] == ["sent-checkout-0"]
        assert admin.topic(target) is not None
        assert {a.principal for a in admin.acls() - acls if a.permission == "DENY"} == {"User:legacy"}
        refused = Run.start(api, "topic_rollback", {"migration": source, "reason": "a test"}).wait("failed")
        assert "still running" in refused.log("observe")
        api.set_run_state("topic_migration", run.run_id, "failed")
        marked = time.monotonic()
        until(lambda: not life.frozen()[0], "producers that resume on the source")
        took = time.monotonic() - marked
        print(f"producers resumed on the source {took:.1f} s after the run was marked")
        assert took < RESUMED_WITHIN_S
        back = Run.start(api, "topic_rollback", {"migration": source, "reason": "a test"})
        shown = back.answer("roll_back")
        assert "(free)" in shown["subject"] and "nothing was ever written to the target" in shown["body"]
        back.wait("success")
        assert api.xcom("topic_rollback", back.run_id, "observe")["type"] == "free"
        assert not life.frozen()[0], "producers must write to the source again"
        assert admin.topic(target) is None
        assert admin.acls() == acls
        (row,) = [r for r in journal.find(source=source) if r.state == "rolled_back"]
        assert trail_is_intact(journal, row.migration_id)
        sent = life.counts()["sent"]
        until(lambda: life.counts()["sent"] > sent, "records that are sent after the rollback")
        again = Run.start(api, "topic_rollback", {"migration": row.migration_id, "reason": "a test"}).wait("failed")
        assert "rolled back already" in again.log("observe")
        life.finish()
    finally:
        life.stop()
        admin.close()
    proof = prove(tmp_path / "life")
    assert set(proof["sent_by_topic"]) == {source}
    ledger = proof["groups"]["ledger"]
    assert (ledger["lost"], ledger["duplicated"], ledger["out_of_order"]) == (0, 0, 0)
    assert ledger["processed"] == proof["sent"]


def test_an_assessment_reports_and_changes_nothing(stack: Stack, journal: SqlJournal) -> None:
    topic = Topic(stack, "ratings", "ratings-ledger").make()

    def world(admin: KafkaAdmin) -> Any:
        return (
            admin.topic_names(),
            admin.topic(topic.name),
            admin.offsets(topic.name),
            admin.acls(),
            admin.commits([topic.group], topic.name, range(topic.partitions)),
        )

    with topic.admin() as admin:
        before = world(admin)
        run = Run.start(stack.airflow, "topic_assessment", topic.values()).wait("success")
        assert world(admin) == before
    assert journal.find(source=topic.name) == []
    answer = stack.airflow.xcom("topic_assessment", run.run_id, "report")
    assert answer["ok"]
    plans = [p for p in stack.evidence.glob("assessment-*/plan.json") if answer["plan_hash"] in p.read_text()]
    (folder,) = [p.parent for p in plans]
    impact = json.loads((folder / "impact.json").read_text())
    assert (impact["records"], impact["distinct_keys"]) == (60, 10)
    assert 6 in [c["partitions"] for c in impact["candidates"]]
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["plan_hash"] == answer["plan_hash"] and plan["target"]["partitions"] == 6
    assert "ratings" in (folder / "impact.html").read_text()
    draft = yaml.safe_load((folder / "draft.yaml").read_text())
    assert (draft["source"], [c["group"] for c in draft["consumers"]]) == (topic.name, [topic.group])


def test_an_assessment_that_found_blockers_is_red_and_its_report_is_whole(stack: Stack) -> None:
    topic = Topic(stack, "blocked", "blocked-ledger").make()
    nobody = [{"name": "ledger", "kind": "route", "group": "blocked-nobody"}]
    run = Run.start(stack.airflow, "topic_assessment", topic.values(consumers=nobody)).wait("failed")
    states = run.states()
    assert (states["report"], states["nothing_blocks"]) == ("success", "failed")
    assert "TS301" in run.log("nothing_blocks") and "blocked-ledger" in run.log("nothing_blocks")


@pytest.mark.parametrize(("dag_id", "group"), [("topic_assessment", ""), ("topic_migration", "plan.")])
def test_a_count_that_is_wrong_is_refused_before_spark_is_paid_for(stack: Stack, dag_id: str, group: str) -> None:
    topic = Topic(stack, f"wrong-{dag_id.rpartition('_')[2]}", f"{dag_id}-ledger").make()
    run = Run.start(stack.airflow, dag_id, topic.values(partitions=topic.partitions)).wait("failed")
    states = run.states()
    assert (states[f"{group}check"], states[f"{group}key_rehash_impact"]) == ("failed", "upstream_failed")
    log = run.log(f"{group}check")
    assert "TS106 error: partitions: the source has 3 partitions already." in log
    assert "TS118" not in log and "--journal" not in log, "a DAG knows its journal, and has no options to give"


def test_the_topics_of_a_deleted_run_are_free_and_its_evidence_is_for_those_who_log_in(
    stack: Stack, journal: SqlJournal
) -> None:
    api, dag_id = stack.airflow, "topic_migration"
    topic = Topic(stack, "deleted", "deleted-ledger").make()
    blocked = topic.values(partitions=topic.partitions)
    first = Run.start(api, dag_id, blocked).wait("failed")
    (row,) = journal.find(source=topic.name)

    def page(folder: str, name: str, *, token: str | None = None) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{stack.services.url}/topicshift/evidence/{folder}/{name}"
        return httpx.get(url, headers=headers, trust_env=False).status_code

    token = httpx.post(
        f"{stack.services.url}/auth/token",
        json={"username": "admin", "password": stack.services.password("admin")},
        trust_env=False,
    ).json()["access_token"]
    assert page(row.migration_id, "plan.json") == page("no-such-run", "plan.json") == 401
    assert page(row.migration_id, "plan.json", token=token) == 200
    assert page(row.migration_id, "none.json", token=token) == 404
    assert page("no-such-run", "plan.json", token=token) == 403
    api.request("DELETE", f"/dags/{dag_id}/dagRuns/{quote(first.run_id, safe='')}")
    second = Run.start(api, dag_id, blocked).wait("failed")
    assert second.states()["plan.read_spec"] == "success", second.failures()
    assert [r.owner for r in journal.find(source=topic.name)] == [row.owner, f"{dag_id}/{second.run_id}"]


def test_a_scheduled_migration_carries_its_spec_and_waits_for_its_window_before_anything_is_prepared(
    stack: Stack, journal: SqlJournal
) -> None:
    api, dag_id = stack.airflow, "topic_migration__refunds"
    spec = load_spec(SPECS / "refunds.yaml")
    topic = Topic(stack, spec.source, spec.consumers[0].group).make()
    api.wait_parsed(dag_id)
    assert api.dag(dag_id)["is_paused"], "a schedule begins when a person says so"
    api.unpause(dag_id)
    try:
        until(lambda: bool(api.dag_runs(dag_id)), "the scheduled run")
        (run,) = api.dag_runs(dag_id)
        assert run["run_type"] == "scheduled"
        late = Run(api, dag_id, run["dag_run_id"])
        late.wait_state("stop_producers.transactions", "deferred")
        late.wait_state("verify_drain.drain_verification", "deferred")
        said = late.log("stop_producers.transactions")
        assert "the window is closed, and nobody is stopped" in said and "-01-01T03:00" in said
        assert "the armed verifier is started then" in late.log("verify_drain.drain_verification")
        api.set_run_state(dag_id, late.run_id, "failed")
    finally:
        api.set_paused(dag_id, True)
    assert late.states()["create_target.create"] == "success"
    (row,) = journal.find(source=topic.name)
    assert journal.step(row.migration_id, "arm") is None
    assert row.spec == spec.model_dump(mode="json") and row.owner == f"{dag_id}/{late.run_id}"
    assert journal.step(row.migration_id, "freeze") is None
    with topic.admin() as admin:
        assert not [a for a in admin.acls() if a.name == topic.name and a.permission == "DENY"]


def test_a_spec_that_is_wrong_has_a_dag_that_says_so(stack: Stack) -> None:
    api: AirflowApi = stack.airflow
    api.wait_parsed("topic_migration__misspelt")
    api.unpause("topic_migration__misspelt")
    run = Run.start(api, "topic_migration__misspelt", {}).wait("failed")
    assert "Did you mean `source`" in run.log("read_spec")
