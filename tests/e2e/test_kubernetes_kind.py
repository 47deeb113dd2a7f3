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
from tests.integration.host_world import Line, by_key, seen
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
SHOP, CONNECTION = "crates", "kubernetes_crates"
APP = ROOT / "tests/integration/plain_app.py"


@pytest.fixture
def shop(stack: Stack, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace, and Airflow's connection to its API server as a user with the rights of the page."""
    with ControlPlane(tmp_path / "plane", ROOT / "build/cache/kubernetes", (USER, NOBODY)) as plane:
        made = Namespace(plane, SHOP, tmp_path, rules_of_the_page())
        extra = json.dumps({"kube_config_path": str(plane.kubeconfig(USER))})
        connection = {"connection_id": CONNECTION, "conn_type": "kubernetes", "extra": extra}
        stack.airflow.request("POST", "/connections", json=connection)
        try:
            yield made
        finally:
            stack.airflow.request("DELETE", f"/connections/{CONNECTION}")
            made.close()


class Crates:
    """A producer of one pod and a group of two on a topic, with an autoscaler."""

    def __init__(self, stack: Stack, shop: Namespace, admin: KafkaAdmin, topic: str) -> None:
        self.stack, self.shop, self.topic, self.group = stack, shop, topic, f"{topic}-ledger"
        rights = [*producer_rights("checkout", topic), *consumer_rights("ledger", topic, self.group)]
        grant(stack.broker.superuser_config(), rights)
        admin.create_topic(topic, 3, 1, {})
        admin.alter_commits(self.group, topic, dict.fromkeys(range(3), 0))
        self.checkout = self.application("Deployment", "checkout", "producer", "checkout")
        ledger = self.application("StatefulSet", "ledger", "consumer", "ledger")
        scaler = shop.autoscaler("StatefulSet", "ledger", minReplicas=2, maxReplicas=3)
        until(lambda: len(by_key(self.seen("ledger"))) == 12 and shop.ready("ledger") == 2, "both run", 90)
        shop.keep(self.checkout, ledger, scaler)

    def application(self, kind: str, name: str, role: str, user: str) -> str:
        """A workload whose pods work on the topic."""
        folder = self.shop.home / name
        folder.mkdir()
        member = {"group.id": self.group, "session.timeout.ms": 6000} if role == "consumer" else {}
        config = folder / "config"
        config.touch(0o600)
        config.write_text(json.dumps({**self.stack.broker.config(user), **member}))
        command = [sys.executable, str(APP), role, str(folder), str(config)]
        env = [{"name": "KAFKA_TOPIC", "value": self.topic}]
        return self.shop.workload(kind, name, command, 1 if role == "producer" else 2, container={"env": env})

    def seen(self, name: str) -> list[Line]:
        """What an application has had acknowledged, or was given."""
        return seen(self.shop.home / name / "seen")

    def goes_on(self) -> None:
        """More is read."""
        before = len(self.seen("ledger"))
        until(lambda: len(self.seen("ledger")) > before + 100, "more is read", 60)

    def values(self, **more: Any) -> dict[str, Any]:
        """The form's values."""
        where = {"namespace": SHOP, "topic_in": "env:KAFKA_TOPIC", "connection": CONNECTION}

        def told(kind: str, name: str) -> dict[str, Any]:
            return {"name": name, "kind": "kubernetes", "settings": {**where, "workload": f"{kind}/{name}"}}

        return {
            "source": self.topic,
            "target": f"{self.topic}-v2",
            "partitions": 6,
            "approvals_plan": "auto",
            "approvals_freeze": "auto",
            "producers": [{**told("Deployment", "checkout"), "principal": "User:checkout"}],
            "consumers": [{**told("StatefulSet", "ledger"), "group": self.group, "stored_offsets": "none"}],
            **more,
        }


def test_pods_are_moved_and_nothing_is_lost(stack: Stack, shop: Namespace) -> None:
    with closing(SqlJournal(stack.journal_url)) as journal, KafkaAdmin(stack.broker.superuser_config()) as admin:
        crates = Crates(stack, shop, admin, "crates")
        run = Run.start(stack.airflow, "topic_migration", crates.values()).wait("success")
        place = "spec.template.spec.containers.0.env.0.value"
        assert shop.differs() == {f"checkout {place}", f"ledger {place}"}
        crates.goes_on()
        now = shop.get(crates.checkout)
        shop.admin("PUT", crates.checkout, {**now, "spec": {**now["spec"], "replicas": 0}})
        until(lambda: shop.pods("checkout") == [], "the producer has ended", 60)
        sent = by_key(crates.seen("checkout"))
        assert sent and all(numbers == list(range(len(numbers))) for numbers in sent.values())
        # Its pods end cleanly when they are stopped, so none gives a record twice.
        until(lambda: by_key(crates.seen("ledger")) == sent, "everything was read once and in order", 60)
        assert {topic for _, _, topic in crates.seen("ledger")} == {"crates", "crates-v2"}
        (row,) = journal.find(source="crates")
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


def test_a_pod_that_does_not_end_ends_the_run_with_everything_as_before(stack: Stack, shop: Namespace) -> None:
    """Its replicas are 0 by then, and its process writes on: the budget puts the producer back on the source."""
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        boxes = Crates(stack, shop, admin, "boxes")
        before = {a for a in admin.acls() if a.name == "boxes"}
        shop.kubelet.holds = {"checkout-"}
        run = Run.start(stack.airflow, "topic_migration", boxes.values(freeze_budget="20s")).wait("failed")
        assert "the freeze budget is used up" in run.failures()
        assert shop.differs() == set() and {a for a in admin.acls() if a.name == "boxes"} == before
        shop.kubelet.holds = set()
        boxes.goes_on()
