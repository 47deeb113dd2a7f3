"""The two records of the route: strict where it matters, tolerant to what it does not know, lossless as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicshift.core.route.fields import MAX_COUNT, MAX_MS
from topicshift.core.route.records import (
    Ack,
    BadAck,
    GroupRoute,
    Route,
    RouteFormatError,
    State,
    Status,
    newer,
    parse_ack,
    parse_route,
    read_ack,
    route_json,
    serialise_ack,
    serialise_route,
)

T0 = 1_896_056_100_000

topics = st.sampled_from(["payments", "payments-v2", "a", "Orders_2.x", "z" * 249])
names = st.sampled_from(["ledger", "a b", "é", '"', "0", "/"])
times = st.integers(0, MAX_MS)
counts = st.integers(0, MAX_COUNT)
extras = st.sampled_from([{}, {"x_colour": "green"}, {"x_n": 1, "x_list": [None, {"a": 1.5}]}])


@st.composite
def pauses(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"state": State.OPEN, "until_ms": None}
    return {"state": State.PAUSED, "lease_ms": draw(st.none() | st.integers(1, 10**6)), "until_ms": draw(times)}


@st.composite
def group_routes(draw: st.DrawFn) -> GroupRoute:
    return GroupRoute(
        draw(topics), pause=draw(counts), came_from=draw(st.none() | topics), extra=draw(extras), **draw(pauses())
    )


@st.composite
def routes(draw: st.DrawFn) -> Route:
    return Route(
        draw(topics),
        draw(topics),
        epoch=draw(st.integers(1, MAX_COUNT)),
        pause=draw(counts),
        armed=draw(counts),
        groups=draw(st.dictionaries(names, group_routes(), max_size=3)),
        source=draw(st.none() | topics),
        target=draw(st.none() | topics),
        migration=draw(st.none() | names),
        claim=draw(counts),
        extra=draw(extras),
        **draw(pauses()),
    )


acks = st.builds(
    Ack,
    topics,
    st.sampled_from(["producer", "consumer"]),
    names,
    names,
    st.sampled_from(Status),
    counts,
    topics,
    names,
    st.none() | names,
    st.booleans(),
    st.dictionaries(st.integers(0, 999), st.integers(-1, 2**63 - 1), max_size=4),
    st.none() | times,
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.text(max_size=9).filter(str.isprintable),
)


@given(routes())
def test_a_route_is_the_same_after_a_journey_through_json(route: Route) -> None:
    assert parse_route(serialise_route(route), route.logical.encode(), T0) == route


@given(acks)
def test_an_acknowledgement_is_the_same_after_a_journey_through_json(ack: Ack) -> None:
    assert parse_ack(serialise_ack(ack)) == ack
    assert ack.key == f"{ack.logical}/{ack.instance}"


def record(**changes: Any) -> str:
    good = {"v": 1, "logical": "payments", "active": "payments", "state": "open", "epoch": 3}
    return json.dumps({k: v for k, v in {**good, **changes}.items() if v != "-"})


def test_a_minimal_record_of_another_writer_is_read() -> None:
    assert parse_route(record()) == Route("payments", "payments", State.OPEN, 3)


PAUSE = {"state": "paused", "until_ms": T0}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"v": 2}, "v=2"),
        ({"v": "-"}, "v=None"),
        ({"v": True}, "v=True"),
        ({"logical": ""}, "logical"),
        ({"active": "a/b"}, "active"),
        ({"state": "closed"}, "closed"),
        ({"state": ["open"]}, "state"),
        ({"state": "paused"}, "lease_ms"),
        ({"state": "paused", "lease_ms": "60"}, "lease_ms"),
        ({"state": "paused", "lease_ms": 0}, "lease_ms"),
        ({"state": "paused", "until_ms": 10**18}, "until_ms"),
        ({"state": "paused", "until_ms": "9999-12-31T23:59:59-01:00"}, "until_ms"),
        ({**PAUSE, "valid_before_ms": T0}, "else_active"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"epoch": "3"}, "epoch"),
        ({"epoch": 2**70}, "epoch"),
        ({"claim": -1}, "claim"),
        ({"groups": []}, "groups"),
        ({"groups": {"ledger": "payments"}}, "groups.ledger"),
        ({"groups": {"ledger": {"topic": ".."}}}, "groups.ledger.topic"),
        ({"groups": {"ledger": {"topic": "p", "state": "paused"}}}, "groups.ledger.state"),
        ({"migration": "a\nb"}, "migration"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(RouteFormatError, match=word.replace(".", r"\.")):
        parse_route(record(**changes), broker_ms=T0)


NASTY = [
    b"",
    b"null",
    b"[]",
    b"\xff\xfe",
    b"{",
    b"[" * 200_000,
    b'{"v":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"v":1,"x":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"v":1,"epoch":' + b"9" * 5000 + b"}",
    b'{"v":1,"epoch":1e400}',
    b'{"v":1,"epoch":NaN}',
    record(colour="\ud800").encode(),
    record(epoch=10**30).encode(),
    record(logical=["payments"]).encode(),
]


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
def test_what_is_no_record_is_not_understood_and_nothing_else(value: bytes) -> None:
    with pytest.raises(RouteFormatError):
        parse_route(value, broker_ms=T0)
    with pytest.raises(RouteFormatError):
        parse_ack(value)
    assert isinstance(read_ack(b"payments/c.1", value, T0), BadAck)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ROUTE_FIELDS = sorted(route_json(Route("p", "p", State.OPEN, 1)))
ACK_FIELDS = sorted(json.loads(serialise_ack(Ack("p", "producer", "c", "i", Status.RUNNING, 0, "p"))))


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(ROUTE_FIELDS), json_values).map(lambda d: json.dumps(d).encode())
)
def test_any_bytes_are_a_route_or_not_understood(value: bytes) -> None:
    try:
        route = parse_route(value, broker_ms=T0)
    except RouteFormatError:
        return
    assert parse_route(serialise_route(route), broker_ms=T0) == route


@given(
    st.none() | st.binary(max_size=20),
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(ACK_FIELDS), json_values).map(lambda d: json.dumps(d).encode()),
    st.none() | times,
)
def test_any_bytes_are_an_acknowledgement_a_bad_one_or_nobodys(
    key: bytes | None, value: bytes, stamp: int | None
) -> None:
    read = read_ack(key, value, stamp)
    if isinstance(read, BadAck):
        assert key is not None and key.decode("utf-8", "replace") == f"{read.logical}/{read.instance}"
    elif isinstance(read, Ack):
        assert read.broker_ms == stamp is not None


@given(routes(), st.sampled_from(ROUTE_FIELDS), json_values)
def test_one_field_of_anything_makes_a_route_or_is_not_understood(route: Route, name: str, value: Any) -> None:
    data = {**route_json(route), name: value}
    try:
        parse_route(json.dumps(data).encode(), broker_ms=T0)
    except RouteFormatError:
        return


def test_a_key_of_another_topic_is_refused() -> None:
    with pytest.raises(RouteFormatError, match="orders"):
        parse_route(record(), b"orders")


def test_unknown_fields_are_written_back() -> None:
    route = parse_route(record(colour="green", groups={"ledger": {"topic": "payments", "note": "slow"}}))
    assert route_json(route)["colour"] == "green"
    assert route_json(route)["groups"]["ledger"]["note"] == "slow"


# ------------------------------------------------------------------------------------------------ judged by its stamp


def test_a_pause_ends_its_length_after_the_brokers_stamp() -> None:
    paused = parse_route(record(state="paused", lease_ms=60_000), broker_ms=T0)
    assert paused.until_ms == T0 + 60_000
    assert paused.holds(T0 + 59_999) and not paused.holds(T0 + 60_000)
    grouped = {"g": {"topic": "p", "state": "paused", "lease_ms": 5}}
    assert parse_route(record(groups=grouped), broker_ms=T0).groups["g"].until_ms == T0 + 5


def test_without_a_stamp_a_pause_has_no_end_and_is_not_understood() -> None:
    with pytest.raises(RouteFormatError, match="LogAppendTime"):
        parse_route(record(state="paused", lease_ms=60_000))
    assert parse_route(record()).state is State.OPEN


def point(**changes: Any) -> str:
    fields = {"state": "paused", "until_ms": T0, "valid_before_ms": T0 - 2000, "else_active": "payments"}
    return record(active="payments-v2", **{**fields, **changes})


def test_a_point_counts_only_if_it_is_stamped_in_time() -> None:
    good = parse_route(point(), broker_ms=T0 - 2001)
    assert (good.active, good.voided) == ("payments-v2", None)
    for late in (T0 - 2000, T0 + 99_999):
        void = parse_route(point(), broker_ms=late)
        assert (void.active, void.voided, void.until_ms) == ("payments", "payments-v2", T0)
    with pytest.raises(RouteFormatError, match="LogAppendTime"):
        parse_route(point())


def test_a_void_point_is_void_for_ever_also_when_its_pause_was_compacted_away() -> None:
    """The record alone is enough to judge it, and what is written on top of it begins where producers are."""
    void = parse_route(point(), broker_ms=T0 + 1)
    again = replace(void, epoch=9, state=State.OPEN, until_ms=None)
    assert parse_route(serialise_route(again), broker_ms=T0 + 5000).active == "payments"


# ------------------------------------------------------------------------------------------------ acknowledgements


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"role": "broker"}, "role"),
        ({"status": "fine"}, "fine"),
        ({"offsets": {"a": 1}}, "offsets"),
        ({"offsets": {"0": "1"}}, "offsets"),
        ({"offsets": {"0": 2**63}}, "offsets"),
        ({"role": "consumer", "group": None}, "group"),
        ({"clock_ms": "0001-01-01T00:00:00+14:00"}, "clock_ms"),
        ({"epoch": 2**64}, "epoch"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"gone_ms": 10**15}, "gone_ms"),
        ({"armed": "yes"}, "armed"),
        ({"participant": None}, "participant"),
        ({"participant": "a\x1b[31m"}, "participant"),
    ],
)
def test_a_wrong_field_of_an_acknowledgement_is_named(changes: dict[str, Any], word: str) -> None:
    good = json.loads(serialise_ack(Ack("payments", "producer", "checkout", "c.1", Status.RUNNING, 0, "payments")))
    with pytest.raises(RouteFormatError, match=word):
        parse_ack(json.dumps({**good, **changes}))


def test_a_bad_acknowledgement_names_its_instance_and_what_can_be_made_out() -> None:
    good = json.loads(serialise_ack(Ack("p", "consumer", "ledger", "l.1", Status.RUNNING, 0, "p", group="g")))
    bad = read_ack(b"p/l.1", json.dumps({**good, "epoch": -1}).encode(), T0)
    assert isinstance(bad, BadAck)
    assert (bad.logical, bad.instance, bad.role, bad.participant, bad.group) == ("p", "l.1", "consumer", "ledger", "g")
    assert bad.may_be("consumer", "ledger", "g")
    assert not bad.may_be("consumer", "fraud", "f") and not bad.may_be("producer", "ledger", None)
    unknown = read_ack(b"p/l.1", b"{", T0)
    assert isinstance(unknown, BadAck)
    assert unknown.may_be("producer", "checkout", None) and unknown.may_be("consumer", "ledger", "g")


def test_an_acknowledgement_under_anothers_key_or_without_a_stamp_is_bad_and_one_without_a_name_is_nobodys() -> None:
    value = serialise_ack(Ack("p", "producer", "c", "c.1", Status.PAUSED, 0, "p"))
    assert isinstance(read_ack(b"p/c.1", value, T0), Ack)
    for bad in (read_ack(b"p/c.2", value, T0), read_ack(b"q/c.1", value, T0), read_ack(b"p/c.1", value, None)):
        assert isinstance(bad, BadAck)
    assert read_ack(b"~clock", b'{"v": 1}', T0) is None
    assert read_ack(None, value, T0) is None


@given(*[st.builds(Route, topics, topics, st.sampled_from(State), st.integers(1, 3))] * 2)
def test_the_higher_epoch_wins_whatever_came_first(one: Route, two: Route) -> None:
    assert newer(one, two) == (two.epoch > one.epoch)
    assert newer(None, one)
