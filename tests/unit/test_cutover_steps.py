"""The moves of participants: killed at any call, retried, run twice, given back: the outcome is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.acts.groups import seed_offsets, switch_group
from topicshift.acts.participants import (
    FREEZE,
    SWITCH_PRODUCERS,
    Cast,
    begin_freeze,
    begin_give_back,
    current_freeze,
    give_back,
    require_lease,
    stop_producers,
    switch_producers,
)
from topicshift.acts.rollback import Rollback, roll_back, rollback_type
from topicshift.core.engine.freeze import GiveBack
from topicshift.core.errors import AmbiguousState, DrainTimedOut, FenceBroken, OwnershipLost, Refused, Transient
from topicshift.ports import (
    Claim,
    ControlContext,
    InstanceState,
    Participant,
    ParticipantState,
)
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET = "payments", "payments-v2"
BUDGET = timedelta(seconds=120)
PRODUCERS = [Participant("checkout", "producer", "route"), Participant("billing", "producer", "route")]


class Killed(BaseException):
    """The process ended here."""


class Fuse:
    """Kills at the n-th call that passes through it."""

    def __init__(self) -> None:
        self.left: int | None = None

    def burn(self) -> None:
        if self.left is not None:
            if self.left == 0:
                self.left = None
                raise Killed
            self.left -= 1


class Applications:
    """Route-like applications: what a controller of the kind sees and moves."""

    kind = "route"
    needs_person = False

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.fuse = fuse or Fuse()
        self.topic: dict[str, str] = {}
        self.running: dict[str, bool] = {}
        self.deaf: set[str] = set()

    def _here(self, p: Participant) -> None:
        self.topic.setdefault(p.name, SOURCE)
        self.running.setdefault(p.name, True)

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        self.fuse.burn()
        for p in participants:
            self._here(p)
        return [
            ParticipantState(
                p,
                "running" if self.running[p.name] else "stopped",
                self.topic[p.name],
                (InstanceState(f"{p.name}-1", "ok", self.topic[p.name], 1),),
            )
            for p in participants
        ]

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self.fuse.burn()
        for p in participants:
            self._here(p)
            self.running[p.name] = p.name in self.deaf
        self.fuse.burn()

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        self.fuse.burn()
        for p in participants:
            self.topic[p.name] = topic
        self.fuse.burn()

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self.fuse.burn()
        for p in participants:
            self.running[p.name] = True
        self.fuse.burn()

    def close(self) -> None: ...


class FusedJournal(FakeJournal):
    """A journal whose writer may be killed before and after each write."""

    def __init__(self, clock: ManualClock, fuse: Fuse) -> None:
        super().__init__(clock)
        self.fuse = fuse

    def intend(self, *args: Any, **kwargs: Any) -> Any:
        self.fuse.burn()
        row = super().intend(*args, **kwargs)
        self.fuse.burn()
        return row

    def finish(self, *args: Any, **kwargs: Any) -> Any:
        self.fuse.burn()
        row = super().finish(*args, **kwargs)
        self.fuse.burn()
        return row


class World:
    def __init__(self) -> None:
        self.fuse = Fuse()
        self.clock = ManualClock()
        self.journal = FusedJournal(self.clock, self.fuse)
        self.cluster = FakeCluster()
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.apps = Applications(self.fuse)
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source=SOURCE, target=TARGET, owner="dag/run", spec={}, owner_alive=lambda _: True
        )
        self.cast = Cast({"route": self.apps}, ControlContext(self.claim.migration_id, SOURCE, TARGET, 1))
        self.said: list[str] = []
        self.fenced = False
        self.broken = False

    def recheck(self) -> None:
        if self.broken:
            raise FenceBroken("payments[0] grew by 1")

    def stop(self) -> None:
        freeze = begin_freeze(self.journal, self.claim, self.clock, BUDGET)
        stop_producers(self.cast, PRODUCERS, clock=self.clock, deadline=freeze.act_until, progress=self.said.append)
        self.fenced = True

    def switch(self) -> Any:
        return switch_producers(
            self.cast,
            PRODUCERS,
            journal=self.journal,
            claim=self.claim,
            clock=self.clock,
            recheck=self.recheck,
            progress=self.said.append,
        )

    def give_back(self) -> tuple[GiveBack, str]:
        row = self.journal.current(self.claim.migration_id)
        self.claim = begin_give_back(self.journal, Claim(row.migration_id, row.epoch, row.owner))
        return give_back(
            self.cast,
            PRODUCERS,
            admin=self.cluster,
            journal=self.journal,
            claim=self.claim,
            clock=self.clock,
            unfence=self.unfence,
            progress=self.said.append,
        )

    def unfence(self) -> None:
        self.fenced = False

    def state(self, step: str) -> str | None:
        row = self.journal.step(self.claim.migration_id, step)
        return row.state if row else None

    def where(self) -> set[tuple[str, bool]]:
        return {(self.apps.topic[p.name], self.apps.running[p.name]) for p in PRODUCERS}

    def until_done(self, act: Any, kills: list[int]) -> Any:
        """Run ``act``; each number kills the process at that call, and it is tried again, as Airflow does."""
        for n in kills:
            self.fuse.left = n
            try:
                return act()
            except Killed:
                continue
            finally:
                self.fuse.left = None
        return act()


kills = st.lists(st.integers(0, 12), max_size=6)


@given(kills, kills)
def test_killed_anywhere_the_switch_ends_the_same(stops: list[int], switches: list[int]) -> None:
    w = World()
    w.until_done(w.stop, stops)
    assert w.where() == {(SOURCE, False)}
    w.until_done(w.switch, switches)
    assert w.where() == {(TARGET, True)}
    assert (w.state(FREEZE), w.state(SWITCH_PRODUCERS)) == ("done", "done")
    w.switch()
    assert w.where() == {(TARGET, True)}
    assert w.give_back()[0] is GiveBack.ALREADY_SWITCHED
    assert w.where() == {(TARGET, True)}


@given(kills, kills)
def test_killed_anywhere_before_the_switch_producers_get_back(stops: list[int], backs: list[int]) -> None:
    w = World()
    w.until_done(w.stop, stops)
    w.until_done(w.give_back, backs)
    assert w.where() == {(SOURCE, True)}
    assert not w.fenced
    assert w.state(FREEZE) == "undone"
    assert w.give_back()[0] is GiveBack.NOTHING


@given(st.integers(0, 12))
def test_a_switch_that_died_half_way_is_never_undone_blindly(kill: int) -> None:
    w = World()
    w.stop()
    w.fuse.left = kill
    try:
        w.switch()
    except Killed:
        pass
    w.fuse.left = None
    before = w.where()
    try:
        decision, _ = w.give_back()
    except AmbiguousState:
        assert w.where() == before, "nothing may be changed where it cannot be told"
        return
    if decision is GiveBack.TO_SOURCE:
        assert before == {(SOURCE, False)}, "somebody was pointed to the target already"
        assert w.where() == {(SOURCE, True)}
    else:
        assert w.where() == before


def test_no_act_after_the_budget() -> None:
    w = World()
    w.stop()
    w.clock.advance(BUDGET.total_seconds())
    with pytest.raises(DrainTimedOut, match="budget"):
        w.switch()
    assert w.where() == {(SOURCE, False)}
    assert w.state(SWITCH_PRODUCERS) is None


def test_no_switch_over_a_broken_fence() -> None:
    w = World()
    w.stop()
    w.broken = True
    with pytest.raises(FenceBroken):
        w.switch()
    assert w.where() == {(SOURCE, False)}
    assert w.give_back()[0] is GiveBack.TO_SOURCE


def late() -> None:
    raise Transient("broker 2 still shows the DENY")


def test_a_fence_that_cannot_be_lifted_yet_keeps_no_producer_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    w.stop()
    monkeypatch.setattr(w, "unfence", late)
    with pytest.raises(Transient, match="broker 2"):
        w.give_back()
    assert w.where() == {(SOURCE, True)}
    assert w.state(FREEZE) == "failed", "the freeze has not ended: it is tried again"
    monkeypatch.undo()
    assert w.give_back()[0] is GiveBack.TO_SOURCE
    assert (w.fenced, w.state(FREEZE)) == (False, "undone")


def test_what_began_before_a_give_back_cannot_write_any_more() -> None:
    w = World()
    w.stop()
    late = w.claim
    w.claim = begin_give_back(w.journal, w.claim)
    assert w.claim.epoch == late.epoch + 1
    with pytest.raises(OwnershipLost, match="put producers back"):
        w.journal.intend(late, SWITCH_PRODUCERS, {})
    assert w.state(FREEZE) == "failed"
    # What is cleared meanwhile reads the new epoch, and is refused by the state of the freeze.
    with pytest.raises(Refused, match="No freeze is running"):
        w.switch()
    with pytest.raises(Refused, match="give_back"):
        w.stop()
    assert w.where() == {(SOURCE, False)}
    assert w.give_back()[0] is GiveBack.TO_SOURCE
    assert w.where() == {(SOURCE, True)}
    w.stop()
    assert w.switch()["target"] == TARGET


def test_a_freeze_that_cannot_be_given_back_runs_on() -> None:
    w = World()
    w.stop()
    w.journal.intend(w.claim, SWITCH_PRODUCERS, {})
    w.cluster.unreadable(TARGET, 1, "no leader")
    before = current_freeze(w.journal, w.claim)
    with pytest.raises(AmbiguousState, match="cannot be read"):
        w.give_back()
    assert current_freeze(w.journal, w.claim) == before
    assert w.where() == {(SOURCE, False)}


def test_producers_are_not_given_back_behind_a_group_that_has_left_the_source() -> None:
    w = World()
    w.stop()
    w.journal.intend(w.claim, SWITCH_PRODUCERS, {})
    w.journal.intend(w.claim, "switch_consumer:ledger", {})
    with pytest.raises(AmbiguousState, match=r"groups read payments-v2 already \(ledger\)"):
        w.give_back()
    assert w.fenced and w.where() == {(SOURCE, False)}
    w.journal.finish(w.claim, "switch_consumer:ledger", {}, state="undone")
    assert w.give_back()[0] is GiveBack.TO_SOURCE


def test_without_a_freeze_there_is_nothing_to_shut_out() -> None:
    w = World()
    assert begin_give_back(w.journal, w.claim) == w.claim


def test_a_switch_without_a_freeze_is_refused() -> None:
    w = World()
    with pytest.raises(Refused, match="No freeze"):
        w.switch()


def test_the_freeze_clock_does_not_start_again() -> None:
    w = World()
    first = begin_freeze(w.journal, w.claim, w.clock, BUDGET)
    w.clock.advance(30)
    assert begin_freeze(w.journal, w.claim, w.clock, BUDGET) == first
    assert current_freeze(w.journal, w.claim) == first
    require_lease(first, w.clock, "anything")


def test_a_deaf_producer_is_named() -> None:
    w = World()
    w.apps.deaf = {"billing"}
    with pytest.raises(DrainTimedOut, match="billing"):
        w.stop()


def test_records_in_the_target_are_never_left_behind() -> None:
    w = World()
    w.stop()
    w.switch()
    row = w.journal.current(w.claim.migration_id)
    assert rollback_type(row, w.cluster)[0] is Rollback.FREE
    w.cluster.produce(TARGET, 0)
    assert rollback_type(row, w.cluster)[0] is Rollback.DRAIN_BACK
    w.cluster.unreadable(TARGET, 1, "no leader")
    with pytest.raises(AmbiguousState, match="cannot be read"):
        rollback_type(row, w.cluster)


def free_rollback(w: World, deleted: list[str], consumers: Sequence[Mapping[str, str]] = ()) -> Any:
    from topicshift.core.spec.model import Spec

    spec = Spec.model_validate(
        {
            "source": SOURCE,
            "target": TARGET,
            "partitions": 6,
            "producers": [{"name": p.name} for p in PRODUCERS],
            "consumers": list(consumers) or [{"name": "ledger", "group": "ledger"}],
        }
    )
    return roll_back(
        w.cast,
        w.journal.current(w.claim.migration_id),
        spec,
        admin=w.cluster,
        journal=w.journal,
        claim=w.claim,
        clock=w.clock,
        unfence=w.unfence,
        restore_retention=lambda: None,
        delete_target=lambda: deleted.append(TARGET),
        progress=w.said.append,
    )


@given(kills)
def test_a_free_rollback_puts_everything_back(kill: list[int]) -> None:
    w = World()
    w.stop()
    w.switch()
    deleted: list[str] = []
    w.until_done(lambda: free_rollback(w, deleted), kill)
    assert w.where() == {(SOURCE, True)}
    assert not w.fenced
    assert deleted
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"


def test_a_rollback_whose_fence_cannot_be_lifted_yet_keeps_no_producer_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    w = World()
    w.stop()
    w.switch()
    monkeypatch.setattr(w, "unfence", late)
    deleted: list[str] = []
    with pytest.raises(Transient, match="broker 2"):
        free_rollback(w, deleted)
    assert w.where() == {(SOURCE, True)}
    assert not deleted
    assert w.journal.current(w.claim.migration_id).state == "open"
    monkeypatch.undo()
    free_rollback(w, deleted)
    assert (w.fenced, deleted) == (False, [TARGET])


LEDGER = Participant("ledger", "consumer", "route", group="ledger")


def switch_ledger(w: World) -> Any:
    return switch_group(
        w.cast,
        LEDGER,
        admin=w.cluster,
        journal=w.journal,
        claim=w.claim,
        clock=w.clock,
        recheck=w.recheck,
        progress=w.said.append,
    )


def test_a_group_is_seeded_at_the_log_start_and_keeps_what_it_has() -> None:
    w = World()
    w.cluster.produce(TARGET, 0, records=5)
    w.cluster.delete_records(TARGET, 0, 2)
    w.cluster.commit("ledger", TARGET, {1: 0})
    assert seed_offsets(w.cluster, "ledger", TARGET) == {0: 2, 2: 0, 3: 0, 4: 0, 5: 0}
    assert seed_offsets(w.cluster, "ledger", TARGET) == {}


@given(kills)
def test_a_group_is_switched_once_it_has_an_offset_everywhere(kill: list[int]) -> None:
    w = World()
    w.cluster.commit("ledger", TARGET, dict.fromkeys(range(6), 0))

    w.until_done(lambda: switch_ledger(w), kill)
    assert w.apps.topic["ledger"] == TARGET
    assert switch_ledger(w)["group"] == "ledger"


def test_a_group_without_an_offset_is_not_called_switched() -> None:
    w = World()
    w.cluster.commit("ledger", TARGET, dict.fromkeys(range(5), 0))
    with pytest.raises(DrainTimedOut, match=r"no committed offset on partitions \[5\]"):
        switch_ledger(w)


def test_a_group_that_would_skip_records_of_the_target_stays_on_the_source() -> None:
    """A commit there before the release, of a pattern subscription or set by hand, is where the group would go on."""
    w = World()
    w.cluster.produce(TARGET, 0, records=5)
    w.cluster.commit("ledger", TARGET, {**dict.fromkeys(range(6), 0), 0: 3})

    with pytest.raises(Refused, match=r"payments-v2\[0\] at 3, where the log starts at 0"):
        switch_ledger(w)
    assert w.state("switch_consumer:ledger") is None and "ledger" not in w.apps.topic
    w.cluster.commit("ledger", TARGET, {0: 0})
    w.until_done(lambda: switch_ledger(w), [3])
    w.cluster.commit("ledger", TARGET, {0: 3})
    assert switch_ledger(w)["group"] == "ledger", "what it reads once it was released is its own"


class ByHand(Applications):
    """Applications that a person moves."""

    kind = "manual"
    needs_person = True


def test_a_rollback_names_the_groups_that_a_person_has_to_start_again() -> None:
    w = World()
    w.stop()
    w.switch()
    w.cast = Cast({"route": w.apps, "manual": ByHand()}, w.cast.context)  # type: ignore[dict-item]
    consumers = [
        {"name": n, "group": f"{n}-g", "kind": k}
        for n, k in (("ledger", "manual"), ("fraud", "manual"), ("search", "route"))
    ]
    for name in ("ledger", "search"):
        w.journal.intend(w.claim, f"switch_consumer:{name}-g", {})

    assert w.until_done(lambda: free_rollback(w, [], consumers), [10, 14])["start_by_hand"] == [
        "ledger (group ledger-g)"
    ]
