"""`close` from every state that the model check reaches: it ends it, gives both topics free, and names what is left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.test_engine_model import Model, World, explore
from tests.unit.world import OWNER, SOURCE, TARGET
from tests.unit.world import World as Product

from topicshift.acts.advance import Done
from topicshift.acts.close import close
from topicshift.core.engine.words import READ_ONLY_ROWS, Act, Row, Step, StepState
from topicshift.core.errors import Refused, Transient
from topicshift.core.kafka.cluster import PartitionOffsets
from topicshift.core.spec.model import Cutover
from topicshift.ports import Claim

ROW = {"topic": SOURCE, "acls_added": [], "at": "x", "set": {"retention.ms": "1"}, "before": {"retention.ms": None}}
CAPTURED = {"partitions": 3, "configs": {}, "acls": [], "topic_id": "x"}
DENY = {"resource_type": "TOPIC", "pattern": "LITERAL", "host": "*", "operation": "WRITE", "permission": "DENY"}
SAID = {
    Row.FREEZE: "a freeze runs",
    Row.FENCE: "DENY bindings",
    Row.WIDE_DENY: "DENY bindings",
    Row.TARGET_DENY: "DENY bindings",
    Row.SWITCH_PRODUCERS: "the route points applications to",
    Row.FENCE_AGAIN: "after its fence (strays.json)",
    Row.SWITCH_GROUP: "was released to",
    Row.LENGTHEN_RETENTION: "the retention of payments was lengthened",
}
"""What each row that is in effect leaves to a person, in words."""
MOVED = {Row.SWITCH_PRODUCERS, Row.SWITCH_GROUP}
"""Rows that say where applications are."""
NOTHING = {Row.SCREAM_TEST, Row.ARM, Row.STOP_PRODUCERS, Row.CREATE_TARGET, Row.ROLLBACK, Row.DELETE_SOURCE}
"""Rows that leave nothing of their own: disarmed by close, or told by another row."""


def journals(cutover: Cutover) -> list[World]:
    """One world for each journal that the model check reaches with two groups, and with one group in two freezes."""
    models = (Model(cutover, ("g", "h"), kills=1, freezes=1), Model(cutover, ("g",), kills=1, freezes=2))
    return list({(w.journal, w.over): w for model in models for w in explore(model)}.values())


@pytest.mark.parametrize("cutover", list(Cutover))
def test_close_ends_every_state(cutover: Cutover) -> None:
    found = journals(cutover)
    assert len(found) > 200
    consumers = [{"name": name, "group": name} for name in ("g", "h")]
    for world in found:
        product = Product(consumers=consumers, cutover=cutover.value)
        claim = product.claim
        for name, state in world.journal:
            data: dict[str, object] = {**ROW, **(CAPTURED if name == Row.BEFORE else {})}
            if name == Row.FREEZE:
                data |= {"started_at": "2026-01-01T00:00:00+00:00", "act_until": "2026-01-01T00:01:54+00:00"}
                data |= {"lease_until": "2026-01-01T00:02:00+00:00"}
            if name.endswith(("fence", "deny")):
                data["acls_added"] = [{**DENY, "name": SOURCE, "principal": "User:x"}]
            put(product, name, state, data)
        if world.over:
            product.journal.set_state(claim, "done", active=False)
            with pytest.raises(Refused, match="has ended already"):
                close(product.context(), "x")
            continue
        record = product.record()
        if record.freeze is not None:
            with pytest.raises(Refused, match="resume-on-source"):
                close(product.context(), "x")
        said = close(product.context(), "x", even_frozen=True)
        for name, step in record.steps.items():
            row = Row(name.partition(":")[0])
            running = row is not Row.FREEZE or record.freeze is not None
            if step.state.in_effect and row not in READ_ONLY_ROWS | NOTHING and running:
                words = SAID[row]
                if row in MOVED and record.at(Row.ROLLBACK) is StepState.INTENDED:
                    words = "a rollback was under way"
                if row is Row.LENGTHEN_RETENTION and record.freeze is None:
                    assert product.state(row) == "undone", "it was put back"
                else:
                    assert any(words in line for line in said["left"]), (name, said)
        row_ = product.journal.current(claim.migration_id)
        assert (row_.state, row_.active) == ("failed", False)
        assert product.open("topic_migration/another").migration_id != claim.migration_id, "both topics are free"
        with pytest.raises(Refused, match="has ended already"):
            close(product.context(owner=OWNER), "again")


def put(product: Product, name: str, state: StepState, data: dict[str, object]) -> None:
    """Bring a row into a state as the journal allows it."""
    journal = product.journal
    row = journal.current(product.claim.migration_id)
    claim = Claim(row.migration_id, row.epoch, row.owner)
    journal.intend(claim, name, data)
    if state is StepState.DONE or (state is StepState.UNDOING and not name.startswith("freeze")):
        journal.finish(claim, name, {}, state="done")
    if state is not StepState.INTENDED and state is not StepState.DONE:
        journal.finish(claim, name, {}, state=state.value)


def test_a_retirement_that_is_closed_names_its_deny_and_the_migration_stays_done() -> None:
    product = Product()
    product.advanced()
    put(product, Row.SCREAM_TEST, StepState.INTENDED, {"acls": ["WRITE"], "denied": True})
    assert product.record().active
    said = close(product.context(), "x")
    assert any("WRITE on payments for User:*" in line for line in said["left"])
    assert (said["state"], product.record().over) == ("done", True)


def moved(cutover: Cutover) -> Product:
    """Everybody is on the target, whose records every group has read, and a rollback was accepted."""
    product = Product(cutover=cutover.value)
    product.advanced()
    product.write(TARGET, 1, 4)
    for consumer in product.spec.consumers:
        product.drain(consumer.group, TARGET)
    product.answer(product.asks(wanted="rollback"))
    return product


def acts_of_a_way_back(cutover: Cutover) -> set[Act]:
    """Every act that a whole way back performs once it was begun."""
    product, seen = moved(cutover), set[Act]()
    take = product.journal.take_seat

    def spied(claim: Claim, act: str, *args: Any, **kwargs: Any) -> Any:
        seen.add(Act(act))
        return take(claim, act, *args, **kwargs)

    product.journal.take_seat = spied  # type: ignore[method-assign]
    product.advanced(wanted="rollback")
    return seen - {Act.BEGIN_ROLLBACK}


def going_back(cutover: Cutover, leave: Act) -> Product:
    """A migration on its way back that stands before this act."""
    product = moved(cutover)
    outcome = product.advance(wanted="rollback", leave=frozenset({leave.value}), patience_s=60)
    assert isinstance(outcome, Done) and outcome.decision.act is leave and product.record().mirrored
    return product


ON_THE_WAY_BACK = {Act.ARM, Act.BEGIN_FREEZE, Act.STOP_PRODUCERS, Act.DENY, Act.RECORD_FENCE, Act.CERTIFY}
ON_THE_WAY_BACK |= {Act.INTEND_SWITCH, Act.POINT_PRODUCERS, Act.END_FREEZE, Act.RELEASE_GROUP, Act.FINISH_BACK}


@pytest.mark.parametrize("cutover", list(Cutover))
def test_close_at_each_act_of_a_way_back_says_where_everybody_is(cutover: Cutover) -> None:
    """Never to delete the source; of each group and of the route, one line, with the topic where it is."""
    acts = acts_of_a_way_back(cutover)
    assert acts >= ON_THE_WAY_BACK
    for act in sorted(acts):
        product = going_back(cutover, act)
        record = product.record()
        left = close(product.context(), "x", even_frozen=True)["left"]
        assert not [line for line in left if "delete it if nobody uses it" in line], (act, left)
        [route] = [line for line in left if line.startswith("the route points applications to")]
        switched = record.at(Row.SWITCH_PRODUCERS)
        to = {None: TARGET, StepState.INTENDED: f"{TARGET}, or to {SOURCE} by now,", StepState.DONE: SOURCE}[switched]
        assert route == f"the route points applications to {to} where they follow it (topicshift route show)", act
        for consumer in product.spec.consumers:
            [line] = [line for line in left if line.startswith(f"group {consumer.group} ")]
            back = record.in_effect(Row.SWITCH_GROUP, consumer.group)
            here, there = (SOURCE, TARGET) if back else (TARGET, SOURCE)
            assert line.endswith(f"released to {here}: it reads there, and no longer {there}"), act
        misplaced = [line for line in left if line.startswith("producer")]
        assert record.freeze is not None or not misplaced, "where producers belong by now is where they are"
        assert product.state(Row.ROLLBACK) == "undone"
        assert product.open("topic_migration/another").migration_id != product.claim.migration_id


def test_close_in_a_free_rollback_says_that_it_was_under_way_and_ends_it() -> None:
    product = Product()
    product.advanced()
    product.answer(product.asks(wanted="rollback"))
    product.advance(wanted="rollback", leave=frozenset({Act.RESUME_PRODUCERS.value}), patience_s=60)
    said = close(product.context(), "x", even_frozen=True)
    left = said["left"]
    [line] = [line for line in left if line.startswith("a rollback was under way")]
    assert f"may be on {SOURCE} or on {TARGET}: producers, group ledger-g, group fraud-g" in line
    assert not [line for line in left if "the route points" in line or "was released to" in line]
    assert (said["state"], product.state(Row.ROLLBACK)) == ("failed", "undone"), "nobody may retire its source"


def test_a_target_that_was_there_before_is_not_said_to_be_made() -> None:
    product = Product()
    product.cluster.create_topic(TARGET, 6, 1, {})
    product.advanced(until=Step.CREATE_TARGET)
    assert product.data(Row.CREATE_TARGET)["ours"] is False
    assert not [line for line in close(product.context(), "x")["left"] if "was made for this migration" in line]


def lengthened(leave: str) -> Product:
    product = Product()
    product.cluster.alter_topic_configs(SOURCE, set_={"retention.bytes": "1000000", "retention.ms": "60000"})
    product.cluster.commit("fraud-g", SOURCE, {0: 9})
    product.advanced(until=Step.STOP_PRODUCERS, leave=frozenset({leave, "gate"}))
    assert set_on(product) != {"retention.bytes": "1000000", "retention.ms": "60000"}
    return product


def set_on(product: Product, topic: str = SOURCE) -> dict[str, str | None]:
    info = product.cluster.topic(topic)
    assert info is not None
    return {e.name: e.value for e in info.configs.values() if e.set_here}


def test_close_puts_a_lengthened_retention_back() -> None:
    product = lengthened("freeze_begun")
    left = close(product.context(), "x")["left"]
    assert set_on(product) == {"retention.bytes": "1000000", "retention.ms": "60000"}
    assert not [line for line in left if "retention" in line]
    assert product.state(Row.LENGTHEN_RETENTION) == "undone"


def test_a_retention_that_cannot_be_put_back_is_named_once() -> None:
    product = lengthened("freeze_begun")
    ours = set_on(product)
    product.cluster.fail("alter_topic_configs", Transient("no controller"))
    left = close(product.context(), "x")["left"]
    assert set_on(product) == ours
    [line] = [line for line in left if "retention" in line]
    assert line.startswith(f"the retention of {SOURCE} was lengthened, and cannot be put back (no controller); before:")
    assert "retention.ms 60000" in line
    restored = product.evidence.read(product.claim.migration_id, "restored.json")
    assert restored is not None and b"until the migration ends" not in restored


def test_close_names_what_came_to_the_source_after_its_fence() -> None:
    """Nobody looks at it any more: the target grew by a partition, and the migration can only be closed."""
    product = Product()
    product.advanced(until=Step.SWITCH_PRODUCERS)
    product.write(SOURCE, 1, 2)
    [line] = [line for line in close(product.context(), "x")["left"] if "after its fence" in line]
    assert f"{SOURCE}[1] ends at 12, fence 10" in line and f"read {TARGET} never see them" in line


def test_close_says_where_it_cannot_tell_what_came_after_the_fence() -> None:
    product = Product()
    product.advanced(until=Step.SWITCH_PRODUCERS)
    product.cluster.fail("offsets", Transient("no leader"))
    [line] = [line for line in close(product.context(), "x")["left"] if "after its fence" in line]
    assert "cannot be told" in line and "no leader" in line


def test_close_names_no_record_where_producers_are_on_the_source_again() -> None:
    product = Product()
    product.advanced(until=Step.VERIFY_DRAIN)
    product.advanced(wanted="resume")
    product.write(SOURCE, 1, 2)
    assert not [line for line in close(product.context(), "x")["left"] if "after its fence" in line]


def test_close_takes_no_partition_that_cannot_be_read_for_one_that_was_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product = Product()
    product.advanced(until=Step.SWITCH_PRODUCERS)
    product.write(SOURCE, 1, 2)
    seen = {**product.cluster.offsets(SOURCE), 0: PartitionOffsets(0, None, None, "no leader")}
    monkeypatch.setattr(product.cluster, "offsets", lambda topic: seen)
    unread, late = [line for line in close(product.context(), "x")["left"] if "after its fence" in line]
    assert "cannot be told (partitions [0] cannot be read)" in unread
    assert f"({SOURCE}[1] ends at 12, fence 10)" in late
