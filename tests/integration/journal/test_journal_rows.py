"""What every journal promises of steps, the seat and events, held against the fake one and both databases alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from tests.integration.journal.claims import claim, verified

from topicshift.core.errors import OwnershipLost, Refused
from topicshift.testing.fake_journal import ManualClock

# ----------------------------------------------------------------------------------------------------- steps


def test_a_repeated_intent_returns_the_first(journal: Any) -> None:
    c = claim(journal)
    first = journal.intend(c, "create_target", {"id": "a"})
    assert (first.state, first.data, first.epoch, first.finished_at) == ("intended", {"id": "a"}, 1, None)
    assert journal.intend(c, "create_target", {"id": "b"}) == first
    done = journal.finish(c, "create_target", {"topic_id": "xyz"})
    assert done.data == {"id": "a", "topic_id": "xyz"}
    assert (done.state, done.started_at) == ("done", first.started_at)
    assert done.finished_at is not None
    assert journal.intend(c, "create_target", {"id": "c"}) == done
    assert journal.step(c.migration_id, "create_target") == done
    assert verified(journal, c.migration_id) == ["claimed", "step_intended", "step_finished"]


def test_an_undone_step_is_intended_anew(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "freeze", {"budget": 1})
    journal.finish(c, "freeze", {"why": "over"}, state="undone")
    again = journal.intend(c, "freeze", {"budget": 2})
    assert (again.state, again.data, again.finished_at) == ("intended", {"budget": 2}, None)


def test_a_step_that_is_being_taken_back_is_not_begun_again_before_that_has_ended(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "freeze", {"budget": 1})
    row = journal.finish(c, "freeze", {"why": "over"}, state="undoing")
    assert (row.state, row.data, row.finished_at) == ("undoing", {"budget": 1, "why": "over"}, None)
    with pytest.raises(Refused, match="being taken back"):
        journal.intend(c, "freeze", {"budget": 2})
    back = journal.finish(c, "freeze", {}, state="intended")
    assert (back.state, back.data, back.finished_at) == ("intended", {"budget": 1, "why": "over"}, None)
    assert journal.intend(c, "freeze", {"budget": 3}) == back
    journal.finish(c, "freeze", {}, state="undone")
    for state in ("undoing", "intended"):
        with pytest.raises(Refused, match=f"cannot become {state}"):
            journal.finish(c, "freeze", {}, state=state)
    journal.intend(c, "freeze", {"budget": 2})
    journal.finish(c, "freeze", {})
    with pytest.raises(Refused, match="cannot become intended"):
        journal.finish(c, "freeze", {}, state="intended")


def test_finishing_twice_is_once(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "drain", {})
    done = journal.finish(c, "drain", {"verdict": "drained"})
    assert journal.finish(c, "drain", {"verdict": "drained"}) == done
    assert verified(journal, c.migration_id).count("step_finished") == 1
    assert journal.finish(c, "drain", {"verdict": "not_drained"}).data == {"verdict": "not_drained"}


def test_an_act_without_an_intent_cannot_be_finished(journal: Any) -> None:
    c = claim(journal)
    with pytest.raises(Refused, match="never intended"):
        journal.finish(c, "create_target", {})
    assert journal.finish(c, "check", {"findings": 0}).state == "done"  # reading needs no intent


def test_steps_come_in_the_order_of_their_first_intent(journal: Any) -> None:
    c = claim(journal)
    for name in ("plan", "create_target", "drain", "a"):
        journal.intend(c, name, {})
    journal.finish(c, "create_target", {}, state="undone")
    journal.intend(c, "create_target", {})
    assert [s.step for s in journal.steps(c.migration_id)] == ["plan", "create_target", "drain", "a"]
    assert journal.current(c.migration_id).step == "create_target"


def test_long_names_of_groups_fit(journal: Any) -> None:
    c = claim(journal, source="s" * 249, target="t" * 249, owner="o" * 900)
    name = "switch_consumer:" + "g" * 900
    journal.intend(c, name, {})
    assert journal.step(c.migration_id, name) is not None
    assert len(c.migration_id) < 128


def test_states_that_do_not_exist_are_refused(journal: Any) -> None:
    c = claim(journal)
    with pytest.raises(ValueError, match="no state"):
        journal.set_state(c, "finished", active=False)
    with pytest.raises(ValueError, match="no state"):
        journal.finish(c, "plan", {}, state="ok")


def test_setting_what_is_set_writes_nothing(journal: Any) -> None:
    c = claim(journal)
    journal.set_plan(c, "abc")
    journal.set_plan(c, "abc")
    journal.set_state(c, "open", active=False)
    assert journal.current(c.migration_id).plan_hash == "abc"
    assert verified(journal, c.migration_id) == ["claimed", "plan"]


# ------------------------------------------------------------------------------------------------- the seat


@pytest.fixture
def timed(make_journal: Callable[..., Any]) -> tuple[Any, ManualClock]:
    """A journal of each kind, and its clock."""
    clock = ManualClock()
    return make_journal(clock), clock


def test_one_holder_acts_at_a_time(timed: tuple[Any, ManualClock]) -> None:
    journal, clock = timed
    c = claim(journal)
    assert journal.seat(c.migration_id) is None
    got = journal.take_seat(c, "deny", "", "task-1", lasts_s=30)
    assert got is not None
    mine, seat = got
    assert mine == c, "nobody was shut out"
    assert (seat.act, seat.subject, seat.holder, seat.attempt, seat.epoch) == ("deny", "", "task-1", 1, 1)
    assert (seat.began_at, seat.until) == ("2026-01-01T00:00:00.000000+00:00", "2026-01-01T00:00:30.000000+00:00")
    clock.advance(29.9)
    assert journal.take_seat(c, "deny", "", "task-2", lasts_s=30) is None
    assert journal.seat(c.migration_id) == seat
    journal.leave_seat(seat)
    assert journal.seat(c.migration_id) is None
    assert journal.take_seat(c, "certify", "ledger", "task-2", lasts_s=30) is not None
    assert verified(journal, c.migration_id) == ["claimed"], "a seat that is left in time leaves no trace"


def test_the_same_holder_gets_its_seat_again_for_any_act(timed: tuple[Any, ManualClock]) -> None:
    journal, clock = timed
    c = claim(journal)
    journal.take_seat(c, "deny", "", "task-1", lasts_s=30)
    clock.advance(100)
    _, again = journal.take_seat(c, "deny", "", "task-1", lasts_s=30)
    assert (again.attempt, again.epoch) == (2, 1)
    _, other = journal.take_seat(c, "record_fence", "", "task-1", lasts_s=30)
    assert (other.attempt, other.act) == (1, "record_fence")
    journal.leave_seat(again)
    assert journal.seat(c.migration_id) == other, "what is over takes nothing away"


def test_a_seat_whose_time_is_over_is_taken_over_and_shuts_the_late_holder_out(timed: tuple[Any, ManualClock]) -> None:
    journal, clock = timed
    late = claim(journal)
    journal.intend(late, "fence", {})
    _, old = journal.take_seat(late, "deny", "", "task-1", lasts_s=30)
    clock.advance(30)
    new, seat = journal.take_seat(late, "deny", "", "task-2", lasts_s=30)
    assert (new.epoch, new.owner, seat.epoch, seat.attempt, seat.holder) == (2, late.owner, 2, 2, "task-2")
    with pytest.raises(OwnershipLost):
        journal.finish(late, "fence", {})
    with pytest.raises(OwnershipLost):
        journal.take_seat(late, "deny", "", "task-1", lasts_s=30)
    journal.leave_seat(old)
    assert journal.seat(late.migration_id) == seat
    journal.finish(new, "fence", {})
    event = next(e for e in journal.events(late.migration_id) if e.kind == "seat_taken_over")
    assert (event.epoch, event.data["from_holder"], event.data["holder"]) == (2, "task-1", "task-2")
    assert verified(journal, late.migration_id)[-2:] == ["seat_taken_over", "step_finished"]


def test_each_migration_has_a_seat_of_its_own(timed: tuple[Any, ManualClock]) -> None:
    journal, _ = timed
    one, other = claim(journal), claim(journal, "run-2", "ledger", "ledger-v2")
    assert journal.take_seat(one, "deny", "", "task-1", lasts_s=30) is not None
    assert journal.take_seat(other, "deny", "", "task-2", lasts_s=30) is not None


def test_of_many_at_once_one_takes_the_seat(make_journal: Callable[..., Any]) -> None:
    journal = make_journal()
    c = claim(journal)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda n: journal.take_seat(c, "deny", "", f"task-{n}", lasts_s=60), range(8)))
    assert sum(g is not None for g in got) == 1


# ---------------------------------------------------------------------------------------------------- events


class Colour(Enum):
    RED = "red"


@dataclass
class Login:
    user: str
    password: str


def test_events_of_some_kinds_come_in_their_order(journal: Any) -> None:
    c = claim(journal)
    for kind in ("note", "notice", "note", "step_failed"):
        journal.event(c, kind, "me", {})
    everything = journal.events(c.migration_id)
    wanted = [e for e in everything if e.kind in ("note", "step_failed")]
    assert journal.events(c.migration_id, ("note", "step_failed")) == wanted and len(wanted) == 3
    assert journal.events(c.migration_id, ("other",)) == []


def test_data_comes_back_as_plain_json_with_secrets_masked(journal: Any) -> None:
    c = claim(journal, spec={"nested": {"sasl.password": "hunter2"}})
    data = {
        "offsets": {0: 5, 1: None},
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "budget": timedelta(seconds=90),
        "groups": ("a", "b"),
        "kinds": {"z", "y"},
        "colour": Colour.RED,
        "rate": float("nan"),
        "path": Path("a/b"),
        "login": Login("me", "hunter2"),
        "url": "postgresql://me:hunter2@db/airflow",
        "sasl.jaas.config": "hunter2",
        "text": "ü\u2028\x00",
    }
    event = journal.event(c, "note", "me", data)
    assert event == journal.events(c.migration_id)[-1]
    assert event.data == {
        "offsets": {"0": 5, "1": None},
        "at": "2026-01-02T00:00:00+00:00",
        "budget": 90.0,
        "groups": ["a", "b"],
        "kinds": ["y", "z"],
        "colour": "red",
        "rate": "nan",
        "path": "a/b",
        "login": {"user": "me", "password": "***"},
        "url": "postgresql://me:***@db/airflow",
        "sasl.jaas.config": "***",
        "text": "ü\u2028\x00",
    }
    assert "hunter2" not in repr(journal.events(c.migration_id)) + repr(journal.current(c.migration_id))
    step = journal.intend(c, "plan", {"login": Login("me", "hunter2")})
    assert step.data["login"]["password"] == "***"
    verified(journal, c.migration_id)


def test_what_is_no_json_is_refused_before_anything_is_written(journal: Any) -> None:
    c = claim(journal)
    with pytest.raises(TypeError, match="object"):
        journal.event(c, "note", "me", {"x": object()})
    assert verified(journal, c.migration_id) == ["claimed"]


def test_times_are_the_clocks(make_journal: Callable[..., Any]) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 2, 0, tzinfo=UTC))
    journal = make_journal(clock)
    c = claim(journal)
    clock.advance(1.5)
    event = journal.event(c, "note", "me", {})
    row = journal.current(c.migration_id)
    assert row.created_at == "2026-03-01T02:00:00.000000+00:00"
    assert event.at == row.updated_at == "2026-03-01T02:00:01.500000+00:00"


def test_finding_migrations(journal: Any) -> None:
    a = claim(journal)
    b = claim(journal, "run-2", "ledger", "ledger-v2")
    journal.intend(b, "create_target", {})
    assert [r.migration_id for r in journal.find()] == [a.migration_id, b.migration_id]
    assert [r.migration_id for r in journal.find(active=True)] == [b.migration_id]
    assert [r.migration_id for r in journal.find(active=False)] == [a.migration_id]
    assert [r.migration_id for r in journal.find(owner="run-2")] == [b.migration_id]
    assert journal.find(source="payments", owner="run-2") == []
