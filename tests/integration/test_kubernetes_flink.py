"""FlinkDeployments at a real API server: their operator is played, their JobManager is in memory behind a service."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.flink_deployment_world import served, service
from tests.integration.kubernetes_players import FLINK, flink_operator, install, playing
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, ask_of, rules_of_the_page
from tests.unit.flink_deployment_place import deployment, told
from tests.unit.flink_place import GROUP, SOURCE, TARGET, words

from lab.kubernetes import ControlPlane
from lab.runfolder import ROOT
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.flink import FlinkController
from topicshift.adapters.rest import Ask
from topicshift.core.errors import AccessDenied, Transient
from topicshift.core.kubernetes.workload import BEFORE
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_flink import FakeJobManager
from topicshift.testing.fake_flink_operator import FakeFlinkOperator
from topicshift.testing.fakes import FakeCluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.kubernetes]
RESOURCE = "flink.apache.org/v1beta1/flinkdeployments"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("kubernetes")
    with ControlPlane(folder, ROOT / "build" / "cache" / "kubernetes", (USER, NOBODY)) as running:
        first = Namespace(running, "first", folder / "first", [])
        install(running.ask(), first.until, FLINK)
        first.close()
        yield running


class Place:
    """A FlinkDeployment that runs on the source, and the controller with the rights of the page."""

    def __init__(self, shop: Namespace, at: tuple[str, int], manager: FakeJobManager) -> None:
        self.shop, self.manager = shop, manager
        self.operator = FakeFlinkOperator(manager)
        service(shop, "scorer", *at)
        self.path = shop.create(RESOURCE, deployment("scorer"))
        settings = {**told("scorer"), "namespace": shop.namespace}
        self.who = Participant("scorer", "consumer", "flink", GROUP, None, settings, "none")
        self.cluster = FakeCluster()
        for name, partitions in ((SOURCE, 3), (TARGET, 6)):
            self.cluster.create_topic(name, partitions, 1, {})
            self.cluster.commit(GROUP, name, dict.fromkeys(range(partitions), 0))
        self.trail: list[dict[str, Any]] = []
        self.ctx = ControlContext(
            "m", SOURCE, TARGET, 1, say=lambda name, data: self.trail.append(dict(data)), told=lambda name: self.trail
        )
        self.use(shop.ask)

    def use(self, ask: Ask) -> None:
        """From now on the controller asks in this way."""
        self.controller = FlinkController(self.cluster, ask_of(ask), SystemClock())

    def state(self) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [self.who])
        return found

    def until(self, status: str, topic: str | None) -> None:
        self.shop.until(
            lambda: (self.state().status, self.state().topic) == (status, topic), f"{status} on {topic}: {self.state()}"
        )

    def able(self) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [self.who]))

    def ready(self) -> None:
        """Its operator has deployed it; what it is like now is what it is compared with."""
        self.shop.until(lambda: self.able() == "", f"it can be moved: {self.able()}")
        self.shop.keep(self.path)

    def act(self, name: str, *topic: str) -> None:
        self.shop.acted(lambda: getattr(self.controller, name)(self.ctx, [self.who], *topic), f"{name} {topic}")

    def to(self, topic: str) -> None:
        """Stopped, pointed and started, again until it has arrived."""
        self.act("stop")
        self.shop.until(lambda: self.state().status == "stopped", f"it stands: {self.state()}")
        self.act("point", topic)

        def arrived() -> bool:
            self.act("start")
            found = self.state()
            return (found.status, found.topic) == ("running", topic)

        self.shop.until(arrived, f"it runs on {topic}: {self.state()}")


@pytest.fixture
def place(plane: ControlPlane, tmp_path: Path) -> Iterator[Place]:
    shop = Namespace(plane, f"shop-{next(_numbers)}", tmp_path, rules_of_the_page("flink"))
    manager = FakeJobManager(words)
    try:
        with served(manager) as at:
            made = Place(shop, at, manager)
            with playing(flink_operator(plane.ask(), shop.namespace, made.operator)):
                made.ready()
                yield made
    finally:
        shop.close()


@pytest.mark.parametrize("older", [False, True])
def test_a_deployment_is_moved_there_and_back_with_the_rights_of_the_page(place: Place, older: bool) -> None:
    place.operator.older = older
    place.to(TARGET)
    assert place.shop.differs() == {"scorer spec.job.args.1", "scorer spec.job.args.2"}
    newest = list(place.manager.jobs.values())[-1]
    assert (newest.args, newest.reads) == (["scorer", "scorer-in-payments-v2", TARGET, "--all"], {TARGET})
    place.to(SOURCE)
    assert place.shop.differs() == set()
    assert [j.state for j in place.manager.jobs.values()] == ["FINISHED", "FINISHED", "RUNNING"]


def test_each_right_that_is_missing_is_named_and_nothing_is_touched(place: Place) -> None:
    place.use(place.shop.may_not)
    lines = place.able()
    for right in ("get flinkdeployments.flink.apache.org", "update flinkdeployments", "get services/proxy scorer-rest"):
        assert f"its connection may not {right}" in lines
    with pytest.raises(AccessDenied, match=r"^scorer: .*HTTP 403"):
        place.controller.stop(place.ctx, [place.who])
    assert place.shop.differs() == set()


def test_suspended_without_a_savepoint_in_the_status_is_no_success(place: Place) -> None:
    place.operator.blind = True
    place.act("stop")
    place.shop.until(lambda: "FlinkStateSnapshot scorer-savepoint-upgrade" in place.state().reason, "it is named")
    found = place.state()
    assert found.status == "unknown" and "has no savepoint that was taken since it was stopped" in found.reason
    for act in (lambda: place.controller.point(place.ctx, [place.who], TARGET), lambda: _start(place)):
        with pytest.raises(Transient, match=r"has no savepoint"):
            act()
    assert BEFORE in place.shop.get(place.path)["metadata"]["annotations"]


def _start(place: Place) -> None:
    place.controller.start(place.ctx, [place.who])


def test_a_stop_that_is_taken_back_while_the_savepoint_fails_leaves_every_field_as_before(place: Place) -> None:
    place.manager.saves = False
    place.act("stop")
    place.shop.until(lambda: "UpgradeFailureException" in place.state().reason, "its operator could not")
    assert place.state().status == "unknown"
    place.act("point", SOURCE)
    place.act("start")
    place.until("running", SOURCE)
    assert place.shop.differs() == set() and len(place.manager.jobs) == 1


def test_a_job_that_ignores_its_new_uid_is_seen_through_the_api_server(place: Place) -> None:
    place.to(TARGET)
    list(place.manager.jobs.values())[-1].uid = "scorer-in"
    assert "may read payments and payments-v2 together" in place.state().reason


def test_a_job_manager_that_cannot_be_reached_is_unknown(place: Place) -> None:
    place.to(TARGET)
    for path in ("v1/endpoints", "discovery.k8s.io/v1/endpointslices"):
        place.shop.admin("DELETE", place.shop.path(path, "scorer-rest"), None)
    place.shop.until(lambda: place.state().status == "unknown", f"it is unknown: {place.state()}")
    assert "services/scorer-rest:8081/proxy" in place.state().reason
