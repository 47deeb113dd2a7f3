"""What the pages say is true at that moment: waits of this step, ages of old facts, nothing to come after the end."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import pytest
from markupsafe import escape
from tests.unit.page_world import REQUIRED, drain_progress
from tests.unit.test_acts_drain_back import moved
from tests.unit.test_page_model import NOW, aborted, back_again, found, on_page, page
from tests.unit.world import TARGET, World

from topicshift.acts.finish import fail_unbegun
from topicshift.core.engine.words import Step
from topicshift.core.errors import PreflightFailed
from topicshift.core.page.seen import nothing_goes_back
from topicshift.core.page.timeline import spans
from topicshift.core.rows import StepRow
from topicshift.reporting.run_view import build
from topicshift_airflow.page.view import rendered


def gate(at: float, *, looks: int = 2) -> bytes:
    """What the gate leaves behind: one group whose commits do not move, and a verifier that starts."""
    series = [[at - 3 * n, 86] for n in reversed(range(looks))]
    group = {"group": "fraud-g", "lag": 86, "seconds_left": None, "series": series}
    waits = ["the armed drain verifier is starting"]
    return json.dumps({"at": at, "wanted_s": 30.0, "waits": waits, "groups": [group]}).encode()


def before_the_go() -> World:
    world = World(approvals=REQUIRED)
    world.answer(world.asks())
    return world


def html(seen: dict[str, Any]) -> str:
    return rendered("one.html.j2", root="", airflow="", m=on_page(seen))


def test_while_the_go_is_asked_its_answer_is_all_that_is_waited_for() -> None:
    world = before_the_go()
    world.show(world.asks())
    seen = page(world, data={"gate_progress.json": gate(world.clock.now().timestamp())})
    assert [s["observed"] for s in seen["signals"]] == ["nobody has answered"], "the gate has passed"


def test_what_the_gate_saw_before_the_answer_is_no_wait_after_it() -> None:
    world = before_the_go()
    asking = world.asks()
    world.show(asking)
    before = world.clock.now().timestamp()
    world.clock.advance(30)
    world.answer(asking)
    assert page(world, data={"gate_progress.json": gate(before)})["signals"] == []
    world.clock.advance(5)
    now = world.clock.now().timestamp()
    assert len(page(world, data={"gate_progress.json": gate(now)})["signals"]) == 2, "it looks again"


def test_an_old_look_of_the_gate_says_how_old_it_is() -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    at = world.clock.now().timestamp()
    world.clock.advance(245)
    seen = page(world, data={"gate_progress.json": gate(at)})
    assert {round(s["age_s"]) for s in seen["signals"]} == {245}
    assert html(seen).count("4 min 05 s ago") == 3, "each signal, and the chart"


@pytest.mark.parametrize(("looks", "said"), [(1, "not known yet"), (2, "did not move")])
def test_one_look_is_no_forecast(looks: int, said: str) -> None:
    world = World()
    world.advanced(until=Step.CREATE_TARGET)
    data = {"gate_progress.json": gate(world.clock.now().timestamp(), looks=looks)}
    seen = page(world, data=data)
    assert said in seen["signals"][0]["observed"] and "never" not in seen["signals"][0]["observed"]
    assert (seen["lag"][0]["chart"] is not None) == (looks == 2), "an empty chart of 0 s shows nothing"


def test_a_way_back_shows_no_waits_of_the_way_forward() -> None:
    world = moved(World())
    old = datetime.fromisoformat(world.journal.current(world.claim.migration_id).created_at).timestamp() + 1
    world.clock.advance(480)
    world.answer(world.asks(wanted="rollback"))
    world.advance(wanted="rollback", until=Step.CREATE_TARGET)
    data = {"gate_progress.json": gate(old), "drain_progress.json": drain_progress(old)}
    seen = page(world, data=data)
    assert seen["going_back"]
    assert not [s for s in seen["signals"] if "lag" in s["signal"] or s["signal"] == "gate"]
    assert seen["lag"] == []


# ------------------------------------------------------------------------------------------------ after the end


def ended() -> list[World]:
    failed = World()
    fail_unbegun(failed.context(), failed.context().record())
    return [failed, aborted(Step.CREATE_TARGET), aborted(Step.STOP_PRODUCERS), back_again()]


@pytest.mark.parametrize("which", range(4))
def test_nothing_is_to_come_after_the_end(which: int) -> None:
    world = ended()[which]
    seen = page(world)
    assert "waiting" not in {s["state"] for s in seen["timeline"]}
    assert seen["rollback"]["past"] and not seen["rollback"]["does"]
    assert "worked out on the cluster again" not in html(seen)


def test_a_drain_whose_beginning_was_taken_back_took_no_zero_seconds() -> None:
    def row(step: str, state: str, began: int, ended: int) -> StepRow:
        at = [(NOW + timedelta(seconds=s)).isoformat() for s in (began, ended)]
        return StepRow(step, state, 1, {}, at[0], at[1])

    drained = row("certificate", "done", 20, 20)
    assert spans([row("fence", "done", 1, 9), drained])[Step.DRAIN] == (
        NOW + timedelta(seconds=9),
        NOW + timedelta(seconds=20),
    )
    assert spans([row("fence", "undone", 1, 70), drained])[Step.DRAIN] == (None, NOW + timedelta(seconds=20))


def test_an_order_that_was_proven_stays_proven_after_the_way_back() -> None:
    states = {s["step"]: s["state"] for s in page(back_again())["timeline"]}
    assert (states["verify"], states["retire"]) == ("done", "not_done")


def test_before_the_target_is_made_there_is_nothing_to_go_back_from() -> None:
    world = World(approvals=REQUIRED)
    world.show(world.asks())
    seen = page(world)["rollback"]
    assert "nothing to go back from" in seen["why"] and not seen["does"]
    assert nothing_goes_back(found(world).record) == seen["why"], "status says the same"
    world.answer(world.asks())
    world.advance(until=Step.CREATE_TARGET)
    assert page(world)["rollback"]["does"]


# ------------------------------------------------------------------------------------------------ why it failed


def refused(world: World) -> None:
    """Its plan is blocked, as a task of its run writes it down."""
    error = PreflightFailed("1 finding(s) block this plan; nothing was changed:\n- TS103 error payments-v2: it exists")
    with pytest.raises(PreflightFailed), world.context().recorded("plan.check"):
        raise error


BLOCKED = {
    "code": "TS103",
    "level": "error",
    "subject": "payments-v2",
    "seen": "It exists.",
    "why": "",
    "do": "Delete it.",
}


def test_a_migration_that_failed_says_why_and_what_to_do_above() -> None:
    world = World()
    refused(world)
    plan = json.dumps({"findings": [BLOCKED]}).encode()
    seen = page(world, data={"plan.json": plan})
    assert seen["waits_on"] == "itself" and "its run ends it and frees both topics" in seen["waits_for"]
    assert "TS103" in seen["waits_for"] and "clear the failed tasks" not in html(seen)
    fail_unbegun(world.context(), world.context().record())
    seen = page(world, data={"plan.json": plan})
    assert seen["waits_on"] == "nobody"
    assert "plan.check failed with PreflightFailed" in seen["waits_for"] and "TS103" in seen["waits_for"]
    assert "begin again: its topics are free" in seen["waits_for"]
    above = html(seen).partition('id="orders"')[0]
    assert "<code>TS103</code>" in above and "Delete it." in above


def test_a_run_that_does_not_end_itself_is_not_said_to() -> None:
    world = World()
    refused(world)
    world.clock.advance(180)
    assert page(world)["waits_on"] == "person", "its run should have ended it long ago"
    other = World()
    with pytest.raises(PreflightFailed), other.context().recorded("topicshift advance"):
        raise PreflightFailed("x")
    assert page(other)["waits_on"] == "person", "nobody ends it but a person"


# ------------------------------------------------------------------------------------------- once, and with figures


def test_an_open_question_stands_once_in_the_box_above() -> None:
    world = World(approvals=REQUIRED)
    world.show(world.asks())
    seen = page(world)
    above = html(seen).partition('id="orders"')[0].partition('class="card now')[2]
    assert above.count(str(escape(seen["questions"][0]["subject"]))) == 1
    assert "Answer in Airflow" in above and "<table" not in above


def test_a_step_under_way_says_how_long_it_usually_takes_and_by_how_many() -> None:
    world = World()
    world.advanced(until=Step.SWITCH_CONSUMERS)
    world.clock.advance(90)
    seen = page(world, usual={Step.VERIFY: 243.0}, usual_of=2)
    assert seen["step"] == "verify"
    said = " ".join(re.sub("<[^>]+>", "", html(seen)).split())
    assert "This step usually takes 4 min 03 s (the median of 2 earlier migrations); it has taken 1 min 3" in said
    assert "does not count" in html(page(world)), "an aborted one is there, and is no measure"


def test_the_report_and_the_page_have_one_duration_of_each_step() -> None:
    world = World(approvals=REQUIRED)
    world.clock.advance(60)
    world.answer(world.asks())
    world.answer(world.asks())
    world.advanced(until=Step.SWITCH_CONSUMERS)
    world.clock.advance(176)
    world.advanced()
    name = world.claim.migration_id
    files = {
        "steps.json": json.dumps([asdict(s) for s in world.journal.steps(name)]).encode(),
        "migration.json": json.dumps(asdict(world.journal.current(name))).encode(),
    }
    told = {row["words"]: row["seconds"] for row in build(files).steps}
    shown = {s["step"]: s["took_s"] for s in page(world)["timeline"]}
    assert told["inventory and checks"] == shown["plan"] >= 60
    assert told["order proof"] == shown["verify"] >= 176


def test_what_is_left_by_hand_has_its_exact_commands() -> None:
    seen = page(back_again())
    topic, deny = seen["left"][:2]
    assert topic.endswith(f"kafka-topics.sh --bootstrap-server BROKERS --delete --topic {TARGET}")
    command = deny.partition("with the topic: ")[2]
    assert command.startswith("kafka-acls.sh --bootstrap-server BROKERS --remove --force --topic payments-v2")
    assert "--operation Write" in command and "--deny-principal" in command
    assert "named by its page" not in seen["waits_for"]
