"""The source goes only when nothing speaks against it: looked at, denied for a while, looked at again, deleted once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topicshift.acts.participants import SWITCH_PRODUCERS
from topicshift.acts.retire import (
    begin_scream,
    close_gone,
    delete_source,
    end_scream,
    look,
    readers,
    require_nothing_against,
    scream_acls,
    switched_at,
)
from topicshift.core.errors import PreflightFailed, Refused, Transient, Unreadable
from topicshift.core.findings import Finding
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.proof.retirement import due_at, only_time
from topicshift.core.spec.model import Spec
from topicshift.ports import Acl, Claim
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET = "payments", "payments-v2"
WRITE = Acl("TOPIC", SOURCE, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
HOUR = timedelta(hours=1)


class World:
    """A migration that is done, with three partitions of two records each at its fence."""

    def __init__(self, *, authorizer: bool = True) -> None:
        self.clock = ManualClock()
        self.journal = FakeJournal(self.clock)
        self.cluster = FakeCluster(authorizer=authorizer)
        self.topic_id = self.cluster.create_topic(SOURCE, 3, 1, {"retention.ms": str(2 * 3_600_000)})
        for p in range(3):
            self.cluster.produce(SOURCE, p, 2)
        if authorizer:
            self.cluster.create_acls([WRITE])
        self.cluster.commit("ledger", SOURCE, {0: 2, 1: 2, 2: 2})
        self.spec = Spec.model_validate(
            {
                "source": SOURCE,
                "target": TARGET,
                "partitions": 6,
                "producers": [{"name": "checkout"}],
                "consumers": [{"name": "ledger", "group": "ledger"}],
                "retire": {"after": "1h", "scream_test": "10m"},
            }
        )
        self.claim: Claim = self.journal.claim(
            cluster_id="fake-cluster",
            source=SOURCE,
            target=TARGET,
            owner="run-1",
            spec=self.spec.model_dump(mode="json"),
            owner_alive=lambda _: True,
        )
        self.journal.intend(self.claim, SWITCH_PRODUCERS, {})
        self.journal.finish(self.claim, SWITCH_PRODUCERS, {"finished_at": self.clock.now().isoformat()})
        self.journal.set_state(self.claim, "done", active=False)
        self.unfenced = 0

    def look(self, **change: Any) -> list[Finding]:
        wanted = {"topic_id": self.topic_id, "fence_offsets": {0: 2, 1: 2, 2: 2}}
        return look(
            self.journal.current(self.claim.migration_id),
            self.spec,
            admin=self.cluster,
            journal=self.journal,
            clock=self.clock,
            **{**wanted, **change},
        )

    def codes(self, **change: Any) -> list[str]:
        return [f.code for f in self.look(**change)]

    def unfence(self) -> None:
        self.unfenced += 1

    def delete(self) -> dict[str, Any]:
        return delete_source(
            self.journal.current(self.claim.migration_id),
            topic_id=self.topic_id,
            admin=self.cluster,
            journal=self.journal,
            claim=self.claim,
            clock=self.clock,
            look_again=self.look,
            unfence=self.unfence,
        )

    def scream(self) -> datetime:
        return begin_scream(
            SOURCE,
            self.spec.retire.scream_test,
            admin=self.cluster,
            journal=self.journal,
            claim=self.claim,
            clock=self.clock,
        )

    def stop_screaming(self) -> bool:
        return end_scream(SOURCE, admin=self.cluster, journal=self.journal, claim=self.claim)

    def events(self) -> list[str]:
        return [e.kind for e in self.journal.events(self.claim.migration_id)]

    def state(self) -> str:
        return self.journal.current(self.claim.migration_id).state


@pytest.fixture
def world() -> World:
    """A migration that is done, and whose source is due."""
    made = World()
    made.clock.advance(3 * 3600)
    return made


def member(**more: Any) -> GroupMember:
    return GroupMember("m1", "app", "/10.0.0.1", **more)


# ------------------------------------------------------------------------------------------------ when


def test_both_the_spec_and_the_topics_own_retention_must_have_passed() -> None:
    end = datetime(2026, 1, 1, tzinfo=UTC)
    assert due_at(end, HOUR, timedelta(days=2)) == end + timedelta(days=2)
    assert due_at(end, HOUR, timedelta(minutes=1)) == end + HOUR
    assert due_at(end, HOUR, None) == end + HOUR, "records that are kept for ever have no retention to wait for"


def test_nothing_but_time_is_no_failure() -> None:
    early = World()
    early.clock.advance(90 * 60)  # `after` has passed, the retention of two hours has not
    found = early.look()
    assert only_time(found) and found[0].blocks
    early.cluster.produce(SOURCE, 1)
    assert not only_time(early.look())


def test_a_migration_that_never_switched_has_nothing_to_retire(world: World) -> None:
    world.journal.finish(world.claim, SWITCH_PRODUCERS, {}, state="undone")
    with pytest.raises(Refused, match="never switched"):
        switched_at(world.journal, world.claim.migration_id)


# ------------------------------------------------------------------------------------------------ who reads


def test_old_commits_alone_are_no_reading(world: World) -> None:
    assert world.look() == []
    assert readers(world.cluster, SOURCE, world.clock) == ([], [])


@pytest.mark.parametrize(
    "topics", [(SOURCE,), ("^pay.*",), ("^pay.*$",), ("^(payments|refunds)$",)], ids=["name", "^", "^$", "choice"]
)
def test_members_that_subscribe_by_name_or_by_a_pattern_read_it(world: World, topics: tuple[str, ...]) -> None:
    world.cluster.join("nightly", member(topics=topics))
    (found,) = world.look()
    assert found.code == "TS605" and "nightly" in found.seen


@pytest.mark.parametrize("topics", [("payments-v2",), ("^payments-.*",), ("^refunds$",)])
def test_members_of_another_topic_do_not(world: World, topics: tuple[str, ...]) -> None:
    world.cluster.join("nightly", member(topics=topics))
    assert world.look() == []


def test_a_member_with_a_partition_of_it_reads_it(world: World) -> None:
    world.cluster.join("nightly", member(assignment={SOURCE: (2,)}))
    assert world.codes() == ["TS605"]


def test_a_consumer_that_assigns_partitions_itself_shows_by_its_commits(world: World) -> None:
    looks = 0

    def meanwhile(method: str) -> None:
        nonlocal looks
        looks += method == "commits"
        if looks == 2:
            world.cluster.on_call = None
            world.cluster.commit("export", SOURCE, {1: 2})

    world.cluster.commit("export", SOURCE, {1: 1})
    world.cluster.on_call = meanwhile
    (found,) = world.look()
    assert found.code == "TS605" and "export" in found.seen and "ledger" not in found.seen


def test_a_commit_inside_an_open_transaction_is_reading(world: World) -> None:
    world.cluster.commit("exactly-once", SOURCE, {0: 1})
    world.cluster.pending_commit("exactly-once", SOURCE, 0)
    assert "exactly-once" in world.look()[0].seen


def test_what_cannot_be_read_blocks_as_unknown(world: World) -> None:
    world.cluster.fail("groups", Unreadable("no answer"))
    with pytest.raises(Unreadable):
        world.look()
    world.cluster.fail("groups", None)
    world.cluster.unreadable(SOURCE, 1, "leader not available")
    (found,) = world.look()
    assert found.code == "TS604" and found.unknown and "[1]" in found.seen
    with pytest.raises(Unreadable, match="TS604"):
        require_nothing_against([found])


# ------------------------------------------------------------------------------------------------ what it is now


def test_a_record_after_the_fence_is_named_with_its_partition(world: World) -> None:
    world.cluster.produce(SOURCE, 2, 3)
    (found,) = world.look()
    assert found.code == "TS603" and f"{SOURCE}[2] +3" in found.seen
    with pytest.raises(PreflightFailed, match="TS603"):
        require_nothing_against([found])


def test_records_in_a_partition_that_came_after_the_fence_count_as_written(world: World) -> None:
    world.cluster.add_partitions(SOURCE, 4)
    assert world.look() == []
    world.cluster.produce(SOURCE, 3, 5)
    (found,) = world.look()
    assert found.code == "TS603" and f"{SOURCE}[3] +5" in found.seen


def test_another_topic_under_the_same_name_is_not_deleted(world: World) -> None:
    world.cluster.delete_topic(SOURCE)
    world.cluster.create_topic(SOURCE, 3, 1, {})
    world.clock.advance(8 * 86_400)
    assert world.codes() == ["TS602"]
    with pytest.raises(PreflightFailed, match="TS602"):
        world.delete()
    assert world.cluster.topic(SOURCE) is not None


def test_a_topic_that_is_swapped_between_look_and_act_is_not_deleted(world: World) -> None:
    topics = 0

    def meanwhile(method: str) -> None:
        nonlocal topics
        if method == "topic":
            topics += 1
            if topics == 4:  # delete_source, look, readers; then the last look before the act
                world.cluster.on_call = None
                world.cluster.delete_topic(SOURCE)
                world.cluster.create_topic(SOURCE, 1, 1, {})

    world.cluster.on_call = meanwhile
    with pytest.raises(Refused, match="another topic by now"):
        world.delete()
    assert world.cluster.topic(SOURCE) is not None


# ------------------------------------------------------------------------------------------------ the scream test


def test_the_scream_test_denies_everybody_and_its_inverse_removes_exactly_that(world: World) -> None:
    before = world.cluster.acls()
    until = world.scream()
    assert until == world.clock.now() + timedelta(minutes=10)
    assert world.cluster.acls() == before | set(scream_acls(SOURCE))
    assert not world.cluster.may("User:checkout", "WRITE", SOURCE)
    world.clock.advance(60)
    assert world.scream() == until, "a repeated step keeps the end of the first"
    assert world.stop_screaming() and not world.stop_screaming()
    assert world.cluster.acls() == before
    assert world.state() == "done", "a test that ended without a deletion leaves the migration as it was"


def test_a_deny_that_somebody_else_set_stays(world: World) -> None:
    theirs = scream_acls(SOURCE)[1]
    world.cluster.create_acls([theirs])
    before = world.cluster.acls()
    world.scream()
    world.stop_screaming()
    assert world.cluster.acls() == before


def test_a_second_test_after_one_that_was_broken_off_has_its_own_time(world: World) -> None:
    first = world.scream()
    world.stop_screaming()
    world.clock.advance(3600)
    assert world.scream() > first
    assert set(scream_acls(SOURCE)) <= world.cluster.acls()


def test_without_an_authorizer_the_time_is_waited_for_all_the_same() -> None:
    bare = World(authorizer=False)
    until = bare.scream()
    assert until > bare.clock.now()
    assert bare.stop_screaming()
    assert "create_acls" not in bare.cluster.calls


# ------------------------------------------------------------------------------------------------ the deletion


def test_the_source_is_deleted_once_and_nothing_of_ours_stays_behind(world: World) -> None:
    world.scream()
    world.clock.advance(600)
    data = world.delete()
    assert data["topic_id"] == world.topic_id
    assert world.cluster.topic(SOURCE) is None
    assert not set(scream_acls(SOURCE)) & world.cluster.acls()
    assert world.unfenced == 1 and world.state() == "retired"
    world.cluster.create_topic(SOURCE, 1, 1, {})
    assert data.items() <= world.delete().items()
    assert world.cluster.topic(SOURCE) is not None, "the repeated step must not touch a later topic of that name"
    assert world.events().count("source_deleted") == 1


def test_a_reader_that_came_during_the_test_stops_the_deletion(world: World) -> None:
    world.scream()
    world.clock.advance(600)
    world.cluster.join("late", member(topics=("^pay.*",)), kind="consumer")
    with pytest.raises(PreflightFailed, match="late"):
        world.delete()
    assert world.cluster.topic(SOURCE) is not None


@pytest.mark.parametrize("method", ["delete_topic", "delete_acls"])
def test_a_deletion_that_was_broken_off_is_finished_by_the_next_try(world: World, method: str) -> None:
    world.scream()
    world.cluster.fail(method, Transient("the connection broke"))
    with pytest.raises(Transient):
        world.delete()
    world.cluster.fail(method, None)
    world.delete()
    assert world.cluster.topic(SOURCE) is None and world.state() == "retired"
    assert not set(scream_acls(SOURCE)) & world.cluster.acls()


# ------------------------------------------------------------------------------------------------ gone by itself


def close(world: World) -> bool:
    return close_gone(
        world.journal.current(world.claim.migration_id),
        admin=world.cluster,
        journal=world.journal,
        claim=world.claim,
        unfence=world.unfence,
    )


def test_a_source_that_somebody_else_deleted_closes_the_migration_once_and_says_so(world: World) -> None:
    assert not close(world) and world.state() == "done"
    world.scream()
    world.cluster.delete_topic(SOURCE)
    assert world.codes() == ["TS601"]
    assert close(world)
    assert world.state() == "retired" and world.unfenced == 1 and "source_gone" in world.events()
    assert not set(scream_acls(SOURCE)) & world.cluster.acls()


def test_a_source_that_this_migration_is_deleting_is_not_taken_for_somebody_elses_work(world: World) -> None:
    world.cluster.fail("delete_acls", Transient("the connection broke"))
    world.scream()
    with pytest.raises(Transient):
        world.delete()
    world.cluster.fail("delete_acls", None)
    assert world.cluster.topic(SOURCE) is None
    assert not close(world)
    world.delete()
    assert "source_deleted" in world.events() and "source_gone" not in world.events()
