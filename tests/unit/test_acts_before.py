"""What was there before anybody was stopped is captured, and compared with what is there at every ending."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.test_acts_drain_back import moved
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts import orders
from topicshift.acts.advance import Done
from topicshift.acts.close import close
from topicshift.acts.observe import observe
from topicshift.acts.questions import about_of
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import FenceBroken, Refused
from topicshift.core.kafka.cluster import Acl


def restored(w: World) -> dict[str, Any]:
    data = w.evidence.read(w.claim.migration_id, "restored.json")
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def test_it_is_captured_before_anybody_is_stopped_and_before_the_retention_is_lengthened() -> None:
    w = World()
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.bytes": "1000000", "retention.ms": "60000"})
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advanced(until=Step.STOP_PRODUCERS, leave=frozenset({"freeze_begun", "gate"}))
    assert w.state(Row.FREEZE) is None and w.state(Row.LENGTHEN_RETENTION) == "done"
    before = json.loads(w.evidence.read(w.claim.migration_id, "before.json") or b"")
    assert before["configs"] == w.data(Row.BEFORE)["configs"] == {"retention.bytes": "1000000", "retention.ms": "60000"}
    assert {Acl(**a) for a in before["acls"]} == w.before
    assert before["commits"]["fraud-g"]["0"] == 9 and before["commits"]["ledger-g"]["0"] == 10


def test_a_rollback_says_that_everything_is_as_it_was() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advanced(wanted="rollback")
    said = restored(w)
    assert (said["how"], said["differs"], said["unknown"]) == ("rolled back", [], [])
    assert f"the configs of {SOURCE} are as they were" in said["equal"]
    assert f"no commit on {SOURCE} is lower than it was" in said["equal"]
    assert any(line.startswith(f"producer checkout is on {SOURCE}") for line in said["equal"])
    assert w.data(Row.ROLLBACK)["not_restored"] == []


def test_what_is_not_as_it_was_is_named() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.ms": "5"})
    gone = sorted(w.before)[0]
    w.cluster.delete_acls([gone])
    w.cluster.commit("fraud-g", SOURCE, {0: 3})
    w.advanced(wanted="rollback")
    lines = w.data(Row.ROLLBACK)["not_restored"]
    assert f"retention.ms of {SOURCE} is 5, and was inherited" in lines
    assert any(f"for {gone.principal} from * on LITERAL {SOURCE} was there, and is not" in line for line in lines)
    assert f"the commit of group fraud-g on {SOURCE}[0] was 10 and is 3, which is lower" in lines
    assert restored(w)["differs"] == lines


def test_a_freeze_that_ends_on_the_source_is_compared_and_what_the_run_still_holds_is_said() -> None:
    w = World()
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.bytes": "1000000", "retention.ms": "60000"})
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    w.advanced(until=Step.STOP_PRODUCERS, leave=frozenset({"gate"}))
    w.drain("fraud-g")
    w.advanced(until=Step.STOP_PRODUCERS)
    w.advanced(wanted="resume")
    said = restored(w)
    assert said["how"] == "producers resumed on the source"
    assert said["differs"] and all("(kept so until the migration ends)" in line for line in said["differs"])
    w.advanced(wanted="rollback")
    assert restored(w)["differs"] == []


def test_what_cannot_be_read_at_the_end_is_named_and_ends_nothing() -> None:
    w = World()
    w.advanced(until=Step.STOP_PRODUCERS)
    w.evidence.files.pop((w.claim.migration_id, "before.json"), None)
    w.evidence.write(w.claim.migration_id, "before.json", "{}")
    w.advanced(wanted="resume")
    assert restored(w)["unknown"] == ["the commits of groups: before.json is missing, or not the file that was written"]


def test_a_migration_that_is_closed_is_compared_too() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    left = close(w.context(), "it does not go on", even_frozen=True)["left"]
    assert any(f"producer checkout is running on {TARGET}" in line for line in left)
    assert restored(w)["how"] == "closed"


def test_nothing_is_compared_where_nothing_was_changed() -> None:
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    w.advanced(wanted="rollback")
    assert "restored" not in w.kinds()


# ------------------------------------------------------------------------------------------------ every ending


def aborted(w: World) -> None:
    """In the freeze."""
    w.advance(until=Step.STOP_PRODUCERS)
    assert w.where() == {(SOURCE, False)}
    assert isinstance(orders.abort(w.context(), "not today", 120.0), Done)


def failed(w: World) -> None:
    """In the freeze, by a record that somebody writes."""
    w.advance(until=Step.STOP_PRODUCERS)
    w.write()
    with pytest.raises(FenceBroken):
        w.advanced()


def rolled_back(w: World) -> None:
    """With producers on the target, which is empty."""
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.advanced(wanted="rollback")


def drained_back(w: World) -> None:
    """With records in the target."""
    w.advanced()
    w.write(TARGET, 1, 4)
    for group in ("ledger-g", "fraud-g"):
        w.drain(group, TARGET)
    assert w.asks(wanted="rollback").about["rollback"] == "drain_back"
    w.advanced(wanted="rollback")


ENDINGS = {
    aborted: "rolled back",
    failed: "producers resumed on the source",
    rolled_back: "rolled back",
    drained_back: "rolled back (drain_back)",
}


def configs(w: World, topic: str) -> dict[str, str | None] | None:
    info = w.cluster.topic(topic)
    return None if info is None else {e.name: e.value for e in info.configs.values() if e.set_here}


def commits(w: World) -> dict[tuple[str, int], int]:
    held = {g: w.cluster._groups[g].commits for g in ("ledger-g", "fraud-g")}
    return {(g, p): o for g, found in held.items() for (t, p), o in found.items() if t == SOURCE}


class Epochs:
    """Each act on producers gives their route a new epoch."""

    def __init__(self, w: World) -> None:
        self.now = 7
        observe, acts = w.apps.observe, {name: getattr(w.apps, name) for name in ("arm", "stop", "point", "start")}

        def observed(ctx: Any, participants: Any) -> Any:
            return [
                replace(s, instances=tuple(replace(i, epoch=self.now) for i in s.instances))
                for s in observe(ctx, participants)
            ]

        def counted(name: str) -> Any:
            def done(*args: Any) -> None:
                self.now += 1
                acts[name](*args)

            return done

        w.apps.observe = observed  # type: ignore[method-assign]
        for name in acts:
            setattr(w.apps, name, counted(name))


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_leaves_in_effect_what_was_there_before_and_says_so(ending: Any, cutover: str) -> None:
    w = World(cutover=cutover)
    w.cluster.alter_topic_configs(SOURCE, set_={"retention.bytes": "1000000", "retention.ms": "60000"})
    w.cluster.commit("fraud-g", SOURCE, {0: 9})
    epochs = Epochs(w)
    config, commit = configs(w, SOURCE), commits(w)
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    if w.state(Row.FREEZE) is None:
        assert configs(w, SOURCE) != config, "it is lengthened"
    w.drain("fraud-g")
    ending(w)
    assert w.where() == {(SOURCE, True)}
    assert w.acls() == w.before
    assert all(commits(w)[place] >= at for place, at in commit.items())
    said = restored(w)
    assert (said["how"], said["unknown"]) == (ENDINGS[ending], [])
    assert f"the ACLs of {SOURCE} are as they were" in said["equal"]
    assert f"no commit on {SOURCE} is lower than it was" in said["equal"]
    for name in ("checkout", "billing"):
        assert f"producer {name} is on {SOURCE} at epoch {epochs.now} of its route (was 7)" in said["equal"]
    assert epochs.now > 7
    told = w.events("restored")[-1]
    assert (told["how"], told["differs"], told["unknown"]) == (said["how"], said["differs"], [])
    if ending is failed:
        assert all("(kept so until the migration ends)" in line for line in said["differs"])
        w.advanced(wanted="rollback")
        said = restored(w)
    assert configs(w, SOURCE) == config and said["differs"] == []
    assert f"the configs of {SOURCE} are as they were" in said["equal"]
    assert w.data(Row.ROLLBACK)["not_restored"] == []
    assert not any(w.apps.armed.values())


def test_the_way_back_puts_back_what_it_lengthened_on_the_target() -> None:
    w = moved(World())
    w.cluster.alter_topic_configs(TARGET, set_={"retention.bytes": "1000000", "retention.ms": "60000"})
    w.cluster.commit("fraud-g", TARGET, {1: 3})
    before = configs(w, TARGET)
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun", "gate"}))
    assert configs(w, TARGET) != before
    w.drain("fraud-g", TARGET)
    w.advanced(wanted="rollback")
    assert configs(w, TARGET) == before and w.where() == {(SOURCE, True)}


@pytest.mark.parametrize("ending", [rolled_back, drained_back])
def test_a_route_that_has_forgotten_its_epochs_is_named(ending: Any) -> None:
    w = World()
    epochs = Epochs(w)
    w.advanced(until=Step.CREATE_TARGET)
    w.advanced(until=Step.STOP_PRODUCERS)
    epochs.now = -100
    ending(w)
    lines = w.data(Row.ROLLBACK)["not_restored"]
    assert f"producer checkout is at epoch {epochs.now} of its route (was 7), which is lower" in lines
    assert restored(w)["differs"] == lines


# ------------------------------------------------------------------------------------------------- the question


def test_a_rollback_is_for_the_type_that_was_shown() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    asking = w.asks(wanted="rollback")
    assert asking.ask is Ask.ROLLBACK
    assert asking.about == {"rollback": "free", "source": SOURCE, "target": TARGET, "after": None}
    w.answer(asking)
    w.write(TARGET)
    with pytest.raises(Refused, match="no way back"):
        w.advance(wanted="rollback")
    assert w.state(Row.ROLLBACK) is None


def test_a_no_leaves_everything_as_it_is() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.answer(w.asks(wanted="rollback"), "no")
    with pytest.raises(Refused, match="said no"):
        w.advance(wanted="rollback")
    assert w.state(Row.ROLLBACK) is None and w.where() == {(TARGET, True)}


def test_a_rollback_that_was_called_off_is_asked_about_anew() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    stop = w.apps.stop

    def last_words(ctx: Any, participants: Any) -> None:
        w.write(TARGET)
        stop(ctx, participants)

    w.apps.stop = last_words  # type: ignore[method-assign]
    w.answer(w.asks(wanted="rollback"))
    with pytest.raises(Refused):
        w.advance(wanted="rollback")
    called_off = w.journal.step(w.claim.migration_id, Row.ROLLBACK)
    assert called_off is not None and called_off.state == "undone"
    ctx = w.context()
    view = observe(ctx, ctx.refresh(), "rollback")
    assert about_of(Ask.ROLLBACK, "", view.record, view)["after"] == called_off.finished_at
    assert view.answer(Ask.ROLLBACK).said is None, "the yes was for the one before"
