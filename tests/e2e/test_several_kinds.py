"""Several kinds in one migration through a real scheduler: hooks beside connectors, and MirrorMaker 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.e2e.small import until
from tests.integration.connect_world import ConnectWorker, sink, source
from tests.integration.host_world import Host, by_key, seen
from tests.integration.mirror_world import Copy, copied_once, copies, mirror

from lab.broker import EmbeddedBroker
from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.long]
TOPIC, ARCHIVE, LEDGER = "parcels", "connect-parcels_archive", "parcels-ledger"
SECRET, MIRROR = "canary-of-the-connect-log-in", "search"


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
def away(stack: Stack, tmp_path: Path) -> Iterator[Away]:
    """Another cluster, with a worker whose mirror has no more rights than it needs, and Airflow's connection to it."""
    rights = allow(MIRROR, "TOPIC", TOPIC, "READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    grant(stack.broker.superuser_config(), rights)
    with EmbeddedBroker(server_properties={"log.message.timestamp.type": "LogAppendTime"}) as cluster:
        made = ConnectWorker(cluster, tmp_path / "away")
        log_in = {"host": "127.0.0.1", "port": made.port, "login": "me", "password": SECRET}
        with connection(stack, "connect_parcels_dr", **log_in), made, KafkaAdmin(cluster.config()) as admin:
            yield Away(stack, cluster, made, admin)


class Away:
    """Copies of the topic and of its target in another cluster."""

    copies = (f"here.{TOPIC}", f"here.{TOPIC}-v2")

    def __init__(self, stack: Stack, cluster: EmbeddedBroker, worker: ConnectWorker, admin: KafkaAdmin) -> None:
        self.cluster, self.worker, self.admin = cluster, worker, admin
        told = [line.split("=", 1) for line in stack.broker.client_properties(MIRROR).splitlines() if "=" in line]
        log_in = {f"source.cluster.{key}": value for key, value in told}
        self.settings = mirror(stack.broker, cluster, TOPIC, **log_in, **{"offset-syncs.topic.location": "target"})

    def begin(self) -> None:
        """The mirror runs, and has copied of each key."""
        self.worker.create("parcels_dr", self.settings)
        until(lambda: len({c.key for c in self.found()}) == 24, "every key is copied")

    def there(self) -> list[str]:
        """The copies that there are."""
        return [name for name in self.copies if self.admin.topic(name) is not None]

    def count(self) -> int:
        """Records in the copies."""
        return sum(o.end or 0 for name in self.there() for o in self.admin.offsets(name).values())

    def found(self) -> list[Copy]:
        """The records in the copies."""
        return copies(self.cluster, *self.there())


@pytest.fixture
def host(stack: Stack, hooks: Path, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, stack.broker, hooks)
    yield made
    made.close()


class Parcels(Applications):
    """A source connector and a process that write the topic; a sink connector, a process and a mirror that read it."""

    topic, named = TOPIC, "parcels_intake"

    def __init__(self, stack: Stack, worker: ConnectWorker, away: Away, host: Host, home: Path) -> None:
        self.worker, self.away, self.host = worker, away, host
        self.wrote, self.kept = home / "wrote", home / "kept"
        self.secrets = (SECRET, stack.broker.config(MIRROR)["sasl.password"])
        self.readers = (lambda: seen(self.kept), lambda: host.seen("parcels-ledger"))
        with KafkaAdmin(stack.broker.superuser_config()) as admin:
            admin.create_topic(TOPIC, 3, 1, {})
            admin.alter_commits(LEDGER, TOPIC, dict.fromkeys(range(3), 0))
        worker.create("parcels_intake", source(self.wrote, TOPIC))
        worker.create("parcels_archive", sink(self.kept, TOPIC))
        host.install("producer", "parcels-checkout", TOPIC, user="checkout")
        host.install("consumer", "parcels-ledger", TOPIC, LEDGER, user="ledger")
        until(lambda: all(len(by_key(r())) == 24 for r in self.readers), "all read both producers")
        away.begin()

    def members(self) -> dict[str, Any]:
        def connector(name: str) -> dict[str, Any]:
            return {"kind": "connect", "settings": {"connector": name, "connection": "connect_parcels"}}

        def process(name: str) -> dict[str, Any]:
            return {"name": name, "kind": "command", "settings": {"hook": name}}

        dr = {"connector": "parcels_dr", "connection": "connect_parcels_dr", "mirror": True}
        return {
            "producers": [
                {"name": "intake", **connector("parcels_intake"), "principal": "User:billing"},
                {**process("parcels-checkout"), "principal": "User:checkout"},
            ],
            "consumers": [
                {"name": "archive", "group": ARCHIVE, **connector("parcels_archive"), "stored_offsets": "none"},
                {**process("parcels-ledger"), "group": LEDGER, "stored_offsets": "none"},
                {"name": "dr", "group": f"mirror-{TOPIC}", "kind": "connect", "settings": dr, "stored_offsets": "none"},
            ],
        }

    def shape(self) -> list[Any]:
        """Settings and states of the connectors; topic and life of the processes."""
        connectors = (
            (self.worker, "parcels_intake"),
            (self.worker, "parcels_archive"),
            (self.away.worker, "parcels_dr"),
        )
        states = [(worker.config(name), worker.status(name)) for worker, name in connectors]
        return [*states, *map(self.host.running, ("parcels-checkout", "parcels-ledger"))]

    def is_moved(self) -> bool:
        intake, archive, dr, *processes = self.shape()
        told = intake[0]["topic"], archive[0]["topics"], dr[0]["topics"]
        return told == (self.target,) * 3 and processes == [(self.target, True)] * 2

    def counts(self) -> list[int]:
        return [*(len(r()) for r in self.readers), self.away.count()]

    def proven(self) -> None:
        """Both readers end cleanly when they are stopped, so neither may give a record twice."""
        self.worker.ask("PUT", "/connectors/parcels_intake/stop", None)
        self.worker.until(
            lambda: self.worker.status("parcels_intake") == ("STOPPED", []), "the source connector stands"
        )
        self.host.stand("parcels-checkout")
        until(lambda: not self.host.running("parcels-checkout")[1], "the producer has ended")
        sent = by_key(seen(self.wrote)) | by_key(self.host.seen("parcels-checkout"))
        self.each_once(sent, *self.readers)
        until(lambda: self.away.count() >= sum(map(len, sent.values())), "all is copied")
        copied_once(sent, self.away.found())


def test_hooks_and_connectors_go_on_after_an_abort_and_move_in_one_migration(
    stack: Stack, worker: ConnectWorker, away: Away, host: Host, tmp_path: Path
) -> None:
    aborted_then_moved(stack, Parcels(stack, worker, away, host, tmp_path))
