"""One cluster, as :class:`topicshift.ports.ClusterAdmin` wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from topicshift.adapters.kafka.acls import AclsAdmin
from topicshift.adapters.kafka.connection import DEFAULT_TIMEOUT_S, Connection
from topicshift.adapters.kafka.groups import GroupsReader
from topicshift.adapters.kafka.offsets import OffsetsReader
from topicshift.adapters.kafka.topics import TopicsAdmin
from topicshift.adapters.kafka.transactions import TransactionsAdmin


class KafkaAdmin(TopicsAdmin, AclsAdmin, OffsetsReader, GroupsReader, TransactionsAdmin):
    """One cluster, every request bounded by ``timeout_s`` seconds. Thread-safe; connects at the first question.

    ``config`` is a librdkafka config as :func:`~topicshift.adapters.kafka.connection.client_config` makes it.
    """

    def __init__(self, config: Mapping[str, Any], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(Connection(config, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every connection; idempotent."""
        self.connection.close()
