"""A freeze that its run does not end any more is ended for it; one that somebody may still end is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from topicshift.acts.fence import STEP as FENCE
from topicshift.acts.participants import FREEZE, SWITCH_PRODUCERS, Cast, begin_freeze, switch_step
from topicshift.core.engine.freeze import ABANDONED_AFTER, Freeze, abandoned
from topicshift.core.errors import AmbiguousState
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim, Participant, ParticipantState
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift.testing.fakes import FakeCluster
from topicshift_airflow.operators import drain
from topicshift_airflow.operators.abandoned import end_freeze, find_abandoned

SOURCE, TARGET = "payments", "payments-v2"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
FREEZE_OF_A_MINUTE = Freeze.begin(BEGAN, timedelta(seconds=60))
SPEC = Spec.model_validate(
    {
        "source": SOURCE,
        "target": TARGET,
        "partitions": 4,
        "producers": [{"name": "checkout"}],
        "consumers": [{"name": "ledger", "group": "ledger"}],
    }
)


@pytest.mark.parametrize(
    ("alive", "rolling_back", "after_s", "over"),
    [
        (False, False, 1, True),
        (False, True, 1, True),
        (True, False, 119, False),
        (None, False, 119, False),
        (True, False, 121, True),
        (None, False, 121, True),
        (True, True, 9999, False),
        (None, True, 9999, False),
    ],
)
def test_when_a_freeze_counts_as_abandoned(alive: bool | None, rolling_back: bool, after_s: int, over: bool) -> None:
    assert timedelta(seconds=60) == ABANDONED_AFTER
    now = BEGAN + timedelta(seconds=after_s)
    found, why = abandoned(freeze=FREEZE_OF_A_MINUTE, owner_alive=alive, rolling_back=rolling_back, now=now)
    assert found is over and why


class Applications:
    """Route producers: stopped until they are started."""

    kind, needs_person, leased = "route", False, True

    def __init__(self) -> None:
        self.status, self.topic, self.calls = "stopped", SOURCE, []

    def observe(self, _: Any, participants: list[Participant]) -> list[ParticipantState]:
        return [ParticipantState(p, self.status, self.topic) for p in participants]  # type: ignore[arg-type]

    def point(self, _: Any, participants: list[Participant], topic: str) -> None:
        self.topic = topic

    def start(self, *_: Any) -> None:
        self.status = "running"

    def close(self) -> None: ...


class World:
    """A migration whose run has ended in its freeze."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.journal, self.cluster, self.applications = FakeJournal(self.clock), FakeCluster(), Applications()
        self.ended: list[str] = []
        self.cluster.create_topic(SOURCE, 2, 1, {})
        self.cluster.create_topic(TARGET, 4, 1, {})
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source=SOURCE, target=TARGET, owner="dag/run", spec={}, owner_alive=lambda _: True
        )
        begin_freeze(self.journal, self.claim, self.clock, timedelta(seconds=60))
        self.journal.intend(self.claim, FENCE, {"topic": SOURCE, "acls_added": []})
        monkeypatch.setattr(drain, "end_verifier", self.ended.append)

    @property
    def run(self) -> Any:
        row = self.journal.current(self.claim.migration_id)
        context: Any = SimpleNamespace(source=SOURCE, target=TARGET)
        return SimpleNamespace(
            journal=self.journal,
            admin=self.cluster,
            clock=self.clock,
            row=row,
            claim=Claim(row.migration_id, row.epoch, row.owner),
            spec=SPEC,
            progress=lambda _: None,
            cast=lambda _: Cast({"route": self.applications}, context),  # type: ignore[dict-item]
        )

    def state(self, step: str) -> str | None:
        row = self.journal.step(self.claim.migration_id, step)
        return row.state if row else None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_producers_go_back_the_fence_is_lifted_and_the_run_stays_the_owner(world: World) -> None:
    ((row, why),) = find_abandoned(world.journal, world.clock.now(), lambda owner: owner != "dag/run")
    assert row.owner == "dag/run" and "has ended" in why
    assert end_freeze(world.run) == "to_source"
    assert (world.state(FREEZE), world.state(FENCE)) == ("undone", "undone")
    assert (world.applications.status, world.applications.topic) == ("running", SOURCE)
    assert world.ended == [row.migration_id]
    after = world.journal.current(row.migration_id)
    assert (after.owner, after.state, after.active) == ("dag/run", "open", True), "it can be cleared and go on"
    assert after.epoch > row.epoch, "what the run may still have under way cannot write any more"
    assert find_abandoned(world.journal, world.clock.now(), lambda _: False) == []


def test_a_freeze_whose_run_is_at_work_is_left_alone(world: World) -> None:
    assert find_abandoned(world.journal, world.clock.now(), lambda _: True) == []
    assert find_abandoned(world.journal, world.clock.now(), lambda _: None) == []
    world.clock.advance(121)
    assert find_abandoned(world.journal, world.clock.now(), lambda _: True)
    world.journal.intend(world.claim, "rollback", {})
    assert find_abandoned(world.journal, world.clock.now(), lambda _: True) == []


def test_what_a_person_must_look_at_is_told_and_leaves_no_trace_of_each_look(world: World) -> None:
    world.journal.intend(world.claim, SWITCH_PRODUCERS, {})
    world.cluster.produce(TARGET, 0, 1)
    events = len(world.journal.events(world.claim.migration_id))
    for _ in range(2):
        with pytest.raises(AmbiguousState, match="Look at each producer"):
            end_freeze(world.run)
    assert world.state(FREEZE) == "intended"
    assert len(world.journal.events(world.claim.migration_id)) == events
    assert world.applications.status == "stopped" and not world.ended


def test_producers_that_are_on_the_target_stay_there(world: World) -> None:
    world.journal.intend(world.claim, SWITCH_PRODUCERS, {})
    world.applications.status, world.applications.topic = "running", TARGET
    assert end_freeze(world.run) == "already_switched"
    assert world.applications.topic == TARGET and world.state(FENCE) == "intended"


def test_producers_stay_where_a_group_has_gone_to_the_target_before_them(world: World) -> None:
    """With producers that a person starts, groups are released as soon as the switch has begun."""
    world.journal.intend(world.claim, SWITCH_PRODUCERS, {})
    world.journal.intend(world.claim, switch_step("ledger"), {})
    for state in ("intended", "done"):
        with pytest.raises(AmbiguousState, match="groups read payments-v2 already"):
            end_freeze(world.run)
        assert world.state(FREEZE) == "intended" and world.applications.status == "stopped", state
        world.journal.finish(world.claim, switch_step("ledger"), {})
    world.journal.finish(world.claim, switch_step("ledger"), {}, state="undone")
    assert end_freeze(world.run) == "to_source"
