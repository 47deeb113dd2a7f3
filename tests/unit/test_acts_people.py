"""What people do: they answer, stop and start what no controller moves, and have hanging transactions aborted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.world import SOURCE, TARGET, World

from topicshift.acts import advance as advancing
from topicshift.acts.advance import Asking, Done, Waiting
from topicshift.acts.questions import record_question
from topicshift.core.drain.evidence import ReaderEvidence
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import AmbiguousState, DrainTimedOut, Refused
from topicshift.core.route.judge import Follower
from topicshift.testing.fakes import FakeTransaction

BY_HAND = {
    "producers": [{"name": "legacy", "kind": "manual"}, {"name": "checkout", "principal": "User:checkout"}],
    "consumers": [{"name": "ledger", "group": "ledger-g", "kind": "manual"}],
}
ASKED = {"approvals": {"plan": "auto", "freeze": "auto", "certificate": "required", "retire": "auto"}}


def moves(w: World, name: str, topic: str | None) -> None:
    """A person stops an application (None), or starts it on a topic."""
    apps = w.controllers["manual"]
    apps.running[name] = topic is not None
    if topic is not None:
        apps.topic[name] = topic
    if name == "ledger" and topic is None:
        w.leave("ledger-g")
    elif name == "ledger" and topic is not None:
        w.join("ledger-g", topic)


def test_a_question_is_recorded_also_where_another_took_a_dead_ones_seat_over_during_the_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w, look = World(**BY_HAND), advancing.observe
    assert w.asks().ask is Ask.STOP_BY_HAND
    ctx = w.context()

    def slow_look(*words: Any) -> Any:
        seen = look(*words)
        w.journal.take_seat(ctx.claim, "arm", "", "dead", lasts_s=30)
        w.clock.advance(31)
        taken = w.journal.take_seat(ctx.claim, "arm", "", "elsewhere", lasts_s=30)
        assert taken is not None
        w.journal.leave_seat(taken[1])
        monkeypatch.setattr(advancing, "observe", look)
        return seen

    monkeypatch.setattr(advancing, "observe", slow_look)
    asking = w.advance(ctx)
    assert isinstance(asking, Asking)
    record_question(ctx, asking.ask, asking.subject, asking.about, asking.decision.why)
    assert w.events("asked")[-1]["act"] == Ask.STOP_BY_HAND


def test_what_a_person_moves_is_asked_for_and_seen_before_anything_goes_on() -> None:
    w = World(**BY_HAND)
    asking = w.asks()
    assert (asking.ask, asking.about["stop"]) == (Ask.STOP_BY_HAND, ["legacy"])
    assert w.state(Row.FREEZE) is None, "the freeze's clock does not run while a person walks to a machine"
    moves(w, "legacy", None)
    w.answer(asking)
    asking = w.asks()
    assert (asking.ask, asking.about["start"]) == (Ask.START_BY_HAND, ["legacy"])
    assert (w.state(Row.FREEZE), w.state(Row.SWITCH_PRODUCERS)) == ("intended", "intended")
    moves(w, "legacy", TARGET)
    w.answer(asking)
    asking = w.asks()
    assert (asking.ask, asking.subject) == (Ask.STOP_GROUP, "ledger-g")
    w.answer(asking)
    assert "still has 1 member(s)" in w.waits(patience_s=1)
    moves(w, "ledger", None)
    assert "a person has to start it on the target" in w.waits(patience_s=1)
    assert set(w.cluster.commits(["ledger-g"], TARGET, range(6))["ledger-g"].offsets.values()) == {0}
    moves(w, "ledger", TARGET)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"
    assert w.events("group_switched")[0]["seeded"] == {str(p): 0 for p in range(6)}


def test_a_person_who_starts_producers_on_the_target_has_time_and_no_timer_takes_it_back() -> None:
    """The intent to point is the switch: after it whoever asks to resume is told that it cannot be known, and waits."""
    w = World(**BY_HAND)
    moves(w, "legacy", None)
    w.answer(w.asks())
    asking = w.asks()
    assert asking.ask is Ask.START_BY_HAND
    w.show(asking)
    for hours in (0, 2):
        w.clock.advance(hours * 3600 + 70)
        w.write(TARGET)
        with pytest.raises(AmbiguousState, match="not certain that nobody is on payments-v2"):
            w.advance(wanted="resume")
        assert w.state(Row.FREEZE) == "intended" and w.state(Row.FENCE) == "done"
    moves(w, "legacy", TARGET)
    w.answer_late(asking)
    assert w.asks().ask is Ask.STOP_GROUP, "their word counts, and it goes on"
    assert "producers_resumed" not in w.kinds()


def test_producers_that_a_person_stopped_wait_for_no_gate() -> None:
    """They stand still under no clock, so the freeze begins, though a group fell behind meanwhile."""
    world = World(**BY_HAND)
    asking = world.asks(until=Step.STOP_PRODUCERS)
    world.write(records=50)
    assert world.state(Row.FREEZE) is None
    moves(world, "legacy", None)
    world.answer(asking)
    world.advance(until=Step.STOP_PRODUCERS)
    assert world.state(Row.FREEZE) == "intended"


def test_a_group_is_seeded_at_the_log_start_and_keeps_what_it_has() -> None:
    w = World(**BY_HAND | {"producers": [{"name": "checkout", "principal": "User:checkout"}]})
    asking = w.asks()
    assert asking.ask is Ask.STOP_GROUP
    w.cluster.produce(TARGET, 0, records=5)
    w.cluster.delete_records(TARGET, 0, 2)
    w.cluster.commit("ledger-g", TARGET, {1: 0})
    moves(w, "ledger", None)
    w.answer(asking)
    w.waits(patience_s=1)
    assert w.data(Row.SWITCH_GROUP, "ledger-g")["seeded"] == {"0": 2, "2": 0, "3": 0, "4": 0, "5": 0}


def test_commits_that_were_reset_while_a_person_starts_the_group_are_seeded_again() -> None:
    w = World(**BY_HAND | {"producers": [{"name": "checkout", "principal": "User:checkout"}]})
    moves(w, "ledger", None)
    w.answer(w.asks())
    w.waits(patience_s=1)
    del w.cluster._groups["ledger-g"].commits[TARGET, 3]
    w.waits(patience_s=1)
    assert w.cluster.commits(["ledger-g"], TARGET, [3])["ledger-g"].offsets == {3: 0}


def test_an_application_that_joins_the_route_after_the_plan_keeps_the_gate_shut_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its producers would be paused with the others, and nobody would wait for them."""
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    late = Follower(SOURCE, "producer", "nightly", None, "User:nightly", ("nightly.host.7",))
    monkeypatch.setattr(w.apps, "followers", lambda ctx: [late])
    why = w.waits(patience_s=2)
    assert "producer nightly: it follows the route of this topic (nightly.host.7), and the spec does not declare" in why
    assert w.state(Row.FREEZE) is None and w.where() == {(SOURCE, True)}
    monkeypatch.setattr(w.apps, "followers", lambda ctx: [])
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


def test_a_reader_whose_evidence_cannot_be_read_keeps_the_gate_shut_by_name() -> None:
    """It is read before anybody is stopped, and not in the freeze for the first time."""
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    said: dict[str, Any] = {"reader": "enrich", "kind": "spark_checkpoint", "topic": SOURCE}
    lost, good = said | {"error": "no such folder"}, said | {"offsets": dict.fromkeys(range(3), 10)}

    def advance(found: dict[str, Any]) -> Any:
        ctx = w.context()
        ctx.ports.reader_evidence = lambda spec, consumer: lambda: [ReaderEvidence.model_validate(found)]
        return w.advance(ctx, until=Step.STOP_PRODUCERS, patience_s=2)

    outcome = advance(lost)
    assert (
        isinstance(outcome, Waiting) and "group enrich: cannot be told (partition 0: evidence_missing)" in outcome.why
    )
    assert w.state(Row.FREEZE) is None and w.where() == {(SOURCE, True)}
    assert isinstance(advance(good), Done) and w.state(Row.FENCE) == "done"


ONE_GROUP = {"cutover": "producers_first", "consumers": [{"name": "ledger", "group": "ledger-g", "kind": "manual"}]}


@pytest.mark.parametrize("how", ["commits", "group"])
def test_a_group_that_was_verified_stays_so_when_the_brokers_forget_its_commits(how: str) -> None:
    """Kafka keeps the commits of a group that stands still for offsets.retention.minutes, and people take days."""
    w = World(**ONE_GROUP)
    asking = w.asks()
    assert (asking.ask, w.state(Row.VERIFICATION, "ledger-g")) == (Ask.STOP_GROUP, "done")
    moves(w, "ledger", None)
    groups = w.cluster._groups
    groups.pop("ledger-g") if how == "group" else groups["ledger-g"].commits.clear()
    w.clock.advance(8 * 86_400)
    asking = w.asks()
    assert asking.ask is Ask.STOP_GROUP, "it is not taken for a group that has never read the source"
    w.answer(asking)
    assert "a person has to start it on the target" in w.waits(patience_s=1)
    assert set(w.cluster.commits(["ledger-g"], TARGET, range(6))["ledger-g"].offsets.values()) == {0}
    moves(w, "ledger", TARGET)
    w.advanced()
    assert w.journal.current(w.claim.migration_id).state == "done"


@pytest.mark.parametrize("taken", [timedelta(days=-10), timedelta(seconds=-61), timedelta(hours=2)])
def test_a_certificate_is_taken_anew_where_it_is_old_or_of_the_future(taken: timedelta) -> None:
    w = World(**ONE_GROUP)
    asking = w.asks()
    moves(w, "ledger", None)
    w.answer(asking)
    told = {"taken_at": (w.clock.now() + taken).isoformat()}
    w.journal.finish(w.context().claim, f"{Row.CERTIFICATE}:ledger-g", told)
    w.waits(patience_s=1)
    assert w.kinds().count("drained") == 2
    released = datetime.fromisoformat(w.data(Row.SWITCH_GROUP, "ledger-g")["at"])
    age = released - datetime.fromisoformat(w.data(Row.CERTIFICATE, "ledger-g")["taken_at"])
    assert timedelta(0) <= age <= timedelta(seconds=60)


def test_a_group_that_was_reset_or_never_read_is_not_taken_for_one_that_has_drained() -> None:
    w = World(**ONE_GROUP)
    asking = w.asks()
    w.cluster.commit("ledger-g", SOURCE, {0: 4})
    w.answer(asking)
    moves(w, "ledger", None)
    assert "has not drained the source: ledger-g" in w.waits(patience_s=1), "somebody wants it to read again"
    w = World(**ONE_GROUP)
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.cluster._groups["ledger-g"].commits.clear()
    moves(w, "ledger", None)
    assert "has not drained the source: ledger-g" in w.waits(patience_s=1)


def test_a_resume_names_whom_a_person_has_to_start() -> None:
    w = World(**BY_HAND)
    asking = w.asks()
    moves(w, "legacy", None)
    w.answer(asking)
    w.cluster.commit("ledger-g", SOURCE, {0: 9})
    w.waits(patience_s=2)
    w.advanced(wanted="resume")
    assert w.events("producers_resumed")[0]["start_by_hand"] == ["legacy"]
    assert any("START BY HAND on payments: legacy" in line for line in w.said)
    second = w.asks()
    assert second.about != asking.about, "a stop that was confirmed for an earlier freeze counts for that one alone"


def test_a_rollback_names_the_groups_that_a_person_has_to_start_again() -> None:
    consumers = [{"name": n, "group": f"{n}-g", "kind": k} for n, k in (("ledger", "manual"), ("search", "route"))]
    w = World(consumers=consumers)
    moves(w, "ledger", None)
    w.answer(w.asks())
    w.advance(patience_s=1)
    w.advanced(wanted="rollback")
    assert w.data(Row.ROLLBACK)["start_by_hand"] == ["ledger (group ledger-g)"]
    assert w.apps.topic["search"] == SOURCE


# ---------------------------------------------------------------------------------------------------- the cut-over


@pytest.mark.parametrize(("said", "error"), [("no", Refused), ("silence", DrainTimedOut)])
def test_without_a_yes_to_the_cut_over_producers_resume_on_the_source(said: str, error: Any) -> None:
    w = World(**ASKED)
    asking = w.asks()
    assert (asking.ask, w.where()) == (Ask.CERTIFICATE, {(SOURCE, False)})
    w.answer(asking, said)
    with pytest.raises(error, match="producers are back on the source"):
        w.advance()
    assert w.where() == {(SOURCE, True)} and w.acls() == w.before


def test_a_yes_to_one_cut_over_is_none_to_the_next() -> None:
    w = World(**ASKED)
    first = w.asks()
    w.show(first)
    w.advanced(wanted="resume")
    w.write(partition=1)
    w.drain("ledger-g")
    w.drain("fraud-g")
    second = w.asks()
    assert second.about != first.about
    w.show(second)
    with pytest.raises(Refused, match="counts for nothing"):
        w.answer_late(first)
    assert w.state(Row.SWITCH_PRODUCERS) in (None, "undone")
    w.answer(second)
    w.advanced(until=Step.SWITCH_PRODUCERS)


def test_a_late_yes_about_something_done_by_hand_says_to_put_it_back() -> None:
    """A group that was stopped for a question of long ago is started by nobody else."""
    w = World(**ONE_GROUP)
    asking = w.asks()
    moves(w, "ledger", None)
    w.answer(asking)
    with pytest.raises(Refused, match="by hand for this answer alone, put it back as it was"):
        w.answer_late(asking)
    with pytest.raises(Refused) as told:
        w.answer_late(asking, "no")
    assert "by hand" not in str(told.value)


def test_an_approval_that_the_spec_gives_is_in_the_audit_trail() -> None:
    w = World()
    w.advanced()
    assert {e["act"] for e in w.events("approved")} == {Ask.PLAN, Ask.FREEZE, Ask.CERTIFICATE}
    assert {e["how"] for e in w.events("approved")} == {"auto"}


# ------------------------------------------------------------------------------------------------ the transactions


def hanging(w: World) -> FakeTransaction:
    """A transaction that no coordinator will end."""
    w.advanced(until=Step.CREATE_TARGET)
    transaction = w.cluster.begin("tx-1")
    transaction.produce(SOURCE, 0, 2)
    w.cluster.forget_transaction(transaction)
    w.clock.advance(2000)
    return transaction


def test_a_hanging_transaction_is_aborted_on_a_persons_word_alone() -> None:
    w = World()
    hanging(w)
    asking = w.asks()
    assert asking.ask is Ask.ABORT_TRANSACTIONS and len(asking.about["abort"]) == 1
    assert "abort_transaction" not in w.cluster.calls and w.state(Row.FREEZE) is None
    w.answer(asking)
    w.drain("ledger-g")
    w.drain("fraud-g")
    w.advance(until=Step.STOP_PRODUCERS, patience_s=1)
    assert w.cluster.calls.count("abort_transaction") == 1
    actors = [(e.kind, e.actor) for e in w.journal.events(w.claim.migration_id) if "transaction" in e.kind]
    assert actors == [("transaction_abort_begun", "user:ada"), ("transaction_aborted", "user:ada")]


def test_without_a_yes_nothing_is_aborted_and_nobody_is_stopped() -> None:
    w = World()
    hanging(w)
    w.answer(w.asks(), "no")
    with pytest.raises(Refused, match="hang on the source"):
        w.advance()
    assert "abort_transaction" not in w.cluster.calls
    assert w.where() == {(SOURCE, True)}


def test_a_transaction_to_which_a_record_was_added_is_asked_about_again() -> None:
    w = World()
    transaction = hanging(w)
    w.answer(w.asks())
    transaction.produce(SOURCE, 0, 1)
    w.cluster.forget_transaction(transaction)
    w.clock.advance(2000)
    assert w.asks().ask is Ask.ABORT_TRANSACTIONS
    assert "abort_transaction" not in w.cluster.calls
