"""Connectors in a migration: killed at any call, every setting of every connector is as it must be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ways import ALL, KindWorld, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.connect import ConnectController
from topicshift.core.engine.words import Step
from topicshift.core.errors import DrainTimedOut
from topicshift.testing.fake_connect import FakeConnector, FakeConnectWorker

few = settings(max_examples=3, deadline=None)
GROUP = "connect-archive"
MIXED: dict[str, Any] = {
    "producers": [
        {"name": "intake", "kind": "connect", "settings": {"connector": "intake"}, "principal": "User:checkout"},
        {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
    ],
    "consumers": [
        {"name": "archive", "kind": "connect", "settings": {"connector": "archive"}, "group": GROUP},
        {"name": "fraud", "group": "fraud-g"},
    ],
}


class Connected(KindWorld):
    """A migration of a source and a sink connector, a hook and an application on the route."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.worker = self.fake = FakeConnectWorker(self.changed)
        super().__init__(**{**MIXED, **changes})
        self.worker.cluster_id = self.cluster.cluster().cluster_id
        self.cluster.calls.clear()
        self.archive = self.worker.create("archive", {"topics": f"orders, {SOURCE}", "file": "a", "tasks.max": "2"})
        self.intake = self.worker.create("intake", {"topic": SOURCE, "file": "b"})
        self.settings = self.now()
        self.worker.on_call = self.fuse.burn
        self.controllers["connect"] = ConnectController(self.cluster, lambda _: self.worker, self.clock)  # type: ignore[assignment]

    def changed(self, one: FakeConnector) -> None:
        if one.sink:
            self.leave(GROUP)
            for topic in {SOURCE, TARGET} & {*one.reads}:
                self.join(GROUP, topic)

    def now(self) -> dict[str, dict[str, str]]:
        return {name: dict(one.config) for name, one in self.worker.connectors.items()}

    def differs(self) -> dict[str, str]:
        """Every setting that is not as before."""
        return {
            f"{name}.{key}": value
            for name, settings in self.now().items()
            for key, value in settings.items()
            if self.settings[name].get(key) != value
        } | {f"{n}.{k}": "gone" for n, s in self.settings.items() for k in s.keys() - self.now()[n].keys()}

    def unharmed(self) -> bool:
        """Everything is as before, and runs."""
        return (
            self.differs() == {}
            and {one.state for one in self.worker.connectors.values()} == {"RUNNING"}
            and self.hook_unharmed()
        )

    def arrived(self) -> None:
        super().arrived()
        assert self.differs() == {"archive.topics": f"orders, {TARGET}", "intake.topic": TARGET}
        assert {one.state for one in self.worker.connectors.values()} == {"RUNNING"}
        self.hook_arrived()

    def stands(self) -> None:
        assert not self.unharmed()

    def on_target(self) -> None:
        assert self.archive.config["topics"] == f"orders, {TARGET}"


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_connectors_move_beside_other_kinds(cutover: str) -> None:
    w = Connected(cutover=cutover)
    w.advanced()
    w.arrived()
    said = [(e["name"], e["moment"]) for e in w.events("participant") if e["name"] in ("archive", "intake")]
    assert said == [(name, moment) for name in ("intake", "archive") for moment in ("stop", "point", "start")]


@ALL
def test_killed_before_or_after_every_effect_on_a_worker_it_ends_where_it_would(way: str) -> None:
    """At each stop, point and start, on the way there and on both ways back."""
    count = {"forward": 12, "resume": 2, "rollback": 12, "drain_back": 12}[way]
    killed_at_each_effect(
        Connected, way, lambda call: not call.startswith("GET ") and "/connector-plugins/" not in call, count
    )


@ALL
@few
@given(at=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Connected, way, at)


def test_a_source_that_does_not_stop_ends_the_freeze_with_every_setting_as_before() -> None:
    """STOPPED is what its worker says, and its task is listed."""
    w = Connected()
    w.intake.lingers = True
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("the connector is STOPPED, task 0 RUNNING" in line for line in w.said)
    w.intake.lingers = False
    assert w.unharmed() and w.acls() == w.before


def test_a_sink_whose_tasks_fail_on_the_target_is_restarted_until_they_run() -> None:
    w = Connected()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.archive.fails = True
    assert "task 0 is FAILED" in w.waits(patience_s=30)
    w.archive.fails = False
    w.advanced()
    w.arrived()
    assert "restart" in {e["moment"] for e in w.events("participant")}


def test_workers_that_rebalance_are_asked_again() -> None:
    w = Connected()
    w.advanced(until=Step.APPROVE)
    w.worker.busy = 3
    w.advanced()
    w.arrived()
