"""Going back after the switch: the protocol with source and target exchanged, on rows of the same migration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_acts_commands import MIXED
from tests.unit.world import SOURCE, TARGET, Killed, World

from topicshift.acts.later import later_migration
from topicshift.acts.replay_order import order_replay
from topicshift.acts.rollback import refuse_while_going_back
from topicshift.core.engine.words import Ask, Row, Step
from topicshift.core.errors import Refused
from topicshift.core.kafka.cluster import Acl
from topicshift_airflow.operators import end

ORDERS = pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
GROUPS = ("ledger-g", "fraud-g")


def moved(w: World, records: int = 4) -> World:
    """Everybody is on the target, which holds records that both groups have read."""
    w.advanced()
    w.write(TARGET, 1, records)
    for group in GROUPS:
        w.drain(group, TARGET)
    return w


def is_back(w: World) -> None:
    """Everybody is on the source, as it was before; the target keeps its records, shut for everybody."""
    assert w.journal.current(w.claim.migration_id).state == "rolled_back"
    assert not w.journal.current(w.claim.migration_id).active
    assert w.where() == {(SOURCE, True)}
    assert w.acls() == w.before
    assert {a.principal for a in w.acls(TARGET) if a.permission == "DENY"} >= {"User:*"}
    assert w.cluster.topic(TARGET) is not None
    for consumer in w.spec.consumers:
        group, apps = consumer.group, w.controllers[consumer.kind]
        assert apps.topic[consumer.name] == SOURCE and apps.running[consumer.name]
        assert {p: o for (t, p), o in w.cluster._groups[group].commits.items() if t == SOURCE} == {0: 10, 1: 10, 2: 10}
    for row in (Row.FENCE, Row.WIDE_DENY, Row.SWITCH_PRODUCERS, Row.CREATE_TARGET):
        assert w.state(row) == "undone"
    assert w.data(Row.ROLLBACK)["not_restored"] == []


@ORDERS
def test_everybody_goes_back_and_nothing_is_left_unread(cutover: str) -> None:
    w = moved(World(cutover=cutover))
    asking = w.asks(wanted="rollback")
    assert asking.ask is Ask.ROLLBACK and asking.about["rollback"] == "drain_back"
    assert "the target holds 4 record(s)" in asking.decision.why
    w.advanced(wanted="rollback")
    is_back(w)
    assert w.state(Row.ROLLBACK) == "done"
    (topic,) = w.data(Row.ROLLBACK)["left"][:1]
    assert topic.startswith(f"topic {TARGET} keeps 4 record(s)")
    assert {"back1-fence.json", "back1-before.json", "fence.json"} <= set(w.evidence.names(w.claim.migration_id))


def test_a_controller_is_told_the_source_that_the_applications_know() -> None:
    w = moved(World())
    assert w.context().control().first_source is None
    w.answer(w.asks(wanted="rollback"))
    ctx = w.context()
    w.advance(ctx, wanted="rollback", leave=frozenset({"producers_pointed"}))
    told = ctx.control()
    assert (told.source, told.target, told.first_source) == (TARGET, SOURCE, SOURCE)


@ORDERS
@pytest.mark.parametrize("before", ["producers_pointed", "groups_moved"])
def test_a_late_deny_of_the_way_forward_is_lifted_from_the_source(cutover: str, before: str) -> None:
    w = moved(World(cutover=cutover))
    shut = w.acls() - w.before
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({before}))
    assert w.state(Row.WIDE_DENY) == "undone" and not w.acls() & shut
    w.cluster.create_acls(sorted(shut))
    w.advanced(wanted="rollback")
    is_back(w)
    assert len(w.events("late_denies_lifted")) == 1


@ORDERS
def test_a_group_reads_what_is_left_in_the_target_before_it_goes_back(cutover: str) -> None:
    w = moved(World(cutover=cutover))
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    w.cluster.commit("fraud-g", TARGET, {1: 3})
    said = w.waits(wanted="rollback", patience_s=1)
    assert "fraud-g" in said
    assert w.apps.topic["fraud"] == TARGET
    w.drain("fraud-g", TARGET)
    w.advanced(wanted="rollback")
    is_back(w)


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 90), max_size=3))
def test_killed_anywhere_it_ends_the_same(cutover: str, at: list[int]) -> None:
    w = moved(World(cutover=cutover))
    w.answer(w.asks(wanted="rollback"))
    w.until_done(at, wanted="rollback")
    is_back(w)


def offsets_went(w: World, lower: int | None = None, groups: Sequence[str] = GROUPS) -> None:
    """They expired, or somebody set them back; and a group that is stopped has no members."""
    for group in groups:
        held = w.cluster._groups[group].commits
        for key in [k for k in held if k[0] == SOURCE]:
            if lower is None:
                del held[key]
            else:
                held[key] = lower
    stop = w.apps.stop

    def left(ctx: Any, participants: Any) -> None:
        stop(ctx, participants)
        for p in participants:
            if p.group is not None:
                w.leave(p.group)

    w.apps.stop = left  # type: ignore[method-assign]


@ORDERS
@pytest.mark.parametrize("lower", [None, 2])
def test_offsets_that_went_are_set_again_at_the_certificate_and_never_at_the_log_start(
    lower: int | None, cutover: str
) -> None:
    w = moved(World(cutover=cutover))
    offsets_went(w, lower)
    w.advanced(wanted="rollback")
    is_back(w)


@ORDERS
def test_killed_as_offsets_are_set_again_no_group_starts_without_them(cutover: str) -> None:
    w = moved(World(cutover=cutover))
    offsets_went(w, None)
    started, start, commit = [], w.apps.start, w.cluster.alter_commits

    def seen(ctx: Any, participants: Any) -> None:
        for p in participants:
            if p.group is not None and w.apps.topic.get(p.name) == SOURCE:
                started.append({o for (t, _), o in w.cluster._groups[p.group].commits.items() if t == SOURCE})
        start(ctx, participants)

    def killed(*_: Any) -> None:
        w.cluster.alter_commits = commit  # type: ignore[method-assign]
        raise Killed

    w.apps.start = seen  # type: ignore[method-assign]
    w.cluster.alter_commits = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        w.advanced(wanted="rollback")
    w.clock.advance(31)
    w.advanced(wanted="rollback")
    is_back(w)
    assert started and all(offsets == {10} for offsets in started), started


@ORDERS
@pytest.mark.parametrize("went", [False, True])
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 120), max_size=2))
def test_a_group_that_hooks_move_is_stopped_and_starts_on_the_source_with_its_offsets(
    cutover: str, went: bool, at: list[int]
) -> None:
    w = moved(World(**MIXED, cutover=cutover))
    if went:
        offsets_went(w, None)
    hooks = w.controllers["command"]
    hooks.acts.clear()
    w.answer(w.asks(wanted="rollback"))
    w.until_done(at, wanted="rollback")
    is_back(w)
    moves = [a for a in hooks.acts if "ledger" in a and "arm" not in a]
    assert moves[0] == "stop ledger" and {f"point {SOURCE} ledger", "start ledger"} <= set(moves)
    assert moves.index(f"point {SOURCE} ledger") > 0 and moves[-1] == "start ledger"


def test_no_way_back_where_the_source_was_written_to() -> None:
    w = moved(World())
    w.write(SOURCE)
    with pytest.raises(Refused, match=r"forward_only.*the source was written to"):
        w.advance(wanted="rollback")
    assert w.where() == {(TARGET, True)}


def test_no_way_back_before_every_group_reads_the_target() -> None:
    w = World()
    w.advanced(until=Step.SWITCH_PRODUCERS)
    w.write(TARGET)
    with pytest.raises(Refused, match=r"forward_only.*which ledger-g, fraud-g would never see"):
        w.advance(wanted="rollback")


@ORDERS
def test_a_freeze_that_outlasts_its_budget_leaves_everybody_on_the_target_and_the_source_shut(cutover: str) -> None:
    w = moved(World(cutover=cutover))
    acls = w.acls()
    w.answer(w.asks(wanted="rollback"))
    w.apps.deaf.add("billing")
    outcomes = []
    for _ in range(60):
        try:
            outcomes.append(w.advance(wanted="rollback", patience_s=5))
        except Exception as error:
            outcomes.append(error)
            break
        w.clock.advance(5)
    assert "called off" in str(outcomes[-1]) or "back on the source" in str(outcomes[-1]), outcomes[-1]
    w.apps.deaf.clear()
    w.tick()
    if w.state(Row.ROLLBACK) == "intended":
        with pytest.raises(Exception, match="called off"):
            w.advance(wanted="rollback")
    assert w.state(Row.ROLLBACK) == "undone"
    assert w.where() == {(TARGET, True)} and w.acls() == acls
    assert w.journal.current(w.claim.migration_id).state == "done"
    w.clock.advance(timedelta(minutes=1).total_seconds())
    w.advanced(wanted="rollback")
    is_back(w)
    assert w.data(Row.ROLLBACK)["way"] == 2


@pytest.mark.parametrize(("row", "topic"), [("fence", TARGET), ("target_deny", SOURCE)])
def test_a_late_deny_of_a_way_back_that_was_called_off_is_lifted_by_the_next(row: str, topic: str) -> None:
    """One that shuts the source again would stop producers there who have just come back."""
    w = moved(World())
    shut = Acl("TOPIC", topic, "LITERAL", "User:late", "*", "WRITE", "DENY")
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    claim = w.context().claim
    w.journal.intend(claim, f"back1.{row}", {"topic": topic, "acls_added": [asdict(shut)]})
    w.journal.finish(claim, f"back1.{row}", {}, state="undone")
    w.advanced(wanted="resume")
    w.cluster.create_acls([shut])
    w.clock.advance(1)
    w.advanced(wanted="rollback")
    assert w.data(Row.ROLLBACK)["way"] == 2
    is_back(w)
    noted = [
        note for note in w.journal.step(w.claim.migration_id, "back2.fence").data["notes"] if "late request" in note
    ]
    assert bool(noted) == (topic == TARGET) and len(w.events("late_denies_lifted")) == (topic == SOURCE)


def test_it_is_called_off_on_request_before_anybody_is_stopped() -> None:
    w = moved(World())
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    assert "no freeze" in w.advanced(wanted="resume").why
    assert w.state(Row.ROLLBACK) == "undone" and w.where() == {(TARGET, True)}


def test_nothing_is_replayed_into_a_target_that_everybody_leaves() -> None:
    w = moved(World(cutover="producers_first"))
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    assert w.record().mirrored
    with pytest.raises(Refused, match="is being rolled back"):
        order_replay(w.context(), None, "x")
    assert w.state(Row.REPLAY) is None


def test_a_retirement_does_not_take_a_migration_away_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    w = moved(World())
    refuse_while_going_back(w.journal, w.claim.migration_id)
    w.answer(w.asks(wanted="rollback"))
    w.advance(wanted="rollback", leave=frozenset({"freeze_begun"}))
    with pytest.raises(Refused, match="goes back to its source now"):
        refuse_while_going_back(w.journal, w.claim.migration_id)
    monkeypatch.setattr(end, "journal", lambda: nullcontext(w.journal))
    monkeypatch.setattr(end, "find_migration", lambda name: w.journal.current(name))
    find = end.FindDue(task_id="find_due")
    with pytest.raises(AirflowSkipException):
        find.execute({"params": {}})
    with pytest.raises(AirflowFailException, match="goes back to its source now"):
        find.execute({"params": {"migration": w.claim.migration_id}})
    task = end.RetireOperator(task_id="check", migration=w.claim.migration_id)
    with pytest.raises(Refused, match="goes back to its source now"):
        task.context_of({})
    w.advanced(wanted="rollback")
    is_back(w)


def test_words_for_people_name_the_topics_by_their_names() -> None:
    w = moved(World())
    w.answer(w.asks(wanted="rollback"))
    w.apps.deaf.add("billing")
    said = w.waits(wanted="rollback", patience_s=1)
    assert f"billing is running on {TARGET}" in said and "the source" not in said


def later(w: World, *steps: tuple[Row, str], state: str = "open", active: bool = True) -> str:
    """A later migration of the target, with these rows."""
    w.clock.advance(60)
    claim = w.journal.claim(
        cluster_id=w.cluster.cluster().cluster_id,
        source=TARGET,
        target="payments-v3",
        owner="topic_migration/later",
        spec={},
        owner_alive=lambda _: True,
    )
    for row, step_state in steps:
        w.journal.intend(claim, row.value, {})
        if step_state != "intended":
            w.journal.finish(claim, row.value, {}, state=step_state)
    if state != "open":
        w.journal.set_state(claim, state, active=active)
    return claim.migration_id


MOVED_ON = ((Row.FENCE, "done"), (Row.SWITCH_PRODUCERS, "done"), (Row.WIDE_DENY, "done"))
LATER = {
    "planned": ((), "open", False),
    "frozen": (((Row.FREEZE, "intended"),), "open", True),
    "done": (MOVED_ON, "done", False),
    "being retired": (MOVED_ON, "done", True),
    "retired": (MOVED_ON, "retired", False),
    "closed after its switch": (MOVED_ON, "failed", False),
}


@pytest.mark.parametrize("records", [0, 4])
@pytest.mark.parametrize("name", LATER)
def test_no_way_back_past_a_later_migration_which_is_named(name: str, records: int) -> None:
    steps, state, active = LATER[name]
    w = moved(World(), records)
    newer = later(w, *steps, state=state, active=active)
    before = w.acls(), w.acls(TARGET), w.where()
    with pytest.raises(Refused, match=rf"forward_only.*migration {newer} .*go back from that first"):
        w.advance(wanted="rollback")
    assert (w.acls(), w.acls(TARGET), w.where()) == before
    assert w.state(Row.ROLLBACK) is None and w.cluster.topic(TARGET) is not None


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        (((Row.FREEZE, "undone"), (Row.FENCE, "undone"), (Row.SWITCH_PRODUCERS, "undone")), "rolled_back"),
        (((Row.CREATE_TARGET, "undone"),), "failed"),
        ((), "failed"),
    ],
)
def test_a_later_migration_that_left_everything_as_it_was_is_not_in_the_way(
    steps: tuple[tuple[Row, str], ...], state: str
) -> None:
    w = moved(World())
    later(w, *steps, state=state, active=False)
    w.advanced(wanted="rollback")
    is_back(w)


def test_a_later_migration_of_other_topics_or_of_another_cluster_is_not_in_the_way() -> None:
    w = moved(World())
    w.clock.advance(60)
    for cluster, source in (("another", TARGET), (w.cluster.cluster().cluster_id, "refunds")):
        w.journal.claim(
            cluster_id=cluster, source=source, target=f"{source}-v9", owner="o", spec={}, owner_alive=lambda _: True
        )
    w.advanced(wanted="rollback")
    is_back(w)


def test_only_the_one_that_came_later_is_in_the_way() -> None:
    """The one that moved last goes back first, then the one before."""
    w = moved(World())
    newer = later(w, *MOVED_ON, state="done", active=False)
    assert later_migration(w.journal, w.journal.current(newer)) == ""
    assert newer in later_migration(w.journal, w.journal.current(w.claim.migration_id))
