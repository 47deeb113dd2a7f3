"""The fence step over fakes: set, proven, rechecked, removed; killed at each call and run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from topicshift.acts.fence import fence, recheck, rehearse, unfence
from topicshift.commands.drain_options import fence_of_file
from topicshift.core.errors import (
    AccessDenied,
    DrainTimedOut,
    FenceBroken,
    NotFound,
    Refused,
    SpecError,
    Transient,
    Unreadable,
)
from topicshift.core.fence.decision import FenceSettings
from topicshift.core.fence.record import FenceRecord
from topicshift.core.kafka.cluster import Acl
from topicshift.ports import Claim, InstanceState, Participant, ParticipantState
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE = "payments"
LEGACY = Acl("TOPIC", SOURCE, "LITERAL", "User:legacy", "*", "WRITE", "ALLOW")
CHECKOUT = Acl("TOPIC", SOURCE, "PREFIXED", "User:checkout", "*", "WRITE", "ALLOW")
OLD_DENY = Acl("TOPIC", SOURCE, "LITERAL", "User:banned", "*", "WRITE", "DENY")
DENY = Acl("TOPIC", SOURCE, "LITERAL", "User:legacy", "*", "WRITE", "DENY")
SETTINGS = FenceSettings(settle_s=0.5, samples=2, poll_s=0.1, deadline_s=5.0)


class Killed(BaseException):
    """The process ends here."""


class World:
    """A cluster with a source, a journal with a claim, a clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = FakeCluster(now_ms=lambda: int(self.clock.now().timestamp() * 1000))
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_acls([LEGACY, CHECKOUT, OLD_DENY])
        self.cluster.produce(SOURCE, 0, 5)
        self.journal = FakeJournal(self.clock)
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source=SOURCE, target="payments-v2", owner="run-1", spec={}, owner_alive=lambda _: True
        )
        self.status = "stopped"
        self.said: list[str] = []
        self.during: Callable[[float], None] = lambda _seconds: None
        self._start = self.clock.now()

    def participants(self) -> list[ParticipantState]:
        seconds = (self.clock.now() - self._start).total_seconds()
        self.during(seconds)
        who = Participant("checkout", "producer", "route", principal="User:checkout")
        return [ParticipantState(who, self.status, SOURCE, (InstanceState("i-1", self.status, SOURCE, 1),))]  # type: ignore[arg-type]

    def fence(self, **change: Any) -> FenceRecord:
        settings = change.pop("settings", SETTINGS)
        return fence(
            self.cluster,
            self.journal,
            self.claim,
            self.clock,
            SOURCE,
            change.pop("exempt", {"User:checkout"}),
            settings,
            self.participants,
            self.said.append,
            **change,
        )

    def unfence(self) -> tuple[Acl, ...]:
        return unfence(self.cluster, self.journal, self.claim, SOURCE)


@pytest.fixture
def world() -> World:
    return World()


def test_a_quiet_source_is_fenced_within_the_settle_time_and_a_bit(world: World) -> None:
    record = world.fence()
    assert record.fence_offsets == {0: 5, 1: 0, 2: 0}
    assert sum(world.clock.slept) <= 0.71
    assert record.acls_added == [DENY]
    assert record.acls_before == sorted([LEGACY, CHECKOUT, OLD_DENY])
    assert record.stopped == ["checkout"]
    assert len(record.samples) >= 2
    assert not world.cluster.may("User:legacy", "WRITE", SOURCE)
    assert world.cluster.may("User:checkout", "WRITE", SOURCE)
    row = world.journal.step(world.claim.migration_id, "fence")
    assert row is not None
    assert row.state == "done"
    assert FenceRecord.model_validate(row.data["record"]) == record


def test_the_file_that_the_fence_step_leaves_is_read_by_command_line_and_spark_alike(
    world: World, tmp_path: Path
) -> None:
    import order_proof

    file = tmp_path / "fence.json"
    record = world.fence()
    file.write_text(record.model_dump_json(indent=2))
    assert json.loads(file.read_text())["fence_offsets"] == {"0": 5, "1": 0, "2": 0}
    assert fence_of_file(file, SOURCE) == order_proof.load_fence(str(file), SOURCE) == record.point
    assert record.point.topic_id == record.topic_id and record.point.fence_offsets == {0: 5, 1: 0, 2: 0}
    for read in (fence_of_file, lambda path, topic: order_proof.load_fence(str(path), topic)):
        with pytest.raises(SpecError, match=f"of topic {SOURCE}, not orders"):
            read(file, "orders")


def test_the_intent_is_written_before_the_first_deny(world: World) -> None:
    seen: list[str | None] = []

    def look(method: str) -> None:
        if method == "create_acls":
            row = world.journal.step(world.claim.migration_id, "fence")
            seen.append(row.state if row else None)

    world.cluster.on_call = look
    world.fence()
    assert seen == ["intended"]


def test_a_writer_that_goes_round_the_toggle_is_caught_and_named(world: World) -> None:
    rogue = world.cluster.new_producer_id()
    world.during = lambda _s: world.cluster.produce(SOURCE, 2, 3, producer_id=rogue)
    with pytest.raises(DrainTimedOut) as caught:
        world.fence()
    text = str(caught.value)
    assert f"{SOURCE}[2] grew by" in text
    assert "/s" in text
    assert f"producer id {rogue}" in text
    assert [e.kind for e in world.journal.events(world.claim.migration_id)].count("fence_not_proven") == 1


def test_one_late_record_only_delays_the_fence(world: World) -> None:
    once = iter([True])
    world.during = lambda s: world.cluster.produce(SOURCE, 1) if s > 0.3 and next(once, False) else None
    assert world.fence().fence_offsets == {0: 5, 1: 1, 2: 0}


def test_a_commit_marker_after_the_stop_only_delays_the_fence(world: World) -> None:
    open_ = world.cluster.begin("tx-1")
    open_.produce(SOURCE, 0, 2)
    once = iter([True])
    world.during = lambda s: open_.commit() if s > 0.3 and next(once, False) else None
    record = world.fence()
    assert record.fence_offsets[0] == 5 + 2 + 1
    assert any("transactional id tx-1" in t for t in world.said)


def test_an_open_transaction_is_never_fenced_and_never_aborted_by_itself(world: World) -> None:
    open_ = world.cluster.begin("tx-1", timeout_ms=600_000)
    open_.produce(SOURCE, 0, 2)
    with pytest.raises(DrainTimedOut, match=r"transactional id tx-1.*Kafka ends it by itself in at most"):
        world.fence()
    assert "abort_transaction" not in world.cluster.calls


def test_a_hanging_transaction_is_offered_to_a_person(world: World) -> None:
    open_ = world.cluster.begin("tx-1")
    open_.produce(SOURCE, 0, 2)
    world.cluster.forget_transaction(open_)
    world.clock.advance(2000)
    with pytest.raises(DrainTimedOut, match=r"hangs.*kafka-transactions.sh abort --topic payments --partition 0"):
        world.fence()
    assert "abort_transaction" not in world.cluster.calls


@pytest.mark.parametrize("status", ["running", "unknown"])
def test_a_participant_that_does_not_say_stopped_keeps_it_open(world: World, status: str) -> None:
    world.status = status
    with pytest.raises(Unreadable if status == "unknown" else DrainTimedOut, match="checkout"):
        world.fence()


@pytest.mark.parametrize("method", ["topic", "offsets", "producers", "transactions"])
def test_what_cannot_be_read_never_counts_as_fenced(world: World, method: str) -> None:
    world.during = lambda _s: world.cluster.fail(method, Transient("no answer in 15 s"))
    with pytest.raises(Unreadable, match="no answer in 15 s"):
        world.fence()


def test_one_unreadable_partition_is_enough(world: World) -> None:
    world.cluster.unreadable(SOURCE, 1, "leader election")
    with pytest.raises(Unreadable, match="partition 1: cannot be read: leader election"):
        world.fence()


def test_a_missing_right_is_told_at_once(world: World) -> None:
    world.cluster.fail("producers", AccessDenied("READ on topic payments is not allowed"))
    with pytest.raises(AccessDenied):
        world.fence()
    assert sum(world.clock.slept) == 0


@pytest.mark.parametrize("how", ["made again", "partitions"])
def test_a_source_that_changes_under_it_breaks_it(world: World, how: str) -> None:
    def change(seconds: float) -> None:
        if seconds > 0.25 and how == "partitions":
            world.cluster.add_partitions(SOURCE, 4)
        elif 0.25 < seconds < 0.35:
            world.cluster.delete_topic(SOURCE)
            world.cluster.create_topic(SOURCE, 3, 1, {})

    world.during = change
    with pytest.raises(FenceBroken, match="made again" if how == "made again" else "4 partitions now"):
        world.fence()


def test_a_source_that_is_not_there_is_said(world: World) -> None:
    world.cluster.delete_topic(SOURCE)
    with pytest.raises(NotFound):
        world.fence()
    assert world.journal.step(world.claim.migration_id, "fence") is None


def test_an_unfenced_source_has_exactly_the_acls_of_before(world: World) -> None:
    before = world.cluster.acls()
    world.fence()
    assert world.cluster.acls() == before | {DENY}
    assert world.unfence() == (DENY,)
    assert world.cluster.acls() == before
    assert world.unfence() == ()
    assert world.cluster.acls() == before


def test_a_deny_that_still_shows_is_not_called_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fence()
    monkeypatch.setattr(world.cluster, "delete_acls", lambda acls: None)
    with pytest.raises(Transient, match="still shown after their deletion"):
        world.unfence()
    monkeypatch.undo()
    assert world.unfence() == (DENY,)


def test_a_deny_of_somebody_else_survives_fence_and_unfence(world: World) -> None:
    world.cluster.create_acls([DENY])
    before = world.cluster.acls()
    assert world.fence().acls_added == []
    world.unfence()
    assert world.cluster.acls() == before


def test_without_a_fence_there_is_nothing_to_remove(world: World) -> None:
    assert world.unfence() == ()
    assert "delete_acls" not in world.cluster.calls


def test_the_fence_of_another_topic_is_not_touched(world: World) -> None:
    world.fence()
    with pytest.raises(Refused):
        unfence(world.cluster, world.journal, world.claim, "orders")
    assert DENY in world.cluster.acls()


def kill_at(world: World, n: int) -> None:
    """End the process at the n-th call of the cluster that changes something or reads ACLs."""
    count = iter(range(100))

    def die(method: str) -> None:
        if method in ("create_acls", "delete_acls", "acls") and next(count) == n:
            raise Killed

    world.cluster.on_call = die


@pytest.mark.parametrize("n", range(3))
@pytest.mark.parametrize("then", ["fence", "unfence"])
def test_killed_at_any_call_it_ends_the_same(world: World, n: int, then: str) -> None:
    before = world.cluster.acls()
    kill_at(world, n)
    with pytest.raises(Killed):
        world.fence()
    world.cluster.on_call = None
    if then == "fence":
        assert world.fence().acls_added == [DENY]
        assert world.cluster.acls() == before | {DENY}
    world.unfence()
    assert world.cluster.acls() == before


@pytest.mark.parametrize("n", range(2))
def test_unfencing_killed_at_any_call_is_finished_by_the_next(world: World, n: int) -> None:
    before = world.cluster.acls()
    world.fence()
    kill_at(world, n)
    with pytest.raises(Killed):
        world.unfence()
    world.cluster.on_call = None
    world.unfence()
    assert world.cluster.acls() == before
    row = world.journal.step(world.claim.migration_id, "fence")
    assert row is not None
    assert row.state == "undone"


def test_after_a_restart_the_same_fence_is_proven_again(world: World) -> None:
    first = world.fence()
    world.cluster.calls.clear()
    world.clock.advance(60)
    assert world.fence() == first
    assert world.cluster.calls.count("offsets") >= 2


def test_after_a_restart_a_write_breaks_the_fence(world: World) -> None:
    world.fence()
    world.clock.advance(60)
    world.cluster.produce(SOURCE, 1, 4)
    with pytest.raises(FenceBroken, match=r"payments\[1\] grew by 4"):
        world.fence()


def test_a_new_fence_after_unfencing_has_new_offsets(world: World) -> None:
    world.fence()
    world.unfence()
    world.cluster.produce(SOURCE, 1, 4)
    assert world.fence().fence_offsets == {0: 5, 1: 4, 2: 0}
    assert DENY in world.cluster.acls()


def test_recheck_passes_while_nothing_changed(world: World) -> None:
    record = world.fence()
    world.cluster.calls.clear()
    recheck(world.cluster, record, world.clock)
    assert sorted(world.cluster.calls) == ["offsets", "topic"]


def test_recheck_names_partition_count_rate_and_producer(world: World) -> None:
    record = world.fence()
    rogue = world.cluster.new_producer_id()
    world.clock.advance(10)
    world.cluster.produce(SOURCE, 2, 20, producer_id=rogue)
    with pytest.raises(FenceBroken) as caught:
        recheck(world.cluster, record, world.clock)
    assert f"payments[2] grew by 20, 2.0/s: producer id {rogue}" in str(caught.value)


def test_recheck_without_the_right_to_see_producers_still_breaks(world: World) -> None:
    record = world.fence()
    world.cluster.produce(SOURCE, 2, 20)
    world.cluster.fail("producers", AccessDenied("READ on topic payments is not allowed"))
    with pytest.raises(FenceBroken, match=r"payments\[2\] grew by 20"):
        recheck(world.cluster, record, world.clock)


@pytest.mark.parametrize("how", ["made again", "gone", "partitions", "truncated"])
def test_recheck_sees_every_change_of_the_topic(world: World, how: str) -> None:
    record = world.fence()
    if how in ("made again", "gone"):
        world.cluster.delete_topic(SOURCE)
    if how == "made again":
        world.cluster.create_topic(SOURCE, 3, 1, {})
    if how == "partitions":
        world.cluster.add_partitions(SOURCE, 4)
    if how == "truncated":
        world.cluster.truncate(SOURCE, 0, 3)
    with pytest.raises(FenceBroken):
        recheck(world.cluster, record, world.clock)


@pytest.mark.parametrize("method", ["topic", "offsets"])
def test_recheck_that_cannot_read_is_unknown(world: World, method: str) -> None:
    record = world.fence()
    world.cluster.fail(method, Transient("no answer in 15 s"))
    with pytest.raises(Unreadable, match="no answer in 15 s"):
        recheck(world.cluster, record, world.clock)


def test_the_deadline_is_kept(world: World) -> None:
    world.status = "running"
    began = world.clock.now()
    with pytest.raises(DrainTimedOut):
        world.fence(settings=SETTINGS.model_copy(update={"deadline_s": 2.0}))
    assert timedelta(seconds=2) <= world.clock.now() - began <= timedelta(seconds=2.3)


def test_without_an_authorizer_the_end_offsets_are_the_judge(world: World) -> None:
    bare = FakeCluster(authorizer=False)
    bare.create_topic(SOURCE, 1, 1, {})
    world.cluster = bare
    record = world.fence()
    assert record.acls_added == []
    assert any("without an authorizer" in n for n in record.notes)
    assert world.unfence() == ()


def test_a_rehearsal_asks_everything_and_changes_nothing(world: World) -> None:
    world.cluster.calls.clear()
    rehearse(world.cluster, SOURCE)
    assert set(world.cluster.calls) == {"topic", "acls", "offsets", "producers", "transactions"}
    assert world.journal.step(world.claim.migration_id, "fence") is None


@pytest.mark.parametrize("method", ["acls", "offsets", "producers", "transactions"])
def test_a_rehearsal_tells_what_the_freeze_would_miss(world: World, method: str) -> None:
    world.cluster.fail(method, AccessDenied("not allowed"))
    with pytest.raises(AccessDenied):
        rehearse(world.cluster, SOURCE)
    world.cluster.fail(method, Transient("no answer in 15 s"))
    with pytest.raises(Unreadable, match="no answer in 15 s"):
        rehearse(world.cluster, SOURCE)
