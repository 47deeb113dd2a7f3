"""The route on a real broker when things go wrong: sleeping processes, late records, bad bytes, wrong configs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.integration.route_world import CHECKOUT, QUICK, RouteWorld, Traffic, Victim, eventually, life
from tests.unit.test_route_records import NASTY

from lab.broker import EmbeddedBroker
from lab.rights import allow, grant, producer_rights
from topicshift.adapters.kafka.admin import KafkaAdmin
from topicshift.adapters.route_store import TRANSACTIONAL_ID_PREFIX
from topicshift.boot_clock import read_now
from topicshift.cli import run
from topicshift.client import RoutedProducer, RoutePaused
from topicshift.core.errors import Refused, Unreadable
from topicshift.core.route.acts import Act, point_producers
from topicshift.core.route.client import Timing
from topicshift.core.route.records import (
    ACKS_TOPIC,
    ROUTES_TOPIC,
    Route,
    State,
    Status,
    ack_key,
    serialise_ack,
    serialise_route,
)
from topicshift.ports import Participant, ParticipantState

pytestmark = pytest.mark.broker

SOON = {"heartbeat_s": 0.4, "stale_s": 1.5}
"""A producer that is blind after 1.5 s; with a delivery time-out of 1 s it counts as gone after 7.5 s."""


def command(world: RouteWorld, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = run(["route", *words, "--bootstrap-server", world.config["bootstrap.servers"], "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out.strip() else None, out.err


# ------------------------------------------------------------------------------------------------ sleeping processes


def test_a_process_that_slept_through_the_switch_writes_nothing_to_the_old_topic(world: RouteWorld) -> None:
    victim = Victim(world, busy=True, timing=SOON, **{"delivery.timeout.ms": 1000, "linger.ms": 0})
    with life(victim):
        world.arm(CHECKOUT)
        eventually("it writes", lambda: len(victim.said("took")) > 20)
        victim.freeze()
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", None)
        fence = world.ends(world.source)
        world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.start(world.ctx(), [CHECKOUT])
        victim.wake()
        eventually("it goes on with the target", lambda: sum(world.ends(world.target).values()) > 20)
        assert world.ends(world.source) == fence


def test_what_was_taken_before_a_sleep_is_caught_by_the_moving_ends(world: RouteWorld) -> None:
    """Admission cannot hold it: somebody took the sleeper for dead, and its queued record comes all the same."""
    victim = Victim(world, busy=False, timing=SOON, **{"linger.ms": 4000})
    with life(victim):
        victim.tell()
        eventually("a record is queued", lambda: victim.said("took"))
        victim.freeze()
        eventually("it is silent", lambda: "victim is silent" in world.state(CHECKOUT).reason)
        world.store.dismiss(world.source, "victim")
        fence = world.ends(world.source)
        victim.wake()
        eventually("its record comes", lambda: world.ends(world.source) != fence)


def test_what_was_taken_before_a_sleep_is_held_by_the_deny(
    secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    world = RouteWorld(secure_broker.config(), topic_name())
    grant(world.config, producer_rights("checkout", world.source))
    victim_world = RouteWorld.__new__(RouteWorld)
    victim_world.config, victim_world.source = secure_broker.config("checkout"), world.source
    victim = Victim(victim_world, busy=False, timing=SOON, **{"linger.ms": 4000})
    with life(victim, world):
        victim.tell()
        eventually("a record is queued", lambda: victim.said("took"))
        victim.freeze()
        grant(world.config, [replace(a, permission="DENY") for a in allow("*", "TOPIC", world.source, "WRITE")])
        victim.wake()
        eventually("it is refused", lambda: "done TOPIC_AUTHORIZATION_FAILED" in victim.lines)
        assert sum(world.ends(world.source).values()) == 0


def test_one_that_is_killed_after_it_paused_holds_up_nothing(world: RouteWorld) -> None:
    victim = Victim(world, busy=False, timing=SOON)
    producer = world.producer()
    with life(victim, producer):
        world.arm(CHECKOUT)
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        victim.stop()
        eventually("it is missed", lambda: "victim is silent" in world.state(CHECKOUT).reason)
        assert world.state(CHECKOUT).status == "stopped"
        world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.start(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "running", world.target)


# ------------------------------------------------------------------------------------------------ late records


class LateOrchestrator:
    """Has decided on the point in time; its broker takes as long as the test wants."""

    def __init__(self, world: RouteWorld) -> None:
        route = world.store.read(world.source)
        assert route is not None
        act = Act(world.source, world.source, world.target, f"m-{world.source}", 1, world.store.broker_now())
        point = point_producers(route, act, world.target)
        assert point is not None
        self.route, self._value = route, serialise_route(point)
        self._key = world.source.encode()
        transaction = {"transactional.id": f"{TRANSACTIONAL_ID_PREFIX}{world.source}", "transaction.timeout.ms": 30_000}
        self._producer = Producer({**world.config, **transaction})
        self._producer.init_transactions(30)

    def append(self) -> None:
        self._producer.begin_transaction()
        self._producer.produce(ROUTES_TOPIC, key=self._key, value=self._value, partition=0)
        assert self._producer.flush(10) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)


def _past(world: RouteWorld, at_ms: int | None) -> None:
    assert at_ms is not None
    eventually("the brokers' time is past it", lambda: world.store.broker_now()[0] > at_ms)


def test_a_point_that_was_stamped_in_time_is_obeyed_by_all_however_late_it_is_committed(world: RouteWorld) -> None:
    fleet = [world.producer() for _ in range(3)]
    with life(*fleet):
        for one in fleet:
            one.wait_ready()
        world.controller.stop(world.ctx(lease_s=6), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        late = LateOrchestrator(world)
        late.append()
        _past(world, (late.route.until_ms or 0) + 1000)
        assert [one.status for one in fleet] == [Status.PAUSED] * 3, "something is open below the end of the pause"
        late.commit()
        eventually("they go on", lambda: all(one.status is Status.LEASE_EXPIRED for one in fleet))
        assert {one.topic for one in fleet} == {world.target}


def test_a_point_that_was_stamped_too_late_is_void_for_all_and_the_orchestrator_starts_over(world: RouteWorld) -> None:
    fleet = [world.producer() for _ in range(3)]
    with life(*fleet):
        for one in fleet:
            one.wait_ready()
        world.controller.stop(world.ctx(lease_s=6), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        late = LateOrchestrator(world)
        _past(world, (late.route.until_ms or 0) - 2000)
        late.append()
        late.commit()
        eventually("they go on", lambda: all(one.status is Status.LEASE_EXPIRED for one in fleet))
        assert {one.topic for one in fleet} == {world.source}
        assert "is void" in world.wait(CHECKOUT, "running", world.source).reason
        with pytest.raises(Refused, match="Stop them again"):
            world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        world.controller.point(world.ctx(), [CHECKOUT], world.target)
        world.controller.start(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "running", world.target)


def test_a_restart_in_a_pause_does_not_lengthen_it(world: RouteWorld) -> None:
    producer = world.producer()
    producer.wait_ready()
    world.controller.stop(world.ctx(lease_s=8), [CHECKOUT])
    world.wait(CHECKOUT, "stopped", world.source)
    producer.close()
    route = world.store.read(world.source)
    assert route is not None
    _past(world, (route.until_ms or 0) - 3000)
    again = world.producer()
    with life(again):
        again.wait_ready()
        assert again.status is Status.PAUSED
        eventually("it goes on", lambda: again.status is Status.LEASE_EXPIRED)
        assert world.store.broker_now()[1] < (route.until_ms or 0) + 3000


# ------------------------------------------------------------------------------------------------ bad bytes


def test_no_bytes_in_the_route_topics_harm_anybody_but_their_own_key(
    world: RouteWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    producer, raw = world.producer(), Producer(world.config)
    with life(producer):
        producer.wait_ready()
        for n, value in enumerate(NASTY):
            raw.produce(ROUTES_TOPIC, key=f"{world.source}-other-{n}", value=value, partition=0)
            raw.produce(ROUTES_TOPIC, key=world.source, value=value, partition=0)
            raw.produce(ACKS_TOPIC, key=f"{world.source}-other/x.{n}", value=value, partition=0)
            raw.produce(ACKS_TOPIC, key=value[:20], value=value, partition=0)
        raw.flush(10)
        eventually("the client says so", lambda: "not understood" in producer._client.problem)
        with pytest.raises(Unreadable, match="route set"):
            world.state(CHECKOUT)
        assert producer.produce("k", b"x") == world.source, "its own key keeps the route it has"
        code, _, _ = command(world, capsys, "set", "--topic", world.source, "--yes", "--epoch", "0", "--state", "open")
        assert code == 2, "where its producers write must be named"
        words = ("--yes", "--epoch", "0", "--active", world.source)
        code, answer, _ = command(world, capsys, "set", "--topic", world.source, *words)
        assert (code, answer["active"]) == (0, world.source)
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source)
        for n in range(len(NASTY)):
            raw.produce(ROUTES_TOPIC, key=f"{world.source}-other-{n}", value=None, partition=0)
            raw.produce(ACKS_TOPIC, key=f"{world.source}-other/x.{n}", value=None, partition=0)
        raw.flush(10)


def test_a_bad_acknowledgement_of_this_topic_is_unknown_by_name_until_it_is_dismissed(
    world: RouteWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    producer, raw = world.producer(), Producer(world.config)
    with life(producer):
        producer.wait_ready()
        world.wait(CHECKOUT, "running", world.source)
        beyond = b'{"v": 1, "epoch": 1' + b"0" * 30 + b"}"
        raw.produce(ACKS_TOPIC, key=ack_key(world.source, "odd.1"), value=beyond, partition=0)
        raw.flush(10)
        state = world.wait(CHECKOUT, "unknown", None)
        assert "odd.1 is not understood" in state.reason and f"route dismiss {world.source} odd.1" in state.reason
        code, answer, _ = command(world, capsys, "show", "--topic", world.source)
        assert (code, answer["routes"][0]["instances_not_understood"][0]["instance"]) == (0, "odd.1")
        code, _, err = command(world, capsys, "dismiss", world.source, producer.instance, "--yes")
        assert (code, "is alive" in err) == (3, True)
        code, _, err = command(world, capsys, "dismiss", world.source, "nobody", "--yes")
        assert (code, "No instance nobody" in err) == (3, True)
        code, answer, _ = command(world, capsys, "dismiss", world.source, "odd.1", "--yes")
        assert (code, answer["dismissed"]) == (0, "odd.1")
        world.wait(CHECKOUT, "running", world.source)


def test_an_instance_with_a_wrong_picture_of_the_brokers_clock_blocks_by_name(world: RouteWorld) -> None:
    """It would end a pause as much too late (or too early), and with Airflow dead nobody could make it go on."""
    producer, raw = world.producer(), Producer(world.config)
    with life(producer):
        producer.wait_ready()
        world.wait(CHECKOUT, "running", world.source)
        ack = producer._client.good_bye(read_now()).ack
        for off_s, said in ((-120, "behind"), (60, "ahead")):
            odd = replace(
                ack, instance="odd.2", status=Status.RUNNING, clock_ms=world.store.broker_now()[1] + off_s * 1000
            )
            raw.produce(ACKS_TOPIC, key=odd.key, value=serialise_ack(odd), partition=0)
            raw.flush(10)
            reason = world.wait(CHECKOUT, "unknown", None).reason
            assert "odd.2 takes the brokers' clock to be" in reason and f" s {said}" in reason
        world.store.dismiss(world.source, "odd.2")
        world.wait(CHECKOUT, "running", world.source)


# ------------------------------------------------------------------------------------------------ wrong configs


def test_wrong_configs_are_found_before_they_are_relied_on_and_mended(
    world: RouteWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    def set_(topic: str, **configs: str) -> None:
        entries = [
            ConfigEntry(k.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET) for k, v in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        world.admin.incremental_alter_configs([resource])[resource].result(10)

    producer = world.producer()
    with life(producer):
        producer.wait_ready()
        try:
            set_(ROUTES_TOPIC, cleanup_policy="delete")
            set_(ACKS_TOPIC, message_timestamp_type="CreateTime", retention_ms="60000", max_message_bytes="999999")
            found = eventually("all four show", lambda: len(p := world.controller.check(world.ctx())) == 4 and p)
            assert "cleanup.policy delete" in found[0] and "message.timestamp.type CreateTime" in found[1]
            eventually("its clock is not the judge", lambda: _doubted(world))
            code, answer, _ = command(world, capsys, "init", "--check")
            assert (code, answer["done"], len(answer["problems"])) == (3, [], 4)
            said = world.controller.prepare(world.ctx())
            assert [line.split(":")[0] for line in said] == [ROUTES_TOPIC, ACKS_TOPIC]
        finally:
            code, answer, _ = command(world, capsys, "init")
        assert (code, answer["problems"]) == (0, [])
        world.wait(CHECKOUT, "running", world.source)


def _doubted(world: RouteWorld) -> bool:
    try:
        return "LogAppendTime" in world.state(CHECKOUT).reason
    except Unreadable as exc:  # nor is the orchestrator's own picture of the brokers' time
        return "not stamped by the brokers" in str(exc)


def test_a_broker_that_crashed_and_came_back_leaves_no_armed_producer_blind() -> None:
    """The partition of the route has a new leader epoch then, and refuses whoever still asks with the one before."""
    with EmbeddedBroker() as broker:
        world = RouteWorld(broker.config(), "crashed")
        producer = world.producer(timing=Timing(**SOON))
        with life(producer, world):
            producer.wait_ready()
            world.arm(CHECKOUT)
            broker.kill()
            eventually("it is blind", lambda: producer.status is Status.BLIND, 30)
            broker.restart()
            eventually("it goes on", lambda: producer.status is Status.RUNNING, 30)
            assert producer.produce("k", b"x") == world.source


# ------------------------------------------------------------------------------------------------ callbacks, arming


def test_callbacks_of_the_application_never_hold_up_the_pause(world: RouteWorld) -> None:
    stuck, retried = threading.Event(), []
    producer = world.producer(on_change=lambda *_: stuck.wait(60), max_block_s=120)

    def again(error: Any, _: Any) -> None:
        retried.append(error)
        producer.produce("k", b"again", on_delivery=again if len(retried) < 500 else None)

    with life(producer):
        producer.wait_ready()
        for _ in range(5):
            producer.produce("k", b"x", on_delivery=again)
        stuck.set()
        eventually("it writes out of its callbacks", lambda: len(retried) > 20)
        stuck.clear()
        world.controller.stop(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "stopped", world.source, 15)
        fence = world.ends(world.source)
        stuck.set()
        world.controller.start(world.ctx(), [CHECKOUT])
        world.wait(CHECKOUT, "running", world.source, 15)
        eventually("it goes on", lambda: world.ends(world.source) != fence)


def test_an_unreadable_route_stops_nobody_until_it_is_armed(
    secure_broker: EmbeddedBroker, topic_name: Callable[..., str]
) -> None:
    world = RouteWorld(secure_broker.config(), topic_name())
    sight = [a for a in producer_rights("billing", world.source) if a.name == ROUTES_TOPIC]
    grant(world.config, producer_rights("billing", world.source))
    timing = Timing(heartbeat_s=0.4, stale_s=1.5)
    producer = RoutedProducer(secure_broker.config("billing"), world.source, "billing", max_block_s=0.1, timing=timing)
    billing = Participant("billing", "producer", "route")
    with life(producer, world), KafkaAdmin(world.config) as admin:
        producer.wait_ready()
        admin.delete_acls(sight)
        eventually("it reads nothing for long", lambda: (_age(producer) or 0) > 3 * timing.stale_s)
        assert producer.produce("k", b"x") == world.source
        late = RoutedProducer(secure_broker.config("billing"), world.source, "billing", max_block_s=0.5, timing=QUICK)
        with life(late), pytest.raises(RoutePaused, match="cannot be read"):
            late.produce("k", b"x")  # one that starts meanwhile waits
        world.controller.arm(world.ctx(), [billing])
        eventually(
            "it is named", lambda: producer.instance in world.controller.observe(world.ctx(), [billing])[0].reason
        )
        assert _seen(world, billing).armed is False
        grant(world.config, sight)
        eventually("armed", lambda: _seen(world, billing).armed)
        admin.delete_acls(sight)
        eventually("it is blind", lambda: producer.status is Status.BLIND, 30)
        with pytest.raises(RoutePaused, match="cannot be read"):
            producer.produce("k", b"x")
        grant(world.config, sight)
        world.controller.disarm(world.ctx(), [billing])
        eventually("it goes on", lambda: producer.status is Status.RUNNING, 30)


def _seen(world: RouteWorld, who: Participant) -> ParticipantState:
    return world.controller.observe(world.ctx(), [who])[0]


def _age(producer: RoutedProducer) -> float | None:
    from topicshift.boot_clock import read_now

    with producer._gate:
        return producer._client.contact_age(read_now())


def test_traffic_goes_on_while_the_route_is_armed_and_disarmed(world: RouteWorld) -> None:
    producer = world.producer()
    traffic = Traffic(producer, range(5))
    with life(traffic, producer):
        eventually("it writes", lambda: traffic.count > 20)
        world.arm(CHECKOUT)
        route = world.store.read(world.source)
        assert route is not None and (route.state, route.armed) == (State.OPEN, 1)
        at = traffic.count
        eventually("it goes on", lambda: traffic.count > at + 20)
        world.controller.disarm(world.ctx(), [CHECKOUT])
        eventually("it says so", lambda: world.store.all_acks() and not producer._client.armed)
        assert not traffic.failed


def test_an_open_transaction_on_another_route_blinds_nobody(world: RouteWorld) -> None:
    producer = world.producer(timing=Timing(heartbeat_s=0.4, stale_s=2.0))
    other = Producer({**world.config, "transactional.id": f"{TRANSACTIONAL_ID_PREFIX}{world.source}-other"})
    with life(producer):
        producer.wait_ready()
        world.arm(CHECKOUT)
        other.init_transactions(30)
        other.begin_transaction()
        value = serialise_route(Route(f"{world.source}-other", "x", State.OPEN, 1))
        other.produce(ROUTES_TOPIC, key=f"{world.source}-other", value=value, partition=0)
        assert other.flush(10) == 0
        before = world.store.broker_now()[0]
        _past(world, before + 4000)
        assert producer.status is Status.RUNNING
        assert producer.produce("k", b"x") == world.source
        other.abort_transaction(30)
