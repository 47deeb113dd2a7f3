"""A route, its applications and a moment, for tests of what the orchestrator makes of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from topicshift.core.route.records import Route, State
from topicshift.ports import Participant

T0 = datetime(2030, 1, 31, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)
LEASE = T0 + timedelta(seconds=60)
CHECKOUT = Participant("checkout", "producer", "route")
LEDGER = Participant("ledger", "consumer", "route", group="ledger")
PAUSED = Route(
    "p",
    "p",
    State.PAUSED,
    3,
    until_ms=T0_MS + 60_000,
    pause=3,
    armed=2,
    source="p",
    target="p2",
    migration="m1",
    claim=1,
)
OPEN = replace(PAUSED, state=State.OPEN, until_ms=None, epoch=5, active="p2")
