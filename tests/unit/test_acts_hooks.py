"""Applications that real hooks move: killed before or after any call of one, every field is as it must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ways import ALL, KindWorld, killed_at_each_effect
from tests.unit.world import SOURCE, TARGET

from topicshift.adapters.controllers.command import CommandController
from topicshift.adapters.controllers.hooks import Answer
from topicshift.core.engine.words import Step
from topicshift.core.errors import DrainTimedOut

GROUP, ACTS = "ledger-g", ("stop", "point", "start")
HOOK = """#!/bin/sh
cd "$(dirname "$0")/../$TOPICSHIFT_PARTICIPANT" || exit 1
[ -e hangs ] && [ "$(cat hangs)" = "$1" ] && exec sleep 60
[ -e idle ] && [ "$(cat idle)" = "$1" ] && exit 0
case "$1" in
stop) echo stopped >state ;;
point) printf %s "$TOPICSHIFT_TOPIC" >configured ;;
start)
    read -r state <state
    [ "$state" = running ] || { cat configured >topic; echo running >state; }
    ;;
observe)
    read -r state <state
    if [ "$state" = running ]; then
        printf '{"status": "running", "topic": "%s"}' "$(cat topic)"
    else
        echo '{"status": "stopped"}'
    fi
    ;;
esac
"""
MIXED: dict[str, Any] = {
    "producers": [
        {"name": "checkout", "kind": "command", "settings": {"hook": "app"}, "principal": "User:checkout"},
        {"name": "billing", "principal": "User:billing"},
    ],
    "consumers": [
        {"name": "ledger", "kind": "command", "settings": {"hook": "app"}, "group": GROUP},
        {"name": "fraud", "group": "fraud-g"},
    ],
}


class Calls:
    """Where a process may end: before and after each call that acts."""

    on_call: Callable[[str], None] = staticmethod(lambda _: None)


class Hooked(KindWorld):
    """A migration of a producer and a consumer that a hook moves, and of two applications on the route."""

    group = GROUP
    home: Path

    def __init__(self, **changes: Any) -> None:
        self.fake = Calls()
        self.folder = self.home / str(len(list(self.home.iterdir())))
        hooks = self.folder / "hooks"
        hooks.mkdir(parents=True)
        (hooks / "app").write_text(HOOK)
        (hooks / "app").chmod(0o755)
        for name in ("checkout", "ledger"):
            (self.folder / name).mkdir()
            for file, text in (("state", "running\n"), ("topic", SOURCE), ("configured", SOURCE)):
                (self.folder / name / file).write_text(text)
        super().__init__(**{**MIXED, **changes})
        self.cluster.calls.clear()
        self.first = self.now()
        controller = CommandController(self.cluster, hooks)
        self._real, controller._call_hook = controller._call_hook, self.call
        self.controllers["command"] = controller  # type: ignore[assignment]

    def call(self, name: str, moment: str, told: Mapping[str, str], timeout_s: float) -> Answer:
        """The hook itself; of a consumer, its group has a member as long as it runs."""
        who = told["TOPICSHIFT_PARTICIPANT"]
        acts = moment in ACTS
        if acts:
            self.fake.on_call(f"{moment} {who}")
        answer = self._real(name, moment, told, timeout_s)
        if acts and who == "ledger":
            held, self.cluster.on_call = self.cluster.on_call, None
            self.leave(GROUP)
            if self.now()[who]["state"] == "running\n":
                self.join(GROUP, self.now()[who]["topic"])
            self.cluster.on_call = held
        if acts:
            self.fake.on_call(f"{moment} {who}")
        return answer

    def now(self) -> dict[str, dict[str, str]]:
        """Every file of each application."""
        return {
            name: {file.name: file.read_text() for file in (self.folder / name).iterdir()}
            for name in ("checkout", "ledger")
        }

    def tell(self, name: str, file: str, moment: str) -> None:
        """From now on its hook hangs, or does nothing, at a moment; "" mends it."""
        (self.folder / name / file).write_text(moment)

    def unharmed(self) -> bool:
        """Everything is as before, and runs."""
        return self.now() == self.first

    def arrived(self) -> None:
        super().arrived()
        assert self.now() == {n: {**f, "topic": TARGET, "configured": TARGET} for n, f in self.first.items()}

    def stands(self) -> None:
        assert self.now()["checkout"]["state"] == "stopped\n"

    def on_target(self) -> None:
        assert self.now()["ledger"]["topic"] == TARGET


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hooked, "home", tmp_path, raising=False)


@pytest.mark.thorough
@ALL
def test_killed_before_or_after_every_call_of_a_hook_it_ends_where_it_would(way: str) -> None:
    """At each stop, point and start, on the way there and on every way back."""
    count = {"forward": 12, "resume": 4, "rollback": 12, "drain_back": 12}[way]
    killed_at_each_effect(Hooked, way, lambda call: True, count)


@pytest.mark.parametrize("how", ["idle", "hangs"])
def test_a_hook_that_hangs_or_does_nothing_at_stop_ends_the_freeze_with_every_field_as_before(how: str) -> None:
    checkout = MIXED["producers"][0] | {"settings": {"hook": "app", "timeout": "500ms"}}
    w = Hooked(freeze_budget="20s", producers=[checkout])
    w.tell("checkout", how, "stop")
    with pytest.raises(DrainTimedOut, match="the freeze budget is used up"):
        w.advanced()
    wanted = "checkout is running" if how == "idle" else "the hook of checkout failed at stop"
    assert any(wanted in line for line in w.said)
    w.tell("checkout", how, "")
    assert {n: {k: v for k, v in f.items() if k != how} for n, f in w.now().items()} == w.first
    assert w.acls() == w.before


@pytest.mark.parametrize("moment", ["point", "start"])
def test_one_that_does_nothing_on_the_target_is_waited_for_by_name_and_goes_back(moment: str) -> None:
    w = Hooked()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.tell("ledger", "idle", moment)
    assert GROUP in w.waits(patience_s=5)
    w.tell("ledger", "idle", "")
    w.advanced(wanted="rollback")
    assert {n: {k: v for k, v in f.items() if k != "idle"} for n, f in w.now().items()} == w.first
    assert w.acls() == w.before
