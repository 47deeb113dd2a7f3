"""The controller of kind ``http`` over applications in memory: what it says, does, and never does."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.unit.http_contract import CONTRACT, SETTINGS, Case
from tests.unit.world import WRITERS

from topicshift.adapters.controllers.http import Call, HttpController
from topicshift.core.errors import AccessDenied, NotFound, Refused, Transient, Unreadable
from topicshift.core.http.answers import found, judge, same, unmet
from topicshift.core.http.templates import filled, filled_path
from topicshift.core.kafka.cluster import Acl, GroupMember
from topicshift.core.spec.http import MAX_ACT_S, HttpSettings
from topicshift.ports import ControlContext, Participant, ParticipantState
from topicshift.testing.fake_http import FakeApp, FakeServices
from topicshift.testing.fake_journal import ManualClock
from topicshift.testing.fakes import FakeCluster

SOURCE, TARGET, GROUP = "payments", "payments-v2", "ledger-g"
STATE, ENV, REFRESH = "POST /actuator/payments", "POST /actuator/env", "POST /actuator/refresh"


def producer(**changes: Any) -> Participant:
    return Participant("checkout", "producer", "http", settings={**SETTINGS, **changes})


PRODUCER = producer()
PAIR = producer(connections=["checkout", "second"])
CONSUMER = Participant("ledger", "consumer", "http", GROUP, settings={**SETTINGS, "connections": ["ledger"]})


class Place:
    """A cluster, three processes with an interface, and the controller."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(authorizer=True)
        self.cluster.create_topic(SOURCE, 3, 1, {})
        self.cluster.create_topic(TARGET, 6, 1, {})
        self.services = FakeServices(self.changed)
        self.app, self.second, self.ledger = (FakeApp(SOURCE) for _ in range(3))
        self.services.apps = {"checkout": self.app, "second": self.second, "ledger": self.ledger}
        self.clock = ManualClock()
        self.controller = HttpController(self.cluster, self.services, self.clock)
        self.said: list[dict[str, Any]] = []
        self.ctx = ControlContext("m", SOURCE, TARGET, 1, say=lambda name, data: self.said.append({**data, "of": name}))
        self.changed("ledger")

    def changed(self, connection: str) -> None:
        if connection == "ledger":
            self.cluster.commit(GROUP, SOURCE, {0: 0})
            self.cluster.leave(GROUP, "m")
            if self.ledger.state != "stopped":
                self.cluster.join(GROUP, GroupMember("m", "m", "h", assignment={self.ledger.topic: (0,)}))

    def able(self, who: Participant = PRODUCER) -> str:
        return "\n".join(self.controller.can_i(self.ctx, [who]))

    def state(self, who: Participant = PRODUCER) -> ParticipantState:
        (seen,) = self.controller.observe(self.ctx, [who])
        return seen

    def where(self, who: Participant = PRODUCER) -> tuple[str, str | None]:
        seen = self.state(who)
        return seen.status, seen.topic


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("case", CONTRACT, ids=lambda c: c.__name__)
def test_the_application_in_memory_keeps_the_contract(case: Case, place: Place) -> None:
    def until(holds: Any, what: str) -> None:
        assert any(holds() for _ in range(5)), what

    place.app.batch = 2
    case(lambda call: place.services.send("checkout", call), SOURCE, until)


# ------------------------------------------------------------------------------------------- pointers, conditions

ANSWER = {"a/b": {"~": 1}, "list": [{"s": "on"}, {"s": "off"}], "none": None, "empty": [], "": 0, "yes": True}


@pytest.mark.parametrize(
    ("pointer", "values"),
    [("/a~1b/~0", [1]), ("/list/1/s", ["off"]), ("/list/*/s", ["on", "off"]), ("/none", [None]), ("/", [0])],
)
def test_a_pointer_leads_to_values(pointer: str, values: list[Any]) -> None:
    assert found(ANSWER, pointer) == values


@pytest.mark.parametrize(
    "pointer", ["/b", "/list/2", "/list/-1", "/list/x", "/empty/*", "/none/x", "/list/*/t", "/yes/0"]
)
def test_a_pointer_that_leads_nowhere_is_no_empty_answer(pointer: str) -> None:
    with pytest.raises(LookupError):
        found(ANSWER, pointer)
    assert unmet(ANSWER, {pointer: "on"})


def test_values_are_compared_as_json_values() -> None:
    assert same(1, 1.0) and same(None, None) and not same(True, 1) and not same(0, False) and not same("1", 1)
    assert unmet(ANSWER, {"/list/*/s": ["on", "off"], "/yes": True}) == []
    assert unmet(ANSWER, {"/list/*/s": "on"}) == ["/list/*/s is 'off'"]
    assert "something else" in unmet({"a": "x" * 100}, {"/a": 1})[0], "what is long may be anything"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.lists(st.text(alphabet="ab*0/~", max_size=3), min_size=1, max_size=3))
def test_any_answer_is_judged_and_what_is_not_clear_is_unknown(answer: Any, parts: list[str]) -> None:
    pointer = "/" + "/".join(p.replace("~", "~0").replace("/", "~1") for p in parts)
    seen = judge(answer, {pointer: "on"}, {pointer: "off"}, pointer, {"on": "on", "off": "off"})
    try:
        values = found(answer, pointer)
    except LookupError:
        values = []
    assert seen.status == {"on": "running", "off": "stopped"}.get(
        next(iter(set(map(repr, values))), "").strip("'") if len(set(map(repr, values))) == 1 else "", "unknown"
    )


def test_one_that_runs_on_a_topic_that_cannot_be_told_is_unknown() -> None:
    topics = {SOURCE: SOURCE, TARGET: TARGET}
    for said, why in (({}, "is not said"), ({"t": "other"}, "neither topic"), ({"t": [SOURCE, TARGET]}, "both topics")):
        seen = judge(
            {"s": 1, **said}, {"/s": 1}, {"/s": 0}, "/t/*" if isinstance(said.get("t"), list) else "/t", topics
        )
        assert seen.status == "unknown" and seen.topic is None and why in seen.why
    assert judge({"s": 0}, {"/s": 1}, {"/s": 0}, "/t", topics).status == "stopped", "it stands, wherever it was"
    assert "runs and that it stands" in judge({"s": 0, "t": SOURCE}, {"/s": 0}, {"/s": 0}, "/t", topics).why


def test_requests_are_filled_and_a_whole_name_keeps_its_type() -> None:
    names = {"topic": "a b/c", "value": True}
    assert filled_path("/t/${topic}?on=${value}", names) == "/t/a%20b%2Fc?on=true"
    assert filled({"on": "${value}", "n": ["x ${topic}", 3], "${topic}": None}, names) == {
        "on": True, "n": ["x a b/c", 3], "a b/c": None,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------ settings


def wrong(**changes: Any) -> str:
    with pytest.raises(ValidationError) as error:
        HttpSettings.model_validate({**SETTINGS, **changes})
    return str(error.value)


def test_a_request_that_may_not_be_sent_twice_is_refused() -> None:
    assert "may be sent twice" in wrong(stop={"path": "/stop"})
    assert "may be sent twice" in wrong(stop={"path": "/stop", "method": "PATCH"})
    for method in ("PUT", "DELETE"):
        HttpSettings.model_validate({**SETTINGS, "stop": {"path": "/stop", "method": method}})


@pytest.mark.parametrize(
    "bad",
    [
        {"path": "/x?access_token=hush-hush", "method": "PUT"},
        {"path": "/x", "method": "PUT", "body": [{"deep": {"client_secret": "hush-hush"}}]},
        {"path": "/x", "method": "PUT", "body": {"Authorization": "hush-hush"}},
    ],
)
def test_a_secret_is_refused_and_sent_to_the_connection(bad: dict[str, Any]) -> None:
    said = wrong(stop=bad)
    assert "belongs to the connection" in said


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"restarts_on": "target"}, "restarts_on"),
        ({"point": {"path": "/fixed", "method": "PUT"}}, "the same for both topics"),
        ({"point": {"path": "/${value}", "method": "PUT"}}, "needs `values`"),
        ({"point": {"path": "/${topics}", "method": "PUT"}}, "is not known at point"),
        ({"stop": {"path": "/${topic}", "method": "PUT"}}, "is not known at stop"),
        ({"can_i": {"path": "/${topic}"}}, "is not known here"),
        ({"values": {SOURCE: True}}, "a value of its own"),
        ({"values": {SOURCE: True, TARGET: True}}, "a value of its own"),
        ({"timeout": "5s"}, "between 100 ms and 4 s"),
        ({"stop": {"path": "http://elsewhere/", "method": "PUT"}}, "pattern"),
        ({"stop": {"path": "/a\r\nHost: b", "method": "PUT"}}, "pattern"),
        ({"stop": {"path": "/a", "method": "PUT", "content_type": "a/b\r\nX: y"}}, "pattern"),
        ({"stop": []}, "at least 1"),
        ({"observe": {**SETTINGS["observe"], "running": {}}}, "at least 1"),
        ({"connections": []}, "at least 1"),
    ],
)
def test_settings_that_could_not_work_are_refused(changes: dict[str, Any], why: str) -> None:
    assert why in wrong(**changes)


def test_what_a_restart_does_has_to_be_declared() -> None:
    with pytest.raises(ValidationError, match="restarts_on"):
        HttpSettings.model_validate({k: v for k, v in SETTINGS.items() if k != "restarts_on"})


# --------------------------------------------------------------------------------------------------------- can_i


def test_applications_that_run_as_they_are_declared_can_be_moved(place: Place) -> None:
    before = copy.deepcopy([a.fields() for a in place.services.apps.values()])
    assert place.able() == place.able(CONSUMER) == place.able(PAIR) == ""
    assert [a.fields() for a in place.services.apps.values()] == before and not place.said


def test_what_would_keep_one_from_being_moved_is_said_by_name(place: Place) -> None:
    place.app.state = "stopped"
    assert place.able() == (
        "checkout: checkout: it is stopped on payments; it has to run on payments before it can be moved and put back "
        "as it was"
    )
    place.app.state, place.app.topic = "running", "orders"
    assert "/topic is 'orders', which is neither topic" in place.able()
    place.app.topic, place.app.state = SOURCE, "degraded"
    assert "neither that it runs (/state is 'degraded')" in place.able()
    place.app.state, place.second.state = "running", "stopped"
    assert place.able() == "" and "second: it is stopped" in place.able(PAIR)


def test_wrong_connections_and_rights_are_told_before_anything_is_touched(place: Place) -> None:
    place.services.locked.add("checkout")
    assert place.able().startswith("checkout: ") and "not allowed (HTTP 401)" in place.able()
    assert "no connection 'nobody'" in place.able(producer(connections=["nobody"]))
    place.services.locked.clear()
    flag = {"path": "/flags", "method": "PUT", "connections": ["flags"], "body": "${topic}"}
    assert "no connection 'flags'" in place.able(producer(point=flag)), "also of an act's own"
    place.services.apps["flags"] = FakeApp(SOURCE)
    place.services.locked.add("flags")
    probe = {"path": "/actuator/payments", "connections": ["flags"]}
    assert "HTTP 401" in place.able(producer(point=flag, can_i=probe))
    assert "no such thing" in place.able(producer(observe={**SETTINGS["observe"], "path": "/nothing"}))


def test_one_that_does_not_answer_is_asked_again_and_then_unknown(place: Place) -> None:
    class Patient(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            place.services.down.clear()

    place.services.down.add("checkout")
    assert HttpController(place.cluster, place.services, Patient()).can_i(place.ctx, [PRODUCER]) == []
    place.services.down.add("checkout")
    with pytest.raises(Unreadable, match=r"checkout: .*no answer"):
        place.able()


def test_one_that_starts_on_the_old_topic_needs_a_deny_to_hold_it(place: Place) -> None:
    """Its flag service is down when a process of it starts, and the code's default is the source."""
    falls_back = producer(restarts_on="source")
    assert "no DENY would keep it from writing there" in place.able(falls_back)
    place.cluster.create_acls([Acl("TOPIC", SOURCE, "LITERAL", WRITERS[0], "*", "WRITE", "ALLOW")])
    assert place.able(falls_back) == ""
    place.cluster._authorizer = False
    assert "no DENY would keep it" in place.able(falls_back)
    assert place.able(replace(CONSUMER, settings={**CONSUMER.settings, "restarts_on": "source"})) == ""


# ---------------------------------------------------------------------------------------------------------- acts


def test_there_and_back_every_field_is_as_before(place: Place) -> None:
    everybody = [PAIR, CONSUMER]
    before = copy.deepcopy({n: a.fields() for n, a in place.services.apps.items()})
    place.controller.stop(place.ctx, everybody)
    place.controller.point(place.ctx, everybody, TARGET)
    place.controller.start(place.ctx, everybody)
    assert place.where(PAIR) == place.where(CONSUMER) == ("running", TARGET)
    place.controller.stop(place.ctx, everybody)
    place.controller.point(place.ctx, everybody, SOURCE)
    place.controller.start(place.ctx, everybody)
    assert {n: a.fields() for n, a in place.services.apps.items()} == before
    said = [(s["moment"], s["request"]) for s in place.said if s["of"] == "checkout" and s["connection"] == "second"]
    assert said[:4] == [("stop", STATE), ("point", ENV), ("point", REFRESH), ("start", STATE)]


def test_a_flag_that_is_on_or_off_is_a_value_of_each_topic(place: Place) -> None:
    sent: list[Any] = []
    send = place.services.send
    place.services.send = lambda name, call: sent.append(call.body) or send(name, call)  # type: ignore[method-assign]
    flag = producer(
        point={"path": "/actuator/env", "body": {"name": "v2", "value": "${value}"}, "repeatable": True},
        values={SOURCE: False, TARGET: True},
        observe={**SETTINGS["observe"], "topic": "/v2"},
    )
    place.app.answer = lambda what, body: (
        {"state": "stopped", "v2": place.app.other.get("v2", False)}
        # type: ignore[method-assign]
        if (what.startswith("GET"))
        else place.app._set(body["name"], body["value"])
    )
    place.controller.point(place.ctx, [flag], TARGET)
    assert {"name": "v2", "value": True} in sent and place.state(flag).topic == TARGET
    lost = producer(**{**flag.settings, "values": {"a": 1, "b": 2}})
    assert "say nothing of payments" in place.able(lost)


def test_an_answer_that_did_nothing_is_never_taken_for_the_act(place: Place) -> None:
    """200, and nothing happened: neither a stop, nor a point; and nobody is started on the wrong topic."""
    place.app.deaf.add(STATE)
    place.controller.stop(place.ctx, [PRODUCER])
    assert place.where() == ("running", SOURCE)
    with pytest.raises(Transient, match="it is pointed to payments-v2 once it stands"):
        place.controller.point(place.ctx, [PRODUCER], TARGET)
    place.app.deaf = {REFRESH}
    place.controller.stop(place.ctx, [PRODUCER])
    with pytest.raises(Transient, match=r"was told to use payments-v2.*checkout still shows payments"):
        place.controller.point(place.ctx, [PRODUCER], TARGET)
    place.app.deaf.clear()
    place.controller.point(place.ctx, [PRODUCER], TARGET)
    assert place.where() == ("stopped", TARGET)


def test_a_stop_that_takes_effect_after_the_batch_is_waited_for(place: Place) -> None:
    place.app.batch = 2
    place.controller.stop(place.ctx, [PRODUCER])
    seen = place.state()
    assert seen.status == "unknown" and "/state is 'stopping'" in seen.reason
    with pytest.raises(Transient, match="once it stands"):
        place.controller.point(place.ctx, [PRODUCER], TARGET)
    assert place.where() == ("stopped", SOURCE)


def test_one_that_is_still_in_its_batch_is_put_back_by_its_start(place: Place) -> None:
    """A freeze that is given up while it has not stopped yet: it is on the source, so only its start is left."""
    place.app.batch = 3
    place.controller.stop(place.ctx, [PRODUCER])
    place.controller.point(place.ctx, [PRODUCER], SOURCE)
    place.controller.start(place.ctx, [PRODUCER])
    assert any(place.where() == ("running", SOURCE) for _ in range(5))
    assert [s["moment"] for s in place.said] == ["stop", "start"]


def test_every_instance_has_to_come_along(place: Place) -> None:
    place.second.deaf.add(STATE)
    place.controller.stop(place.ctx, [PAIR])
    seen = place.state(PAIR)
    assert (seen.status, seen.topic) == ("running", None)
    assert "second: it is running on payments" in seen.reason and "checkout: it is stopped" in seen.reason
    place.services.down.add("second")
    assert place.state(PAIR).status == "unknown"


def test_one_that_fails_keeps_no_other_from_being_stopped_and_is_named(place: Place) -> None:
    place.services.down.add("checkout")
    with pytest.raises(Transient, match=r"^checkout: .*no answer"):
        place.controller.stop(place.ctx, [PRODUCER, CONSUMER])
    assert place.ledger.state == "stopped"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AccessDenied("POST is not allowed (HTTP 403)."), AccessDenied),
        (NotFound("POST: there is no such thing (HTTP 404)."), NotFound),
        (Refused("POST was refused (HTTP 400)."), Refused),
    ],
)
def test_a_missing_right_or_path_names_the_participant_and_the_way_back(
    place: Place, error: Exception, kind: type[Exception]
) -> None:
    place.app.broken[STATE] = error
    with pytest.raises(kind, match=r"^checkout: POST.*resume-on-source` ends a freeze, and `topicshift rollback`"):
        place.controller.stop(place.ctx, [PRODUCER])


def test_nothing_is_sent_once_the_time_of_the_act_is_over(place: Place) -> None:
    def over() -> None:
        raise Transient("held up")

    before = copy.deepcopy(place.app.fields())
    late = replace(place.ctx, still=over)
    for act in (lambda: place.controller.stop(late, [PRODUCER]), lambda: place.controller.start(late, [PRODUCER])):
        with pytest.raises(Transient, match="held up"):
            act()
    assert place.app.fields() == before and not place.said


def test_the_requests_of_one_act_end_before_its_seat_does(place: Place) -> None:
    calls: list[Call] = []
    send = place.services.send

    def slow(name: str, call: Call) -> Any:
        calls.append(call)
        place.clock.advance(call.timeout_s)
        return send(name, call)

    place.services.send = slow  # type: ignore[method-assign]
    many = {"path": "/actuator/payments", "body": {"run": False}, "repeatable": True}
    who = producer(stop=[many] * 5, connections=["checkout"] * 2, timeout="4s")
    with pytest.raises(Transient, match="longer than 9 s"):
        place.controller.stop(place.ctx, [who])
    assert sum(c.timeout_s for c in calls) <= MAX_ACT_S and [c.timeout_s for c in calls] == [4.0, 4.0, 1.0]


# ------------------------------------------------------------------------------------------------------ consumers


def test_a_consumer_stands_once_its_group_has_no_members_and_it_says_so(place: Place) -> None:
    assert place.where(CONSUMER) == ("running", SOURCE)
    place.ledger.state = "stopped"
    seen = place.state(CONSUMER)
    assert (seen.status, seen.topic) == ("running", SOURCE), "its group still has a member"
    place.changed("ledger")
    assert place.where(CONSUMER) == ("stopped", SOURCE)
    place.ledger.state, place.ledger.left = "stopping", 5
    assert place.state(CONSUMER).status == "unknown", "its batch is not over, whatever its group shows"


def test_what_its_group_reads_counts_whatever_it_says(place: Place) -> None:
    place.ledger.topic = TARGET
    seen = place.state(CONSUMER)
    assert (seen.status, seen.topic) == ("running", SOURCE) and "its group reads payments" in seen.reason
    place.services.down.add("ledger")
    assert place.where(CONSUMER) == ("running", TARGET)


def test_one_that_says_that_it_runs_has_arrived_once_its_group_has_members(place: Place) -> None:
    place.cluster.leave(GROUP, "m")
    assert place.state(CONSUMER).status == "running", "on the source it has only to be stopped"
    place.ledger.topic = TARGET
    place.cluster.leave(GROUP, "m")
    seen = place.state(CONSUMER)
    assert (seen.status, seen.topic) == ("unknown", TARGET) and "its group has no members" in seen.reason
