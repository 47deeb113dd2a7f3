"""What every journal promises of claims and owners, held against the fake one, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.integration.journal.claims import ENDED, RUNNING, UNTOLD, claim, verified

from topicshift.core.errors import NotFound, OwnershipLost, Refused, SpecError
from topicshift.ports import Claim

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
    with pytest.raises(Refused, match=r"run-1, which has ended.*create_target.*topicshift advance.*topic_control"):
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


def test_what_a_person_closed_is_not_opened_again_by_the_run_that_is_cleared(journal: Any) -> None:
    old = claim(journal)
    journal.intend(old, "create_target", {})
    journal.event(old, "closed", "user:ann", {"reason": "not this year"})
    journal.set_state(old, "failed", active=False)
    with pytest.raises(Refused, match=r"user:ann closed it at \d{4}-.*: not this year.*Trigger a new run"):
        claim(journal)
    assert journal.current(old.migration_id).state == "failed"
    claim(journal, "run-2")


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
