"""The target made, made again, recognised after a kill, refused in another shape, deleted only while empty and ours."""

from __future__ import annotations

from typing import Any

import pytest

from topicshift.acts.target import create_target, delete_target
from topicshift.core.errors import Refused, Transient, Unreadable
from topicshift.core.kafka.cluster import Acl
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

TARGET = "payments-v2"
WRITE = Acl("TOPIC", TARGET, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
READ = Acl("TOPIC", TARGET, "LITERAL", "User:ledger", "*", "READ", "ALLOW")


class Killed(BaseException):
    """The process ends here."""


class World:
    """A cluster, a journal and a claim."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(brokers=3)
        self.cluster.create_topic("payments", 6, 3, {"retention.ms": "3600000"})
        self.journal = FakeJournal(ManualClock())
        self.claim = self.journal.claim(
            cluster_id="c", source="payments", target=TARGET, owner="run-1", spec={}, owner_alive=lambda _: True
        )
        self.cluster.calls.clear()

    def create(self, **change: Any) -> str:
        wanted: dict[str, Any] = {
            "name": TARGET,
            "partitions": 12,
            "replication_factor": 3,
            "configs": {"retention.ms": "3600000"},
            "acls": [WRITE, READ],
        }
        return create_target(self.cluster, self.journal, self.claim, **{**wanted, **change})

    def delete(self) -> bool:
        return delete_target(self.cluster, self.journal, self.claim)

    def state(self) -> str | None:
        row = self.journal.step(self.claim.migration_id, "create_target")
        return row.state if row else None

    def changes(self) -> list[str]:
        return [c for c in self.cluster.calls if c.startswith(("create", "delete", "alter"))]


@pytest.fixture
def world() -> World:
    return World()


def test_the_target_is_what_was_planned(world: World) -> None:
    topic_id = world.create()
    seen = world.cluster.topic(TARGET)
    assert seen is not None
    assert (seen.topic_id, seen.partitions, seen.replication_factor) == (topic_id, 12, 3)
    assert {e.name: e.value for e in seen.configs.values() if e.set_here} == {"retention.ms": "3600000"}
    assert {WRITE, READ} <= world.cluster.acls()
    assert world.state() == "done"


def test_repeating_it_changes_nothing(world: World) -> None:
    topic_id = world.create()
    world.cluster.produce(TARGET, 0, 5)
    assert world.create() == topic_id
    assert [c for c in world.changes() if c == "create_topic"] == ["create_topic"]


@pytest.mark.parametrize("at", ["create_topic", "create_acls", "topic-after"])
def test_killed_anywhere_it_is_finished_by_the_next(world: World, at: str) -> None:
    def die(method: str) -> None:
        made = TARGET in world.cluster._topics
        if method == at or (at == "topic-after" and method == "topic" and made):
            raise Killed

    world.cluster.on_call = die
    with pytest.raises(Killed):
        world.create()
    world.cluster.on_call = None
    assert world.state() == "intended"
    topic_id = world.create()
    assert world.state() == "done"
    assert {WRITE, READ} <= world.cluster.acls()
    seen = world.cluster.topic(TARGET)
    assert seen is not None
    assert seen.topic_id == topic_id
    assert world.delete()


@pytest.mark.parametrize(
    ("partitions", "copies", "configs", "said"),
    [
        (11, 3, {"retention.ms": "3600000"}, "11 partitions"),
        (12, 2, {"retention.ms": "3600000"}, "replication factor 2"),
        (12, 3, {"retention.ms": "1000"}, "retention.ms=1000"),
        (12, 3, {}, "retention.ms=not set"),
        (12, 3, {"retention.ms": "3600000", "cleanup.policy": "compact"}, "cleanup.policy=compact"),
    ],
)
def test_a_target_of_another_shape_is_refused_and_left_alone(
    world: World, partitions: int, copies: int, configs: dict[str, str], said: str
) -> None:
    world.cluster.create_topic(TARGET, partitions, copies, configs)
    world.cluster.calls.clear()
    with pytest.raises(Refused, match=said):
        world.create()
    assert world.changes() == []
    assert world.state() is None


def test_an_empty_target_of_the_same_shape_is_used_and_never_deleted(world: World) -> None:
    topic_id = world.cluster.create_topic(TARGET, 12, 3, {"retention.ms": "3600000"})
    world.cluster.create_acls([READ])
    before = world.cluster.acls()
    assert world.create() == topic_id
    assert world.delete() is False
    assert world.cluster.topic(TARGET) is not None
    assert world.cluster.acls() == before


def test_a_target_with_records_is_refused(world: World) -> None:
    world.cluster.create_topic(TARGET, 12, 3, {"retention.ms": "3600000"})
    world.cluster.produce(TARGET, 3, 1)
    world.cluster.delete_records(TARGET, 3, 1)
    with pytest.raises(Refused, match=r"has held records \(\[3\] ends at 1\)"):
        world.create()


def test_a_target_made_again_by_somebody_is_not_ours(world: World) -> None:
    world.create()
    world.cluster.delete_topic(TARGET)
    world.cluster.create_topic(TARGET, 12, 3, {"retention.ms": "3600000"})
    with pytest.raises(Refused, match="deleted and made again"):
        world.create()
    with pytest.raises(Refused, match="left alone"):
        world.delete()
    assert world.cluster.topic(TARGET) is not None


def test_a_target_that_somebody_deleted_is_not_made_again(world: World) -> None:
    world.create()
    world.cluster.delete_topic(TARGET)
    with pytest.raises(Refused, match="is gone"):
        world.create()


def test_another_plan_is_refused(world: World) -> None:
    world.create()
    with pytest.raises(Refused, match="another partitions"):
        world.create(partitions=24)


def test_the_way_back_leaves_nothing_behind(world: World) -> None:
    before = world.cluster.acls()
    world.create()
    assert world.delete()
    assert world.cluster.topic(TARGET) is None
    assert world.cluster.acls() == before
    assert world.state() == "undone"
    assert world.delete() is False


@pytest.mark.parametrize("at", ["delete_topic", "delete_acls"])
def test_the_way_back_killed_anywhere_is_finished_by_the_next(world: World, at: str) -> None:
    before = world.cluster.acls()
    world.create()

    def die(method: str) -> None:
        if method == at:
            raise Killed

    world.cluster.on_call = die
    with pytest.raises(Killed):
        world.delete()
    world.cluster.on_call = None
    assert world.delete()
    assert world.cluster.topic(TARGET) is None
    assert world.cluster.acls() == before


def test_after_the_way_back_it_can_be_made_again(world: World) -> None:
    first = world.create()
    world.delete()
    assert world.create() != first


def test_a_target_with_records_is_not_deleted(world: World) -> None:
    world.create()
    world.cluster.produce(TARGET, 0, 1)
    world.cluster.calls.clear()
    with pytest.raises(Refused):
        world.delete()
    assert world.changes() == []


def test_what_cannot_be_read_never_counts_as_empty(world: World) -> None:
    world.create()
    world.cluster.unreadable(TARGET, 4, "leader election")
    with pytest.raises(Unreadable, match="leader election"):
        world.delete()
    world.cluster.unreadable(TARGET, 4, None)
    world.cluster.fail("topic", Transient("no answer in 15 s"))
    with pytest.raises(Transient):
        world.delete()
    world.cluster.fail("topic", None)
    assert world.delete()


def test_without_a_target_there_is_nothing_to_delete(world: World) -> None:
    assert world.delete() is False
    assert world.cluster.calls == []


def test_without_acls_no_authorizer_is_needed(world: World) -> None:
    world.cluster = FakeCluster(brokers=3, authorizer=False)
    world.create(acls=[])
    assert world.delete()
