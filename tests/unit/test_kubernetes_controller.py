"""The controller of kind ``kubernetes`` over an API server in memory: what it says, does, and never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kubernetes_contract import CONTRACT, Case, objects
from tests.unit.kubernetes_place import (
    GROUP,
    HPA,
    KEDA,
    MAP,
    SHOP,
    SOURCE,
    TARGET,
    Place,
    checkout,
    labelled,
    ledger,
    settings,
)

from topicshift.core.errors import AccessDenied, NotFound, Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.kafka.named import exchanged, names
from topicshift.core.kubernetes.workload import BEFORE, path_of, selector
from topicshift.ports import Participant
from topicshift.testing.fake_kubernetes import FakeApiServer, workload


@pytest.fixture
def place() -> Place:
    return Place()


class InMemory:
    """Where the contract runs on the server in memory."""

    namespace = SHOP

    def __init__(self, kind: str) -> None:
        self.ask, self.may_not = FakeApiServer(), FakeApiServer()
        self.ask.create(path_of(kind, SHOP, "it"), workload(kind, SOURCE, 2))
        for resource, one in objects(kind).items():
            group = "/apis/autoscaling/v2" if resource == "horizontalpodautoscalers" else "/api/v1"
            self.ask.create(f"{group}/namespaces/{SHOP}/{resource}/{one['metadata']['name']}", one)
        self.may_not.denied = {(verb, "pods") for verb in ("get", "list")}

    def until(self, holds: Any, what: str) -> Any:
        found = holds()
        assert found, what
        return found


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_server_in_memory_keeps_the_contract(case: Case, kind: str) -> None:
    case(InMemory(kind), kind)


# -------------------------------------------------------------------------------------------------------- acts


def test_there_and_back_every_field_is_as_before(place: Place) -> None:
    place.keda()
    place.scaler(HPA, minReplicas=1, maxReplicas=3, behavior={"scaleUp": {"selectPolicy": "Max"}})
    before = place.specs()
    place.to(TARGET)
    assert {d.rsplit("/", 1)[1] for d in place.differs(before)} == {
        "checkout ('spec', 'template', 'spec', 'containers', 0, 'env', 0, 'value')",
        "ledger ('spec', 'template', 'spec', 'containers', 0, 'env', 0, 'value')",
        "it ('spec', 'triggers', 1, 'metadata', 'topic')",
    }
    assert (place.state().status, place.state().topic) == ("running", TARGET)
    assert (place.state(ledger).status, place.state(ledger).topic) == ("running", TARGET)
    place.to(SOURCE)
    assert place.differs(before) == []
    assert (place.state().status, place.state(ledger).status) == ("running", "running")


def test_a_stop_that_is_taken_back_leaves_every_field_as_it_was(place: Place) -> None:
    place.keda()
    before = place.specs()
    place.controller.stop(place.ctx, [checkout, ledger])
    assert place.deployment["spec"]["replicas"] == 0 and BEFORE in place.deployment["metadata"]["annotations"]
    assert place.api.objects[KEDA]["metadata"]["annotations"] == {
        "a": "b",
        "autoscaling.keda.sh/paused": "true",
        "autoscaling.keda.sh/paused-replicas": "0",
    }
    for act in (lambda: place.controller.point(place.ctx, [checkout, ledger], SOURCE),):
        act()
    place.controller.start(place.ctx, [checkout, ledger])
    assert place.differs(before) == []


def test_an_autoscaler_that_was_paused_before_stays_paused(place: Place) -> None:
    place.keda()["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    before = place.specs()
    place.to(TARGET, checkout)
    place.to(SOURCE, checkout)
    assert place.differs(before) == []


def test_an_act_that_is_done_already_writes_nothing(place: Place) -> None:
    place.keda()
    asked: list[str] = []
    for act in (
        place.controller.stop,
        lambda c, p: place.controller.point(c, p, TARGET),
        place.controller.start,
        lambda c, p: place.controller.point(c, p, TARGET),
    ):
        act(place.ctx, [checkout, ledger])
        place.api.on_call = asked.append
        act(place.ctx, [checkout, ledger])
        place.api.on_call = lambda _: None
        assert asked and all(call.startswith("GET ") for call in asked)


def test_one_whose_pods_are_left_is_not_pointed_elsewhere(place: Place) -> None:
    with pytest.raises(Transient, match=r"checkout: .*once no pod of it is left: checkout-5d4"):
        place.controller.point(place.ctx, [checkout], TARGET)
    place.api.lingers = {"checkout"}
    place.controller.stop(place.ctx, [checkout])
    with pytest.raises(Transient, match=r"once no pod of it is left: .*\(it ends\)"):
        place.controller.point(place.ctx, [checkout], TARGET)
    assert place.deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == SOURCE


def test_writes_that_meet_somebody_elses_are_decided_anew(place: Place) -> None:
    place.api.conflicts = 3
    place.controller.stop(place.ctx, [checkout])
    assert place.deployment["spec"]["replicas"] == 0
    place.api.conflicts = 9
    with pytest.raises(Transient, match=r"checkout: .*HTTP 409"):
        place.controller.start(place.ctx, [checkout])
    place.api.conflicts = 0
    place.controller.start(place.ctx, [checkout])
    assert place.state().status == "running"


def test_replicas_that_change_at_the_same_moment_are_not_remembered_wrongly(place: Place) -> None:
    """An autoscaler scales it up between the look and the write."""
    scaled: list[int] = []

    def change(call: str) -> None:
        if call.startswith("PUT ") and not scaled and not call.endswith("answered"):
            scaled.append(1)
            place.deployment["spec"]["replicas"] = 3
            place.deployment["metadata"]["resourceVersion"] = "somebody"

    place.api.on_call = change
    with pytest.raises(Transient, match="somebody has changed it at this moment"):
        place.controller.stop(place.ctx, [checkout])
    place.controller.stop(place.ctx, [checkout])
    place.controller.start(place.ctx, [checkout])
    assert place.deployment["spec"]["replicas"] == 3


def test_what_cannot_be_put_back_is_named(place: Place) -> None:
    place.scaler(HPA, minReplicas=1, maxReplicas=3)
    place.keda()
    place.controller.stop(place.ctx, [checkout])
    del place.api.objects[HPA]
    place.api.objects[KEDA]["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "false"}
    place.controller.start(place.ctx, [checkout])
    assert [s["not put back"] for s in place.said if "not put back" in s] == [
        "HorizontalPodAutoscaler/it, which is gone",
        "ScaledObject/it, which somebody has changed",
    ]
    assert place.state().status == "running"


def test_a_topic_that_somebody_changed_is_left_alone_and_named(place: Place) -> None:
    place.controller.stop(place.ctx, [checkout])
    place.deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "orders"
    with pytest.raises(Transient, match=r"does not name payments once and alone.*put it right by hand"):
        place.controller.point(place.ctx, [checkout], TARGET)


def test_a_right_that_is_taken_away_half_way_names_the_participant(place: Place) -> None:
    place.controller.stop(place.ctx, [checkout])
    place.api.denied = {("update", "deployments")}
    with pytest.raises(AccessDenied, match=r"^checkout: PUT .*HTTP 403.*Nothing else of it is changed"):
        place.controller.point(place.ctx, [checkout], TARGET)
    place.api.denied = set()
    del place.api.objects[place.checkout_path]
    with pytest.raises(NotFound, match=r"^checkout: its API server knows no Deployment/checkout"):
        place.controller.start(place.ctx, [checkout])


def test_nothing_is_sent_once_the_time_of_the_act_is_over(place: Place) -> None:
    def over() -> None:
        raise Transient("held up")

    place.keda()
    before = place.specs()
    late = replace(place.ctx, still=over)
    with pytest.raises(Transient, match="held up"):
        place.controller.stop(late, [checkout, ledger])
    assert place.differs(before) == []
    place.controller.stop(place.ctx, [checkout, ledger])
    stopped = place.specs()
    for act in (lambda: place.controller.point(late, [ledger], TARGET), lambda: place.controller.start(late, [ledger])):
        with pytest.raises(Transient, match="held up"):
            act()
    assert place.differs(stopped) == []


def test_nothing_but_topics_and_numbers_is_said(place: Place) -> None:
    env = place.deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    env[0]["value"] = "password=canary topic=payments"
    place.api.reconcile()
    assert place.able() == ""
    place.to(TARGET, checkout)
    assert place.said and "canary" not in str(place.said)
    assert place.deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"].endswith(
        "topic=payments-v2"
    )


# ------------------------------------------------------------------------------------------------ other places


def test_a_topic_among_the_arguments_is_exchanged(place: Place) -> None:
    who = Participant("checkout", "producer", "kubernetes", settings=settings("checkout", topic_in="args"))
    container = place.deployment["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["run"], "args": ["--topic=payments", "--dlq=payments.dlq"]}
    place.api.reconcile()
    assert place.able(who) == ""
    place.to(TARGET, who)
    container = place.deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["--topic=payments-v2", "--dlq=payments.dlq"]
    container["args"].append("--also=payments")
    place.api.reconcile()
    assert "its arguments has to name payments once" in place.able(who)


def in_a_map(place: Place) -> Participant:
    place.api.create(MAP, {"data": {"app.properties": "topic=payments\nlevel=info\n", "other": "payments"}})
    spec = place.deployment["spec"]["template"]["spec"]
    spec["containers"][0]["envFrom"] = [{"configMapRef": {"name": "names"}}]
    place.api.reconcile()
    where = settings("checkout", topic_in="configmap:names/app.properties")
    return Participant("checkout", "producer", "kubernetes", settings=where)


def test_a_topic_in_a_config_map_is_exchanged_and_nothing_else_of_it(place: Place) -> None:
    who = in_a_map(place)
    assert place.able(who) == ""
    before = place.specs()
    place.to(TARGET, who)
    assert place.api.objects[MAP]["data"] == {"app.properties": "topic=payments-v2\nlevel=info\n", "other": "payments"}
    assert (place.state(who).status, place.state(who).topic) == ("running", TARGET)
    place.to(SOURCE, who)
    assert place.differs(before) == []


def test_a_config_map_that_cannot_be_changed_or_is_shared_is_refused(place: Place) -> None:
    who = in_a_map(place)
    place.api.objects[MAP]["immutable"] = True
    assert "ConfigMap names is immutable" in place.able(who)
    place.api.objects[MAP]["immutable"] = False
    volume = {"name": "v", "configMap": {"name": "names"}}
    place.stateful_set["spec"]["template"]["spec"]["volumes"] = [volume]
    place.api.reconcile()
    assert "ConfigMap names is read by other pods too: ledger-" in place.able(who)
    del place.api.objects[MAP]
    assert "knows no ConfigMap names in namespace shop" in place.able(who)


def test_a_trigger_that_names_the_target_already_could_not_be_put_back(place: Place) -> None:
    place.keda(TARGET)
    assert "a trigger of ScaledObject/it names payments-v2 already" in place.able()


def test_an_autoscaler_that_keda_made_and_one_of_others_are_left_alone(place: Place) -> None:
    made = place.scaler(HPA, minReplicas=1, maxReplicas=3)
    made["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "it", "controller": True}]
    other = place.scaler(f"{HPA}-other", minReplicas=1, maxReplicas=3)
    other["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    before = place.specs()
    place.controller.stop(place.ctx, [checkout])
    assert {d.split(" ")[0] for d in place.differs(before)} == {place.checkout_path}


# --------------------------------------------------------------------------------------------------- observing


def test_zero_replicas_are_no_evidence_while_a_pod_ends(place: Place) -> None:
    place.api.lingers = {"checkout", "ledger"}
    place.controller.stop(place.ctx, [checkout, ledger])
    assert place.deployment["status"]["replicas"] == 0
    assert place.state().status == "running" and "2 pod(s) are left: checkout-5d4" in place.state().reason
    assert place.state(ledger).status == "running"
    place.api.lingers = set()
    place.api.reconcile()
    assert (place.state().status, place.state().topic) == ("stopped", SOURCE)
    assert (place.state(ledger).status, place.state(ledger).topic) == ("stopped", SOURCE)


def test_a_controller_that_has_not_seen_the_zero_yet_may_still_start_pods(place: Place) -> None:
    place.controller.stop(place.ctx, [checkout])
    place.deployment["status"]["observedGeneration"] -= 1
    assert place.state().status == "running" and "has not seen that yet" in place.state().reason


def test_pods_that_have_ended_do_not_count(place: Place) -> None:
    """An evicted pod stays listed, and runs nothing."""
    place.api.lingers = {"checkout"}
    place.controller.stop(place.ctx, [checkout])
    for pod, phase in zip(place.api.pods(place.checkout_path), ("Failed", "Succeeded"), strict=True):
        pod["status"]["phase"] = phase
    assert place.state().status == "stopped"


def test_it_has_arrived_once_as_many_as_it_wants_are_ready_and_all_is_put_back(place: Place) -> None:
    place.scaler(HPA, minReplicas=1, maxReplicas=3)
    place.controller.stop(place.ctx, [checkout])
    place.controller.point(place.ctx, [checkout], TARGET)
    place.api.broken = {"checkout"}
    place.controller.start(place.ctx, [checkout])
    state = place.state()
    assert (state.status, state.topic) == ("unknown", TARGET) and "0 of 2 pods are ready" in state.reason
    assert "CrashLoopBackOff" in state.reason and "hush" not in state.reason
    place.api.broken = set()
    place.api.reconcile()
    assert place.state().status == "running"
    place.deployment["metadata"]["annotations"] = {BEFORE: '{"migration": "m", "replicas": 2, "scalers": {}}'}
    state = place.state()
    assert (state.status, state.topic) == ("running", None) and "is not put back yet" in state.reason


def test_pods_on_another_topic_than_it_is_pointed_to_show(place: Place) -> None:
    place.deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = TARGET
    state = place.state()
    assert (state.status, state.topic) == ("running", None)
    assert "its pods are on payments, and it is pointed to payments-v2" in state.reason


def test_what_a_group_reads_counts_whatever_its_pods_say(place: Place) -> None:
    place.controller.stop(place.ctx, [ledger])
    place.cluster.join(GROUP, GroupMember("other", "other", "h", assignment={SOURCE: (0,)}))
    state = place.state(ledger)
    assert (state.status, state.topic) == ("running", SOURCE) and "its pods are stopped" in state.reason
    place.cluster.leave(GROUP, "other")
    place.controller.point(place.ctx, [ledger], TARGET)
    place.controller.start(place.ctx, [ledger])
    for member in ("0", "1"):
        place.cluster.leave(GROUP, member)
    state = place.state(ledger)
    assert (state.status, state.topic) == ("unknown", TARGET) and "its group has no members" in state.reason


def test_a_group_with_a_pod_that_is_not_ready_can_be_stopped_on_the_source_and_has_not_arrived_on_the_target(
    place: Place,
) -> None:
    def break_one() -> None:
        pod = place.api.pods(place.ledger_path)[0]
        pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        place.changed()

    break_one()
    assert (place.state(ledger).status, place.state(ledger).topic) == ("running", SOURCE)
    place.api.broken = {"ledger"}
    place.api.reconcile()
    assert (place.state(ledger).status, place.state(ledger).topic) == ("running", SOURCE)
    assert "0 of 2 pods are ready" in place.state(ledger).reason
    place.api.broken = set()
    place.api.reconcile()
    place.to(TARGET, ledger)
    break_one()
    assert (place.state(ledger).status, place.state(ledger).topic) == ("unknown", TARGET)
    assert "1 of 2 pods are ready" in place.state(ledger).reason


def test_a_stop_that_was_begun_is_gone_on_with_also_while_its_group_has_no_members(place: Place) -> None:
    place.api.on_call = lambda call: place.api.denied.add(("update", "statefulsets")) if "answered" in call else None
    with pytest.raises(AccessDenied):
        place.controller.stop(place.ctx, [ledger])
    place.api.on_call = lambda _: None
    place.api.denied = set()
    for member in ("0", "1"):
        place.cluster.leave(GROUP, member)
    state = place.state(ledger)
    assert (state.status, state.topic) == ("running", SOURCE) and "is not put back yet" in state.reason


def test_a_rollout_is_scaled_up_once_its_new_template_is_promoted(place: Place) -> None:
    path = path_of("Rollout", SHOP, "canary")
    made = place.api.create(path, labelled("canary", "Rollout", 2, strategy={"canary": {}}))
    who = Participant("canary", "producer", "kubernetes", settings=settings("canary", "Rollout"))
    before = place.specs()
    place.api.held = {"canary"}
    place.controller.stop(place.ctx, [who])
    place.controller.point(place.ctx, [who], TARGET)
    with pytest.raises(Transient, match=r"canary: its new template is not promoted yet.*promote --full canary -n shop"):
        place.controller.start(place.ctx, [who])
    assert place.api.objects[path]["spec"]["replicas"] == 0 and made["spec"]["replicas"] == 2
    place.api.held = set()
    place.api.reconcile()
    place.controller.start(place.ctx, [who])
    assert (place.state(who).status, place.state(who).topic) == ("running", TARGET)
    place.to(SOURCE, who)
    assert place.differs(before) == []


# ----------------------------------------------------------------------------------------------------- words


@given(st.lists(st.sampled_from(["payments", "payments-eu", "my.payments", "payments.", "x", "="]), max_size=4))
def test_a_name_is_exchanged_and_exchanged_back(parts: list[str]) -> None:
    text = " ".join(parts)
    there = exchanged(text, SOURCE, TARGET)
    assert (there is not None) == (names(text, SOURCE) == 1)
    if there is not None:
        assert names(there, TARGET) == 1 and exchanged(there, TARGET, SOURCE) == text


def test_every_form_of_a_selector_is_written_as_the_api_takes_it() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["1"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    spec = {"selector": {"matchLabels": {"app": "it"}, "matchExpressions": expressions}}
    assert selector({"spec": spec}) == "app=it,a in (1,2),b notin (1),c,!d"
    with pytest.raises(ValueError, match="selects every pod"):
        selector({"spec": {"selector": {}}})
