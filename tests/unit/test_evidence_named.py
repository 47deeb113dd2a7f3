"""The audit trail has the SHA-256 of every evidence file that a migration leaves, whichever way it ended."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.test_acts_drain_back import moved
from tests.unit.world import World

from topicshift.acts.orders import abort
from topicshift.core.engine.words import Step
from topicshift.core.errors import PreflightFailed
from topicshift.core.proof.bundle import named_evidence
from topicshift.reporting.run_report import write_report


def _unnamed(world: World) -> list[str]:
    """Files that the trail does not name as they are now."""
    migration, evidence = world.claim.migration_id, world.evidence
    named = named_evidence(world.journal.events(migration))
    found = {n: hashlib.sha256(evidence.read(migration, n) or b"").hexdigest() for n in evidence.names(migration)}
    return [name for name, digest in found.items() if named.get(name, ("", 0))[0] != digest]


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_each_file_of_a_whole_migration_is_in_the_trail(cutover: str) -> None:
    world = World(cutover=cutover)
    world.advanced()
    names = world.evidence.names(world.claim.migration_id)
    assert {"plan.json", "before.json", "fence.json", "impact.json", "order_proof.json"} <= set(names)
    assert any(name.startswith("drain_certificate") for name in names)
    assert any(name.startswith("drain_verification") for name in names)
    assert _unnamed(world) == []


def test_the_report_and_its_copy_of_the_trail_are_in_the_trail() -> None:
    world = World()
    world.advanced()
    ctx = world.context()
    write_report(ctx.journal, world.evidence, world.claim.migration_id, ctx.keep)
    ctx.name_evidence()
    assert {"report.html", "audit.jsonl"} <= set(world.evidence.names(world.claim.migration_id))
    assert _unnamed(world) == []


@pytest.mark.parametrize("ends", ["done", "aborted"])
def test_what_waits_in_the_triggerer_have_kept_for_charts_is_in_the_trail_at_the_end(ends: str) -> None:
    """They write without it: the audit trail would not tell that somebody had changed them."""
    world = World()
    world.report = write_report
    world.advanced(until=Step.CREATE_TARGET)
    for name in ("gate_progress.json", "drain_progress.json", "drain_progress-ledger.json"):
        world.evidence.write(world.claim.migration_id, name, "{}")
    if ends == "done":
        world.advanced()
    else:
        abort(world.context(), "not this year", 60.0)
    assert _unnamed(world) == []
    ctx, before = world.context(), len(world.kinds())
    ctx.name_charts()
    ctx.name_evidence()
    assert len(world.kinds()) == before, "once"


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1, 60), max_size=3))
def test_each_file_is_in_the_trail_wherever_the_run_was_killed(cutover: str, kills: list[int]) -> None:
    world = World(cutover=cutover)
    world.until_done(kills)
    assert _unnamed(world) == []


def test_the_plan_that_blocks_is_in_the_trail() -> None:
    world = World()
    world.cluster.create_topic(world.spec.target, 3, 1, {})
    world.write(world.spec.target)
    ctx = world.context()
    with pytest.raises(PreflightFailed), ctx.recorded("plan"):
        world.advance(ctx)
    assert world.evidence.names(world.claim.migration_id) == ["plan.json"]
    assert _unnamed(world) == []


@pytest.mark.parametrize("cutover", ["drain_first", "producers_first"])
def test_each_file_of_a_way_back_is_in_the_trail(cutover: str) -> None:
    world = moved(World(cutover=cutover))
    world.answer(world.asks(wanted="rollback"))
    world.advanced(wanted="rollback")
    ctx = world.context()
    write_report(ctx.journal, world.evidence, world.claim.migration_id, ctx.keep)
    ctx.name_evidence()
    names = set(world.evidence.names(world.claim.migration_id))
    assert {"back1-fence.json", "back1-before.json", "fence.json", "report.html"} <= names
    assert _unnamed(world) == []
