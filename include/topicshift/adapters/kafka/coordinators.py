"""Requests to the coordinators of groups, through kafka-python: batched, tried again while a coordinator moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from topicshift.adapters.kafka.connection import Connection

PAUSE_S = 0.2
RETRY = frozenset({14, 15, 16, 7, 13})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION."""


def ask_python(conn: Connection, ask: Callable[[Any], Any], *, operation: str, resource: str) -> Any:
    """One call of kafka-python, tried again while a coordinator moves; typed errors."""
    from kafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError

    deadline = time.monotonic() + conn.timeout_s
    while True:
        try:
            return ask(conn.kafka_python)
        except (KafkaError, OSError, ValueError) as exc:
            forget_coordinators(conn.kafka_python)
            passing = getattr(exc, "errno", None) in RETRY or isinstance(exc, KafkaConnectionError | NodeNotReadyError)
            if passing and time.monotonic() + PAUSE_S < deadline:
                time.sleep(PAUSE_S)
                continue
            raise conn.error(exc, operation=operation, resource=resource) from None


def ask_known(conn: Connection, ask: Callable[[Any], Any], groups: list[str]) -> Any:
    """:func:`ask_python`; None for every group where the broker is older than the request."""
    from kafka.errors import IncompatibleBrokerVersion

    def guarded(admin: Any) -> Any:
        try:
            return ask(admin)
        except IncompatibleBrokerVersion:
            return dict.fromkeys(groups)  # this broker is older than this kind of group

    return ask_python(conn, guarded, operation="DESCRIBE", resource=f"group {groups[0]}")


def at_coordinators(
    admin: Any, groups: list[str], request: Callable[[list[str]], Any], *, whole: bool = False
) -> tuple[list[Any], dict[str, str]]:
    """Send one request to each coordinator, all at once.

    Returns the rows (or, ``whole``, the answers themselves), and why no coordinator may be known for single groups
    (``GROUP_AUTHORIZATION_FAILED``): one group that is denied says nothing about the others. Raises kafka-python's
    errors for what concerns a whole request, and while the coordinator of any group is moving.
    """

    async def go() -> tuple[list[Any], dict[str, str]]:
        by_node, denied = await _find(admin, groups)
        sent = [admin._manager.send(request(ids), node_id=node) for node, ids in by_node.items()]
        rows: list[Any] = []
        for answer in sent:
            told = await answer
            rows.extend([told] if whole else told.groups)
        return rows, denied

    rows, denied = admin._manager.run(go)
    return rows, denied


async def _find(admin: Any, groups: list[str]) -> tuple[dict[Any, list[str]], dict[str, str]]:
    """Coordinator -> its groups, and the groups whose coordinator is not told to this client, with Kafka's reason."""
    from kafka import errors
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

    manager, kind = admin._manager, CoordinatorType.GROUP
    by_node: dict[Any, list[str]] = {}
    denied: dict[str, str] = {}
    unknown = []
    for group in groups:
        node = manager.cluster.get_coordinator(group, kind)
        if node is None:
            unknown.append(group)
        else:
            by_node.setdefault(node, []).append(group)
    if not unknown:
        return by_node, denied
    if manager.broker_version_data.api_version(FindCoordinatorRequest) >= 4:
        asked = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=unknown, min_version=4)
        rows = [(row.key, row) for row in (await manager.send(asked)).coordinators]
    else:
        rows = [
            (g, await manager.send(FindCoordinatorRequest(key=g, key_type=kind.value, max_version=3))) for g in unknown
        ]
    for group, row in rows:
        if row.error_code in RETRY:
            raise errors.for_code(row.error_code)(f"coordinator of {group}")
        if row.error_code:
            denied[group] = error_name(row.error_code)
        else:
            node = manager.cluster.add_coordinator(row, kind, group, synthesize_node_id=False)
            by_node.setdefault(node, []).append(group)
    return by_node, denied


def error_name(code: int) -> str:
    """Kafka's name of an error code (``GROUP_AUTHORIZATION_FAILED``)."""
    from confluent_kafka import KafkaError

    return str(KafkaError(code).name())


def forget_coordinators(admin: Any) -> None:
    """Look coordinators up again at the next request."""
    admin._manager.cluster._coordinators.clear()
