"""A task that is cleared after what it does has happened does nothing: no second freeze, no second question."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from topicshift.acts.participants import FREEZE, SWITCH_PRODUCERS, switch_step
from topicshift.core.errors import DrainTimedOut
from topicshift.core.spec.model import Spec
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift_airflow.operators.base import skip_when_finished
from topicshift_airflow.operators.cutover import SWITCHED, StartByHand, StopAndFence, SwitchGroup, SwitchProducers
from topicshift_airflow.operators.drain import ConfirmDrain, Drain, ReadyToFence
from topicshift_airflow.operators.jobs import ArmedVerification

SPEC = {
    "source": "payments",
    "target": "payments-v2",
    "partitions": 6,
    "producers": [{"name": "checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger-g"}, {"name": "fraud", "group": "fraud-g"}],
}


class World:
    """A run of which only the journal can be asked: whoever touches more fails."""

    def __init__(self, **spec: Any) -> None:
        self.journal = FakeJournal(ManualClock())
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source="payments", target="payments-v2", owner="o", spec={}, owner_alive=lambda _: True
        )
        self.spec = Spec.model_validate(SPEC | spec)

    def did(self, step: str, state: str = "done") -> None:
        self.journal.intend(self.claim, step, {})
        if state != "intended":
            self.journal.finish(self.claim, step, {}, state=state)

    @property
    def run(self) -> Any:
        return SimpleNamespace(
            journal=self.journal,
            claim=self.claim,
            row=self.journal.current(self.claim.migration_id),
            spec=self.spec,
            progress=lambda _: None,
        )


@pytest.fixture
def world() -> World:
    """Producers are on the target."""
    made = World()
    made.did(SWITCH_PRODUCERS)
    return made


def test_after_the_switch_nobody_is_stopped_drained_or_asked_again(world: World) -> None:
    run: Any = world.run
    assert ReadyToFence(task_id="ready").step(run, {}) == SWITCHED
    fence = StopAndFence(task_id="fence")
    assert fence.question(run, {}) is None and fence.act(run, {}) == SWITCHED
    assert Drain(task_id="drain").step(run, {}) == SWITCHED
    assert ConfirmDrain(task_id="confirm").step(run, {}) == SWITCHED
    assert SwitchProducers(task_id="switch").question(run, {}) is None
    by_hand = StartByHand(task_id="by_hand")
    assert by_hand.question(run, {}) is None and by_hand.act(run, {}) == SWITCHED
    with pytest.raises(AirflowSkipException, match="Nothing is left to verify"):
        ArmedVerification(task_id="armed").prepare(run, {})


@pytest.mark.parametrize("state", ["intended", "undone"])
def test_a_switch_that_has_not_happened_is_no_reason_to_pass_over_anything(state: str) -> None:
    world = World()
    world.did(SWITCH_PRODUCERS, state)
    with pytest.raises(AttributeError):  # it goes on to look at the cluster
        StopAndFence(task_id="fence").act(world.run, {})
    with pytest.raises(AttributeError):
        Drain(task_id="drain").step(world.run, {})


def test_the_fence_begins_no_freeze_after_the_window_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate was passed in time; the DAG was paused after it, or the task was cleared the next morning."""
    window = {"cron": "0 2 * * *", "timezone": "UTC", "duration": "2h"}
    world = World(window=window)
    clock = ManualClock()
    began = clock.now()
    run: Any = world.run
    run.clock, run.admin = clock, None
    run.cast = lambda *_: SimpleNamespace(prepare=lambda: None)
    monkeypatch.setattr("topicshift.acts.fence.rehearse", lambda *_: None)
    context = {"dag_run": SimpleNamespace(run_type="scheduled", start_date=began, run_after=began)}
    clock.advance(2 * 3600)
    with pytest.raises(DrainTimedOut, match="no producer was stopped"):
        StopAndFence(task_id="fence").act(run, context)
    assert world.journal.step(world.claim.migration_id, FREEZE) is None


def test_with_producers_first_each_group_counts_for_itself(world: World) -> None:
    world.spec = Spec.model_validate(SPEC | {"cutover": "producers_first"})
    world.did(switch_step("ledger-g"))
    assert Drain(task_id="drain", consumer="ledger").step(world.run, {}) == SWITCHED
    assert ConfirmDrain(task_id="confirm", consumer="ledger").step(world.run, {}) == SWITCHED
    assert SwitchGroup(task_id="group", consumer="ledger").question(world.run, {}) is None
    with pytest.raises(AttributeError):
        Drain(task_id="drain", consumer="fraud").step(world.run, {})
    world.did(switch_step("fraud-g"))
    with pytest.raises(AirflowSkipException):
        ArmedVerification(task_id="armed").prepare(world.run, {})


@pytest.mark.parametrize("state", ["done", "retired"])
def test_a_migration_that_has_ended_is_left_alone(world: World, state: str) -> None:
    skip_when_finished(world.run)
    world.journal.set_state(world.claim, state, active=False)
    with pytest.raises(AirflowSkipException, match="nothing left to do"):
        skip_when_finished(world.run)
