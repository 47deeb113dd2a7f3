"""The plan: resolved, printable, hashed over what an approver accepts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.impact_sample import impact, unkeyed
from tests.unit.plan_world import ACLS, IMPACT, commits, group, listing, offsets, spec, topic, world

from topicshift.core.checks.snapshot import OtherMigration, Snapshot
from topicshift.core.impact.findings import findings
from topicshift.core.impact.report import GroupImpact, Overtaken
from topicshift.core.kafka.cluster import Acl, TopicInfo
from topicshift.core.plan import model
from topicshift.core.plan.model import Plan, make_plan, resolve_target
from topicshift.core.sizing.choice import choose
from topicshift.reporting.markdown import plan_markdown


def test_the_target_defaults_to_the_next_free_version() -> None:
    plan = make_plan(spec(target=None), world(topics=frozenset({"payments", "payments-v2", "payments-v3"})))
    assert plan.spec.target == "payments-v4"
    dotted = make_plan(spec(source="pay.ments", target=None), world(topics=frozenset({"pay.ments", "pay_ments-v2"})))
    assert dotted.spec.target == "pay.ments-v3"
    claimed = (OtherMigration("x", "payments-v2", "other"),)
    assert make_plan(spec(target=None), world(migrations=claimed)).spec.target == "payments-v3"
    assert resolve_target(spec(target=None, source="a-v7"), frozenset({"a-v7"})) == "a-v8"


def test_the_sizing_block_becomes_a_number() -> None:
    plan = make_plan(spec(partitions={"throughput": 100000, "per_consumer": 5000}), world())
    assert plan.spec.partitions == 30
    assert plan.sizing is not None and plan.sizing.minimum == 25
    assert plan.target is not None and plan.target.partitions == 30
    for text in (str(plan), plan_markdown(plan, None, "")):
        for words in ("with 25% headroom at least 25", "Runner-up: 36", "2 x brokers x cores: the cores"):
            assert words in text
    plain = make_plan(spec(), world())
    assert "Runner-up" not in str(plain)
    assert "not checked       2 x brokers x cores: the cores of a broker are not known." in str(plain)
    assert "Not checked: 2 x brokers" in plan_markdown(plain, None, "")
    assert "not checked    " not in str(make_plan(spec(broker_cores=8), world()))


@pytest.mark.parametrize(("counts", "then"), [((12, 30), "%"), ((12,), "not known")])
def test_the_question_for_approval_shows_the_impact_and_links_to_it(counts: tuple[int, ...], then: str) -> None:
    """Also where the count was not among those measured."""
    report = impact(counts=counts).to_json()
    text = plan_markdown(make_plan(spec(), world(impact=report)), report, "https://a/impact.html")
    assert f"| records, distinct keys | {report['records']:,}, {report['distinct_keys']:,} |" in text
    assert re.search(r"\| largest partition now, then \| [0-9.]+%, .*" + then + r" \|", text)
    assert ("keys that change their partition" in text) is (30 in counts)
    assert "murmur2 (100.0%)" in text and "[Full report](https://a/impact.html)" in text


def test_the_question_for_approval_says_where_the_impact_report_advises_another_count() -> None:
    report = impact(counts=(12, 30))
    advised = choose(report).partitions
    assert advised == 12
    shown = report.to_json()
    text = plan_markdown(make_plan(spec(), world(impact=shown)), shown, "https://a/impact.html")
    assert f"**The impact report advises {advised} partitions; this plan takes 30.**" in text
    for other in (spec(partitions=advised), spec(partitions={"throughput": 100000, "per_consumer": 5000})):
        assert "advises" not in plan_markdown(make_plan(other, world(impact=shown)), shown, "https://a/impact.html")


def test_the_question_for_approval_of_an_empty_source() -> None:
    report = unkeyed().to_json() | {"records": 0, "null_keys": 0, "kind": "empty"}
    report["source"] |= {"max_partition_share": None, "max_keyed_partition_share": None}
    report["candidates"] = [{"partitions": 30, "moved_keys": 0, "moved_records": 0, "max_partition_share": None}]
    plan = make_plan(spec(), world(impact=report | {"topic": "payments", "topic_id": world().source.topic_id}))
    assert plan.ok
    text = plan_markdown(plan, report, "https://a/impact.html")
    assert "| records, distinct keys | 0, 0 |" in text and "not known, not known" in text
    assert "not recognised (not known)" in text


def test_configs_and_rights_go_along() -> None:
    source = topic(
        set_={"retention.ms": "86400000", "leader.replication.throttled.replicas": "0:1"},
        inherited={"segment.bytes": "1073741824"},
    )
    plan = make_plan(spec(), world(source=source))
    assert plan.target is not None
    assert plan.target.configs == {"retention.ms": "86400000"}
    assert [str(a) for a in plan.target.acls] == ["ALLOW User:checkout WRITE", "ALLOW User:ledger READ"]
    assert {a.to_acl().name for a in plan.target.acls} == {"payments-v2"}
    assert "leader.replication.throttled.replicas" in plan.target.notes[0]


@pytest.mark.parametrize(
    ("there", "end", "said"),
    [
        (topic("payments-v2", 30), 0, "use the existing, empty payments-v2"),
        (topic("payments-v2", 12), 0, "not possible: payments-v2 is there already and cannot be used (TS103)"),
        (topic("payments-v2", 30), 7, "not possible: payments-v2 is there already and cannot be used (TS103)"),
    ],
)
def test_only_an_empty_target_of_the_planned_shape_is_said_to_be_used(there: TopicInfo, end: int, said: str) -> None:
    plan = make_plan(spec(), world(target=there, target_offsets=offsets(there.partitions, end=end)))
    assert next(a.text for a in plan.actions if a.step == "create_target") == said
    assert plan.target is not None and plan.target.exists == plan.ok == said.startswith("use")


def test_exactly_whom_the_fence_denies_is_listed_and_approved() -> None:
    batch = Acl("TOPIC", "payments", "LITERAL", "User:batch", "*", "WRITE", "ALLOW")
    plan = make_plan(spec(), world(acls=ACLS | {batch}))
    assert [(a.principal, a.permission, a.name) for a in plan.deny] == [("User:batch", "DENY", "payments")]
    assert [(a.principal, a.permission, a.name) for a in plan.deny_after_switch] == [("User:*", "DENY", "payments")]
    silent = spec(producers=[{"name": "checkout"}])
    by_report = make_plan(silent, world(acls=ACLS | {batch}))
    assert [a.principal for a in by_report.deny] == ["User:batch"], "an instance says who it is"
    nobody = make_plan(silent, world(acls=ACLS | {batch}, followers=()))
    assert nobody.deny == [] and "note: nobody is denied" in str(nobody)
    for changed in ({"deny": []}, {"deny_after_switch": []}, {"actions": []}):
        assert model._hash(plan.model_copy(update=changed)) != plan.plan_hash, "it is part of what is accepted"
    bare = make_plan(spec(), world(acls=frozenset()))
    assert bare.deny_after_switch == [] and "User:*" not in str(bare)


def test_it_prints_what_it_will_do() -> None:
    denied = Acl("TOPIC", "payments", "LITERAL", "User:batch", "*", "WRITE", "ALLOW")
    text = str(make_plan(spec(), world(acls=ACLS | {denied})))
    for words in (
        "payments -> payments-v2: 6 -> 30 partitions",
        "create payments-v2: 30 partitions, replication factor 3",
        "create ACL ALLOW User:checkout WRITE on payments-v2",
        "stop producer checkout (route)",
        "create ACL DENY User:batch WRITE on payments",
        "once all of them write to payments-v2: create ACL DENY User:* WRITE on payments, until payments is retired",
        "give the producers back to payments if they are not switched within the freeze budget of 2m",
        "wait until ledger has read payments to its end",
        "set the offsets of ledger on payments-v2",
        "TS307 warning",
        "ok: nothing blocks",
    ):
        assert words in text, text
    assert "DENY User:checkout" not in text


@pytest.mark.parametrize(
    ("cutover", "order"),
    [
        ("drain_first", ["drain", "verify_drain", "switch_producers", "switch_consumers"]),
        ("producers_first", ["switch_producers", "drain", "verify_drain", "switch_consumers"]),
    ],
)
def test_the_actions_follow_the_order_of_the_cutover(cutover: str, order: list[str]) -> None:
    steps = list(dict.fromkeys(a.step for a in make_plan(spec(cutover=cutover), world()).actions))
    assert steps == ["approve", "create_target", "stop_producers", *order, "verify"]


def test_a_reader_without_commits_is_waited_for_and_left_to_its_owner() -> None:
    readers = [{"name": "enrich", "kind": "spark_checkpoint", "location": "s3://checkpoints/enrich"}]
    text = str(make_plan(spec(readers=readers), world()))
    assert "wait until enrich's own evidence (spark_checkpoint, s3://checkpoints/enrich)" in text
    assert "its owner moves it to payments-v2, with a new checkpoint folder" in text


def test_json_there_and_back() -> None:
    plan = make_plan(spec(window={"cron": "0 2 * * SUN", "timezone": "Europe/Berlin"}), world())
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_the_hash_keeps_still_over_what_moves_by_itself() -> None:
    before = make_plan(spec(), world()).plan_hash
    moved = world(
        taken_at="2027-01-01T00:00:00+00:00",
        offsets=offsets(committed=5000, end=5000),
        commits={"ledger": commits(at=4000)},
        described={"ledger": group(members=0, state="EMPTY")},
        topics=frozenset({"payments", "something-new"}),
        impact=IMPACT | {"records": 2000, "keyed_records": 2000},
    )
    assert make_plan(spec(), moved).plan_hash == before


@pytest.mark.parametrize(
    ("spec_changes", "world_changes"),
    [
        ({"partitions": 24}, {}),
        ({"cutover": "producers_first"}, {}),
        ({"freeze_budget": "121s"}, {}),
        ({"approvals": {"freeze": "auto"}}, {}),
        ({"approvals": {"certificate": "required"}}, {}),
        ({"consumers": [{"name": "ledger", "group": "ledger"}, {"name": "x", "group": "x"}]}, {}),
        ({}, {"source": topic(set_={"retention.ms": "1000000000"})}),
        ({}, {"source": topic(topic_id="made-again")}),
        ({}, {"acls": ACLS | {Acl("TOPIC", "payments", "LITERAL", "User:new", "*", "READ", "ALLOW")}}),
        ({}, {"groups": listing("ledger", "new"), "commits": {"ledger": commits(), "new": commits("new")}}),
        ({}, {"impact": None}),
    ],
)
def test_the_hash_changes_with_what_is_accepted(spec_changes: dict, world_changes: dict) -> None:
    assert make_plan(spec(**spec_changes), world(**world_changes)).plan_hash != make_plan(spec(), world()).plan_hash


def test_findings_of_the_impact_report_are_part_of_the_plan() -> None:
    bad = {"code": "TS499", "level": "error", "subject": "keys", "seen": "a.", "why": "b.", "do": "c."}
    plan = make_plan(spec(), world(impact=IMPACT | {"findings": [bad]}))
    assert not plan.ok and plan.findings[0].code == "TS499"
    broken = make_plan(spec(), world(impact=IMPACT | {"findings": [{"code": "?"}]}))
    assert not broken.ok and broken.unknown


def test_nothing_read_at_all_is_a_plan_that_blocks() -> None:
    plan = make_plan(spec(target=None), Snapshot("2026-01-01T00:00:00+00:00", unread={"cluster": "no answer"}))
    assert not plan.ok and plan.unknown and plan.target is None and plan.actions == []


_world = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from([None, topic(), topic(partitions=12), topic(set_={"cleanup.policy": "compact"})]),
        "target": st.sampled_from([None, topic("payments-v2", 30)]),
        "acls": st.sampled_from([None, ACLS, frozenset()]),
        "impact": st.sampled_from([None, IMPACT, IMPACT | {"keyed_records": 0}]),
        "groups": st.sampled_from([None, listing("ledger"), listing(), listing("ledger", "fraud")]),
        "commits": st.sampled_from([None, {}, {"ledger": commits()}, {"fraud": commits("fraud", at=None)}]),
        "described": st.sampled_from([None, {}, {"ledger": group()}]),
        "offsets": st.sampled_from([None, offsets(), offsets(start=95)]),
        "unread": st.dictionaries(
            st.sampled_from(["acls", "groups", "source", "offsets", "topics"]), st.text(max_size=9)
        ),
    },
)


@settings(max_examples=40)
@given(_world, st.integers(1, 3000), st.sampled_from(["drain_first", "producers_first"]))
def test_same_input_same_output_and_unknown_is_never_ok(parts: dict, count: int, cutover: str) -> None:
    wanted = spec(partitions=count, cutover=cutover)
    first, second = make_plan(wanted, world(**parts)), make_plan(wanted, replace(world(**parts)))
    assert first == second
    assert first.model_dump_json() == second.model_dump_json()
    if parts.get("unread") or any(parts.get(p, ...) is None for p in ("source", "impact")):
        assert not first.ok
    assert first.ok == (first.target is not None and not first.blocking())


def test_what_an_in_place_increase_would_break_is_told_of_the_count_that_is_planned() -> None:
    def moved(planned: int, worst: int) -> dict[str, Any]:
        each = [Overtaken(partitions=12, records=planned), Overtaken(partitions=30, records=worst)]
        group = GroupImpact(group="ledger", unread=900, never_committed=[], overtaken=each)
        found = impact(counts=(12, 30), groups=[group])
        return found.model_copy(update={"findings": findings(found, 0.005)}).to_json()

    def told(planned: int) -> list[str]:
        plan = make_plan(spec(partitions=12), world(impact=moved(planned, 700)))
        return [f.seen for f in plan.findings if f.code == "TS713"]

    (said,) = told(400)
    assert "ledger 400 of 900 unread, with 12 partitions" in said and "30 partitions" not in said
    assert told(0) == [], "nothing would be overtaken with the planned count"
