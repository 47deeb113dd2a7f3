"""A run that is tried again does not pay for the impact twice, and never goes by one that says something else now."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.plan_world import IMPACT
from tests.unit.world import PARTITIONS, SOURCE, World

from topicshift.acts.measured import FRESH, GROWN
from topicshift.core.engine.words import Act, Step

COUNTS = [6, 9, 12, 15]


def measured(world: World) -> dict[str, Any]:
    """What the Spark job would have left just now."""
    info, ends = world.cluster.topic(SOURCE), world.cluster.offsets(SOURCE)
    assert info is not None
    return IMPACT | {
        "topic_id": info.topic_id,
        "taken_at": world.clock.now().isoformat(),
        "candidates": [{"partitions": n, "max_partition_share": 0.2} for n in COUNTS],
        "measured": {"ranges": {str(p): [o.log_start, o.end] for p, o in ends.items()}, "keys_shown": False},
    }


def again(world: World) -> list[str]:
    """The first run fails and a second one begins; the jobs that the second one starts until its plan is made."""
    world.journal.set_state(world.claim, "failed", active=False)
    world.claim = world.open("topic_migration/run-2")
    started: list[str] = []
    job = world._job
    world._job = lambda ctx, act: (started.append(act.value), job(ctx, act))[1]  # type: ignore[method-assign, func-returns-value]
    world.advanced(until=Step.PLAN)
    return started


@pytest.fixture
def world() -> World:
    """A world in which a first run has measured the keys."""
    world = World()
    for p in range(PARTITIONS):
        world.write(partition=p, records=100)
    world.advanced(until=Step.PLAN)
    world.context().write("impact.json", json.dumps(measured(world)))
    return world


def test_a_fresh_impact_of_the_same_source_is_taken_over_and_the_trail_says_so(world: World) -> None:
    first = world.claim.migration_id
    assert again(world) == []
    assert [e["from"] for e in world.events("impact_taken_over")] == [first]
    assert world.record().plan_hash


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("too old", lambda w, f: f | {"taken_at": (w.clock.now() - FRESH - timedelta(seconds=1)).isoformat()}),
        ("of another topic of the name", lambda w, f: f | {"topic_id": "another"}),
        ("without a count that is wanted", lambda w, f: f | {"candidates": f["candidates"][1:]}),
        ("with keys shown", lambda w, f: f | {"measured": f["measured"] | {"keys_shown": True}}),
        ("of a time window", lambda w, f: f | {"measured": f["measured"] | {"since": "2026-01-01"}}),
        ("without its ranges", lambda w, f: f | {"measured": {}}),
        ("of fewer partitions", lambda w, f: f | {"measured": {"keys_shown": False, "ranges": {"0": [0, 100]}}}),
    ],
)
def test_an_impact_that_may_say_something_else_by_now_is_measured_again(
    name: str, change: Callable[[World, dict[str, Any]], dict[str, Any]], world: World
) -> None:
    world.context().write("impact.json", json.dumps(change(world, measured(world))))
    assert again(world) == [Act.MEASURE_IMPACT.value], name


def test_a_source_that_has_grown_is_measured_again(world: World) -> None:
    held = sum(end - start for start, end in measured(world)["measured"]["ranges"].values())
    world.write(records=int(held * GROWN) + 1)
    assert again(world) == [Act.MEASURE_IMPACT.value]
