"""Plans against a real broker: what it answers becomes findings, and nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.route_world import CHECKOUT, RouteWorld

from lab.broker import EmbeddedBroker
from topicshift.acts.plan import make_plan
from topicshift.adapters.controllers import ControllerEnv, controller
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.core.kafka.cluster import Acl
from topicshift.core.plan.model import Plan
from topicshift.core.spec.io import spec_from_params
from topicshift.core.spec.model import Spec

pytestmark = pytest.mark.broker


def wanted(source: str, group: str, **changes: object) -> Spec:
    base = {
        "source": source,
        "partitions": 4,
        "producers": [{"name": "checkout", "principal": "User:checkout"}],
        "consumers": [{"name": "ledger", "group": group}],
    }
    return spec_from_params(base | changes)


NO_IMPACT = "these tests are about the rest"


def plan_of(spec: Spec, admin: KafkaAdmin, **more: Any) -> Plan:
    """The plan, with a look at who follows the route, as the command line and Airflow take it."""
    route = controller("route", ControllerEnv(admin.connection.config, admin))
    try:
        return make_plan(spec, admin, route=route, **more)
    finally:
        route.close()


def codes(plan: Plan) -> set[str]:
    return {f.code for f in plan.findings}


def _until(true: Callable[[], bool]) -> None:
    """ACLs reach the authorizer a moment after they are accepted."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "the rights did not show within 20 s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(broker.config()) as made:
        yield made


@pytest.fixture(scope="module")
def secured(secure_broker: EmbeddedBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(secure_broker.superuser_config()) as made:
        yield made


def test_a_plan_without_an_authorizer(admin: KafkaAdmin, topic_name: Callable[..., str]) -> None:
    source, group = topic_name(), topic_name("g")
    admin.create_topic(source, 2, 1, {"retention.ms": "86400000", "min.insync.replicas": "1"})
    admin.alter_commits(group, source, {0: 0, 1: 0})
    before = admin.topic_names()
    plan = plan_of(wanted(source, group), admin, no_impact=NO_IMPACT)
    assert plan.ok, str(plan)
    assert plan.spec.target == f"{source}-v2"
    assert plan.target is not None and plan.target.configs == {"min.insync.replicas": "1", "retention.ms": "86400000"}
    assert codes(plan) >= {"TS201", "TS401"}
    assert admin.topic_names() == before, "planning makes no topic, not even by asking for one"
    assert plan_of(wanted(source, group), admin, no_impact=NO_IMPACT).plan_hash == plan.plan_hash
    unmeasured = plan_of(wanted(source, group), admin)
    assert not unmeasured.ok and unmeasured.unknown
    assert [f.code for f in unmeasured.blocking()] == ["TS401"]


def test_bad_input_is_found(admin: KafkaAdmin, topic_name: Callable[..., str]) -> None:
    source, group, stray = topic_name("a_b"), topic_name("g"), topic_name("stray")
    admin.create_topic(source, 2, 1, {"cleanup.policy": "compact"})
    admin.alter_commits(stray, source, {0: 0})
    collide = source.replace("_", ".")
    plan = plan_of(
        wanted(source, group, partitions=2, replication_factor=9, target=collide), admin, no_impact=NO_IMPACT
    )
    assert codes(plan) >= {"TS104", "TS106", "TS111", "TS112", "TS301", "TS302"}, str(plan)
    assert not plan.ok and not plan.unknown
    assert "TS101" in codes(plan_of(wanted("no-such-topic", group), admin))


def test_rights_are_copied_and_missing_ones_are_named(
    secured: KafkaAdmin, secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    source, group = topic_name(), topic_name("g")
    secured.create_topic(source, 2, 1, {})
    secured.alter_commits(group, source, {0: 0, 1: 0})
    acls = [
        Acl("TOPIC", source, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW"),
        Acl("TOPIC", source, "LITERAL", "User:legacy", "*", "WRITE", "ALLOW"),
        Acl("TOPIC", source, "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
        Acl("TOPIC", source, "LITERAL", "User:topicshift", "*", "DESCRIBE", "ALLOW"),
        Acl("TOPIC", source, "LITERAL", "User:topicshift", "*", "DESCRIBE_CONFIGS", "ALLOW"),
    ]
    secured.create_acls(acls)
    try:
        _until(lambda: set(acls) <= secured.acls())
        plan = plan_of(wanted(source, group), secured, no_impact=NO_IMPACT)
        assert plan.ok and plan.target is not None, str(plan)
        assert {(a.principal, a.operation) for a in plan.target.acls} == {(a.principal, a.operation) for a in acls}
        assert any("DENY User:legacy WRITE" in a.text for a in plan.actions)
        assert [a.principal for a in plan.deny] == ["User:legacy"]
        assert [a.principal for a in plan.deny_after_switch] == ["User:*"]
        assert any(f.code == "TS307" and f.subject == "User:legacy" for f in plan.findings)
        with KafkaAdmin(secure_broker.config("topicshift")) as poor:
            blind = plan_of(wanted(source, group), poor)
        assert not blind.ok and blind.unknown
        assert codes(blind) >= {"TS501", "TS502"}, str(blind)
        missing = {f.subject: f.seen for f in blind.findings if f.code == "TS502"}
        assert "ALTER_CONFIGS, READ" in missing[f"topic {source}"]
        assert "ALTER" in missing["cluster"]
        assert "acls" in {f.subject for f in blind.findings if f.code == "TS501"}, "no rights is not: no ACLs"
        assert codes(blind) >= {"TS311", "TS313"}, "neither the list of groups nor the group itself could be read"
    finally:
        secured.delete_acls(acls)


def test_the_documented_rights_are_enough_to_plan(
    secured: KafkaAdmin, secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    """Those of the orchestrator on docs/least-privilege.md: the check of rights asks for no more than that."""
    source, group = topic_name(), topic_name("g")
    secured.create_topic(source, 2, 1, {})
    secured.alter_commits(group, source, {0: 0, 1: 0})
    me = "User:topicshift"
    rights = [
        ("CLUSTER", "kafka-cluster", ("DESCRIBE", "ALTER")),
        ("TOPIC", source, ("READ", "ALTER_CONFIGS")),
        ("TOPIC", f"{source}-v2", ("CREATE", "READ", "DESCRIBE_CONFIGS")),
        ("GROUP", "*", ("READ",)),
        ("TRANSACTIONAL_ID", "*", ("DESCRIBE",)),
        ("TOPIC", "__topicshift_routes", ("READ", "DESCRIBE_CONFIGS")),
        ("TOPIC", "__topicshift_acks", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
    ]
    acls = [Acl(kind, name, "LITERAL", me, "*", op, "ALLOW") for kind, name, ops in rights for op in ops]
    acls.append(Acl("TOPIC", source, "LITERAL", "User:checkout", "*", "WRITE", "ALLOW"))
    secured.create_acls(acls)
    try:
        with KafkaAdmin(secure_broker.config("topicshift")) as admin:
            _until(lambda: {"DESCRIBE", "ALTER"} <= (admin.cluster().authorized or frozenset()))
            _until(lambda: any(g.group == group for g in admin.groups()))
            plan = plan_of(wanted(source, group), admin, no_impact=NO_IMPACT)
        assert plan.ok, str(plan)
    finally:
        secured.delete_acls(acls)


def test_an_application_on_the_route_that_the_spec_does_not_name_blocks(
    broker: EmbeddedBroker, admin: KafkaAdmin, topic_name: Callable[..., str]
) -> None:
    world = RouteWorld(broker.config(), topic_name())
    producer = world.producer()
    admin.alter_commits(world.group, world.source, {0: 0, 1: 0, 2: 0})
    try:
        world.wait(CHECKOUT, "running", world.source)
        target = f"{world.source}-v3"  # the world makes v2 for itself
        other = [{"name": "billing", "principal": "User:billing"}]
        plan = plan_of(wanted(world.source, world.group, target=target, producers=other), admin, no_impact=NO_IMPACT)
        strays = [(f.subject, f.seen) for f in plan.blocking() if f.code == "TS317"]
        assert [who for who, _ in strays] == ["producer checkout"], str(plan)
        declared = wanted(world.source, world.group, target=target)
        plan = plan_of(declared, admin, no_impact=NO_IMPACT)
        assert "TS317" not in codes(plan) and plan.ok, str(plan)
        short = declared.model_copy(update={"freeze_budget": timedelta(seconds=30)})
        assert "TS323" in codes(plan_of(short, admin, no_impact=NO_IMPACT))
        nobody_looked = make_plan(declared, admin, no_impact=NO_IMPACT)
        assert nobody_looked.unknown and "TS317" in codes(nobody_looked)
    finally:
        producer.close()
        world.close()


def test_a_producer_that_the_brokers_know_by_another_name_blocks_by_name(
    secured: KafkaAdmin, topic_name: Callable[..., str]
) -> None:
    """Declared is what its log-in was called somewhere else; the broker has rights for `User:checkout`."""
    source, group = topic_name(), topic_name("g")
    secured.create_topic(source, 2, 1, {})
    secured.alter_commits(group, source, {0: 0, 1: 0})
    acls = [
        Acl("TOPIC", source, "PREFIXED", "User:checkout", "*", "WRITE", "ALLOW"),
        Acl("TOPIC", source, "LITERAL", "User:ledger", "*", "READ", "ALLOW"),
    ]
    secured.create_acls(acls)
    try:
        for guess in ("User:AKIAIOSFODNN7EXA", "User:Checkout"):
            plan = plan_of(
                wanted(source, group, producers=[{"name": "checkout", "principal": guess}]),
                secured,
                no_impact=NO_IMPACT,
            )
            assert [f.code for f in plan.blocking()] == ["TS314"], str(plan)
            assert guess in plan.blocking()[0].seen and "User:checkout" in plan.blocking()[0].do
            assert plan.deny == [], "the fence would have denied User:checkout, and outlived its lease"
        assert plan_of(wanted(source, group), secured, no_impact=NO_IMPACT).ok
        secured.delete_acls(acls[:1])
        nobody = plan_of(wanted(source, group), secured, no_impact=NO_IMPACT)
        assert nobody.unknown and [f.code for f in nobody.blocking()] == ["TS316"]
    finally:
        secured.delete_acls(acls)
