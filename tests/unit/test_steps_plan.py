"""Taking a snapshot: every part by itself, and nothing unread passes for empty."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.unit.plan_world import IMPACT, spec

from topicshift.acts.open import near_names
from topicshift.acts.plan import make_plan, take_snapshot
from topicshift.core.errors import AccessDenied, Transient, Unreadable
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl, GroupMember
from topicshift.ports import ClusterAdmin
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster(brokers=3)
    fake.create_topic("payments", 6, 3, {"retention.ms": "86400000"})
    for p in range(6):
        fake.produce("payments", p, 10)
    fake.create_acls([Acl("TOPIC", "payments", "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")])
    fake.join("ledger", GroupMember("m1", "c1", "h", assignment={"payments": tuple(range(6))}, topics=("payments",)))
    fake.commit("ledger", "payments", dict.fromkeys(range(6), 5))
    fake.calls.clear()
    return fake


def test_a_plan_from_a_cluster_changes_nothing_in_it(cluster: FakeCluster) -> None:
    admin: ClusterAdmin = cluster
    plan = make_plan(spec(target=None), admin, impact=IMPACT, now=NOW)
    assert plan.ok, str(plan)
    assert (plan.taken_at, plan.spec.target) == ("2026-01-01T00:00:00+00:00", "payments-v2")
    assert plan.target is not None and plan.target.configs == {"retention.ms": "86400000"}
    assert plan.readers == {"ledger": "it has commits on the topic"}
    assert not {c for c in cluster.calls if c.startswith(("create", "delete", "alter"))}
    assert plan == make_plan(spec(target=None), admin, impact=IMPACT, now=NOW)


def test_without_a_journal_the_plan_says_that_other_migrations_were_not_looked_for(cluster: FakeCluster) -> None:
    from topicshift.testing.fake_journal import FakeJournal

    alone = make_plan(spec(), cluster, impact=IMPACT, now=NOW)
    assert "TS118" in {f.code for f in alone.findings} and alone.ok
    told = make_plan(spec(), cluster, impact=IMPACT, now=NOW, journal=FakeJournal())
    assert "TS118" not in {f.code for f in told.findings}


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("topic_names", "topics"),
        ("acls", "acls"),
        ("offsets", "offsets"),
        ("groups", "groups"),
        ("describe_groups", "described"),
        ("commits", "commits"),
        ("producers", "producers"),
        ("transactions", "transactions"),
    ],
)
def test_a_part_that_cannot_be_read_is_named_and_blocks(cluster: FakeCluster, method: str, part: str) -> None:
    cluster.fail(method, AccessDenied("DESCRIBE is missing"))
    snapshot = take_snapshot(cluster, spec(), impact=IMPACT, now=NOW)
    assert dict(snapshot.unread) == {part: "not allowed: DESCRIBE is missing"}
    plan = make_plan(spec(), cluster, impact=IMPACT, now=NOW)
    assert not plan.ok and plan.unknown
    assert [f.subject for f in plan.findings if f.code == "TS501"] == [part]


def test_one_unreadable_partition_is_named(cluster: FakeCluster) -> None:
    cluster.unreadable("payments", 3, "no leader")
    reason = take_snapshot(cluster, spec(), impact=IMPACT, now=NOW).unread["offsets"]
    assert "1 of 6 partitions of payments: partition 3 (no leader)" in reason


def test_a_dead_cluster_is_asked_once(cluster: FakeCluster) -> None:
    cluster.fail("cluster", Transient("b1:9092 does not answer"))
    with pytest.raises(Unreadable, match="b1:9092 does not answer"):
        make_plan(spec(), cluster, now=NOW)
    assert cluster.calls == ["cluster"]


def test_names_that_are_promised_to_others_are_not_taken(cluster: FakeCluster) -> None:
    plan = make_plan(spec(target=None), cluster, impact=IMPACT, taken=frozenset({"payments-v2"}), now=NOW)
    assert plan.spec.target == "payments-v3"


def test_a_source_that_was_moved_before_is_not_moved_again(cluster: FakeCluster) -> None:
    clock = ManualClock()
    journal = FakeJournal(clock)
    claim = journal.claim(
        cluster_id=cluster.cluster().cluster_id,
        source="payments",
        target="payments-v2",
        owner="run-7",
        spec={},
        owner_alive=lambda _: True,
    )
    info = cluster.topic("payments")
    assert info is not None
    proven = {
        "topic": "payments",
        "topic_id": info.topic_id,
        "partitions": info.partitions,
        "fence_offsets": {p: o.end for p, o in cluster.offsets("payments").items()},
        "began_at": NOW.isoformat(),
        "taken_at": NOW.isoformat(),
        "settings": FenceSettings(),
        "samples": [],
        "acls_before": [],
        "acls_added": [],
    }
    journal.intend(claim, "fence", {"topic": "payments"})
    journal.finish(claim, "fence", {"record": FenceRecord.model_validate(proven).model_dump(mode="json")})
    journal.set_state(claim, "done", active=False)

    def codes() -> list[tuple[str, str]]:
        plan = make_plan(spec(target="payments-v3"), cluster, impact=IMPACT, journal=journal, now=NOW)
        return [(f.code, f.level.value) for f in plan.findings if f.code == "TS117"]

    assert codes() == [("TS117", "error")]
    cluster.produce("payments", 0, 1)
    assert codes() == [("TS117", "warning")]
    cluster.delete_topic("payments")
    cluster.create_topic("payments", 6, 3, {})
    assert codes() == [], "another topic under the old name"


def test_a_missing_source(cluster: FakeCluster) -> None:
    plan = make_plan(spec(source="paymentz"), cluster, no_impact="not here", now=NOW)
    assert [f.code for f in plan.blocking()] == ["TS101"]
    assert not plan.unknown


def test_a_source_that_is_a_slip_of_the_pen_is_told_what_there_is() -> None:
    names = ["payments", "payments-v2", "orders", "__consumer_offsets"]
    assert near_names("paymnets", names) == ["payments", "payments-v2"]
    assert near_names("payment", names) == ["payments", "payments-v2"]
    assert near_names("offsets", names) == []
