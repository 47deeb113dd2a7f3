"""Kind ``spark_streaming`` through a real scheduler: a Structured Streaming query, moved under live load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved
from tests.e2e.small import until
from tests.integration.host_world import Host, by_key
from tests.integration.stream_world import Stream

from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.spark_checkpoint import look_at_checkpoint

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]
TOPIC, GROUP, CHECKOUT, STATS = "sessions", "sessions-stats", "sessions-checkout", "sessions-stats"


@pytest.fixture
def apps(stack: Stack, hooks: Path, checkpoints: Path, tmp_path: Path) -> Iterator[Sessions]:
    """A process that writes the topic and a query that reads it, as users with no more rights than they need."""
    rights = [
        *allow("checkout", "TOPIC", TOPIC, "WRITE", "DESCRIBE"),
        *allow("checkout", "CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        *allow("search", "TOPIC", TOPIC, "READ", "DESCRIBE"),
        *allow("search", "GROUP", "spark-kafka-source", "READ", prefixed=True),
    ]
    grant(stack.broker.superuser_config(), rights)
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        admin.create_topic(TOPIC, 3, 1, {})
    host, stream = Host(tmp_path, stack.broker, hooks), Stream(tmp_path, stack.broker, STATS, hooks, "search")
    try:
        host.install("producer", CHECKOUT, TOPIC, user="checkout")
        stream.begin(TOPIC, checkpoints / TOPIC, json.dumps({TOPIC: dict.fromkeys("012", 0)}))
        until(lambda: len(by_key(stream.seen())) == 12, "every key is read")
        yield Sessions(host, stream, checkpoints)
    finally:
        stream.close()
        host.close()


class Sessions(Applications):
    """A producer that a hook moves, and a query that another one moves."""

    topic, named = TOPIC, STATS

    def __init__(self, host: Host, stream: Stream, checkpoints: Path) -> None:
        self.host, self.stream = host, stream
        self.folders = {topic: str(checkpoints / topic) for topic in (self.topic, self.target)}

    def members(self) -> dict[str, Any]:
        producer = {"name": CHECKOUT, "kind": "command", "settings": {"hook": CHECKOUT}, "principal": "User:checkout"}
        query = {"kind": "spark_streaming", "settings": {"hook": STATS, "checkpoints": self.folders, "timeout": "9s"}}
        return {
            "producers": [producer],
            "consumers": [{"name": STATS, "group": GROUP, "stored_offsets": "none", **query}],
        }

    def shape(self) -> list[Any]:
        """Topic and life of the process; what the query does, and what its driver was told."""
        return [self.host.running(CHECKOUT), self.stream.status(), self.stream.wanted()]

    def is_moved(self) -> bool:
        begun = look_at_checkpoint(self.folders[self.target], self.target).starts == dict.fromkeys(range(6), 0)
        return begun and self.shape()[:2] == [(self.target, True), ("running", self.target)]

    def counts(self) -> list[int]:
        return [len(self.stream.seen())]

    def proven(self) -> None:
        """The query ends its batch when it is stopped, so it gives no record twice."""
        self.host.stand(CHECKOUT)
        until(lambda: not self.host.running(CHECKOUT)[1], "the producer has ended")
        self.each_once(by_key(self.host.seen(CHECKOUT)), self.stream.seen)


def test_a_query_goes_on_after_an_abort_and_is_moved(stack: Stack, apps: Sessions) -> None:
    aborted_then_moved(stack, apps)
