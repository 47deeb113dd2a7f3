"""A spec to fill in and a cluster client that counts how often it is closed."""

from __future__ import annotations

from typing import Any

SPEC = """
apiVersion: topicshift/v1
source: {source}
target: {source}-v2
partitions: 30
producers: [{{name: checkout, kind: route}}]
consumers: [{{name: ledger, kind: route, group: ledger}}]
"""


class Admin:
    closed = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def close(self) -> None:
        Admin.closed += 1
