"""Kinds of participant: those that ship, those of installed packages, their settings, and who can be moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from tests.unit.world import AUTO, SOURCE, TARGET, World, said

from topicshift.adapters.controllers import ControllerEnv, controller
from topicshift.core.errors import PreflightFailed, SpecError
from topicshift.core.spec import kinds
from topicshift.core.spec.io import spec_from_params
from topicshift.testing.fake_controllers import FakeController

SPEC: dict[str, Any] = {"source": "payments", "partitions": 6, "approvals": AUTO}


def spec(**one: Any) -> Any:
    return spec_from_params(
        said({**SPEC, "producers": [{"name": "checkout", **one}], "consumers": [{"name": "ledger", "group": "g"}]})
    )


class Balloon(FakeController):
    """What a package of somebody else's offers."""

    def __init__(self, env: ControllerEnv) -> None:
        super().__init__("balloon")


@pytest.fixture
def balloons(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entry = EntryPoint("balloon", f"{__name__}:Balloon", kinds.ENTRY_POINTS)

    def found(*, group: str) -> Sequence[EntryPoint]:
        return [entry] if group == kinds.ENTRY_POINTS else []

    monkeypatch.setattr(kinds, "entry_points", found)
    monkeypatch.setattr("topicshift.adapters.controllers.entry_points", found)
    yield


def test_a_kind_of_an_installed_package_is_accepted_and_made(balloons: None) -> None:
    made = spec(kind="balloon", settings={"colour": "red", "height": 3})
    assert made.producers[0].settings == {"colour": "red", "height": 3}
    assert isinstance(controller("balloon", ControllerEnv({})), Balloon)


def test_applications_of_a_kind_of_an_installed_package_are_moved_as_others_are(balloons: None) -> None:
    who = {"name": "checkout", "kind": "balloon", "settings": {"colour": "red"}, "principal": "User:checkout"}
    w = World(producers=[who, {"name": "billing", "principal": "User:billing"}])
    made = controller("balloon", ControllerEnv({}, w.cluster))
    assert isinstance(made, Balloon)
    w.controllers["balloon"] = made  # type: ignore[assignment]
    made.cannot = ["checkout: there is no wind"]
    with pytest.raises(PreflightFailed, match=r"TS325.*checkout: there is no wind"):
        w.advanced()
    made.cannot = []
    w.advanced()
    assert w.where() == {(TARGET, True)}
    assert [a for a in made.acts if "arm" not in a] == ["stop checkout", f"point {TARGET} checkout", "start checkout"]
    w.advanced(wanted="rollback")
    assert w.where() == {(SOURCE, True)} and made.topic == {"checkout": SOURCE}


def test_a_kind_that_nobody_offers_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        SpecError,
        match=r"no kind of.*Known are: command, connect, flink, http, kubernetes, manual, route, spark_streaming",
    ):
        spec(kind="balloon")
    with pytest.raises(SpecError, match="Did you mean `command`"):
        spec(kind="comand")


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, "needs the setting hook"),
        ({"hook": "checkout", "time": "3s"}, "time is no setting of kind command"),
        ({"hook": "../bin/sh"}, "hook: String should match"),
        ({"hook": "/bin/sh"}, "hook: String should match"),
        ({"hook": "checkout", "timeout": "1m"}, "between 100 ms and 9 s"),
        ({"hook": "checkout", "timeout": "soon"}, "not a duration"),
    ],
)
def test_settings_that_a_hook_cannot_have_are_refused(settings: dict[str, Any], seen: str) -> None:
    with pytest.raises(SpecError, match=seen):
        spec(kind="command", settings=settings)


def test_a_kind_that_takes_no_settings_gets_none() -> None:
    with pytest.raises(SpecError, match="hook is no setting of kind route"):
        spec(kind="route", settings={"hook": "checkout"})


def test_whoever_cannot_be_moved_blocks_the_plan_by_name() -> None:
    w = World(producers=[{"name": "checkout", "kind": "command", "settings": {"hook": "checkout"}}])
    w.controllers["command"].cannot = ["checkout: its hook checkout says no to can_i (exit code 1)"]
    with pytest.raises(PreflightFailed, match=r"TS325.*checkout"):
        w.advanced()
    assert w.cluster.topic("payments-v2") is None
    w.controllers["command"].cannot = []
    w.advanced()
