"""Going back while the target is empty: who reads the source again, at which offsets, and who is waited for."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_acts_commands import MIXED
from tests.unit.test_acts_drain_back import GROUPS, offsets_went
from tests.unit.test_fence_again import half
from tests.unit.world import SOURCE, TARGET, World

from topicshift.core.engine.back import FOLLOWS
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import AmbiguousState, DrainTimedOut, Transient

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])


def accepted(w: World) -> World:
    """Everybody is on the target, which is empty, and a person has accepted to go back."""
    w.advanced()
    asking = w.asks(wanted="rollback")
    assert asking.about["rollback"] == "free"
    w.answer(asking)
    return w


def committed(w: World, group: str) -> dict[int, int]:
    return {p: o for (t, p), o in w.cluster._groups[group].commits.items() if t == SOURCE}


def is_back(w: World) -> None:
    row = w.journal.current(w.claim.migration_id)
    assert (row.state, row.active) == ("rolled_back", False)
    assert w.where() == {(SOURCE, True)} and w.acls() == w.before
    assert w.cluster.topic(TARGET) is None
    for c in w.spec.consumers:
        apps = w.controllers[c.kind]
        assert (apps.topic[c.name], apps.running.get(c.name, True)) == (SOURCE, True)
        assert committed(w, c.group) == {0: 10, 1: 10, 2: 10}
    assert w.data(Row.ROLLBACK)["not_restored"] == []


# ------------------------------------------------------------------------------------------- groups that do not follow


def does_not_start(w: World) -> None:
    """Its hook says yes to start, and nobody joins the group."""
    hooks, start = w.controllers["command"], w.controllers["command"].start
    hooks.start = lambda ctx, who: start(ctx, [p for p in who if p.group is None])  # type: ignore[method-assign]


def does_not_follow(w: World) -> None:
    """Its instances do not hear of the route any more."""
    w.apps.deaf.add("fraud")


@pytest.mark.parametrize(
    ("spec", "hinder", "named"),
    [
        (MIXED, does_not_start, "group ledger-g does not read payments yet: it is stopped"),
        ({}, does_not_follow, "group fraud-g does not read payments yet: it is running on the target"),
    ],
)
def test_a_group_that_does_not_read_the_source_again_is_named_and_the_target_stays(
    spec: dict[str, Any], hinder: Any, named: str
) -> None:
    w = accepted(World(**spec))
    hooks = {name: c.start for name, c in w.controllers.items()}
    hinder(w)
    assert named in w.waits(wanted="rollback", patience_s=30)
    assert w.where() == {(SOURCE, True)}, "no producer stands still for it"
    assert w.acls() == w.before
    with pytest.raises(AmbiguousState, match=rf"after 10 min {named}"):
        w.advance(wanted="rollback", patience_s=2 * FOLLOWS.total_seconds())
    assert w.cluster.topic(TARGET) is not None, "a topic that somebody may read is not deleted"
    assert w.state(Row.ROLLBACK) == "intended"
    w.apps.deaf.clear()
    for name, start in hooks.items():
        w.controllers[name].start = start  # type: ignore[method-assign]
    w.advanced(wanted="rollback")
    is_back(w)


def test_a_group_that_cannot_be_seen_is_waited_for_by_name_with_the_reason() -> None:
    w = accepted(World())
    w.advance(wanted="rollback", leave=frozenset({"groups_returned"}))
    w.apps.lost["fraud"] = "its instance on host 7 is silent"
    assert "group fraud-g" in (said := w.waits(wanted="rollback", patience_s=5)) and "host 7 is silent" in said
    assert "ledger-g" not in said
    w.apps.lost.clear()
    w.advanced(wanted="rollback")
    is_back(w)


def test_a_consumer_that_is_not_back_is_named_in_what_was_not_restored() -> None:
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    w.apps.running["fraud"] = False  # before anybody is stopped
    w.advance(until=Step.STOP_PRODUCERS)
    w.apps.running["ledger"] = False
    w.advanced(wanted="resume")
    w.advanced(wanted="rollback")
    (line,) = w.data(Row.ROLLBACK)["not_restored"]
    assert line.startswith("consumer ledger (group ledger-g) is stopped on payments, not running on payments")
    said = json.loads(w.evidence.read(w.claim.migration_id, "restored.json") or b"")
    assert said["differs"] == [line]
    assert any(line.startswith("consumer fraud (group fraud-g)") for line in said["equal"])


# ------------------------------------------------------------------------------------------ a broker that is late


def shut(cutover: str = "drain_first") -> World:
    """Producers are on the target under the wider DENY, a person has accepted to go back, and a broker is late."""
    w = World(cutover=cutover, freeze_budget="20s")
    w.advance(leave=frozenset({"release_group"}))
    assert "User:*" in w.denied() and w.where() == {(TARGET, True)}
    w.answer(w.asks(wanted="rollback"))
    w.cluster.fail("delete_acls", Transient("broker 2 still shows the DENY"))
    return w


@ORDERS
def test_no_producer_goes_back_to_a_source_that_is_shut_for_everybody(cutover: str) -> None:
    w = shut(cutover)
    w.waits(wanted="rollback", patience_s=2)
    assert w.where() == {(TARGET, False)}, "they stand still under a lease"
    assert not [a for a in w.apps.acts if a == f"point {SOURCE} checkout"]
    w.cluster.fail("delete_acls", None)
    w.advanced(wanted="rollback")
    assert w.where() == {(SOURCE, True)} and w.acls() == w.before
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"


@ORDERS
def test_they_stand_still_for_a_late_broker_no_longer_than_a_freeze_may_last(cutover: str) -> None:
    w = shut(cutover)
    began = w.clock.now()
    w.waits(wanted="rollback", patience_s=60)
    assert w.where() == {(TARGET, True)}
    assert not [a for a in w.apps.acts if a == f"point {SOURCE} checkout"]
    until = json.loads(json.dumps(w.data(Row.ROLLBACK)))["lease_until"]
    assert began + timedelta(seconds=20) <= w.clock.now().fromisoformat(until) <= began + timedelta(seconds=22)
    w.cluster.fail("delete_acls", None)
    with pytest.raises(DrainTimedOut, match=r"called off: .*the DENY for everybody is still shown on payments"):
        w.advance(wanted="rollback", patience_s=60)
    assert w.where() == {(TARGET, True)} and w.state(Row.ROLLBACK) == "undone"
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert "User:*" in w.denied()


# ------------------------------------------------------------------------------------------- offsets that expired


def started_with(w: World) -> list[set[int | None]]:
    """The commits with which each group is let go on the source, as they are at that moment."""
    seen = list[set[int | None]]()
    for apps in w.controllers.values():

        def start(ctx: Any, participants: Any, apps: Any = apps, real: Any = apps.start) -> None:
            for p in participants:
                if p.group is not None and apps.topic.get(p.name) == SOURCE:
                    seen.append({committed(w, p.group).get(n) for n in range(3)})
            real(ctx, participants)

        apps.start = start  # type: ignore[method-assign]
    return seen


@ORDERS
@pytest.mark.parametrize("lower", [None, 2])
@pytest.mark.parametrize("spec", [{}, MIXED])
def test_offsets_that_went_are_set_at_the_certificate_before_a_group_is_let_go(
    spec: dict[str, Any], lower: int | None, cutover: str
) -> None:
    w = accepted(World(**spec, cutover=cutover))
    offsets_went(w, lower)
    seen = started_with(w)
    w.advanced(wanted="rollback")
    is_back(w)
    assert seen and all(commits == {10} for commits in seen), "never without them, never at the log start"
    assert {e["group"] for e in w.events("offsets_set_again")} == set(GROUPS)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=3), st.sampled_from(["drain_first", "producers_first"]))
def test_killed_anywhere_no_group_starts_without_its_offsets(at: list[int], cutover: str) -> None:
    w = accepted(World(**MIXED, cutover=cutover))
    offsets_went(w)
    seen = started_with(w)
    w.until_done(at, wanted="rollback")
    is_back(w)
    assert seen and all(commits == {10} for commits in seen)


def test_a_group_that_does_not_leave_holds_up_nobody_else_and_is_not_let_go() -> None:
    w = accepted(World())
    offsets_went(w)
    left, w.apps.stop = w.apps.stop, lambda ctx, who: left(ctx, [p for p in who if p.name != "fraud"])  # type: ignore[method-assign]
    assert "fraud-g" in w.waits(wanted="rollback", patience_s=30)
    assert w.where() == {(SOURCE, True)}
    assert (w.apps.topic["ledger"], w.apps.topic["fraud"]) == (SOURCE, TARGET)
    assert committed(w, "ledger-g") == {0: 10, 1: 10, 2: 10} and committed(w, "fraud-g") == {}
    w.apps.stop = left  # type: ignore[method-assign]
    w.advanced(wanted="rollback")
    is_back(w)


def test_without_its_certificate_a_group_goes_on_from_the_fence() -> None:
    w = accepted(World())
    offsets_went(w)
    w.evidence.write(w.claim.migration_id, "drain_certificate.json", b"{}")
    w.advanced(wanted="rollback")
    is_back(w)
    assert any("goes on from the fence" in line for line in w.said)


def test_a_group_that_a_person_moves_is_named_with_the_offsets_that_it_lacks() -> None:
    by_hand = [{"name": n, "group": f"{n}-g", "kind": k} for n, k in (("ledger", "manual"), ("fraud", "route"))]
    w = World(consumers=by_hand)
    asking = w.asks()
    w.leave("ledger-g")
    w.controllers["manual"].running["ledger"] = False
    w.answer(asking)
    w.advance(patience_s=1)
    w.join("ledger-g", TARGET)
    offsets_went(w)
    w.advanced(wanted="rollback")
    (line,) = w.data(Row.ROLLBACK)["start_by_hand"]
    assert line == "ledger (group ledger-g): stop it and set its offsets first, by partition: 0=10, 1=10, 2=10"
    assert committed(w, "fraud-g") == {0: 10, 1: 10, 2: 10}


@pytest.mark.parametrize("kept", [True, False])
@ORDERS
def test_a_released_group_gets_no_offset_behind_a_late_record_that_it_has_not_read(cutover: str, kept: bool) -> None:
    """The source was fenced anew behind that record, for the group that is still on it."""
    w = half(cutover)
    w.write(partition=1, records=2)
    w.waits(patience_s=30)
    assert w.state(Row.FENCE_AGAIN) == "done"
    offsets_went(w, groups=["ledger-g"])
    for name in w.evidence.names(w.claim.migration_id):
        if name.startswith("drain_certificate") and not kept:
            w.evidence.write(w.claim.migration_id, name, b"{}")
    w.advanced(wanted="rollback")
    assert committed(w, "ledger-g") == {0: 10, 1: 10, 2: 10}
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"
