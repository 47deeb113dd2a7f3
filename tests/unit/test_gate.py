"""The gate before the freeze: no producer is stopped for a group that no freeze would be long enough for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.world import SOURCE, World

from topicshift.core.engine.words import Row, Step

GROUP = "ledger-g"


def deleted_unread(w: World) -> None:
    w.write(records=5)
    w.cluster.delete_records(SOURCE, 0, w.cluster.offsets(SOURCE)[0].end or 0)


def never_committed(w: World) -> None:
    w.write(records=5)
    del w.cluster._groups[GROUP].commits[(SOURCE, 0)]


def left(w: World) -> None:
    w.write(records=5)
    w.leave(GROUP)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (deleted_unread, "lost_unread on partition 0. Find out whether the loss matters"),
        (never_committed, "never_committed on partition 0. Start the group"),
        (left, "5 records behind, and it has no members. Start it"),
    ],
)
def test_a_group_that_cannot_drain_keeps_the_gate_shut_by_name(fault: Callable[[World], None], said: str) -> None:
    w = World()
    w.advanced(until=Step.CREATE_TARGET)
    fault(w)
    assert f"group {GROUP}: {said}" in w.waits(patience_s=1)
    assert w.state(Row.FREEZE) is None


def test_a_group_that_is_ignored_does_not_keep_the_gate_shut() -> None:
    """It reads the source, and a person has said why it does not matter."""
    w = World(ignore_groups=[{"group": "replica-g", "reason": "reads for a test environment"}])
    w.join("replica-g", SOURCE)
    w.cluster.commit("replica-g", SOURCE, {0: 3})
    w.advanced(until=Step.STOP_PRODUCERS)
    assert w.state(Row.FREEZE) is not None
