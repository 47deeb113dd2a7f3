"""The source goes only when nothing speaks against it: looked at, denied for a while, looked at again, deleted once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.world import SOURCE, World, at_call

from topicshift.acts.fence import scream_acls
from topicshift.acts.retire import readers
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import NotFound, OwnershipLost, PreflightFailed, Refused, Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.proof.retirement import due_at
from topicshift.ports import Claim

DAY = 86_400
HOUR = timedelta(hours=1)


def done(*, authorizer: bool = True, **changes: Any) -> World:
    """A migration that is done, and whose source is due."""
    w = World(authorizer=authorizer, **changes)
    w.advanced()
    w.clock.advance(8 * DAY)
    return w


def screaming(w: World) -> datetime:
    """Go as far as the scream test; returns its end."""
    w.waits(wanted="retire", patience_s=1)
    return datetime.fromisoformat(w.data(Row.SCREAM_TEST)["until"])


def screams(w: World) -> bool:
    """Whether readers are denied (writers have been since the switch)."""
    return scream_acls(SOURCE)[0] in w.acls()


def state(w: World) -> tuple[str, bool]:
    row = w.journal.current(w.claim.migration_id)
    return row.state, row.active


def member(**more: Any) -> GroupMember:
    return GroupMember("m1", "app", "/10.0.0.1", **more)


def test_what_reaches_the_journal_after_the_end_is_refused() -> None:
    """A request whose sender gave up long ago changes nothing of a migration that is over, and takes no topic."""
    w = World()
    w.advanced(until=Step.SWITCH_CONSUMERS)
    old = Claim(w.claim.migration_id, w.journal.current(w.claim.migration_id).epoch, w.claim.owner)
    w.advanced()
    for late in (
        lambda: w.journal.intend(old, Row.LENGTHEN_RETENTION.value, {"set": {"retention.ms": "1"}}),
        lambda: w.journal.set_state(old, "open", active=True),
    ):
        with pytest.raises(OwnershipLost):
            late()
    assert state(w) == ("done", False)


# --------------------------------------------------------------------------------------------------------- when


def test_both_the_spec_and_the_topics_own_retention_must_have_passed() -> None:
    end = datetime(2026, 1, 1, tzinfo=UTC)
    assert due_at(end, HOUR, timedelta(days=2)) == end + timedelta(days=2)
    assert due_at(end, HOUR, timedelta(minutes=1)) == end + HOUR
    assert due_at(end, HOUR, None) == end + HOUR, "records that are kept for ever have no retention to wait for"


def test_nothing_but_time_is_a_wait_and_no_failure() -> None:
    w = World()
    w.advanced()
    w.clock.advance(3 * DAY)
    assert "It is kept until" in w.waits(wanted="retire")
    w.write()
    with pytest.raises(PreflightFailed, match="TS603"):
        w.advance(wanted="retire")


def test_a_migration_that_never_switched_has_nothing_to_retire() -> None:
    with pytest.raises(Refused, match="open, not done"):
        World().advance(wanted="retire")


# ----------------------------------------------------------------------------------------------------- who reads


def test_old_commits_alone_are_no_reading() -> None:
    w = done()
    assert readers(w.cluster, SOURCE, w.clock) == ([], [])


@pytest.mark.parametrize(
    "topics", [(SOURCE,), ("^pay.*",), ("^pay.*$",), ("^(payments|refunds)$",)], ids=["name", "^", "^$", "choice"]
)
def test_members_that_subscribe_by_name_or_by_a_pattern_read_it(topics: tuple[str, ...]) -> None:
    w = done()
    w.cluster.join("nightly", member(topics=topics))
    with pytest.raises(PreflightFailed, match=r"TS605.*nightly"):
        w.advance(wanted="retire")
    assert not screams(w)


@pytest.mark.parametrize("topics", [("payments-v2",), ("^payments-.*",), ("^refunds$",)])
def test_members_of_another_topic_do_not(topics: tuple[str, ...]) -> None:
    w = done()
    w.cluster.join("nightly", member(topics=topics))
    screaming(w)


def test_a_consumer_that_assigns_partitions_itself_shows_by_its_commits() -> None:
    w = done()
    looks = 0

    def meanwhile(method: str) -> None:
        nonlocal looks
        looks += method == "commits"
        if looks == 2:
            w.cluster.on_call = None
            w.cluster.commit("export", SOURCE, {1: 2})

    w.cluster.commit("export", SOURCE, {1: 1})
    w.cluster.on_call = meanwhile
    assert readers(w.cluster, SOURCE, w.clock) == (["export"], [])


def test_a_commit_inside_an_open_transaction_is_reading() -> None:
    w = done()
    w.cluster.commit("exactly-once", SOURCE, {0: 1})
    w.cluster.pending_commit("exactly-once", SOURCE, 0)
    assert readers(w.cluster, SOURCE, w.clock)[0] == ["exactly-once"]


def test_what_cannot_be_read_is_unknown_and_waited_for() -> None:
    w = done()
    w.cluster.unreadable(SOURCE, 1, "leader not available")
    assert "TS604" in w.waits(wanted="retire")
    w.cluster.unreadable(SOURCE, 1, None)
    w.cluster.fail("groups", Transient("no answer"))
    assert "no answer" in w.waits(wanted="retire")
    assert not screams(w)


# ------------------------------------------------------------------------------------------------- what it is now


def test_records_in_a_partition_that_came_after_the_fence_count_as_written() -> None:
    w = done()
    w.cluster.add_partitions(SOURCE, 4)
    w.cluster.produce(SOURCE, 3, 5)
    with pytest.raises(PreflightFailed, match=r"TS603.*payments\[3\] \+5"):
        w.advance(wanted="retire")


def test_another_topic_under_the_same_name_is_not_deleted() -> None:
    w = done()
    w.cluster.delete_topic(SOURCE)
    w.cluster.create_topic(SOURCE, 3, 1, {})
    with pytest.raises(PreflightFailed, match="TS602"):
        w.advance(wanted="retire")
    assert w.cluster.topic(SOURCE) is not None


def made_again(w: World) -> None:
    """Somebody deletes the source and makes it again."""
    w.cluster.delete_topic(SOURCE)
    w.cluster.create_topic(SOURCE, 1, 1, {})


def test_a_topic_that_is_swapped_between_look_and_act_is_not_deleted() -> None:
    w = done()
    w.clock.advance((screaming(w) - w.clock.now()).total_seconds())

    at_call(w, "topic", lambda: made_again(w), when=lambda: w.state(Row.DELETE_SOURCE) == "intended")
    with pytest.raises(Refused, match="another topic by now"):
        w.advance(wanted="retire")
    assert w.cluster.topic(SOURCE) is not None


def test_a_record_that_comes_between_the_decision_and_the_deletion_keeps_the_source() -> None:
    w = done()
    w.clock.advance((screaming(w) - w.clock.now()).total_seconds())

    at_call(w, "topic", w.write, when=lambda: w.state(Row.DELETE_SOURCE) == "intended")
    with pytest.raises(PreflightFailed, match=r"TS603.*payments\[0\] \+1"):
        w.advance(wanted="retire")
    assert w.cluster.topic(SOURCE) is not None


def test_a_topic_that_is_swapped_between_the_last_look_and_the_request_is_not_deleted() -> None:
    w = done()
    w.clock.advance((screaming(w) - w.clock.now()).total_seconds())

    at_call(w, "delete_topic", lambda: made_again(w))
    with pytest.raises(NotFound, match="with id"):
        w.advance(wanted="retire")
    with pytest.raises(PreflightFailed, match="TS602"):
        w.advance(wanted="retire")
    assert w.cluster.topic(SOURCE) is not None


# ------------------------------------------------------------------------------------------------ the scream test


def test_the_scream_test_denies_everybody_and_its_inverse_removes_exactly_that() -> None:
    w = done()
    before = w.acls()
    until = screaming(w)
    assert w.acls() == before | set(scream_acls(SOURCE))
    assert not w.cluster.may("User:ledger", "READ", SOURCE)
    assert state(w) == ("done", True)
    w.clock.advance(60)
    assert screaming(w) == until, "a repeated act keeps the end of the first"
    w.advanced(wanted="cancel_retirement")
    assert w.acls() == before
    assert state(w) == ("done", False), "the migration is what it was"
    w.clock.advance(3600)
    assert screaming(w) > until, "a second test has its own time"


def test_a_deny_that_is_sent_after_the_scream_test_is_over_is_taken_back() -> None:
    w = done()

    def sleeps() -> None:
        w.clock.advance(263)
        w.cluster.delete_topic(SOURCE)
        w.journal.take_over(w.claim.migration_id, "topic_retirement/hand")
        w.advanced(wanted="retire")
        assert state(w) == ("retired", False)

    at_call(w, "create_acls", sleeps)
    w.advance(wanted="retire", patience_s=0.0)
    assert not screams(w) and w.acls() == w.before
    assert any("was over before everybody was denied" in line for line in w.said)


def test_a_deny_that_somebody_else_set_stays() -> None:
    w = done()
    w.cluster.create_acls([scream_acls(SOURCE)[0]])
    before = w.acls()
    screaming(w)
    w.advanced(wanted="cancel_retirement")
    assert w.acls() == before


def test_without_an_authorizer_the_time_is_waited_for_all_the_same() -> None:
    w = done(authorizer=False)
    until = screaming(w)
    assert until > w.clock.now() and "create_acls" not in w.cluster.calls
    w.clock.advance(3600)
    w.advanced(wanted="retire")
    assert state(w) == ("retired", False)


def test_a_reader_that_screams_ends_the_test_and_keeps_the_source() -> None:
    w = done()
    before = w.acls()
    until = screaming(w)
    w.cluster.join("late", member(topics=("^pay.*",)), kind="consumer")
    with pytest.raises(PreflightFailed, match="late"):
        w.advance(wanted="retire")
    assert w.clock.now() < until
    assert w.acls() == before and w.cluster.topic(SOURCE) is not None
    assert state(w) == ("done", False)


# ----------------------------------------------------------------------------------------------------- the deletion


def test_nothing_is_denied_or_deleted_without_an_answer_for_this_very_topic() -> None:
    w = done(approvals={"plan": "auto", "freeze": "auto", "retire": "required"})
    asking = w.asks(wanted="retire")
    topic = w.cluster.topic(SOURCE)
    assert topic is not None and asking.about == {"topic": SOURCE, "topic_id": topic.topic_id}
    assert not screams(w)
    w.answer(asking, "no")
    with pytest.raises(Refused, match="said no"):
        w.advance(wanted="retire")
    assert w.cluster.topic(SOURCE) is not None


def test_the_source_is_deleted_once_and_nothing_of_ours_stays_behind() -> None:
    w = done()
    screaming(w)
    w.clock.advance(3600)
    w.advanced(wanted="retire")
    assert w.cluster.topic(SOURCE) is None and w.acls() == w.before
    assert state(w) == ("retired", False)
    w.cluster.create_topic(SOURCE, 1, 1, {})
    assert w.advanced(wanted="retire").why == "the source is retired"
    assert w.cluster.topic(SOURCE) is not None, "a later topic of that name is not touched"
    assert w.kinds().count("source_deleted") == 1


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_killed_anywhere_the_deletion_ends_the_same(kills: list[int]) -> None:
    w = done()
    screaming(w)
    w.clock.advance(3600)
    w.until_done(kills, wanted="retire")
    assert w.cluster.topic(SOURCE) is None and w.acls() == w.before
    assert state(w) == ("retired", False)
    assert "source_gone" not in w.kinds()


def test_a_source_that_somebody_else_deleted_closes_the_migration_once_and_says_so() -> None:
    w = done()
    screaming(w)
    w.cluster.delete_topic(SOURCE)
    w.advanced(wanted="retire")
    assert state(w) == ("retired", False) and w.acls() == w.before
    assert w.events("source_gone") == [{"source": SOURCE, "deleted_by": "somebody else"}]
    assert w.kinds().count("source_deleted") == 0
