"""What was there before anybody was stopped is captured, and compared with what is there at every ending."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts.close import close
from topicshift.acts.observe import observe
from topicshift.acts.questions import about_of
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import Refused
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
