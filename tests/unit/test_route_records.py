"""The two records of the route: strict where it matters, tolerant to what it does not know, lossless as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.route.records import (
    Ack,
    GroupRoute,
    Route,
    RouteFormatError,
    State,
    Status,
    newer,
    parse_ack,
    parse_route,
    route_json,
    serialise_ack,
    serialise_route,
    utc_text,
)

T0 = datetime(2030, 1, 31, 2, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)

topics = st.sampled_from(["payments", "payments-v2", "a", "Orders_2.x", "z" * 249])
names = st.sampled_from(["ledger", "a b", "é", "\u2028", '"', "0"])
times = st.integers(0, 10**12).map(
    lambda ms: datetime.fromtimestamp(ms / 1000, UTC).replace(microsecond=ms % 1000 * 1000)
)
extras = st.sampled_from([{}, {"x_colour": "green"}, {"x_n": 1, "x_list": [None, {"a": 1.5}]}])


@st.composite
def group_routes(draw: st.DrawFn) -> GroupRoute:
    state = draw(st.sampled_from(State))
    lease = draw(times) if state is State.PAUSED else draw(st.none() | times)
    return GroupRoute(draw(topics), state, lease, draw(st.none() | topics), draw(extras))


@st.composite
def routes(draw: st.DrawFn) -> Route:
    state = draw(st.sampled_from(State))
    return Route(
        draw(topics),
        draw(topics),
        state,
        draw(st.integers(1, 2**40)),
        draw(times) if state is State.PAUSED else draw(st.none() | times),
        draw(st.dictionaries(names, group_routes(), max_size=3)),
        draw(st.none() | topics),
        draw(st.none() | topics),
        draw(st.none() | names),
        draw(st.integers(0, 99)),
        draw(extras),
    )


@given(routes())
def test_a_route_is_the_same_after_a_journey_through_json(route: Route) -> None:
    assert parse_route(serialise_route(route), route.logical.encode()) == route


@given(
    st.builds(
        Ack,
        topics,
        st.sampled_from(["producer", "consumer"]),
        names,
        names,
        st.sampled_from(Status),
        st.integers(0, 2**40),
        topics,
        names,
        st.none() | names,
        st.dictionaries(st.integers(0, 999), st.integers(-1, 2**62), max_size=4),
        times,
        st.integers(1, 10**6),
        st.integers(1, 10**6),
        st.text(max_size=9),
    )
)
def test_an_acknowledgement_is_the_same_after_a_journey_through_json(ack: Ack) -> None:
    assert parse_ack(serialise_ack(ack)) == ack
    assert ack.key == f"{ack.logical}/{ack.instance}"


def record(**changes: Any) -> str:
    good = {"v": 1, "logical": "payments", "active": "payments", "state": "open", "epoch": 3}
    return json.dumps({k: v for k, v in {**good, **changes}.items() if v != "-"})


def test_a_minimal_record_of_another_writer_is_read() -> None:
    assert parse_route(record()) == Route("payments", "payments", State.OPEN, 3)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"v": 2}, "v=2"),
        ({"v": "-"}, "v=None"),
        ({"logical": ""}, "logical"),
        ({"active": "a/b"}, "active"),
        ({"state": "closed"}, "closed"),
        ({"state": "paused"}, "lease_until"),
        ({"state": "paused", "lease_until": "tomorrow"}, "tomorrow"),
        ({"state": "paused", "lease_until": 1900000000000}, "1900000000000"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"epoch": "3"}, "epoch"),
        ({"groups": []}, "groups"),
        ({"groups": {"ledger": "payments"}}, "groups.ledger"),
        ({"groups": {"ledger": {"topic": ".."}}}, "groups.ledger.topic"),
        ({"groups": {"ledger": {"topic": "p", "state": "paused"}}}, "groups.ledger.state"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(RouteFormatError, match=word.replace(".", r"\.")):
        parse_route(record(**changes))


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"\xff\xfe", b"{"])
def test_what_is_no_json_object_is_refused(value: bytes) -> None:
    with pytest.raises(RouteFormatError):
        parse_route(value)


def test_a_key_of_another_topic_is_refused() -> None:
    with pytest.raises(RouteFormatError, match="orders"):
        parse_route(record(), b"orders")


def test_unknown_fields_are_written_back() -> None:
    route = parse_route(record(colour="green", groups={"ledger": {"topic": "payments", "note": "slow"}}))
    assert route_json(route)["colour"] == "green"
    assert route_json(route)["groups"]["ledger"]["note"] == "slow"


def test_times_are_utc_with_milliseconds() -> None:
    assert utc_text(T0 + timedelta(microseconds=1999)) == "2030-01-31T02:15:00.001Z"
    paused = parse_route(record(state="paused", lease_until="2030-01-31T03:15:00.123456789+01:00"))
    assert paused.lease_until == T0 + timedelta(microseconds=123456)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"role": "broker"}, "role"),
        ({"status": "fine"}, "fine"),
        ({"offsets": {"a": 1}}, "offsets"),
        ({"offsets": {"0": "1"}}, "offsets"),
        ({"role": "consumer", "group": None}, "group"),
        ({"at": None}, "at"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
    ],
)
def test_a_wrong_field_of_an_acknowledgement_is_named(changes: dict[str, Any], word: str) -> None:
    good = json.loads(
        serialise_ack(Ack("payments", "producer", "checkout", "c.1", Status.RUNNING, 0, "payments", at=T0))
    )
    with pytest.raises(RouteFormatError, match=word):
        parse_ack(json.dumps({**good, **changes}))


@given(
    *[st.builds(Route, topics, topics, st.sampled_from(State), st.integers(1, 3), st.sampled_from([T0, T0 + SECOND]))]
    * 2
)
def test_one_of_two_epochs_wins_whatever_came_first(one: Route, two: Route) -> None:
    assert not (newer(one, two) and newer(two, one))
    if one.epoch != two.epoch:
        assert newer(one, two) == (two.epoch > one.epoch)
    assert newer(None, one)


def test_the_same_epoch_with_a_later_lease_renews_and_nothing_else_does() -> None:
    paused = Route("p", "p", State.PAUSED, 4, T0)
    assert newer(paused, Route("p", "p", State.PAUSED, 4, T0 + timedelta(seconds=1)))
    assert not newer(paused, Route("p", "p", State.PAUSED, 4, T0 - timedelta(seconds=1)))
    assert not newer(paused, paused)
    assert not newer(paused, Route("p", "q", State.OPEN, 4))
