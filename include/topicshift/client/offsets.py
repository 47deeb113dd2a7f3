"""Where a topic's partitions begin and end, asked on a connection that no waiting fetch holds up."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_client_log = logging.getLogger("topicshift.librdkafka")

REQUEST_S = 10.0
"""How long one request may take, seconds."""

REFRESH_MS = 2000
"""Milliseconds between two looks at who leads a partition."""

Key = tuple[str, int]
"""Topic and partition."""

_PREFIXES = ("sasl.", "ssl.", "security.", "socket.", "broker.address.", "enable.ssl.", "reconnect.", "client.dns.")
_NAMES = frozenset({"bootstrap.servers", "metadata.broker.list", "oauth_cb", "client.rack", "connections.max.idle.ms"})


def connection_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a client's config that says how to reach the brokers."""
    return {k: v for k, v in config.items() if k in _NAMES or k.startswith(_PREFIXES)}


class OffsetLookup:
    """Asks for offsets of many partitions in one request. ``config`` is the consumer's own.

    A consumer's own ``get_watermark_offsets`` goes through the connection on which its fetches wait for records, up to
    ``fetch.wait.max.ms`` for each partition.
    """

    def __init__(self, config: Mapping[str, Any], *, read_committed: bool) -> None:
        self._config = connection_config(config)
        self._level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._admin: AdminClient | None = None

    def ends(self, keys: Sequence[Key]) -> dict[Key, int]:
        """The end offset of each partition as this consumer sees it. Raises ``KafkaException``, ``TimeoutError``."""
        return self._ask(keys, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def starts(self, keys: Sequence[Key]) -> dict[Key, int]:
        """The log start of each partition. Raises ``KafkaException``, ``TimeoutError``."""
        return self._ask(keys, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end(self, topic: str, partition: int, *, committed: bool = False, timeout_s: float = REQUEST_S) -> Future[Any]:
        """Ask for the end of one partition, ``offset`` of the result. ``committed``: as READ_COMMITTED sees it."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        level = IsolationLevel.READ_COMMITTED if committed else self._level
        return next(iter(self._request([(topic, partition)], latest, level, timeout_s).values()))

    def _request(
        self, keys: Sequence[Key], spec: Any, level: IsolationLevel, timeout_s: float
    ) -> dict[TopicPartition, Future[Any]]:
        if self._admin is None:
            # A leader that restarted refuses the epoch that librdkafka remembers until it looks anew: with its default
            # of 5 minutes an armed producer stays blind for minutes after a broker has crashed and come back.
            settings = {**self._config, "topic.metadata.refresh.interval.ms": REFRESH_MS}
            self._admin = AdminClient(settings, logger=_client_log)
        return self._admin.list_offsets(
            {TopicPartition(t, p): spec for t, p in keys}, isolation_level=level, request_timeout=timeout_s
        )

    def _ask(self, keys: Sequence[Key], spec: Any) -> dict[Key, int]:
        if not keys:
            return {}
        futures = self._request(keys, spec, self._level, REQUEST_S)
        return {(tp.topic, tp.partition): int(f.result(REQUEST_S + 1).offset) for tp, f in futures.items()}
