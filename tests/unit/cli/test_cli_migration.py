"""A migration that goes on, back or ends from a terminal, when Airflow is down or in the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from topicshift import cli
from topicshift.core.engine.words import Step

Run = Callable[..., tuple[int, dict[str, Any]]]
REQUIRED = {"plan": "required", "freeze": "required", "certificate": "required", "retire": "auto"}


@pytest.fixture
def world() -> World:
    return World(approvals=REQUIRED)


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command; its exit code and its answer as JSON."""

    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        ctx = world.context()
        ctx.actor = "os:kim (unverified)"
        yield ctx

    for name in ("advance", "answer", "close", "resume_on_source"):
        monkeypatch.setattr(f"topicshift.commands.{name}.open_context", opened)

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = cli.run([words[0], SOURCE, *words[1:], "--bootstrap-server", "b:9092", "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out)

    return call


def test_a_migration_goes_to_its_end_from_a_terminal(world: World, run: Run) -> None:
    code, said = run("advance")
    assert (code, said["question"]) == (3, "approve.plan")
    code, said = run("answer", "switch_producers.switch", "yes")
    assert code == 3 and "asks approve.plan now" in said["error"]["message"]
    code, said = run("answer", "approve.plan", "yes", "--about", "0" * 64)
    assert code == 3 and "has changed" in said["error"]["message"], "a yes is for what was shown"
    assert run("answer", "approve.plan", "yes")[0] == 0
    code, said = run("advance")
    assert (code, said["question"], world.where()) == (3, "stop_producers.go", {(SOURCE, True)})
    assert run("answer", "stop_producers.go", "yes")[0] == 0
    code, said = run("advance")
    assert (code, said["question"]) == (3, "switch_producers.switch")
    code, said = run("answer", "switch_producers.switch", "yes")
    assert (code, said["by"][:3]) == (0, "os:")
    code, said = run("advance")
    assert (code, said["state"], world.where()) == (0, "done", {(TARGET, True)})
    assert run("advance", "--what")[1]["kind"] == "over"


def test_a_freeze_is_ended_from_a_terminal(world: World, run: Run) -> None:
    world.answer(world.asks(until=Step.APPROVE))
    world.answer(world.asks(until=Step.STOP_PRODUCERS))
    world.advance(until=Step.STOP_PRODUCERS)
    assert world.where() == {(SOURCE, False)}
    code, said = run("close", "--reason", "it will not go on")
    assert code == 3 and "topicshift resume-on-source" in said["error"]["message"]
    code, said = run("close", "--reason", "it will not go on", "--what")
    assert code == 3 and "topicshift resume-on-source" in said["cannot"]
    assert run("resume-on-source")[0] == 0
    assert world.where() == {(SOURCE, True)}
    assert not [acl for acl in world.cluster.acls() if acl.permission == "DENY"]
    before = world.record()
    code, said = run("close", "--reason", "it will not go on", "--what")
    assert code == 0 and f"topic {TARGET} was made for this migration" in " ".join(said["left"])
    assert world.record() == before, "it was only asked"
    code, said = run("close", "--reason", "it will not go on")
    assert (code, said["state"]) == (0, "failed")
    assert "has ended already" in run("close", "--reason", "again", "--what")[1]["cannot"]
    assert world.open("topic_migration/another").epoch == 1, "both topics are free"
