"""Applications that hooks move, and whose groups are seeded: killed at any call, the outcome is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.world import SOURCE, TARGET, World

from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut

few = settings(max_examples=15, deadline=None)
ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])


def hook(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "command", "settings": {"hook": name}, **more}


MIXED: dict[str, Any] = {
    "producers": [hook("checkout", principal="User:checkout"), {"name": "billing", "principal": "User:billing"}],
    "consumers": [hook("ledger", group="ledger-g"), {"name": "fraud", "group": "fraud-g"}],
}


def moved(w: World) -> None:
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert w.where() == {(TARGET, True)}
    assert w.controllers["command"].topic == {"checkout": TARGET, "ledger": TARGET}
    assert set(w.cluster.commits(["ledger-g"], TARGET, range(6))["ledger-g"].offsets.values()) == {0}


@ORDERS
def test_a_group_is_stopped_and_gets_its_offsets_before_it_starts_on_the_target(cutover: str) -> None:
    w = World(**MIXED, cutover=cutover)
    w.advanced()
    moved(w)
    acts = [a for a in w.controllers["command"].acts if "ledger" in a and "arm" not in a]
    assert acts == ["stop ledger", f"point {TARGET} ledger", "start ledger"]
    assert {e["group"]: set(e["seeded"].values()) for e in w.events("group_switched")}["ledger-g"] == {0}


@few
@given(st.lists(st.integers(0, 300), min_size=1, max_size=3), st.sampled_from(["drain_first", "producers_first"]))
def test_killed_anywhere_hooks_end_where_they_would(at: list[int], cutover: str) -> None:
    w = World(**MIXED, cutover=cutover)
    w.until_done(at)
    moved(w)


def test_a_group_that_does_not_stop_is_waited_for_by_name_and_never_seeded() -> None:
    w = World(**MIXED)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.controllers["command"].deaf.add("ledger")
    assert "group ledger-g still reads the source" in w.waits(patience_s=5)
    assert set(w.cluster.commits(["ledger-g"], TARGET, range(6))["ledger-g"].offsets.values()) <= {None}
    w.controllers["command"].deaf.clear()
    w.advanced()
    moved(w)


def test_a_group_that_started_elsewhere_is_not_stopped_again() -> None:
    """Members that read neither topic may be about to start on the target."""
    w = World(**MIXED)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.controllers["command"].lost["ledger"] = "its members read neither topic"
    assert "its members read neither topic" in w.waits(patience_s=5)
    assert not [a for a in w.controllers["command"].acts if a == "stop ledger"]


def test_a_producer_that_does_not_stop_ends_the_freeze_and_starts_on_the_source() -> None:
    w = World(**MIXED)
    w.controllers["command"].deaf.add("checkout")
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    w.controllers["command"].deaf.clear()
    assert w.where() == {(SOURCE, True)} and w.acls() == w.before


def test_a_rollback_starts_a_group_on_the_source_again() -> None:
    w = World(**MIXED)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advance(leave=frozenset({"finish_group"}))
    assert w.state(Row.SWITCH_GROUP, "ledger-g") == "intended"
    w.advanced(wanted="rollback")
    assert w.controllers["command"].topic["ledger"] == SOURCE
    assert w.where() == {(SOURCE, True)}
    assert w.controllers["command"].running["ledger"]
