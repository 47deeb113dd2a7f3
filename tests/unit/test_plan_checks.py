"""Each check fires on the world that it is about, says so in full, and keeps still in a healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.plan_world import (
    ACLS,
    CLUSTER,
    IMPACT,
    WRITING_FLOW,
    brokers,
    commits,
    flow,
    follower,
    group,
    listing,
    offsets,
    spec,
    topic,
    world,
)

from topicshift.core.checks import all_checks, all_codes
from topicshift.core.checks.snapshot import MEASURED_NEXT, DryRun, MovedBefore, OtherMigration, Refusal
from topicshift.core.findings import Level
from topicshift.core.kafka.cluster import Acl, GroupMember, Transaction
from topicshift.core.plan.model import make_plan
from topicshift.core.policy.model import Installation
from topicshift.core.route.records import ROUTES_TOPIC

SIZED = {"throughput": 100000, "per_consumer": 5000}
EVERYBODY = Acl("TOPIC", "payments", "LITERAL", "User:*", "*", "WRITE", "ALLOW")
POOR = {"cluster": replace(CLUSTER, authorized=frozenset({"DESCRIBE", "CREATE"}))}
NO_CREATE = {"cluster": replace(CLUSTER, authorized=frozenset({"DESCRIBE", "ALTER"}))}
BLIND = {"source": topic(authorized=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))}
STRANGER = Acl("TOPIC", "pay", "PREFIXED", "User:batch", "*", "WRITE", "ALLOW")
TXN = Transaction("tx-1", 1, 0, "ONGOING", 0, 900_000, (0, 1))

MINE = Acl("TOPIC", "payments", "LITERAL", "User:checkout", "*", "WRITE", "ALLOW")
CASE = {"producers": [{"name": "checkout", "principal": "User:Checkout"}]}
KEY = {"producers": [{"name": "checkout", "principal": "User:K7"}]}
UNSAID = {"consumers": [{"name": "ledger", "group": "ledger"}]}
HANDLED = {"consumers": [{"name": "ledger", "group": "ledger", "stored_offsets": "handled"}]}
SINK = {"consumers": [{"name": "find", "kind": "manual", "group": "connect-elastic-payments"}]}
MIRROR = {
    "consumers": [
        {"name": "dr", "kind": "connect", "group": "mirror-dr", "settings": {"connector": "dr", "mirror": True}},
    ]
}
TASK = GroupMember("m1", "connector-consumer-warehouse-0", "h", assignment={"payments": (0,)})
ENRICH = {"name": "enrich", "kind": "spark_checkpoint", "location": "s3://checkpoints/enrich"}
ROUTES = topic(ROUTES_TOPIC, 1, inherited={"message.timestamp.type": "LogAppendTime"})
LONGER = DryRun({"retention.ms": "9"}, (Refusal("retention.ms", "9", "a week"),))
MOVED = (MovedBefore("payments-v2", "run-7", "id-of-payments", dict.fromkeys(range(6), 100)),)
FENCED = (replace(*MOVED, denied=frozenset({"User:checkout"})),)

PLAN_AUTO = {"approvals": {"plan": "auto"}}


def policy(**keys: Any) -> Installation:
    return Installation.model_validate({"apiVersion": "topicshift-policy/v1", **keys})


def answers(question: str = "plan", **keys: Any) -> dict[str, Any]:
    return {"answers": [{"question": question, **keys}]}


LONG = policy(retire={"after": "30d", "scream_test": "2h"})
ADA = policy(**answers(people=["ada"]))
TWO = policy(**answers(two_people=True))

THREAD = GroupMember("m1", "sums-8f2c-StreamThread-1-consumer", "h", assignment={"payments": (0,)})
STOPPED_STREAMS = {
    "topics": frozenset({"payments", "ledger-sums-changelog"}),
    "described": {"ledger": group(members=0, state="EMPTY")},
}


def two(writes: str, reads: str, cutover: str = "drain_first") -> dict[str, Any]:
    """One Deployment that writes the source and reads it, and where its two topics stand."""
    place = {"workload": "Deployment/etl", "namespace": "shop"}
    producer = {"name": "etl-out", "kind": "kubernetes", "settings": place | {"topic_in": writes}}
    consumer = {"name": "etl-in", "kind": "kubernetes", "settings": place | {"topic_in": reads}, "group": "ledger"}
    return {"cutover": cutover, "producers": [producer], "consumers": [consumer | {"stored_offsets": "none"}]}


BY_HAND = {
    "producers": [{"name": "checkout", "kind": "manual", "principal": "User:checkout"}],
    "consumers": [{"name": "checkout", "kind": "manual", "group": "ledger", "stored_offsets": "none"}],
}
HOOKED = {"name": "etl", "kind": "command", "settings": {"hook": "etl"}}
FIRES = [
    ("TS101", "error", "Did you mean `payments`", {"source": "paymnts"}, {"source": None}),
    ("TS102", "error", "Kafka itself", {"source": "__consumer_offsets"}, {}),
    ("TS102", "error", "Kafka itself", {}, {"source": topic(internal=True)}),
    ("TS102", "error", "Topicshift", {"target": "__topicshift_routes"}, {}),
    ("TS102", "warning", "MirrorMaker", {"source": "mm2-offset-syncs.dr.internal"}, {}),
    ("TS102", "warning", "Kafka Connect", {"source": "connect-configs"}, {}),
    ("TS102", "warning", "Kafka Streams", {"source": "app-store-changelog"}, {}),
    ("TS103", "error", "24 partitions instead of 30", {}, {"target": topic("payments-v2", 24)}),
    ("TS103", "error", "2 replicas instead of 3", {}, {"target": topic("payments-v2", 30, 2)}),
    ("TS103", "error", "retention.ms=5", {}, {"target": topic("payments-v2", 30, set_={"retention.ms": "5"})}),
    (
        "TS103",
        "error",
        "has held records",
        {},
        {"target": topic("payments-v2", 30), "target_offsets": offsets(30)},
    ),
    (
        "TS103",
        "warning",
        "empty and of the planned shape",
        {},
        {"target": topic("payments-v2", 30), "target_offsets": offsets(30, end=0)},
    ),
    ("TS104", "error", "collides with the topic 'pay_ments'", {"target": "pay.ments"}, {"topics": {"pay_ments"}}),
    ("TS104", "error", "collides with the topic 'a_b'", {"source": "a_b", "target": "a.b"}, {}),
    ("TS105", "error", "of run-7", {}, {"migrations": (OtherMigration("payments", "p9", "run-7"),)}),
    ("TS105", "error", "of run-7", {}, {"migrations": (OtherMigration("x", "payments-v2", "run-7"),)}),
    ("TS118", "warning", "other migrations were not looked for", {}, {"journalled": False}),
    ("TS106", "error", "6 partitions already", {"partitions": 6}, {}),
    ("TS107", "warning", "3 partitions are fewer than the source's 6", {"partitions": 3}, {}),
    ("TS108", "error", "2 x 3 brokers x 4 cores = 24", {"broker_cores": 4}, {}),
    ("TS108", "error", "above 500", {"partitions": 2000}, {}),
    ("TS109", "warning", "more than 500", {"partitions": 600}, {"cluster": replace(CLUSTER, brokers=brokers(12))}),
    ("TS110", "info", "up to 6", {"partitions": 25}, {}),
    ("TS111", "error", "compacted", {}, {"source": topic(set_={"cleanup.policy": "compact"})}),
    ("TS111", "error", "compacted", {}, {"source": topic(set_={"cleanup.policy": "compact,delete"})}),
    ("TS111", "warning", "compacted", {"history": "none"}, {"source": topic(set_={"cleanup.policy": "compact"})}),
    ("TS112", "error", "4 replicas are asked for, and the cluster has 3", {"replication_factor": 4}, {}),
    ("TS112", "warning", "one replica", {"replication_factor": 1}, {}),
    ("TS113", "error", "min.insync.replicas is 2", {"replication_factor": 1}, {}),
    ("TS113", "warning", "equals the 2 replicas", {"replication_factor": 2}, {}),
    ("TS114", "warning", "10m", {}, {"source": topic(set_={"retention.ms": "600000"})}),
    ("TS114", "warning", "1h30m", {"freeze_budget": "1h"}, {"source": topic(set_={"retention.ms": "5400000"})}),
    (
        "TS115",
        "error",
        "partition 2 of the source has no leader",
        {},
        {"source": topic(leaders=dict.fromkeys(range(6), 1) | {2: None})},
    ),
    (
        "TS115",
        "warning",
        "partition 4 of the source is under-replicated",
        {},
        {"source": topic(isr=dict.fromkeys(range(6), (1, 2, 3)) | {4: (1,)})},
    ),
    ("TS116", "warning", "enough", {"partitions": SIZED}, {"source": topic(partitions=60)}),
    ("TS201", "warning", "no authorizer", {}, {"cluster": replace(CLUSTER, authorizer=False)}),
    ("TS202", "warning", "auto.create.topics.enable", {}, {"cluster": replace(CLUSTER, auto_create=True)}),
    (
        "TS301",
        "error",
        "Did you mean `ledger`",
        {"consumers": [{"name": "l", "group": "ledgr"}]},
        {"described": {"ledger": group(), "ledgr": group("ledgr", 0, state="DEAD")}},
    ),
    (
        "TS302",
        "error",
        "has commits",
        {},
        {"groups": listing("ledger", "fraud"), "commits": {"ledger": commits(), "fraud": commits("fraud")}},
    ),
    (
        "TS302",
        "error",
        "partitions of the topic",
        {},
        {"groups": listing("ledger", "fraud"), "described": {"ledger": group(), "fraud": group("fraud")}},
    ),
    (
        "TS327",
        "error",
        "transaction with payments, by tx-1.",
        {},
        {"transactions": (replace(TXN, beside=("refunds",)),)},
    ),
    ("TS327", "info", "offsets of a group", {}, {"transactions": (replace(TXN, beside=("__consumer_offsets",)),)}),
    (
        "TS327",
        "info",
        "which is known: nobody joins them",
        {"coupled": [{"topic": "refunds", "reason": "nobody joins them"}]},
        {"transactions": (replace(TXN, beside=("refunds",)),)},
    ),
    ("TS327", "warning", "by tx-1, and none of these was open now", {}, {"transactional": ("tx-1",)}),
    (
        "TS327",
        "warning",
        "by tx-1, and none of these was open now",
        {"coupled": [{"group": "ledger", "reason": "it joins none"}]},
        {"transactional": ("tx-1",)},
    ),
    ("TS327", "error", "reads refunds too, with 6 partitions", {}, {"beside": {"ledger": {"refunds": 6, "logs": 12}}}),
    ("TS327", "error", "refunds too, whose partitions cannot be", {}, {"beside": {"ledger": {"refunds": None}}}),
    (
        "TS327",
        "info",
        "refunds: nobody joins them",
        {"coupled": [{"topic": "refunds", "reason": "nobody joins them"}]},
        {"beside": {"ledger": {"refunds": 6}}},
    ),
    (
        "TS327",
        "info",
        "which is known: it joins none",
        {"coupled": [{"group": "ledger", "reason": "it joins none"}]},
        {"beside": {"ledger": {"refunds": 6, "orders": None}}},
    ),
    ("TS328", "error", "is stopped as a whole", two("env:OUT", "env:IN"), {"unable": ()}),
    ("TS328", "error", "(env:T of every container) names", two("env:T", "env:T", "producers_first"), {"unable": ()}),
    ("TS328", "warning", "is one application of 2 parts", two("env:OUT", "env:IN", "producers_first"), {"unable": ()}),
    ("TS328", "info", "by the route", {"consumers": [{"name": "checkout", "group": "ledger"}]}, {}),
    ("TS328", "error", "'checkout' writes the source and reads it", BY_HAND, {}),
    ("TS303", "error", "share group", {}, {"described": {"ledger": group(kind="share")}}),
    ("TS326", "error", "has the streams protocol", {}, {"described": {"ledger": group(kind="streams")}}),
    ("TS326", "error", "by the assignor 'stream'", {}, {"described": {"ledger": group(assignor="stream")}}),
    (
        "TS326",
        "error",
        "is a thread of Kafka Streams",
        {},
        {"described": {"ledger": replace(group(), members=(THREAD,))}},
    ),
    ("TS326", "error", "internal ones: ledger-sums-changelog.", {}, STOPPED_STREAMS),
    ("TS326", "error", "--application-id ledger --input-topics payments-v2", {}, STOPPED_STREAMS),
    (
        "TS326",
        "warning",
        "give it a new application.id, for brokers refuse another topology of 'sums'",
        {"ignore_groups": [{"group": "sums", "reason": "Kafka Streams"}]},
        {"described": {"ledger": group(), "sums": group("sums", kind="streams")}},
    ),
    ("TS304", "warning", "no members", {}, {"described": {"ledger": group(members=0, state="EMPTY")}}),
    ("TS305", "error", "up to 60 records", {}, {"offsets": offsets(start=100)}),
    (
        "TS305",
        "warning",
        "up to 60 records",
        {"lost_records_accepted": [{"group": "ledger", "reason": "restored"}]},
        {"offsets": offsets(start=100)},
    ),
    ("TS306", "warning", "time-out of 900 s", {}, {"transactions": (TXN,)}),
    ("TS306", "warning", "holds back", {}, {"offsets": offsets(committed=95)}),
    ("TS307", "warning", "everybody", {}, {"acls": ACLS | {EVERYBODY}}),
    ("TS307", "warning", "no producer names it", {}, {"acls": ACLS | {STRANGER}}),
    ("TS307", "warning", "no ACL covers", {}, {"acls": frozenset()}),
    (
        "TS307",
        "warning",
        "no principal",
        {"producers": [{"name": "checkout"}]},
        {"followers": (follower(principal=None),)},
    ),
    ("TS308", "warning", "MirrorMaker", {}, {"topics": frozenset({"payments", "dr.payments", "heartbeats"})}),
    (
        "TS308",
        "warning",
        "connector",
        {"consumers": [{"name": "sink", "group": "connect-sink", "kind": "manual"}]},
        {},
    ),
    ("TS309", "warning", "has 9 members", {"partitions": 3}, {"described": {"ledger": group(members=9)}}),
    ("TS310", "info", "does not read", {"ignore_groups": [{"group": "old", "reason": "gone"}]}, {}),
    (
        "TS310",
        "info",
        "has commits",
        {"ignore_groups": [{"group": "old", "reason": "gone"}]},
        {"commits": {"ledger": commits(), "old": commits("old")}},
    ),
    ("TS311", "error", "filtered", {}, {"groups": listing("ledger", complete=False, why="filtered by ACLs")}),
    ("TS312", "info", "checkout", {"producers": [{"name": "checkout", "kind": "manual"}]}, {}),
    (
        "TS312",
        "warning",
        "checkout",
        {"producers": [{"name": "checkout", "kind": "manual"}], "window": {"cron": "0 2 * * SUN"}},
        {},
    ),
    ("TS313", "error", "coordinator", {}, {"described": {"ledger": group(error="no coordinator")}}),
    ("TS313", "error", "denied", {}, {"commits": {"ledger": commits(error="denied")}}),
    ("TS313", "error", "partition 3", {}, {"commits": {"ledger": commits(errors={3: "timed out"})}}),
    ("TS314", "error", "Is it User:checkout?", CASE, {}),
    (
        "TS314",
        "error",
        "Those who may: User:checkout",
        {"producers": [{"name": "checkout", "principal": "User:K7"}]},
        {},
    ),
    (
        "TS314",
        "error",
        "reports to be User:AKIAIOSFODNN7EXA",
        {"producers": [{"name": "checkout"}]},
        {"followers": (follower(principal="User:AKIAIOSFODNN7EXA"),)},
    ),
    ("TS314", "error", "an ACL denies it", {}, {"acls": ACLS | {replace(EVERYBODY, permission="DENY")}}),
    (
        "TS314",
        "warning",
        "only because everybody may, while User:batch",
        {},
        {"acls": (ACLS - {MINE}) | {EVERYBODY, STRANGER}},
    ),
    (
        "TS314",
        "warning",
        "no ALLOW WRITE covers it",
        {"producers": [{"name": "batch", "kind": "manual", "principal": "User:batch"}]},
        {},
    ),
    (
        "TS314",
        "error",
        "the fence of run-7, which moved the source to 'payments-v2', denies it WRITE",
        {},
        {"acls": ACLS | {replace(MINE, permission="DENY")}, "moved": FENCED},
    ),
    ("TS315", "warning", "is a Group", {}, {"acls": ACLS | {replace(MINE, principal="Group:writers")}}),
    ("TS315", "warning", "upper and lower case", {}, {"acls": ACLS | {replace(MINE, principal="User:Checkout")}}),
    ("TS315", "warning", "is an id", {}, {"acls": ACLS | {replace(MINE, principal="User:4711")}}),
    (
        "TS315",
        "warning",
        "account to which User:sa-x7k2q belongs",
        {"producers": [{"name": "checkout", "principal": "User:sa-x7k2q"}]},
        {"acls": ACLS | {STRANGER, replace(MINE, principal="User:sa-x7k2q")}},
    ),
    ("TS316", "error", "none of them lets anybody write", {}, {"acls": ACLS - {MINE}}),
    ("TS317", "error", "nobody has looked", {}, {"followers": None}),
    ("TS317", "error", "(batch-1), and the spec does not declare it", {}, {"followers": (follower("batch"),)}),
    ("TS317", "error", "and the spec does not declare it", {}, {"followers": (follower(role="consumer", group="x"),)}),
    (
        "TS317",
        "error",
        "declares it as `manual`",
        {"producers": [{"name": "checkout", "kind": "manual", "principal": "User:checkout"}]},
        {},
    ),
    (
        "TS317",
        "error",
        "by the route of 'orders'",
        {},
        {"followers": (follower(), follower("batch", logical="orders"))},
    ),
    ("TS318", "info", "nobody is denied WRITE on the source in the freeze, and everybody after", {}, {}),
    (
        "TS318",
        "warning",
        "not be allowed to write to 'payments-v2'",
        {},
        {"acls": ACLS | {replace(MINE, name="payments-", pattern="PREFIXED", permission="DENY")}},
    ),
    ("TS319", "error", "which by its name writes to a search engine", SINK | {"target": None}, {}),
    (
        "TS319",
        "error",
        "the sink connector 'warehouse'",
        UNSAID,
        {"described": {"ledger": replace(group(), members=(TASK,))}},
    ),
    ("TS319", "warning", "ledger: whether offsets are stored is not said.", UNSAID, {}),
    ("TS319", "warning", "dr: whether offsets are stored is not said.", MIRROR, {}),
    ("TS319", "error", "approvals.plan auto nobody is asked", UNSAID | {"approvals": {"plan": "auto"}}, {}),
    ("TS319", "info", "its owner deals with them", HANDLED, {}),
    ("TS320", "info", "payments-value of a Schema Registry", {}, {}),
    ("TS320", "warning", "shows that there is one", {}, {"topics": frozenset({"payments", "_schemas"})}),
    (
        "TS321",
        "warning",
        "1,025 consumers",
        {"consumers": [{"name": f"c{i}", "group": f"g{i}", "stored_offsets": "none"} for i in range(1025)]},
        {},
    ),
    ("TS322", "warning", "the checkpoint of 'enrich'", {"readers": [ENRICH]}, {}),
    ("TS323", "warning", "gone after 1m1s, and the freeze budget is 2m", {}, {"gone_ms": {"checkout": 61_000}}),
    ("TS324", "warning", "cleanup.policy delete, not compact", {}, {"route_topics": (ROUTES,)}),
    ("TS324", "error", "partitions 2, not 1", {}, {"route_topics": (replace(ROUTES, replicas={0: (1,), 1: (1,)}),)}),
    ("TS329", "error", "it copies 'payments' and not 'payments-v2', and no consumer", {}, {"flows": (flow(),)}),
    ("TS329", "error", "it writes 'payments', as the copy of a topic of cluster 'us'", {}, {"flows": (WRITING_FLOW,)}),
    (
        "TS329",
        "warning",
        "would write 'payments-v2' as well",
        {},
        {"flows": (replace(WRITING_FLOW, topics=(".*-v2",)),)},
    ),
    ("TS329", "warning", "(pay.*) cover both", {}, {"flows": (flow(topics=("payments", "pay.*")),)}),
    ("TS329", "warning", "(.*-v2) cover 'payments-v2', or may", {}, {"flows": (flow(topics=(".*-v2",)),)}),
    ("TS329", "warning", "a Mine chooses what it copies", {}, {"flows": (flow(filter="Mine"),)}),
    ("TS329", "warning", "it translates the offsets of groups", {}, {"flows": (flow(kind="checkpoint"),)}),
    ("TS325", "error", "nobody has asked whether etl can be moved", {"producers": [HOOKED]}, {}),
    ("TS325", "error", "its hook etl says no", {"producers": [HOOKED]}, {"unable": ("etl: its hook etl says no",)}),
    ("TS203", "warning", "stays for 20d", {"retire": {"after": "20d"}}, {}),
    # The defaults of spec and brokers: commits are older than the switch, and so they go first.
    ("TS203", "warning", "stays for 7d", {}, {"cluster": replace(CLUSTER, offsets_retention_minutes=7 * 1440)}),
    ("TS203", "warning", "may be 2m older", {}, {"cluster": replace(CLUSTER, offsets_retention_minutes=7 * 1440 + 2)}),
    (
        "TS203",
        "warning",
        "may be 1d2m older",
        {"consumers": [{"name": "ledger", "kind": "manual", "group": "ledger", "stored_offsets": "none"}]},
        {"cluster": replace(CLUSTER, offsets_retention_minutes=8 * 1440)},
    ),
    (
        "TS203",
        "warning",
        "ledger: a person starts these groups",
        {"consumers": [{"name": "ledger", "kind": "manual", "group": "ledger", "stored_offsets": "none"}]},
        {"cluster": replace(CLUSTER, offsets_retention_minutes=60)},
    ),
    ("TS203", "info", "could not be read", {}, {"cluster": replace(CLUSTER, offsets_retention_minutes=None)}),
    (
        "TS119",
        "error",
        "would refuse retention.ms=9: a week",
        {},
        {"create": DryRun({"retention.ms": "9"}, (Refusal("retention.ms", "9", "a week."),))},
    ),
    (
        "TS119",
        "error",
        "'payments-v2' with 30 partitions and 3 replicas: at most 20",
        {},
        {"create": DryRun({}, (Refusal(None, None, "at most 20"),))},
    ),
    ("TS120", "warning", "would refuse retention.ms=9: a week", {}, {"lengthen": LONGER}),
    (
        "TS120",
        "error",
        "would refuse retention.ms=9: a week",
        {},
        {"lengthen": LONGER, "source": topic(set_={"retention.ms": "36000000"})},
    ),
    ("TS120", "warning", "refuse a longer retention", {}, {"lengthen": DryRun({}, (Refusal(None, None, "no"),))}),
    ("TS401", "error", "not measured.", {}, {"impact": None}),
    ("TS401", "warning", "not measured (somebody said so).", {}, {"impact": None, "no_impact": "somebody said so"}),
    ("TS401", "warning", "no record", {}, {"impact": IMPACT | {"records": 0, "keyed_records": 0}}),
    ("TS402", "error", "--alter --topic payments --partitions 30", {}, {"impact": IMPACT | {"keyed_records": 0}}),
    ("TS402", "error", "none of its 1,000", {"partitions": 3}, {"impact": IMPACT | {"keyed_records": 0}}),
    (
        "TS402",
        "error",
        "its producers spread these",
        {},
        {"impact": IMPACT | {"keyed_records": 9, "empty_keys": 9, "partitioner": {"empty_keys": "spread"}}},
    ),
    ("TS403", "warning", "400 of its 1,000", {}, {"impact": IMPACT | {"keyed_records": 600}}),
    ("TS404", "warning", "50.0%", {}, {"impact": IMPACT | {"top_keys": [{"key": "h", "share": 0.5}]}}),
    (
        "TS404",
        "warning",
        "hottest key",
        {"partitions": SIZED},
        {"impact": IMPACT | {"top_keys": [{"key": "h", "share": 0.06}]}},
    ),
    ("TS117", "error", "a rollback of that migration is under way", {}, {"moved": (replace(*MOVED, going_back=True),)}),
    ("TS401", "warning", "not measured yet: the next task", {}, {"impact": None, "no_impact": MEASURED_NEXT}),
    ("TS117", "error", "moved to 'payments-v2' by run-7, and nothing was written to it since", {}, {"moved": MOVED}),
    (
        "TS117",
        "warning",
        "written to since (partition 0 and 5 others)",
        {},
        {"moved": MOVED, "offsets": offsets(end=101)},
    ),
    ("TS405", "error", "of topic orders, not of payments", {}, {"impact": IMPACT | {"topic": "orders"}}),
    ("TS405", "error", "names no topic", {}, {"impact": {}}),
    ("TS405", "error", "with the id gone", {}, {"impact": IMPACT | {"topic_id": "gone"}}),
    ("TS501", "error", "timed out", {}, {"acls": None, "unread": {"acls": "timed out"}}),
    (
        "TS502",
        "error",
        "may not ALTER",
        {},
        {"cluster": replace(CLUSTER, authorized=frozenset({"DESCRIBE", "CREATE"}))},
    ),
    (
        "TS502",
        "error",
        "may not CREATE",
        {},
        {"cluster": replace(CLUSTER, authorized=frozenset({"DESCRIBE", "ALTER"}))},
    ),
    (
        "TS502",
        "error",
        "ALTER_CONFIGS, READ",
        {},
        {"source": topic(authorized=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))},
    ),
    ("TS801", "error", "allows kafka_eu_*", {}, {"policy": policy(connections=["kafka_eu_*"])}),
    ("TS802", "error", "'payments-v2'; the policy allows payments", {}, {"policy": policy(topics=["payments"])}),
    ("TS803", "error", "auto; the policy says required", PLAN_AUTO, {"policy": policy(approvals={"plan": "required"})}),
    ("TS803", "error", "required", PLAN_AUTO, {"policy": policy(answers=[{"question": "plan", "people": ["ada"]}])}),
    ("TS804", "error", "1h; the policy says 2h at least", {"retire": {"scream_test": "1h"}}, {"policy": LONG}),
    ("TS804", "error", "7d; the policy says 30d at least", {}, {"policy": LONG}),
    (
        "TS805",
        "error",
        "the policy allows s3://other",
        {"readers": [ENRICH]},
        {"policy": policy(reader_locations=["s3://other"])},
    ),
    ("TS806", "error", "role:ops: the installation policy has no such role", answers(people=["role:ops"]), {}),
    ("TS806", "error", "carl: the policy does not let", answers(people=["carl"]), {"policy": ADA}),
    ("TS806", "error", "1 people may answer plan, and it takes 2", answers(people=["ada"]), {"policy": TWO}),
    ("TS806", "error", "approvals.plan is auto", PLAN_AUTO | answers(people=["ada"]), {}),
]


def test_a_healthy_world_has_nothing_to_weigh() -> None:
    plan = make_plan(spec(), world())
    assert {(f.code, f.level) for f in plan.findings} == {("TS318", Level.INFO), ("TS320", Level.INFO)}
    assert plan.ok


@pytest.mark.parametrize(("code", "level", "says", "spec_changes", "world_changes"), FIRES)
def test_fires(code: str, level: str, says: str, spec_changes: dict, world_changes: dict) -> None:
    plan = make_plan(spec(**spec_changes), world(**world_changes))
    hits = [f for f in plan.findings if f.code == code and f.level.value == level and says in f"{f.seen} {f.do}"]
    assert hits, [f.line() for f in plan.findings]
    for finding in hits:
        assert finding.seen.endswith((".", "?")) and finding.why.endswith(".") and finding.do.endswith(".")
    assert plan.ok is (not plan.blocking())
    if level == "error":
        assert not plan.ok


def test_every_code_has_a_case_that_fires_and_documents_its_levels() -> None:
    fired = {(code, level) for code, level, *_ in FIRES}
    documented = {(d.code, level.value) for d in all_codes() for level in d.levels}
    assert fired == documented


def test_every_check_has_its_own_file_scope_and_codes() -> None:
    for check in all_checks():
        assert check.run.__module__ == f"topicshift.core.checks.{check.name}"
        digits = {"topic": "1", "cluster": "12", "participants": "3", "keys": "4", "rights": "5", "policy": "8"}
        assert all(doc.code[2] in digits[check.scope.value] for doc in check.codes)


def test_a_target_that_this_migration_made_is_no_surprise() -> None:
    mine = topic("payments-v2", 30)
    plan = make_plan(spec(), world(target=mine, target_offsets=offsets(30), own_target_id=mine.topic_id))
    assert plan.ok and plan.target is not None and not plan.target.exists


def test_rights_by_the_name_of_the_target_are_enough_to_create_it() -> None:
    by_name = Acl("TOPIC", "payments", "PREFIXED", "User:topicshift", "*", "CREATE", "ALLOW")
    cluster = replace(CLUSTER, authorized=frozenset({"DESCRIBE", "ALTER"}))
    assert make_plan(spec(), world(cluster=cluster, acls=ACLS | {by_name})).ok


@pytest.mark.parametrize("part", ["topics", "source", "acls", "groups", "commits", "described", "offsets"])
def test_what_could_not_be_read_blocks_by_name(part: str) -> None:
    plan = make_plan(spec(), world(**{part: None, "unread": {part: "request timed out"}}))
    hits = [f for f in plan.findings if f.code == "TS501"]
    assert [f.subject for f in hits] == [part] and hits[0].unknown
    assert not plan.ok and plan.unknown
    if part == "source":
        assert "partition_count" in hits[0].why
        assert not any(f.code == "TS101" for f in plan.findings), "unread is not missing"


def test_commits_that_outlive_the_source_are_not_warned_of() -> None:
    cluster = replace(CLUSTER, offsets_retention_minutes=7 * 1440 + 3)
    assert "TS203" not in {f.code for f in make_plan(spec(), world(cluster=cluster)).findings}


def test_a_sink_connector_that_is_moved_as_one_is_not_told_to_be_moved_otherwise() -> None:
    def codes(**kind: Any) -> set[str]:
        sink = {"name": "sink", "group": "connect-sink", **kind}
        return {f.code for f in make_plan(spec(consumers=[sink]), world()).findings}

    assert "TS308" not in codes(kind="connect", settings={"connector": "sink"})
    assert "TS308" in codes(kind="command", settings={"hook": "sink"})


@pytest.mark.parametrize(
    ("topics", "groups"),
    [
        ({"ledger-changelog"}, {"ledger": group(members=0, state="EMPTY")}),
        ({"ledger-sums-store-changelog"}, {n: group(n, members=0, state="EMPTY") for n in ("ledger", "ledger-sums")}),
        ({"ledger-sums-changelog"}, {"ledger": group(assignor="range")}),
        ({"ledger-sums-changelog"}, {"ledger": group(kind="consumer")}),
        ({"ledgers-sums-repartition"}, {"ledger": group(members=0, state="EMPTY")}),
    ],
)
def test_a_topic_of_such_a_name_alone_makes_no_kafka_streams_of_a_group(topics: set[str], groups: dict) -> None:
    """It may be an application's own topic, or one of another group; and a live group tells what it is."""
    plan = make_plan(spec(), world(topics=frozenset(topics | {"payments"}), described=groups))
    assert not any(f.code == "TS326" and "'ledger'" in f.seen for f in plan.findings), str(plan)


def test_kafka_streams_that_nobody_declared_is_named_with_its_way() -> None:
    read = {"ledger": group(), "sums": group("sums", assignor="stream"), "elsewhere": group("elsewhere", members=0)}
    plan = make_plan(spec(), world(described=read))
    assert [(f.subject, f.code) for f in plan.blocking()] == [("group sums", "TS302"), ("group sums", "TS326")]


def held(state: str = "STABLE", **others: int) -> dict[str, Any]:
    """The group ledger with two members, each with one partition of payments and one of refunds."""
    members = tuple(
        GroupMember(f"m{i}", f"c{i}", "h", assignment={"payments": (i,), "refunds": (others[f"m{i}"],)}) for i in (0, 1)
    )
    return {
        "described": {"ledger": replace(group(), members=members, state=state)},
        "beside": {"ledger": {"refunds": 6}},
    }


@pytest.mark.parametrize(
    ("seen", "coupled"),
    [
        (held(m0=0, m1=1), True),
        (held(m0=1, m1=0), False),  # nobody can join by partition what two members hold
        (held("PREPARING_REBALANCE", m0=1, m1=0), True),  # it is on its way: that tells nothing
        ({"beside": {"ledger": {"refunds": 7}}}, False),
        ({"beside": {"ledger": {"__transaction_state": 6}}}, False),
    ],
)
def test_a_group_is_asked_for_topics_that_it_may_join_by_partition_alone(seen: dict[str, Any], coupled: bool) -> None:
    plan = make_plan(spec(), world(**seen))
    assert ("TS327" in {f.code for f in plan.blocking()}) is coupled, str(plan)


def test_applications_that_bring_keys_together_themselves_are_not_asked() -> None:
    sink = {"name": "s", "group": "ledger", "kind": "connect", "settings": {"connector": "s"}, "stored_offsets": "none"}
    plan = make_plan(spec(consumers=[sink]), world(beside={"ledger": {"refunds": 6}}, unable=()))
    assert plan.ok, str(plan)


def test_several_groups_of_one_workload_need_settings_of_their_own() -> None:
    def levels(*places: str) -> list[Level]:
        one = [two("env:OUT", place)["consumers"][0] for place in places]
        groups = [c | {"name": f"etl-{i}", "group": f"g{i}"} for i, c in enumerate(one)]
        return [f.level for f in make_plan(spec(consumers=groups), world(unable=())).findings if f.code == "TS328"]

    assert levels("env:A", "env:A") == [Level.ERROR]
    assert levels("env:A", "env:B") == [Level.WARNING]
    assert levels("env:A") == []


def test_halves_that_are_stopped_apart_from_each_other_are_two_applications() -> None:
    one = two("env:T", "env:T")
    one["producers"][0]["name"] = one["consumers"][0]["name"] = "etl"
    one["producers"][0]["settings"] = one["producers"][0]["settings"] | {"workload": "Deployment/etl-out"}
    assert "TS328" not in {f.code for f in make_plan(spec(**one), world(unable=())).findings}


def test_a_window_is_spoken_of_only_where_the_spec_has_one() -> None:
    window = {"cron": "0 2 * * SUN", "timezone": "Europe/Berlin", "duration": "2h"}
    for more, said in (({}, False), ({"window": window}, True)):
        plan = make_plan(spec(**more), world(moved=MOVED))
        (found,) = [f for f in plan.findings if f.code == "TS117"]
        assert ("`window`" in found.do) is said and "'payments-v2' as `source`" in found.do


def test_a_deny_that_is_nobodys_fence_says_that_the_other_name_is_a_guess() -> None:
    plan = make_plan(spec(), world(acls=ACLS | {replace(MINE, permission="DENY")}))
    (found,) = [f for f in plan.findings if f.code == "TS314"]
    assert found.why.startswith("If it writes all the same, the brokers know")
