"""Flows of MirrorMaker 2 in a plan: which are named, and how sure that is."""

from __future__ import annotations

from typing import Any

from tests.unit.plan_world import flow, offsets, spec, world

from topicshift.core.findings import Level
from topicshift.core.kafka.mirror import Flow
from topicshift.core.plan.model import make_plan

MIRROR = {"name": "dr", "group": "mirror-dr", "kind": "connect", "stored_offsets": "none"}
DECLARED = MIRROR | {"settings": {"connector": "dr", "connection": "connect_dr", "mirror": True}}


def flows_found(*flows: Flow, **changes: Any) -> list[Any]:
    plan = make_plan(spec(**changes), world(flows=flows, unable=()))
    return [f for f in plan.findings if f.code == "TS329"]


def test_a_mirror_that_is_declared_and_those_of_other_topics_are_no_finding() -> None:
    assert flows_found(flow(), consumers=[DECLARED]) == []
    assert flows_found(flow(topics=("orders",)), flow(enabled=False), flow(exclude=("payments.*",))) == []
    assert flows_found(flow(kind="checkpoint", topics=("payments.*",))) == []
    (other,) = flows_found(flow(connector="second"), consumers=[DECLARED])
    assert other.subject == "connector second of connect_dr" and other.level is Level.ERROR


def test_whether_a_flow_copies_this_cluster_is_doubted_where_its_address_does_not_say() -> None:
    (found,) = flows_found(flow(bootstrap=("vip:9092",)))
    assert found.level is Level.WARNING and "cannot be told whether it copies this cluster" in found.why


def test_a_flow_that_copies_acls_would_copy_the_deny() -> None:
    (found,) = flows_found(flow())
    assert "the DENY of the freeze" in found.why and "sync.topic.acls.enabled" in found.do
    (quiet,) = flows_found(flow(copies_acls=False))
    assert "DENY" not in quiet.why


def test_records_that_a_mirror_lost_are_found_by_its_own_offsets() -> None:
    def levels(copied: int, **changes: Any) -> list[Level]:
        seen = world(copied={"mirror-dr": {0: copied}}, offsets=offsets(start=10), unable=())
        plan = make_plan(spec(consumers=[DECLARED], **changes), seen)
        return [f.level for f in plan.findings if f.code == "TS305"]

    assert levels(9) == [Level.ERROR] and levels(10) == []
    accepted = [{"group": "mirror-dr", "reason": "restored"}]
    assert levels(9, lost_records_accepted=accepted) == [Level.WARNING]
