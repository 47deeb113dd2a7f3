"""Kind ``kubernetes`` on a real broker and API server: producers and consumers in pods, moved under live load."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.host_world import by_key, seen
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, ask_of, rules_of_the_page
from tests.integration.real_world import RealWorld
from tests.integration.reaper import Reaper

from lab.broker import EmbeddedBroker
from lab.kubernetes import ControlPlane
from lab.runfolder import ROOT
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.kubernetes import KubernetesController
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.engine.words import Row, Step
from topicshift.core.errors import DrainTimedOut

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.kubernetes]
APP = Path(__file__).parent / "plain_app.py"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("kubernetes")
    with ControlPlane(folder, ROOT / "build" / "cache" / "kubernetes", (USER, NOBODY)) as running:
        yield running


@pytest.fixture
def shop(plane: ControlPlane, tmp_path: Path) -> Iterator[Namespace]:
    made = Namespace(plane, f"live-{next(_numbers)}", tmp_path, rules_of_the_page())
    yield made
    made.close()


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


class Migration(RealWorld):
    """A producer of one pod and a group of two, with an autoscaler each."""

    def __init__(self, shop: Namespace, broker: EmbeddedBroker, admin: KafkaAdmin, topic: str, **changes: Any) -> None:
        admin.create_topic(topic, 3, 1, {})
        group = f"g-{topic}"
        admin.alter_commits(group, topic, dict.fromkeys(range(3), 0))
        self.shop, of = shop, changes.pop("of", ("Deployment", "StatefulSet"))
        self.broker = broker
        self.checkout = self.application(of[0], "checkout", "producer", topic, 1)
        self.ledger = self.application(of[1], "ledger", "consumer", topic, 2, group)
        scalers = [
            shop.autoscaler(kind, name, minReplicas=count, maxReplicas=count + 1)
            for kind, name, count in ((of[0], "checkout", 1), (of[1], "ledger", 2))
        ]
        where = {"namespace": shop.namespace, "topic_in": "env:KAFKA_TOPIC"}

        def told(name: str, kind: str) -> dict[str, Any]:
            return {"name": name, "kind": "kubernetes", "settings": {**where, "workload": f"{kind}/{name}"}}

        super().__init__(
            broker,
            admin,
            topic,
            producers=[told("checkout", of[0])],
            consumers=[{**told("ledger", of[1]), "group": group}],
            **changes,
        )
        self.reaper = Reaper()
        ask = ask_of(self.reaper.asking(shop.ask))
        self.controllers["kubernetes"] = KubernetesController(admin, ask, SystemClock())  # type: ignore[assignment]
        self.until(lambda: len(self.seen("ledger")) > 100, "the application processes records", 60)
        self.until(lambda: shop.ready("checkout") == 1 and shop.ready("ledger") == 2, "pods are ready", 30)
        shop.keep(self.checkout, self.ledger, *scalers)

    def application(self, kind: str, name: str, role: str, topic: str, count: int, group: str = "") -> str:
        folder = self.shop.home / name
        folder.mkdir()
        member = {"group.id": group, "session.timeout.ms": 6000} if group else {}
        (folder / "config").touch(0o600)
        (folder / "config").write_text(json.dumps({**self.broker.config(), **member}))
        command = [sys.executable, str(APP), role, str(folder), str(folder / "config")]
        env = [{"name": "KAFKA_TOPIC", "value": topic}]
        return self.shop.workload(kind, name, command, count, container={"env": env})

    def seen(self, name: str) -> list[tuple[str, int, str]]:
        """What an application has had acknowledged, or has processed, in order, over all its pods."""
        return seen(self.shop.home / name / "seen")

    def drain(self, group: str = "", topic: str = "") -> None:
        """The application does."""

    def moved(self) -> set[str]:
        """What differs after a migration: the topics, and nothing else."""
        return {f"{name} spec.template.spec.containers.0.env.0.value" for name in ("checkout", "ledger")}

    def goes_on(self) -> None:
        before = len(self.seen("ledger"))
        self.until(lambda: len(self.seen("ledger")) > before + 100, "the application goes on", 60)

    def proven(self) -> None:
        """Everything acknowledged was processed once, and each key in order, by the applications' own logs."""
        seen_now = self.shop.admin("GET", self.checkout, None)
        self.shop.admin("PUT", self.checkout, {**seen_now, "spec": {**seen_now["spec"], "replicas": 0}})
        self.until(lambda: self.shop.pods("checkout") == [], "the producer has ended", 30)
        sent = by_key(self.seen("checkout"))
        assert sent and all(numbers == list(range(len(numbers))) for numbers in sent.values())
        self.until(lambda: by_key(self.seen("ledger")) == sent, "all is processed once and in order", 30)


Migrate = Callable[..., Migration]


@pytest.fixture
def migrate(
    shop: Namespace, broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> Iterator[Migrate]:
    made: list[Migration] = []

    def make(**changes: Any) -> Migration:
        made.append(Migration(shop, broker, admin, topic_name(), **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("cutover", "of"),
    [("drain_first", ("Deployment", "StatefulSet")), ("producers_first", ("StatefulSet", "Deployment"))],
)
def test_workloads_are_moved_and_nothing_is_lost(migrate: Migrate, cutover: str, of: tuple[str, str]) -> None:
    """The consumers start at ``latest``: without their offsets they would skip what came before them."""
    w = migrate(cutover=cutover, of=of)
    w.advanced()
    assert w.shop.differs() == w.moved()
    w.goes_on()
    w.proven()
    assert {topic for _, _, topic in w.seen("ledger")} == {w.source, w.target}
    moments = [(e.data["name"], e.data["moment"]) for e in w.journal.events(w.claim.migration_id, ["participant"])]
    acts = ("stop", "point", "start")
    assert list(dict.fromkeys(moments)) == [(n, m) for n in ("checkout", "ledger") for m in acts]


def test_a_freeze_that_is_taken_back_leaves_every_field_as_it_was(migrate: Migrate) -> None:
    w = migrate()
    w.advanced(until=Step.STOP_PRODUCERS)
    assert w.shop.pods("checkout") == []
    w.advanced(wanted="resume")
    assert w.state(Row.FREEZE) == "undone" and w.shop.differs() == set()
    w.goes_on()
    w.proven()


@pytest.mark.long
def test_killed_before_and_after_every_write_on_every_way_every_field_is_as_it_must_be(migrate: Migrate) -> None:
    """A freeze that is taken back, the whole way there, and back with records in the target."""
    w = migrate()

    def kills(**how: Any) -> list[str]:
        return [effect.split()[1].partition("?")[0].rpartition("/")[2] for effect in w.reaper.driven(w, **how)]

    # Remembered, the autoscaler paused, scaled to 0; pointed; the autoscaler put back, scaled up.
    stop, start = 3, 2
    assert kills(until=Step.STOP_PRODUCERS) == ["checkout"] * stop
    assert kills(wanted="resume") == ["checkout"] * start
    assert w.shop.differs() == set()
    w.goes_on()
    assert kills() == ["checkout"] * (stop + 1 + start) + ["ledger"] * (stop + 1 + start)
    assert w.shop.differs() == w.moved()
    w.goes_on()
    assert kills(wanted="rollback") == ["checkout"] * (stop + 1 + start) + ["ledger"] * (stop + 1 + start)
    assert w.shop.differs() == set()
    w.goes_on()
    w.proven()


def test_a_rollback_after_the_switch_leaves_every_field_as_it_was_and_loses_nothing(migrate: Migrate) -> None:
    w = migrate()
    w.advanced()
    w.goes_on()
    w.advanced(wanted="rollback")
    assert w.shop.differs() == set()
    w.goes_on()
    w.proven()


def test_a_pod_that_does_not_end_is_no_stop_and_the_budget_puts_everything_back(migrate: Migrate) -> None:
    """Its replicas are 0 by then, and its process writes on."""
    w = migrate(freeze_budget="12s")
    w.shop.kubelet.holds = {"checkout-"}
    with pytest.raises(DrainTimedOut, match="producers are back on the source"):
        w.advance(patience_s=60)
    assert any("1 pod(s) are left: checkout-" in line for line in w.said)
    assert w.shop.differs() == set()
    w.goes_on()
    w.shop.kubelet.holds = set()
    w.until(lambda: len(w.shop.pods("checkout")) == 1, "the held pod ends", 60)
