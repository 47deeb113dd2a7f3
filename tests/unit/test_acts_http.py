"""Applications with an interface of their own in a migration: killed at any call, every field is as it must be."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.http_contract import SETTINGS
from tests.unit.ways import ALL, KindWorld, killed_at, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.http import HttpController
from topicshift.core.engine.engine import Wanted
from topicshift.core.engine.words import Step
from topicshift.core.errors import AccessDenied, DrainTimedOut, PreflightFailed
from topicshift.testing.fake_http import FakeApp, FakeServices

few = settings(max_examples=3, deadline=None)
GROUP = "ledger-g"


def http(*connections: str, **changes: Any) -> dict[str, Any]:
    return {"kind": "http", "settings": {**SETTINGS, "connections": list(connections), **changes}}


MIXED: dict[str, Any] = {
    "producers": [
        {"name": "checkout", "principal": "User:checkout", **http("checkout-0", "checkout-1")},
        {"name": "billing", "kind": "command", "settings": {"hook": "billing"}, "principal": "User:billing"},
    ],
    "consumers": [{"name": "ledger", "group": GROUP, **http("ledger")}, {"name": "fraud", "group": "fraud-g"}],
}


class Served(KindWorld):
    """A migration of a producer of two instances and a consumer that are told by HTTP, a hook, and one on the route."""

    group = GROUP

    def __init__(self, **changes: Any) -> None:
        self.services = self.fake = FakeServices(self.changed)
        super().__init__(**{**MIXED, **changes})
        self.cluster.calls.clear()
        self.apps_of = {name: FakeApp(SOURCE) for name in ("checkout-0", "checkout-1", "ledger")}
        self.services.apps = self.apps_of
        self.first = self.now()
        self.services.on_call = self.fuse.burn
        self.controllers["http"] = HttpController(self.cluster, self.services, self.clock)  # type: ignore[assignment]

    def changed(self, connection: str) -> None:
        """A consumer that works is the member of its group."""
        if connection == "ledger":
            app = self.apps_of[connection]
            held, self.cluster.on_call = self.cluster.on_call, None
            self.leave(GROUP)
            if app.state != "stopped":
                self.join(GROUP, app.topic)
            self.cluster.on_call = held

    def now(self) -> dict[str, dict[str, Any]]:
        return copy.deepcopy({name: app.fields() for name, app in self.apps_of.items()})

    def unharmed(self) -> bool:
        """Everything is as before, and runs."""
        return self.now() == self.first and self.hook_unharmed()

    def arrived(self) -> None:
        super().arrived()
        assert self.now() == {n: {**f, "topic": TARGET, "configured": TARGET} for n, f in self.first.items()}
        self.hook_arrived()

    def stands(self) -> None:
        assert not self.unharmed()

    def on_target(self) -> None:
        assert self.apps_of["ledger"].topic == TARGET


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_they_move_beside_other_kinds(cutover: str) -> None:
    w = Served(cutover=cutover)
    w.advanced()
    w.arrived()
    said = [
        (e["name"], e["moment"]) for e in w.events("participant") if e.get("connection") in ("checkout-1", "ledger")
    ]
    once = ("stop", "point", "point", "start")
    assert said == [(name, moment) for name in ("checkout", "ledger") for moment in once]


@ALL
def test_killed_before_or_after_every_effect_on_an_application_it_ends_where_it_would(way: str) -> None:
    """At each stop, point and start, on the way there and on every way back, of each instance."""
    count = {"forward": 24, "resume": 12, "rollback": 24, "drain_back": 24}[way]
    killed_at_each_effect(Served, way, lambda call: not call.startswith("GET "), count)


@ALL
@few
@given(at=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_killed_anywhere_it_ends_where_it_would(way: str, at: list[int]) -> None:
    killed_at(Served, way, at)


def test_a_stop_that_did_nothing_ends_the_freeze_with_every_field_as_before() -> None:
    w = Served()
    w.apps_of["checkout-1"].deaf.add("POST /actuator/payments")
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    assert any("checkout-1: it is running on payments" in line for line in w.said)
    w.apps_of["checkout-1"].deaf.clear()
    assert w.unharmed() and w.acls() == w.before


def test_a_point_that_did_nothing_starts_nobody_on_the_source() -> None:
    """The producer stands until it shows the target: started, it would write to the source behind the fence."""
    w = Served()
    w.advanced(until=Step.DRAIN)
    w.apps_of["checkout-1"].deaf.add("POST /actuator/refresh")
    assert "checkout-1: it is stopped on payments" in w.waits(patience_s=10)
    assert any("nothing has come of it yet: checkout-1 still shows payments" in line for line in w.said)
    assert w.apps_of["checkout-1"].state == "stopped"
    w.apps_of["checkout-1"].deaf.clear()
    w.advanced()
    w.arrived()


def test_batches_are_waited_for_on_either_side() -> None:
    w = Served()
    for app in w.apps_of.values():
        app.batch = 3
    w.advanced()
    w.arrived()


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_listener_that_starts_again_by_itself_is_stopped_again(cutover: str) -> None:
    """Auto-start is off, and a refresh or the next context starts it all the same."""
    w = Served(cutover=cutover)
    w.advanced(until=Step.DRAIN if cutover == "drain_first" else Step.SWITCH_PRODUCERS)
    w.apps_of["ledger"].wakes = 2
    w.advanced()
    w.arrived()
    assert w.apps_of["ledger"].wakes == 0


def test_a_producer_that_starts_again_by_itself_breaks_no_fence_unseen() -> None:
    w = Served()
    w.apps_of["checkout-0"].wakes = 1
    w.advanced()
    w.arrived()


def test_a_right_that_goes_in_the_freeze_names_the_participant_and_it_is_put_back_once_that_is_mended() -> None:
    w = Served()
    w.advanced(until=Step.DRAIN)
    w.services.locked.add("checkout-1")
    with pytest.raises(AccessDenied, match=r"checkout: .*HTTP 401.*resume-on-source"):
        w.advanced()
    w.services.locked.clear()
    with pytest.raises(DrainTimedOut, match="producers are back on the source"):
        w.advanced()
    assert w.unharmed() and w.acls() == w.before


@pytest.mark.parametrize("refused", ["POST /actuator/env", "POST /actuator/refresh"])
@pytest.mark.parametrize("wanted", ["resume", "rollback"])
def test_a_point_that_is_refused_does_not_keep_the_way_back_shut(refused: str, wanted: Wanted) -> None:
    """A right that nobody mends: the application stands and shows the source, so it is started there."""
    w = Served()
    w.apps_of["checkout-0"].broken[refused] = AccessDenied(f"{refused} is not allowed (HTTP 403).")
    with pytest.raises(AccessDenied, match=r"checkout: .*HTTP 403.*resume-on-source"):
        w.advanced()
    w.advanced(wanted=wanted)
    assert w.unharmed() and w.acls() == w.before
    assert {e["refused"] for e in w.events("participant") if "refused" in e} == {"it shows payments all the same"}


def test_an_application_that_dies_half_way_is_waited_for_by_name() -> None:
    w = Served()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.services.down.add("ledger")
    why = w.waits(patience_s=10)
    assert GROUP in why and any("ledger: POST /actuator/payments" in line and "no answer" in line for line in w.said)
    w.services.down.clear()
    w.advanced()
    w.arrived()


def test_one_whose_default_is_the_old_topic_is_refused_where_no_deny_could_hold_it() -> None:
    name = {"name": "checkout", "principal": "User:checkout", **http("checkout-0", restarts_on="source")}
    w = Served(producers=[name])
    w.advanced()
    assert "User:*" in w.denied(), "so long as the source is there"
    w = Served(producers=[name], authorizer=False)
    with pytest.raises(PreflightFailed, match=r"TS325.*checkout"):
        w.advanced()
    assert w.unharmed() and w.cluster.topic(TARGET) is None
