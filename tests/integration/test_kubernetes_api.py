"""Kind ``kubernetes`` on a real API server and its controllers; pods are local processes, Kafka is not asked."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.kubernetes_players import gitops, install, keda, playing, rollouts
from tests.integration.kubernetes_world import NOBODY, USER, Namespace, ask_of, path_of, rules_of_the_page
from tests.unit.kubernetes_contract import CONTRACT, Case, objects

from lab.kubernetes import ControlPlane
from lab.runfolder import ROOT
from topicshift.adapters.clock import SystemClock
from topicshift.adapters.controllers.kubernetes import KubernetesController
from topicshift.adapters.rest import Ask, asker, endpoint
from topicshift.core.errors import AccessDenied, Transient, Unreadable
from topicshift.core.kubernetes import owners
from topicshift.core.kubernetes.workload import BEFORE
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fakes import FakeCluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.kubernetes]
SOURCE, TARGET = "payments", "payments-v2"
RULES = rules_of_the_page()
SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("kubernetes")
    with ControlPlane(folder, ROOT / "build" / "cache" / "kubernetes", (USER, NOBODY)) as running:
        yield running


@pytest.fixture
def shop(plane: ControlPlane, tmp_path: Path) -> Iterator[Namespace]:
    made = Namespace(plane, f"shop-{next(_numbers)}", tmp_path, RULES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def others(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> None:
    """KEDA's, Argo CD's and Flux's kinds are known."""
    home = tmp_path_factory.mktemp("others")
    first = Namespace(plane, "others", home, RULES)
    install(plane.ask(), first.until)
    first.close()


class Place:
    """A workload of a namespace, and the controller that asks with the rights of the page."""

    def __init__(
        self, shop: Namespace, kind: str = "Deployment", count: int = 2, ask: Ask | None = None, **spec: Any
    ) -> None:
        self.shop, self.kind = shop, kind
        env = [{"name": "KAFKA_TOPIC", "value": SOURCE}]
        self.path = shop.workload(kind, "checkout", SLEEPS, count, container={"env": env}, **spec)
        self.count = count
        self.who = Participant("checkout", "producer", "kubernetes", settings=self.settings())
        self.use(ask or shop.ask)
        self.said: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=lambda name, data: self.said.append(dict(data)))
        shop.until(lambda: shop.ready("checkout") == count, "its pods are ready")

    def use(self, ask: Ask) -> None:
        """From now on the controller asks in this way."""
        self.controller = KubernetesController(FakeCluster(), ask_of(ask), SystemClock())

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "workload": f"{self.kind}/checkout",
            "namespace": self.shop.namespace,
            "topic_in": "env:KAFKA_TOPIC",
            **more,
        }

    def state(self) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [self.who])
        return found

    def able(self) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [self.who]))

    def ready(self) -> None:
        """The API server and its controllers have settled, so that it can be moved."""
        self.shop.until(lambda: self.able() == "", f"it can be moved: {self.able()}")

    def until(self, status: str, topic: str | None) -> None:
        self.shop.until(
            lambda: (self.state().status, self.state().topic) == (status, topic), f"{status} on {topic}: {self.state()}"
        )

    def act(self, name: str, topic: str = "") -> None:
        more = [topic] if topic else []
        self.shop.acted(lambda: getattr(self.controller, name)(self.ctx, [self.who], *more), f"{name} {topic}")

    def to(self, topic: str) -> None:
        self.act("stop")
        self.until("stopped", TARGET if topic == SOURCE else SOURCE)
        self.act("point", topic)
        self.act("start")
        self.until("running", topic)


# ---------------------------------------------------------------------------------------------------- contract


class Real:
    """Where the contract runs on the real server."""

    def __init__(self, shop: Namespace, kind: str) -> None:
        self.namespace, self.until = shop.namespace, shop.until
        self.ask, self.may_not = shop.admin, shop.may_not
        labels = {"app": "it"}
        app = {"name": "app", "image": "none", "command": SLEEPS, "env": [{"name": "KAFKA_TOPIC", "value": SOURCE}]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [app]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        if kind == "StatefulSet":
            spec["serviceName"] = "it"
        made = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "it"}, "spec": spec}
        shop.create(f"apps/v1/{kind.lower()}s", made)
        for resource, one in objects(kind).items():
            version = "autoscaling/v2" if resource == "horizontalpodautoscalers" else "v1"
            shop.create(f"{version}/{resource}", one)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_a_real_server_keeps_the_contract(case: Case, kind: str, shop: Namespace) -> None:
    case(Real(shop, kind), kind)


# ---------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_there_and_back_every_field_is_as_before(shop: Namespace, kind: str) -> None:
    p = Place(shop, kind)
    scaler = shop.autoscaler(kind, "checkout", minReplicas=2, maxReplicas=4)
    p.ready()
    shop.keep(p.path, scaler)
    names = {pod["metadata"]["uid"] for pod in shop.pods("checkout")}
    p.to(TARGET)
    assert shop.differs() == {"checkout spec.template.spec.containers.0.env.0.value"}
    assert not names & {pod["metadata"]["uid"] for pod in shop.pods("checkout")}
    p.to(SOURCE)
    assert shop.differs() == set()
    assert not [s for s in p.said if "differs" in s or "not put back" in s]


def test_a_pod_that_ends_slowly_is_waited_for(shop: Namespace) -> None:
    p = Place(shop)
    p.ready()
    shop.kubelet.holds = {"checkout-"}
    p.act("stop")
    shop.until(lambda: shop.get(p.path)["status"].get("replicas", 0) == 0, "the controller counts no pod any more")
    state = p.state()
    assert (state.status, state.topic) == ("running", None) and "2 pod(s) are left" in state.reason
    assert len(shop.kubelet.processes()) == 2
    with pytest.raises(Transient, match="once no pod of it is left"):
        p.controller.point(p.ctx, [p.who], TARGET)
    shop.kubelet.holds = set()
    p.until("stopped", SOURCE)
    assert shop.kubelet.processes() == []


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_that_never_become_ready_are_named_and_the_way_back_is_open(shop: Namespace, kind: str) -> None:
    """An ordered StatefulSet would wait for its broken pod; it is scaled to 0 first."""
    code = "import os, sys, time; os.environ['KAFKA_TOPIC'] == 'payments' or sys.exit(1); time.sleep(3600)"
    env = [{"name": "KAFKA_TOPIC", "value": SOURCE}]
    p = Place.__new__(Place)
    p.__dict__.update(shop=shop, kind=kind, count=2, said=[])
    p.path = shop.workload(kind, "checkout", [sys.executable, "-S", "-c", code], 2, container={"env": env})
    p.who = Participant("checkout", "producer", "kubernetes", settings=p.settings())
    p.use(shop.ask)
    p.ctx = ControlContext("m", SOURCE, TARGET, 1)
    p.ready()
    shop.keep(p.path)
    p.act("stop")
    p.until("stopped", SOURCE)
    p.act("point", TARGET)
    p.act("start")
    shop.until(lambda: "CrashLoopBackOff" in p.state().reason, "its pods end again and again")
    assert (p.state().status, p.state().topic) == ("unknown", TARGET)
    p.act("stop")
    p.until("stopped", TARGET)
    p.act("point", SOURCE)
    p.act("start")
    p.until("running", SOURCE)
    assert shop.differs() == set()


@pytest.mark.parametrize("where", ["args", "configmap"])
def test_arguments_and_config_maps_reach_the_processes(shop: Namespace, tmp_path: Path, where: str) -> None:
    told = tmp_path / "told"
    code = f"import os, sys, time; open({str(told)!r}, 'a').write(sys.argv[1] + os.environ.get('TOPIC', '') + '\\n')"
    command = [sys.executable, "-S", "-c", f"{code}; time.sleep(3600)"]
    config = shop.create("v1/configmaps", {"metadata": {"name": "names"}, "data": {"topic": SOURCE, "a": "b"}})
    if where == "args":
        container: dict[str, Any] = {"args": [f"--topic={SOURCE}"]}
        topic_in = "args"
    else:
        ref = {"valueFrom": {"configMapKeyRef": {"name": "names", "key": "topic"}}}
        container, topic_in = {"args": ["--topic="], "env": [{"name": "TOPIC", **ref}]}, "configmap:names/topic"
    p = Place.__new__(Place)
    p.__dict__.update(shop=shop, kind="Deployment", count=1, said=[])
    p.path = shop.workload("Deployment", "checkout", command, 1, container=container)
    p.who = Participant("checkout", "producer", "kubernetes", settings=p.settings(topic_in=topic_in))
    p.use(shop.ask)
    p.ctx = ControlContext("m", SOURCE, TARGET, 1)
    p.ready()
    shop.keep(p.path, config)
    p.to(TARGET)
    p.to(SOURCE)
    assert shop.differs() == set()
    shop.until(lambda: len(told.read_text().splitlines()) == 3, "the third process has said its topic")
    assert told.read_text().splitlines() == [f"--topic={t}" for t in (SOURCE, TARGET, SOURCE)]


# --------------------------------------------------------------------------------------------------- autoscalers


def test_an_autoscaler_does_not_scale_from_zero_and_keeps_its_minimum_again_afterwards(shop: Namespace) -> None:
    """By the real controller: below its minimum it scales up, at 0 it does not."""
    p = Place(shop, count=1)
    scaler = shop.autoscaler("Deployment", "checkout", minReplicas=2, maxReplicas=4)
    shop.until(lambda: shop.ready("checkout") == 2, "the autoscaler raises it to its minimum")
    p.ready()
    shop.keep(p.path, scaler)
    p.act("stop")
    p.until("stopped", SOURCE)

    def off() -> bool:
        conditions = shop.get(scaler)["status"].get("conditions") or ()
        return any(c["type"] == "ScalingActive" and c["reason"] == "ScalingDisabled" for c in conditions)

    shop.until(off, "the autoscaler has seen 0 and leaves it alone")
    assert shop.get(p.path)["spec"]["replicas"] == 0
    p.act("point", SOURCE)
    p.act("start")
    p.until("running", SOURCE)
    assert shop.differs() == set()


def test_keda_holds_zero_and_is_put_back(others: None, shop: Namespace) -> None:
    p = Place(shop)
    ref, trigger = {"name": "checkout"}, {"type": "kafka", "metadata": {"topic": SOURCE, "consumerGroup": "g"}}
    spec = {"scaleTargetRef": ref, "minReplicaCount": 2, "triggers": [trigger]}
    thing = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "it"}, "spec": spec}
    scaled = shop.create("keda.sh/v1alpha1/scaledobjects", thing)
    with playing(keda(shop.admin, shop.namespace)):
        p.ready()
        shop.keep(p.path, scaled)
        p.to(TARGET)
        assert shop.differs() == {
            "checkout spec.template.spec.containers.0.env.0.value",
            "it spec.triggers.0.metadata.topic",
        }
        p.to(SOURCE)
    assert shop.differs() == set()


def test_without_both_annotations_keda_would_scale_it_up(others: None, shop: Namespace) -> None:
    """The script of KEDA can be told from one that does nothing."""
    p = Place(shop)
    spec = {"scaleTargetRef": {"name": "checkout"}, "minReplicaCount": 3, "triggers": []}
    thing = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "it"}, "spec": spec}
    shop.create("keda.sh/v1alpha1/scaledobjects", thing)
    with playing(keda(shop.admin, shop.namespace)):
        shop.until(lambda: shop.ready("checkout") == 3, "KEDA raises it to its minimum")
    assert p.count == 2


# ------------------------------------------------------------------------------------------------------ rollouts


def test_a_rollout_is_moved_there_and_back(others: None, shop: Namespace) -> None:
    held = set[str]()
    with playing(rollouts(shop.admin, shop.namespace, held)):
        p = Place(shop, "Rollout", strategy={"canary": {"steps": [{"setWeight": 20}]}})
        p.ready()
        shop.keep(p.path)
        p.to(TARGET)
        assert shop.differs() == {"checkout spec.template.spec.containers.0.env.0.value"}
        p.to(SOURCE)
        assert shop.differs() == set()


def test_a_rollout_that_is_not_promoted_starts_no_pod_of_its_old_template(others: None, shop: Namespace) -> None:
    held = set[str]()
    with playing(rollouts(shop.admin, shop.namespace, held)):
        p = Place(shop, "Rollout", strategy={"canary": {}})
        p.ready()
        held.add("checkout")
        p.act("stop")
        p.until("stopped", SOURCE)
        p.act("point", TARGET)
        shop.until(lambda: shop.get(p.path)["status"]["phase"] == "Paused", "it stays at a step")
        with pytest.raises(Transient, match=r"not promoted yet.*promote --full checkout"):
            p.controller.start(p.ctx, [p.who])
        assert shop.get(p.path)["spec"]["replicas"] == 0 and shop.pods("checkout") == []
        held.clear()
        p.act("start")
        p.until("running", TARGET)


# -------------------------------------------------------------------------------------------------------- owners


def test_flux_is_refused_while_it_is_awake_and_waited_for_where_it_wakes_up(
    others: None, shop: Namespace, plane: ControlPlane
) -> None:
    p = Place(shop)
    group = "kustomize.toolkit.fluxcd.io"
    labels = {f"{group}/name": "shop", f"{group}/namespace": shop.namespace}
    body = {"apiVersion": f"{group}/v1", "kind": "Kustomization", "metadata": {"name": "shop"}, "spec": {}}
    flux = shop.create(f"{group}/v1/kustomizations", body)
    written(shop, p.path, lambda o: {**o, "metadata": {**o["metadata"], "labels": labels}})
    assert "may not get kustomizations" in p.able()
    allowed(shop, group, "kustomizations")
    shop.until(lambda: "which is not paused" in p.able(), "the right is known")
    assert f"flux suspend kustomization shop -n {shop.namespace}" in p.able()

    def awake() -> bool:
        return not shop.get(flux)["spec"].get("suspend")

    with playing(gitops(shop.admin, p.path, awake)):
        p.controller.stop(p.ctx, [p.who])
        shop.until(lambda: shop.get(p.path)["spec"]["replicas"] == 2, "Flux puts the replicas back")
        assert p.state().status == "running"
        p.act("start")
        written(shop, flux, lambda o: {**o, "spec": {"suspend": True}})
        p.ready()
        p.to(TARGET)


def test_argo_cd_is_refused_while_it_heals(others: None, shop: Namespace, plane: ControlPlane) -> None:
    p = Place(shop)
    argocd = "argocd"
    with_namespace(plane, argocd)
    name = shop.namespace
    policy = {"syncPolicy": {"automated": {"selfHeal": True}}}
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name}, "spec": policy}
    root = f"/apis/argoproj.io/v1alpha1/namespaces/{argocd}/applications"
    plane.ask()("POST", root, body)
    note = {owners.TRACKED: f"{name}:apps/Deployment:{name}/checkout"}
    written(shop, p.path, lambda o: {**o, "metadata": {**o["metadata"], "annotations": note}})
    allowed(shop, "argoproj.io", "applications", argocd)
    shop.until(lambda: f"Argo CD Application {name}, which is not paused" in p.able(), "the right is known")
    assert f"argocd app set {name} --sync-policy none" in p.able()
    written(shop, f"{root}/{name}", lambda o: {**o, "spec": {"syncPolicy": {}}})
    assert p.able() == ""


def written(shop: Namespace, path: str, alter: Callable[[Any], Any]) -> None:
    def tried() -> bool:
        try:
            shop.admin("PUT", path, alter(shop.get(path)))
        except Transient:
            return False
        return True

    shop.until(tried, f"{path} is written")


def with_namespace(plane: ControlPlane, name: str) -> None:
    plane.ask()("POST", "/api/v1/namespaces", {"metadata": {"name": name}})


def allowed(shop: Namespace, group: str, resource: str, namespace: str = "") -> None:
    """The user may get these objects there."""
    rbac = "rbac.authorization.k8s.io"
    root = f"/apis/{rbac}/v1/namespaces/{namespace or shop.namespace}"
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get"]}
    name = f"see-{resource}"
    shop.admin("POST", f"{root}/roles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "User", "name": USER, "apiGroup": rbac}
    role = {"kind": "Role", "name": name, "apiGroup": rbac}
    shop.admin("POST", f"{root}/rolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})


# -------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("rule", range(len(RULES)))
def test_each_right_of_the_page_is_needed(others: None, plane: ControlPlane, tmp_path: Path, rule: int) -> None:
    """With all of them it can be moved, as other tests show; without one, ``can_i`` names it."""
    rules = [r for n, r in enumerate(RULES) if n != rule]
    shop = Namespace(plane, f"shop-{next(_numbers)}", tmp_path, rules)
    try:
        p = Place(shop)
        shop.create("v1/configmaps", {"metadata": {"name": "names"}, "data": {"topic": SOURCE}})
        more = {"workload": "Rollout/checkout"} if "rollouts" in RULES[rule]["resources"] else {}
        p.who = replace(p.who, settings=p.settings(topic_in="configmap:names/topic", **more))
        missing = {(verb, resource) for resource in RULES[rule]["resources"][:1] for verb in RULES[rule]["verbs"]}
        text = p.able()
        assert all(f"its connection may not {verb} {resource}" in text for verb, resource in missing), text
    finally:
        shop.close()


class Killed(BaseException):
    """The process ended here."""


def dying(ask: Ask, at: int, after: bool) -> Ask:
    """Asks, and ends before or after the write of this number, counted from 0."""
    left = [at]

    def asked(method: str, path: str, body: Any = None) -> Any:
        if method == "PUT":
            left[0] -= 1
            if left[0] == -1 and not after:
                raise Killed
        found = ask(method, path, body)
        if method == "PUT" and left[0] == -1:
            raise Killed
        return found

    return asked


ACTS: list[tuple[str, str, str, str | None]] = [
    ("stop", "", "stopped", SOURCE),
    ("point", TARGET, "stopped", TARGET),
    ("start", "", "running", TARGET),
]
BACK: list[tuple[str, str, str, str | None]] = [
    ("stop", "", "stopped", TARGET),
    ("point", SOURCE, "stopped", SOURCE),
    ("start", "", "running", SOURCE),
]


def test_killed_before_and_after_each_write_another_process_goes_on_and_every_field_is_as_before(
    shop: Namespace,
) -> None:
    p = Place(shop, count=1)
    scaler = shop.autoscaler("Deployment", "checkout", minReplicas=1, maxReplicas=4)
    p.ready()
    shop.keep(p.path, scaler)
    deaths = 0
    for number, after in itertools.product(range(3), (False, True)):
        for name, topic, status, on in [*ACTS, *BACK]:
            p.use(dying(shop.ask, number, after))
            try:
                p.act(name, topic)
            except Killed:
                deaths += 1
            p.use(shop.ask)
            p.act(name, topic)
            p.until(status, on)
            if name == "start" and on == TARGET:
                assert shop.differs() == {"checkout spec.template.spec.containers.0.env.0.value"}
        assert shop.differs() == set(), (number, after)
    # A stop writes three times, a point once, a start twice.
    assert deaths == 2 * 2 * (3 + 1 + 2)


def test_an_api_server_that_dies_half_way_leaves_what_was_remembered(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "plane", ROOT / "build" / "cache" / "kubernetes", (USER, NOBODY)) as plane:
        shop = Namespace(plane, "shop", tmp_path, RULES)
        try:
            p = Place(shop)
            p.ready()
            shop.keep(p.path)
            p.act("stop")
            p.until("stopped", SOURCE)
            plane.kill("kube-apiserver")
            state = p.state()
            assert state.status == "unknown" and "no answer" in state.reason
            with pytest.raises(Unreadable, match=r"checkout: .*no answer"):
                p.controller.can_i(p.ctx, [p.who])
            for act in (p.controller.stop, p.controller.start):
                with pytest.raises(Transient, match=r"checkout: .*no answer"):
                    act(p.ctx, [p.who])
            plane.revive("kube-apiserver")
            assert BEFORE in shop.get(p.path)["metadata"]["annotations"]
            p.act("point", SOURCE)
            p.act("start")
            p.until("running", SOURCE)
            assert shop.differs() == set()
        finally:
            shop.close()


def test_a_connection_that_names_a_kubeconfig_reaches_it_and_shows_no_token(
    shop: Namespace, plane: ControlPlane
) -> None:
    path = plane.kubeconfig(USER)
    found = endpoint("shop", {"conn_type": "kubernetes", "extra": {"kube_config_path": str(path)}})
    p = Place(shop, ask=asker(found))
    p.ready()
    with pytest.raises(AccessDenied) as error:
        asker(found)("GET", "/api/v1/secrets", None)
    token = found.password
    assert token and token not in str(error.value) and token not in repr(found) and token not in str(p.said)
    assert path_of("Deployment", shop.namespace, "checkout") == p.path
