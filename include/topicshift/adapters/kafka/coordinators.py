"""Requests through kafka-python, tried again while a coordinator moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from topicshift.adapters.kafka.connection import Connection
from topicshift.adapters.kafka.python_client import RETRY, forget_coordinators

PAUSE_S = 0.2


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
