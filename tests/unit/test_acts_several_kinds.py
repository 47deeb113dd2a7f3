"""Several applications, of several kinds, in one migration: one that cannot be moved now keeps no other from it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.unit.test_acts_http import http
from tests.unit.world import SOURCE, TARGET, Applications, World

from topicshift.acts.advance import Waiting
from topicshift.adapters.controllers.http import HttpController
from topicshift.adapters.executor import ThreadExecutor
from topicshift.core.engine.engine import Wanted
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import AccessDenied, DrainTimedOut, Transient, Unreadable
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_http import FakeApp, FakeServices

NAMES = ("checkout", "intake")


class Several(World):
    """Two applications that are told by HTTP (the first one may be gone), one that a hook moves, one on the route."""

    def __init__(self, **changes: Any) -> None:
        producers = [
            *({"name": name, "principal": "User:checkout", **http(name)} for name in NAMES),
            {"name": "batch", "kind": "command", "settings": {"hook": "batch"}, "principal": "User:batch"},
            {"name": "billing", "principal": "User:billing"},
        ]
        super().__init__(producers=producers, **changes)
        self.services = FakeServices()
        self.services.apps = {name: FakeApp(SOURCE) for name in NAMES}
        self.first = {name: app.fields() for name, app in self.services.apps.items()}
        self.controllers["http"] = HttpController(self.cluster, self.services, self.clock)  # type: ignore[assignment]

    def on(self) -> dict[str, tuple[str, bool]]:
        """Topic of each producer, and whether it runs."""
        found = {name: (app.topic, app.state == "running") for name, app in self.services.apps.items()}
        for name, kind in (("batch", "command"), ("billing", "route")):
            apps = self.controllers[kind]
            found[name] = (apps.topic.get(name, SOURCE), apps.running.get(name, True))
        return found

    def others(self) -> set[tuple[str, bool]]:
        """Where all are but the first one."""
        return {state for name, state in self.on().items() if name != "checkout"}

    def tried(self, **how: Any) -> str:
        """What is waited for, or why it ended."""
        try:
            outcome = self.advance(patience_s=5, **how)
        except AccessDenied as error:
            return str(error)
        assert isinstance(outcome, Waiting)
        return outcome.why + "".join(self.said)


GONE = pytest.mark.parametrize("how", ["down", "locked"])


@GONE
def test_one_that_is_gone_in_the_freeze_keeps_no_other_from_going_on_with_the_source(how: str) -> None:
    w = Several()
    w.advanced(until=Step.STOP_PRODUCERS)
    assert set(w.on().values()) == {(SOURCE, False)}
    getattr(w.services, how).add("checkout")
    assert "checkout" in w.tried(wanted="resume")
    assert w.others() == {(SOURCE, True)}
    getattr(w.services, how).clear()
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and set(w.on().values()) == {(SOURCE, True)}
    assert {name: app.fields() for name, app in w.services.apps.items()} == w.first


def test_one_that_is_gone_when_the_budget_ends_keeps_no_other_from_going_on_with_the_source() -> None:
    w = Several(freeze_budget="20s")
    w.advanced(until=Step.STOP_PRODUCERS)
    w.services.down.add("checkout")
    w.clock.advance(21)
    assert "checkout" in w.tried()
    assert w.others() == {(SOURCE, True)}
    w.services.down.clear()
    with pytest.raises(DrainTimedOut, match="producers are back on the source"):
        w.advanced()
    assert set(w.on().values()) == {(SOURCE, True)} and w.acls() == w.before


REFUSES = pytest.mark.parametrize("error", [Transient("no answer"), AccessDenied("it is not allowed (HTTP 403).")])


@REFUSES
def test_one_that_cannot_be_stopped_keeps_no_other_from_being_stopped(error: Exception) -> None:
    """So all that can stand do at once, and it is the one that is named."""
    w = Several()
    w.advanced(until=Step.CREATE_TARGET)
    w.services.apps["checkout"].broken["POST /actuator/payments"] = error
    assert f"checkout: {error}" in w.tried()
    assert w.others() == {(SOURCE, False)} and w.on()["checkout"] == (SOURCE, True)
    w.services.apps["checkout"].broken.clear()
    w.advanced()
    assert set(w.on().values()) == {(TARGET, True)}


@pytest.mark.parametrize(
    ("error", "other"),
    [(Transient("no answer"), {(TARGET, True)}), (AccessDenied("it is not allowed (HTTP 403)."), {(SOURCE, False)})],
    ids=["not reached", "refused"],
)
@pytest.mark.parametrize("first", NAMES)
def test_one_that_is_not_reached_at_the_switch_keeps_no_other_from_the_target_and_a_refusal_lets_none_start(
    first: str, error: Exception, other: set[tuple[str, bool]]
) -> None:
    """Those that can write somewhere do; where a person has to decide, nobody is led to the target."""
    w = Several()
    w.advanced(until=Step.DRAIN)
    w.services.apps[first].broken["POST /actuator/env"] = error
    assert f"{first}: {error}" in w.tried()
    assert {state for name, state in w.on().items() if name != first} == other and w.on()[first] == (SOURCE, False)
    w.services.apps[first].broken.clear()
    w.advanced()
    assert set(w.on().values()) == {(TARGET, True)}


def test_after_a_refusal_at_the_switch_all_can_still_go_on_with_the_source() -> None:
    w = Several()
    w.advanced(until=Step.DRAIN)
    w.services.apps["intake"].broken["POST /actuator/env"] = AccessDenied("it is not allowed (HTTP 403).")
    assert "intake: it is not allowed" in w.tried()
    w.services.apps["intake"].broken.clear()
    w.advanced(wanted="resume")
    assert set(w.on().values()) == {(SOURCE, True)} and w.acls() == w.before


def test_a_refusal_at_the_switch_keeps_nobody_else_from_the_target_once_somebody_is_there() -> None:
    """There is no way back to the source without a rollback then, so who can write does."""
    w = Several()
    w.controllers["route"].leased = True  # type: ignore[attr-defined]
    w.advanced(until=Step.DRAIN)
    w.services.apps["checkout"].broken["POST /actuator/env"] = AccessDenied("it is not allowed (HTTP 403).")
    assert "checkout: it is not allowed" in w.tried()
    assert w.others() == {(TARGET, True)} and w.on()["checkout"] == (SOURCE, False)
    w.services.apps["checkout"].broken.clear()
    w.advanced()
    assert set(w.on().values()) == {(TARGET, True)}


def test_every_one_that_cannot_be_told_is_named_whatever_its_kind() -> None:
    w = Several()
    w.advanced(until=Step.CREATE_TARGET)
    w.services.apps["checkout"].broken["POST /actuator/payments"] = Transient("no answer")
    w.services.apps["intake"].broken["POST /actuator/payments"] = AccessDenied("it is not allowed (HTTP 403).")
    w.controllers["command"].stop = _fails(Unreadable("the hook is gone"))  # type: ignore[method-assign]
    said = w.tried()
    assert all(text in said for text in ("checkout: no answer", "intake: it is not allowed", "batch: the hook is gone"))
    assert w.on()["billing"] == (SOURCE, False)


def _fails(error: Exception) -> Callable[..., None]:
    def act(*_: Any) -> None:
        raise error

    return act


def test_one_under_a_lease_that_cannot_be_told_keeps_no_other_from_going_on_with_the_source() -> None:
    w = Several()
    route = w.controllers["route"]
    route.leased = True  # type: ignore[attr-defined]
    w.advanced(until=Step.STOP_PRODUCERS)
    start, route.start = route.start, _fails(Transient("the route cannot be written"))  # type: ignore[method-assign]
    assert "the route cannot be written" in w.tried(wanted="resume")
    assert {state for name, state in w.on().items() if name != "billing"} == {(SOURCE, True)}
    route.start = start  # type: ignore[method-assign]
    w.advanced(wanted="resume")
    assert set(w.on().values()) == {(SOURCE, True)}


@pytest.mark.parametrize("moment", ["stop", "point"])
def test_nobody_else_is_told_where_one_under_a_lease_cannot_be(moment: str) -> None:
    """No freeze can begin without it; and it could go on with the source while others write to the target."""
    w = Several()
    route = w.controllers["route"]
    route.leased = True  # type: ignore[attr-defined]
    w.advanced(until=Step.CREATE_TARGET if moment == "stop" else Step.DRAIN)
    setattr(route, moment, _fails(Transient("the route cannot be written")))
    assert "the route cannot be written" in w.tried()
    assert set(w.on().values()) == {(SOURCE, moment == "stop")}


class Meeting(Applications):
    """Applications whose controller is done with an act only once that of the other kind is at the same act."""

    def __init__(self, world: World, kind: str, others: dict[str, threading.Barrier]) -> None:
        super().__init__(world, kind, seeded=True)
        self.others = others

    def _meet(self, moment: str) -> None:
        self.others[moment].wait(5)

    def stop(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self._meet("stop")
        super().stop(ctx, participants)
        ctx.say(participants[0].name, {"moment": "stop"})

    def point(self, ctx: ControlContext, participants: Sequence[Participant], topic: str) -> None:
        self._meet("point")
        super().point(ctx, participants, topic)

    def start(self, ctx: ControlContext, participants: Sequence[Participant]) -> None:
        self._meet("start")
        super().start(ctx, participants)

    def observe(self, ctx: ControlContext, participants: Sequence[Participant]) -> list[ParticipantState]:
        if "observe" in self.others:
            self._meet("observe")
        return super().observe(ctx, participants)


class Meetings(World):
    """Two producers of kinds that wait for each other, told in threads as in a task."""

    def __init__(self) -> None:
        kinds = {"command": {"hook": "x"}, "connect": {"connector": "x"}}
        told = [{"name": k, "kind": k, "settings": s, "principal": f"User:{k}"} for k, s in kinds.items()]
        super().__init__(producers=told)
        self.others = {moment: threading.Barrier(2) for moment in ("stop", "point", "start")}
        self.controllers |= {kind: Meeting(self, kind, self.others) for kind in kinds}
        self.executor = ThreadExecutor()


@pytest.fixture
def meetings() -> Iterator[Meetings]:
    made = Meetings()
    yield made
    made.executor.close()  # type: ignore[attr-defined]


def test_producers_of_all_kinds_are_stopped_pointed_and_started_side_by_side(meetings: Meetings) -> None:
    """One that takes long keeps no other kind waiting: one after the other, these would wait forever."""
    meetings.advanced()
    assert meetings.where() == {(TARGET, True)}
    assert {said["name"] for said in meetings.events("participant")} == {"command", "connect"}


@pytest.mark.parametrize("wanted", ["resume", "rollback"])
def test_producers_of_all_kinds_go_on_with_the_source_side_by_side(meetings: Meetings, wanted: Wanted) -> None:
    meetings.advanced(until=Step.STOP_PRODUCERS if wanted == "resume" else Step.SWITCH_PRODUCERS)
    meetings.advanced(wanted=wanted)
    assert meetings.where() == {(SOURCE, True)} and meetings.acls() == meetings.before


def test_producers_of_all_kinds_are_looked_at_side_by_side(meetings: Meetings) -> None:
    """In a look too, which asks for them beside other things."""
    ctx = meetings.context()
    meetings.others["observe"] = threading.Barrier(2)
    asked = ctx.ask_all({str(n): lambda: len(ctx.observe(ctx.producers)) for n in range(1)})
    assert asked == {"0": 2} and len(ctx.observe(ctx.producers)) == 2


@GONE
def test_one_that_is_gone_after_the_switch_is_named_and_all_go_back_once_it_is_there_again(how: str) -> None:
    """Whether it has written to the target is not known, so nobody goes back before that."""
    w = Several()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    getattr(w.services, how).add("checkout")
    w.answer(w.asks(wanted="rollback"))
    assert "checkout" in w.tried(wanted="rollback")
    getattr(w.services, how).clear()
    w.advanced(wanted="rollback")
    assert set(w.on().values()) == {(SOURCE, True)} and w.acls() == w.before


class Groups(World):
    """Two consumers that are told by HTTP (the first one may be gone), and one on the route."""

    def __init__(self, **changes: Any) -> None:
        told = [{"name": name, "group": f"{name}-g", **http(name)} for name in ("ledger", "audit")]
        self.services = FakeServices(self.changed)
        super().__init__(consumers=[*told, {"name": "fraud", "group": "fraud-g"}], **changes)
        self.services.apps = {name: FakeApp(SOURCE) for name in ("ledger", "audit")}
        self.controllers["http"] = HttpController(self.cluster, self.services, self.clock)  # type: ignore[assignment]

    def changed(self, connection: str) -> None:
        """Its group has a member while it runs."""
        app = self.services.apps[connection]
        self.leave(f"{connection}-g")
        if app.state != "stopped":
            self.join(f"{connection}-g", app.topic)

    def ends(self, how: str, wanted: Wanted = "forward") -> str:
        """What is said in the end of the group that is gone: a wait, or where a person has to mend it, an error."""
        if how == "down":
            return self.waits(patience_s=5, wanted=wanted)
        with pytest.raises(AccessDenied) as error:
            self.advance(patience_s=5, wanted=wanted)
        return str(error.value)

    def states(self) -> list[str | None]:
        """The journal's word of each group's switch, the one that is gone first."""
        return [self.state(Row.SWITCH_GROUP, f"{name}-g") for name in ("ledger", "audit", "fraud")]


@GONE
@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_a_group_that_is_gone_keeps_no_other_from_the_target(how: str, cutover: str) -> None:
    w = Groups(cutover=cutover)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    getattr(w.services, how).add("ledger")
    assert "ledger" in w.ends(how)
    assert w.states() == ["intended", "done", "done"] and w.services.apps["audit"].topic == TARGET
    getattr(w.services, how).clear()
    w.advanced()
    assert w.states() == ["done"] * 3


@GONE
def test_a_group_that_is_gone_keeps_no_other_from_going_back(how: str) -> None:
    w = Groups()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    for name in ("ledger", "audit", "fraud"):
        w.advance(focus=f"{name}-g", leave=frozenset({"finish_group"}))
    assert w.states() == ["intended"] * 3
    getattr(w.services, how).add("ledger")
    w.answer(w.asks(wanted="rollback"))
    assert "ledger" in w.ends(how, "rollback")
    assert w.states() == ["intended", "undone", "undone"] and w.services.apps["audit"].topic == SOURCE
    getattr(w.services, how).clear()
    w.advanced(wanted="rollback")
    assert w.services.apps["ledger"].fields() == FakeApp(SOURCE).fields() and w.acls() == w.before
