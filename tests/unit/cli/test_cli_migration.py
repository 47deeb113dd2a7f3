"""A migration that goes on, back or ends from a terminal, when Airflow is down or in the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from topicshift import cli
from topicshift.acts import orders
from topicshift.acts.going_back import go_back, way_back
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.policy.model import Installation

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

    for name in ("advance", "answer", "close", "resume_on_source", "rollback"):
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


def test_advance_says_first_what_comes_next_and_what_answers_with_the_same_codes(
    world: World, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run("advance", "--what")
    assert (code, said["kind"], said["act"]) == (0, "act", "check_plan")
    run("advance")
    assert (run("advance", "--what")[0], run("advance", "--what")[1]["question"]) == (3, "approve.plan")
    run("answer", "approve.plan", "yes")
    orders.pause(world.context(), "an audit")
    code, said = run("advance", "--what")
    assert (code, said["kind"]) == (0, "wait"), "an advance ends the pause first"
    orders.unpause(world.context())
    capsys.readouterr()
    orders.postpone(world.context(), world.clock.now() + timedelta(hours=1), "a sale")
    cli.run(["advance", SOURCE, "--patience", "1", "--bootstrap-server", "b:9092"])
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"{world.claim.migration_id}: act create_target: "), first
    code, said = run("advance", "--what")
    assert (code, said["kind"]) == (4, "wait"), said


def test_advance_what_of_a_plan_that_was_refused_is_a_no(run: Run) -> None:
    run("advance")
    run("answer", "approve.plan", "no")
    code, said = run("advance", "--what")
    assert (code, said["kind"]) == (3, "stop"), said


def test_close_and_resume_on_source_say_first_what_they_do(
    world: World, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    world.answer(world.asks(until=Step.APPROVE))
    world.answer(world.asks(until=Step.STOP_PRODUCERS))
    world.advance(until=Step.STOP_PRODUCERS)
    capsys.readouterr()
    assert cli.run(["resume-on-source", SOURCE, "--bootstrap-server", "b:9092"]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert f"producers resume on {SOURCE}, and the DENY is lifted" in first, first
    assert cli.run(["close", SOURCE, "--reason", "x", "--bootstrap-server", "b:9092"]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert "it ends as failed, moves nobody, and both topics are free" in first, first


WHY = ("--reason", "the bank asked")


def moved(world: World) -> None:
    """Everybody is on the target, which holds records that both groups have read."""
    world.advanced()
    world.write(TARGET, 1, 4)
    for group in ("ledger-g", "fraud-g"):
        world.drain(group, TARGET)


def test_a_migration_goes_back_from_a_terminal_and_says_first_which_type_that_is(world: World, run: Run) -> None:
    moved(world)
    before = world.record()
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"], said["cannot"]) == (0, "drain_back", None)
    assert said["why"] == "the target holds 4 record(s), which every group reads before it goes back"
    does = " ".join(said["would"])
    assert f"{TARGET} is fenced" in does and "producers stand still for 120 s at most" in does
    code, said = run("rollback", *WHY)
    assert code == 2 and "--yes" in said["error"]["message"], "nobody is there to be asked"
    assert world.record() == before, "it was only asked"
    code, said = run("rollback", *WHY, "--yes")
    assert (code, said["state"], world.where()) == (0, "rolled_back", {(SOURCE, True)})
    assert world.acls() == world.before
    [ordered] = world.events("rollback_ordered")
    assert ordered == {"reason": "the bank asked", "by": "os:kim (unverified)", "type": "drain_back"}
    assert [e["how"] for e in world.events("approved") if e["act"] == "rollback.approve"] == ["person"]
    code, said = run("rollback", *WHY, "--yes")
    assert code == 3 and "was rolled back already" in said["error"]["message"]


@pytest.mark.parametrize("until", [None, Step.APPROVE, Step.CREATE_TARGET, Step.STOP_PRODUCERS, Step.SWITCH_PRODUCERS])
def test_before_the_first_record_the_way_back_is_free(until: Step | None, world: World, run: Run) -> None:
    """In a freeze producers resume first."""
    if until is not None:
        if until is Step.STOP_PRODUCERS:
            world.cluster.commit("fraud-g", SOURCE, {0: 9})
            for _ in range(2):
                world.answer(world.asks(until=until))
            world.advance(until=until)
            assert world.where() == {(SOURCE, False)}
        else:
            world.advanced(until=until)
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"]) == (0, "free"), said
    assert any("producers resume" in line for line in said["would"]) == (until is Step.STOP_PRODUCERS)
    code, said = run("rollback", *WHY, "--yes")
    assert (code, said["state"], world.where()) == (0, "rolled_back", {(SOURCE, True)})
    assert world.acls() == world.before and world.cluster.topic(TARGET) is None


def test_where_no_way_back_is_left_it_is_refused_with_the_reason(world: World, run: Run) -> None:
    moved(world)
    world.write(SOURCE)
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"]) == (3, "forward_only") and "the source was written to" in said["cannot"]
    code, said = run("rollback", *WHY, "--yes")
    assert code == 3 and "forward_only" in said["error"]["message"]
    assert world.events("rollback_ordered") == [] and world.where() == {(TARGET, True)}


def test_what_cannot_be_read_is_unknown_and_changes_nothing(world: World, run: Run) -> None:
    moved(world)
    before = world.record()
    world.cluster.fail("offsets", Unreadable("no leader"))
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"]) == (4, None)
    assert run("rollback", *WHY, "--yes")[0] == 4
    assert world.record() == before


def test_a_yes_is_for_the_type_that_was_shown(world: World) -> None:
    """Records come to the target between the look and the yes."""
    world.advanced()
    ctx = world.context()
    shown = way_back(ctx, ctx.refresh())
    assert shown.kind == "free"
    world.write(TARGET, 1, 4)
    with pytest.raises(Refused, match=r"has changed since it was shown: it is drain_back now"):
        go_back(ctx, "x", shown, 60.0)
    assert world.where() == {(TARGET, True)} and world.state(Row.ROLLBACK) is None


def test_a_rollback_that_was_begun_goes_on_from_a_terminal(world: World, run: Run) -> None:
    moved(world)
    world.answer(world.asks(wanted="rollback"))
    world.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"], said["would"]) == (0, "drain_back", ["the rollback that was begun goes on"])
    code, said = run("rollback", *WHY, "--yes")
    assert (code, said["state"], world.where()) == (0, "rolled_back", {(SOURCE, True)})


def test_on_the_way_back_too_a_person_is_asked_to_stop_and_start_what_only_people_move(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = World(
        producers=[{"name": "checkout", "principal": "User:checkout", "kind": "manual"}],
        consumers=[{"name": "ledger", "group": "ledger-g"}, {"name": "fraud", "group": "fraud-g"}],
    )
    moved(by_hand)
    monkeypatch.setattr(world, "context", by_hand.context)
    asked = []
    code, said = run("rollback", *WHY, "--yes")
    while code == 3 and said["outcome"] == "asks":
        asked.append(said["question"])
        assert run("answer", said["question"], "yes")[0] == 0
        code, said = run("rollback", *WHY, "--yes")
    assert (code, said["state"]) == (0, "rolled_back"), said
    assert asked == ["stop_producers.fence", "switch_producers.by_hand"]


def test_where_named_people_decide_a_rollback_from_a_terminal_is_refused(world: World, run: Run) -> None:
    moved(world)
    world.policy = Installation.model_validate(
        {"apiVersion": "topicshift-policy/v1", "answers": [{"question": "rollback", "people": ["ada"]}]}
    )
    code, said = run("rollback", *WHY, "--what")
    assert (code, said["type"]) == (3, "drain_back") and "asked by topic_rollback" in said["cannot"]
    assert run("rollback", *WHY, "--yes")[0] == 3
    assert world.where() == {(TARGET, True)}
