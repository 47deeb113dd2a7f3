"""A person's answer counts for exactly what was asked: this instance of a mapped task, this switch, this time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator

from topicshift.acts.approvals import find_approval, record_approval
from topicshift.acts.participants import SWITCH_PRODUCERS
from topicshift.core.engine import states
from topicshift.core.errors import DrainTimedOut
from topicshift.core.spec.model import Cutover, Spec
from topicshift.ports import Claim
from topicshift.testing.fake_journal import FakeJournal, ManualClock
from topicshift_airflow.operators import base
from topicshift_airflow.operators.cutover import StartByHand, freeze_deadline, require_time_to_begin
from topicshift_airflow.operators.drain import ReadyToFence

SPEC = {
    "source": "payments",
    "target": "payments-v2",
    "partitions": 6,
    "producers": [{"name": "checkout", "kind": "manual"}],
    "consumers": [{"name": "ledger", "group": "ledger"}],
}


class Parked(BaseException):
    """The task waits for its answer."""


class Stop(base.AskingOperator):
    """Asks to stop one group each."""

    def __init__(self, *, group: str, **kwargs: Any) -> None:
        super().__init__(task_id="switch", subject="?", **kwargs)
        self.group = group

    def question(self, run: Any, context: Any) -> base.Question:
        return base.Question(f"Stop {self.group}", "", timedelta(hours=1), {"stop_group": self.group})

    def act(self, run: Any, context: Any) -> str:
        return f"{self.group} is switched"


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.journal = FakeJournal(self.clock)
        self.claim: Claim = self.journal.claim(
            cluster_id="c", source="payments", target="payments-v2", owner="o", spec={}, owner_alive=lambda _: True
        )
        self.id = self.claim.migration_id
        self.spec = Spec.model_validate(SPEC)

        @contextmanager
        def opened(*_: Any, **__: Any) -> Iterator[Any]:
            yield self.run

        def park(*_: Any) -> None:
            raise Parked

        monkeypatch.setattr(base, "open_run", opened)
        monkeypatch.setattr(HITLOperator, "execute", park)
        monkeypatch.setattr(HITLOperator, "execute_complete", lambda *_: None)

    @property
    def run(self) -> Any:
        manual = SimpleNamespace(needs_person=True)
        return SimpleNamespace(
            journal=self.journal,
            claim=self.claim,
            clock=self.clock,
            spec=self.spec,
            row=self.journal.current(self.id),
            progress=lambda _: None,
            cast=lambda _: SimpleNamespace(controllers={"manual": manual}),
            event=lambda kind, data, actor="o": self.journal.event(self.claim, kind, actor, data),
        )

    def waits_for(self) -> str:
        known = states.Journalled(Cutover.DRAIN_FIRST, ("a", "b"), "open", True, "h", {})
        return states.waits_for(known, [(e.kind, e.data) for e in self.journal.events(self.id)])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def at(map_index: int) -> dict[str, Any]:
    return {"ti": SimpleNamespace(map_index=map_index)}


def answer(option: str) -> dict[str, Any]:
    return {"chosen_options": [option], "responded_by_user": {"name": "kim"}}


def test_groups_that_are_asked_about_side_by_side_are_answered_each_for_itself(world: World) -> None:
    a, b = Stop(group="a"), Stop(group="b")
    for operator, context in ((a, at(0)), (b, at(1))):
        with pytest.raises(Parked):
            operator.execute(context)
    assert world.waits_for() == "a person to answer: Stop a; Stop b"
    assert a.execute_complete(at(0), answer("Confirm")) == "a is switched", "it is not asked again"
    assert find_approval(world.journal, world.id, "switch", {"stop_group": "b"}) is None, "nobody has stopped b"
    assert world.waits_for() == "a person to answer: Stop b"
    with pytest.raises(Exception, match="Nobody answered"):
        b.execute_complete(at(1), {"timedout": True})
    assert "answer" not in world.waits_for()


def test_a_producer_that_was_started_for_an_earlier_switch_is_asked_about_again(world: World) -> None:
    about = []
    for _ in range(2):
        begun = {"target": "payments-v2", "at": world.clock.now().isoformat()}
        world.journal.intend(world.claim, SWITCH_PRODUCERS, begun)
        asked = StartByHand(task_id="by_hand").question(world.run, {})
        assert asked is not None
        assert find_approval(world.journal, world.id, "by_hand", asked.about) is None
        record_approval(world.journal, world.claim, "by_hand", asked.about, actor="user:kim", how="person")
        about.append(asked.about)
        world.journal.finish(world.claim, SWITCH_PRODUCERS, {}, state="undone")
        world.clock.advance(60)
    assert about[0] != about[1]


def manual_run(began: datetime) -> Any:
    return {"dag_run": SimpleNamespace(run_type="manual", start_date=began, run_after=None)}


def test_a_plan_that_was_approved_late_has_its_patience_from_then(world: World) -> None:
    context = manual_run(world.clock.now())
    world.clock.advance(13 * 3600)
    with pytest.raises(DrainTimedOut, match="no producer was stopped"):
        require_time_to_begin(world.run, context)
    record_approval(world.journal, world.claim, "approve.plan", {"plan_hash": "h"}, actor="user:kim", how="person")
    require_time_to_begin(world.run, context)
    assert freeze_deadline(world.run, context) == world.clock.now() + timedelta(hours=12)
    world.clock.advance(12 * 3600)
    with pytest.raises(DrainTimedOut, match="It waited for: group a"):
        ReadyToFence(task_id="ready").woken(world.run, context, {"status": "ready", "waits": ["group a"]})
