"""`close` from every state that the model check reaches: it ends it, gives both topics free, and names what is left."""

from __future__ import annotations

import pytest
from tests.unit.test_engine_model import Model, World, explore
from tests.unit.world import OWNER, SOURCE
from tests.unit.world import World as Product

from topicshift.acts.close import close
from topicshift.core.engine.words import READ_ONLY_ROWS, Row, StepState
from topicshift.core.errors import Refused
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
NOTHING = {Row.SCREAM_TEST, Row.ARM, Row.STOP_PRODUCERS, Row.CREATE_TARGET, Row.ROLLBACK, Row.DELETE_SOURCE}
"""Rows that leave nothing of their own: disarmed by close, or told by another row."""


def journals(cutover: Cutover) -> list[World]:
    """One world for each journal that the model check reaches, with two groups where it can."""
    worlds = explore(Model(cutover, kills=1, freezes=1))
    return list({(w.journal, w.over): w for w in worlds}.values())


@pytest.mark.parametrize("cutover", list(Cutover))
def test_close_ends_every_state(cutover: Cutover) -> None:
    found = journals(cutover)
    assert len(found) > 30
    for world in found:
        product = Product(consumers=[{"name": "g", "group": "g"}], cutover=cutover.value)
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
                assert any(SAID[row] in line for line in said["left"]), (name, said)
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
