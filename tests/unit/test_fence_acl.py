"""Which DENY belongs to a fence, and what the target inherits: pure decisions over ACLs and configs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.fence.acls import (
    Grant,
    RouteProducer,
    covers,
    deny_bindings,
    deny_write,
    grant,
    unsure,
    wide_deny,
)
from topicshift.core.kafka.cluster import Acl, ConfigEntry, TopicInfo
from topicshift.core.plan.target import target_acls, target_configs
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET = "payments", "payments-v2"


def allow(
    principal: str, name: str = SOURCE, pattern: str = "LITERAL", operation: str = "WRITE", permission: str = "ALLOW"
) -> Acl:
    return Acl("TOPIC", name, pattern, principal, "*", operation, permission)


def on_route(*principals: str) -> list[RouteProducer]:
    return [RouteProducer(p.partition(":")[2], p) for p in principals]


def denied(acls: set[Acl], *exempt: str) -> list[str]:
    return [a.principal for a in deny_bindings(acls, SOURCE, on_route(*exempt)).bindings]


def test_every_principal_that_may_write_is_denied() -> None:
    acls = {
        allow("User:literal"),
        allow("User:prefixed", "pay", "PREFIXED"),
        allow("User:wildcard", "*"),
        allow("User:all", operation="ALL"),
        allow("User:reader", operation="READ"),
        allow("User:other", "orders"),
        allow("User:longer", "payments-v2"),
        Acl("GROUP", SOURCE, "LITERAL", "User:group", "*", "ALL", "ALLOW"),
    }
    assert denied(acls) == ["User:all", "User:literal", "User:prefixed", "User:wildcard"]
    (first, *_) = deny_bindings(acls, SOURCE, []).bindings
    assert first == Acl("TOPIC", SOURCE, "LITERAL", "User:all", "*", "WRITE", "DENY")


def test_a_producer_on_the_route_is_never_denied_and_that_is_said() -> None:
    plan = deny_bindings({allow("User:checkout"), allow("User:legacy")}, SOURCE, on_route("User:checkout"))
    assert [a.principal for a in plan.bindings] == ["User:legacy"]
    assert any("User:checkout" in n and "lease" in n for n in plan.notes)


def test_anybody_is_denied_only_when_nobody_is_on_the_route() -> None:
    acls = {allow("User:*"), allow("User:legacy"), allow("User:checkout")}
    assert denied(acls) == ["User:*"]
    plan = deny_bindings(acls, SOURCE, on_route("User:checkout"))
    assert [a.principal for a in plan.bindings] == ["User:legacy"]
    assert any("User:*" in n and "still is the judge" in n for n in plan.notes)


def test_a_topic_that_no_binding_covers_gets_none() -> None:
    plan = deny_bindings({allow("User:other", "orders")}, SOURCE, [])
    assert plan.bindings == ()
    assert "take the right to read" in plan.notes[0]


def test_a_route_producer_without_a_known_principal_keeps_everybody_undenied() -> None:
    plan = deny_bindings({allow("User:legacy")}, SOURCE, [RouteProducer("checkout", None)])
    assert plan.bindings == ()
    assert "checkout" in plan.notes[0]
    assert "principal" in plan.notes[0]


@pytest.mark.parametrize(
    ("principal", "acl", "granted"),
    [
        ("User:a", allow("User:a"), Grant.BY_NAME),
        ("User:a", allow("User:a", operation="ALL"), Grant.BY_NAME),
        ("User:a", allow("User:a", "*"), Grant.BY_NAME),
        ("User:a", allow("User:a", "pay", "PREFIXED"), Grant.BY_NAME),
        ("User:a", replace(allow("User:a"), host="10.0.0.1"), Grant.BY_NAME),
        ("User:a", allow("User:*"), Grant.BY_EVERYBODY),
        ("Group:a", allow("User:*"), Grant.BY_EVERYBODY),
        ("User:a", allow("User:A"), Grant.NONE),
        ("User:a", allow("Group:a"), Grant.NONE),
        ("User:a", allow("User:a", operation="READ"), Grant.NONE),
        ("User:a", allow("User:a", "payments-v2"), Grant.NONE),
        ("User:a", allow("User:a", "*", "PREFIXED"), Grant.NONE),
        ("User:a", allow("User:a", permission="DENY"), Grant.DENIED),
        ("User:a", allow("User:*", permission="DENY"), Grant.DENIED),
    ],
)
def test_a_right_to_write_is_looked_up_as_the_broker_does(principal: str, acl: Acl, granted: Grant) -> None:
    """``tests/integration/test_principals_real.py`` asks a real broker the same."""
    others = {allow("User:someone-else")} | ({allow("User:a")} if granted is Grant.DENIED else set())
    assert grant({acl, *others}, SOURCE, principal) is granted


def test_a_producer_whose_name_the_brokers_do_not_know_keeps_everybody_undenied() -> None:
    """Its API key is declared; the brokers know the account, and a DENY of that would outlive the lease."""
    acls = {allow("User:sa-checkout"), allow("User:batch")}
    for guess in (RouteProducer("checkout", "User:AKIA7"), RouteProducer("checkout", None, ("User:AKIA7",))):
        assert unsure(acls, SOURCE, [guess]) == ["checkout"]
        assert deny_bindings(acls, SOURCE, [guess]).bindings == ()
    assert unsure({allow("User:*")}, SOURCE, on_route("User:checkout")) == ["checkout"]


def test_what_an_instance_reports_counts_where_nothing_is_declared_and_is_never_denied() -> None:
    acls = {allow("User:checkout"), allow("User:green"), allow("User:batch")}
    declared = RouteProducer("checkout", "User:checkout", ("User:green", "User:AKIAIOSFODNN7EXA"))
    for producers in ([declared], [declared, RouteProducer("billing", None, ("User:green",))]):
        assert unsure(acls, SOURCE, producers) == []
        assert [a.principal for a in deny_bindings(acls, SOURCE, producers).bindings] == ["User:batch"]


def test_nobody_is_denied_whom_no_person_has_accepted() -> None:
    plan = deny_bindings({allow("User:batch"), allow("User:new")}, SOURCE, [], [deny_write(SOURCE, "User:batch")])
    assert [a.principal for a in plan.bindings] == ["User:batch"]
    assert any("User:new may write since the plan was approved" in n for n in plan.notes)


@pytest.mark.parametrize(
    ("stranger", "exempt", "why"),
    [
        ("Group:writers", "User:checkout", "a Group"),
        ("User:CHECKOUT", "User:checkout", "upper and lower case"),
        ("User:123456", "User:checkout", "an id and no name"),
        ("User:sa-1a2b3c", "User:checkout", "an id and no name"),
        ("User:batch", "User:123456", "to which User:123456 belongs"),
    ],
)
def test_who_may_be_a_route_producer_by_another_name_is_not_denied(stranger: str, exempt: str, why: str) -> None:
    plan = deny_bindings({allow(exempt), allow(stranger), allow("User:*")}, SOURCE, on_route(exempt))
    assert plan.bindings == ()
    assert any(stranger in n and why in n for n in plan.notes)
    assert denied({allow(stranger)}) == [stranger], "without anybody on the route nobody can be hit by mistake"


def test_everybody_is_denied_after_the_switch_by_one_literal_binding() -> None:
    (only,) = wide_deny({allow("User:checkout")}, SOURCE).bindings
    assert only == Acl("TOPIC", SOURCE, "LITERAL", "User:*", "*", "WRITE", "DENY")
    assert wide_deny({allow("User:ledger", operation="READ")}, SOURCE).bindings == (only,)
    assert wide_deny({allow("User:checkout"), only}, SOURCE).bindings == ()


@pytest.mark.parametrize("acls", [set(), {allow("User:a", "orders")}, {allow("User:a", permission="DENY")}])
def test_no_first_acl_is_put_on_a_topic_for_the_time_after_the_switch(acls: set[Acl]) -> None:
    plan = wide_deny(acls, SOURCE)
    assert plan.bindings == () and "No ALLOW covers" in plan.notes[0]


def test_a_binding_that_was_there_before_is_not_ours() -> None:
    assert denied({allow("User:legacy"), deny_write(SOURCE, "User:legacy")}) == []


def test_super_users_are_named_as_undeniable() -> None:
    assert any("Super users" in n for n in deny_bindings({allow("User:legacy")}, SOURCE, []).notes)


names = st.sampled_from(["User:a", "User:b", "User:checkout", "User:*"])
bindings = st.builds(
    Acl,
    st.sampled_from(["TOPIC", "GROUP"]),
    st.sampled_from([SOURCE, "pay", "payments-", "orders", "*", TARGET]),
    st.sampled_from(["LITERAL", "PREFIXED"]),
    names,
    st.sampled_from(["*", "10.0.0.1"]),
    st.sampled_from(["READ", "WRITE", "ALL", "DESCRIBE", "UNKNOWN"]),
    st.sampled_from(["ALLOW", "DENY"]),
)


@given(st.sets(bindings, max_size=12), st.sets(st.sampled_from(["User:checkout", "User:a"])))
def test_after_the_deny_nobody_writes_but_the_exempt_and_removing_it_restores_the_set(
    acls: set[Acl], exempt: set[str]
) -> None:
    cluster = FakeCluster()
    cluster.create_acls(acls)
    before = {p: cluster.may(p, "WRITE", SOURCE) for p in ("User:a", "User:b", "User:checkout")}
    reads = {p: cluster.may(p, "READ", SOURCE) for p in before}
    plan = deny_bindings(cluster.acls(), SOURCE, on_route(*sorted(exempt)))
    cluster.create_acls(plan.bindings)
    open_to_all = any("no such deny is set" in n.lower() or "no DENY is set" in n for n in plan.notes)
    for principal, could in before.items():
        can = cluster.may(principal, "WRITE", SOURCE)
        if principal in exempt:
            assert can == could
        elif not open_to_all:
            assert not can
    assert {p: cluster.may(p, "READ", SOURCE) for p in before} == reads
    wide = wide_deny(cluster.acls(), SOURCE).bindings
    cluster.create_acls(wide)
    assert not any(cluster.may(p, "WRITE", SOURCE) for p in before)
    assert {p: cluster.may(p, "READ", SOURCE) for p in before} == reads
    cluster.delete_acls(wide)
    assert all(a.operation == "WRITE" and a.permission == "DENY" and a.name == SOURCE for a in plan.bindings)
    cluster.delete_acls(plan.bindings)
    assert cluster.acls() == acls


# ------------------------------------------------------------------------------------------------ the target


def test_rights_are_made_again_for_the_target() -> None:
    acls = {
        allow("User:checkout"),
        allow("User:ledger", operation="READ"),
        allow("User:rogue", permission="DENY"),
        allow("User:prefixed", "payments", "PREFIXED"),
        allow("User:wildcard", "*"),
        allow("User:narrow", "payment", "PREFIXED"),
        allow("User:other", "orders"),
    }
    found = target_acls(acls, SOURCE, TARGET)
    assert set(found.acls) == {
        allow("User:checkout", TARGET),
        allow("User:ledger", TARGET, operation="READ"),
        allow("User:rogue", TARGET, permission="DENY"),
    }


def test_a_prefix_that_covers_the_source_alone_becomes_a_literal_binding() -> None:
    found = target_acls({allow("User:checkout", "pay", "PREFIXED")}, SOURCE, "orders")
    assert found.acls == (allow("User:checkout", "orders"),)


def test_the_fences_own_deny_is_never_copied() -> None:
    own = deny_write(SOURCE, "User:legacy")
    assert target_acls({allow("User:legacy"), own}, SOURCE, TARGET, own=[own]).acls == (allow("User:legacy", TARGET),)


def test_what_the_target_has_already_is_left_out() -> None:
    acls = {allow("User:checkout"), allow("User:checkout", TARGET)}
    assert target_acls(acls, SOURCE, TARGET).acls == ()


def test_an_operation_that_the_client_does_not_know_is_said() -> None:
    found = target_acls({allow("User:checkout", operation="UNKNOWN")}, SOURCE, TARGET)
    assert found.acls == ()
    assert "User:checkout" in found.notes[0]


@given(st.sets(bindings, max_size=12))
def test_everybody_may_do_on_the_target_what_he_may_do_on_the_source(acls: set[Acl]) -> None:
    known = {a for a in acls if a.operation != "UNKNOWN" and not (covers(a, "TOPIC", TARGET) and a.name == TARGET)}
    known = {a for a in known if covers(a, "TOPIC", SOURCE) or not covers(a, "TOPIC", TARGET)}
    cluster = FakeCluster()
    cluster.create_acls(known)
    cluster.create_acls(target_acls(known, SOURCE, TARGET).acls)
    for principal in ("User:a", "User:b", "User:checkout", "User:stranger"):
        for operation in ("READ", "WRITE", "DESCRIBE"):
            assert cluster.may(principal, operation, TARGET) == cluster.may(principal, operation, SOURCE)


def topic(*entries: ConfigEntry) -> TopicInfo:
    one = {0: (1,)}
    return TopicInfo(SOURCE, "id", one, one, {0: 1}, {e.name: e for e in entries})


def test_only_what_was_set_on_the_source_is_copied() -> None:
    found = target_configs(
        topic(
            ConfigEntry("retention.ms", "3600000", True),
            ConfigEntry("cleanup.policy", "delete", False),
            ConfigEntry("leader.replication.throttled.replicas", "0:1", True),
            ConfigEntry("secret.thing", None, True, True),
        )
    )
    assert found.configs == {"retention.ms": "3600000"}
    assert [n.split()[0] for n in found.notes] == ["leader.replication.throttled.replicas", "secret.thing"]


@pytest.mark.parametrize(
    ("pattern", "name", "yes"),
    [("LITERAL", SOURCE, True), ("LITERAL", "*", True), ("PREFIXED", "pay", True), ("PREFIXED", "*", False)],
)
def test_which_patterns_cover_a_topic(pattern: str, name: str, yes: bool) -> None:
    assert covers(allow("User:a", name, pattern), "TOPIC", SOURCE) is yes
