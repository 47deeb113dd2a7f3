"""A first spec says where each line comes from, and is as honest about what it could not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from tests.unit.plan_world import ACLS, CLUSTER, commits, follower, group, listing, offsets, world

from topicshift.acts.draft import connectors_of
from topicshift.core.errors import AccessDenied
from topicshift.core.kafka.cluster import Acl, ActiveProducer
from topicshift.core.kafka.connect import Connector
from topicshift.core.kafka.rules import ACKS_TOPIC, ROUTES_TOPIC
from topicshift.core.page.drafts import draft_seen
from topicshift.core.plan.draft import Connectors, Draft, Wish, draft
from topicshift.core.plan.model import make_plan
from topicshift.core.spec.io import parse_spec

LEGACY = Acl("TOPIC", "payments", "LITERAL", "User:legacy", "*", "WRITE", "ALLOW")
NOW_MS = 1_767_225_600_000


def drafted(connectors: Any = None, **changes: Any) -> Draft:
    return draft("payments", world(**changes), connectors, Wish())


def active(*ids: int) -> tuple[ActiveProducer, ...]:
    return tuple(ActiveProducer(0, i, 0, 1, NOW_MS, None) for i in ids)


def on_route(**changes: Any) -> Draft:
    ledger = follower("ledger-app", "consumer", group="ledger")
    return drafted(followers=(follower(), ledger), **changes)


def test_the_first_spec_of_a_cluster_on_the_route_is_valid_and_planned_without_an_edit() -> None:
    found = on_route(acls=ACLS | {LEGACY})
    assert found.problems() == [] and not found.unread
    spec = parse_spec(found.yaml(), "draft.yaml")
    assert [(p.name, p.kind, p.principal) for p in spec.producers] == [("checkout", "route", "User:checkout")]
    assert [(c.name, c.kind, c.group) for c in spec.consumers] == [("ledger-app", "route", "ledger")]
    assert spec.partitions == 12
    plan = make_plan(spec, world(followers=(follower(), follower("ledger-app", "consumer", group="ledger"))))
    assert plan.ok, plan.blocking()
    assert any(line.startswith("User:legacy may write (ACL), and nothing shows") for line in found.left_out)


def test_every_participant_has_a_comment_that_says_where_it_comes_from() -> None:
    lines = on_route().yaml().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("  - "):
            assert lines[number - 1].startswith("  # "), line
    assert "1 instance(s) follow the route, as User:checkout" in "\n".join(lines)


def test_who_writes_beside_the_route_is_declared_as_work_for_a_person() -> None:
    found = on_route(acls=ACLS | {LEGACY}, producers=active(1, 2))
    legacy = found.producers[-1].values
    assert (legacy["name"], legacy["kind"], legacy["principal"]) == ("legacy", "manual", "User:legacy")
    assert any("2 idempotent producers have written" in line for line in found.left_out)
    old = tuple(replace(p, last_timestamp_ms=NOW_MS - 3_600_000) for p in active(1, 2))
    assert len(on_route(acls=ACLS | {LEGACY}, producers=old).producers) == 1
    alone = drafted(followers=())
    assert [p.values["kind"] for p in alone.producers] == ["manual"]


def test_groups_off_the_route_are_moved_by_a_person_and_one_without_members_says_so() -> None:
    found = drafted(
        groups=listing("ledger", "nightly"),
        described={"ledger": group(), "nightly": group("nightly", members=0, state="EMPTY")},
        commits={"ledger": commits(), "nightly": commits("nightly")},
    )
    assert [c.values["kind"] for c in found.consumers] == ["manual", "manual"]
    assert "it has no members now" in found.consumers[1].why


@pytest.mark.parametrize(
    ("there", "do"), [(0, "run topicshift route init, look again"), (2, "See topicshift route show")]
)
def test_an_application_that_reports_nowhere_says_what_to_do_about_it(there: int, do: str) -> None:
    one = world().source
    assert one is not None
    route = tuple(replace(one, name=name) for name in (ROUTES_TOPIC, ACKS_TOPIC))
    found = drafted(followers=(), route_topics=route[:there], groups=listing("ledger"), commits={"ledger": commits()})
    lines = [*found.producers, *found.consumers]
    assert [(line.values["kind"], "no instance of it has reported" in line.why) for line in lines] == [
        ("manual", True)
    ] * 2
    assert all(do in line.why for line in lines)


def test_kafka_streams_are_left_out_with_their_way() -> None:
    found = drafted(
        groups=listing("ledger", "sums"),
        described={"ledger": group(), "sums": group("sums", assignor="stream")},
        commits={"ledger": commits(), "sums": commits("sums")},
    )
    assert [c.values["group"] for c in found.consumers] == ["ledger"]
    assert any("sums is a Kafka Streams application" in line for line in found.left_out)


def test_connectors_that_name_the_topic_are_moved_by_connect() -> None:
    def one(name: str, role: str, **config: str) -> Connector:
        return Connector(name, role, "RUNNING", {0: "RUNNING"}, config, {})

    connect = Connectors(
        "connect_default",
        (
            one("sink", "consumer", topics="orders,payments"),
            one("pattern", "consumer", **{"topics.regex": "pay.*"}),
            one("other", "consumer", topics="orders"),
            one("source", "producer", topic="payments"),
            one("debezium", "producer", **{"kafka.topic": "payments"}),
            one("dr", "producer", **{"connector.class": "a.MirrorSourceConnector", "topics": "payments"}),
            one("all", "producer", **{"connector.class": "a.MirrorSourceConnector"}),
            one("offsets", "producer", **{"connector.class": "a.MirrorCheckpointConnector", "topics": "payments"}),
        ),
    )
    found = drafted([connect])
    settings = {c.values["name"]: (c.values["kind"], c.values["group"]) for c in found.consumers}
    assert settings["sink"] == ("connect", "connect-sink") and settings["pattern"] == ("connect", "connect-pattern")
    assert "other" not in settings
    mirror = next(c.values for c in found.consumers if c.values["name"] == "dr")
    assert mirror["group"] == "mirror-dr" and mirror["settings"] == {"connector": "dr", "mirror": True}
    assert any("connector all of connect_default copies the topic by a pattern" in line for line in found.left_out)
    made = {p.values["name"]: p.values.get("settings") for p in found.producers}
    assert made["source"] == {"connector": "source"}
    assert made["debezium"] == {"connector": "debezium", "topic_setting": "kafka.topic"}
    assert not {"dr", "all", "offsets"} & made.keys(), "MirrorMaker 2 writes to the other cluster"
    assert found.problems() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"groups": listing("ledger", complete=False, why="filtered by ACLs")}, "consumer groups, perhaps: filtered"),
        ({"acls": None, "unread": {"acls": "not allowed: no DESCRIBE"}}, "the ACLs: not allowed"),
        ({"followers": None, "unread": {"followers": "no broker"}}, "the applications on the route of this topic: no"),
        ({"followers": None}, "there was no route to look at"),
        ({"cluster": replace(CLUSTER, authorizer=False)}, "this cluster has no authorizer"),
        ({"acls": frozenset()}, "no ACL lets anybody write"),
        ({"followers": (follower("?"),)}, "cannot be understood"),
        ({}, "no connection to a Connect worker was named"),
    ],
)
def test_what_could_not_be_seen_is_said_by_name(changes: dict[str, Any], said: str) -> None:
    found = drafted(**changes)
    assert any(said in line for line in found.unseen), found.unseen
    assert said in found.yaml()
    assert found.unread is bool(changes.get("unread") or ("groups" in changes))
    assert "Readers that commit nothing to Kafka" in found.yaml()


def test_where_nobody_can_be_named_the_draft_is_no_valid_spec_and_says_so() -> None:
    found = drafted(followers=(), acls=frozenset(), groups=listing(), described={}, commits={})
    assert len(found.problems()) == 2
    assert "producers: []  # nobody that writes could be named" in found.yaml()


@pytest.mark.parametrize(
    ("topics", "wanted", "there", "free"),
    [
        ({"payments"}, (), (), ("payments-v2",)),
        ({"payments", "payments-v2", "payments-v3"}, (), ("payments-v2", "payments-v3"), ("payments-v4",)),
        ({"payments", "cash"}, ("cash", "money"), ("cash",), ("payments-v2", "money")),
        ({"payments", "payments-v2"}, ("payments-v2",), ("payments-v2",), ("payments-v3",)),
        (None, ("cash",), (), ()),  # what could not be listed is neither there nor free
    ],
)
def test_targets_that_exist_already_are_named_and_so_is_the_next_free_name(
    topics: set[str] | None, wanted: tuple[str, ...], there: tuple[str, ...], free: tuple[str, ...]
) -> None:
    seen = world(topics=None if topics is None else frozenset(topics))
    found = draft("payments", seen, None, Wish(targets=wanted))
    assert (found.targets_there, found.targets_free) == (there, free)
    read = draft_seen("assessment-1", found.yaml())
    assert (tuple(read["there"]), tuple(read["free"])) == (there, free)


def test_names_from_outside_stay_data() -> None:
    name = 'l: [x] # "\n- {a: b}'
    found = drafted(
        groups=listing(name), described={name: group(name)}, commits={name: commits(name)}, offsets=offsets()
    )
    read = yaml.safe_load(found.yaml())
    assert read["consumers"][0]["group"] == name and len(read["consumers"]) == 1


def test_a_worker_that_does_not_answer_is_named_and_a_connector_that_cannot_be_read_hides_no_other() -> None:
    def denied(method: str, path: str) -> Any:
        raise AccessDenied("HTTP 403")

    found = connectors_of("connect_default", denied)
    assert found.found == () and "HTTP 403" in found.unread

    def some(method: str, path: str) -> Any:
        if path == "/connectors":
            return ["a/b", "bad"]
        if "bad" in path:
            raise AccessDenied("HTTP 403")
        assert path.startswith("/connectors/a%2Fb/")
        if path.endswith("config"):
            return {"topics": "payments"}
        return {"name": "a/b", "type": "sink", "connector": {"state": "RUNNING"}, "tasks": []}

    found = connectors_of("connect_default", some)
    assert [c.name for c in found.found] == ["a/b"] and found.unread.startswith("bad: ")
    assert drafted([found]).unread
