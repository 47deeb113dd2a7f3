"""What every journal promises, held against the fake one, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from topicshift.core.errors import NotFound, OwnershipLost, Refused, SpecError
from topicshift.core.proof import audit
from topicshift.ports import Claim, Journal
from topicshift.testing.fake_journal import ManualClock

ENDED: Callable[[str], bool | None] = lambda _owner: False  # noqa: E731
RUNNING: Callable[[str], bool | None] = lambda _owner: True  # noqa: E731
UNTOLD: Callable[[str], bool | None] = lambda _owner: None  # noqa: E731


def claim(
    journal: Journal,
    owner: str = "run-1",
    source: str = "payments",
    target: str = "payments-v2",
    alive: Callable[[str], bool | None] = RUNNING,
    cluster: str = "cluster-1",
    spec: Mapping[str, Any] | None = None,
) -> Claim:
    return journal.claim(
        cluster_id=cluster,
        source=source,
        target=target,
        owner=owner,
        spec={"partitions": 30} if spec is None else spec,
        owner_alive=alive,
    )


def verified(journal: Any, migration_id: str) -> list[str]:
    """The kinds of the trail, once it has been found intact."""
    head, events = journal.trail(migration_id)
    assert audit.verify(events, head, migration_id=migration_id) == []
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    return [e.kind for e in events]


# ---------------------------------------------------------------------------------------------------- claims


def test_a_claim_opens_a_migration(journal: Any) -> None:
    c = claim(journal)
    row = journal.current(c.migration_id)
    assert (row.source, row.target, row.owner, row.epoch) == ("payments", "payments-v2", "run-1", 1)
    assert (row.state, row.active, row.step, row.plan_hash) == ("open", False, None, None)
    assert row.spec == {"partitions": 30}
    assert row.cluster_id == "cluster-1"
    assert datetime.fromisoformat(row.created_at).utcoffset() == timedelta(0)
    assert c.migration_id.startswith("payments-")
    assert verified(journal, c.migration_id) == ["claimed"]


def test_the_same_owner_gets_its_claim_back(journal: Any) -> None:
    first = claim(journal)
    assert claim(journal) == first
    journal.intend(first, "create_target", {})
    assert claim(journal, alive=UNTOLD) == first
    assert len(journal.find(source="payments")) == 1


def test_until_it_acts_a_repeated_claim_brings_the_spec_up_to_date_and_not_after(journal: Any) -> None:
    c = claim(journal, spec={"partitions": 30})
    claim(journal, spec={"partitions": 24})
    assert journal.current(c.migration_id).spec == {"partitions": 24}
    journal.intend(c, "create_target", {})
    claim(journal, spec={"partitions": 12})
    assert journal.current(c.migration_id).spec == {"partitions": 24}


@pytest.mark.parametrize("alive", [RUNNING, UNTOLD])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("payments", "payments-v2"),  # the same
        ("payments", "payments-v3"),  # its source
        ("ledger", "payments-v2"),  # its target
        ("payments-v2", "payments-v3"),  # its target as a source
        ("ledger", "payments"),  # its source as a target
        ("payments-v2", "payments"),  # crosswise
    ],
)
def test_a_topic_of_a_running_migration_is_refused_with_the_owners_name(
    journal: Any, source: str, target: str, alive: Callable[[str], bool | None]
) -> None:
    held = claim(journal)
    with pytest.raises(Refused, match="run-1") as caught:
        claim(journal, "run-2", source, target, alive)
    assert held.migration_id in str(caught.value)
    assert journal.find(owner="run-2") == []
    journal.event(held, "note", "run-1", {})  # the holder is not disturbed


def test_other_topics_and_other_clusters_are_free(journal: Any) -> None:
    claim(journal)
    claim(journal, "run-2", "ledger", "ledger-v2")
    claim(journal, "run-3", cluster="cluster-2")


def test_a_run_that_ended_before_it_acted_is_replaced_and_shut_out(journal: Any) -> None:
    old = claim(journal)
    new = claim(journal, "run-2", alive=ENDED)
    assert new.migration_id != old.migration_id
    with pytest.raises(OwnershipLost):
        journal.intend(old, "create_target", {})
    assert journal.current(old.migration_id).state == "failed"
    assert verified(journal, old.migration_id) == ["claimed", "replaced"]
    assert verified(journal, new.migration_id) == ["claimed"]


def test_a_run_that_ended_after_it_acted_is_never_replaced(journal: Any) -> None:
    old = claim(journal)
    journal.intend(old, "create_target", {})
    with pytest.raises(Refused, match=r"run-1, which has ended.*create_target.*topic_rollback"):
        claim(journal, "run-2", alive=ENDED)


@pytest.mark.parametrize("step", ["check", "certificate:ledger", "verification", "order_proof", "ask:approve.plan"])
def test_reading_steps_do_not_make_it_active(journal: Any, step: str) -> None:
    c = claim(journal)
    journal.intend(c, step, {})
    journal.finish(c, step, {})
    assert not journal.current(c.migration_id).active
    claim(journal, "run-2", alive=ENDED)


def test_a_step_the_rules_do_not_know_counts_as_acting(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "switch_consumer:ledger", {})
    assert journal.current(c.migration_id).active


@pytest.mark.parametrize("state", ["done", "failed", "rolled_back", "retired"])
def test_a_closed_migration_gives_its_topics_free(journal: Any, state: str) -> None:
    old = claim(journal)
    journal.intend(old, "create_target", {})
    journal.set_state(old, state, active=False)
    new = claim(journal, "run-2", "payments-v2", "payments-v3")
    assert new.epoch == 1
    journal.event(old, "note", "run-1", {})  # it may still say things
    with pytest.raises(Refused, match="run-2"):
        journal.intend(old, "stop_producers", {})  # but not act
    assert not journal.current(old.migration_id).active


def test_acting_on_a_finished_migration_locks_it_again_and_keeps_its_state(journal: Any) -> None:
    old = claim(journal)
    journal.set_state(old, "done", active=False)
    retirement = journal.take_over(old.migration_id, "retirement-1")
    journal.intend(retirement, "scream_test", {})
    row = journal.current(old.migration_id)
    assert (row.state, row.active) == ("done", True)
    with pytest.raises(Refused, match="retirement-1"):
        claim(journal, "run-2", "payments-v2", "payments-v3", ENDED)
    journal.finish(retirement, "scream_test", {}, state="undone")
    journal.set_state(retirement, "done", active=False)
    claim(journal, "run-2", "payments-v2", "payments-v3", ENDED)
    with pytest.raises(Refused, match="run-2"):
        journal.intend(retirement, "scream_test", {})


def test_an_intent_left_open_on_a_closed_migration_locks_it_again(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "rollback", {"n": 1})
    journal.set_state(c, "failed", active=False)
    assert journal.intend(c, "rollback", {"n": 2}).data == {"n": 1}
    row = journal.current(c.migration_id)
    assert (row.state, row.active) == ("failed", True)
    with pytest.raises(Refused):
        claim(journal, "run-2", alive=ENDED)


def test_failed_but_active_keeps_its_topics(journal: Any) -> None:
    c = claim(journal)
    journal.intend(c, "stop_producers", {})
    journal.set_state(c, "failed", active=True)
    with pytest.raises(Refused, match="run-1"):
        claim(journal, "run-2", alive=ENDED)
    assert claim(journal) == c
    row = journal.current(c.migration_id)
    assert (row.state, row.active) == ("open", True)


@pytest.mark.parametrize("state", ["failed", "rolled_back"])
def test_the_same_run_may_open_its_failed_migration_again(journal: Any, state: str) -> None:
    c = claim(journal)
    journal.set_state(c, state, active=False)
    assert claim(journal, spec={"partitions": 24}) == c
    row = journal.current(c.migration_id)
    assert (row.state, row.spec) == ("open", {"partitions": 24})
    with pytest.raises(Refused):
        claim(journal, "run-2")


def test_a_failed_migration_cannot_be_opened_again_over_a_new_one(journal: Any) -> None:
    c = claim(journal)
    journal.set_state(c, "failed", active=False)
    claim(journal, "run-2")
    with pytest.raises(Refused, match="run-2"):
        claim(journal)
    assert journal.current(c.migration_id).state == "failed"


@pytest.mark.parametrize("state", ["done", "retired"])
def test_a_finished_migration_is_returned_as_it_is(journal: Any, state: str) -> None:
    c = claim(journal)
    journal.set_state(c, state, active=False)
    assert claim(journal) == c
    assert journal.current(c.migration_id).state == state


def test_an_owner_replaces_its_own_earlier_target_before_it_acts(journal: Any) -> None:
    old = claim(journal)
    new = claim(journal, target="payments-v3")
    assert new.migration_id != old.migration_id
    journal.intend(new, "create_target", {})
    with pytest.raises(Refused):
        claim(journal, target="payments-v4")


def test_the_question_whether_a_run_lives_is_asked_about_the_holder(journal: Any) -> None:
    claim(journal)
    asked: list[str] = []
    claim(journal, "run-2", alive=lambda owner: bool(asked.append(owner)))
    assert asked == ["run-1"]


@pytest.mark.parametrize(("source", "target", "owner"), [("a", "a", "run-1"), ("a", "b", "")])
def test_senseless_claims_are_refused(journal: Any, source: str, target: str, owner: str) -> None:
    with pytest.raises(SpecError):
        claim(journal, owner, source, target)


# ------------------------------------------------------------------------------------------------- take over


def test_a_new_owner_shuts_the_old_one_out_of_every_write(journal: Any) -> None:
    old = claim(journal)
    journal.intend(old, "create_target", {})
    new = journal.take_over(old.migration_id, "rollback-1")
    assert (new.migration_id, new.epoch, new.owner) == (old.migration_id, 2, "rollback-1")
    before = journal.trail(old.migration_id)
    writes: list[Callable[[], object]] = [
        lambda: journal.intend(old, "stop_producers", {}),
        lambda: journal.intend(old, "create_target", {}),  # even one that would change nothing
        lambda: journal.finish(old, "create_target", {}),
        lambda: journal.event(old, "note", "run-1", {}),
        lambda: journal.set_state(old, "done", active=False),
        lambda: journal.set_plan(old, "abc"),
    ]
    for write in writes:
        with pytest.raises(OwnershipLost, match="rollback-1"):
            write()
    assert journal.trail(old.migration_id) == before
    journal.finish(new, "create_target", {})
    assert journal.step(old.migration_id, "create_target").epoch == 2


def test_taking_over_twice_is_once(journal: Any) -> None:
    c = claim(journal)
    assert journal.take_over(c.migration_id, "r") == journal.take_over(c.migration_id, "r")
    assert verified(journal, c.migration_id) == ["claimed", "taken_over"]


def test_an_owner_that_takes_over_again_has_a_new_epoch(journal: Any) -> None:
    first = claim(journal)
    journal.take_over(first.migration_id, "rollback-1")
    again = journal.take_over(first.migration_id, "run-1")
    assert again.epoch == 3
    with pytest.raises(OwnershipLost):
        journal.event(first, "note", "run-1", {})
    journal.event(again, "note", "run-1", {})


def test_a_run_shuts_out_what_it_had_under_way(journal: Any) -> None:
    before = claim(journal)
    journal.intend(before, "freeze", {})
    after = journal.renew(before, "producers are to be given back")
    assert after == Claim(before.migration_id, before.epoch + 1, before.owner)
    for write in (
        lambda: journal.intend(before, "switch_producers", {}),
        lambda: journal.finish(before, "freeze", {}),
        lambda: journal.renew(before, "again"),
    ):
        with pytest.raises(OwnershipLost, match="began under epoch 1"):
            write()
    assert claim(journal) == after, "the run itself goes on with the newest epoch"
    journal.finish(after, "freeze", {}, state="undoing")
    assert verified(journal, before.migration_id)[-2:] == ["renewed", "step_finished"]


def test_a_claim_from_the_future_is_not_believed(journal: Any) -> None:
    c = claim(journal)
    with pytest.raises(OwnershipLost, match="backup"):
        journal.event(Claim(c.migration_id, 7, "run-1"), "note", "run-1", {})


def test_unknown_migrations_are_not_found(journal: Any) -> None:
    nobody = Claim("nothing", 1, "run-1")
    reads: list[Callable[[], object]] = [
        lambda: journal.current("nothing"),
        lambda: journal.events("nothing"),
        lambda: journal.take_over("nothing", "run-1"),
        lambda: journal.event(nobody, "note", "run-1", {}),
        lambda: journal.intend(nobody, "plan", {}),
    ]
    for read in reads:
        with pytest.raises(NotFound, match="nothing"):
            read()
    assert journal.steps("nothing") == []
    assert journal.step("nothing", "plan") is None


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
