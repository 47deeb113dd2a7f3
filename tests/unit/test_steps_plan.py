"""Taking a snapshot: every part by itself, and nothing unread passes for empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.plan_world import IMPACT, follower, spec

from topicshift.acts.open import near_names
from topicshift.acts.plan import make_plan, take_snapshot
from topicshift.core.errors import AccessDenied, Transient, Unreadable
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl, GroupMember
from topicshift.ports import ClusterAdmin, ControlContext, Follower, Participant, ParticipantState
from topicshift.testing.fake_controllers import FakeController
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class OnTheRoute(FakeController):
    """The route with these applications on it."""

    def __init__(self, *found: Follower, gone_ms: int = 30_000) -> None:
        super().__init__("route")
        self.found, self.gone_ms, self.error = found, gone_ms, None

    def followers(self, ctx: ControlContext) -> list[Follower]:
        if self.error is not None:
            raise self.error
        return list(self.found)

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        found = super().observe(ctx, participants)
        return [replace(s, instances=tuple(replace(i, gone_ms=self.gone_ms) for i in s.instances)) for s in found]


ROUTE = OnTheRoute(follower())


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
    plan = make_plan(spec(target=None), admin, impact=IMPACT, route=ROUTE, now=NOW)
    assert plan.ok, str(plan)
    assert (plan.taken_at, plan.spec.target) == ("2026-01-01T00:00:00+00:00", "payments-v2")
    assert plan.target is not None and plan.target.configs == {"retention.ms": "86400000"}
    assert plan.readers == {"ledger": "it has commits on the topic"}
    assert not {c for c in cluster.calls if c.startswith(("create", "delete", "alter"))}
    assert plan == make_plan(spec(target=None), admin, impact=IMPACT, route=ROUTE, now=NOW)


def test_without_a_journal_the_plan_says_that_other_migrations_were_not_looked_for(cluster: FakeCluster) -> None:
    from topicshift.testing.fake_journal import FakeJournal

    alone = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    assert "TS118" in {f.code for f in alone.findings} and alone.ok
    told = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE, now=NOW, journal=FakeJournal())
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
        ("transactional_ids", "transactional"),
    ],
)
def test_a_part_that_cannot_be_read_is_named_and_blocks(cluster: FakeCluster, method: str, part: str) -> None:
    cluster.fail(method, AccessDenied("DESCRIBE is missing"))
    snapshot = take_snapshot(cluster, spec(), impact=IMPACT, route=ROUTE, now=NOW)
    assert dict(snapshot.unread) == {part: "not allowed: DESCRIBE is missing"}
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    assert not plan.ok and plan.unknown
    assert [f.subject for f in plan.findings if f.code == "TS501"] == [part]


def test_an_application_on_the_route_that_nobody_declared_blocks_by_name(cluster: FakeCluster) -> None:
    route = OnTheRoute(follower(), follower("loyalty"))
    plan = make_plan(spec(), cluster, impact=IMPACT, route=route, now=NOW)
    assert [(f.code, f.subject) for f in plan.blocking()] == [("TS317", "producer loyalty")]
    both = [{"name": "checkout", "principal": "User:checkout"}, {"name": "loyalty"}]
    plan = make_plan(spec(producers=both), cluster, impact=IMPACT, route=route, now=NOW)
    assert "TS317" not in {f.code for f in plan.findings}


def test_a_route_that_cannot_be_read_blocks_only_where_somebody_follows_it(cluster: FakeCluster) -> None:
    route = OnTheRoute()
    route.error = AccessDenied("READ on topic __topicshift_acks is not allowed")
    plan = make_plan(spec(), cluster, impact=IMPACT, route=route, now=NOW)
    assert [(f.code, f.subject) for f in plan.blocking()] == [("TS501", "followers")]
    assert "READ on topic __topicshift_acks" in plan.blocking()[0].seen and plan.unknown
    nobody_looked = make_plan(spec(), cluster, impact=IMPACT, now=NOW)
    assert [f.code for f in nobody_looked.blocking()] == ["TS317"] and nobody_looked.unknown
    by_hand = spec(
        producers=[{"name": "checkout", "kind": "manual", "principal": "User:checkout"}],
        consumers=[{"name": "ledger", "kind": "manual", "group": "ledger", "stored_offsets": "none"}],
    )
    for given in (route, None):
        assert make_plan(by_hand, cluster, impact=IMPACT, route=given, now=NOW).ok


def test_a_route_that_could_expire_is_found_before_it_is_relied_on(cluster: FakeCluster) -> None:
    cluster.create_topic("__topicshift_routes", 1, 3, {"message.timestamp.type": "LogAppendTime"})
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    found = {f.seen: f.level.value for f in plan.findings if f.code == "TS324"}
    assert found["it has cleanup.policy delete, not compact."] == "warning"
    assert plan.ok, "the run sets it before it begins"


def test_a_producer_that_could_hold_most_of_the_freeze_is_named(cluster: FakeCluster) -> None:
    def warned(budget: str) -> bool:
        plan = make_plan(spec(freeze_budget=budget), cluster, impact=IMPACT, route=ROUTE, now=NOW)
        return "TS323" in {f.code for f in plan.findings}

    assert warned("59s") and not warned("60s")


def _week(partitions: int | None, configs: Mapping[str, str]) -> str | None:
    if int(configs.get("retention.ms", "0")) > 604_800_000:
        return "house rule: nothing is kept for longer than a week"
    return "house rule: at most 24 partitions" if (partitions or 0) > 24 else None


def test_what_the_brokers_would_refuse_is_known_before_anything_is_made(cluster: FakeCluster) -> None:
    cluster.policy = _week
    cluster.calls.clear()
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    (refused,) = plan.blocking()
    assert refused.code == "TS119" and "with 30 partitions" in refused.seen and "at most 24" in refused.seen
    longer = [f for f in plan.findings if f.code == "TS120"]
    assert longer == [], "a day can be lengthened"
    assert make_plan(spec(partitions=24), cluster, impact=IMPACT, route=ROUTE, now=NOW).ok
    assert not {c for c in cluster.calls if c.startswith(("create", "delete", "alter"))}


def test_the_config_that_the_brokers_refuse_is_named(cluster: FakeCluster) -> None:
    cluster.alter_topic_configs("payments", set_={"retention.ms": "700000000", "segment.ms": "60000"})
    cluster.policy = _week  # it came after the source
    plan = make_plan(spec(partitions=24), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    (refused,) = plan.blocking()
    assert (refused.code, refused.subject) == ("TS119", "target retention.ms")
    assert "retention.ms=700000000" in refused.seen and "longer than a week" in refused.seen
    (longer,) = [f for f in plan.findings if f.code == "TS120"]
    assert longer.level.value == "warning" and "longer than a week" in longer.seen
    cluster.fail("validate_create", AccessDenied("CREATE on topic payments-v2 is not allowed"))
    plan = make_plan(spec(partitions=24), cluster, impact=IMPACT, route=ROUTE, now=NOW)
    assert [(f.code, f.subject) for f in plan.blocking()] == [("TS501", "create")]


def test_one_unreadable_partition_is_named(cluster: FakeCluster) -> None:
    cluster.unreadable("payments", 3, "no leader")
    reason = take_snapshot(cluster, spec(), impact=IMPACT, route=ROUTE, now=NOW).unread["offsets"]
    assert "1 of 6 partitions of payments: partition 3 (no leader)" in reason


def test_a_dead_cluster_is_asked_once(cluster: FakeCluster) -> None:
    cluster.fail("cluster", Transient("b1:9092 does not answer"))
    with pytest.raises(Unreadable, match="b1:9092 does not answer"):
        make_plan(spec(), cluster, now=NOW)
    assert cluster.calls == ["cluster"]


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


def test_topics_that_are_coupled_with_the_source_are_found_and_can_be_acknowledged(cluster: FakeCluster) -> None:
    """Written in one transaction, and read by one group; with another count nobody can join them by partition."""
    for name, count in (("refunds", 6), ("fees", 6), ("logs", 4)):
        cluster.create_topic(name, count, 1, {})
    txn = cluster.begin("checkout-1")
    txn.produce("payments", 0)
    txn.produce("fees", 0)
    own = {t: tuple(range(n)) for t, n in (("payments", 6), ("refunds", 6), ("logs", 4))}
    cluster.join("ledger", GroupMember("m1", "c1", "h", assignment=own, topics=tuple(own)))

    def blocking(**changes: object) -> dict[str, str]:
        plan = make_plan(spec(**changes), cluster, impact=IMPACT, route=ROUTE)
        return {f.subject: f.seen for f in plan.blocking()}

    found = blocking()
    assert set(found) == {"topic fees", "consumers[0].group"}
    assert "by checkout-1." in found["topic fees"] and "reads refunds too, with 6" in found["consumers[0].group"]
    fees = {"topic": "fees", "reason": "booked one by one"}
    assert set(blocking(coupled=[fees])) == {"consumers[0].group"}
    assert blocking(coupled=[fees, {"group": "ledger", "reason": "it joins none"}]) == {}
    assert blocking(coupled=[fees, {"topic": "refunds", "reason": "nobody joins them"}]) == {}
    txn.commit()
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE)
    assert any("by checkout-1, and none of these was open now" in f.seen for f in plan.findings), (
        "said, not passed over"
    )


def test_a_group_without_members_is_known_by_what_it_has_committed(cluster: FakeCluster) -> None:
    cluster.create_topic("refunds", 6, 1, {})
    cluster.leave("ledger", "m1")
    cluster.commit("ledger", "refunds", {0: 1})
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE)
    assert [f.code for f in plan.blocking()] == ["TS327"], str(plan)


def test_a_topic_that_this_client_may_not_see_is_counted_by_its_assignment(cluster: FakeCluster) -> None:
    """A settled group has every partition assigned; without one, nobody can tell, and unknown blocks."""
    own = {"payments": tuple(range(6)), "hidden": tuple(range(4))}
    cluster.join("ledger", GroupMember("m1", "c1", "h", assignment=own, topics=tuple(own)))
    assert make_plan(spec(), cluster, impact=IMPACT, route=ROUTE).ok
    cluster.join("ledger", GroupMember("m1", "c1", "h", assignment={"payments": (0,)}, topics=tuple(own)))
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE)
    assert ["whose partitions cannot be counted" in f.seen for f in plan.blocking()] == [True], str(plan)


@pytest.mark.parametrize("method", ["committed_topics", "partition_counts"])
def test_what_else_a_group_reads_is_not_guessed(cluster: FakeCluster, method: str) -> None:
    cluster.create_topic("refunds", 6, 1, {})
    cluster.leave("ledger", "m1")
    cluster.commit("ledger", "refunds", {0: 1})
    cluster.fail(method, Transient("timed out"))
    plan = make_plan(spec(), cluster, impact=IMPACT, route=ROUTE)
    assert plan.unknown and [f.subject for f in plan.blocking()] == ["beside"], str(plan)


def test_every_kind_whose_controller_cannot_tell_is_named_with_what_the_others_say(cluster: FakeCluster) -> None:
    """A person mends them all at once, and does not find the next one at the next run."""

    class Silent(FakeController):
        def can_i(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[str]:
            raise Transient(f"no answer from {self.kind}")

    movers = {
        "command": Silent("command"),
        "http": FakeController("http"),
        "spark_streaming": Silent("spark_streaming"),
    }
    movers["http"].cannot = ["app-http: it is stopped"]
    consumers = [{"name": f"app-{kind}", "kind": kind, "group": "ledger"} for kind in movers]
    declared = spec().model_copy(update={"consumers": [spec().consumers[0].model_copy(update=c) for c in consumers]})
    seen = take_snapshot(cluster, declared, impact=IMPACT, route=ROUTE, now=NOW, movers=movers.__getitem__)
    assert seen.unable is None
    said = seen.unread["unable"]
    assert all(
        part in said for part in ("no answer from command", "app-http: it is stopped", "no answer from spark_streaming")
    )
