"""FlinkDeployments in a migration: killed at any call, every field of every resource is as it must be."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.flink_deployment_place import INTAKE, SCORER, Cluster, told, writes
from tests.unit.flink_place import GROUP
from tests.unit.ways import ALL, KindWorld, frozen, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.flink import FlinkController
from topicshift.core.engine.words import Row
from topicshift.core.errors import DrainTimedOut
from topicshift.core.kubernetes.workload import differing
from topicshift.testing.fake_flink import FakeJob

few = settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
MIXED: dict[str, Any] = {
    "producers": [
        {"name": "intake", "kind": "flink", "settings": writes("intake"), "principal": "User:checkout"},
        {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
    ],
    "consumers": [
        {"name": "scorer", "kind": "flink", "settings": told("scorer"), "group": GROUP},
        {"name": "fraud", "group": "fraud-g"},
    ],
}
MOVED = {
    (SCORER, ("spec", "job", "args", 1)),
    (SCORER, ("spec", "job", "args", 2)),
    (INTAKE, ("spec", "job", "args", 2)),
}


class Operated(KindWorld):
    """A migration of two FlinkDeployments, a hook and an application on the route."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.k8s = Cluster()
        self.fake = self.k8s.api
        super().__init__(**{**MIXED, **changes})
        self.leave(GROUP)
        self.cluster.calls.clear()
        self.objects = deepcopy(self.k8s.api.objects)
        self.fake.on_call = self.fuse.burn
        self.controllers["flink"] = self.controller()  # type: ignore[assignment]

    def controller(self) -> FlinkController:
        return FlinkController(self.cluster, lambda _: self.fake, self.clock)

    def context(self, *args: Any, **how: Any) -> Any:
        """Each process has a controller of its own, which remembers nothing."""
        self.controllers["flink"] = self.controller()  # type: ignore[assignment]
        return super().context(*args, **how)

    def differs(self) -> set[tuple[str, Any]]:
        """Every field of every resource that is not as before."""
        return {(path, at) for path, one in self.objects.items() for at in differing(one, self.fake.objects[path])}

    def jobs(self) -> dict[str, FakeJob]:
        """The jobs that run, each once."""
        assert self.k8s.live() == ["intake", "scorer"]
        return {name: self.k8s.job(name) for name in ("intake", "scorer")}

    def unharmed(self) -> bool:
        """Everything is as before, and runs once on the source alone."""
        jobs = self.jobs()
        on = {jobs["intake"].topic} | jobs["scorer"].reads
        return self.differs() == set() and on == {SOURCE} and self.hook_unharmed()

    def arrived(self) -> None:
        super().arrived()
        assert self.differs() == MOVED
        jobs = self.jobs()
        assert {jobs["intake"].topic} | jobs["scorer"].reads == {TARGET}
        self.hook_arrived()

    def stands(self) -> None:
        assert self.k8s.live() == ["scorer"]

    def on_target(self) -> None:
        assert self.k8s.job().topic == TARGET


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_deployments_move_beside_other_kinds(cutover: str) -> None:
    w = Operated(cutover=cutover)
    w.advanced()
    w.arrived()
    said = [(e["name"], e["moment"]) for e in w.events("participant") if e["name"] in ("scorer", "intake")]
    assert list(dict.fromkeys(said)) == [(n, m) for n in ("intake", "scorer") for m in ("stop", "point", "start")]


@ALL
def test_killed_before_or_after_every_write_it_ends_where_it_would(way: str) -> None:
    """At each write of stop, point and start, on the way there and on every way back."""
    # Suspended; pointed; run again, and put back once it runs: twice each, for both; of resume twice for one.
    count = {"forward": 16, "resume": 4, "rollback": 16, "drain_back": 16}[way]
    killed_at_each_effect(Operated, way, lambda call: call.startswith("PUT "), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 400), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Operated, way, at)


def test_a_savepoint_that_fails_ends_the_freeze_with_every_field_as_before() -> None:
    w = Operated()
    w.k8s.manager.saves = False
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("has not suspended it yet" in line and "UpgradeFailureException" in line for line in w.said)
    assert w.unharmed() and w.acls() == w.before
    assert len(w.k8s.manager.jobs) == 2


def test_an_operator_that_wakes_up_late_in_the_freeze_leaves_no_job_that_stands_for_ever() -> None:
    """The budget ends while nothing is suspended yet: it would stand for ever, if it were taken for one that runs."""
    w = Operated()
    w.k8s.operator.asleep = True

    def late(_: str) -> None:
        if w.state(Row.FREEZE) == "undoing":
            w.k8s.operator.asleep = False

    w.fake.on_call = late
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced(patience_s=30)
    w.fake.reconcile()
    assert w.unharmed() and w.acls() == w.before


def test_an_api_server_that_dies_in_the_freeze_leaves_a_way_back() -> None:
    w = frozen(Operated)
    w.fake.dead = True
    why = w.waits(patience_s=30, wanted="resume")
    assert "intake" in why and "no answer" in why
    w.fake.dead = False
    w.advanced(wanted="resume")
    w.back()


def test_suspended_without_a_savepoint_is_a_named_wait_and_nothing_starts_without_its_state() -> None:
    w = Operated()
    w.k8s.operator.blind = True
    why = w.waits(patience_s=600)
    assert "has no savepoint that was taken since it was stopped" in why
    assert w.k8s.live() == ["scorer"]
