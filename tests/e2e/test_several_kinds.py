"""Several kinds in one migration through a real scheduler: applications moved by hooks beside connectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.e2e.small import until
from tests.integration.connect_world import ConnectWorker, sink, source
from tests.integration.host_world import Host, by_key, seen

from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
TOPIC, ARCHIVE, LEDGER = "parcels", "connect-parcels_archive", "parcels-ledger"
SECRET = "canary-of-the-connect-log-in"


@pytest.fixture
def worker(stack: Stack, tmp_path: Path) -> Iterator[ConnectWorker]:
    """A Connect worker with no more rights than it needs, and Airflow's connection to it."""
    made = ConnectWorker(stack.broker, tmp_path / "connect", user="billing")
    rights = [
        *allow("billing", "TOPIC", made.name, "CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS", prefixed=True),
        *allow("billing", "GROUP", made.name, "READ"),
        *allow("billing", "GROUP", ARCHIVE, "READ"),
        *allow("billing", "CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        *allow("billing", "TOPIC", TOPIC, "READ", "WRITE", "DESCRIBE"),
        *allow("checkout", "TOPIC", TOPIC, "WRITE", "DESCRIBE"),
        *allow("ledger", "TOPIC", TOPIC, "READ", "DESCRIBE"),
        *allow("ledger", "GROUP", LEDGER, "READ", "DESCRIBE"),
    ]
    grant(stack.broker.superuser_config(), rights)
    log_in = {"host": "127.0.0.1", "port": made.port, "login": "me", "password": SECRET}
    with connection(stack, "connect_parcels", **log_in), made:
        yield made


@pytest.fixture
def host(stack: Stack, hooks: Path, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, stack.broker, hooks)
    yield made
    made.close()


class Parcels(Applications):
    """A source connector and a process that write the topic, a sink connector and a process that read it."""

    topic, named, secrets = TOPIC, "parcels_intake", (SECRET,)

    def __init__(self, stack: Stack, worker: ConnectWorker, host: Host, home: Path) -> None:
        self.worker, self.host = worker, host
        self.wrote, self.kept = home / "wrote", home / "kept"
        self.readers = (lambda: seen(self.kept), lambda: host.seen("parcels-ledger"))
        with KafkaAdmin(stack.broker.superuser_config()) as admin:
            admin.create_topic(TOPIC, 3, 1, {})
            admin.alter_commits(LEDGER, TOPIC, dict.fromkeys(range(3), 0))
        worker.create("parcels_intake", source(self.wrote, TOPIC))
        worker.create("parcels_archive", sink(self.kept, TOPIC))
        host.install("producer", "parcels-checkout", TOPIC, user="checkout")
        host.install("consumer", "parcels-ledger", TOPIC, LEDGER, user="ledger")
        until(lambda: all(len(by_key(r())) == 24 for r in self.readers), "all read both producers", 90)

    def members(self) -> dict[str, Any]:
        def connector(name: str) -> dict[str, Any]:
            return {"kind": "connect", "settings": {"connector": name, "connection": "connect_parcels"}}

        def process(name: str) -> dict[str, Any]:
            return {"name": name, "kind": "command", "settings": {"hook": name}}

        return {
            "producers": [
                {"name": "intake", **connector("parcels_intake"), "principal": "User:billing"},
                {**process("parcels-checkout"), "principal": "User:checkout"},
            ],
            "consumers": [
                {"name": "archive", "group": ARCHIVE, **connector("parcels_archive"), "stored_offsets": "none"},
                {**process("parcels-ledger"), "group": LEDGER, "stored_offsets": "none"},
            ],
        }

    def shape(self) -> list[Any]:
        """Settings and states of the connectors; topic and life of the processes."""
        connectors = ("parcels_intake", "parcels_archive")
        states = [(self.worker.config(name), self.worker.status(name)) for name in connectors]
        return [*states, *map(self.host.running, ("parcels-checkout", "parcels-ledger"))]

    def is_moved(self) -> bool:
        told = self.worker.config("parcels_intake")["topic"], self.worker.config("parcels_archive")["topics"]
        return told == (self.target, self.target) and self.shape()[2:] == [(self.target, True)] * 2

    def counts(self) -> list[int]:
        return [len(r()) for r in self.readers]

    def proven(self) -> None:
        """Both readers end cleanly when they are stopped, so neither may give a record twice."""
        self.worker.ask("PUT", "/connectors/parcels_intake/stop", None)
        self.worker.until(
            lambda: self.worker.status("parcels_intake") == ("STOPPED", []), "the source connector stands"
        )
        self.host.stand("parcels-checkout")
        until(lambda: not self.host.running("parcels-checkout")[1], "the producer has ended")
        self.each_once(by_key(seen(self.wrote)) | by_key(self.host.seen("parcels-checkout")), *self.readers)


def test_hooks_and_connectors_go_on_after_an_abort_and_move_in_one_migration(
    stack: Stack, worker: ConnectWorker, host: Host, tmp_path: Path
) -> None:
    aborted_then_moved(stack, Parcels(stack, worker, host, tmp_path))
