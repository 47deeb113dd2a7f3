"""Claims on a journal, and what its audit trail says, for the tests of all journals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topicshift.core.proof import audit
from topicshift.ports import Claim, Journal

ENDED: Callable[[str], bool | None] = lambda _owner: False  # noqa: E731
RUNNING: Callable[[str], bool | None] = lambda _owner: True  # noqa: E731
UNTOLD: Callable[[str], bool | None] = lambda _owner: None  # noqa: E731


def claim(
    journal: Journal,
    owner: str = "run-1",
    source: str = "payments",
    target: str = "payments-v2",
    alive: Callable[[str], bool | None] = RUNNING,
    cluster: str = "cluster-1",
    spec: Mapping[str, Any] | None = None,
) -> Claim:
    return journal.claim(
        cluster_id=cluster,
        source=source,
        target=target,
        owner=owner,
        spec={"partitions": 30} if spec is None else spec,
        owner_alive=alive,
    )


def verified(journal: Any, migration_id: str) -> list[str]:
    """The kinds of the trail, once it has been found intact."""
    head, events = journal.trail(migration_id)
    assert audit.verify(events, head, migration_id=migration_id) == []
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    return [e.kind for e in events]
