"""One short migration under faults: the whole of it is ``make chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.draw import Planned
from tests.chaos.part import Part
from tests.chaos.parts import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(900)]

FAULTS = [
    Planned("advancer_killed", "create_target", 0.0, 0.0),
    Planned("journal_gone", "arm", 0.0, 1.0),
    Planned("producer_killed", "freeze", 0.0, 0.0),
    Planned("all_advancers_killed", "switch_producers", 0.0, 0.0),
    Planned("consumer_stopped", "switch_consumer:ledger", 0.0, 4.0),
]
CUT = Planned("host_cut", "switch_consumer:ledger", 0.0, 4.0)
"""Only where the machine can have hosts of their own (the rights of root)."""


def test_no_promise_is_broken(tmp_path: Path) -> None:
    said: list[str] = []
    with Cluster(tmp_path) as cluster:
        part = Part(cluster, "chaos-short", "drain_first", 1, said=said.append)
        broken = part.run([*FAULTS, CUT] if cluster.hosts else FAULTS)
    assert broken == [], said
    assert part.state == "done", (part.why, said)
    assert sum(part.struck.values()) >= 4, said
