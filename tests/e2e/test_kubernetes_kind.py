"""Kind ``kubernetes`` through a real scheduler: pods of a real API server, moved under live load."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.small import Run, trail_is_intact, until
from tests.integration.host_world import by_key, seen
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, rules_of_the_page

from lab.kubernetes import ControlPlane
from lab.rights import consumer_rights, grant, producer_rights
from lab.runfolder import ROOT
from lab.stack import Stack
from topicshift.adapters.journal import SqlJournal
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.kubernetes,
    pytest.mark.long,
]
TOPIC, TARGET, GROUP, SHOP = "crates", "crates-v2", "crates-ledger", "crates"
APP = ROOT / "tests/integration/plain_app.py"


@pytest.fixture
def shop(stack: Stack, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace, and Airflow's connection to its API server as a user with the rights of the page."""
    with ControlPlane(tmp_path / "plane", ROOT / "build/cache/kubernetes", (USER, NOBODY)) as plane:
        made = Namespace(plane, SHOP, tmp_path, rules_of_the_page())
        extra = json.dumps({"kube_config_path": str(plane.kubeconfig(USER))})
        connection = {"connection_id": "kubernetes_crates", "conn_type": "kubernetes", "extra": extra}
        stack.airflow.request("POST", "/connections", json=connection)
        try:
            yield made
        finally:
            stack.airflow.request("DELETE", "/connections/kubernetes_crates")
            made.close()


def application(shop: Namespace, stack: Stack, kind: str, name: str, role: str, user: str) -> str:
    """A workload whose pods work on the topic."""
    folder = shop.home / name
    folder.mkdir()
    member = {"group.id": GROUP, "session.timeout.ms": 6000} if role == "consumer" else {}
    config = folder / "config"
    config.touch(0o600)
    config.write_text(json.dumps({**stack.broker.config(user), **member}))
    command = [sys.executable, str(APP), role, str(folder), str(config)]
    env = [{"name": "KAFKA_TOPIC", "value": TOPIC}]
    return shop.workload(kind, name, command, 1 if role == "producer" else 2, container={"env": env})


def settings(kind: str, name: str) -> dict[str, Any]:
    return {
        "kind": "kubernetes",
        "settings": {
            "workload": f"{kind}/{name}",
            "namespace": SHOP,
            "topic_in": "env:KAFKA_TOPIC",
            "connection": "kubernetes_crates",
        },
    }


def test_pods_are_moved_and_nothing_is_lost(stack: Stack, shop: Namespace) -> None:
    wrote, kept = shop.home / "checkout/seen", shop.home / "ledger/seen"
    rights = [*producer_rights("checkout", TOPIC), *consumer_rights("ledger", TOPIC, GROUP)]
    grant(stack.broker.superuser_config(), rights)
    with closing(SqlJournal(stack.journal_url)) as journal, KafkaAdmin(stack.broker.superuser_config()) as admin:
        admin.create_topic(TOPIC, 3, 1, {})
        admin.alter_commits(GROUP, TOPIC, dict.fromkeys(range(3), 0))
        checkout = application(shop, stack, "Deployment", "checkout", "producer", "checkout")
        ledger = application(shop, stack, "StatefulSet", "ledger", "consumer", "ledger")
        scaler = shop.autoscaler("StatefulSet", "ledger", minReplicas=2, maxReplicas=3)
        until(lambda: len(by_key(seen(kept))) == 12 and shop.ready("ledger") == 2, "both run", 90)
        shop.keep(checkout, ledger, scaler)
        values = {
            "source": TOPIC,
            "target": TARGET,
            "partitions": 6,
            "approvals_plan": "auto",
            "approvals_freeze": "auto",
            "producers": [{"name": "checkout", **settings("Deployment", "checkout"), "principal": "User:checkout"}],
            "consumers": [
                {"name": "ledger", **settings("StatefulSet", "ledger"), "group": GROUP, "stored_offsets": "none"}
            ],
        }
        run = Run.start(stack.airflow, "topic_migration", values).wait("success")
        place = "spec.template.spec.containers.0.env.0.value"
        assert shop.differs() == {f"checkout {place}", f"ledger {place}"}
        before = len(seen(kept))
        until(lambda: len(seen(kept)) > before + 100, "the target is read", 60)
        now = shop.get(checkout)
        shop.admin("PUT", checkout, {**now, "spec": {**now["spec"], "replicas": 0}})
        until(lambda: shop.pods("checkout") == [], "the producer has ended", 60)
        sent = by_key(seen(wrote))
        assert sent and all(numbers == list(range(len(numbers))) for numbers in sent.values())
        # Its pods end cleanly when they are stopped, so none gives a record twice.
        until(lambda: by_key(seen(kept)) == sent, "everything was read once and in order", 60)
        assert {topic for _, _, topic in seen(kept)} == {TOPIC, TARGET}
        (row,) = journal.find(source=TOPIC)
        assert trail_is_intact(journal, row.migration_id)
        said = "".join(str(e.data) for e in journal.events(row.migration_id))
        tasks = [
            t["task_id"]
            for t in stack.airflow.task_instances(run.dag_id, run.run_id)
            if t["state"] == "success" and t["map_index"] < 0
        ]
        said += "".join(run.log(task) for task in tasks)
        token = shop.plane.endpoint(USER).password
        assert "Deployment/checkout" in said and token not in said
