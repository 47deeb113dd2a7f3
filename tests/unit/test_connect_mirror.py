"""The controller of kind ``connect`` with MirrorMaker 2 over a worker in memory: what it says, does, and never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.connect_contract import a_mirror_is_a_source_whose_offsets_are_read_and_set as contract
from tests.unit.test_acts_mirror import GROUP, MIRROR

from topicshift.adapters.connectors import read_by_connection
from topicshift.adapters.controllers.connect import ConnectController
from topicshift.adapters.readers import evidence_source
from topicshift.core.errors import Refused, SpecError, Transient
from topicshift.core.kafka.cluster import GroupMember
from topicshift.core.spec.locations import by_connection, connection_of
from topicshift.ports import ControlContext, Mirroring, Participant, ParticipantState
from topicshift.testing.fake_connect import FakeConnectWorker, Log
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET = "payments", "payments-v2"
mirror = Participant("dr", "consumer", "connect", GROUP, None, {"connector": "dr", "mirror": True}, "none")
MIRROR_ALONE = {**MIRROR, "topics": SOURCE}


class Place:
    """A cluster with 10 records in each of two partitions, a worker elsewhere with a mirror, and the controller."""

    def __init__(self, *, authorizer: bool = False) -> None:
        self.cluster = FakeCluster(authorizer=authorizer)
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        for partition in (0, 1):
            self.cluster.produce(SOURCE, partition, 10)
        self.worker = FakeConnectWorker(cluster_id="another")
        self.worker.logs = self.logs
        self.dr = self.worker.create("dr", MIRROR)
        self.worker.work()
        self.controller = ConnectController(self.cluster, lambda _: self.worker, ManualClock())
        self.trail: list[dict[str, Any]] = []
        self.ctx = ControlContext(
            "m", SOURCE, TARGET, 1, say=lambda name, data: self.trail.append(dict(data)), told=lambda _: self.trail
        )

    def logs(self, topic: str) -> Log:
        if topic not in (SOURCE, TARGET):
            return {}
        return {p: (o.log_start or 0, o.end or 0) for p, o in self.cluster.offsets(topic).items()}

    def able(self, who: Participant = mirror) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who]))

    def state(self) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [mirror])
        return found

    def seed(self) -> None:
        self.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))

    def point(self, topic: str) -> None:
        self.controller.point(self.ctx, [mirror], topic)

    def to_target(self) -> None:
        self.controller.stop(self.ctx, [mirror])
        self.seed()
        self.point(TARGET)


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_worker_in_memory_keeps_the_contract(place: Place) -> None:
    place.worker.create("m", MIRROR_ALONE)

    def until(holds: Any, what: str) -> None:
        assert holds(), what

    contract(place.worker, "m", {**MIRROR_ALONE, "name": "m"}, until)


# ------------------------------------------------------------------------------------------------------- can_i


def test_a_mirror_that_runs_as_it_is_declared_can_be_moved(place: Place) -> None:
    assert place.able() == "" and not place.trail


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"topics": "orders"}, "its setting topics is 'orders'; it has to name payments"),
        ({"topics": "payments,payments-v2"}, "and not payments-v2"),
        ({"topics": "payments,pay.*"}, "topics has pay.*, which covers payments, or may"),
        ({"topics": "payments,.*-v[0-9]"}, "topics has .*-v[0-9], which covers payments-v2, or may"),
        ({"topics.exclude": "payments-v2"}, "with payments-v2 in its topics it would not copy it"),
        ({"topic.filter.class": "a.Mine"}, "a Mine chooses its topics"),
        ({"consumer.auto.offset.reset": "latest"}, "has to begin at the earliest"),
        ({"notes": "of payments"}, "its setting notes names payments as well"),
        ({"source.cluster.sasl.jaas.config": "[hidden]"}, "hides the values of source.cluster.sasl.jaas.config"),
        ({"tasks.max": "many"}, "would not take it with payments-v2: wrong: tasks.max"),
        ({"source.cluster.alias": "other"}, "it has copied nothing of payments yet"),
        ({"connector.class": "FileStreamSource"}, "and it is FileStreamSource"),
    ],
)
def test_what_would_keep_a_mirror_from_being_moved_is_said_by_name(
    place: Place, change: dict[str, str], seen: str
) -> None:
    place.worker.held = True
    place.dr.config |= change
    assert place.able().startswith("dr: ") and seen in place.able(), place.able()


def test_patterns_that_cover_neither_topic_are_no_obstacle(place: Place) -> None:
    place.dr.config["topics"] = "ord.*, payments, customers"
    assert place.able() == ""


def test_a_mirror_that_copies_acls_would_copy_the_deny_of_the_freeze() -> None:
    place = Place(authorizer=True)
    assert place.able() == ""
    del place.dr.config["sync.topic.acls.enabled"]
    assert "would copy the DENY" in place.able(), "it is true where it is left out"
    assert "DENY" not in _without_acls().able()


def _without_acls() -> Place:
    place = Place()
    del place.dr.config["sync.topic.acls.enabled"]
    return place


def test_one_that_is_declared_otherwise_is_told_what_to_write(place: Place) -> None:
    told = {"connector": "dr"}
    assert "say `mirror: true`" in place.able(replace(mirror, settings=told))
    writer = place.able(Participant("dr", "producer", "connect", settings=told))
    assert "keeps the partition of each record" in writer and "Move the topic in the cluster that it copies" in writer


def test_a_worker_that_cannot_set_offsets_is_told(place: Place) -> None:
    place.worker.version = "3.5.2"
    assert "is of Kafka 3.5.2, which cannot set the offsets" in place.able()


def test_one_that_copies_another_clusters_topic_is_found_by_its_offsets(place: Place) -> None:
    place.worker.held = True
    place.worker.offsets["dr"]["here", SOURCE, 1] = 30
    assert "payments[1] at 31, beyond the end here" in place.able()


def test_the_group_that_keeps_its_offsets_has_nobody_in_it(place: Place) -> None:
    place.cluster.join(GROUP, GroupMember("m", "m", "h"))
    assert f"group {GROUP} has members" in place.able()


# ------------------------------------------------------------------------------------------------------- acts


def test_there_and_back_settings_and_offsets_are_as_before(place: Place) -> None:
    config, offsets = dict(place.dr.config), dict(place.worker.offsets["dr"])
    place.to_target()
    assert place.dr.config == config | {"topics": f"orders,{TARGET}"}
    place.controller.start(place.ctx, [mirror])
    place.cluster.produce(TARGET, 5, 3)
    assert place.state().status == "running" and place.worker.copied["dr", TARGET, 5] == [(0, 3)]
    place.controller.stop(place.ctx, [mirror])
    place.cluster.commit(GROUP, SOURCE, {0: 10, 1: 10, 2: 0})
    place.point(SOURCE)
    assert (place.dr.config, place.worker.offsets["dr"]) == (config, offsets)
    changed = [e for e in place.trail if e["moment"] == "offsets"]
    assert changed == [{"moment": "offsets", "connector": "dr", "set": {TARGET: {"5": 0}}}]


def test_where_it_was_is_on_record_before_anything_is_changed(place: Place) -> None:
    place.controller.stop(place.ctx, [mirror])
    assert [e["moment"] for e in place.trail] == ["position", "stop"]
    assert place.trail[0]["copied"] == {"0": 10, "1": 10} and place.trail[0]["home"] == SOURCE
    place.trail.clear()  # stopped by somebody else, before the run
    place.seed()
    with pytest.raises(Transient, match="its position is on record"):
        place.point(TARGET)
    assert [e["moment"] for e in place.trail] == ["position"] and place.dr.config["topics"] == MIRROR["topics"]
    place.point(TARGET)
    assert place.dr.config["topics"] == f"orders,{TARGET}"


def test_it_is_not_pointed_before_its_offsets_are_kept(place: Place) -> None:
    place.controller.stop(place.ctx, [mirror])
    with pytest.raises(Transient, match=rf"group {GROUP} keeps no offset on 6 partition"):
        place.point(TARGET)
    assert place.dr.config["topics"] == MIRROR["topics"]


def test_its_offsets_are_set_before_its_settings_and_never_while_tasks_are_listed(place: Place) -> None:
    place.worker.offsets["dr"]["here", TARGET, 2] = 8
    place.dr.lingers = True
    place.controller.stop(place.ctx, [mirror])
    place.seed()
    with pytest.raises(Transient, match="once it is STOPPED"):
        place.point(TARGET)
    place.dr.tasks = {}
    asked: list[str] = []
    place.worker.on_call = asked.append
    place.point(TARGET)
    done = [call for call in asked if call.endswith("answered")]
    assert done == ["PATCH /connectors/dr/offsets answered", "PUT /connectors/dr/config answered"]
    assert ("here", TARGET, 2) not in place.worker.offsets["dr"]


def test_offsets_that_its_worker_refuses_keep_its_settings(place: Place) -> None:
    place.worker.offsets["dr"]["here", TARGET, 2] = 8
    place.controller.stop(place.ctx, [mirror])
    place.seed()

    def refuse(call: str) -> None:
        if call.startswith("PATCH"):
            raise Transient("HTTP 409")

    place.worker.on_call = refuse
    with pytest.raises(Transient, match="dr: HTTP 409"):
        place.point(TARGET)
    assert place.dr.config["topics"] == MIRROR["topics"]
    place.worker.on_call = lambda _: None
    place.dr.state = "PAUSED"
    with pytest.raises(Refused):
        place.worker("PATCH", "/connectors/dr/offsets", {"offsets": []})


def test_on_the_target_it_has_arrived_once_it_has_copied_of_every_partition_with_records(place: Place) -> None:
    place.to_target()
    assert (place.state().status, place.state().topic) == ("stopped", TARGET)
    place.cluster.produce(TARGET, 2, 5)
    place.worker.held = True
    place.controller.start(place.ctx, [mirror])
    assert place.state().status == "unknown"
    assert "its offsets do not move on payments-v2[2] (at 0 of 5)" in place.state().reason
    place.worker.held = False
    place.state()
    assert (place.state().status, place.state().topic) == ("running", TARGET)
    place.dr.tasks[1] = "FAILED"
    assert place.state().status == "unknown" and "task 1 is FAILED (a.B)" in place.state().reason


def test_it_does_not_go_on_behind_what_is_gone_before_it_was_copied(place: Place) -> None:
    """Paused beyond retention, it would resume at the earliest without a word."""
    place.worker.held = True
    place.controller.stop(place.ctx, [mirror])
    place.cluster.produce(SOURCE, 0, 10)
    place.cluster.delete_records(SOURCE, 0, 15)
    with pytest.raises(Transient, match=r"payments\[0\] from 10 to 14 is gone before it was copied"):
        place.controller.start(place.ctx, [mirror])
    assert place.dr.state == "STOPPED" and "is gone before" in place.state().reason
    place.worker.offsets["dr"]["here", SOURCE, 0] = 14  # a person accepts it
    place.controller.start(place.ctx, [mirror])
    assert place.dr.state == "RUNNING"


def test_both_topics_or_neither_in_its_settings_is_unknown_to_nobody(place: Place) -> None:
    place.dr.config["topics"] = f"{SOURCE},{TARGET}"
    state = place.state()
    assert (state.status, state.topic) == ("running", None) and "its topics are 'payments,payments-v2'" in state.reason


def test_every_flow_of_a_worker_is_named(place: Place) -> None:
    place.worker.create("sink", {"topics": SOURCE})
    place.worker.create("all", {**MIRROR, "topics": ".*"})
    assert isinstance(place.controller, Mirroring)
    found = place.controller.flows(["connect_dr"])
    assert [(f.connection, f.connector, f.worker_cluster) for f in found] == [
        ("connect_dr", "all", "another"),
        ("connect_dr", "dr", "another"),
    ]
    assert place.controller.copied([mirror], SOURCE) == {GROUP: {0: 10, 1: 10}}


# --------------------------------------------------------------------------------------------------- evidence


def test_its_offsets_are_evidence_by_the_name_of_a_connection(place: Place) -> None:
    at = by_connection("connect/dr:1", "a b/c")
    assert connection_of(at) == ("connect/dr:1", "a b/c")
    assert connection_of("connection:x") is None and connection_of("s3://x/y") is None
    readers = [{"name": GROUP, "kind": "connect", "location": by_connection("connect_default", "dr")}]
    read = evidence_source(readers, SOURCE, places=[], ask_of=lambda _: place.worker)
    assert read is not None
    (found,) = read()
    assert (found.offsets, found.from_start, found.error) == ({0: 10, 1: 10}, True, None)


def test_what_its_worker_does_not_tell_is_no_evidence(place: Place) -> None:
    def error(ask_of: Any = lambda _: place.worker, connector: str = "dr", topic: str = SOURCE) -> str:
        found = read_by_connection(GROUP, by_connection("connect_default", connector), topic, ask_of)
        assert not found.offsets
        return str(found.error)

    def unknown(_: str) -> Any:
        raise SpecError("There is no connection")

    assert "There is no connection" in error(unknown)
    assert "no such thing" in error(connector="nobody")
    assert "it has no offsets of orders" in error(topic="orders")
    assert "not the answer of a Connect worker" in error(lambda _: lambda *a: {})
