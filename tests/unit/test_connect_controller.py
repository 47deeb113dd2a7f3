"""The controller of kind ``connect`` over a worker in memory: what it says, does, and never does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.connect_contract import CONTRACT, Case

from topicshift.adapters.controllers.connect import ConnectController
from topicshift.core.errors import AccessDenied, NotFound, Transient, Unreadable
from topicshift.core.kafka import connect
from topicshift.core.kafka.cluster import GroupMember
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_connect import FakeConnector, FakeConnectWorker
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET, GROUP = "payments", "payments-v2", "connect-archive"
SINK = {"connector.class": "Kept", "topics": "orders, payments", "tasks.max": "2", "file": "/tmp/payments.txt"}
INTAKE = {"connector.class": "Kept", "topic": SOURCE, "tasks.max": "1"}
sink = Participant("archive", "consumer", "connect", GROUP, None, {"connector": "archive"}, "none")
intake = Participant("intake", "producer", "connect", settings={"connector": "intake"})


class Place:
    """A cluster, a worker with a sink and a source, and the controller."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.worker = FakeConnectWorker(self.changed, self.cluster.cluster().cluster_id)
        self.sink = self.worker.create("archive", SINK)
        self.intake = self.worker.create("intake", INTAKE)
        self.controller = ConnectController(self.cluster, lambda _: self.worker, ManualClock())
        self.said: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=lambda name, data: self.said.append({**data, "of": name}))

    def changed(self, one: FakeConnector) -> None:
        """Its tasks are members of its group, as long as they run."""
        if one.sink:
            self.cluster.commit(GROUP, SOURCE, {0: 0})
            self.cluster.leave(GROUP, "m")
            if one.reads:
                self.cluster.join(GROUP, GroupMember("m", "m", "h", assignment=dict.fromkeys(one.reads, (0,))))

    def able(self, who: Participant = sink) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who]))

    def state(self, who: Participant = sink) -> ParticipantState:
        (found,) = self.controller.observe(self.ctx, [who])
        return found

    def to_target(self) -> None:
        self.controller.stop(self.ctx, [sink, intake])
        self.cluster.commit(GROUP, TARGET, dict.fromkeys(range(6), 0))
        self.controller.point(self.ctx, [sink, intake], TARGET)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_worker_in_memory_keeps_the_contract(case: Case, place: Place) -> None:
    def until(holds: Any, what: str) -> None:
        assert holds(), what

    case(place.worker, "archive", dict(place.sink.config), until)


# ------------------------------------------------------------------------------------------------------- can_i


def test_connectors_that_run_as_they_are_declared_can_be_moved(place: Place) -> None:
    assert place.able() == "" and place.able(intake) == ""
    assert not place.said


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"topics": "orders"}, "its setting topics is 'orders'; it has to name payments, and not payments-v2"),
        ({"topics": "payments,payments-v2"}, "and not payments-v2"),
        ({"topics.regex": "pay.*"}, "topics.regex"),
        ({"notes": "from payments"}, "its setting notes names payments as well"),
        ({"table.name.format": "kept_${topic}"}, "its setting table.name.format names"),
        ({"topic.payments.key": "id"}, "its setting topic.payments.key names"),
        ({"consumer.override.group.id": "other"}, "it reads as group other, and the spec says connect-archive"),
        ({"connection.password": "*****"}, "hides the values of connection.password"),
        ({"connector.class": "io.x.ElasticsearchSinkConnector"}, "the offset as their version"),
        ({"tasks.max": "many"}, "would not take it with payments-v2: wrong: tasks.max"),
    ],
)
def test_what_would_keep_a_sink_from_being_moved_is_said_by_name(
    place: Place, change: dict[str, str], seen: str
) -> None:
    place.sink.config |= change
    assert place.able().startswith("archive: ") and seen in place.able()


def test_names_that_only_look_like_the_source_are_no_obstacle(place: Place) -> None:
    place.sink.config |= {"a": "payments-eu", "b": "old.payments", "c": "payments.eu", "d": "xpayments", "e": ""}
    assert place.able() == ""


def test_what_is_acknowledged_is_no_obstacle(place: Place) -> None:
    place.sink.config |= {"notes": "payments", "connector.class": "ElasticsearchSinkConnector"}
    told = {"connector": "archive", "keep": ["notes"]}
    assert "version" in place.able(Participant("archive", "consumer", "connect", GROUP, None, told, "none"))
    assert place.able(Participant("archive", "consumer", "connect", GROUP, None, told, "handled")) == ""
    for how in ({"write.method": "upsert"}, {"key.ignore": "true"}, {"external.version.header": "v"}):
        assert not connect.versions_by_offset(place.sink.config | how)


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ({"state": "PAUSED"}, "the connector is PAUSED"),
        ({"state": "FAILED"}, "the connector is FAILED (a.B)"),
        ({"tasks": {}}, "no task"),
        ({"tasks": {0: "RUNNING", 1: "FAILED"}}, "task 1 is FAILED (a.B)"),
    ],
)
def test_one_that_does_not_run_cannot_be_put_back_as_it_was(place: Place, wrong: dict[str, Any], seen: str) -> None:
    vars(place.sink).update(wrong)
    assert seen in place.able() and "hush" not in place.able()


def test_wrong_workers_are_told_apart(place: Place) -> None:
    place.worker.version = "3.4.1"
    assert "is of Kafka 3.4.1, which cannot stop" in place.able()
    place.worker.version = ""
    assert "does not say its version" in place.able()
    place.worker.version, place.worker.cluster_id = "3.5.0", "another"
    assert "works with the Kafka cluster another" in place.able()
    place.worker.connectors.clear()
    assert "knows no connector 'archive'" in place.able()
    assert "is a source, no sink" in Place().able(
        Participant("x", "consumer", "connect", GROUP, None, {"connector": "intake"})
    )


def test_while_workers_rebalance_nothing_is_known(place: Place) -> None:
    place.worker.busy = 2
    assert place.able() == "", "they were asked again"
    place.worker.busy = 9
    with pytest.raises(Unreadable, match=r"archive: .*HTTP 500"):
        place.able()


@pytest.mark.parametrize("lost", ["connector", "task"])
def test_one_on_its_way_to_another_worker_is_asked_again(place: Place, lost: str) -> None:
    def lose(state: str) -> None:
        place.sink.state = state if lost == "connector" else "RUNNING"
        place.sink.tasks[0] = state if lost == "task" else "RUNNING"

    lose("UNASSIGNED")
    assert "UNASSIGNED" in place.able(), "nobody takes it"
    looks = itertools.count()
    place.worker.on_call = lambda call: lose("RUNNING") if call.endswith("/config") and next(looks) == 1 else None
    lose("UNASSIGNED")
    assert place.able() == ""


# ------------------------------------------------------------------------------------------------------- acts


@given(st.lists(st.sampled_from(["orders", "payments", "refunds", "payments-eu"]), unique=True), st.booleans())
def test_a_topic_is_put_in_the_place_of_another_and_back(topics: list[str], spaced: bool) -> None:
    value = (" , " if spaced else ",").join(topics)
    there = connect.renamed(value, SOURCE, TARGET)
    if SOURCE not in topics:
        assert there is None
        return
    assert there is not None and connect.topics_of(there) == [TARGET if t == SOURCE else t for t in topics]
    assert connect.renamed(there, TARGET, SOURCE) == value
    assert connect.renamed(f"{value},{TARGET}", SOURCE, TARGET) is None


def test_there_and_back_every_setting_is_as_before(place: Place) -> None:
    before = [dict(place.sink.config), dict(place.intake.config)]
    place.to_target()
    assert place.sink.config == before[0] | {"topics": "orders, payments-v2"}
    assert place.intake.config == before[1] | {"topic": TARGET}
    place.controller.point(place.ctx, [sink, intake], SOURCE)
    place.controller.start(place.ctx, [sink, intake])
    assert [place.sink.config, place.intake.config] == before
    assert place.state().status == place.state(intake).status == "running"


def test_an_act_that_is_done_already_asks_for_nothing(place: Place) -> None:
    place.to_target()
    place.controller.start(place.ctx, [sink, intake])
    asked: list[str] = []
    place.worker.on_call = asked.append
    place.controller.point(place.ctx, [sink, intake], TARGET)
    place.controller.start(place.ctx, [sink, intake])
    assert asked and all(call.startswith("GET ") for call in asked)


def test_one_that_runs_is_not_pointed_elsewhere(place: Place) -> None:
    with pytest.raises(Transient, match=r"archive: .*once it is STOPPED.*; intake: "):
        place.controller.point(place.ctx, [sink, intake], TARGET)
    assert place.sink.config["topics"] == "orders, payments"


def test_topics_that_somebody_changed_are_left_alone_and_named(place: Place) -> None:
    place.controller.stop(place.ctx, [sink])
    place.sink.config["topics"] = "orders"
    with pytest.raises(Transient, match=r"its setting topics is 'orders'.*put it right by hand"):
        place.controller.point(place.ctx, [sink], TARGET)


def test_a_setting_that_somebody_changes_at_the_same_moment_is_named(place: Place) -> None:
    place.controller.stop(place.ctx, [sink])
    place.worker.on_call = lambda call: place.sink.config.update(file="/b") if call.endswith("answered") else None
    place.controller.point(place.ctx, [sink], TARGET)
    assert place.said[-1] == {"of": "archive", "moment": "point", "differs": "file"}


def test_workers_that_rebalance_are_told_again_and_keep_nobody_else(place: Place) -> None:
    place.worker.busy = 1
    with pytest.raises(Transient, match=r"^(archive|intake): .*HTTP (409|500)"):
        place.controller.stop(place.ctx, [sink, intake])
    assert {place.sink.state, place.intake.state} == {"STOPPED", "RUNNING"}
    place.controller.stop(place.ctx, [sink, intake])
    assert {place.sink.state, place.intake.state} == {"STOPPED"}


def test_a_right_that_goes_or_a_connector_that_is_deleted_names_the_participant_and_the_way_back(place: Place) -> None:
    def locked(call: str) -> None:
        if call.startswith("PUT "):
            raise AccessDenied(f"{call} is not allowed (HTTP 403).")

    back = "`topicshift resume-on-source` ends a freeze, and `topicshift rollback`"
    place.worker.on_call = locked
    with pytest.raises(AccessDenied, match=f"^archive: PUT .*HTTP 403.*{back}"):
        place.controller.stop(place.ctx, [sink, intake])
    place.worker.on_call = lambda call: None
    del place.worker.connectors["archive"]
    with pytest.raises(NotFound, match=f"^archive: its worker knows no connector 'archive'.*{back}"):
        place.controller.stop(place.ctx, [sink, intake])
    assert place.intake.state == "STOPPED", "it keeps nobody else"


def test_nothing_is_sent_once_the_time_of_the_act_is_over(place: Place) -> None:
    def over() -> None:
        raise Transient("held up")

    before = [dict(vars(one)) for one in place.worker.connectors.values()]
    late = replace(place.ctx, still=over)
    with pytest.raises(Transient, match="held up"):
        place.controller.stop(late, [sink, intake])
    assert [vars(one) for one in place.worker.connectors.values()] == before
    place.controller.stop(place.ctx, [sink, intake])
    for act in (lambda: place.controller.point(late, [sink], TARGET), lambda: place.controller.start(late, [sink])):
        with pytest.raises(Transient, match="held up"):
            act()
    assert place.sink.config["topics"] == "orders, payments" and place.sink.state == "STOPPED"


# --------------------------------------------------------------------------------------------------- observing


def test_a_stop_is_no_evidence_while_tasks_are_listed_or_members_are_left(place: Place) -> None:
    place.sink.lingers = place.intake.lingers = True
    place.controller.stop(place.ctx, [sink, intake])
    assert (place.state().status, place.state().topic) == ("running", SOURCE)
    assert place.state(intake).status == "running" and "STOPPED, task 0 RUNNING" in place.state(intake).reason
    place.sink.tasks, place.intake.tasks = {}, {}
    assert place.state().status == "running", "its group still has a member"
    assert place.state(intake).status == "stopped"
    place.changed(place.sink)
    assert (place.state().status, place.state().topic) == ("stopped", SOURCE)


def test_a_connector_that_failed_and_whose_task_runs_is_not_stopped(place: Place) -> None:
    place.sink.state = place.intake.state = "FAILED"
    assert (place.state().status, place.state().topic) == ("running", SOURCE)
    assert place.state(intake).status == "running" and "the connector is FAILED" in place.state(intake).reason


def test_on_the_target_it_has_arrived_once_it_runs_and_every_commit_moves(place: Place) -> None:
    place.to_target()
    assert (place.state().status, place.state().topic) == ("stopped", TARGET)
    assert (place.state(intake).status, place.state(intake).topic) == ("stopped", TARGET)
    place.sink.fails = True
    place.controller.start(place.ctx, [sink])
    assert (place.state().status, place.state().topic) == ("unknown", TARGET)
    assert "task 0 is FAILED (a.B)" in place.state().reason and "hush" not in place.state().reason
    place.sink.fails = False
    place.controller.start(place.ctx, [sink])
    assert (place.state().status, place.state().topic) == ("running", TARGET)
    place.cluster.produce(TARGET, 2, 5)
    assert (
        place.state().status == "unknown"
        and "commits do not move on payments-v2[2] (at 0 of 5)" in place.state().reason
    )
    place.cluster.commit(GROUP, TARGET, {2: 1})
    assert place.state().status == "running"


def test_what_its_group_reads_counts_whatever_its_settings_say(place: Place) -> None:
    place.sink.config["topics"] = TARGET
    state = place.state()
    assert (state.status, state.topic) == ("running", SOURCE) and "its settings name payments-v2" in state.reason


def test_a_worker_that_does_not_answer_leaves_it_unknown(place: Place) -> None:
    def dead(*_: Any) -> Any:
        raise Transient("GET /connectors at http://w: no answer (refused)")

    controller = ConnectController(place.cluster, lambda _: dead, ManualClock())
    for who in (sink, intake):
        (state,) = controller.observe(place.ctx, [who])
        assert state.status == "unknown" and "no answer" in state.reason
    place.sink.tasks = {"many": "RUNNING"}  # type: ignore[dict-item]
    assert place.state().status == "unknown" and "not the answer of a Connect worker" in place.state().reason
