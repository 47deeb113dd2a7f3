"""Several kinds in one migration through a real scheduler: applications moved by hooks beside connectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.small import Run, trail_is_intact, until
from tests.integration.connect_world import ConnectWorker, sink, source
from tests.integration.host_world import Host, by_key, seen

from lab.rights import allow, grant
from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
TOPIC, TARGET, ARCHIVE, LEDGER = "parcels", "parcels-v2", "connect-parcels_archive", "parcels-ledger"
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
    connection = {"connection_id": "connect_parcels", "conn_type": "http", "host": "127.0.0.1", "port": made.port}
    stack.airflow.request("POST", "/connections", json={**connection, "login": "me", "password": SECRET})
    try:
        with made:
            yield made
    finally:
        stack.airflow.request("DELETE", "/connections/connect_parcels")


@pytest.fixture
def host(stack: Stack, hooks: Path, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path, stack.broker, hooks)
    yield made
    made.close()


def test_hooks_and_connectors_move_in_one_migration_and_nothing_is_lost(
    stack: Stack, worker: ConnectWorker, host: Host, tmp_path: Path
) -> None:
    wrote, kept = tmp_path / "wrote", tmp_path / "kept"
    with closing(SqlJournal(stack.journal_url)) as journal, KafkaAdmin(stack.broker.superuser_config()) as admin:
        admin.create_topic(TOPIC, 3, 1, {})
        admin.alter_commits(LEDGER, TOPIC, dict.fromkeys(range(3), 0))
        worker.create("parcels_intake", source(wrote, TOPIC))
        worker.create("parcels_archive", sink(kept, TOPIC))
        host.install("producer", "parcels-checkout", TOPIC, user="checkout")
        host.install("consumer", "parcels-ledger", TOPIC, LEDGER, user="ledger")
        readers = (lambda: seen(kept), lambda: host.seen("parcels-ledger"))
        until(lambda: all(len(by_key(r())) == 24 for r in readers), "all read both producers", 90)
        connect, hook = {"kind": "connect"}, {"kind": "command"}
        values = {
            "source": TOPIC,
            "target": TARGET,
            "partitions": 6,
            "approvals_plan": "auto",
            "approvals_freeze": "auto",
            "producers": [
                {"name": "intake", **connect, "settings": setting("parcels_intake"), "principal": "User:billing"},
                {"name": "parcels-checkout", **hook, "settings": {"hook": "parcels-checkout"}}
                | {"principal": "User:checkout"},
            ],
            "consumers": [
                {"name": "archive", "group": ARCHIVE, **connect, "settings": setting("parcels_archive")}
                | {"stored_offsets": "none"},
                {"name": "parcels-ledger", "group": LEDGER, **hook, "settings": {"hook": "parcels-ledger"}}
                | {"stored_offsets": "none"},
            ],
        }
        run = Run.start(stack.airflow, "topic_migration", values).wait("success")
        assert worker.config("parcels_intake")["topic"] == worker.config("parcels_archive")["topics"] == TARGET
        assert host.running("parcels-checkout") == host.running("parcels-ledger") == (TARGET, True)
        before = [len(r()) for r in readers]
        until(lambda: all(len(r()) > n + 100 for r, n in zip(readers, before, strict=True)), "all read the target", 60)
        worker.ask("PUT", "/connectors/parcels_intake/stop", None)
        worker.until(lambda: worker.status("parcels_intake") == ("STOPPED", []), "the source connector stands")
        host.stand("parcels-checkout")
        until(lambda: not host.running("parcels-checkout")[1], "the producer has ended")
        sent = by_key(seen(wrote)) | by_key(host.seen("parcels-checkout"))
        assert all(numbers == list(range(len(numbers))) for numbers in sent.values())
        # Both end cleanly when they are stopped, so neither may give a record twice.
        until(lambda: all(by_key(r()) == sent for r in readers), "each has read everything once and in order", 60)
        assert all({topic for _, _, topic in r()} == {TOPIC, TARGET} for r in readers)
        (row,) = journal.find(source=TOPIC)
        assert trail_is_intact(journal, row.migration_id)
        said = "".join(str(e.data) for e in journal.events(row.migration_id))
        tasks = [
            t["task_id"]
            for t in stack.airflow.task_instances(run.dag_id, run.run_id)
            if t["state"] == "success" and t["map_index"] < 0
        ]
        said += "".join(run.log(task) for task in tasks)
        assert "parcels_intake" in said and SECRET not in said


def setting(connector: str) -> dict[str, str]:
    return {"connector": connector, "connection": "connect_parcels"}
