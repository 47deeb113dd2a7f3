"""A spec to fill in, a migration by one, and a cluster client that counts how often it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topicshift.adapters.journal import SqlJournal
from topicshift.ports import Claim

SPEC = """
apiVersion: topicshift/v1
source: {source}
target: {source}-v2
partitions: 30
producers: [{{name: checkout, kind: route}}]
consumers: [{{name: ledger, kind: route, group: ledger}}]
"""


def claimed(journal: SqlJournal, source: str = "payments", spec: Mapping[str, Any] | None = None) -> Claim:
    """A migration that a run of Airflow has begun."""
    return journal.claim(
        cluster_id="c",
        source=source,
        target=f"{source}-v2",
        owner="topic_migration/manual__1",
        spec=spec or {"cutover": "drain_first"},
        owner_alive=lambda _: True,
    )


class Admin:
    closed = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def close(self) -> None:
        Admin.closed += 1
