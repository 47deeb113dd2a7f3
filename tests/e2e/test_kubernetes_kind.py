"""Kind ``kubernetes`` through a real scheduler: pods of a real API server, moved under live load."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kinds import Applications, aborted_then_moved, connection
from tests.e2e.small import Run, until
from tests.integration.host_world import Line, by_key, seen
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, rules_of_the_page

from lab.kubernetes import ControlPlane
from lab.rights import consumer_rights, grant, producer_rights
from lab.runfolder import ROOT
from lab.stack import Stack
from topicshift.adapters.kafka.admin import KafkaAdmin

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
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
        try:
            with connection(stack, CONNECTION, "kubernetes", extra=extra):
                yield made
        finally:
            made.close()


class Crates(Applications):
    """A producer of one pod and a group of two on a topic, with an autoscaler."""

    named = "Deployment/checkout"
    readers: tuple[str, ...] = ("ledger",)

    def __init__(self, stack: Stack, shop: Namespace, topic: str) -> None:
        self.stack, self.shop, self.topic, self.group = stack, shop, topic, f"{topic}-ledger"
        self.secrets = (str(shop.plane.endpoint(USER).password),)
        rights = [*producer_rights("checkout", topic), *consumer_rights("ledger", topic, self.group)]
        grant(stack.broker.superuser_config(), rights)
        with KafkaAdmin(stack.broker.superuser_config()) as admin:
            admin.create_topic(topic, 3, 1, {})
            admin.alter_commits(self.group, topic, dict.fromkeys(range(3), 0))
        self.checkout = self.application("Deployment", "checkout", "producer", "checkout")
        ledger = self.application("StatefulSet", "ledger", "consumer", "ledger")
        scaler = shop.autoscaler("StatefulSet", "ledger", minReplicas=2, maxReplicas=3)
        others = self.others()
        until(lambda: all(len(by_key(self.seen(r))) >= 12 for r in self.readers), "every key is read")
        until(lambda: shop.ready("ledger") == 2, "both pods are ready")
        shop.keep(self.checkout, ledger, scaler, *others)

    def others(self) -> list[str]:
        """What else works on the topic."""
        return []

    def application(self, kind: str, name: str, role: str, user: str, *variables: str) -> str:
        """A workload whose pods work on the topic that these variables name."""
        folder = self.shop.home / name
        folder.mkdir()
        member = {"group.id": f"{self.topic}-{name}", "session.timeout.ms": 6000} if role != "producer" else {}
        config = folder / "config"
        config.touch(0o600)
        config.write_text(json.dumps({**self.stack.broker.config(user), **member}))
        command = [sys.executable, str(APP), role, str(folder), str(config)]
        env = [{"name": variable, "value": self.topic} for variable in variables or ("KAFKA_TOPIC",)]
        return self.shop.workload(kind, name, command, 2 if role == "consumer" else 1, container={"env": env})

    def seen(self, name: str) -> list[Line]:
        """What an application has had acknowledged, or was given."""
        return seen(self.shop.home / name / "seen")

    def told(self, kind: str, name: str) -> dict[str, Any]:
        """The spec's word for a workload."""
        where = {"namespace": SHOP, "topic_in": "env:KAFKA_TOPIC", "connection": CONNECTION}
        return {"name": name, "kind": "kubernetes", "settings": {**where, "workload": f"{kind}/{name}"}}

    def members(self) -> dict[str, Any]:
        group = {"group": self.group, "stored_offsets": "none"}
        return {
            "producers": [{**self.told("Deployment", "checkout"), "principal": "User:checkout"}],
            "consumers": [{**self.told("StatefulSet", "ledger"), **group}],
        }

    def shape(self) -> set[str]:
        """Every field that is not as it was at first."""
        return self.shop.differs()

    def is_moved(self) -> bool:
        """Nothing but what names the topic is another."""
        paths = [
            (path, one["spec"]["template"]["spec"]["containers"][0]["env"])
            for path, one in self.shop.made.items()
            if "template" in one["spec"]
        ]
        place = "spec.template.spec.containers.0.env"
        moved = {f"{path.rsplit('/', 1)[1]} {place}.{n}.value" for path, env in paths for n in range(len(env))}
        return self.shape() == moved

    def counts(self) -> list[int]:
        return [len(self.seen(name)) for name in self.readers]

    def proven(self) -> None:
        """Its pods end cleanly when they are stopped, so none gives a record twice."""
        now = self.shop.get(self.checkout)
        self.shop.admin("PUT", self.checkout, {**now, "spec": {**now["spec"], "replicas": 0}})
        until(lambda: self.shop.pods("checkout") == [], "the producer has ended")
        self.each_once(self.sent(), *(lambda name=name: self.seen(name) for name in self.readers))

    def sent(self) -> dict[str, list[int]]:
        """What was acknowledged in the end."""
        return by_key(self.seen("checkout"))


def test_pods_go_on_after_an_abort_and_are_moved_and_nothing_is_lost(stack: Stack, shop: Namespace) -> None:
    aborted_then_moved(stack, Crates(stack, shop, "crates"))


class Satchels(Crates):
    """Besides, an application that reads the topic and writes it, with a variable for each."""

    dag = "topic_migration_producers_first"
    readers = ("ledger", "enrich")

    def others(self) -> list[str]:
        rights = [*producer_rights("billing", self.topic), *consumer_rights("billing", self.topic, self.enriched)]
        grant(self.stack.broker.superuser_config(), rights)
        with KafkaAdmin(self.stack.broker.superuser_config()) as admin:
            admin.alter_commits(self.enriched, self.topic, dict.fromkeys(range(3), 0))
        return [self.application("Deployment", "enrich", "both", "billing", "IN_TOPIC", "OUT_TOPIC")]

    @property
    def enriched(self) -> str:
        """The group of the application."""
        return f"{self.topic}-enrich"

    def wrote(self) -> list[Line]:
        """What it has had acknowledged."""
        return seen(self.shop.home / "enrich" / "wrote")

    def members(self) -> dict[str, Any]:
        both, found = self.told("Deployment", "enrich"), super().members()

        def at(variable: str) -> dict[str, Any]:
            return {**both, "settings": {**both["settings"], "topic_in": f"env:{variable}"}}

        found["producers"].append({**at("OUT_TOPIC"), "principal": "User:billing"})
        found["consumers"].append({**at("IN_TOPIC"), "group": self.enriched, "stored_offsets": "none"})
        return found

    def sent(self) -> dict[str, list[int]]:
        def answered() -> bool:
            return len(self.wrote()) == len(self.seen("checkout"))

        until(answered, "it has written for each record")
        return by_key(self.seen("checkout")) | by_key(self.wrote())


def test_an_application_in_two_roles_goes_on_after_an_abort_and_is_moved_and_nothing_is_lost(
    stack: Stack, shop: Namespace
) -> None:
    """It writes to the target while its group still reads the source, and reads there what it wrote itself."""
    satchels = Satchels(stack, shop, "satchels")
    aborted_then_moved(stack, satchels)
    assert {topic for _, _, topic in satchels.wrote()} == {"satchels", "satchels-v2"}


def test_a_pod_that_does_not_end_ends_the_run_with_everything_as_before(stack: Stack, shop: Namespace) -> None:
    """Its replicas are 0 by then, and its process writes on: the budget puts the producer back on the source."""
    with KafkaAdmin(stack.broker.superuser_config()) as admin:
        boxes = Crates(stack, shop, "boxes")
        before = {a for a in admin.acls() if a.name == "boxes"}
        shop.kubelet.holds = {"checkout-"}
        run = Run.start(stack.airflow, boxes.dag, boxes.values(freeze_budget="20s")).wait("failed")
        assert "the freeze budget is used up" in run.failures()
        assert shop.differs() == set() and {a for a in admin.acls() if a.name == "boxes"} == before
        shop.kubelet.holds = set()
        boxes.goes_on()
